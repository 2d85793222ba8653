//===- Unconditional.h - Stages that no condition skips ---------*- C++ -*-===//
//
// Halide looks for conditions under which what a stage computes is not read, and skips it then. It takes a condition
// that has an index whose range is promised (unsafe_promise_clamped) to be unknown, and fails where that is a part of
// other conditions: where they share it, and it has a name.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_UNCONDITIONAL_H
#define ATTN_LIB_HALIDE_UNCONDITIONAL_H

#include "Halide.h"

namespace attn::lowering {

/// `value`, for which every Func that it reads is computed, whatever its conditions are.
Halide::Expr unconditional(Halide::Expr value);

/// Puts the values themselves in their place, once `pipeline` is lowered.
void lowerUnconditional(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_UNCONDITIONAL_H
