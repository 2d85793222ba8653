/*===- Cuts.c - Calls that run in parts -----------------------------------===*
 *
 * What steps store for each other grows with a call's sizes. Where a call is the same as several, each for some values
 * of a size (attn_cut), and would store much, it runs as these, one after the other: then what it stores does not grow,
 * and lies in caches. How many there are depends on the sizes alone, and so do results.
 *
 *===----------------------------------------------------------------------===*/

#include "Call.h"
#include "Program.h"

/* A call in parts. */
typedef struct {
  const attn_signature *signature;
  const attn_program *program;
  void *const *whole;                /* the arguments of the call */
  void **arguments;                  /* of the present part */
  attn_halide_buffer *buffers;       /* of its tensors */
  attn_halide_dimension *dimensions; /* of all of them */
  int64_t *sizes;                    /* in the signature's order */
  int64_t *first, *count, *extent;   /* of each cut: where the part begins, how many values a part has, and the call */
  int32_t *size_arguments;           /* in the kernel's order */
} part_run;

/* What steps store in a call of these sizes; 0 where it would be an error, which the call reports. */
static int64_t stored_bytes(const attn_program *program, const int64_t *sizes) {
  int64_t total = 0;
  for (int64_t i = 0; i < program->intermediate_count; ++i) {
    const attn_intermediate *each = &program->intermediates[i];
    if (!attn_choose_variant(&program->steps[each->written], sizes)->function)
      continue;
    int64_t bytes = attn_element_bytes(&each->tensor);
    for (int64_t j = 0; j < each->tensor.rank; ++j) {
      int64_t extent = 0;
      if (attn_evaluate(&each->tensor.shape[j], sizes, 0, &extent) || extent < 0 ||
          __builtin_mul_overflow(bytes, extent, &bytes))
        return 0;
    }
    if (__builtin_add_overflow(total, bytes, &total))
      return 0;
  }
  return total;
}

/* How many values of the size a part has: as many as store ATTN_CUT_BYTES, or the fewest. All that is stored grows with
 * them. Parts are about as large as each other. */
static int64_t values_of_part(const attn_program *program, const attn_cut *cut, const int64_t *sizes) {
  int64_t extent = sizes[cut->size], bytes = stored_bytes(program, sizes);
  if (bytes <= ATTN_CUT_BYTES || extent <= cut->unit)
    return extent;
  int64_t most = ATTN_CUT_BYTES / (bytes / extent) / cut->unit * cut->unit;
  int64_t parts = (extent - 1) / (most ? most : cut->unit) + 1;
  return ((extent - 1) / parts + cut->unit) / cut->unit * cut->unit;
}

static int is_size(const attn_expression *expression, int64_t size) {
  return expression->length == 1 && expression->program[0].opcode == ATTN_PUSH_SIZE &&
         expression->program[0].operand == size;
}

/* The number of a tensor among the arguments: sizes are between inputs and outputs. */
static int64_t argument_of(const attn_signature *signature, int64_t tensor) {
  return tensor < signature->input_count ? tensor : tensor + signature->size_count;
}

/* Makes sizes and buffers those of the present part. */
static void enter_part(const part_run *state) {
  const attn_signature *signature = state->signature;
  for (int64_t i = 0; i < state->program->cut_count; ++i) {
    int64_t left = state->extent[i] - state->first[i];
    state->sizes[state->program->cuts[i].size] = left < state->count[i] ? left : state->count[i];
  }
  for (int64_t i = 0; i < signature->size_count; ++i)
    state->size_arguments[i] = (int32_t)state->sizes[signature->size_order[i]];
  for (int64_t i = 0; i < attn_tensor_count(signature); ++i) {
    const attn_tensor *tensor = &signature->tensors[i];
    if (!tensor->rank)
      continue;
    attn_halide_buffer *buffer = &state->buffers[i];
    buffer->host = ((const attn_halide_buffer *)state->whole[argument_of(signature, i)])->host;
    for (int64_t j = 0; j < tensor->rank; ++j)
      for (int64_t cut = 0; cut < state->program->cut_count; ++cut)
        if (is_size(&tensor->shape[j], state->program->cuts[cut].size)) {
          attn_halide_dimension *dimension = &buffer->dimension[tensor->rank - 1 - j];
          dimension->extent = (int32_t)state->sizes[state->program->cuts[cut].size];
          buffer->host += state->first[cut] * dimension->stride * attn_element_bytes(tensor);
        }
  }
}

