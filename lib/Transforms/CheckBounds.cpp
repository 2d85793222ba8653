//===- CheckBounds.cpp - A kernel that checks another one's subscripts ----===//
//
//   y[m] = select(on[m], x[index[m]], 0.0)
//
// becomes a kernel with the same parameters and two numbers for each subscript that depends on data: its least and its
// greatest value where the outputs use it.
//
//   x_0_least    = min[m](select(on[m], index[m], 0))
//   x_0_greatest = max[m](select(on[m], index[m], -1))
//
// Where it is not used, 0 is not too little and −1 not too much for any size, 0 included. It is an ordinary kernel: the
// passes simplify it and the plans make it fast. The runtime calls it first and compares.
//
// A backward pass has no such kernel: it reads at the subscripts of the forward pass, which is called before it, and
// has lost the conditions that it does not need.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Slice.h"
#include "UsedSubscripts.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNCHECKBOUNDS
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// The sizes that index variables range over although the subscript is the same for all of their values. Where one of
/// them is 0, nothing is used.
static SmallVector<SizeAttr> otherSizes(const UsedSubscript &used, const IndexSet &indices,
                                        const UsedSubscripts &subscripts) {
  llvm::SmallSetVector<SizeAttr, 4> sizes;
  for (BlockArgument index : used.indices)
    if (SizeAttr size = subscripts.indexSize(index); !size.isConstant() || size.getValue() == 0)
      sizes.insert(size);
  for (BlockArgument index : indices)
    sizes.remove(subscripts.indexSize(index));
  return sizes.takeVector();
}

/// The subscript where it is used, else `otherwise`. `mapping` says what index variables are.
static Value whereUsed(const UsedSubscript &used, ArrayRef<SizeAttr> others, int64_t otherwise, IRMapping &mapping,
                       OpBuilder &builder) {
  Location location = used.subscript.getLoc();
  auto integer = [&](int64_t value) {
    return arith::ConstantOp::create(builder, location, builder.getI64IntegerAttr(value)).getResult();
  };
  Value subscript = cloneSlice(used.subscript, mapping, builder);
  Value condition = used.condition ? cloneSlice(used.condition, mapping, builder) : Value();
  for (SizeAttr other : others) {
    Value size = SizeOp::create(builder, location, other);
    Value any = arith::CmpIOp::create(builder, location, arith::CmpIPredicate::sgt, size, integer(0));
    condition = condition ? arith::AndIOp::create(builder, location, condition, any).getResult() : any;
  }
  if (!condition)
    return subscript;
  return arith::SelectOp::create(builder, location, condition, subscript, integer(otherwise));
}

/// A number before `trace`: the least or the greatest value of a subscript where it is used.
static Value extreme(const UsedSubscript &used, const UsedSubscripts &subscripts, ReduceKind kind, StringRef name,
                     TensorOp trace) {
  OpBuilder builder(trace);
  Location location = used.subscript.getLoc();
  Type integer = builder.getI64Type();
  auto tensor = TensorOp::create(builder, location, freshName(trace->getParentOfType<KernelOp>(), name),
                                 builder.getArrayAttr({}), AttnTensorType::get(builder.getContext(), {}, integer));
  builder.setInsertionPointToEnd(&tensor.getBody().front());
  SmallVector<Value> values = {used.subscript};
  if (used.condition)
    values.push_back(used.condition);
  IndexSet indices = dependence(values);
  SmallVector<SizeAttr> others = otherSizes(used, indices, subscripts);
  int64_t otherwise = kind == ReduceKind::Min ? 0 : -1;
  IRMapping mapping;
  if (indices.empty()) {
    YieldOp::create(builder, location, whereUsed(used, others, otherwise, mapping, builder));
    return tensor.getResult();
  }
  SmallVector<Attribute> names;
  SmallVector<SizeAttr> sizes;
  SmallVector<BlockArgument> ordered = inOrder(indices);
  for (BlockArgument index : ordered) {
    names.push_back(builder.getStringAttr(subscripts.indexName(index)));
    sizes.push_back(subscripts.indexSize(index));
  }
  auto reduce = ReduceOp::create(builder, location, kind, builder.getArrayAttr(names), sizes, integer, ValueRange(),
                                 Value(), /*conditional=*/false);
  YieldOp::create(builder, location, reduce.getResult());
  for (auto [index, argument] : llvm::zip_equal(ordered, reduce.getBody().getArguments()))
    mapping.map(index, argument);
  builder.setInsertionPointToEnd(&reduce.getBody().front());
  YieldOp::create(builder, location, whereUsed(used, others, otherwise, mapping, builder));
  return tensor.getResult();
}

