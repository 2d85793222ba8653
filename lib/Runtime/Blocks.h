/*===- Blocks.h - Blocks of rows, one after the other -----------*- C -*-===*/

#ifndef ATTN_LIB_RUNTIME_BLOCKS_H
#define ATTN_LIB_RUNTIME_BLOCKS_H

#include "Program.h"

/* Where a block begins and how far it goes along an axis: a step's arguments. */
typedef struct {
  int32_t first, count;
} attn_block_range;

/* What runs blocks. */
typedef struct {
  const attn_signature *signature;
  attn_run_state run; /* the call's, with arguments of its own */
  const attn_blocks *blocks;
  int64_t *extents;                  /* of the axes; the last is that of the keys */
  int64_t *counts;                   /* of a block along them, the most */
  attn_block_range *within;          /* the rows of all blocks that it runs */
  attn_block_range *ranges;          /* of the present block */
  attn_halide_buffer **whole;        /* the block tensors as the call has them */
  attn_halide_buffer *buffers;       /* of the present block */
  attn_halide_dimension *dimensions; /* of all of these */
  int32_t keys[2];                   /* what the first step writes */
  attn_halide_buffer key_buffer;     /* where it does */
  attn_halide_dimension key_dimension;
} attn_block_run;

/* Makes what runs blocks of a call, without extents, counts and rows; NULL, and an error, where there is no memory.
 * Freed by halide_free. */
attn_block_run *attn_make_block_run(const attn_signature *signature, const attn_run_state *call,
                                    const attn_blocks *blocks);

/* The elements that pairs have in a block, with the padding of their rows. */
int64_t attn_block_elements(const attn_block_run *state, const attn_block_tensor *tensor,
                            const attn_halide_buffer *pairs);

static inline int64_t attn_blocks_along(const attn_block_run *state, int64_t axis) {
  return (state->extents[axis] + state->counts[axis] - 1) / state->counts[axis];
}

/* Of series (BlockSeries.c): whether blocks at different places along `axis` have no element of an output together, how
 * many series there are, and how many there should be at least. */
int attn_is_apart(const attn_block_run *state, int64_t axis);
int64_t attn_count_series(const attn_block_run *state);
int64_t attn_least_series(const attn_block_run *state);

/* Bytes for a block of all pairs together. */
int64_t attn_block_bytes(const attn_block_run *state);

/* Calls `visit` with the ranges of one block of the rows `within` after the other, the innermost first, until one
 * fails. */
int attn_visit_blocks(attn_block_run *state, int (*visit)(attn_block_run *, void *), void *context);

/* Finds the keys that the present block needs, between the first and the last of all, as `ranges` has them in the
 * end. */
int attn_find_keys(attn_block_run *state);

/* Chooses `counts` (BlockCounts.c). */
int attn_choose_counts(attn_block_run *state);

/* Makes what the rows `within` have of outputs 0. */
void attn_clear_outputs(attn_block_run *state);

/* Makes room for pairs, and runs the blocks of the rows `within`, one after the other, after that. */
int attn_run_series(attn_block_run *state);

#endif /* ATTN_LIB_RUNTIME_BLOCKS_H */
