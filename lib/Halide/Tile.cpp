//===- Tile.cpp - The tiled plan: what is computed -------------------------===//

#include "Tile.h"
#include "Hints.h"
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
      read(softmaxWeight(op)), softmax(softmaxOf(op)), pairsWeights(plan.bf16Pairs && canPairWeights(kernel, op)) {
  mlir::Region &body = op.getBody();
  unsigned rank = op.getIndices().size();
  queryArgument = body.getArgument(op.getQuery());
  keyArgument = body.getArguments().back();
  valueArgument = body.getArgument(rank - 1);
  vars = loopsAlong(op.getIndices());
  e = vars.front();
  keyCount = extent(kernel, op.getKeySize());
  findOthers();
}

/// A task is a number, of which the tile and each other index are digits.
void Tile::findOthers() {
  llvm::ArrayRef<SizeAttr> shape = op.getResult().getType().getShape();
  auto sizeOf = [&](unsigned position) { return Halide::max(extent(kernel, shape[position]), 1); };
  Expr rest = task;
  tiles = kernel.derivedSize("tiles", ceilDivide(sizeOf(op.getQuery()), static_cast<int>(plan.queries)), 1);
  std::vector<Expr> numbers = {takeDigit(rest, tiles)};
  unsigned rank = vars.size();
  for (unsigned position = rank - 1; position-- > 0;)
    if (position != op.getQuery()) {
      Expr size = sizeOf(position);
      numbers.push_back(takeDigit(rest, size));
      others.push_back({position, vars[rank - 1 - position], size, {}});
    }
  taskNumbers = PassNumbers(kernel.uniqueName("numbers_of_task"), {task}, numbers);
  firstQuery = taskNumbers[0] * static_cast<int>(plan.queries);
  for (auto [number, index] : llvm::enumerate(others))
    index.ofTask = Halide::unsafe_promise_clamped(taskNumbers[number + 1], 0, index.size - 1);
  chunkNumbers = PassNumbers(kernel.uniqueName("chunk"), {chunk}, {chunk});
  firstKey = chunkNumbers[0] * static_cast<int>(plan.chunk); // that Halide sees what it is a multiple of
}

/// `key` counts within the chunk.
IndexBinding Tile::keyBinding(Expr key) const {
  IndexBinding binding{firstKey + key, {k}, true, {}};
  return binding;
}

Environment Tile::bind(mlir::Region &region, IndexBinding key) {
  Environment environment;
  unsigned rank = vars.size();
  for (const Own &index : others)
    environment.indices[region.getArgument(index.position)] = {index.ofTask, {task}, false, {}};
  environment.bind(region.getArgument(rank - 1), e);
  environment.indices[region.getArgument(op.getQuery())] = {firstQuery + q, {q, task}, true, {}};
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
      for (auto [argument, binding] : llvm::zip(bodyOf(tensor).getArguments(), bindings))
        environment.indices[argument] = binding;
}

//===----------------------------------------------------------------------===//
// Weights, state, output
//===----------------------------------------------------------------------===//

void defineOnKeys(Func func, const std::vector<Var> &vars, const std::vector<Expr> &element, Expr value) {
  func(vars) = Halide::undef(value.type());
  func(element) = value;
}

