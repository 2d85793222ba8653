//===- Split.cpp - The split plan: what is computed ------------------------===//

#include "Split.h"
#include "KeyBounds.h"
#include "Mathematics.h"
#include "attn/Analysis/Fusion.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

Split::Split(KernelLowering &kernel, WeightedSumOp op)
    : name(kernel.uniqueName(op.getName().str() + "_split")), kernel(kernel), plan(kernel.plan.split), op(op),
      read(proportionalTo(yielded(op.getBody(), 0))), lanes(kernel.plan.lanes) {
  if (read)
    softmax = read.getTensor().getDefiningOp<SoftmaxOp>();
  for (mlir::Attribute index : llvm::reverse(op.getIndices()))
    vars.push_back(Var(mlir::cast<mlir::StringAttr>(index).str()));
  e = vars.front();
  rows.assign(vars.begin() + 1, vars.end());
  keyCount = extent(kernel, op.getKeySize());
}

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

std::vector<Var> Split::stageVars(std::vector<Var> first) const {
  first.insert(first.end(), rows.begin(), rows.end());
  first.insert(first.end(), {chunk, span});
  return first;
}

std::vector<Expr> Split::at(std::vector<Expr> first) const {
  first.insert(first.end(), rows.begin(), rows.end());
  first.insert(first.end(), {chunk, span});
  return first;
}

/// `key` counts within the chunk.
IndexBinding Split::keyBinding(Expr key) const {
  std::vector<Expr> arguments = {chunk, span};
  arguments.insert(arguments.end(), tasks.begin(), tasks.end());
  return {start(arguments) + key, {k}, true, {}};
}

Environment Split::bind(mlir::Region &region, IndexBinding key) {
  Environment environment;
  unsigned rank = vars.size();
  for (unsigned position = 0; position < rank; ++position)
    environment.bind(region.getArgument(position), vars[rank - 1 - position]);
  environment.indices[region.getArguments().back()] = key;
  return environment;
}

/// Binds the arguments of score, mask and sink to what the weight is read at.
void Split::bindScore(Environment &environment) {
  for (mlir::Value tensor : {softmax.getScore(), softmax.getMask(), softmax.getSink()})
    if (tensor)
      for (auto [argument, subscript] : llvm::zip(definition(tensor).getArguments(), read.getSubscripts())) {
        IndexBinding binding = environment.indices[subscript];
        environment.indices[argument] = binding;
      }
}

RDom Split::tiles(int size, llvm::ArrayRef<Expr> inner) const {
  Halide::Region ranges;
  for (const Expr &count : inner)
    ranges.push_back({0, count});
  ranges.push_back({0, plan.chunk / size});
  RDom domain(ranges);
  Expr first = keyBinding(domain[inner.size()] * size).expr;
  domain.where(first < upper);
  if (lower.defined())
    domain.where(first + size > lower);
  return domain;
}

//===----------------------------------------------------------------------===//
// Which rows read the same keys
//===----------------------------------------------------------------------===//

/// Visits the reads of tensors in `region` that depend on the key: all of them, or those in reductions.
static void visitKeyReads(mlir::Region &region, bool onlyReduced, llvm::function_ref<void(ReadOp)> visit) {
  mlir::Value key = region.getArguments().back();
  region.walk([&](ReadOp read) {
    bool reduced = read->getParentOfType<ReduceOp>();
    if ((reduced || !onlyReduced) && dependence(read.getSubscripts()).contains(mlir::cast<mlir::BlockArgument>(key)))
      visit(read);
  });
}

/// How rows of one index read keys.
struct Sharing {
  bool whole = true; ///< All of them the same.
  mlir::Value group; ///< As many as this says; null if each its own.

  void add(ReadOp read, mlir::BlockArgument index) {
    for (mlir::Value subscript : read.getSubscripts()) {
      if (!dependence(subscript).contains(index))
        continue;
      auto division = subscript.getDefiningOp<FloorDivOp>();
      bool isGroup = division && division.getLhs() == index && dependence(division.getRhs()).empty();
      group = isGroup && (whole || group) ? division.getRhs() : mlir::Value();
      whole = false;
    }
  }
};

