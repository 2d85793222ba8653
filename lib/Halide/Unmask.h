//===- Unmask.h - Accumulators of which some lanes are used ----*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_UNMASK_H
#define ATTN_LIB_HALIDE_UNMASK_H

#include "Halide.h"

#include <set>

namespace attn::lowering {

/// Loads and stores of some lanes of a vector, where the vector is all of a Func of `pipeline` that has one of these
/// names, become those of all lanes; what is stored keeps the other lanes as they are. LLVM then keeps the vector in a
/// register: what is stored under a mask, and loaded in the next step, would wait until it has reached the cache.
void unmask(Halide::Pipeline &pipeline, std::set<std::string> names);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_UNMASK_H
