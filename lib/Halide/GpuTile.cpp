//===- GpuTile.cpp - The tiled plan on a GPU: what is computed --------------===//

#include "GpuTile.h"
#include "KeyBounds.h"
#include "Mathematics.h"
#include "attn/Analysis/Fusion.h"

using Halide::cast;
using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

/// Scores are in powers of two.
static Expr log2e(Halide::Type type) { return constant(type, 1.44269504088896340736); }

static Expr larger(Expr a, Expr b) { return select(b > a, b, a); }

GpuTile::GpuTile(StepLowering &kernel, WeightedSumOp op)
    : func(kernel.uniqueName(op.getName())), kernel(kernel), plan(*kernel.plan.gpu), op(op),
      read(proportionalTo(yielded(op.getBody(), 0))), type(computeType(op.getResult().getType().getElementType())),
      keyCount(extent(kernel, op.getKeySize())) {
  if (read)
    softmax = read.getTensor().getDefiningOp<SoftmaxOp>();
  // A block's number is that of an element of (others…, tiles of queries, tiles of columns) in row-major order.
  llvm::ArrayRef<SizeAttr> shape = op.getResult().getType().getShape();
  unsigned last = shape.size() - 1;
  indices.resize(shape.size());
  Expr rest = block;
  blocks = 1;
  auto take = [&](Expr count) {
    Expr index = rest % count;
    rest = rest / count;
    blocks = blocks * count;
    return index;
  };
  auto tiles = [&](unsigned position, int size) { return (extent(kernel, shape[position]) + size - 1) / size; };
  column = take(tiles(last, plan.columns)) * plan.columns + e;
  query = take(tiles(op.getQuery(), plan.queries)) * plan.queries + q;
  for (unsigned position = last; position-- > 0;)
    if (position != op.getQuery())
      indices[position] = take(extent(kernel, shape[position]));
  indices[last] = Halide::clamp(column, 0, lastIndex(kernel, shape[last]));
  indices[op.getQuery()] = Halide::clamp(query, 0, lastIndex(kernel, shape[op.getQuery()]));
}

Environment GpuTile::bind(const Expr &key) {
  Environment environment;
  auto bindAll = [&](mlir::Region &region) {
    unsigned last = indices.size() - 1;
    for (auto [position, index] : llvm::enumerate(indices)) {
      IndexBinding binding{index, {block}, false, {}};
      if (position == last)
        binding.vars = {e, block};
      if (position == op.getQuery())
        binding.vars = {q, block};
      environment.indices[region.getArgument(position)] = binding;
    }
    Expr inside = Halide::clamp(keyAt(key), 0, lastIndex(kernel, op.getKeySize()));
    environment.indices[region.getArguments().back()] = {inside, {k, chunk}, false, {}};
  };
  for (mlir::Region &region : op->getRegions())
    if (!region.empty())
      bindAll(region);
  if (!softmax)
    return environment;
  llvm::SmallVector<IndexBinding> at;
  for (mlir::Value subscript : read.getSubscripts())
    at.push_back(environment.indices[subscript]);
  for (mlir::Value tensor : {softmax.getScore(), softmax.getMask(), softmax.getSink()})
    if (tensor)
      for (auto [argument, binding] : llvm::zip(definition(tensor).getArguments(), at))
        environment.indices[argument] = binding;
  return environment;
}

//===----------------------------------------------------------------------===//
// Queries × keys
//===----------------------------------------------------------------------===//

Expr GpuTile::addSum(Pairs &stage, ReduceOp reduce, Environment &environment) {
  std::vector<Var> vars;
  IndexSet dependent = dependence(reduce.getResult());
  for (const Var &var : {q, k, chunk, block})
    if (llvm::any_of(dependent, [&](mlir::Value index) {
          return llvm::any_of(environment.indices[index].vars, [&](const Var &own) { return own.same_as(var); });
        }))
      vars.push_back(var);
  Environment inner;
  inner.indices = environment.indices;
  Halide::Region ranges;
  for (SizeAttr size : llvm::reverse(reduce.getSizes().getAsRange<SizeAttr>()))
    ranges.push_back({0, extent(kernel, size)});
  RDom domain(ranges);
  bindReduction(reduce, inner, loopBindings(domain, domain.dimensions()));
  PlainRegion lowering(kernel, inner);
  Expr value = atEachStep(reduce.getKind(), reductionTerm(reduce, lowering), domain[0]);
  Func result(kernel.uniqueName(func.name() + "_product"));
  std::vector<Expr> at(vars.begin(), vars.end());
  result(vars) = identity(reduce.getKind(), value.type());
  result(at) = combine(reduce.getKind(), result(at), value);
  stage.sums.push_back({result, vars});
  return result(at);
}

