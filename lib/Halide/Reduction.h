//===- Reduction.h - What the plans share of reductions ---------*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_REDUCTION_H
#define ATTN_LIB_HALIDE_REDUCTION_H

#include "Region.h"

namespace attn::lowering {

/// Where a term belongs along `index`, an index of the statement: `value` says so (PlacedSum::places).
Halide::Expr placeOf(mlir::Value value, mlir::BlockArgument index, StepLowering &kernel, Environment &environment);

/// How a reduction of this kind combines two values, and what it starts from.
Halide::Expr combine(ReduceKind kind, Halide::Expr a, Halide::Expr b);
Halide::Expr identity(ReduceKind kind, Halide::Type type);
/// combine of values[0], …, pairwise, so that the sum's depth is logarithmic. Their number is a power of two.
Halide::Expr combineTree(ReduceKind kind, std::vector<Halide::Expr> values);

/// `value`, if it is read from a bf16 tensor.
ReadOp bf16Read(mlir::Value value);

/// The two factors of `op`, if it is an unconditional sum of products of two numbers that are read from bf16 tensors.
std::optional<std::pair<mlir::Value, mlir::Value>> bf16Factors(ReduceOp op);

/// Whether the products of weights and values may be of pairs of bf16 numbers, where the result is bf16 too. Only
/// weights of a softmax: others may cancel, and their roundings then do not.
bool canPairWeights(StepLowering &kernel, WeightedSumOp op);

/// Whether the condition of `op` is one for all of its elements, so that it decides if loops run at all.
bool hasFlag(ReduceOp op);

/// The sizes of the indices of `op`, the last one first: as loops over them are nested.
llvm::SmallVector<Halide::Expr> reversedSizes(StepLowering &kernel, ReduceOp op);

/// A loop over indices of these sizes.
Halide::RDom loopOver(llvm::ArrayRef<Halide::Expr> sizes);

/// The indices of a reduction over the first `count` variables of `domain`; its last one runs fastest.
llvm::SmallVector<IndexBinding> loopBindings(const Halide::RDom &domain, unsigned count);

/// Binds the indices of `op`, in the body and in the condition.
void bindReduction(ReduceOp op, Environment &environment, llvm::ArrayRef<IndexBinding> at);

/// The value that `op` combines at the indices that `lowering` was given; the identity where its condition is false.
/// Integers are 64 bits wide. Its condition may be left to whoever calls it.
Halide::Expr reductionTerm(ReduceOp op, RegionLowering &lowering, bool withCondition = true);

/// Lets the loops of `domain` run only where the flag of `op` is set, if it has one.
void runWhereFlagged(ReduceOp op, StepLowering &kernel, Halide::RDom &domain);

/// The same for stages that are computed in `loop`, one of those of `domain`, which has `steps` at most.
void runWhereFlagged(ReduceOp op, StepLowering &kernel, Halide::RDom &domain, const Halide::RVar &loop, int steps);

/// The `result` of `op`, whose loops run only where its flag is set, if it has one: elsewhere nobody wrote it.
Halide::Expr whereFlagged(ReduceOp op, StepLowering &kernel, Halide::Expr result);

/// `term`, at every step of `loop`. Halide runs an update in those loops alone that stand in it: Σ_d 1 would be 1.
Halide::Expr atEachStep(ReduceKind kind, Halide::Expr term, const Halide::RVar &loop);

/// What terms of a reduction read, as a stage of its own: a formula of variables in place of the reduction's indices,
/// the last index first, and where a term finds its own.
struct PackedFormula {
  Halide::Expr value;
  std::vector<Halide::Var> variables;
  std::vector<Halide::Expr> at;
};

/// `value` at the indices that `environment` has for it, with `rows` of what is not stored.
PackedFormula packedFormula(StepLowering &kernel, mlir::Value value, const Environment &environment,
                            const RowsMade &rows);

/// Pairs of `value` (Pairs.h), along the last index of `op`, at those of `domain`.
PackedFormula packedPairs(StepLowering &kernel, mlir::Value value, ReduceOp op, const Halide::RDom &domain,
                          const Environment &environment, const RowsMade &rows);

/// `sum` + `weight` · `value`, for the keys of `op`. The condition of a sum has made weights 0, but the values that it
/// leaves out may be NaN: a weight of 0 adds nothing there.
Halide::Expr plusWeighted(WeightedSumOp op, Halide::Expr sum, Halide::Expr weight, Halide::Expr value);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_REDUCTION_H
