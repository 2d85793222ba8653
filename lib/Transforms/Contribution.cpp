//===- Contribution.cpp - What a statement adds to a gradient -------------===//

#include "Contribution.h"
#include "Slice.h"
#include "Statement.h"
#include "Subscripts.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace attn;

namespace {
/// The terms of a contribution: one for every value of `variables`.
struct Terms {
  ReadOp read;
  Value gradient;
  SmallVector<BlockArgument> variables; ///< Around the read, from the outside in.
  SmallVector<ReduceOp> conditional;    ///< Reductions around the read that leave terms out.
  SmallVector<ReadOp> factors;          ///< Reads that the gradient is a multiple of.
  SmallVector<ReadOp> masked;           ///< Those that are 0 where a mask is false.

  Terms(ReadGradient read, const GradientFacts &facts);
  bool isConditional() const { return !conditional.empty() || !masked.empty(); }
  /// The condition at the builder's place, where `mapping` says what the variables are.
  Value condition(const GradientFacts &facts, OpBuilder &builder, IRMapping mapping);
};
} // namespace

/// The reads that `value` is a multiple of.
static void collectFactors(Value value, SmallVectorImpl<ReadOp> &factors) {
  Operation *op = value.getDefiningOp();
  if (auto read = dyn_cast_or_null<ReadOp>(op))
    factors.push_back(read);
  else if (isa_and_nonnull<arith::MulFOp>(op))
    for (Value operand : op->getOperands())
      collectFactors(operand, factors);
  else if (isa_and_nonnull<arith::DivFOp, arith::NegFOp, DropoutOp>(op))
    collectFactors(op->getOperand(0), factors);
}

Terms::Terms(ReadGradient given, const GradientFacts &facts) : read(given.read), gradient(given.gradient) {
  SmallVector<Block *> blocks;
  for (Operation *op = given.read; !isa<KernelOp>(op->getParentOp()); op = op->getParentOp())
    blocks.push_back(op->getBlock());
  for (Block *block : llvm::reverse(blocks)) {
    llvm::append_range(variables, block->getArguments());
    if (auto reduce = dyn_cast<ReduceOp>(block->getParentOp()); reduce && reduce.isConditional())
      conditional.push_back(reduce);
  }
  collectFactors(gradient, factors);
  llvm::DenseSet<Value> seen; // a gradient and its weight share a mask
  for (ReadOp factor : factors)
    if (Value mask = facts.masks.lookup(factor.getTensor()); mask && seen.insert(mask).second)
      masked.push_back(factor);
}

Value Terms::condition(const GradientFacts &facts, OpBuilder &builder, IRMapping mapping) {
  Value all;
  auto require = [&](Value condition) {
    all = all ? arith::AndIOp::create(builder, read.getLoc(), all, condition).getResult() : condition;
  };
  for (ReduceOp reduce : conditional) {
    Region &where = reduce.getWhere();
    for (auto [index, argument] : llvm::zip_equal(reduce.getBody().getArguments(), where.getArguments()))
      mapping.map(argument, mapping.lookup(index));
    require(cloneSlice(yielded(where), mapping, builder));
  }
  for (ReadOp factor : masked) {
    SmallVector<Value> subscripts;
    for (Value subscript : factor.getSubscripts())
      subscripts.push_back(cloneSlice(subscript, mapping, builder));
    require(ReadOp::create(builder, read.getLoc(), facts.masks.lookup(factor.getTensor()), subscripts));
  }
  return all;
}

static SmallVector<Axis> axesOf(ArrayRef<BlockArgument> indices) { return llvm::map_to_vector(indices, axisOf); }

/// A mapping from variables to what an element's and a term's indices are.
static IRMapping mapped(ArrayRef<BlockArgument> variables, Indices indices) {
  IRMapping mapping;
  for (auto [variable, index] : llvm::zip_equal(variables, indices))
    mapping.map(variable, index);
  return mapping;
}

/// A tensor of single terms has an element for each pair, and is masked, where one of their factors has and is.
static void inherit(TensorOp tensor, Terms &terms, ArrayRef<BlockArgument> outer, GradientFacts &facts) {
  for (ReadOp factor : terms.factors) {
    bool same = llvm::equal(factor.getSubscripts(), outer);
    if (same && facts.pairs.contains(factor.getTensor()))
      facts.pairs.insert(tensor.getResult());
    if (Value mask = facts.masks.lookup(factor.getTensor()); same && mask)
      facts.masks[tensor.getResult()] = mask;
  }
}

/// `name[outer] = sum[inner](gradient where condition)`.
static TensorOp sum(KernelOp kernel, StringRef name, Terms &terms, ArrayRef<BlockArgument> outer,
                    ArrayRef<BlockArgument> inner, GradientFacts &facts, OpBuilder &builder) {
  SmallVector<BlockArgument> all(outer);
  llvm::append_range(all, inner);
  Statement statement{name.str(), axesOf(outer), axesOf(inner), terms.gradient.getType(), nullptr};
  statement.term = [&](OpBuilder &builder, Indices indices) {
    IRMapping mapping = mapped(all, indices);
    return cloneSlice(terms.gradient, mapping, builder);
  };
  if (terms.isConditional())
    statement.condition = [&](OpBuilder &builder, Indices indices) {
      return terms.condition(facts, builder, mapped(all, indices));
    };
  TensorOp tensor = statement.write(kernel, builder, terms.read.getLoc());
  if (inner.empty())
    inherit(tensor, terms, outer, facts);
  return tensor;
}