void GpuTile::definePairs(Pairs &stage, const std::string &name,
                          llvm::function_ref<Expr(RegionLowering &, Environment &)> value) {
  stage.func = Func(kernel.uniqueName(func.name() + name));
  Environment environment = bind(k);
  GpuTileRegion lowering(*this, environment, stage);
  stage.func(q, k, chunk, block) = value(lowering, environment);
}

void GpuTile::defineRange(mlir::Region *mask) {
  MaskRange range;
  if (mask)
    range = maskRange(yielded(*mask), mask->getArguments().back());
  Environment environment = bind(k);
  PlainRegion lowering(kernel, environment);
  // The largest or smallest of a bound over the queries of the tile, between 0 and the number of keys.
  auto overQueries = [&](const char *name, const KeyBound &bound, bool largest) -> Expr {
    Func each(kernel.uniqueName(std::string(name) + "_of")), all(kernel.uniqueName(name));
    each(q, block) = boundOfKeys(bound, lowering, keyCount);
    RDom queries(0, plan.queries);
    all(block) = largest ? Expr(0) : keyCount;
    Expr other = each(queries.x, block);
    all(block) = largest ? Halide::max(all(block), other) : Halide::min(all(block), other);
    bounds.push_back(all);
    return all(block);
  };
  if (range.possible.upper)
    upper = overQueries("upper", *range.possible.upper, true);
  if (range.possible.lower)
    lower = overQueries("lower", *range.possible.lower, false);
}

/// A thread has a row of the chunk.
void GpuTile::defineRows(Func rows, Expr start, RDom &keys, llvm::function_ref<Expr(Expr, Expr)> after) {
  keys = RDom(0, plan.chunk);
  rows(q, chunk, block) = start;
  rows(q, chunk, block) = after(rows(q, chunk, block), keys.x);
}

//===----------------------------------------------------------------------===//
// The sum
//===----------------------------------------------------------------------===//

void GpuTile::define() {
  mlir::Region *condition = op.getWhere().empty() ? nullptr : &op.getWhere();
  mlir::Region *mask = softmax && softmax.getMask() ? &definition(softmax.getMask()) : nullptr;
  defineRange(softmax ? mask : condition);
  Expr isKey = keyAt(k) < keyCount;
  RDom keys;
  if (softmax) {
    definePairs(pairs.emplace_back(), "_score", [&](RegionLowering &lowering, Environment &) {
      Expr value = lowering.expression(yielded(definition(softmax.getScore()))) * log2e(type);
      Expr kept = isKey;
      if (mask)
        kept = kept && lowering.expression(yielded(*mask));
      return select(kept, value, -infinity(type));
    });
    score = pairs.back().func;
    maximum = Func(kernel.uniqueName(func.name() + "_maximum"));
    defineRows(maximum, lowest(type), keys,
               [&](Expr before, Expr key) { return larger(before, score(q, key, chunk, block)); });
    definePairs(pairs.emplace_back(), "_exponential", [&](RegionLowering &, Environment &) {
      return exp2OfNonPositive(score(q, k, chunk, block) - maximum(q, chunk, block));
    });
    weights = pairs.back().func;
    sum = Func(kernel.uniqueName(func.name() + "_sum"));
    defineRows(sum, constant(type, 0), keys,
               [&](Expr before, Expr key) { return before + weights(q, key, chunk, block); });
  }
  factors = weights;
  if (!softmax || condition || yielded(op.getBody(), 0) != read.getResult()) {
    definePairs(pairs.emplace_back(), "_weight", [&](RegionLowering &lowering, Environment &environment) {
      if (softmax)
        environment.replace(read.getResult(), weights(q, k, chunk, block));
      Expr value = lowering.expression(yielded(op.getBody(), 0)), kept = isKey;
      if (condition)
        kept = kept && lowering.expression(yielded(*condition));
      return select(kept, value, constant(type, 0));
    });
    factors = pairs.back().func;
  }

  output = Func(kernel.uniqueName(func.name() + "_output"));
  outputKeys = RDom(0, plan.chunk);
  Environment environment = bind(outputKeys.x);
  PlainRegion lowering(kernel, environment);
  output(q, e, chunk, block) = constant(type, 0);
  output(q, e, chunk, block) = plusWeighted(op, output(q, e, chunk, block), factors(q, outputKeys.x, chunk, block),
                                            lowering.expression(yielded(op.getBody(), 1)));

  Expr start = lowest(type), startSum = constant(type, 0);
  if (softmax && softmax.getSink()) {
    Environment at = bind(k);
    PlainRegion sinkLowering(kernel, at);
    Expr sink = sinkLowering.expression(yielded(definition(softmax.getSink()))) * log2e(type);
    start = larger(start, sink);
    startSum = exp2OfNonPositive(sink - start);
  }
  defineState(start, startSum);
  place();
}