void Split::findShared() {
  unsigned rank = vars.size();
  mlir::Region &body = op.getBody();
  for (unsigned position = 0; position + 1 < rank; ++position) {
    Sharing sharing;
    visitKeyReads(body, false, [&](ReadOp value) {
      if (!value.getTensor().getDefiningOp<SoftmaxOp>())
        sharing.add(value, body.getArgument(position));
    });
    if (softmax)
      for (auto [argument, subscript] : llvm::zip(definition(softmax.getScore()).getArguments(), read.getSubscripts()))
        if (subscript == body.getArgument(position))
          visitKeyReads(definition(softmax.getScore()), true, [&](ReadOp key) { sharing.add(key, argument); });
    if (!sharing.whole && !sharing.group)
      continue;
    Expr group = plan.rows;
    if (sharing.group) {
      Environment environment;
      PlainRegion lowering(kernel, environment);
      Expr size = lowering.expression(sharing.group);
      group =
          Halide::cast<int32_t>(Halide::clamp(size, Halide::cast(size.type(), 1), Halide::cast(size.type(), group)));
    }
    shared.push_back({vars[rank - 1 - position], group});
  }
}

//===----------------------------------------------------------------------===//
// Key ranges
//===----------------------------------------------------------------------===//

/// The bounds are those of all rows that share keys, so that all stages of a task have the same.
void Split::defineRange() {
  mlir::Region *condition = nullptr;
  if (softmax && softmax.getMask())
    condition = &definition(softmax.getMask());
  else if (!softmax && !op.getWhere().empty())
    condition = &op.getWhere();
  KeyRange range;
  if (condition)
    range = maskRange(yielded(*condition), condition->getArguments().back()).possible;

  // Shared indices become reduction variables.
  unsigned rank = vars.size();
  llvm::ArrayRef<SizeAttr> shape = op.getResult().getType().getShape();
  mlir::Region &region = softmax || !condition ? op.getBody() : *condition;
  Environment environment = bind(region, {Expr(0), {}, false, {}});
  Halide::Region sizes;
  tasks = rows;
  llvm::SmallVector<unsigned> positions;
  for (const Shared &index : shared) {
    llvm::erase_if(tasks, [&](const Var &var) { return var.same_as(index.index); });
    for (unsigned position = 0; position < rank; ++position)
      if (vars[rank - 1 - position].same_as(index.index))
        positions.push_back(position);
    sizes.push_back({0, extent(kernel, shape[positions.back()])});
  }
  RDom all = sizes.empty() ? RDom(0, 1) : RDom(sizes);
  for (auto [dimension, position] : llvm::enumerate(positions))
    environment.indices[region.getArgument(position)] = {all[dimension], {}, false, {}};
  if (softmax)
    bindScore(environment);
  PlainRegion lowering(kernel, environment);
  std::vector<Expr> task(tasks.begin(), tasks.end());
  auto overRows = [&](const char *name, const KeyBound &bound, bool largest) {
    Func keys(kernel.uniqueName(name));
    Expr key = boundOfKeys(bound, lowering, keyCount);
    keys(tasks) = largest ? Expr(0) : keyCount;
    // Halide takes an update for a reduction only if it mentions the variable.
    key += select(all[0] < 0, 1, 0);
    keys(task) = largest ? Halide::max(keys(task), key) : Halide::min(keys(task), key);
    rangeFuncs.push_back(keys);
    return Expr(keys(task));
  };
  upper = range.upper ? overRows("upper", *range.upper, true) : keyCount;
  if (range.lower)
    lower = overRows("lower", *range.lower, false);

  // Spans for as many tasks as keep many threads busy, none shorter than a chunk.
  int target = plan.tasks;
  Expr count = 1;
  for (const Var &var : tasks) {
    unsigned position =
        rank - 1 - (llvm::find_if(vars, [&](const Var &own) { return own.same_as(var); }) - vars.begin());
    count = Halide::min(count * Halide::clamp(extent(kernel, shape[position]), 1, target), target);
  }
  int size = plan.chunk;
  Expr chunksOfAll = (Halide::max(keyCount, 1) + size - 1) / size;
  spans = Halide::clamp((target + count - 1) / count, 1, chunksOfAll);
  mostChunks = (chunksOfAll + spans - 1) / spans;
  // Of the keys in range. Funcs rather than formulas, for all stages' bounds have them in many places.
  Expr firstChunk = lower.defined() ? lower / size : Expr(0);
  Expr visited = Halide::max((upper + size - 1) / size - firstChunk, 0);
  Func each(kernel.uniqueName("chunks_of_span"));
  each(tasks) = (visited + spans - 1) / spans;
  rangeFuncs.push_back(each);
  chunksOfSpan = each(task);
  start = Func(kernel.uniqueName("start"));
  std::vector<Var> startVars = {chunk, span};
  startVars.insert(startVars.end(), tasks.begin(), tasks.end());
  start(startVars) = (firstChunk + span * chunksOfSpan + chunk) * size;
}

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

