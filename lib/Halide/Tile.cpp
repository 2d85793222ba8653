//===- Tile.cpp - The tiled plan: what is computed -------------------------===//

#include "Tile.h"
#include "Mathematics.h"

using Halide::cast;
using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

Tile::Tile(StepLowering &kernel, WeightedSumOp op, const TilePlan &plan, bool hasLogSumExp)
    : func(kernel.uniqueName(op.getName())), kernel(kernel), plan(plan), hasLogSumExp(hasLogSumExp), op(op),
      read(proportionalTo(yielded(op.getBody(), 0))) {
  if (read)
    softmax = read.getTensor().getDefiningOp<SoftmaxOp>();
  mlir::Region &body = op.getBody();
  unsigned rank = op.getIndices().size();
  queryArgument = body.getArgument(op.getQuery());
  keyArgument = body.getArguments().back();
  valueArgument = body.getArgument(rank - 1);
  for (unsigned position = rank; position-- > 0;) {
    Var var(mlir::cast<mlir::StringAttr>(op.getIndices()[position]).str());
    vars.push_back(var);
    if (body.getArgument(position) == valueArgument)
      e = var;
    else if (body.getArgument(position) != queryArgument)
      others.push_back(var);
  }
  keyCount = extent(kernel, op.getKeySize());
}

std::vector<Var> Tile::tileVars(std::vector<Var> first) const {
  first.push_back(tile);
  first.insert(first.end(), others.begin(), others.end());
  return first;
}

std::vector<Expr> Tile::at(Expr query, Expr key) const {
  std::vector<Expr> arguments = {query, key, chunk, tile};
  arguments.insert(arguments.end(), others.begin(), others.end());
  return arguments;
}

/// `key` counts within the chunk.
IndexBinding Tile::keyBinding(Expr key) const {
  IndexBinding binding{chunk * static_cast<int>(plan.chunk) + key, {k, chunk}, true, {}};
  return binding;
}

Environment Tile::bind(mlir::Region &region, IndexBinding key) {
  Environment environment;
  unsigned rank = vars.size();
  for (unsigned position = 0; position < rank; ++position)
    environment.bind(region.getArgument(position), vars[rank - 1 - position]);
  environment.indices[region.getArgument(op.getQuery())] = {
      tile * static_cast<int>(plan.queries) + q, {q, tile}, true, {}};
  environment.indices[region.getArgument(rank - 1)].padded = true;
  environment.indices[region.getArguments().back()] = key;
  return environment;
}

/// Binds the arguments of score, mask and sink to what the weight is read at.
void Tile::bindScore(SoftmaxOp producer, Environment &environment) {
  llvm::SmallVector<IndexBinding> bindings;
  for (mlir::Value subscript : read.getSubscripts())
    bindings.push_back(environment.indices[subscript]);
  for (mlir::Value tensor : {producer.getScore(), producer.getMask(), producer.getSink()})
    if (tensor)
      for (auto [argument, binding] : llvm::zip(definition(tensor).getArguments(), bindings))
        environment.indices[argument] = binding;
}

//===----------------------------------------------------------------------===//
// Weights, state, output
//===----------------------------------------------------------------------===//

/// Defines `func` on the keys in range only.
static void defineOnKeys(Func func, const std::vector<Var> &vars, const std::vector<Expr> &element, Expr value) {
  func(vars) = Halide::undef(value.type());
  func(element) = value;
}

