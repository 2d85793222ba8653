/*===- Threads.c - How many threads kernels use ---------------------------===*/

#include "attn/Runtime/Runtime.h"

int halide_set_num_threads(int count);

void attn_set_num_threads(int threads) { halide_set_num_threads(threads < 0 ? 0 : threads); }
