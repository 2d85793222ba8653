//===- KeyBounds.h - Bounds on keys as expressions --------------*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_KEYBOUNDS_H
#define ATTN_LIB_HALIDE_KEYBOUNDS_H

#include "Region.h"
#include "attn/Analysis/KeyRange.h"

namespace attn::lowering {

/// `bound` as a number of keys between 0 and `count`, Int(32).
Halide::Expr boundOfKeys(const KeyBound &bound, RegionLowering &lowering, Halide::Expr count);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_KEYBOUNDS_H
