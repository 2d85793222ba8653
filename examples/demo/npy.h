/*===- npy.h - Reads and writes NumPy's .npy files --------------*- C -*-===*
 *
 * Row-major arrays of float32 and int32, little-endian: what the demo needs.
 *
 *===----------------------------------------------------------------------===*/

#ifndef DEMO_NPY_H
#define DEMO_NPY_H

#include <stdint.h>

enum { NPY_MAX_RANK = 8 };

typedef struct {
  char kind; /* 'f' for float32, 'i' for int32 */
  int rank;
  int64_t shape[NPY_MAX_RANK];
  void *data; /* to be freed by the caller */
} npy_array;

/* Returns 0, or prints what is wrong with the file to stderr and returns 1. */
int npy_read(const char *path, npy_array *array);
int npy_write(const char *path, const npy_array *array);
int64_t npy_count(const npy_array *array);

#endif /* DEMO_NPY_H */
