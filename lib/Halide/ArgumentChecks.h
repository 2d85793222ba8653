//===- ArgumentChecks.h - What the runtime has checked ----------*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_ARGUMENTCHECKS_H
#define ATTN_LIB_HALIDE_ARGUMENTCHECKS_H

#include "Halide.h"

namespace attn::lowering {

/// Removes from a lowered pipeline the checks of its buffers' types, ranks, pointers, minima, strides and sizes: two
/// fifths of its code, for what our runtime makes so (lib/Runtime/Arguments.c, Program.c). Those stay that say whether
/// what is read lies in the buffers.
void dropArgumentChecks(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_ARGUMENTCHECKS_H