void GpuTile::defineState(Expr start, Expr startSum) {
  chunks = RDom(0, (Halide::max(keyCount, 1) + plan.chunk - 1) / plan.chunk);
  if (upper.defined())
    chunks.where(chunks.x * plan.chunk < upper);
  if (lower.defined())
    chunks.where(chunks.x * plan.chunk + plan.chunk > lower);
  state = Func(kernel.uniqueName(func.name() + "_state"));
  Expr chunkOutput = output(q, e, chunks.x, block);
  if (!softmax) {
    state(q, e, block) = constant(type, 0);
    state(q, e, block) += chunkOutput;
    return;
  }
  state(q, e, block) = Halide::Tuple(start, startSum, constant(type, 0));
  Halide::FuncRef old = state(q, e, block);
  Expr oldMaximum = old[0], oldSum = old[1], oldOutput = old[2], chunkMaximum = maximum(q, chunks.x, block);
  Expr newMaximum = larger(oldMaximum, chunkMaximum);
  Expr oldScale = exp2OfNonPositive(oldMaximum - newMaximum), newScale = exp2OfNonPositive(chunkMaximum - newMaximum);
  state(q, e, block) = Halide::Tuple(newMaximum, oldSum * oldScale + sum(q, chunks.x, block) * newScale,
                                     oldOutput * oldScale + chunkOutput * newScale);
}

/// Puts the elements of the blocks where they belong.
void GpuTile::place() {
  // Columns and queries of a thread, threads of a block, blocks: as the loops are to be.
  int columnsEach = plan.columns / plan.threads, queriesEach = plan.queries / plan.threads;
  elements = RDom({{0, columnsEach}, {0, queriesEach}, {0, plan.threads}, {0, plan.threads}, {0, blocks}});
  Expr ownColumn = elements[2] * columnsEach + elements[0], ownQuery = elements[3] * queriesEach + elements[1];
  auto at = [&](Expr value) {
    value = Halide::Internal::substitute(e.name(), ownColumn, value);
    value = Halide::Internal::substitute(q.name(), ownQuery, value);
    return Halide::Internal::substitute(block.name(), elements[4], value);
  };
  llvm::ArrayRef<SizeAttr> shape = op.getResult().getType().getShape();
  elements.where(at(query) < extent(kernel, shape[op.getQuery()]));
  elements.where(at(column) < extent(kernel, shape.back()));
  std::vector<Var> vars;
  std::vector<Expr> element;
  for (const Expr &index : llvm::reverse(indices)) {
    vars.push_back(Var("dimension_" + std::to_string(vars.size())));
    element.push_back(at(index));
  }
  Halide::FuncRef last = state(ownQuery, ownColumn, elements[4]);
  Expr result;
  if (softmax) {
    Expr total = last[1], all = last[2];
    result = select(total == constant(type, 0), constant(type, 0), all / total);
  } else {
    result = last;
  }
  result = kernel.stored(result, op.getResult());
  func(vars) = Halide::undef(result.type());
  func(element) = result;
}

} // namespace attn::lowering
