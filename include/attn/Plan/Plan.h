//===- Plan.h - How a kernel is to be computed ------------------*- C++ -*-===//
//
// Plain, printable data: chosen from the kernel and the machine, read by lib/Halide.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_PLAN_PLAN_H
#define ATTN_PLAN_PLAN_H

#include "attn/IR/Attn.h"

#include <string>

namespace attn {

/// What a plan needs to know of the processor.
struct Machine {
  std::string target;         ///< As Halide names it: x86-64-linux-avx2-fma-…
  unsigned vectorBytes = 16;  ///< Width of a vector register.
  unsigned vectorRegisters = 16;

  /// The machine a target string names; "host" is the one this runs on. Nothing if the string is not a target.
  static std::optional<Machine> forTarget(llvm::StringRef target);
  unsigned lanes(unsigned elementBytes) const { return vectorBytes / elementBytes; }
};

/// Sizes of the tiled plan: see docs/plans.md for its loop nest.
struct TilePlan {
  unsigned queries = 64;      ///< Queries in a tile; they lie in vector lanes.
  unsigned chunk = 256;       ///< Keys in a chunk, between two rescalings.
  unsigned keyUnroll = 6;     ///< Keys of a register tile of the score product.
  unsigned valueUnroll = 4;   ///< Value columns of a register tile of the weighted sum.
  unsigned lanes = 16;        ///< Lanes of a vector of scores.
};

struct Plan {
  TilePlan tile;

  static Plan choose(KernelOp kernel, const Machine &machine);
  void print(llvm::raw_ostream &os) const;
};

} // namespace attn

#endif // ATTN_PLAN_PLAN_H