/// Score, mask and weight factors, in a stage over keys or rows.
class SplitRegion : public RegionLowering {
public:
  SplitRegion(Split &split, Environment &environment, Expr key = {})
      : RegionLowering(split.kernel, environment), split(split), key(key) {}

protected:
  Expr reduce(ReduceOp op) override {
    for (mlir::Value index : dependence(op.getResult()))
      for (const Var &var : environment.indices[index].vars)
        if (var.same_as(split.k))
          return split.addProduct(op, environment, key);
    return split.addRowReduction(op, environment);
  }

private:
  Split &split;
  Expr key; ///< Of the chunk.
};

/// The indices of a reduction over these variables of `domain`; its last one runs fastest.
static llvm::SmallVector<IndexBinding> loopBindings(const RDom &domain, unsigned count) {
  llvm::SmallVector<IndexBinding> result;
  while (count-- > 0)
    result.push_back({domain[count], {}, false, domain[count]});
  return result;
}

/// The sizes of a reduction's indices, the last one first.
static llvm::SmallVector<Expr> reversedSizes(KernelLowering &kernel, ReduceOp op) {
  llvm::SmallVector<Expr> sizes;
  for (SizeAttr size : llvm::reverse(op.getSizes().getAsRange<SizeAttr>()))
    sizes.push_back(extent(kernel, size));
  return sizes;
}

/// Puts `key` where `environment` has the key of a stage.
static void rebindKey(Environment &environment, const Var &k, const IndexBinding &key) {
  for (auto &[index, binding] : environment.indices)
    if (llvm::any_of(binding.vars, [&](const Var &var) { return var.same_as(k); }))
      binding = key;
}

Expr Split::addProduct(ReduceOp reduce, const Environment &environment, Expr key) {
  Product product;
  product.op = reduce;
  product.func = Func(kernel.uniqueName(name + "_product"));
  mlir::Value keyArgument;
  for (auto &[index, binding] : environment.indices)
    if (llvm::any_of(binding.vars, [&](const Var &var) { return var.same_as(k); }) &&
        dependence(reduce.getResult()).contains(mlir::cast<mlir::BlockArgument>(index)))
      keyArgument = index;
  if (isContiguous(reduce, keyArgument))
    addContiguousProduct(environment, product);
  else
    addProductAlongKeys(environment, product);
  products.push_back(product);
  return product.func(at({key}));
}

