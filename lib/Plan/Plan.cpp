//===- Plan.cpp - The choice of tile sizes ---------------------------------===//

#include "attn/Plan/Plan.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Fusion.h"
#include "attn/Analysis/KeyRange.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace attn;

std::string Machine::platform() const {
  llvm::SmallVector<llvm::StringRef> parts;
  llvm::StringRef(target).split(parts, '-');
  return llvm::join(llvm::ArrayRef(parts).take_front(3), "-");
}

/// "32 KiB", "1 MiB".
static std::string byteCount(uint64_t bytes) {
  bool isMebi = bytes % (1 << 20) == 0;
  return llvm::utostr(isMebi ? bytes >> 20 : bytes >> 10) + (isMebi ? " MiB" : " KiB");
}

void Machine::print(llvm::raw_ostream &os) const {
  os << "target: " << target << "\nvectors: " << vectorBytes << " bytes, " << vectorRegisters
     << " registers\nbf16: " << (bf16Pairs ? "products of pairs" : "widened to f32") << '\n';
  if (cores)
    os << "cores: " << cores << '\n';
  for (unsigned level = 0; level < cacheBytes.size(); ++level)
    if (cacheBytes[level])
      os << "cache " << level + 1 << ": " << byteCount(cacheBytes[level]) << '\n';
}

/// "lower <= n < upper"; a bound that is missing is the size's own.
static std::string describe(const KeyRange &range, mlir::BlockArgument key) {
  std::string lower = range.lower ? describe(*range.lower) : "0";
  std::string upper = range.upper ? describe(*range.upper) : indexSize(key).str();
  return lower + " <= " + indexName(key).str() + " < " + upper;
}

static void addRange(std::vector<KeyRangePlan> &ranges, llvm::StringRef name, mlir::Region &condition) {
  mlir::BlockArgument key = condition.getArguments().back();
  MaskRange range = maskRange(condition.front().back().getOperand(0), key);
  ranges.push_back({name.str(), describe(range.possible, key), describe(range.certain, key)});
}

/// Few queries are split over keys, where a size says that a call has few; all are where the value depends on the
/// query. Tiles are what counts chunks.
static SumPlan chooseForSum(WeightedSumOp sum, const SplitPlan &split, bool countChunks) {
  SumPlan plan;
  plan.statement = sum;
  plan.name = sum.getName().str();
  if (!isFusible(sum))
    return plan;
  plan.tiled = isTileable(sum);
  plan.split = true;
  if (!plan.tiled)
    return plan;
  SizeAttr queries = sum.getResult().getType().getShape()[sum.getQuery()];
  plan.queryName = indexName(sum.getBody().getArgument(sum.getQuery())).str();
  if (queries.isName())
    plan.querySize = queries.getName().str();
  if (countChunks || !(queries.isName() || queries.isConstant()))
    plan.split = false;
  else if (queries.isConstant())
    (queries.getValue() <= split.queries ? plan.tiled : plan.split) = false;
  return plan;
}

/// Register tiles of queries × keys: the product loads `vectors` query vectors and `keyUnroll` broadcast keys for
/// vectors · keyUnroll multiply-adds, whose accumulators must fit the registers beside one step's loads and be enough
/// to hide a multiply-add's latency. 32 registers: 4 × 4 = 16 accumulators; 16 registers: 3 × 4 = 12. Measured on
/// Zen 4, 2048 tokens of 64: 4 × 4 takes 96% of the time of 3 × 8. 512 keys a chunk would take 98% of the
/// time of 256, but a narrow window would visit half as many chunks again as it needs.
Plan Plan::choose(KernelOp kernel, const Machine &machine, bool countChunks) {
  unsigned vectors = machine.vectorRegisters >= 32 ? 4 : 3;
  bool isDouble = llvm::any_of(kernel.getParameters(), [](mlir::Value parameter) {
    return llvm::cast<AttnTensorType>(parameter.getType()).getElementType().isF64();
  });
  unsigned bytesPerScore = isDouble ? 8 : 4;
  Plan plan;
  plan.countChunks = countChunks;
  plan.lanes = machine.vectorBytes / bytesPerScore;
  plan.tile.lanes = plan.lanes;
  plan.tile.queries = vectors * plan.lanes;
  plan.tile.keyUnroll = plan.tile.valueUnroll = 4;
  plan.tile.chunk = 256;
  plan.tile.block = 32;
  plan.tile.bf16Pairs = machine.bf16Pairs && !isDouble;
  plan.split.keyTile = std::min<int>(plan.split.keyTile, plan.lanes);
  kernel.walk([&](mlir::Operation *op) {
    if (auto softmax = llvm::dyn_cast<SoftmaxOp>(op); softmax && softmax.getMask())
      addRange(plan.ranges, softmax.getName().empty() ? softmax.getLogsumexpName() : softmax.getName(),
               softmax.getMask().getDefiningOp<MaskOp>().getBody());
    if (auto sum = llvm::dyn_cast<WeightedSumOp>(op); sum && !sum.getWhere().empty())
      addRange(plan.ranges, sum.getName(), sum.getWhere());
    if (auto sum = llvm::dyn_cast<WeightedSumOp>(op))
      plan.sums.push_back(chooseForSum(sum, plan.split, countChunks));
    if (auto statement = llvm::dyn_cast<DefinitionOpInterface>(op))
      if (std::optional<MatrixPlan> matrix = MatrixPlan::choose(statement, machine, plan.lanes))
        plan.matrices.push_back(*matrix);
  });
  return plan;
}

