/* A driver that finds no device: a libcuda.so.1 for tests. */

int cuInit(unsigned flags) {
  (void)flags;
  return 100; /* CUDA_ERROR_NO_DEVICE */
}