void Tile::defineWeights() {
  std::vector<Var> elementVars = tileVars({q, k, chunk}), rowVars = tileVars({q, chunk});
  std::vector<Expr> row(rowVars.begin(), rowVars.end());
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  if (softmax) {
    // A stored score has its mask applied; one that is not is masked here, on chunks that are not whole.
    maximum = Func(kernel.uniqueName(func.name() + "_maximum"));
    exponential = Func(kernel.uniqueName(func.name() + "_exponential"));
    maximum(rowVars) = lowest(type);
    exponential(elementVars) = Halide::undef(type);
    int forms = storeScore ? 1 : 2;
    auto condition = [&](int isWhole) { return storeScore ? Expr() : isWhole ? whole : !whole; };
    auto valueAt = [&](Expr key, int isWhole) { return storeScore ? Expr(score(at(q, key))) : scoreAt(key, isWhole); };
    for (int isWhole = 0; isWhole < forms; ++isWhole) {
      maximumKeys.push_back(keys({}, condition(isWhole)));
      Expr key = keyOf(maximumKeys.back()), candidate = valueAt(key, isWhole);
      // Halide takes an update for a reduction only if it mentions the variable; a score may not.
      candidate = select(key < 0, -candidate, candidate);
      maximum(row) = select(candidate > maximum(row), candidate, maximum(row));
    }
    for (int isWhole = 0; isWhole < forms; ++isWhole) {
      exponentialKeys.push_back(keys({}, condition(isWhole)));
      Expr key = keyOf(exponentialKeys.back());
      exponential(at(q, key)) = exp2OfNonPositive(valueAt(key, isWhole) - maximum(row));
    }

    sumKeys = keysOfBlock(plan.keyUnroll);
    sumBlock = Func(kernel.uniqueName(func.name() + "_sum_block"));
    std::vector<Var> blockVars = tileVars({q, block, chunk});
    std::vector<Expr> blockAt(blockVars.begin(), blockVars.end());
    sumBlock(blockVars) = constant(type, 0);
    sumBlock(blockAt) += exponential(at(q, keyOfBlock(sumKeys)));
    sumBlocks = blocksOfChunk();
    blockAt[1] = sumBlocks.x;
    sum = Func(kernel.uniqueName(func.name() + "_sum"));
    sum(rowVars) = constant(type, 0);
    sum(row) += sumBlock(blockAt);
    weights = exponential;
    if (yielded(op.getBody(), 0) == read.getResult() && op.getWhere().empty())
      return;
  }
  // The weight's other factors, and the sum's own condition.
  weights = Func(kernel.uniqueName(func.name() + "_weight"));
  mlir::Region *condition = op.getWhere().empty() ? nullptr : &op.getWhere();
  if (!softmax)
    defineRange(condition, condition ? bind(*condition, keyBinding(k)) : Environment());
  weightKeys = keys();
  Expr key = keyOf(weightKeys);
  Environment environment = bind(op.getBody(), keyBinding(key));
  if (softmax)
    environment.replace(read.getResult(), exponential(at(q, key)));
  TileRegion lowering(*this, environment, true);
  Expr value = lowering.expression(yielded(op.getBody(), 0));
  Expr kept = chunk * static_cast<int>(plan.chunk) + key < keyCount;
  if (condition) {
    Environment inside = bind(*condition, keyBinding(key));
    PlainRegion conditions(kernel, inside);
    kept = kept && conditions.expression(yielded(*condition));
  }
  defineOnKeys(weights, elementVars, at(q, key), select(kept, value, constant(type, 0)));
}

/// Blocks of keys, then blocks: as the row's sum, so that no chain of additions is long.
void Tile::defineOutput() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  std::vector<Var> blockVars = tileVars({q, e, block, chunk});
  std::vector<Expr> blockAt(blockVars.begin(), blockVars.end());
  outputBlock = Func(kernel.uniqueName(func.name() + "_output_block"));
  outputBlock(blockVars) = constant(type, 0);
  if (pairsWeights()) {
    definePairedOutput();
  } else {
    outputKeys = keysOfBlock(plan.keyUnroll);
    Expr key = keyOfBlock(outputKeys);
    Environment environment = bind(op.getBody(), keyBinding(key));
    TileRegion lowering(*this, environment, false);
    outputBlock(blockAt) =
        plusWeighted(op, outputBlock(blockAt), weights(at(q, key)), lowering.expression(yielded(op.getBody(), 1)));
  }
  outputBlocks = blocksOfChunk();
  blockAt[2] = outputBlocks.x;
  std::vector<Var> outputVars = tileVars({q, e, chunk});
  std::vector<Expr> outputAt(outputVars.begin(), outputVars.end());
  output = Func(kernel.uniqueName(func.name() + "_output"));
  output(outputVars) = constant(type, 0);
  output(outputAt) += outputBlock(blockAt);
}

