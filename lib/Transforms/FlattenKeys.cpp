//===- FlattenKeys.cpp - A softmax over several indices gets one ----------===//
//
//   weight[i, x, y] = softmax[x, y](score[i, x, y])
//   out[i, e]       = sum[x, y](weight[i, x, y] * v[x, y, e])
//
// becomes
//
//   weight[i, x_y: X * Y] = softmax[x_y](score[i, x_y // Y, x_y % Y])
//   out[i, e]             = sum[x_y](weight[i, x_y] * v[x_y // Y, x_y % Y, e])
//
// so that it is one attention over X · Y keys, with the plans and the gradients of one.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Slice.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNFLATTENKEYS
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
struct FlattenKeys : attn::impl::AttnFlattenKeysBase<FlattenKeys> {
  void runOnOperation() override;
};

/// The keys of a softmax, and the one index that they become.
struct FlatKey {
  SmallVector<unsigned> positions; ///< Among the indices of the weights.
  SmallVector<SizeAttr> sizes;
  SmallVector<std::string> names;

  FlatKey(ReduceOp softmax, ArrayRef<BlockArgument> keys);
  std::string name() const { return llvm::join(names, "_"); }
  /// The product of the sizes from `first` on.
  SizeAttr size(unsigned first = 0) const;
  /// The keys at the builder's place, where the one index is `flat`.
  SmallVector<Value> digits(Value flat, OpBuilder &builder, Location location) const;
  /// `reduce` over the one index, at the builder's place.
  ReduceOp rewrite(ReduceOp reduce, ValueRange at, IRMapping mapping, OpBuilder &builder) const;
};
} // namespace

FlatKey::FlatKey(ReduceOp softmax, ArrayRef<BlockArgument> keys) {
  for (auto [key, size] : llvm::zip_equal(keys, softmax.getSizes().getAsRange<SizeAttr>())) {
    positions.push_back(key.getArgNumber());
    sizes.push_back(size);
    names.push_back(indexName(key).str());
  }
}

SizeAttr FlatKey::size(unsigned first) const {
  // X * (Y * Z): the last sizes are what quotients divide by.
  SizeAttr product = sizes.back();
  for (SizeAttr size : llvm::reverse(ArrayRef(sizes).slice(first).drop_back()))
    product = SizeAttr::binary(SizeKind::Mul, size, product);
  return product;
}

SmallVector<Value> FlatKey::digits(Value flat, OpBuilder &builder, Location location) const {
  SmallVector<Value> keys;
  for (unsigned position = 0; position < sizes.size(); ++position) {
    Value key = flat;
    if (position + 1 < sizes.size())
      key = FloorDivOp::create(builder, location, key, SizeOp::create(builder, location, size(position + 1)));
    if (position > 0)
      key = ModOp::create(builder, location, key, SizeOp::create(builder, location, sizes[position]));
    keys.push_back(key);
  }
  return keys;
}

ReduceOp FlatKey::rewrite(ReduceOp reduce, ValueRange at, IRMapping mapping, OpBuilder &builder) const {
  Location location = reduce.getLoc();
  Value sink = reduce.getSink() ? cloneSlice(reduce.getSink(), mapping, builder) : Value();
  auto flat = ReduceOp::create(builder, location, reduce.getKind(), builder.getStrArrayAttr({StringRef(name())}),
                               ArrayRef<SizeAttr>{size()}, reduce.getType(), at, sink, reduce.isConditional());
  OpBuilder::InsertionGuard guard(builder);
  auto fill = [&](Region &from, Region &to) {
    builder.setInsertionPointToEnd(&to.front());
    IRMapping inside = mapping;
    inside.map(from.getArguments(), digits(to.getArgument(0), builder, location));
    Value value = cloneSlice(yielded(from), inside, builder);
    YieldOp::create(builder, location, value);
  };
  fill(reduce.getBody(), flat.getBody());
  if (reduce.isConditional())
    fill(reduce.getWhere(), flat.getWhere());
  return flat;
}

/// Whether `read`, in the terms of `sum`, has the sum's indices for keys, all of them in their order, and none in rows.
static bool readsAllKeys(ReadOp read, ReduceOp sum, const FlatKey &key) {
  if (sum.getKind() != ReduceKind::Sum || read->getParentRegion() != &sum.getBody() ||
      !llvm::equal(sum.getSizes().getAsRange<SizeAttr>(), key.sizes))
    return false;
  Block &terms = sum.getBody().front();
  for (auto [position, subscript] : llvm::enumerate(read.getSubscripts())) {
    size_t digit = llvm::find(key.positions, position) - key.positions.begin();
    bool isRow = digit == key.positions.size();
    bool changes = llvm::any_of(dependence(subscript), [&](BlockArgument index) { return index.getOwner() == &terms; });
    if (isRow ? changes : subscript != terms.getArgument(digit))
      return false;
  }
  return true;
}

