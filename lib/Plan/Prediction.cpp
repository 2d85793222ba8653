//===- Prediction.cpp - What a plan takes, by a model ----------------------===//

#include "attn/Plan/Prediction.h"

#include "attn/Analysis/Cost.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Fusion.h"
#include "attn/Analysis/SharedKeys.h"

#include <cmath>

using namespace attn;

/// Vector instructions for one vector of scores between the products: mask, maximum, difference, exp2, sum.
static constexpr double softmaxInstructions = 22;
/// Clocks in which a vector of keys or values becomes wider, once for a tile: it is loaded, widened and stored.
static constexpr double widenedClocks = 1.5;
/// Vector instructions of a function such as tanh.
static constexpr double callInstructions = 30;
/// Clocks until a multiply-add's result is there.
static constexpr double multiplyAddLatency = 4;
/// Clocks of a number of a table's row, of those that the distances of a tile and a chunk choose. Zen 4.
static constexpr double rowClocks = 1;
/// Loads that begin in a clock.
static constexpr double loads = 2;
/// Instructions that begin in a clock, of any kind.
static constexpr double instructionsAtOnce = 4;
/// Bytes that come from the second cache in a clock, half of the time while something else is done: where a tile's keys
/// and values are.
static constexpr double secondCacheBytes = 64;
/// Bytes that come from beyond it in a clock: keys and values, when they are read first.
static constexpr double thirdCacheBytes = 16;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

static double valueOf(SizeAttr size, const SizeValues &sizes) { return size.evaluate(sizes).value_or(0); }

SizeValues attn::typicalSizes(KernelOp kernel) {
  SizeValues values;
  for (mlir::StringAttr name : kernel.getSizeNames())
    values[name] = 4;
  // Of an expression, such as S * S, all names are as large as it takes.
  auto assume = [&](SizeAttr size, int64_t value) {
    llvm::SetVector<mlir::StringAttr> names;
    size.forEachName([&](mlir::StringAttr name) { names.insert(name); });
    auto isSmall = [&](mlir::StringAttr name) { return values[name] < value; };
    if (size.isName())
      values[size.getName()] = value;
    else
      while (valueOf(size, values) < value && llvm::any_of(names, isSmall))
        for (mlir::StringAttr name : names)
          values[name] = std::min(2 * values[name], value);
  };
  kernel.walk([&](ReduceOp reduce) {
    for (SizeAttr size : reduce.getSizes().getAsRange<SizeAttr>())
      assume(size, 64);
  });
  auto shapeOf = [](mlir::Value tensor) { return llvm::cast<AttnTensorType>(tensor.getType()).getShape(); };
  for (mlir::Value parameter : kernel.getParameters())
    if (!shapeOf(parameter).empty())
      assume(shapeOf(parameter).back(), 64);
  kernel.walk([&](mlir::Operation *op) {
    if (auto softmax = llvm::dyn_cast<SoftmaxOp>(op))
      for (SizeAttr size : shapeOf(softmax.getScore()).take_back(2))
        assume(size, 1024);
    if (auto sum = llvm::dyn_cast<WeightedSumOp>(op))
      assume(sum.getKeySize(), 1024);
  });
  return values;
}

static double elements(mlir::Value tensor, const SizeValues &sizes) {
  double count = 1;
  for (SizeAttr size : llvm::cast<AttnTensorType>(tensor.getType()).getShape())
    count *= valueOf(size, sizes);
  return count;
}

static double bytes(mlir::Value tensor, const SizeValues &sizes) {
  unsigned bits = llvm::cast<AttnTensorType>(tensor.getType()).getElementType().getIntOrFloatBitWidth();
  return elements(tensor, sizes) * std::max(bits / 8, 1u);
}

//===----------------------------------------------------------------------===//
// Weighted sums
//===----------------------------------------------------------------------===//

namespace {
/// What a weighted sum consists of, at some sizes.
struct SumWork {
  SumWork(WeightedSumOp sum, const SizeValues &sizes, std::optional<int64_t> given) {
    llvm::ArrayRef<SizeAttr> shape = sum.getResult().getType().getShape();
    keys = valueOf(sum.getKeySize(), sizes);
    columns = shape.empty() ? 1 : valueOf(shape.back(), sizes);
    rows = elements(sum.getResult(), sizes) / std::max(columns, 1.0);
    queries = static_cast<int64_t>(sum.getQuery()) < 0 ? 1 : valueOf(shape[sum.getQuery()], sizes);
    if (given) {
      rows *= *given / std::max(queries, 1.0);
      queries = *given;
    }
    SoftmaxOp softmax = softmaxOf(sum);
    if (!softmax) {
      Cost cost = costOf(sum);
      double pairs = elements(sum.getResult(), sizes) / std::max(columns, 1.0) * keys;
      if (pairs > 0) {
        multiplyAdds = cost.flops.evaluate(sizes) / pairs / 2 - columns;
        instructions += callInstructions * cost.calls.evaluate(sizes) / pairs;
      }
      return;
    }
    instructions = softmaxInstructions;
    double pairs = elements(softmax.getScore(), sizes);
    for (mlir::Value tensor : {softmax.getScore(), softmax.getMask()})
      if (tensor && pairs > 0) {
        Cost cost = costOf(tensor.getDefiningOp());
        multiplyAdds += cost.flops.evaluate(sizes) / pairs / 2;
        instructions += callInstructions * cost.calls.evaluate(sizes) / pairs;
      }
  }

