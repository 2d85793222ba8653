//===- ScanLoop.h - Running totals ------------------------------*- C++ -*-===//
//
//   y[m, n] = sum[j](term[m, j] where j <= n)
//
//   for rows m, 8 at a time, in parallel
//     total[m, j] = term[m, j]               f64, vectors along j
//     for j, for the rows:  total[m, j] += total[m, j - 1]
//     for n:  y[m, n] = total[m, n]          vectors along n
//
// An element waits for the one before; the rows do not wait for each other. Where the last index is another than the
// one that totals run along, lanes are elements along it, and there is a vector in the place of the rows. Sums of f32
// run in f64, so that their error does not grow with their length.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_SCANLOOP_H
#define ATTN_LIB_HALIDE_SCANLOOP_H

#include "StepLowering.h"
#include "attn/Analysis/Scan.h"

namespace attn::lowering {

class ScanLoop {
public:
  /// Of `op`, which is a scan.
  ScanLoop(StepLowering &kernel, DefinitionOpInterface op);
  void define();
  void schedule();

  Halide::Func func; ///< The tensor.

private:
  static constexpr int rowsAtOnce = 8;

  Halide::Expr term();
  void scheduleRows();
  void scheduleLanes();

  StepLowering &kernel;
  DefinitionOpInterface op;
  Scan scan;
  std::vector<Halide::Var> vars; ///< Of `func` and `totals`: the last index first.
  Halide::Var end;               ///< The one that totals run along.
  Halide::Func totals;           ///< Of the terms up to each, and that one.
  Halide::RDom steps;
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_SCANLOOP_H
