/*===- Blocks.h - Blocks of rows, one after the other -----------*- C -*-===*/

#ifndef ATTN_LIB_RUNTIME_BLOCKS_H
#define ATTN_LIB_RUNTIME_BLOCKS_H

#include "Program.h"

/* Where a block begins and how far it goes along an axis: a step's arguments. */
typedef struct {
  int32_t first, count;
} attn_block_range;

typedef struct {
  const attn_signature *signature;
  const attn_run_state *run;
  const attn_blocks *blocks;
  int64_t *extents;                  /* of the axes; the last is that of the keys */
  int64_t *counts;                   /* of a block along them, the most */
  attn_block_range *ranges;          /* of the present block */
  attn_halide_buffer **whole;        /* the block tensors, or, of pairs, the memory for a block */
  attn_halide_buffer *buffers;       /* of the present block */
  attn_halide_dimension *dimensions; /* of all of these */
  int32_t keys[2];                   /* what the first step writes */
} attn_block_run;

/* The elements that pairs have in a block, with the padding of their rows. */
int64_t attn_block_elements(const attn_block_run *state, const attn_block_tensor *tensor,
                            const attn_halide_buffer *pairs);

/* Bytes for a block of all pairs together. */
int64_t attn_block_bytes(const attn_block_run *state);

/* Calls `visit` with the ranges of one block of rows after the other, the innermost first, until one fails. */
int attn_visit_blocks(attn_block_run *state, int (*visit)(attn_block_run *, void *), void *context);

/* Finds the keys that the present block needs, as `ranges` has them in the end. */
int attn_find_keys(attn_block_run *state);

/* Chooses `counts` (BlockCounts.c). */
int attn_choose_counts(attn_block_run *state);

#endif /* ATTN_LIB_RUNTIME_BLOCKS_H */
