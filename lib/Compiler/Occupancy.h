//===- Occupancy.h - What kernels take of a GPU ----------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_OCCUPANCY_H
#define ATTN_LIB_COMPILER_OCCUPANCY_H

#include "attn/Halide/Lowering.h"

namespace attn {

/// Prints a line for each kernel of the PTX of `function`: threads and shared memory of a block, a thread's registers
/// as `ptxas` reports them where the program is installed, and how many blocks a multiprocessor holds at once.
void printOccupancy(llvm::raw_ostream &os, llvm::StringRef step, llvm::StringRef ptx, llvm::StringRef target);

} // namespace attn

#endif // ATTN_LIB_COMPILER_OCCUPANCY_H
