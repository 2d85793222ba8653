//===- GpuMemory.h - How elements lie in a device's memory ------*- C++ -*-===//
//
// Devices need neither 16-bit arithmetic nor a type of one byte that is a bool: 16-bit floats are read as the integers
// that they are made of and widened to f32 by shifts, f32 is rounded to them in the same way, and a bool is a byte.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_GPUMEMORY_H
#define ATTN_LIB_HALIDE_GPUMEMORY_H

#include "Halide.h"

namespace attn::lowering {

/// The type as which elements of `type` lie in a device's memory.
Halide::Type typeOnDevice(Halide::Type type);
/// An element of `type` that was loaded as typeOnDevice(type): f32 where it is a 16-bit float.
Halide::Expr fromDeviceMemory(Halide::Expr loaded, Halide::Type type);
/// `value` as an element of `type`, rounded to nearest, ties to even: of typeOnDevice(type).
Halide::Expr toDeviceMemory(Halide::Expr value, Halide::Type type);

/// `count`, or 1: no grid and no tensor in a device's memory may be empty. What is computed at an index that has no
/// values is written to the row that an empty tensor looks as if it had (lib/Runtime/Arguments.c).
Halide::Expr atLeastOne(Halide::Expr count);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_GPUMEMORY_H