const SumPlan &Plan::sum(mlir::Operation *statement) const {
  return *llvm::find_if(sums, [&](const SumPlan &plan) { return plan.statement == statement; });
}

const MatrixPlan *Plan::matrix(mlir::Operation *statement) const {
  auto found = llvm::find_if(matrices, [&](const MatrixPlan &plan) { return plan.statement == statement; });
  return found == matrices.end() ? nullptr : &*found;
}

std::optional<Plan::Limit> Plan::limit(mlir::Operation *statement) const {
  if (const MatrixPlan *plan = matrix(statement); plan && !plan->rowSize.empty())
    return Limit{plan->rowSize, plan->rows - 1};
  if (llvm::isa<WeightedSumOp>(statement) && sum(statement).tiled && sum(statement).split)
    return Limit{sum(statement).querySize, split.queries};
  return std::nullopt;
}

std::vector<std::string> Plan::countedSums() const {
  std::vector<std::string> names;
  for (const SumPlan &sum : sums)
    if (countChunks && sum.tiled)
      names.push_back(sum.name);
  return names;
}

void Plan::print(llvm::raw_ostream &os) const {
  os << "tiled: " << tile.queries << " queries a tile in vectors of " << tile.lanes << ", " << tile.chunk
     << " keys a chunk, added in blocks of " << tile.block << ", register tiles of " << tile.queries << " x "
     << tile.keyUnroll << " scores and " << tile.queries << " x " << tile.valueUnroll << " outputs"
     << (tile.bf16Pairs ? ", bf16 in pairs" : "") << "\n"
     << "split: " << split.chunk << " keys a chunk, added in blocks of " << split.block << ", spans for " << split.tasks
     << " tasks, at most " << split.rows << " rows in a pass over keys, register tiles of " << split.scoreKeys
     << " keys x " << lanes << " terms and " << split.keyTile << " keys x " << split.valueVectors * lanes
     << " outputs\n"
     << "other statements: vectors of " << lanes << '\n';
  for (const SumPlan &sum : sums) {
    os << "sum " << sum.name << ": ";
    if (sum.tiled && sum.split)
      os << "split for at most " << split.queries << ' ' << sum.queryName << ", else tiled\n";
    else
      os << (sum.tiled ? "tiled" : sum.split ? "split" : "by rows") << '\n';
  }
  for (const MatrixPlan &matrix : matrices) {
    os << "matrix " << matrix.name << ": ";
    if (!matrix.rowSize.empty())
      os << "for at least " << matrix.rows << ' ' << matrix.rowName << ": ";
    os << "register tiles of " << matrix.rows << ' ' << matrix.rowName << " x " << matrix.vectors * matrix.lanes << ' '
       << matrix.columnName << ", panels of " << matrix.vectors * matrix.lanes << ' ' << matrix.columnName
       << " packed for " << matrix.rows * matrix.tiles << ' ' << matrix.rowName << ", sums in chains of "
       << matrix.chain << " and blocks of " << matrix.block << " terms\n";
  }
  for (const KeyRangePlan &range : ranges)
    os << "keys of " << range.name << ": visited " << range.possible << "; without a mask " << range.certain << '\n';
}
