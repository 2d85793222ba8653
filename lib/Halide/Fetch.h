//===- Fetch.h - Fetching memory before it is needed ------------*- C++ -*-===//
//
// A processor foresees loads that follow one another, but not those of a few numbers each that lie far apart, as the
// rows of a tile in a large matrix do.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_FETCH_H
#define ATTN_LIB_HALIDE_FETCH_H

#include "Halide.h"

namespace attn::lowering {

/// `value`. What `later`, the same formula some steps on, would load is fetched into the second cache where the value
/// is computed; loads of what `later` computes addresses from are made.
Halide::Expr fetchingAhead(Halide::Expr value, Halide::Expr later);

/// The call that fetches the line of memory with this element of `buffer` into the second cache.
Halide::Expr lineAt(const std::string &buffer, const Halide::Expr &index, Halide::Type type);

/// Makes instructions of fetchingAhead, once `pipeline` is vectorised.
void lowerFetches(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_FETCH_H
