//===- Plan.cpp - The choice of tile sizes --------------------------------===//

#include "attn/Plan/Plan.h"
#include "attn/Analysis/CutSizes.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Fusion.h"
#include "attn/Analysis/KeyRange.h"
#include "attn/Analysis/KeyTensors.h"
#include "attn/Analysis/PlacedSum.h"
#include "attn/Analysis/Scan.h"
#include "attn/Analysis/SharedKeys.h"
#include "attn/Analysis/UnreadCalls.h"
#include "attn/Plan/Prediction.h"
#include "attn/Plan/Settings.h"

#include "llvm/ADT/StringExtras.h"

using namespace attn;

/// "lower <= n < upper"; a bound that is missing is the size's own.
static std::string describe(const KeyRange &range, mlir::BlockArgument key) {
  std::string lower = range.lower ? describe(*range.lower) : "0";
  std::string upper = range.upper ? describe(*range.upper) : indexSize(key).str();
  return lower + " <= " + indexName(key).str() + " < " + upper;
}

/// `maySearch`: whether a plan that can look for keys uses the condition.
static void addRange(std::vector<KeyRangePlan> &ranges, llvm::StringRef name, mlir::Region &condition, bool maySearch) {
  mlir::BlockArgument key = condition.getArguments().back();
  mlir::Value value = condition.front().back().getOperand(0);
  MaskRange range = maskRange(value, key);
  bool isSearched = maySearch && keysSearchedAtOnce(value, key);
  ranges.push_back({name.str(), describe(range.possible, key), describe(range.certain, key), isSearched});
}

static void addRanges(std::vector<KeyRangePlan> &ranges, const PairBlocks &blocks) {
  for (TensorOp statement : blocks.statements)
    if (mlir::Value mask = isPairs(statement.getResult()) ? maskOf(statement) : mlir::Value()) {
      mlir::BlockArgument key = statement.getBody().getArguments().back();
      ranges.push_back({statement.getName().str(), describe(maskRange(mask, key).possible, key), "",
                        keysSearchedAtOnce(mask, key) != 0});
    }
}

bool SumPlan::has(PlanKind kind) const {
  return llvm::any_of(variants, [&](const PlanVariant &variant) { return variant.kind == kind; });
}

bool SumPlan::makes(PlanKind kind, TensorOp tensor) const {
  return kind == PlanKind::Split || llvm::is_contained(queryTensors, tensor);
}

namespace {
/// The predicted clocks of a sum for some number of queries, by each of its plans.
class Clocks {
public:
  Clocks(const SumPlan &sum, const Plan &plan, const Machine &machine)
      : sum(llvm::cast<WeightedSumOp>(sum.statement)), plan(plan), machine(machine),
        sizes(typicalSizes(sum.statement->getParentOfType<KernelOp>())) {
    for (TensorOp tensor : sum.keyTensors)
      stored += storedClocks(tensor, machine, sizes);
  }

  double of(PlanKind kind, int64_t queries) {
    if (kind == PlanKind::Split)
      return splitClocks(sum, plan.split, plan.lanes, machine, sizes, queries);
    const TilePlan &tile = kind == PlanKind::Tiles ? plan.tile : plan.narrow;
    return tiledClocks(sum, tile, machine, sizes, queries) + stored;
  }

  bool isSplit(int64_t queries) {
    return of(PlanKind::Split, queries) <= std::min(of(PlanKind::NarrowTiles, queries), of(PlanKind::Tiles, queries));
  }
  bool isNarrow(int64_t queries) { return of(PlanKind::NarrowTiles, queries) < of(PlanKind::Tiles, queries); }

  /// The most queries for which keys are split.
  int64_t splitLimit() {
    int64_t limit = 0;
    for (int64_t queries = 1; queries <= 64; queries *= 2)
      if (isSplit(queries))
        limit = queries;
    return limit;
  }

