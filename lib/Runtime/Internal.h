/*===- Internal.h - What the runtime's files share --------------*- C -*-===*
 *
 * Compiled for any 64-bit Linux target without its C library's headers: only headers that belong to the compiler are
 * included, and the few functions of libc that are needed are declared here.
 *
 *===----------------------------------------------------------------------===*/

#ifndef ATTN_LIB_RUNTIME_INTERNAL_H
#define ATTN_LIB_RUNTIME_INTERNAL_H

#include "attn/Runtime/Runtime.h"
#include "attn/Runtime/Signature.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void free(void *pointer);
int madvise(void *memory, size_t size, int advice);
void *memset(void *destination, int byte, size_t size);
void *memcpy(void *destination, const void *source, size_t size);
char *strstr(const char *text, const char *part);
void *dlopen(const char *path, int flags);
void *dlsym(void *library, const char *name);
int snprintf(char *buffer, size_t size, const char *format, ...);
int vsnprintf(char *buffer, size_t size, const char *format, va_list arguments);

/* Records a message for attn_last_error and returns `code`. */
int attn_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Forgets the message, so that one that Halide records can be told from an older one. */
void attn_clear_error(void);

/* `sizes` holds the values of signature->sizes that are known so far. Returns 0, or 1 where the value overflows. */
int attn_evaluate(const attn_expression *expression, const int64_t *sizes, int64_t dimension, int64_t *value);
/* Finds all sizes from the inputs' shapes. */
int attn_solve_sizes(const attn_signature *signature, const DLTensor *const *tensors, int64_t *sizes);
/* Compares tensor `index` with its shape in the signature. */
int attn_check_shape(const attn_signature *signature, int64_t index, const DLTensor *const *tensors,
                     const int64_t *sizes);

/* Compares what the signature's checks compare. */
int attn_check_sizes(const attn_signature *signature, const int64_t *sizes);

/* Where a call's tensors are and what runs it. */
typedef struct {
  int type;                  /* DLDeviceType of the tensors */
  int index;                 /* which of these devices */
  const attn_device *device; /* what runs the kernel; NULL: the CPU */
} attn_place;

/* Where the first `count` tensors are, if a program of the signature runs on tensors there; else where they should be.
 */
attn_place attn_place_of(const attn_signature *signature, const DLTensor *const *tensors, int64_t count);
/* Whether tensors must be copied to where the kernel runs. */
static inline int attn_copies(const attn_place *place) { return place->device && place->type == kDLCPU; }
/* Whether the program runs calls at this place. */
int attn_suits(const attn_program *program, const attn_place *place);
/* The shared library of this name, which `library` remembers; NULL where there is none. */
void *attn_load_once(const char *path, void **library);
/* Loads the device's driver and finds the device. */
int attn_open_device(const attn_signature *signature, const attn_place *place);
/* The code of an error that Halide's runtime reported for a step, or of `otherwise`. */
int attn_device_error(const attn_signature *signature, const attn_device *device, int otherwise);

/* Runs the first of the programs that the processor can run at this place. `arguments` are inputs, sizes and outputs;
 * `sizes` are in the signature's order. */
int attn_run(const attn_signature *signature, const attn_program *programs, int64_t program_count,
             const attn_place *place, void *const *arguments, int64_t argument_count, const int64_t *sizes);
/* Runs the checking kernel. `inputs` are the kernel's arguments up to its sizes, `sizes` in the signature's order. */
int attn_check_bounds(const attn_signature *signature, const attn_bounds *bounds, const attn_place *place,
                      void *const *inputs, const int64_t *sizes);

/* Memory that is used again: see Workspace.c. */
void *halide_malloc(void *context, size_t size);
void halide_free(void *context, void *block);

/* Checks one tensor by itself: null, rank, device, dtype, extents, data, alignment. */
int attn_check_tensor(const attn_tensor *expected, const DLTensor *tensor, const attn_place *place); /* NULL: the CPU */
/* Checks that outputs share no memory with another tensor or with themselves. */
int attn_check_overlap(const attn_signature *signature, const DLTensor *const *tensors);

int64_t attn_element_bytes(const attn_tensor *tensor);
/* The stride of a dimension in elements, also where `strides` is NULL. */
int64_t attn_stride(const DLTensor *tensor, int64_t dimension);
int attn_is_empty(const DLTensor *tensor);
static inline char *attn_data(const DLTensor *tensor) { return (char *)tensor->data + tensor->byte_offset; }

/* Copies between the tensor, of any strides, and a row-major copy of it. */
void attn_pack(const DLTensor *tensor, int64_t element_bytes, char *packed);
void attn_unpack(const char *packed, int64_t element_bytes, const DLTensor *tensor);

#endif /* ATTN_LIB_RUNTIME_INTERNAL_H */
