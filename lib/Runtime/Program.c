/*===- Program.c - Running a kernel step by step --------------------------===*
 *
 * Each step is one Halide function. What is left to do between them is to make room for the tensors that one step
 * writes and later ones read, to choose among the variants of a step, and to run steps for one block after the other.
 * On tensor cores, one launch may take the place of some steps (Launch.c).
 *
 *===----------------------------------------------------------------------===*/

#include "Program.h"
#include "attn/Runtime/ThreadPool.h"

/* The shape of an intermediate, without memory. Where it is empty it looks as arguments do: each empty dimension as if
 * it had one element, and all rows in the same place. */
static int describe(const attn_signature *signature, const attn_intermediate *intermediate, const int64_t *sizes,
                    attn_halide_dimension *dimensions) {
  const attn_tensor *tensor = &intermediate->tensor;
  int64_t elements = 1;
  int empty = 0;
  for (int64_t i = tensor->rank - 1; i >= 0; --i) {
    int64_t extent = 0;
    if (attn_evaluate(&tensor->shape[i], sizes, 0, &extent) || extent < 0 || extent > ATTN_MAX_EXTENT)
      return attn_fail(ATTN_ERROR_SIZE, "%s: dimension %lld (%s) of %s would be negative or too large", signature->name,
                       (long long)i, tensor->shape[i].text, tensor->name);
    dimensions[tensor->rank - 1 - i] = (attn_halide_dimension){0, (int32_t)(extent ? extent : 1), (int32_t)elements, 0};
    empty |= extent == 0;
    elements = elements > INT32_MAX ? elements : elements * extent;
  }
  if (!empty && elements > INT32_MAX && intermediate->written >= 0)
    return attn_fail(ATTN_ERROR_SIZE, "%s: %s would have more than %lld elements", signature->name, tensor->name,
                     (long long)INT32_MAX);
  for (int64_t i = 1; empty && i < tensor->rank; ++i)
    dimensions[i].stride = 0;
  return 0;
}

static int describe_intermediates(const attn_signature *signature, const attn_run_state *call) {
  attn_halide_dimension *dimensions = call->dimensions;
  int error = 0;
  for (int64_t i = 0; !error && i < call->program->intermediate_count; ++i) {
    const attn_tensor *tensor = &call->program->intermediates[i].tensor;
    call->buffers[i] = attn_halide_buffer_of(tensor, 0, dimensions);
    call->arguments[call->argument_count + i] = &call->buffers[i];
    error = describe(signature, &call->program->intermediates[i], call->sizes, dimensions);
    dimensions += tensor->rank;
  }
  return error;
}

/* On a GPU the step that writes a tensor makes room for it. What no step writes in this call has one row in the place
 * of all: a step that is for other calls as well is given its buffer, and may read it before it drops what it has read.
 */
static int allocate(const attn_signature *signature, const attn_run_state *call, const attn_tensor *tensor,
                    int is_written, attn_halide_buffer *buffer) {
  if (call->program->device)
    return 0;
  int64_t last = 0; /* the position of the last element */
  for (int32_t i = 1; !is_written && i < buffer->dimensions; ++i)
    buffer->dimension[i].stride = 0;
  for (int32_t i = 0; i < buffer->dimensions; ++i)
    last += (int64_t)(buffer->dimension[i].extent - 1) * buffer->dimension[i].stride;
  buffer->host = halide_malloc(0, (size_t)((last + 1) * attn_element_bytes(tensor)));
  if (buffer->host)
    return 0;
  return attn_fail(ATTN_ERROR_MEMORY, "%s: no memory for the %lld elements of %s", signature->name, (long long)last + 1,
                   tensor->name);
}

static void release(const attn_run_state *call, attn_halide_buffer *buffer) {
  if (call->program->device) {
    call->program->device->free(0, buffer);
    return;
  }
  halide_free(0, buffer->host);
  buffer->host = 0;
}

int attn_is_within(const attn_limit *limit, const int64_t *sizes) {
  int64_t size = 0;
  return !attn_evaluate(&limit->size, sizes, 0, &size) && size <= limit->at_most;
}

const attn_variant *attn_choose_variant(const attn_step *step, const int64_t *sizes) {
  const attn_variant *variant = step->variants;
  while (variant->limit && !attn_is_within(variant->limit, sizes))
    ++variant;
  return variant;
}

/* `buffer` with the first dimension of `like` before its own, which are in this order, four bits each. */
static attn_halide_buffer repeat(const attn_halide_buffer *buffer, const attn_halide_buffer *like, int64_t order,
                                 attn_halide_dimension *dimensions) {
  attn_halide_buffer repeated = *buffer;
  repeated.dimensions = buffer->dimensions + 1;
  repeated.dimension = dimensions;
  dimensions[0] = like->dimension[0];
  dimensions[0].stride = 0;
  for (int i = 0; i < buffer->dimensions; ++i)
    dimensions[i + 1] = buffer->dimension[order >> 4 * i & 15];
  return repeated;
}

int attn_threads_for_step(const attn_step *step, const int64_t *sizes) {
  int64_t work = 0;
  if (!step->work.length || attn_evaluate(&step->work, sizes, 0, &work) || work / ATTN_THREAD_WORK >= INT32_MAX)
    return 0;
  return 1 + (int)(work / ATTN_THREAD_WORK);
}