/// Lanes are partial results along the last index of the reduction: whole vectors, and what is left one by one.
void Split::addContiguousProduct(const Environment &environment, Product &product) {
  llvm::SmallVector<Expr> sizes = reversedSizes(kernel, product.op);
  Expr whole = sizes[0] / lanes * lanes, rest = sizes[0] - whole;
  ReduceKind kind = product.op.getKind();
  auto term = [&](RDom domain, Expr last, IndexBinding key) {
    Environment inner;
    inner.indices = environment.indices;
    rebindKey(inner, k, key);
    llvm::SmallVector<IndexBinding> indices = loopBindings(domain, sizes.size());
    indices.back().expr = last;
    bindReduction(product.op, inner, indices);
    PlainRegion lowering(kernel, inner);
    return atEachStep(kind, reductionTerm(product.op, lowering), domain[0]);
  };
  llvm::SmallVector<Expr> vectorSizes = sizes, restSizes = sizes;
  vectorSizes[0] = sizes[0] / lanes;
  restSizes[0] = rest;

  product.partial = Func(kernel.uniqueName(name + "_lanes"));
  Halide::Region ranges;
  for (const Expr &size : vectorSizes)
    ranges.push_back({0, size});
  product.vectors = RDom(ranges);
  Expr value = term(product.vectors, product.vectors[0] * lanes + lane, keyBinding(k));
  std::vector<Expr> partialAt = at({lane, k});
  product.partial(stageVars({lane, k})) = identity(kind, value.type());
  product.partial(partialAt) = combine(kind, product.partial(partialAt), value);

  // Key by key, so that memory is read in order.
  product.keys = tiles(1);
  Expr key = product.keys[0];
  std::vector<Expr> values;
  for (int index = 0; index < lanes; ++index)
    values.push_back(product.partial(at({index, key})));
  product.func(stageVars({k})) = Halide::undef(value.type());
  product.func(at({key})) = combineTree(kind, values);

  unsigned count = sizes.size();
  product.rest = tiles(1, restSizes);
  Expr restKey = product.rest[count];
  product.rest.where(restKey < select(rest > 0, plan.chunk, 0));
  Expr more = term(product.rest, whole + product.rest[0], keyBinding(restKey));
  product.func(at({restKey})) = combine(kind, product.func(at({restKey})), more);
}

/// Lanes are keys.
void Split::addProductAlongKeys(const Environment &environment, Product &product) {
  ReduceKind kind = product.op.getKind();
  llvm::SmallVector<Expr> sizes = reversedSizes(kernel, product.op);
  unsigned count = sizes.size();
  sizes.insert(sizes.begin(), lanes);
  product.rest = tiles(lanes, sizes);
  product.keys = tiles(lanes, Expr(lanes));
  Expr key = product.rest[count + 1] * lanes + product.rest[0];
  Environment inner;
  inner.indices = environment.indices;
  rebindKey(inner, k, keyBinding(key));
  llvm::SmallVector<IndexBinding> indices;
  for (unsigned dimension = count; dimension > 0; --dimension)
    indices.push_back({product.rest[dimension], {}, false, product.rest[dimension]});
  bindReduction(product.op, inner, indices);
  PlainRegion lowering(kernel, inner);
  Expr value = atEachStep(kind, reductionTerm(product.op, lowering), product.rest[1]);
  product.func(stageVars({k})) = Halide::undef(value.type());
  product.func(at({product.keys[1] * lanes + product.keys[0]})) = identity(kind, value.type());
  product.func(at({key})) = combine(kind, product.func(at({key})), value);
}

/// A reduction that no key changes: once for each row.
Expr Split::addRowReduction(ReduceOp reduce, const Environment &environment) {
  Environment inner;
  inner.indices = environment.indices;
  Halide::Region ranges;
  for (const Expr &size : reversedSizes(kernel, reduce))
    ranges.push_back({0, size});
  RDom domain(ranges);
  bindReduction(reduce, inner, loopBindings(domain, domain.dimensions()));
  PlainRegion lowering(kernel, inner);
  Expr value = atEachStep(reduce.getKind(), reductionTerm(reduce, lowering), domain[0]);
  Func result(kernel.uniqueName(name + "_row"));
  std::vector<Expr> element(rows.begin(), rows.end());
  result(rows) = identity(reduce.getKind(), value.type());
  result(element) = combine(reduce.getKind(), result(element), value);
  rowReductions.push_back(result);
  return result(element);
}