  /// Bytes of keys and values, of each set of queries.
  double keysRead() const { return rows / std::max(queries, 1.0) * keys * (multiplyAdds + columns) * 4; }

  double rows, queries, keys, columns;
  double multiplyAdds = 0; ///< Of a score.
  double instructions = 2; ///< Of a score, beside its products.
};
} // namespace

/// Clocks of a multiply-add in a register tile of `vectors` by `unroll` numbers, which are broadcast: with 16
/// registers, by an instruction each.
static double tileClocks(double vectors, double unroll, const Machine &machine) {
  double accumulators = vectors * unroll;
  double broadcasts = machine.vectorRegisters < 32 ? unroll : 0;
  constexpr double loop = 3; // its counters
  double instructions = accumulators + vectors + broadcasts + loop;
  double clocks = std::max({1.0 / machine.multiplyAdds, (vectors + unroll) / (loads * accumulators),
                            instructions / (instructionsAtOnce * accumulators), multiplyAddLatency / accumulators});
  bool fits = accumulators + vectors + 1 <= machine.vectorRegisters;
  return fits ? clocks : clocks + 2 / loads; // an accumulator is stored and loaded
}

bool attn::widens(KernelOp kernel, const TilePlan &tile) {
  return llvm::any_of(kernel.getParameters(), [&](mlir::Value parameter) {
    mlir::Type type = llvm::cast<AttnTensorType>(parameter.getType()).getElementType();
    unsigned bits = type.getIntOrFloatBitWidth();
    return bits == 8 || (bits == 16 && !(tile.bf16Pairs && type.isBF16()));
  });
}

double attn::tiledClocks(WeightedSumOp sum, const TilePlan &tile, const Machine &machine, const SizeValues &sizes,
                         std::optional<int64_t> queries) {
  SumWork work(sum, sizes, queries);
  auto roundUp = [](double value, double unit) { return std::ceil(value / unit) * unit; };
  double vectors = tile.queries / tile.lanes;
  double tiles = work.rows / std::max(work.queries, 1.0) * std::ceil(work.queries / tile.queries);
  double keys = roundUp(work.keys, tile.keyUnroll), columns = roundUp(work.columns, tile.valueUnroll);
  double perKey = work.multiplyAdds * vectors * tileClocks(vectors, tile.keyUnroll, machine) +
                  work.instructions * vectors / machine.multiplyAdds +
                  columns * vectors * tileClocks(vectors, tile.valueUnroll, machine) +
                  (work.multiplyAdds + columns) * 4 / secondCacheBytes;
  if (widens(sum->getParentOfType<KernelOp>(), tile))
    perKey += (work.multiplyAdds + columns) / tile.lanes * widenedClocks;
  double chunks = std::ceil(work.keys / tile.chunk);
  double merges = chunks * columns * vectors * 4 / machine.multiplyAdds;
  double transposition = (work.multiplyAdds + columns) * vectors * 4, rows = 0;
  if (hasValuesOfPairs(sum)) {
    perKey += columns * vectors / loads; // that are added to the values
    rows = chunks * columns * (tile.queries + tile.chunk) * rowClocks;
  }
  return tiles * (keys * perKey + merges + transposition + rows) + work.keysRead() / thirdCacheBytes;
}

/// Lanes lie along the terms of a score, so that they are added up for each score; an output's accumulators are loaded
/// and stored for each tile of keys.
double attn::splitClocks(WeightedSumOp sum, const SplitPlan &split, unsigned lanes, const Machine &machine,
                         const SizeValues &sizes, std::optional<int64_t> queries) {
  SumWork work(sum, sizes, queries);
  // Two loads for a multiply-add, but fewer in register tiles of rows that share keys.
  bool isShared = work.queries > 1 && llvm::any_of(sharedKeys(sum), [&](const SharedKeys &index) {
                    return index.position() == static_cast<unsigned>(sum.getQuery());
                  });
  auto clocksOf = [&](double rows, double others) {
    double loadsOfEach = isShared ? (rows + others) / (rows * others) : 2;
    return std::max(1.0 / machine.multiplyAdds, loadsOfEach / loads);
  };
  double score = std::ceil(work.multiplyAdds / lanes) * clocksOf(split.rowTile, split.scoreKeysOfSeveral()) +
                 15.0 / 4 / machine.multiplyAdds;
  double softmax = work.instructions / lanes / machine.multiplyAdds;
  double output =
      std::ceil(work.columns / lanes) * (clocksOf(split.valueRows, split.valueVectorsOfSeveral) + 2.0 / split.keyTile);
  constexpr double address = 15; // of a row of a table, for a query and a key
  if (hasValuesOfPairs(sum))
    output += std::ceil(work.columns / lanes) * 2 / loads + address;
  constexpr double loops = 2; // their counters, and what is left over of each
  double products = work.rows * work.keys * (score + softmax + output + loops);
  return std::max(products, work.keysRead() / thirdCacheBytes); // they are fetched before
}