  /// The most queries for which narrow tiles are quicker, on average over what the last wide tile may have, but for the
  /// queries for which keys are split. One less than a multiple of a wide tile, so that where all are full they are
  /// wide.
  int64_t narrowLimit(int64_t splitLimit) {
    for (int64_t tiles = 16; tiles > 0; tiles /= 2) {
      double narrow = 0, wide = 0;
      int64_t full = tiles * plan.tile.queries;
      for (int64_t queries = std::max<int64_t>(full - plan.tile.queries, splitLimit + 1); queries < full; ++queries) {
        narrow += of(PlanKind::NarrowTiles, queries);
        wide += of(PlanKind::Tiles, queries);
      }
      if (narrow < wide)
        return full - 1;
    }
    return 0;
  }

private:
  WeightedSumOp sum;
  const Plan &plan;
  const Machine &machine;
  SizeValues sizes;
  double stored = 0; ///< Of what is made at keys, if these are split, and stored before otherwise.
};
} // namespace

/// Few queries are split over keys, some are computed in narrow tiles, many in wide ones; all are split where the value
/// depends on the query. Wide tiles are what counts chunks.
static SumPlan chooseForSum(WeightedSumOp sum, const Plan &plan, const Machine &machine) {
  SumPlan result;
  result.statement = sum;
  result.name = sum.getName().str();
  if (machine.device == Device::Cpu && isFusible(sum) && !plan.countChunks) {
    result.keyTensors = keyTensors(sum);
    result.queryTensors = queryTensors(sum);
  }
  if (!isTileable(sum)) {
    result.variants = {{isFusible(sum) ? PlanKind::Split : PlanKind::Nest}};
    return result;
  }
  SizeAttr size = sum.getResult().getType().getShape()[sum.getQuery()];
  result.queryName = indexName(sum.getBody().getArgument(sum.getQuery())).str();
  if (plan.countChunks) {
    result.variants = {{PlanKind::Tiles}};
    return result;
  }
  Clocks clocks(result, plan, machine);
  if (size.isConstant()) {
    int64_t queries = size.getValue();
    bool isSplit = plan.splitQueries ? queries <= *plan.splitQueries : clocks.isSplit(queries);
    bool isNarrow = plan.narrowQueries ? queries <= *plan.narrowQueries : clocks.isNarrow(queries);
    result.variants = {{isSplit ? PlanKind::Split : isNarrow ? PlanKind::NarrowTiles : PlanKind::Tiles}};
    return result;
  }
  int64_t split = plan.splitQueries ? *plan.splitQueries : clocks.splitLimit();
  int64_t narrow = plan.narrowQueries ? *plan.narrowQueries : clocks.narrowLimit(split);
  if (split > 0)
    result.variants.push_back({PlanKind::Split, SizeLimit{size, split}});
  if (narrow > split)
    result.variants.push_back({PlanKind::NarrowTiles, SizeLimit{size, narrow}});
  result.variants.push_back({PlanKind::Tiles});
  return result;
}

/// The plan of a sum whose terms have one place each.
static std::optional<ScatterPlan> chooseScatter(DefinitionOpInterface statement) {
  std::optional<PlacedSum> placed = PlacedSum::of(statement);
  if (!placed)
    return std::nullopt;
  auto names = [](auto &&indices) {
    return llvm::join(llvm::map_range(indices, [](mlir::BlockArgument index) { return indexName(index); }), ", ");
  };
  auto places =
      llvm::map_range(placed->places, [&](const auto &place) { return statement.getBody().getArgument(place.first); });
  return ScatterPlan{statement, statement.getName().str(), names(placed->sum.getBody().getArguments()), names(places)};
}

/// Whether the mask of `softmax` costs little each time that it is asked.
static bool hasPlainMask(SoftmaxOp softmax) {
  return !softmax.getMask() || softmax.getMask().getDefiningOp<MaskOp>().getBody().getOps<ReduceOp>().empty();
}

