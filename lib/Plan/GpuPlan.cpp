//===- GpuPlan.cpp - The choice of plans on a GPU --------------------------===//

#include "attn/Analysis/Fusion.h"
#include "attn/Plan/Plan.h"

using namespace attn;

std::string CudaArchitecture::name() const {
  return (llvm::Twine("sm_") + llvm::Twine(capability) + (isExact ? "a" : "")).str();
}

/// Whether a thread can have the sink of a row.
static bool hasPlainSink(WeightedSumOp sum) {
  SoftmaxOp softmax = softmaxOf(sum);
  mlir::Value sink = softmax ? softmax.getSink() : mlir::Value();
  return !sink || llvm::cast<DefinitionOpInterface>(sink.getDefiningOp()).getBody().getOps<ReduceOp>().empty();
}

/// Whether the sum is known to have at most this many columns.
static bool isNarrow(WeightedSumOp sum, int columns) {
  SizeAttr width = sum.getResult().getType().getShape().back();
  return width.isConstant() && width.getValue() <= columns;
}

static bool isWide(WeightedSumOp sum, int columns) {
  SizeAttr width = sum.getResult().getType().getShape().back();
  return width.isConstant() && width.getValue() > columns;
}

/// Few queries share keys with few: the keys are split between blocks then. So are those of rows without queries.
static std::vector<PlanVariant> variantsFor(WeightedSumOp sum, int64_t splitQueries) {
  if (!isFusible(sum) || !hasPlainSink(sum))
    return {{PlanKind::Nest}};
  if (static_cast<int64_t>(sum.getQuery()) < 0 || hasValuesOfPairs(sum))
    return {{PlanKind::Split}};
  if (!isTileable(sum))
    return {{PlanKind::Nest}};
  SizeAttr queries = sum.getResult().getType().getShape()[sum.getQuery()];
  if (queries.isConstant())
    return {{queries.getValue() <= splitQueries ? PlanKind::Split : PlanKind::Tiles}};
  if (splitQueries == 0)
    return {{PlanKind::Tiles}};
  return {{PlanKind::Split, SizeLimit{queries, splitQueries}}, {PlanKind::Tiles}};
}

void Plan::chooseForGpu(bool isDouble) {
  gpu = GpuPlan();
  gpu->isDouble = isDouble;
  matrices.clear();
  scatters.clear();
  scans.clear();
  bool wide = false, narrow = true;
  for (SumPlan &sum : sums) {
    auto statement = llvm::cast<WeightedSumOp>(sum.statement);
    sum.variants = variantsFor(statement, splitQueries.value_or(gpu->splitQueries));
    wide |= sum.has(PlanKind::Tiles) && isWide(statement, gpu->tiled.columns);
    narrow &= isNarrow(statement, gpu->tiled.columns);
  }
  // Shared memory has room for half as many rows, of numbers or columns that are twice as large or many.
  if (isDouble)
    gpu->tiled.slice = 16, gpu->split.slice = 32;
  else if (wide)
    gpu->tiled.columns = 128;
  if (isDouble || wide)
    gpu->tiled.rows = 16;
  if (isDouble || narrow)
    gpu->split.columns = 64;
}

static void print(llvm::raw_ostream &os, const char *name, const char *rows, const GpuTilePlan &plan) {
  os << name << ": " << plan.rows << ' ' << rows << " x " << plan.columns << " columns a block of "
     << GpuTilePlan::columnThreads << " x " << plan.rowThreads << " threads, " << plan.chunk
     << " keys a chunk, factors of " << plan.slice << " terms at a time\n";
}

void Plan::printForGpu(llvm::raw_ostream &os) const {
  auto some = [&](PlanKind kind) { return llvm::any_of(sums, [&](const SumPlan &sum) { return sum.has(kind); }); };
  if (some(PlanKind::Tiles))
    ::print(os, "tiled", "queries", gpu->tiled);
  if (some(PlanKind::Split)) {
    ::print(os, "split", "rows that share keys", gpu->split);
    os << "parts of keys: for " << gpu->splitBlocks << " blocks, none of fewer than " << gpu->partChunks << " chunks\n";
  }
  os << "statements: an element a thread, " << gpu->elementThreads << " threads a block\n";
  for (const SumPlan &sum : sums)
    sum.print(os, "an element a thread");
  printBlocks(os);
}
