//===- Segments.cpp - Softmaxes of keys that each have one query -----------===//
//
//   weight[m, e] = softmax[e](score[e] where to[e] == m)
//   out[m, d]    = sum[e](weight[m, e] * v[e, d])
//
// as of the edges of a graph, by the nodes that they lead to, has a weight for each pair of a node and an edge. Each
// edge has one weight that is not 0:
//
//   largest[m] = max[e](score[e] where to[e] == m)
//   share[e]   = exp(score[e] - largest[to[e]])
//   total[m]   = sum[e](share[e] where to[e] == m)
//   own[e]     = share[e] / total[to[e]]
//   out[m, d]  = sum[e](own[e] * v[e, d] where to[e] == m)
//
// whose terms have one place each (attn-place).
//
//===----------------------------------------------------------------------===//

#include "Conjunction.h"
#include "Equality.h"
#include "Form.h"
#include "LogSumExp.h"
#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
#include "Statement.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cmath>

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNSEGMENT
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
/// The softmax that `weights` is: an index of it, the segment, is what a number says of a key.
class Segments {
public:
  static std::optional<Segments> of(TensorOp weights);
  void rewrite();

private:
  Segments(TensorOp weights, ReduceOp softmax, const Equality &equality)
      : weights(weights), softmax(softmax), equality(equality), segment(equality.index.getArgNumber()) {
    for (BlockArgument index : weights.getBody().getArguments().drop_back()) {
      rows.push_back(axisOf(index));
      if (index != equality.index)
        keyed.push_back(axisOf(index));
    }
    key = axisOf(weights.getBody().getArguments().back());
    keyed.push_back(key);
  }

  bool canRewrite();
  IRMapping mappingOf(ValueRange rows, Value key) const;
  Value readRow(TensorOp tensor, IRMapping &mapping, OpBuilder &builder);
  Statement ofRows(StringRef suffix, ReduceKind kind);
  Statement ofKeys(StringRef suffix, std::function<Value(OpBuilder &, IRMapping &, Indices)> term);
  void replace(ReadOp read, TensorOp own);

  TensorOp weights;
  ReduceOp softmax;
  Equality equality;
  unsigned segment;
  Axis key;
  SmallVector<Axis> rows;  ///< Of `weights`, without the key.
  SmallVector<Axis> keyed; ///< With the key, without the segment.
};
} // namespace

std::optional<Segments> Segments::of(TensorOp weights) {
  ReduceOp softmax = isSoftmax(weights) ? wholeReduction(weights, ReduceKind::Softmax) : ReduceOp();
  if (!softmax || softmax.getSink() || !softmax.isConditional() ||
      softmax.getAt().front() != weights.getBody().getArguments().back())
    return std::nullopt;
  std::optional<Equality> equality = equalityIn(softmax, weights.getBody().front());
  if (!equality)
    return std::nullopt;
  Segments segments(weights, softmax, *equality);
  return segments.canRewrite() ? std::optional(segments) : std::nullopt;
}

/// Whether nothing else changes with the segment, and all who read weights add them up over the keys.
bool Segments::canRewrite() {
  SmallVector<Value> others = conjunctsOf(yielded(softmax.getWhere()));
  llvm::erase(others, equality.condition);
  others.push_back(yielded(softmax.getBody()));
  if (dependence(others).contains(equality.index) ||
      !dependence(equality.value).contains(softmax.getWhere().getArgument(0)))
    return false;
  return llvm::all_of(weights->getUsers(), [&](Operation *user) {
    auto read = dyn_cast<ReadOp>(user);
    auto sum = read ? dyn_cast<ReduceOp>(read->getParentOp()) : ReduceOp();
    if (!sum || sum.getKind() != ReduceKind::Sum || read->getParentRegion() != &sum.getBody() || !isInRange(read) ||
        !llvm::all_of(read.getSubscripts(), llvm::IsaPred<BlockArgument>))
      return false;
    Value last = read.getSubscripts().back();
    return cast<BlockArgument>(last).getOwner() == &sum.getBody().front() &&
           llvm::count(read.getSubscripts(), last) == 1;
  });
}

/// What the indices of the softmax's formulas are: the rows of `weights`, and the key.
IRMapping Segments::mappingOf(ValueRange rows, Value key) const {
  IRMapping mapping;
  mapping.map(TensorOp(weights).getBody().getArguments().drop_back(), rows);
  for (Region &region : ReduceOp(softmax)->getRegions())
    mapping.map(region.getArgument(0), key);
  return mapping;
}

/// An element of a tensor of rows.
Value Segments::readRow(TensorOp tensor, IRMapping &mapping, OpBuilder &builder) {
  SmallVector<Value> subscripts;
  for (BlockArgument index : weights.getBody().getArguments().drop_back())
    subscripts.push_back(mapping.lookup(index));
  return ReadOp::create(builder, weights.getLoc(), tensor.getResult(), subscripts);
}

/// A tensor of rows, over the keys of each; the term is still missing.
Statement Segments::ofRows(StringRef suffix, ReduceKind kind) {
  Statement statement{(weights.getName() + suffix).str(), rows, {key}, softmax.getType(), nullptr, nullptr, kind};
  statement.condition = [this](OpBuilder &builder, Indices indices) {
    IRMapping mapping = mappingOf(indices.drop_back(), indices.back());
    return cloneSlice(yielded(softmax.getWhere()), mapping, builder);
  };
  return statement;
}