/// In powers of two; −inf where the key is masked.
void Split::defineScore() {
  scoreKeys = tiles(lanes, Expr(lanes));
  score = Func(kernel.uniqueName(name + "_score"));
  Expr key = keyOf(scoreKeys);
  IndexBinding binding = keyBinding(key);
  Environment environment = bind(op.getBody(), binding);
  bindScore(environment);
  SplitRegion lowering(*this, environment, key);
  Expr value = lowering.expression(yielded(definition(softmax.getScore())));
  value = value * constant(value.type(), 1.44269504088896340736);
  Expr kept = binding.expr < keyCount;
  if (softmax.getMask())
    kept = kept && lowering.expression(yielded(definition(softmax.getMask())));
  score(stageVars({k})) = Halide::undef(value.type());
  score(at({key})) = select(kept, value, -infinity(value.type()));
}

//===----------------------------------------------------------------------===//
// Weights, state, output
//===----------------------------------------------------------------------===//

static Expr larger(Expr a, Expr b) { return select(b > a, b, a); }

void Split::defineWeights() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  std::vector<Var> elementVars = stageVars({k}), laneVars = stageVars({lane}), rowVars = stageVars({});
  auto joined = [&](ReduceKind kind, const Func &partial) {
    std::vector<Expr> values;
    for (int index = 0; index < lanes; ++index)
      values.push_back(partial(at({index})));
    return combineTree(kind, values);
  };
  if (softmax) {
    maximumKeys = tiles(lanes);
    maximumLanes = Func(kernel.uniqueName(name + "_maximum_lanes"));
    maximumLanes(laneVars) = lowest(type);
    maximumLanes(at({lane})) = larger(maximumLanes(at({lane})), score(at({maximumKeys[0] * lanes + lane})));
    maximum = Func(kernel.uniqueName(name + "_maximum"));
    maximum(rowVars) = joined(ReduceKind::Max, maximumLanes);

    exponentialKeys = tiles(lanes, Expr(lanes));
    exponential = Func(kernel.uniqueName(name + "_exponential"));
    exponential(elementVars) = Halide::undef(type);
    Expr key = keyOf(exponentialKeys);
    exponential(at({key})) = exp2OfNonPositive(score(at({key})) - maximum(at({})));

    sumKeys = tiles(lanes);
    sumLanes = Func(kernel.uniqueName(name + "_sum_lanes"));
    sumLanes(laneVars) = constant(type, 0);
    sumLanes(at({lane})) += exponential(at({sumKeys[0] * lanes + lane}));
    sum = Func(kernel.uniqueName(name + "_sum"));
    sum(rowVars) = joined(ReduceKind::Sum, sumLanes);
    weights = exponential;
    if (yielded(op.getBody(), 0) == read.getResult() && op.getWhere().empty())
      return;
  }
  // The weight's other factors, and the sum's own condition.
  weights = Func(kernel.uniqueName(name + "_weight"));
  weightKeys = tiles(lanes, Expr(lanes));
  Expr key = keyOf(weightKeys);
  Environment environment = bind(op.getBody(), keyBinding(key));
  if (softmax)
    environment.replace(read.getResult(), exponential(at({key})));
  SplitRegion lowering(*this, environment, key);
  Expr value = lowering.expression(yielded(op.getBody(), 0));
  Expr kept = keyBinding(key).expr < keyCount;
  if (!op.getWhere().empty()) {
    Environment inside = bind(op.getWhere(), keyBinding(key));
    PlainRegion conditions(kernel, inside);
    kept = kept && conditions.expression(yielded(op.getWhere()));
  }
  weights(elementVars) = Halide::undef(type);
  weights(at({key})) = select(kept, value, constant(type, 0));
}

