/*===- Program.h - A kernel that runs ---------------------------*- C -*-===*/

#ifndef ATTN_LIB_RUNTIME_PROGRAM_H
#define ATTN_LIB_RUNTIME_PROGRAM_H

#include "HalideBuffer.h"
#include "Internal.h"

typedef struct {
  const attn_program *program;
  int64_t argument_count;            /* without the intermediates and what steps of blocks get */
  int64_t axis_count;                /* the most that any blocks have */
  void **arguments;                  /* all of them */
  void **selected;                   /* those of the step that runs */
  attn_halide_buffer *buffers;       /* of the intermediates */
  attn_halide_dimension *dimensions; /* of all of them */
  const int64_t *sizes;              /* in the signature's order */
  int most_threads;                  /* that a step may have; 0: as many as it is worth */
} attn_run_state;

/* How many arguments come before those that steps of blocks get. */
static inline int64_t attn_tensor_and_size_count(const attn_run_state *call) {
  return call->argument_count + call->program->intermediate_count;
}

/* How many arguments there are: see attn_variant. */
static inline int64_t attn_pointer_count(const attn_run_state *call) {
  return attn_tensor_and_size_count(call) + 2 * call->axis_count + 1;
}

/* How a program's launch runs for a call. */
typedef struct {
  const attn_image *image; /* the code for the device; NULL: there is no launch for the call and the device */
  const attn_tiling *tiling;
  int64_t blocks; /* of each part of the keys */
  int64_t parts;
  int64_t rows; /* of all blocks */
} attn_grid;

int attn_find_launch(const attn_signature *signature, const attn_run_state *run, attn_grid *grid);
int attn_run_launch(const attn_signature *signature, const attn_run_state *run, const attn_grid *grid);

/* Whether a call with these sizes, in the signature's order, is within `limit`. */
int attn_is_within(const attn_limit *limit, const int64_t *sizes);

/* The most threads that are worth waking for a step; 0: all. */
int attn_threads_for_step(const attn_step *step, const int64_t *sizes);

/* Runs a call as it is, and in parts if it would store much between its steps (Cuts.c). */
int attn_run_whole(const attn_signature *signature, const attn_program *program, void *const *arguments,
                   int64_t argument_count, const int64_t *sizes);
int attn_run_in_parts(const attn_signature *signature, const attn_program *program, void *const *arguments,
                      int64_t argument_count, const int64_t *sizes);

/* Runs one step on its arguments as they are. */
int attn_run_step(const attn_signature *signature, const attn_run_state *run, const attn_step *step);

/* Runs the steps of `blocks` for all blocks (BlockSeries.c). */
int attn_run_blocks(const attn_signature *signature, const attn_run_state *run, const attn_blocks *blocks);

#endif /* ATTN_LIB_RUNTIME_PROGRAM_H */
