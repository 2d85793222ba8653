//===- UnknownRange.h - Numbers whose range is promised ---------*- C++ -*-===//
//
// Halide clamps what one Func reads of another to be a subscript, if it knows a range of its values: in each load, once
// more for each stage in between. Where the range is promised anyway, that costs instructions between loads, and more
// time of the compiler than anything else: each loop that is cut short has all clamps inside of it looked at again.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_UNKNOWNRANGE_H
#define ATTN_LIB_HALIDE_UNKNOWNRANGE_H

#include "Halide.h"

namespace attn::lowering {

/// `value`, whose range Halide does not see. Who reads it promises one.
Halide::Expr ofUnknownRange(Halide::Expr value);

/// Puts the values themselves in their place, once `pipeline` is lowered.
void lowerUnknownRanges(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_UNKNOWNRANGE_H