/* Goes on to the next part; 0 after the last one. */
static int advance(part_run *state) {
  for (int64_t cut = state->program->cut_count - 1; cut >= 0; --cut) {
    state->first[cut] += state->count[cut];
    if (state->first[cut] < state->extent[cut])
      return 1;
    state->first[cut] = 0;
  }
  return 0;
}

/* Copies what parts have of their own. */
static void copy_arguments(part_run *state, int64_t argument_count) {
  const attn_signature *signature = state->signature;
  attn_halide_dimension *dimensions = state->dimensions;
  memcpy(state->arguments, state->whole, (size_t)argument_count * sizeof *state->arguments);
  for (int64_t i = 0; i < signature->size_count; ++i)
    state->arguments[signature->input_count + i] = &state->size_arguments[i];
  for (int64_t i = 0; i < attn_tensor_count(signature); ++i) {
    int64_t rank = signature->tensors[i].rank, argument = argument_of(signature, i);
    if (!rank)
      continue;
    state->buffers[i] = *(const attn_halide_buffer *)state->whole[argument];
    memcpy(dimensions, state->buffers[i].dimension, (size_t)rank * sizeof *dimensions);
    state->buffers[i].dimension = dimensions;
    state->arguments[argument] = &state->buffers[i];
    dimensions += rank;
  }
}

/* Chooses how large parts are: the outermost cuts first, further ones if that is not enough. 1 if there are several. */
static int choose_parts(part_run *state) {
  int is_cut = 0;
  for (int64_t i = 0; i < state->program->cut_count; ++i) {
    const attn_cut *cut = &state->program->cuts[i];
    state->first[i] = 0;
    state->extent[i] = state->sizes[cut->size];
    state->count[i] = values_of_part(state->program, cut, state->sizes);
    state->sizes[cut->size] = state->count[i];
    is_cut |= state->count[i] < state->extent[i];
  }
  return is_cut;
}

static int run_parts(part_run *state, int64_t argument_count) {
  int error;
  do {
    enter_part(state);
    error = attn_run_whole(state->signature, state->program, state->arguments, argument_count, state->sizes);
  } while (!error && advance(state));
  return error;
}

int attn_run_in_parts(const attn_signature *signature, const attn_program *program, void *const *arguments,
                      int64_t argument_count, const int64_t *sizes) {
  if (!program->cut_count || stored_bytes(program, sizes) <= ATTN_CUT_BYTES)
    return attn_run_whole(signature, program, arguments, argument_count, sizes);
  size_t tensors = (size_t)attn_tensor_count(signature), cuts = (size_t)program->cut_count, dimensions = 0;
  size_t size_count = (size_t)signature->size_count;
  for (size_t i = 0; i < tensors; ++i)
    dimensions += (size_t)signature->tensors[i].rank;
  part_run state = {signature, program, arguments, 0, 0, 0, 0, 0, 0, 0, 0};
  /* All arrays in one block of memory, the most aligned first. */
  char *block = malloc(tensors * sizeof *state.buffers + (size_t)argument_count * sizeof *state.arguments +
                       (size_count + 3 * cuts) * sizeof *state.sizes + dimensions * sizeof *state.dimensions +
                       size_count * sizeof *state.size_arguments);
  if (!block)
    return attn_fail(ATTN_ERROR_MEMORY, "%s: out of memory", signature->name);
  state.buffers = (attn_halide_buffer *)block;
  state.arguments = (void **)(state.buffers + tensors);
  state.sizes = (int64_t *)(state.arguments + argument_count);
  state.first = state.sizes + size_count;
  state.count = state.first + cuts;
  state.extent = state.count + cuts;
  state.dimensions = (attn_halide_dimension *)(state.extent + cuts);
  state.size_arguments = (int32_t *)(state.dimensions + dimensions);
  memcpy(state.sizes, sizes, size_count * sizeof *sizes);
  copy_arguments(&state, argument_count);
  int error = choose_parts(&state) ? run_parts(&state, argument_count)
                                   : attn_run_whole(signature, program, arguments, argument_count, sizes);
  free(block);
  return error;
}