/// `name[outer] = sum[inner](tensor[…])`, where `order` are the indices that `tensor` has.
static TensorOp sum(KernelOp kernel, StringRef name, Value tensor, ArrayRef<BlockArgument> order,
                    ArrayRef<BlockArgument> outer, ArrayRef<BlockArgument> inner, OpBuilder &builder) {
  SmallVector<BlockArgument> all(outer);
  llvm::append_range(all, inner);
  Type type = cast<AttnTensorType>(tensor.getType()).getComputeType();
  Statement statement{name.str(), axesOf(outer), axesOf(inner), type, nullptr};
  statement.term = [&](OpBuilder &builder, Indices indices) -> Value {
    IRMapping mapping = mapped(all, indices);
    SmallVector<Value> subscripts;
    for (BlockArgument index : order)
      subscripts.push_back(mapping.lookup(index));
    return ReadOp::create(builder, tensor.getLoc(), tensor, subscripts);
  };
  return statement.write(kernel, builder, tensor.getLoc());
}

/// The read of the pairs that the gradient has an element for, if their key is among `indices`. Null otherwise.
static ReadOp readOfPairs(Value gradient, ArrayRef<BlockArgument> indices, const GradientFacts &facts) {
  ReadOp found;
  anyInSlice(gradient, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    if (read && facts.pairs.contains(read.getTensor()) && llvm::is_contained(indices, read.getSubscripts().back()))
      found = read;
    return static_cast<bool>(found);
  });
  return found;
}

/// The sum of the terms for each of `outer`. What there is for each pair is summed over the keys first, and over the
/// others then, so that it is never stored. The rows are in the order of the pairs: often the gradient of something
/// else is the same sum over keys, and the two become one (attn-share).
static TensorOp sumTerms(KernelOp kernel, StringRef name, Terms &terms, ArrayRef<BlockArgument> outer,
                         GradientFacts &facts, OpBuilder &builder) {
  SmallVector<BlockArgument> inner;
  for (BlockArgument variable : terms.variables)
    if (!llvm::is_contained(outer, variable))
      inner.push_back(variable);
  ReadOp pairs = readOfPairs(terms.gradient, inner, facts);
  if (!pairs || inner.size() == 1)
    return sum(kernel, name, terms, outer, inner, facts, builder);
  auto key = cast<BlockArgument>(pairs.getSubscripts().back());
  SmallVector<BlockArgument> rest(inner);
  llvm::erase(rest, key);
  SmallVector<BlockArgument> all(rest);
  llvm::append_range(all, outer);
  llvm::SmallSetVector<BlockArgument, 8> rows;
  for (Value subscript : pairs.getSubscripts())
    if (auto row = dyn_cast<BlockArgument>(subscript); row && llvm::is_contained(all, row))
      rows.insert(row);
  rows.insert_range(all); // what is left is the last index: that of the values
  TensorOp overKeys = sum(kernel, (name + "_row").str(), terms, rows.getArrayRef(), key, facts, builder);
  return sum(kernel, name, overKeys.getResult(), rows.getArrayRef(), outer, rest, builder);
}

Value attn::contribution(KernelOp kernel, ReadGradient read, StringRef name, GradientFacts &facts, OpBuilder &builder) {
  Terms terms(read, facts);
  auto type = read.read.getTensor().getType();
  SmallVector<BlockArgument> used;
  bool isDirect = true;
  for (auto [subscript, size] : llvm::zip_equal(read.read.getSubscripts(), type.getShape())) {
    auto index = dyn_cast<BlockArgument>(subscript);
    isDirect &= index && indexSize(index) == size && !llvm::is_contained(used, index);
    if (index)
      used.push_back(index);
  }
  if (isDirect)
    return sumTerms(kernel, name, terms, used, facts, builder).getResult();

  IndexSet indices; // as the subscripts name them
  for (Value subscript : read.read.getSubscripts())
    for (BlockArgument index : inOrder(dependence(subscript)))
      indices.insert(index);
  used.assign(indices.begin(), indices.end());
  // What there is for each pair has the indices in the order of the pairs.
  if (ReadOp pairs = readOfPairs(terms.gradient, used, facts))
    llvm::stable_sort(used, [&](BlockArgument a, BlockArgument b) {
      ValueRange order = pairs.getSubscripts();
      return llvm::find(order, a) < llvm::find(order, b);
    });
  // Pairs themselves are not copied, nor is what each place reads once.
  Scatter scatter(read.read, used);
  auto element = terms.gradient.getDefiningOp<ReadOp>();
  bool isOfPairs = element && facts.pairs.contains(element.getTensor()) && terms.conditional.empty();
  bool isReadOnce = scatter.summed.empty() && !terms.isConditional();
  bool isElement = llvm::all_of(terms.variables, [&](auto variable) { return indices.contains(variable); });
  TensorOp part;
  if (!isElement || !(isOfPairs || isReadOnce))
    part = sumTerms(kernel, (name + "_part").str(), terms, used, facts, builder);
  Statement result{name.str(), scatter.axes, scatter.summed, terms.gradient.getType(), nullptr};
  result.term = [&](OpBuilder &builder, Indices place) -> Value {
    SmallVector<Value> sources = scatter.sources(builder, place);
    if (part)
      return ReadOp::create(builder, read.read.getLoc(), part.getResult(), sources);
    IRMapping mapping = mapped(used, sources);
    return cloneSlice(terms.gradient, mapping, builder);
  };
  if (scatter.isConditional())
    result.condition = [&](OpBuilder &builder, Indices place) { return scatter.condition(builder, place); };
  return result.write(kernel, builder, read.read.getLoc()).getResult();
}