void Tile::defineWeights() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  if (softmax) {
    // A stored score has its mask applied; one that is not is masked here, on keys that the mask may cut.
    maximum = Func(kernel.uniqueName(func.name() + "_maximum"));
    exponential = Func(kernel.uniqueName(func.name() + "_exponential"));
    maximum(q) = lowest(type);
    exponential(q, k) = Halide::undef(type);
    int forms = storeScore ? 1 : 2;
    auto keysOf = [&](bool whole) { return storeScore ? keys() : keysOfForm(whole); };
    for (int whole = 0; whole < forms; ++whole) {
      maximumKeys.push_back(keysOf(whole));
      Expr key = keyOf(maximumKeys.back()), candidate = storeScore ? Expr(score(q, key)) : scoreAt(key, whole);
      // Halide takes an update for a reduction only if it mentions the variable; a score may not.
      candidate = select(key < 0, -candidate, candidate);
      maximum(q) = select(candidate > maximum(q), candidate, maximum(q));
    }
    for (int whole = 0; whole < forms; ++whole) {
      exponentialKeys.push_back(keysOf(whole));
      Expr key = keyOf(exponentialKeys.back());
      exponential(q, key) =
          exp2OfNonPositive(storeScore ? score(q, key) - maximum(q) : scoreAt(key, whole, maximum(q)));
    }

    sumKeys = keysOfBlock(plan.block, plan.keyUnroll);
    sumBlock = Func(kernel.uniqueName(func.name() + "_sum_block"));
    sumBlock(q, block) = constant(type, 0);
    sumBlock(q, block) += exponential(q, block * static_cast<int>(plan.block) + keyOf(sumKeys));
    sumBlocks = blocksOfChunk(plan.block);
    sum = Func(kernel.uniqueName(func.name() + "_sum"));
    sum(q) = constant(type, 0);
    sum(q) += sumBlock(q, sumBlocks.x);
    weights = exponential;
    if (hasPlainWeights(op))
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
    environment.replace(read.getResult(), exponential(q, key));
  TileRegion lowering(*this, environment, true);
  Expr value = lowering.expression(yielded(op.getBody(), 0));
  Expr kept = firstKey + key < keyCount;
  if (condition) {
    Environment inside = bind(*condition, keyBinding(key));
    PlainRegion conditions(kernel, inside);
    kept = kept && conditions.expression(yielded(*condition));
  }
  defineOnKeys(weights, {q, k}, {q, key}, unconditional(select(kept, value, constant(type, 0))));
}

/// Lets `environment` take from Funcs what `value` has of rows of tables, and of narrow numbers.
void Tile::keepInChunk(mlir::Value value, Environment &environment) {
  if (environment.values.contains(value))
    return;
  auto read = value.getDefiningOp<ReadOp>();
  if (read && isOfDistance(read, environment))
    environment.replace(value, addDistances(read, environment));
  else if (isNarrow(value, environment))
    environment.replace(value, addWidened(value, environment));
  else if (mlir::Operation *op = value.getDefiningOp())
    for (mlir::Value operand : op->getOperands())
      keepInChunk(operand, environment);
}

/// Blocks of keys, then blocks: as the row's sum, so that no chain of additions is long.
void Tile::defineOutput() {
  Halide::Type type = computeType(op.getResult().getType().getElementType());
  outputBlock = Func(kernel.uniqueName(func.name() + "_output_block"));
  outputBlock(q, e, block) = constant(type, 0);
  if (pairsWeights) {
    definePairedOutput();
  } else {
    // A loop that ends with the last key: what is read there has no clamp.
    outputKeys = RDom(0, static_cast<int>(plan.block));
    Expr key = block * static_cast<int>(plan.block) + outputKeys.x;
    visitRange(outputKeys, key, 1);
    IndexBinding binding = keyBinding(key);
    Environment environment = bind(op.getBody(), binding);
    mlir::Value value = yielded(op.getBody(), 1);
    keepInChunk(value, environment);
    binding.expr = Halide::unsafe_promise_clamped(binding.expr, 0, Halide::max(keyCount, 1) - 1);
    binding.padded = false;
    environment.indices[keyArgument] = binding;
    Expr values = TileRegion(*this, environment, false).expression(value);
    outputBlock(q, e, block) = plusWeighted(op, outputBlock(q, e, block), weights(q, key), values);
  }
  outputBlocks = blocksOfChunk(outputBlockSize());
  output = Func(kernel.uniqueName(func.name() + "_output"));
  output(q, e) = constant(type, 0);
  output(q, e) += outputBlock(q, e, outputBlocks.x);
}

void Tile::define() {
  if (softmax)
    defineScore();
  defineWeights();
  defineOutput();
  defineState();
  defineResult();
}

} // namespace attn::lowering