int attn_run_step(const attn_signature *signature, const attn_run_state *call, const attn_step *step) {
  const attn_variant *variant = attn_choose_variant(step, call->sizes);
  if (!variant->function)
    return 0;
  attn_halide_buffer repeated;
  attn_halide_dimension dimensions[ATTN_MAX_REPEATED_RANK];
  for (int64_t i = 0; i < variant->argument_count; ++i) {
    int64_t number = variant->arguments[i], isRepeated = number < 0, order = 0;
    if (isRepeated) {
      order = (-1 - number) >> ATTN_REPEATED_BITS;
      number = (-1 - number) & ((1 << ATTN_REPEATED_BITS) - 1);
    }
    call->selected[i] = call->arguments[number];
    if (isRepeated) {
      repeated = repeat(call->selected[i], call->selected[i - 1], order, dimensions);
      call->selected[i] = &repeated;
    }
  }
  attn_clear_error();
  attn_most_threads = call->most_threads ? call->most_threads : attn_threads_for_step(step, call->sizes);
  int error = variant->function(call->selected);
  attn_most_threads = 0;
  if (!error)
    return 0;
  int code = error == ATTN_HALIDE_OUT_OF_MEMORY ? ATTN_ERROR_MEMORY : ATTN_ERROR_KERNEL;
  if (call->program->device)
    return attn_device_error(signature, call->program->device, code);
  if (*attn_last_error())
    return code;
  if (code == ATTN_ERROR_MEMORY)
    return attn_fail(code, "%s: out of memory", signature->name);
  return attn_fail(code, "%s: the kernel failed with Halide's error %d", signature->name, error);
}

/* One of the steps that are not in blocks, or the launch in its place. */
static int run_one(const attn_signature *signature, const attn_run_state *call, const attn_grid *grid, int64_t step) {
  const attn_launch *launch = call->program->launch;
  if (grid->image && launch->step == step)
    return attn_run_launch(signature, call, grid);
  if (grid->image && launch->replaced[step])
    return 0;
  return attn_run_step(signature, call, &call->program->steps[step]);
}

static int run_steps(const attn_signature *signature, const attn_run_state *call) {
  const attn_program *program = call->program;
  attn_grid grid;
  const attn_blocks *blocks = program->blocks, *blocks_end = blocks + program->block_count;
  int error = attn_find_launch(signature, call, &grid);
  if (!error && program->prepare)
    error = program->prepare(program, grid.image ? program->launch->replaced : 0, call->sizes);
  for (int64_t step = 0, next; !error && step < program->step_count; step = next) {
    int in_blocks = blocks != blocks_end && blocks->first == step;
    next = in_blocks ? blocks->end : step + 1;
    for (int64_t i = 0; !error && i < program->intermediate_count; ++i)
      if (program->intermediates[i].written == step) {
        int is_written = in_blocks || attn_choose_variant(&program->steps[step], call->sizes)->function;
        error = allocate(signature, call, &program->intermediates[i].tensor, is_written, &call->buffers[i]);
      }
    if (!error)
      error = in_blocks ? attn_run_blocks(signature, call, blocks++) : run_one(signature, call, &grid, step);
    for (int64_t i = 0; i < program->intermediate_count; ++i)
      if (program->intermediates[i].read == next - 1)
        release(call, &call->buffers[i]);
  }
  for (int64_t i = 0; i < program->intermediate_count; ++i)
    release(call, &call->buffers[i]);
  return error;
}

static const attn_program *usable(const attn_program *programs, int64_t count, const attn_place *place) {
  for (const attn_program *program = programs; program != programs + count; ++program)
    if (attn_suits(program, place) &&
        (!program->can_use || program->can_use((int)program->feature_count, program->features)))
      return program;
  return 0;
}

static int64_t most_axes(const attn_program *program) {
  int64_t axes = 0;
  for (int64_t i = 0; i < program->block_count; ++i)
    axes = axes > program->blocks[i].axis_count ? axes : program->blocks[i].axis_count;
  return axes;
}

int attn_run(const attn_signature *signature, const attn_program *programs, int64_t program_count,
             const attn_place *place, void *const *arguments, int64_t argument_count, const int64_t *sizes) {
  const attn_program *program = usable(programs, program_count, place);
  if (!program)
    return attn_fail(ATTN_ERROR_KERNEL, "%s: this processor lacks instructions that the kernel was compiled for: %s",
                     signature->name, signature->targets);
  return attn_run_in_parts(signature, program, arguments, argument_count, sizes);
}

int attn_run_whole(const attn_signature *signature, const attn_program *program, void *const *arguments,
                   int64_t argument_count, const int64_t *sizes) {
  attn_run_state call = {program, argument_count, 0, 0, 0, 0, 0, sizes, 0};
  size_t intermediates = (size_t)call.program->intermediate_count, dimensions = 0;
  for (size_t i = 0; i < intermediates; ++i)
    dimensions += (size_t)call.program->intermediates[i].tensor.rank;
  call.axis_count = most_axes(call.program);
  size_t pointers = (size_t)attn_pointer_count(&call);
  /* All arrays in one block, on the stack where it is as small as usual; the most aligned first. */
  enum { STACK_BYTES = 4096 };
  union {
    attn_halide_buffer aligned;
    char bytes[STACK_BYTES];
  } stack;
  size_t bytes = intermediates * sizeof *call.buffers + 2 * pointers * sizeof *call.arguments +
                 dimensions * sizeof *call.dimensions;
  char *block = bytes <= STACK_BYTES ? stack.bytes : malloc(bytes);
  if (!block)
    return attn_fail(ATTN_ERROR_MEMORY, "%s: out of memory", signature->name);
  call.buffers = (attn_halide_buffer *)block;
  call.arguments = (void **)(call.buffers + intermediates);
  call.selected = call.arguments + pointers;
  call.dimensions = (attn_halide_dimension *)(call.selected + pointers);
  memcpy(call.arguments, arguments, (size_t)argument_count * sizeof *arguments);
  int error = describe_intermediates(signature, &call);
  if (!error)
    error = run_steps(signature, &call);
  if (block != stack.bytes)
    free(block);
  return error;
}
