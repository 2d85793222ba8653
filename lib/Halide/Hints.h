//===- Hints.h - What Halide is told of a value, and not told ---*- C++ -*-===//
//
// Calls around values that say something to Halide's lowering and do nothing.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_HINTS_H
#define ATTN_LIB_HALIDE_HINTS_H

#include "Halide.h"

namespace attn::lowering {

/// `value`, whose range Halide does not see. Who reads it promises one.
///
/// Halide clamps what one Func reads of another to be a subscript, if it knows a range of its values: in each load,
/// once more for each stage in between. Where the range is promised anyway, that costs instructions between loads, and
/// more time of the compiler than anything else: each loop that is cut short has all clamps inside of it looked at
/// again.
Halide::Expr ofUnknownRange(Halide::Expr value);

/// `value`, for which the elements of Funcs that are `reads` are computed and kept, whether it reads them or not.
Halide::Expr withReads(Halide::Expr value, std::vector<Halide::Expr> reads);

/// `value`, for which every Func that it reads is computed, whatever its conditions are.
///
/// Halide looks for conditions under which what a stage computes is not read, and skips it then. It takes a condition
/// that has an index whose range is promised (unsafe_promise_clamped), or that compares floats, to be unknown, and
/// fails where that is a part of other conditions: where they share it, and it has a name. Without such, `value` is as
/// it was.
Halide::Expr unconditional(Halide::Expr value);

/// Puts the values themselves in their place, once `pipeline` is lowered.
void lowerHints(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_HINTS_H
