//===- BackwardDot.cpp - Σ weight · weight', from sums of the weights ------===//
//
// The gradient of a softmax needs sum[n](weight[m, n] * weight'[m, n]). Where out[m, e] = sum[n](weight[m, n] * v[n,
// e]) is all that reads the weights, that is sum[e](out[m, e] * out'[m, e]): no sum over pairs.
//
//===----------------------------------------------------------------------===//

#include "Backward.h"
#include "Statement.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <optional>

using namespace mlir;
using namespace attn;

/// What the forward kernel has saved of a sum, instead of computing it again.
Value Backward::saved(TensorOp tensor) {
  Value &parameter = savedTensors[tensor.getResult()];
  if (parameter)
    return parameter;
  ReturnOp returned = kernel.getReturn();
  auto outputs = returned.getOutputs();
  auto output = llvm::find(outputs, Value(tensor.getResult()));
  bool isReturned = output != outputs.end();
  AttnTensorType type = isReturned ? returned.getOutputType(output - outputs.begin()) : tensor.getResult().getType();
  parameter = kernel.getBody().front().insertArgument(firstGradient, type, tensor.getLoc());
  names.insert(names.begin() + firstGradient++, tensor.getName().str());
  if (!isReturned)
    savedSums.push_back(tensor.getName().str());
  // Whatever else reads it does not compute it again either.
  if (type.getComputeType() == tensor.getResult().getType().getComputeType())
    tensor.getResult().replaceUsesWithIf(parameter, [](OpOperand &use) { return isa<ReadOp>(use.getOwner()); });
  return parameter;
}

/// sum[…](element * gradient) over all indices of `owner` but `rows`, which come in this order.
Value Backward::dot(Value element, Value gradient, TensorOp owner, ArrayRef<unsigned> rows) {
  Block::BlockArgListType indices = owner.getBody().getArguments();
  SmallVector<unsigned> order(rows);
  for (unsigned position = 0; position < indices.size(); ++position)
    if (!llvm::is_contained(rows, position))
      order.push_back(position);
  Statement sum{"grad_" + owner.getName().str() + "_dot", {}, {}, computeType, nullptr};
  for (unsigned position : order)
    (sum.axes.size() < rows.size() ? sum.axes : sum.summed).push_back(axisOf(indices[position]));
  auto inOrder = [&](Indices places) {
    SmallVector<Value> subscripts(places.size());
    for (auto [position, place] : llvm::zip_equal(order, places))
      subscripts[position] = place;
    return subscripts;
  };
  sum.term = [&](OpBuilder &builder, Indices places) -> Value {
    SmallVector<Value> subscripts = inOrder(places);
    return arith::MulFOp::create(builder, owner.getLoc(), readWide(builder, element, subscripts),
                                 readWide(builder, gradient, subscripts));
  };
  if (Value mask = facts.masks.lookup(element))
    sum.condition = [&, mask](OpBuilder &builder, Indices places) -> Value {
      return ReadOp::create(builder, owner.getLoc(), mask, inOrder(places));
    };
  return sum.write(kernel, builder, owner.getLoc()).getResult();
}

/// Where the indices `rows` of `tensor` are among those of `reader`, if this is a multiple of the tensor: then
/// Σ tensor · tensor' = Σ reader · reader'.
static std::optional<SmallVector<unsigned>> rowsOfMultiple(TensorOp reader, TensorOp tensor, ArrayRef<unsigned> rows) {
  SmallVector<ReadOp> reads;
  reader.getBody().walk([&](ReadOp read) {
    if (read.getTensor() == tensor.getResult())
      reads.push_back(read);
  });
  Block &block = reader.getBody().front();
  if (reads.size() != 1 || !isMultipleOf(yielded(reader.getBody()), reads.front()))
    return std::nullopt;
  SmallVector<unsigned> positions;
  for (unsigned row : rows) {
    auto index = dyn_cast<BlockArgument>(reads.front().getSubscripts()[row]);
    if (!index || index.getOwner() != &block || indexSize(index) != indexSize(tensor.getBody().getArgument(row)))
      return std::nullopt;
    positions.push_back(index.getArgNumber());
  }
  return positions;
}

/// sum[…](tensor * tensor') for each of `rows`, or null where there is no way to it without a sum over pairs.
Value Backward::dotWithGradient(TensorOp tensor, ArrayRef<unsigned> rows) {
  if (!facts.pairs.contains(tensor.getResult()))
    return facts.statements.contains(tensor.getName())
               ? dot(saved(tensor), gradientOf(tensor.getResult()), tensor, rows)
               : Value();
  SmallVector<Value> terms;
  for (Part part : SmallVector<Part>(parts.lookup(tensor.getResult()))) {
    Value term;
    if (!part.reader)
      term = dot(tensor.getResult(), part.tensor, tensor, rows);
    else if (std::optional<SmallVector<unsigned>> positions = rowsOfMultiple(part.reader, tensor, rows))
      term = dotWithGradient(part.reader, *positions);
    if (!term)
      return {};
    terms.push_back(term);
  }
  if (terms.size() == 1)
    return terms.front();
  Statement total{"grad_" + tensor.getName().str() + "_dot", {}, {}, computeType, nullptr};
  for (unsigned row : rows)
    total.axes.push_back(axisOf(tensor.getBody().getArgument(row)));
  total.term = [&](OpBuilder &builder, Indices indices) {
    Value sum;
    for (Value term : terms) {
      Value element = ReadOp::create(builder, tensor.getLoc(), term, indices);
      sum = sum ? arith::AddFOp::create(builder, tensor.getLoc(), sum, element).getResult() : element;
    }
    return sum;
  };
  return total.write(kernel, builder, tensor.getLoc()).getResult();
}
