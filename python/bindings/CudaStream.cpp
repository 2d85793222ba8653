//===- CudaStream.cpp - The stream that a thread's calls run on -----------===//

#include "CudaStream.h"

#include "attn/Runtime/Runtime.h"

namespace attn::python {

static thread_local CudaStream current = 0;

CudaStream cudaStream() { return current; }

void setCudaStream(CudaStream stream) {
  current = stream;
  attn_set_cuda_stream(reinterpret_cast<void *>(stream));
}

} // namespace attn::python
