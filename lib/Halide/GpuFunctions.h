//===- GpuFunctions.h - What devices and their compilers do otherwise -*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_GPUFUNCTIONS_H
#define ATTN_LIB_HALIDE_GPUFUNCTIONS_H

#include "Halide.h"

namespace attn::lowering {

/// Calls the functions of C's library by the names that the device's library has for them, reads tensors inside kernels
/// alone, keeps NaN where Halide's compiler for CUDA would drop them, and keeps f64 constants exact in OpenCL C.
void lowerDeviceFunctions(Halide::Pipeline &pipeline, const Halide::Target &target);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_GPUFUNCTIONS_H
