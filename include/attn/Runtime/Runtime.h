/*===- Runtime.h - What every generated kernel's caller can use -*- C -*-===*
 *
 * The C interface that all kernels of a program share. A kernel is a function
 *
 *     int NAME(const DLTensor *input, ..., DLTensor *output, ...);
 *
 * that returns 0, or one of the codes below; then it has written nothing, except after ATTN_ERROR_KERNEL and
 * ATTN_ERROR_MEMORY, which may arise after a part of the outputs was written. Nothing aborts, throws or prints. All
 * functions are thread-safe.
 *
 *===----------------------------------------------------------------------===*/

#ifndef ATTN_RUNTIME_RUNTIME_H
#define ATTN_RUNTIME_RUNTIME_H

#ifdef __cplusplus
extern "C" {
#endif

enum attn_error {
  ATTN_OK = 0,
  ATTN_ERROR_NULL_TENSOR = 1, /* a tensor (or its shape) is NULL and has no default */
  ATTN_ERROR_NULL_DATA = 2,   /* the data of a tensor that has elements is NULL */
  ATTN_ERROR_DEVICE = 3,      /* a tensor is not where the kernel runs */
  ATTN_ERROR_DTYPE = 4,       /* a tensor has another dtype, or more than one lane */
  ATTN_ERROR_RANK = 5,        /* a tensor has another number of dimensions */
  ATTN_ERROR_SIZE = 6,        /* a size is negative, or too large to be computed with */
  ATTN_ERROR_SHAPE = 7,       /* the sizes of two tensors disagree */
  ATTN_ERROR_ALIGNMENT = 8,   /* data is not aligned to its elements */
  ATTN_ERROR_OVERLAP = 9,     /* an output shares memory with another tensor or with itself */
  ATTN_ERROR_MEMORY = 10,     /* out of memory */
  ATTN_ERROR_KERNEL = 11,     /* the kernel itself failed */
  ATTN_ERROR_COUNT = 12,      /* the wrong number of tensors (only from C++ and Python) */
  ATTN_ERROR_BOUNDS = 13,     /* a subscript that depends on data is outside its tensor (only with --check-bounds) */
  ATTN_ERROR_NO_DEVICE = 14   /* the GPU that the kernel was compiled for, or its driver, is not there */
};

/* What went wrong in this thread's last failed call: which tensor, what was expected and what was found. Empty
 * before the first failure. Valid until the thread's next failure. */
const char *attn_last_error(void);

/* At most how many threads work on a call of a kernel, the one that calls among them; 0 means one for each core. Calls
 * from several threads at once share the others. Not to be called while a kernel runs. */
void attn_set_num_threads(int threads);

/* Threads of the program's own. Calls task(closure, i) once for each i from 0 to count - 1, on any threads and in any
 * order, and returns when all of them have returned. */
typedef void (*attn_parallel_for)(void *pool, void (*task)(void *closure, int i), void *closure, int count);

/* From now on kernels run their tasks through `parallel_for`, which is given `pool`, and start no threads themselves;
 * with NULL they use their own threads again. Not to be called while a kernel runs. */
void attn_set_thread_pool(attn_parallel_for parallel_for, void *pool);

/* For kernels compiled for CUDA, which objects without such kernels lack: from now on this thread's calls run on
 * `stream` (a CUstream or cudaStream_t; NULL is the default one), of the thread's current context or else the primary
 * context of the tensors' device. A call returns when its work is in the stream, and does not wait for it, except that
 * outputs which were copied (--copy) are there when it returns. */
void attn_set_cuda_stream(void *stream);

/* For kernels compiled for OpenCL, which objects without such kernels lack: from now on this thread's calls run in
 * `queue` (a cl_command_queue, in order), and in its context. Tensors in OpenCL's memory (kDLOpenCL; `data` is a cl_mem
 * of that context) need one; a call returns when its work is in the queue, and does not wait for it. With NULL, calls
 * have a context and a queue of their own, as tensors that are copied (--copy) may. */
void attn_set_opencl_queue(void *queue);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_RUNTIME_RUNTIME_H */