void Split::defineState() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  Expr zero = constant(type, 0);
  outputKeys = tiles(plan.keyTile, Expr(plan.keyTile));
  Expr key = outputKeys[1] * plan.keyTile + outputKeys[0];
  output = Func(kernel.uniqueName(name + "_output"));
  Environment environment = bind(op.getBody(), keyBinding(key));
  // The last vector of values is read in part: its condition is on the loop, so that the others are read as they lie.
  Expr columns = extent(kernel, op.getResult().getType().getShape().back());
  outputKeys.where(Halide::likely(e < columns));
  environment.indices[op.getBody().getArgument(vars.size() - 1)].expr =
      Halide::unsafe_promise_clamped(e, 0, Halide::max(columns, 1) - 1);
  PlainRegion lowering(kernel, environment);
  Expr value = lowering.expression(yielded(op.getBody(), 1));
  output(stageVars({e})) = zero;
  output(at({e})) += weights(at({key})) * value;

  chunks = RDom(0, mostChunks);
  chunks.where(chunks.x < chunksOfSpan);
  state = Func(kernel.uniqueName(name + "_state"));
  std::vector<Var> stateVars = vars;
  stateVars.push_back(span);
  std::vector<Expr> element(stateVars.begin(), stateVars.end());
  auto ofChunk = [&](const Func &stage, std::vector<Expr> first) {
    std::vector<Expr> arguments = at(std::move(first));
    arguments[arguments.size() - 2] = chunks.x;
    return Expr(stage(arguments));
  };
  if (!softmax) {
    state(stateVars) = zero;
    state(element) += ofChunk(output, {e});
    return;
  }
  state(stateVars) = Halide::Tuple(lowest(type), zero, zero);
  Halide::FuncRef old = state(element);
  Expr oldMaximum = old[0], chunkMaximum = ofChunk(maximum, {});
  Expr newMaximum = larger(oldMaximum, chunkMaximum);
  Expr oldScale = exp2OfNonPositive(oldMaximum - newMaximum), newScale = exp2OfNonPositive(chunkMaximum - newMaximum);
  state(element) = Halide::Tuple(newMaximum, old[1] * oldScale + ofChunk(sum, {}) * newScale,
                                 old[2] * oldScale + ofChunk(output, {e}) * newScale);
}

/// What the spans have found, and the sink, together.
void Split::defineMerged() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  Expr zero = constant(type, 0);
  allSpans = RDom(0, spans);
  std::vector<Expr> element(vars.begin(), vars.end()), row(rows.begin(), rows.end()), of = element;
  of.push_back(allSpans.x);
  merged = Func(kernel.uniqueName(name + "_merged"));
  if (!softmax) {
    merged(vars) = zero;
    merged(element) += state(of);
    return;
  }
  std::vector<Expr> first = of;
  first[0] = 0;
  Expr start = lowest(type);
  total = Func(kernel.uniqueName(name + "_total"));
  Expr sink;
  if (softmax.getSink()) {
    Environment environment = bind(op.getBody(), {Expr(0), {}, false, {}});
    bindScore(environment);
    SplitRegion lowering(*this, environment);
    sink = lowering.expression(yielded(definition(softmax.getSink()))) * constant(type, 1.44269504088896340736);
    start = larger(start, sink);
  }
  total(rows) = start;
  total(row) = larger(total(row), state(first)[0]);
  Expr scale = exp2OfNonPositive(state(of)[0] - total(row));
  merged(vars) = Halide::Tuple(sink.defined() ? exp2OfNonPositive(sink - total(row)) : zero, zero);
  merged(element) = Halide::Tuple(merged(element)[0] + state(of)[1] * scale, merged(element)[1] + state(of)[2] * scale);
}

Expr Split::result() {
  std::vector<Expr> element(vars.begin(), vars.end());
  Halide::Type storage = storageType(op.getResult().getType().getElementType());
  if (!softmax)
    return convert(merged(element), storage);
  Expr sum = merged(element)[0], weighted = merged(element)[1];
  return convert(select(sum == 0.0f, constant(weighted.type(), 0), weighted / sum), storage);
}

void Split::define() {
  findShared();
  defineRange();
  if (softmax)
    defineScore();
  defineWeights();
  defineState();
  defineMerged();
}

} // namespace attn::lowering
