/*===- Signature.h - A kernel's interface as a table ------------*- C -*-===*
 *
 * Generated code consists of Halide functions, constant tables that describe the arguments and say in which order the
 * functions are called, and a wrapper of one call: attn_invoke(table, tensors). All that is checked about arguments is
 * checked there, by the table.
 *
 * Every field is 8 bytes wide, so that a compiler can lay the table out for any 64-bit target.
 *
 *===----------------------------------------------------------------------===*/

#ifndef ATTN_RUNTIME_SIGNATURE_H
#define ATTN_RUNTIME_SIGNATURE_H

#include "attn/Runtime/DLPack.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Size expressions are postfix programs over a stack of integers. */
enum attn_opcode {
  ATTN_PUSH_CONSTANT,  /* the operand */
  ATTN_PUSH_SIZE,      /* the value of size number `operand` */
  ATTN_PUSH_DIMENSION, /* the extent of the dimension that a size is solved from */
  ATTN_ADD,
  ATTN_SUB,
  ATTN_MUL,
  ATTN_FLOORDIV, /* rounds down; by zero it gives zero */
  ATTN_MOD       /* has the divisor's sign; by zero it gives zero */
};

/* No dimension is longer, and no index ranges over more: Halide's 32-bit integers hold them, with room to round up to a
 * tile. */
enum { ATTN_MAX_EXTENT = 1 << 30 };

/* No program needs a deeper stack. The compiler checks it. */
enum { ATTN_STACK_DEPTH = 16 };

typedef struct {
  int64_t opcode;
  int64_t operand;
} attn_instruction;

typedef struct {
  const char *text; /* as it was written: "H * D" */
  int64_t length;
  const attn_instruction *program;
} attn_expression;

/* A size name, and how its value follows from one dimension of an input and from earlier sizes. */
typedef struct {
  const char *name;
  int64_t tensor;
  int64_t dimension;
  attn_expression solution;
} attn_size;

/* What must hold of the sizes beyond the shapes: part <= whole. */
typedef struct {
  const char *message; /* the error where it does not */
  attn_expression part;
  attn_expression whole;
} attn_check;

/* What an index ranges over, where that is no dimension of an input: at most as much as a dimension may be. */
typedef struct {
  const char *index;
  attn_expression size;
} attn_range;

typedef struct {
  const char *name;
  int64_t code; /* DLDataTypeCode */
  int64_t bits;
  int64_t rank;
  const attn_expression *shape;
  int64_t has_default;   /* a scalar input that may be NULL */
  uint64_t default_bits; /* the default's bytes, in the tensor's dtype, lowest first */
} attn_tensor;

/* A call is within it where `size` is at most `at_most`. */
typedef struct {
  attn_expression size;
  int64_t at_most;
} attn_limit;

enum { ATTN_REPEATED_BITS = 20, ATTN_MAX_REPEATED_RANK = 10 };

/* One function of a step, for the calls that are within its limit. */
typedef struct {
  const attn_limit *limit; /* NULL: for every call */
  int64_t argument_count;
  /* Numbers of what it gets: inputs come first, then sizes, outputs, intermediates. Then, for steps of blocks, where
   * the block begins along axis i and how far it goes (2 i and 2 i + 1 after the intermediates, for as many axes as any
   * blocks have), and two numbers to write its keys to. -1 - (number + 2^ATTN_REPEATED_BITS * order): with one
   * dimension more, the first of the argument before it, along which it has the same elements; dimension i + 1 is then
   * the one of its own that the four bits of `order` from 4 i on say. Such a tensor's rank is below
   * ATTN_MAX_REPEATED_RANK. */
  const int64_t *arguments;
  int (*function)(void **); /* Halide's FUNCTION_argv; NULL: nobody reads the tensor, and it is not computed */
} attn_variant;

/* A thread more is worth waking for so many operations of a step. */
enum { ATTN_THREAD_WORK = 1 << 18 };

/* Computes one tensor. A call takes the first variant within whose limit it is; the last has none. */
typedef struct {
  attn_expression work; /* its operations, at most; of length 0 where they are not known */
  const attn_variant *variants;
} attn_step;

/* A tensor that is written by one step and read by later ones. */
typedef struct {
  attn_tensor tensor;
  int64_t written; /* the step that writes it; -1: only a block of it is stored */
  int64_t read;    /* the last step that reads it */
} attn_intermediate;

/* A tensor that steps of blocks write. */
typedef struct {
  int64_t argument;    /* its number */
  int64_t is_pairs;    /* it is an intermediate of which a block is stored; otherwise it is 0 before the first block */
  const int64_t *axes; /* of each dimension; -1: it is not cut */
} attn_block_tensor;