/// A tensor of keys, in whose term the segment is that of the key.
Statement Segments::ofKeys(StringRef suffix, std::function<Value(OpBuilder &, IRMapping &, Indices)> term) {
  Statement statement{(weights.getName() + suffix).str(), keyed, {}, softmax.getType(), nullptr};
  statement.term = [this, term](OpBuilder &builder, Indices indices) {
    SmallVector<Value> places(indices.drop_back());
    places.insert(places.begin() + segment, Value());
    IRMapping mapping = mappingOf(places, indices.back());
    Value number = cloneSlice(equality.value, mapping, builder);
    mapping.map(equality.index, placeIn(number, rows[segment].size, builder));
    return term(builder, mapping, indices);
  };
  return statement;
}

void Segments::rewrite() {
  auto kernel = weights->getParentOfType<KernelOp>();
  Location location = weights.getLoc();
  Type type = softmax.getType();
  OpBuilder builder(weights);
  noteRewrite(weights, "segment",
              "each key of the softmax '" + weights.getName() + "' has one '" + rows[segment].name +
                  "', so that it has one weight, and not one for each of them");
  Statement ofLargest = ofRows("_largest", ReduceKind::Max);
  ofLargest.term = [&](OpBuilder &builder, Indices indices) {
    IRMapping mapping = mappingOf(indices.drop_back(), indices.back());
    return cloneSlice(yielded(softmax.getBody()), mapping, builder);
  };
  TensorOp largest = ofLargest.write(kernel, builder, location);
  largest->setAttr(TensorOp::shiftName, builder.getUnitAttr());

  // 0 for a key without a segment, or whose segment has nothing but -inf.
  TensorOp share =
      ofKeys("_share", [&](OpBuilder &builder, IRMapping &mapping, Indices) {
        Value most = readRow(largest, mapping, builder);
        SmallVector<Value> conditions = conjunctsOf(yielded(softmax.getWhere()));
        llvm::erase(conditions, equality.condition);
        for (Value &condition : conditions)
          condition = cloneSlice(condition, mapping, builder);
        llvm::append_range(conditions, insideOf(mapping.lookup(equality.value), rows[segment].size, builder));
        if (!conditions.empty())
          most = arith::SelectOp::create(builder, location, conjunction(conditions, builder), most,
                                         floatConstant(-INFINITY, type, builder, location));
        return weightOf(cloneSlice(yielded(softmax.getBody()), mapping, builder), most, builder, location);
      }).write(kernel, builder, location);

  Statement ofTotal = ofRows("_total", ReduceKind::Sum);
  ofTotal.term = [&](OpBuilder &builder, Indices indices) {
    SmallVector<Value> subscripts(indices);
    subscripts.erase(subscripts.begin() + segment);
    return ReadOp::create(builder, location, share.getResult(), subscripts).getResult();
  };
  TensorOp total = ofTotal.write(kernel, builder, location);

  TensorOp own = ofKeys("_own", [&](OpBuilder &builder, IRMapping &mapping, Indices indices) {
                   Value sum = readRow(total, mapping, builder);
                   Value zero = floatConstant(0, type, builder, location);
                   Value isEmpty = arith::CmpFOp::create(builder, location, arith::CmpFPredicate::OEQ, sum, zero);
                   Value divisor = arith::SelectOp::create(builder, location, isEmpty,
                                                           floatConstant(1, type, builder, location), sum);
                   Value part = ReadOp::create(builder, location, share.getResult(), indices);
                   return arith::DivFOp::create(builder, location, part, divisor).getResult();
                 }).write(kernel, builder, location);

  for (Operation *user : llvm::to_vector(weights->getUsers()))
    replace(cast<ReadOp>(user), own);
  weights.erase();
}

/// Reads the one weight of a key instead, in a sum that then asks for its segment.
void Segments::replace(ReadOp read, TensorOp own) {
  auto sum = cast<ReduceOp>(read->getParentOp());
  Region &where = sum.getWhere();
  bool isConditional = sum.isConditional();
  OpBuilder builder(sum.getContext());
  SmallVector<Value> conditions;
  if (isConditional) {
    conditions = conjunctsOf(yielded(where));
    builder.setInsertionPoint(where.front().getTerminator());
  } else {
    Block &block = where.emplaceBlock();
    for (BlockArgument index : sum.getBody().getArguments())
      block.addArgument(index.getType(), index.getLoc());
    builder.setInsertionPointToEnd(&block);
  }
  SmallVector<Value> places(read.getSubscripts()); // in the condition
  for (Value &place : places)
    if (auto index = cast<BlockArgument>(place); index.getOwner() == &sum.getBody().front())
      place = where.getArgument(index.getArgNumber());
  IRMapping mapping = mappingOf(ValueRange(places).drop_back(), places.back());
  conditions.push_back(cloneSlice(equality.condition, mapping, builder));
  Value all = conjunction(conditions, builder);
  if (isConditional)
    where.front().getTerminator()->setOperand(0, all);
  else
    YieldOp::create(builder, sum.getLoc(), all);

  SmallVector<Value> subscripts(read.getSubscripts());
  subscripts.erase(subscripts.begin() + segment);
  builder.setInsertionPoint(read);
  read.replaceAllUsesWith(ReadOp::create(builder, read.getLoc(), own.getResult(), subscripts).getResult());
  read.erase();
}

namespace {
struct Segment : attn::impl::AttnSegmentBase<Segment> {
  void runOnOperation() override {
    for (TensorOp tensor : llvm::to_vector(getOperation().getBody().front().getOps<TensorOp>()))
      if (std::optional<Segments> segments = Segments::of(tensor))
        segments->rewrite();
  }
};
} // namespace