/// Replaces the outputs of `kernel` by two numbers for each of `subscripts`.
static void returnExtremes(KernelOp kernel, TensorOp trace, const UsedSubscripts &subscripts) {
  OpBuilder builder(kernel.getContext());
  SmallVector<Attribute> bounds;
  SmallVector<Value> outputs;
  llvm::DenseSet<std::tuple<Value, unsigned, Value, Value>> seen;
  for (const UsedSubscript &used : subscripts.get()) {
    if (!seen.insert({used.tensor, used.dimension, used.subscript, used.condition}).second)
      continue;
    std::string tensor = tensorName(used.tensor), name = tensor + "_" + std::to_string(used.dimension);
    outputs.push_back(extreme(used, subscripts, ReduceKind::Min, name + "_least", trace));
    outputs.push_back(extreme(used, subscripts, ReduceKind::Max, name + "_greatest", trace));
    bounds.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("statement", builder.getStringAttr(used.statement)),
         builder.getNamedAttr("tensor", builder.getStringAttr(tensor)),
         builder.getNamedAttr("dimension", builder.getI64IntegerAttr(used.dimension)),
         builder.getNamedAttr("size", cast<AttnTensorType>(used.tensor.getType()).getShape()[used.dimension])}));
  }
  SmallVector<Attribute> types(outputs.size(), TypeAttr::get(builder.getI64Type()));
  ReturnOp old = kernel.getReturn();
  builder.setInsertionPoint(old);
  ReturnOp::create(builder, old.getLoc(), outputs, builder.getArrayAttr(types));
  old.erase();
  trace.erase();
  eraseUnread(kernel);
  kernel->removeAttr(KernelOp::savedName);
  kernel->setAttr(KernelOp::boundsName, builder.getArrayAttr(bounds));
}

/// Puts the checking kernel of `kernel` after it, if it has subscripts to check.
static LogicalResult addCheckingKernel(KernelOp kernel) {
  for (Operation &op : kernel.getBody().front().without_terminator())
    if (!isa<TensorOp>(op))
      return op.emitError() << "attn-check-bounds comes before attn-raise: it needs attn.tensors alone";
  OpBuilder builder(kernel.getContext());
  builder.setInsertionPointAfter(kernel);
  auto checking = cast<KernelOp>(builder.clone(*kernel));
  checking.setSymName((kernel.getSymName() + KernelOp::boundsSuffix).str());
  builder.setInsertionPoint(checking.getReturn());
  auto trace = TensorOp::create(builder, kernel.getLoc(), freshName(checking, "trace"), builder.getArrayAttr({}),
                                AttnTensorType::get(kernel.getContext(), {}, builder.getI64Type()));
  UsedSubscripts subscripts(checking, trace);
  LogicalResult found = subscripts.find();
  if (failed(found) || subscripts.get().empty())
    checking.erase();
  else
    returnExtremes(checking, trace, subscripts);
  return found;
}

namespace {
struct CheckBounds : attn::impl::AttnCheckBoundsBase<CheckBounds> {
  void runOnOperation() override {
    for (KernelOp kernel : llvm::to_vector(getOperation().getOps<KernelOp>()))
      if (!kernel.checksBounds() && !isBackward(kernel) && failed(addCheckingKernel(kernel)))
        return signalPassFailure();
  }
};
} // namespace
