//===- RowFactors.cpp - What the columns of a product have in common ------===//
//
//   out[t, e] = sum[d]((x[t, d] - mean[t]) / deviation[t] * w[d, e])
//
// becomes
//
//   feature[t, d] = (x[t, d] - mean[t]) / deviation[t]
//   out[t, e]     = sum[d](feature[t, d] * w[d, e])
//
// The matrix plan reads rows again for each vector of columns. With them it would compute what is around them.
//
//===----------------------------------------------------------------------===//

#include "RowFactors.h"
#include "Form.h"
#include "InlineRules.h"
#include "Product.h"
#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>

using namespace mlir;
using namespace attn;

bool attn::isMatrixProduct(ReduceOp sum, TensorOp tensor) {
  if (sum.getKind() != ReduceKind::Sum || !isa<FloatType>(sum.getType()) || sum.isConditional())
    return false;
  auto indices = tensor.getBody().getArguments();
  Product product = Product::of(yielded(sum.getBody()));
  return llvm::any_of(indices.drop_back(), [&](BlockArgument row) {
    auto has = [&](bool ofRow) {
      return llvm::any_of(product.factors, [&](const Factor &factor) {
        return factor.indices.contains(row) == ofRow && factor.indices.contains(indices.back()) != ofRow;
      });
    };
    return has(true) && has(false);
  });
}

/// Whether `value` reduces something, or reads pairs; or what is computed with those, where `tensor` is, too: nothing
/// comes between the statements of a block.
static bool isLateOrReduces(Value value, TensorOp tensor) {
  return anyInSlice(value, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    auto source = read ? read.getTensor().getDefiningOp<TensorOp>() : TensorOp();
    bool isLate = source && (isStoredWithPairs(tensor) ? isStoredWithPairs(source) : isPairs(source.getResult()));
    return isa<ReduceOp>(op) || isLate;
  });
}

/// Whether an input, or a tensor that is stored as a whole, has as many elements as there are of `indices`.
static bool isNoLarger(const IndexSet &indices, KernelOp kernel, const llvm::DenseSet<Value> &compared) {
  SmallVector<SizeAttr> sizes = llvm::map_to_vector(indices, indexSize);
  auto hasSizes = [&](Value tensor) {
    ArrayRef<SizeAttr> shape = cast<AttnTensorType>(tensor.getType()).getShape();
    return std::is_permutation(shape.begin(), shape.end(), sizes.begin(), sizes.end());
  };
  return llvm::any_of(kernel.getParameters(), hasSizes) ||
         llvm::any_of(kernel.getBody().front().getOps<TensorOp>(), [&](TensorOp tensor) {
           Value result = tensor.getResult();
           return hasSizes(result) && !isPairs(result) && !compared.contains(result);
         });
}

/// The index along which the elements lie that `factors` read of the tensor with the most dimensions, if it is one.
static BlockArgument lastOfLargestRead(ArrayRef<Factor> factors) {
  ReadOp largest;
  for (const Factor &factor : factors)
    anyInSlice(factor.value, [&](Operation *op) {
      auto read = dyn_cast<ReadOp>(op);
      if (read && (!largest || read.getSubscripts().size() > largest.getSubscripts().size()))
        largest = read;
      return false;
    });
  return largest && !largest.getSubscripts().empty() ? dyn_cast<BlockArgument>(largest.getSubscripts().back())
                                                     : BlockArgument();
}

void attn::hoistRowFactors(TensorOp tensor, const llvm::DenseSet<Value> &compared) {
  BlockArgument column = tensor.getBody().getArguments().back();
  for (ReduceOp sum : tensor.getBody().front().getOps<ReduceOp>()) {
    if (!isMatrixProduct(sum, tensor))
      continue;
    Product product = Product::of(yielded(sum.getBody()));
    SmallVector<Factor> ofRows, ofColumns;
    for (const Factor &factor : product.factors)
      (factor.indices.empty() || factor.indices.contains(column) ? ofColumns : ofRows).push_back(factor);
    bool isElement = ofRows.size() == 1 && !ofRows.front().inverse && ofRows.front().value.getDefiningOp<ReadOp>();
    IndexSet indices;
    for (const Factor &factor : ofRows)
      indices.insert_range(factor.indices);
    if (isElement || !isNoLarger(indices, tensor->getParentOfType<KernelOp>(), compared) ||
        llvm::any_of(ofRows, [&](const Factor &factor) { return isLateOrReduces(factor.value, tensor); }))
      continue;
    BlockArgument innermost = lastOfLargestRead(ofRows);
    OpBuilder builder(sum.getBody().front().getTerminator());
    Location location = sum.getLoc();
    IRMapping mapping;
    for (Block *block : {&tensor.getBody().front(), &sum.getBody().front()})
      mapping.map(block->getArguments(), block->getArguments());
    Value common = multiply(ofRows, false, sum.getType(), mapping, builder, location);
    Value element = hoist(common, tensor, (tensor.getName() + "_feature").str(), builder, innermost);
    Value others = multiply(ofColumns, product.negative, sum.getType(), mapping, builder, location);
    Value term = arith::MulFOp::create(builder, location, element, others);
    sum.getBody().front().getTerminator()->setOperand(0, term);
    eraseUnused(sum.getBody().front());
    auto feature = element.getDefiningOp<ReadOp>().getTensor().getDefiningOp<TensorOp>();
    for (ReadOp own : llvm::to_vector(feature.getBody().getOps<ReadOp>()))
      if (TensorOp source = inlinable(own, {}); source && isPartOf(source, own, feature))
        substituteFormula(own, source);
    noteRewrite(tensor, "hoist",
                "what the columns of '" + tensor.getName() + "' have in common is computed once, as '" +
                    feature.getName() + "'");
  }
}
