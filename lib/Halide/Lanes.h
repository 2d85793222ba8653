//===- Lanes.h - Sums over lanes of vectors, and some lanes alone -*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_LANES_H
#define ATTN_LIB_HALIDE_LANES_H

#include "Halide.h"

namespace attn::lowering {

/// values[0] + values[1] + …, added pairwise: floats, as many as a vector has lanes, that lie one after the other in
/// memory. Where several such sums are computed in a vector, all their values are loaded as they lie and added across
/// lanes.
Halide::Expr sumOfLanes(const std::vector<Halide::Expr> &values);

/// `value`, a number of a tensor, where `condition` holds. In lanes where it does not nothing is read, and they are 0.
Halide::Expr readWhere(Halide::Expr condition, Halide::Expr value);
/// The call of condition and value that `value` is, if it was made so.
const Halide::Internal::Call *asReadWhere(const Halide::Expr &value);

/// What those become, once Halide has vectorised `pipeline`.
void lowerLanes(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_LANES_H