/// Whether the weights of `softmax` are stored, in numbers of type `element`: returned as they are, or read by what is
/// no sum over keys.
static bool storesWeights(SoftmaxOp softmax, mlir::Type element) {
  ReturnOp returned = softmax->getParentOfType<KernelOp>().getReturn();
  for (auto [index, tensor] : llvm::enumerate(returned.getOutputs()))
    if (tensor == softmax.getWeight() && returned.getOutputType(index).getElementType() == element)
      return true;
  auto isReader = [](mlir::Operation *user) { return llvm::isa<ReadOp>(user) && user->getParentOfType<TensorOp>(); };
  return !isReturned(softmax.getWeight()) && llvm::any_of(softmax.getWeight().getUsers(), isReader);
}

/// The softmax whose weights are stored, and made of nothing but `score`, which nobody else reads: that can lie where
/// the weights will. Null where there is none.
static SoftmaxOp softmaxInPlaceOf(ScoreOp score) {
  auto softmax = score.getResult().hasOneUse() ? llvm::dyn_cast<SoftmaxOp>(*score->user_begin()) : SoftmaxOp();
  bool isInPlace =
      softmax && hasPlainMask(softmax) && storesWeights(softmax, score.getResult().getType().getElementType());
  return isInPlace ? softmax : SoftmaxOp();
}

static bool computesInF64(KernelOp kernel) {
  return llvm::any_of(kernel.getParameters(), [](mlir::Value parameter) {
    return llvm::cast<AttnTensorType>(parameter.getType()).getElementType().isF64();
  });
}

/// The sizes for kernels of any size.
///
/// Register tiles of queries × keys: the product loads `vectors` query vectors and `keyUnroll` broadcast keys for
/// vectors · keyUnroll multiply-adds, whose accumulators must fit the registers beside one step's loads and be enough
/// to hide a multiply-add's latency. 32 registers: 4 × 4 = 16 accumulators; 16 registers: 3 × 4 = 12. Measured on
/// Zen 4, 2048 tokens of 64: 4 × 4 takes 96% of the time of 3 × 8. 512 keys a chunk would take 98% of the
/// time of 256, but a narrow window would visit half as many chunks again as it needs.
///
/// With 16 registers, numbers that are widened have tiles of 4 × 2: more queries for each number that is. Zen 3, 1024
/// tokens in bf16: 0.92 of the time of 3 × 4 for 64 columns, 0.91 for 128; in f32 it takes 1.06 and 1.04.
///
/// A narrow tile is one vector, with as many accumulators as hide the latency where that many multiply-adds begin in a
/// clock. It reads keys more often: 2048 tokens take 1.03 of the time. But 14 tokens take a quarter of it, 200 take
/// 0.8.
static Plan generalPlan(KernelOp kernel, const Machine &machine) {
  bool isDouble = computesInF64(kernel);
  unsigned bytesPerScore = isDouble ? 8 : 4;
  Plan plan;
  plan.lanes = machine.vectorBytes / bytesPerScore;
  plan.tile.lanes = plan.lanes;
  plan.tile.bf16Pairs = plan.split.bf16Pairs = machine.bf16Pairs && !isDouble;
  bool hasManyRegisters = machine.vectorRegisters >= 32, isWide = !hasManyRegisters && widens(kernel, plan.tile);
  plan.tile.queries = (hasManyRegisters || isWide ? 4 : 3) * plan.lanes;
  plan.tile.keyUnroll = plan.tile.valueUnroll = isWide ? 2 : 4;
  plan.split.rowTile = hasManyRegisters ? 4 : 2;
  // Zen 4, one thread, 8 heads of 128, 8192 and 65536 keys: 0.92 to 0.99 of the time of 8 in f32, 0.97 to 1.01 in bf16.
  plan.split.scoreKeys = machine.vectorBytes < 64 ? 8 : 16;
  plan.split.valueVectors = 8;
  // Zen 3, one thread, 8 heads of 128, 65536 keys: 0.97 of the time of 32 in f32, 0.91 in bf16.
  plan.split.ahead = machine.vectorBytes < 64 ? 64 : 32;
  plan.split.masksLanes = machine.maskedLoads;
  // Of all heads of a token: scores of the chunk stay in the second cache, and what a tile of keys reads in the first.
  kernel.walk([&](WeightedSumOp sum) {
    if (isFusible(sum) && !indicesWithinKeys(sum).empty())
      plan.split.chunk = 256, plan.split.keyTile = plan.split.ahead = 8;
  });
  plan.narrow = plan.tile;
  plan.narrow.queries = plan.lanes;
  plan.narrow.keyUnroll = plan.narrow.valueUnroll = machine.multiplyAdds > 1 ? 8 : 4;
  return plan;
}

