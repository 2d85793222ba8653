//===- OpenMp.h - The threads that PyTorch has already ----------*- C++ -*-===//
//
// A second pool of threads beside PyTorch's would have no processor to run on: PyTorch's threads wait for its next
// operation with their eyes open, for milliseconds.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_PYTHON_BINDINGS_OPENMP_H
#define ATTN_PYTHON_BINDINGS_OPENMP_H

namespace attn::python {

/// From now on kernels run on the threads of the OpenMP runtime whose symbols all libraries of this process see, if
/// there is one, as PyTorch's does. Does nothing the second time.
void useOpenMp();

} // namespace attn::python

#endif // ATTN_PYTHON_BINDINGS_OPENMP_H
