//===- Prediction.h - What a plan takes, by a model -------------*- C++ -*-===//
//
// The clocks of a core are counted from what its vector units begin in a clock, loads included, and the bytes that come
// from memory. The model is there to compare plans: it knows no latency of the caches, and every key counts, whatever
// the mask says. docs/plans.md has its terms.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_PLAN_PREDICTION_H
#define ATTN_PLAN_PREDICTION_H

#include "attn/Plan/Plan.h"

namespace attn {

/// Values of sizes by name.
using SizeValues = llvm::StringMap<int64_t>;

/// Those of a typical call: 1024 queries and keys, 64 columns and terms of a product, 4 of everything else.
SizeValues typicalSizes(KernelOp kernel);

/// What the statement that a step stores takes on one core, with all that is computed for it alone.
struct StepPrediction {
  std::string name;
  double flops = 0;   ///< Operations and calls of functions, as attn/Analysis/Cost.h counts them.
  double bytes = 0;   ///< Of tensors that are read, and of the one that is written, once each.
  double seconds = 0; ///< The longer one of computing and reading.
};

/// The stored statements of `kernel`, in order.
std::vector<StepPrediction> predict(KernelOp kernel, const Plan &plan, const Machine &machine, const SizeValues &sizes);

/// Whether numbers of 8 or 16 bits become wider where they are used: those of keys do once for each tile of queries.
bool widens(KernelOp kernel, const TilePlan &tile);

/// Clocks for computing `sum` at these sizes, or for so many queries, by the tiled and by the split plan.
double tiledClocks(WeightedSumOp sum, const TilePlan &tile, const Machine &machine, const SizeValues &sizes,
                   std::optional<int64_t> queries = std::nullopt);
double splitClocks(WeightedSumOp sum, const SplitPlan &split, unsigned lanes, const Machine &machine,
                   const SizeValues &sizes, std::optional<int64_t> queries = std::nullopt);

/// The clocks for a tensor to be stored and read again.
double storedClocks(TensorOp tensor, const Machine &machine, const SizeValues &sizes);

} // namespace attn

#endif // ATTN_PLAN_PREDICTION_H