void Tile::defineState() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  std::vector<Var> stateVars = tileVars({q, e});
  std::vector<Expr> stateAt(stateVars.begin(), stateVars.end());
  int size = plan.chunk;
  // Without keys there is one chunk, empty; so that no bound is negative.
  chunks = RDom(0, (Halide::max(keyCount, 1) + size - 1) / size);
  std::vector<Var> boundVars = tileVars({});
  std::vector<Expr> bounds(boundVars.begin(), boundVars.end());
  if (ranged) {
    chunks.where(chunks.x * size < upper);
    chunks.where(chunks.x * size + size > lower);
  }
  state = Func(kernel.uniqueName(func.name() + "_state"));
  std::vector<Expr> outputChunk = {q, e, chunks.x}, rowChunk = {q, chunks.x};
  outputChunk.insert(outputChunk.end(), bounds.begin(), bounds.end());
  rowChunk.insert(rowChunk.end(), bounds.begin(), bounds.end());
  // Of the chunk that the loop is at; a sum's own condition is evaluated everywhere.
  Expr masked = softmax && op.getWhere().empty() ? Halide::Internal::substitute(chunk.name(), chunks.x, !whole)
                                                 : Expr(!op.getWhere().empty());
  unsigned values = softmax ? 3 : 1;
  Expr visitedBefore = 0, maskedBefore = 0;
  auto countBefore = [&] {
    if (!kernel.plan.countChunks)
      return;
    visitedBefore = state(stateAt)[values];
    maskedBefore = state(stateAt)[values + 1];
  };
  auto countedAfter = [&](std::vector<Expr> after) {
    return counted(after, visitedBefore + 1, maskedBefore + cast<int32_t>(masked));
  };
  if (!softmax) {
    state(stateVars) = counted({constant(type, 0)}, 0, 0);
    countBefore();
    state(stateAt) = countedAfter({sumOf(stateAt) + output(outputChunk)});
    return;
  }
  Expr start = lowest(type), startSum = constant(type, 0);
  if (softmax.getSink()) {
    Environment sinkEnvironment = bind(op.getBody(), keyBinding(k));
    bindScore(softmax, sinkEnvironment);
    TileRegion sinkLowering(*this, sinkEnvironment, true);
    Expr sink = sinkLowering.expression(yielded(definition(softmax.getSink()))) * log2e(type);
    start = select(sink > start, sink, start);
    startSum = exp2OfNonPositive(sink - start);
  }
  state(stateVars) = counted({start, startSum, constant(type, 0)}, 0, 0);
  countBefore();
  Halide::FuncRef old = state(stateAt);
  Expr oldMaximum = old[0], oldSum = old[1], oldOutput = old[2];
  Expr chunkMaximum = maximum(rowChunk);
  Expr newMaximum = select(chunkMaximum > oldMaximum, chunkMaximum, oldMaximum);
  Expr oldScale = exp2OfNonPositive(oldMaximum - newMaximum), newScale = exp2OfNonPositive(chunkMaximum - newMaximum);
  state(stateAt) = countedAfter({newMaximum, oldSum * oldScale + sum(rowChunk) * newScale,
                                 oldOutput * oldScale + output(outputChunk) * newScale});
}

void Tile::define() {
  if (softmax)
    defineScore();
  defineWeights();
  defineOutput();
  defineState();
  unsigned rank = vars.size();
  Var query = vars[rank - 1 - op.getQuery()];
  int queries = plan.queries;
  std::vector<Expr> element = {query % queries, e, query / queries};
  element.insert(element.end(), others.begin(), others.end());
  Expr result;
  unsigned values = softmax ? 3 : 1;
  if (softmax) {
    Expr total = state(element)[1], sum = state(element)[2];
    result = select(total == 0.0f, constant(sum.type(), 0), sum / total);
  } else {
    result = sumOf(element);
  }
  result = convert(result, kernel.typeInMemory(op.getResult()));
  if (hasLogSumExp) {
    std::vector<Expr> first = {q, 0, tile};
    first.insert(first.end(), others.begin(), others.end());
    logSumExp = Func(kernel.uniqueName(func.name() + "_logsumexp"));
    logSumExp(tileVars({q})) =
        convert(lowering::logSumExp(state(first)[0], state(first)[1]), kernel.typeInMemory(softmax.getLogsumexp()));
    element.erase(element.begin() + 1);
    func(vars) = Halide::Tuple(result, logSumExp(element));
  } else if (kernel.plan.countChunks) {
    func(vars) = Halide::Tuple(result, state(element)[values], state(element)[values + 1]);
  } else {
    func(vars) = result;
  }
}

Expr Tile::sumOf(const std::vector<Expr> &element) const {
  Halide::FuncRef all = state(element);
  return state.outputs() == 1 ? Expr(all) : all[0];
}

} // namespace attn::lowering