/// What `sum` makes where it reads it, no step stores for it.
static void addUnread(std::vector<UnreadPlan> &unread, const SumPlan &sum) {
  SizeLimit always{SizeAttr::constant(sum.statement->getContext(), 0), 0};
  for (TensorOp tensor : llvm::concat<const TensorOp>(sum.keyTensors, sum.queryTensors)) {
    auto makes = [&](const PlanVariant &variant) { return sum.makes(variant.kind, tensor); };
    if (llvm::all_of(sum.variants, makes)) {
      unread.push_back({tensor, tensor.getName().str(), always});
      continue;
    }
    for (const PlanVariant &variant : llvm::make_filter_range(sum.variants, makes)) // the last one does not
      unread.push_back({tensor, tensor.getName().str(), *variant.limit});
  }
}

llvm::Expected<Plan> Plan::choose(KernelOp kernel, const Machine &machine, const PlanOptions &options) {
  if (llvm::Error error = checkSettings(options.settings))
    return error;
  Plan plan = generalPlan(kernel, machine);
  plan.countChunks = options.countChunks;
  for (const PlanSetting &setting : planSettings())
    if (auto given = options.settings.find(setting.name.str()); given != options.settings.end())
      setting.set(plan, given->second);
  if (llvm::Error error = plan.tensorCores.chooseFor(machine.tensorCores))
    return error;
  kernel.walk([&](mlir::Operation *op) {
    if (auto softmax = llvm::dyn_cast<SoftmaxOp>(op); softmax && softmax.getMask()) {
      bool isSummed = llvm::any_of(softmax.getWeight().getUsers(), [](mlir::Operation *user) {
        auto sum = user->getParentOfType<WeightedSumOp>();
        return sum && softmaxOf(sum);
      });
      addRange(plan.ranges, softmax.getName().empty() ? softmax.getLogsumexpName() : softmax.getName(),
               softmax.getMask().getDefiningOp<MaskOp>().getBody(), isSummed && machine.device == Device::Cpu);
    }
    if (auto sum = llvm::dyn_cast<WeightedSumOp>(op); sum && !sum.getWhere().empty())
      addRange(plan.ranges, sum.getName(), sum.getWhere(), !softmaxOf(sum) && machine.device == Device::Cpu);
    if (auto sum = llvm::dyn_cast<WeightedSumOp>(op))
      plan.sums.push_back(chooseForSum(sum, plan, machine));
    // What softmaxes alone read is computed with them, unless it can lie where the weights will.
    bool isFused = !op->use_empty() && llvm::all_of(op->getUsers(), llvm::IsaPred<SoftmaxOp>);
    auto score = llvm::dyn_cast<ScoreOp>(op);
    SoftmaxOp weights = score && machine.device == Device::Cpu ? softmaxInPlaceOf(score) : SoftmaxOp();
    if (auto statement = llvm::dyn_cast<DefinitionOpInterface>(op); statement && (!isFused || weights)) {
      if (std::optional<Scan> scan = Scan::of(statement)) {
        plan.scans.push_back({statement, statement.getName().str(), indexName(scan->end).str(), scan->isReversed});
      } else if (std::optional<MatrixPlan> matrix = MatrixPlan::choose(statement, machine, plan)) {
        matrix->inPlaceOf = weights ? weights.getName().str() : "";
        plan.matrices.push_back(*matrix);
      } else if (std::optional<ScatterPlan> scatter = chooseScatter(statement))
        plan.scatters.push_back(*scatter);
    }
    if (auto statement = llvm::dyn_cast<TensorOp>(op); statement && machine.device == Device::Cpu)
      for (const SizeLimit &calls : findUnreadCalls(statement.getResult()))
        plan.unread.push_back({statement, statement.getName().str(), calls});
  });
  for (const SumPlan &sum : plan.sums)
    addUnread(plan.unread, sum);
  if (machine.device != Device::Cpu)
    plan.chooseForGpu(computesInF64(kernel));
  // A device is told of no keys: see docs/plans.md.
  plan.blocks = findPairBlocks(kernel, /*mayCutKeys=*/!plan.gpu);
  for (const PairBlocks &blocks : plan.blocks) {
    if (!plan.gpu) // a GPU visits all keys of a block
      addRanges(plan.ranges, blocks);
    // A tile of which few rows are used costs less than a second form of each statement costs to compile, where it is
    // not for a step of decoding.
    for (MatrixPlan &matrix : plan.matrices)
      if (blocks.contains(matrix.statement) && kernel.getSymName().ends_with(KernelOp::backwardSuffix))
        matrix.rowSize = {};
  }
  // Blocks take as much memory as they are given, and devices keep what is between steps.
  if (plan.blocks.empty() && !plan.gpu && !plan.countChunks && !kernel.checksBounds())
    plan.chooseCuts(kernel);
  return plan;
}