/* Steps that run for one block of rows after the other. What they get of block tensors are the elements of the block,
 * with minima that say where it begins, but for pairs, which are counted from there. */
typedef struct {
  int64_t first;         /* step */
  int64_t end;           /* the step after the last */
  int64_t finds_keys;    /* the first step writes the block's first key, and the one after its last */
  int64_t searches_keys; /* of the keys that it is given */
  int64_t cuts_keys;     /* steps may run for some of the keys, then for the next */
  int64_t axis_count;
  const attn_expression *sizes; /* of the axes: those of rows, the outermost first, then that of keys */
  int64_t tensor_count;
  const attn_block_tensor *tensors;
} attn_blocks;

/* A call that stores more bytes between its steps runs in parts, if it can be cut; and the fewest values of a size of
 * rows that a part has: whole tiles. */
enum { ATTN_CUT_BYTES = 3 << 20, ATTN_CUT_ROWS = 64 };

/* A size along which a call is the same as several calls, each for some of its values. No argument has it as two
 * dimensions, all outputs and intermediates have it as one, and it is part of no other dimension. */
typedef struct {
  int64_t size; /* its number */
  int64_t unit; /* there should be a multiple of so many values in a part */
} attn_cut;

enum attn_image_kind {
  ATTN_IMAGE_CUBIN,       /* machine code for devices with this major number and no smaller minor one */
  ATTN_IMAGE_EXACT_CUBIN, /* machine code for devices of this capability alone */
  ATTN_IMAGE_PTX          /* what the driver compiles for any device that has no smaller capability */
};

/* Code of a kernel of CUDA. */
typedef struct {
  int64_t capability; /* of the device that it was made for: 80 is 8.0 */
  int64_t kind;
  int64_t bytes;
  const char *data;
} attn_image;

/* What runs images on CUDA: functions of Halide's runtime. */
typedef struct {
  const void *(*interface)(void);
  int (*copy_to_device)(void *context, void *buffer, const void *interface);
  int (*allocate)(void *context, void *buffer, const void *interface);
  int (*load)(void *context, void **state, const char *image, int bytes);
  int (*run)(void *context, void *state, const char *function, int blocks_x, int blocks_y, int blocks_z, int threads_x,
             int threads_y, int threads_z, int shared_bytes, const void *types, void **arguments,
             const int8_t *is_buffer);
  void (*release)(void *context, void *state);
  int (*multiprocessors)(void); /* of the call's device; 0 where the driver does not say */
  /* A tensor's map, of 128 bytes at a multiple of 64: five dimensions, the first one of 2-byte elements side by side;
   * the strides of the others are in bytes. A box is copied at once. 0, or an error. */
  int (*tensor_map)(void *map, uint64_t address, const uint64_t *extents, const uint64_t *strides, const uint32_t *box);
} attn_launcher;

enum { ATTN_MAX_LAUNCH_BYTES = 4096 };

/* An argument, numbered as in attn_variant, whose rows are copied by a map of it: those of a tile's keys at once, in
 * dimension `axis`, counted from the last one, which is 0. */
typedef struct {
  int64_t number;
  int64_t axis;
} attn_mapped_argument;

/* What a launch is given of an argument, numbered as in attn_variant. */
typedef struct {
  int64_t number;
  int64_t value_bytes; /* of its value; 0: a tensor's address and strides */
  int64_t is_written;
} attn_launch_argument;

/* A function of a launch: a block has a tile of so many rows, and visits so many keys at once. */
typedef struct {
  const char *function;
  int64_t rows;
  int64_t keys;
  int64_t threads; /* of a block, and its shared memory */
  int64_t shared_bytes;
  int64_t resident; /* blocks that a multiprocessor runs at once */
} attn_tiling;

/* Computes what some steps of a kernel compute, by one launch of a function that is given one structure of at most
 * ATTN_MAX_LAUNCH_BYTES: for each argument its value, or its address and strides (in elements), then the sizes, as int,
 * then the address of the states of parts and the number of parts, as int, then the maps, and whether all of them could
 * be made, as int; each where C would place it. The function is that of the first tiling of which one tile has all of
 * `rows`, or of the last. There is a block for each tile of `rows`, each of `others` and each part of the keys; where
 * there is more than one part, a launch of another function, with a block for each row, merges the states that they
 * leave.
 */