double attn::storedClocks(TensorOp tensor, const Machine &machine, const SizeValues &sizes) {
  return 2 * bytes(tensor.getResult(), sizes) / machine.readGigabytes * machine.gigahertz;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// The statements of which only `op` makes use, and that are computed with it: not the scores that a softmax reads
/// where they are stored.
static void addFused(mlir::Operation *op, const Plan &plan, llvm::SetVector<mlir::Operation *> &fused) {
  auto softmax = llvm::dyn_cast<SoftmaxOp>(op);
  mlir::Value stored = softmax && plan.storesScores(softmax) ? softmax.getScore() : mlir::Value();
  op->walk([&](ReadOp read) {
    mlir::Operation *producer = read.getTensor().getDefiningOp();
    if (producer && llvm::isa<SoftmaxOp>(producer))
      fused.insert(producer);
  });
  for (unsigned position = 0; position < fused.size(); ++position)
    for (mlir::Value operand : fused[position]->getOperands())
      if (mlir::Operation *producer = operand.getDefiningOp(); producer && operand != stored)
        fused.insert(producer);
}

/// What is read of tensors that are there before, once each.
static double bytesRead(const llvm::SetVector<mlir::Operation *> &statements, const SizeValues &sizes) {
  llvm::SetVector<mlir::Value> tensors;
  for (mlir::Operation *statement : statements)
    statement->walk([&](ReadOp read) {
      if (!statements.contains(read.getTensor().getDefiningOp()))
        tensors.insert(read.getTensor());
    });
  double total = 0;
  for (mlir::Value tensor : tensors)
    total += bytes(tensor, sizes);
  return total;
}

static PlanVariant variantFor(const std::vector<PlanVariant> &variants, const SizeValues &sizes) {
  return *llvm::find_if(variants, [&](const PlanVariant &variant) {
    return !variant.limit || valueOf(variant.limit->size, sizes) <= variant.limit->atMost;
  });
}

std::vector<StepPrediction> attn::predict(KernelOp kernel, const Plan &plan, const Machine &machine,
                                          const SizeValues &sizes) {
  std::vector<StepPrediction> steps;
  for (mlir::Operation &op : kernel.getBody().front()) {
    auto softmax = llvm::dyn_cast<SoftmaxOp>(op);
    if (!llvm::isa<TensorOp, WeightedSumOp>(op) && llvm::none_of(op.getResults(), isReturned) && !plan.matrix(&op) &&
        !(softmax && plan.storesScores(softmax)))
      continue;
    llvm::SetVector<mlir::Operation *> fused;
    fused.insert(&op);
    if (softmax || llvm::isa<WeightedSumOp>(op))
      addFused(&op, plan, fused);
    PlanKind kind = variantFor(plan.variants(&op), sizes).kind;
    if (kind == PlanKind::None)
      continue;
    if (kind == PlanKind::Split)
      fused.insert_range(plan.sum(&op).keyTensors);
    if (llvm::isa<WeightedSumOp>(op))
      fused.insert_range(plan.sum(&op).queryTensors);
    StepPrediction step;
    step.name = softmax ? (softmax.getName().empty() ? softmax.getLogsumexpName() : softmax.getName()).str()
                        : llvm::cast<DefinitionOpInterface>(op).getName().str();
    double calls = 0;
    for (mlir::Operation *statement : fused) {
      Cost cost = costOf(statement);
      step.flops += cost.flops.evaluate(sizes);
      calls += cost.calls.evaluate(sizes);
    }
    step.bytes = bytesRead(fused, sizes) + bytes(op.getResult(0), sizes);
    // By rows and of other statements, half of the multiply-adds that could begin.
    double share = plan.matrix(&op) ? 0.85 : 0.5;
    double clocks = (step.flops / 2 / share + calls * callInstructions) / plan.lanes / machine.multiplyAdds;
    if (auto sum = llvm::dyn_cast<WeightedSumOp>(op)) {
      if (kind == PlanKind::Split)
        clocks = splitClocks(sum, plan.split, plan.lanes, machine, sizes);
      else if (kind != PlanKind::Nest)
        clocks = tiledClocks(sum, kind == PlanKind::Tiles ? plan.tile : plan.narrow, machine, sizes);
    }
    step.flops += calls;
    step.seconds = std::max(clocks / (machine.gigahertz * 1e9), step.bytes / (machine.readGigabytes * 1e9));
    steps.push_back(step);
  }
  return steps;
}
