/*===- Call.h - What a call has while it runs -------------------*- C -*-===*/

#ifndef ATTN_LIB_RUNTIME_CALL_H
#define ATTN_LIB_RUNTIME_CALL_H

#include "HalideBuffer.h"
#include "Internal.h"

/* The arrays of a call, and where it runs. */
typedef struct {
  attn_place place;
  void **arguments;                  /* inputs, sizes, outputs */
  attn_halide_buffer *buffers;       /* one a tensor */
  attn_halide_dimension *dimensions; /* of all buffers */
  char **temporaries;                /* one a tensor, mostly NULL */
  int64_t *sizes;                    /* in the signature's order */
  int32_t *size_arguments;           /* in the kernel's order */
} attn_call;

/* The tensors of a call: inputs, then outputs. */
static inline int64_t attn_tensor_count(const attn_signature *signature) {
  return signature->input_count + signature->output_count;
}

/* Fills the arguments in, given the place and the sizes; temporaries are NULL before, and so are buffers' devices where
 * the kernel runs on one. Inputs are copied where they have to be. */
int attn_make_arguments(const attn_signature *signature, const DLTensor *const *tensors, attn_call *call);

/* After attn_make_arguments and a run, which had this error or 0: copies outputs to where they belong, frees the copies
 * and returns the error, or that of a copy. */
int attn_finish_arguments(const attn_signature *signature, const DLTensor *const *tensors, attn_call *call, int error);

#endif /* ATTN_LIB_RUNTIME_CALL_H */
