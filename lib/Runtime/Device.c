/*===- Device.c - Where the tensors of a call are -------------------------===*
 *
 * A kernel may have programs for the CPU and for GPUs; a call takes one that runs where its tensors are. Numbers
 * (inputs of rank 0) are always in the CPU's memory.
 *
 *===----------------------------------------------------------------------===*/

#include "Internal.h"

/* Where tensors must be for a program. */
static int type_of(const attn_program *program) { return program->device ? (int)program->device->type : kDLCPU; }

int attn_suits(const attn_program *program, const attn_place *place) {
  if (type_of(program) != (place->device ? (int)place->device->type : kDLCPU))
    return 0;
  return !attn_copies(place) || program->copies;
}

attn_place attn_place_of(const attn_signature *signature, const DLTensor *const *tensors, int64_t count) {
  attn_place place = {kDLCPU, 0, 0};
  for (int64_t i = 0; i < count; ++i)
    if (tensors[i] && (i >= signature->input_count || signature->tensors[i].rank > 0)) {
      place.type = (int)tensors[i]->device.device_type;
      place.index = place.type == kDLCPU ? 0 : (int)tensors[i]->device.device_id;
      break;
    }
  const attn_program *end = signature->programs + signature->program_count;
  for (const attn_program *program = signature->programs; program != end; ++program)
    if (type_of(program) == place.type) {
      place.device = program->device;
      return place;
    }
  for (const attn_program *program = signature->programs; program != end; ++program)
    if (program->copies && place.type == kDLCPU) {
      place.device = program->device;
      return place;
    }
  place.type = signature->program_count ? type_of(signature->programs) : kDLCPU;
  place.device = signature->program_count ? signature->programs->device : 0;
  return place;
}

void *attn_load_once(const char *path, void **library) {
  void *loaded = __atomic_load_n(library, __ATOMIC_ACQUIRE);
  if (!loaded) {
    enum { LAZY = 1 };
    loaded = dlopen(path, LAZY);
    __atomic_store_n(library, loaded, __ATOMIC_RELEASE);
  }
  return loaded;
}

/* In Cuda.c. */
extern __thread int attn_cuda_device;
/* In OpenCl.c. */
extern __thread void *attn_opencl_queue;

int attn_open_device(const attn_signature *signature, const attn_place *place) {
  const attn_device *device = place->device;
  if (!device->symbol(0, device->probe))
    return attn_fail(ATTN_ERROR_NO_DEVICE, "%s: cannot load %s, which kernels for %s need: is the driver installed?",
                     signature->name, device->library, device->name);
  if (place->type == kDLOpenCL && !attn_opencl_queue)
    return attn_fail(ATTN_ERROR_NO_DEVICE,
                     "%s: the tensors are in OpenCL's memory, but there is no queue of their context to run in: call "
                     "attn_set_opencl_queue",
                     signature->name);
  attn_cuda_device = place->index;
  attn_clear_error();
  int major = 0, minor = 0;
  if (device->capability(0, &major, &minor)) {
    char reason[512];
    snprintf(reason, sizeof reason, "%s", attn_last_error());
    return attn_fail(ATTN_ERROR_NO_DEVICE, "%s: %s device %d cannot be used: %s", signature->name, device->name,
                     place->index, reason);
  }
  return 0;
}

int attn_device_error(const attn_signature *signature, const attn_device *device, int otherwise) {
  char reason[512];
  snprintf(reason, sizeof reason, "%s", attn_last_error());
  int is_memory =
      strstr(reason, "OUT_OF_MEMORY") || strstr(reason, "OUT_OF_HOST_MEMORY") || strstr(reason, "ALLOCATION_FAILURE");
  return attn_fail(is_memory ? ATTN_ERROR_MEMORY : otherwise, "%s: %s%s%s", signature->name, device->name,
                   *reason ? ": " : " reported no reason", reason);
}
