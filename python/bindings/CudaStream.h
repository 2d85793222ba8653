//===- CudaStream.h - The stream that a thread's calls run on ---*- C++ -*-===//

#ifndef ATTN_PYTHON_BINDINGS_CUDASTREAM_H
#define ATTN_PYTHON_BINDINGS_CUDASTREAM_H

#include <cstdint>
#include <optional>

namespace attn::python {

/// A stream as Python has it: the address of CUDA's object, or 0 for the default stream.
using CudaStream = uintptr_t;

/// The one that this thread's calls run on.
CudaStream cudaStream();
void setCudaStream(CudaStream stream);

/// This thread's calls run on another stream while it lives, if there is one.
class CudaStreamScope {
public:
  explicit CudaStreamScope(std::optional<CudaStream> stream) : previous(cudaStream()) {
    if (stream)
      setCudaStream(*stream);
  }
  ~CudaStreamScope() { setCudaStream(previous); }
  CudaStreamScope(const CudaStreamScope &) = delete;
  CudaStreamScope &operator=(const CudaStreamScope &) = delete;

private:
  CudaStream previous;
};

} // namespace attn::python

#endif // ATTN_PYTHON_BINDINGS_CUDASTREAM_H