typedef struct {
  int64_t step;            /* in whose place it runs */
  const int64_t *replaced; /* of each step: whether it does not run then */
  int64_t argument_count;
  const attn_launch_argument *arguments;
  int64_t tiling_count;
  const attn_tiling *tilings;
  const char *merge;
  int64_t merging_threads;
  int64_t image_count;
  const attn_image *images; /* the first that is for the device is taken */
  attn_expression rows;     /* that read the same keys */
  attn_expression others;   /* how many times there are so many */
  attn_expression keys;
  int64_t state_size;  /* floats that a part leaves of a row */
  int64_t limit_count; /* it is for calls within these limits, */
  const attn_limit *limits;
  int64_t contiguous_count; /* in which the last dimensions of these arguments have stride 1 */
  const int64_t *contiguous;
  int64_t map_count;
  const attn_mapped_argument *maps;
  void **state; /* what Halide's runtime knows the loaded images by */
  const attn_launcher *launcher;
} attn_launch;

/* What drives a GPU: functions of Halide's runtime. */
typedef struct {
  int64_t type;        /* DLDeviceType */
  const char *name;    /* "CUDA" */
  const char *library; /* its driver: "libcuda.so.1" */
  const char *probe;   /* a function that the driver has */
  void *(*symbol)(void *context, const char *name);
  int (*capability)(void *context, int *major, int *minor);
  int (*wrap)(void *context, void *buffer, uint64_t handle);
  int (*detach)(void *context, void *buffer);
  int (*copy_to_host)(void *context, void *buffer);
  int (*free)(void *context, void *buffer);
} attn_device;

/* What computes a kernel's outputs on processors that have some instructions. */
typedef struct attn_program {
  int64_t intermediate_count;
  const attn_intermediate *intermediates;
  int64_t step_count;
  const attn_step *steps; /* in the order in which they run */
  int64_t block_count;
  const attn_blocks *blocks; /* the first steps first */
  int64_t cut_count;
  const attn_cut *cuts; /* the outermost first */
  int64_t feature_count;
  const uint64_t *features; /* words of bits, as halide_can_use_target_features takes them */
  int (*can_use)(int feature_count, const uint64_t *features); /* that function; NULL: for any processor */
  const attn_device *device;                                   /* where the tensors are; NULL: in the CPU's memory */
  int64_t copies;            /* tensors in the CPU's memory are copied to the device and back */
  const attn_launch *launch; /* in place of some steps where it is for the call and the device; NULL: none */
  /* Called before a call's first step: makes the functions that these sizes need and that are not there yet. Steps of
   * which `replaced` is not 0 need none (NULL: all need one). An error code, or 0. NULL: all functions are there. */
  int (*prepare)(const struct attn_program *program, const int64_t *replaced, const int64_t *sizes);
} attn_program;

typedef struct {
  const char *name;
  int64_t input_count;
  int64_t output_count;
  int64_t size_count;
  const attn_tensor *tensors; /* inputs, then outputs */
  const attn_size *sizes;     /* in the order in which they can be solved */
  const int64_t *size_order;  /* which of `sizes` the kernel's n-th size argument is */
  int64_t check_count;
  const attn_check *checks;
  int64_t range_count;
  const attn_range *ranges;
  int64_t program_count;        /* 0 where a call is only to be checked */
  const attn_program *programs; /* the first that the processor can run is run */
  const char *targets;          /* what they were compiled for */
} attn_signature;

/* A subscript that depends on data: where `statement` reads `tensor`, that of the dimension, which has this size. */
typedef struct {
  const char *statement;
  const char *tensor;
  int64_t dimension;
  attn_expression size;
} attn_bound;

/* What looks for subscripts outside their dimensions before a kernel runs (--check-bounds). */
typedef struct {
  int64_t count;
  const attn_bound *bounds;
  /* The checking kernel. It has the kernel's inputs and sizes, and for each of `bounds` two outputs of rank 0 and
   * 64-bit integers: they get the subscript's least and greatest value. */
  int64_t program_count;
  const attn_program *programs;
} attn_bounds;

/* The variant of a step that a call with these sizes, in the signature's order, takes. */
const attn_variant *attn_choose_variant(const attn_step *step, const int64_t *sizes);

/* Checks the tensors and runs the kernel on them. Returns a code of attn/Runtime/Runtime.h. */
int attn_invoke(const attn_signature *signature, const DLTensor *const *tensors);

/* The same, and checks the subscripts that depend on data in between. */
int attn_invoke_checked(const attn_signature *signature, const attn_bounds *bounds, const DLTensor *const *tensors);

/* Checks the inputs and writes the extents of all outputs to `shapes`, one output after the other. */
int attn_output_shapes(const attn_signature *signature, const DLTensor *const *inputs, int64_t *shapes);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_RUNTIME_SIGNATURE_H */
