/* A driver that finds no device, or one that has no other function: a libcuda.so.1 for tests. */

#ifndef RESULT
#define RESULT 100 /* CUDA_ERROR_NO_DEVICE */
#endif

int cuInit(unsigned flags) {
  (void)flags;
  return RESULT;
}
