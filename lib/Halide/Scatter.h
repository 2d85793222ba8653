//===- Scatter.h - Sums whose terms each have one place ---------*- C++ -*-===//
//
//   y[j, d] = sum[i](term[i, d] where clamp(g(i)) == j)
//
//   for d, in parallel
//     total[j] = 0                         f64
//     for i:  total[clamp(g(i))] += term[i, d]
//     for j:  y[j, d] = the formula around the sum
//
// and likewise for the largest term. Lanes are elements along d. Where there is no such index, a few rows of another
// one take turns: each sum waits for the one before it, if both have the same place. The terms of a block are shared out over a fixed number of totals
// then, so that several threads can add, and results do not depend on how many; unless rows of the block have totals of
// their own.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_SCATTER_H
#define ATTN_LIB_HALIDE_SCATTER_H

#include "StepLowering.h"
#include "attn/Analysis/PlacedSum.h"

namespace attn::lowering {

class Scatter {
public:
  /// Of `op`, which has such a sum.
  Scatter(StepLowering &kernel, DefinitionOpInterface op);
  void define();
  void schedule();

  Halide::Func func; ///< The tensor.

private:
  /// Totals of which each has its share of the terms: of one of their indices, equal parts.
  static constexpr int shareCount = 8;
  /// Rows that take turns.
  static constexpr int rowsAtOnce = 4;

  Halide::Expr addTotals();

  StepLowering &kernel;
  DefinitionOpInterface op;
  PlacedSum placed;
  std::vector<Halide::Var> vars;         ///< Of `func`: the last index first.
  std::vector<Halide::Var> along, other; ///< Those of places, and the others.
  bool hasLanes;                         ///< They run along the last index, which is no place.
  bool isShared;                         ///< There are several totals, a share of the terms each.
  Halide::Var share;
  Halide::Func totals; ///< (lanes, along…, other…, share)
  Halide::RDom terms;
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_SCATTER_H