bool Plan::isComputed(mlir::Operation *statement) const {
  return llvm::none_of(
      unread, [&](const UnreadPlan &calls) { return calls.statement == statement && calls.calls.size.isConstant(); });
}

void Plan::chooseCuts(KernelOp kernel) {
  llvm::SmallVector<mlir::Value> stored;
  for (mlir::Operation &op : kernel.getBody().front())
    if (llvm::isa<TensorOp, WeightedSumOp>(op) && !op.use_empty() && !isReturned(op.getResult(0)) && isComputed(&op))
      stored.push_back(op.getResult(0));
  if (!stored.empty())
    cuts = findCutSizes(kernel, stored);
}

const SumPlan &Plan::sum(mlir::Operation *statement) const {
  return *llvm::find_if(sums, [&](const SumPlan &plan) { return plan.statement == statement; });
}

const MatrixPlan *Plan::matrix(mlir::Operation *statement) const {
  auto found = llvm::find_if(matrices, [&](const MatrixPlan &plan) { return plan.statement == statement; });
  return found == matrices.end() ? nullptr : &*found;
}

bool Plan::storesScores(SoftmaxOp softmax) const {
  const MatrixPlan *scores = gpu ? nullptr : matrix(softmax.getScore().getDefiningOp());
  return scores && (isReturned(softmax.getScore()) || !scores->inPlaceOf.empty()) && hasPlainMask(softmax);
}

bool Plan::isScatter(mlir::Operation *statement) const {
  return llvm::any_of(scatters, [&](const ScatterPlan &plan) { return plan.statement == statement; });
}

bool Plan::isScan(mlir::Operation *statement) const {
  return llvm::any_of(scans, [&](const ScanPlan &plan) { return plan.statement == statement; });
}

std::vector<PlanVariant> Plan::variants(mlir::Operation *statement) const {
  if (llvm::isa<WeightedSumOp>(statement))
    return sum(statement).variants;
  std::vector<PlanVariant> variants;
  for (const UnreadPlan &calls : unread)
    if (calls.statement == statement)
      variants.push_back({PlanKind::None, calls.calls});
  const MatrixPlan *plan = matrix(statement);
  if (plan && plan->rowSize)
    variants.push_back({PlanKind::Nest, SizeLimit{plan->rowSize, MatrixPlan::fewRows}});
  variants.push_back({plan                   ? PlanKind::Matrix
                      : isScatter(statement) ? PlanKind::Scatter
                      : isScan(statement)    ? PlanKind::Scan
                                             : PlanKind::Nest});
  return variants;
}

std::vector<std::string> Plan::countedSums() const {
  std::vector<std::string> names;
  for (const SumPlan &sum : sums)
    if (countChunks && !gpu && sum.has(PlanKind::Tiles))
      names.push_back(sum.name);
  return names;
}
