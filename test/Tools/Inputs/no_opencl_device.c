/* A driver that finds no platform of OpenCL, or with -DPLATFORM one that has no device: a libOpenCL.so.1 for tests. */

int clGetPlatformIDs(unsigned most, void **platforms, unsigned *count) {
  (void)most;
  *platforms = 0;
#ifdef PLATFORM
  *count = 1;
  return 0;
#else
  *count = 0;
  return -1001; /* CL_PLATFORM_NOT_FOUND_KHR */
#endif
}

/* clang-format off */
/* Halide's runtime looks for all of these before it calls any. */
#define X(name) int name(void) { return -1; } /* CL_DEVICE_NOT_FOUND */
X(clBuildProgram) X(clCreateBuffer) X(clCreateCommandQueue) X(clCreateContext) X(clCreateContextFromType)
X(clCreateImage) X(clCreateKernel) X(clCreateProgramWithSource) X(clCreateSubBuffer) X(clCreateSubDevices)
X(clEnqueueCopyBuffer) X(clEnqueueMapBuffer) X(clEnqueueMapImage) X(clEnqueueNDRangeKernel) X(clEnqueueReadBuffer)
X(clEnqueueReadBufferRect) X(clEnqueueReadImage) X(clEnqueueUnmapMemObject) X(clEnqueueWriteBuffer)
X(clEnqueueWriteBufferRect) X(clEnqueueWriteImage) X(clFinish) X(clFlush) X(clGetCommandQueueInfo)
X(clGetContextInfo) X(clGetDeviceIDs) X(clGetDeviceInfo) X(clGetImageInfo) X(clGetMemObjectInfo)
X(clGetPlatformInfo) X(clGetProgramBuildInfo) X(clGetSupportedImageFormats) X(clReleaseCommandQueue)
X(clReleaseContext) X(clReleaseDevice) X(clReleaseKernel) X(clReleaseMemObject) X(clReleaseProgram)
X(clRetainCommandQueue) X(clRetainContext) X(clRetainDevice) X(clRetainKernel) X(clRetainMemObject)
X(clRetainProgram) X(clSetKernelArg) X(clSetMemObjectDestructorCallback)