/// The sums over all the keys of `weights` that read them there; none where anything else reads them.
static llvm::SmallSetVector<ReduceOp, 2> sumsOver(const FlatKey &key, TensorOp weights) {
  llvm::SmallSetVector<ReduceOp, 2> sums;
  for (Operation *user : weights.getResult().getUsers()) {
    auto read = dyn_cast<ReadOp>(user);
    auto sum = read ? dyn_cast<ReduceOp>(read->getParentOp()) : ReduceOp();
    if (!sum || !readsAllKeys(read, sum, key))
      return {};
    sums.insert(sum);
  }
  return sums;
}

/// The weights over one key, before `weights`.
static TensorOp flatten(const FlatKey &key, TensorOp weights, ReduceOp softmax) {
  OpBuilder builder(weights);
  SmallVector<StringRef> names;
  SmallVector<SizeAttr> shape;
  SmallVector<BlockArgument> rows;
  for (BlockArgument index : weights.getBody().getArguments())
    if (!llvm::is_contained(key.positions, index.getArgNumber())) {
      rows.push_back(index);
      names.push_back(indexName(index));
      shape.push_back(indexSize(index));
    }
  std::string name = key.name();
  names.push_back(name);
  shape.push_back(key.size());
  auto type = AttnTensorType::get(builder.getContext(), shape, weights.getResult().getType().getElementType());
  auto flat = TensorOp::create(builder, weights.getLoc(), weights.getName(), builder.getStrArrayAttr(names), type);
  Block &body = flat.getBody().front();
  IRMapping mapping;
  for (auto [row, argument] : llvm::zip(rows, body.getArguments()))
    mapping.map(row, argument);
  builder.setInsertionPointToEnd(&body);
  ReduceOp reduce = key.rewrite(softmax, body.getArguments().take_back(), mapping, builder);
  YieldOp::create(builder, weights.getLoc(), reduce.getResult());
  return flat;
}

/// Makes `sum` one over the one key, which reads `flat` in the place of `weights`.
static void rewriteSum(const FlatKey &key, ReduceOp sum, TensorOp weights, TensorOp flat) {
  OpBuilder builder(sum);
  IRMapping mapping; // what is around the sum stays
  for (Operation *op = sum->getParentOp(); !isa<KernelOp>(op); op = op->getParentOp())
    for (Region &region : op->getRegions())
      mapping.map(region.getArguments(), region.getArguments());
  ReduceOp result = key.rewrite(sum, {}, mapping, builder);
  for (ReadOp read : llvm::to_vector(result.getBody().getOps<ReadOp>())) {
    if (read.getTensor() != weights.getResult())
      continue;
    SmallVector<Value> subscripts;
    for (auto [position, subscript] : llvm::enumerate(read.getSubscripts()))
      if (!llvm::is_contained(key.positions, position))
        subscripts.push_back(subscript);
    subscripts.push_back(result.getBody().getArgument(0));
    builder.setInsertionPoint(read);
    Value element = ReadOp::create(builder, read.getLoc(), flat.getResult(), subscripts);
    read.getResult().replaceAllUsesWith(element);
    read.erase();
  }
  sum.getResult().replaceAllUsesWith(result.getResult());
  sum.erase();
}

void FlattenKeys::runOnOperation() {
  for (TensorOp weights : llvm::to_vector(getOperation().getBody().front().getOps<TensorOp>())) {
    ReduceOp softmax = wholeReduction(weights, ReduceKind::Softmax);
    SmallVector<BlockArgument> keys = softmax ? softmaxKeys(softmax, weights) : SmallVector<BlockArgument>();
    if (keys.size() < 2)
      continue;
    FlatKey key(softmax, keys);
    if (!llvm::all_of(key.sizes, isNeverNegative)) // the product of two would not be empty
      continue;
    llvm::SmallSetVector<ReduceOp, 2> sums = sumsOver(key, weights);
    if (sums.empty())
      continue;
    TensorOp flat = flatten(key, weights, softmax);
    for (ReduceOp sum : sums)
      rewriteSum(key, sum, weights, flat);
    weights.erase();
  }
}
