/*===- Sizes.c - From the shapes of tensors to the values of sizes --------===*
 *
 * A size is solved from one dimension: `wq: [H * D, J]` with H known gives D = dimension / H. Then every dimension
 * of every tensor is compared with its expression, which also catches a division that left a rest.
 *
 *===----------------------------------------------------------------------===*/

#include "Internal.h"

static int64_t floor_divide(int64_t a, int64_t b) {
  int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

/* Returns 1 where the result overflows. */
static int apply(int64_t opcode, int64_t a, int64_t b, int64_t *result) {
  switch (opcode) {
  case ATTN_ADD:
    return __builtin_add_overflow(a, b, result);
  case ATTN_SUB:
    return __builtin_sub_overflow(a, b, result);
  case ATTN_MUL:
    return __builtin_mul_overflow(a, b, result);
  case ATTN_FLOORDIV:
    if (a == INT64_MIN && b == -1)
      return 1;
    *result = b == 0 ? 0 : floor_divide(a, b);
    return 0;
  default: /* ATTN_MOD */
    *result = b == 0 || b == -1 ? 0 : a - floor_divide(a, b) * b;
    return 0;
  }
}

int attn_evaluate(const attn_expression *expression, const int64_t *sizes, int64_t dimension, int64_t *value) {
  int64_t stack[ATTN_STACK_DEPTH];
  int64_t depth = 0;
  for (int64_t i = 0; i < expression->length; ++i) {
    const attn_instruction *instruction = &expression->program[i];
    if (instruction->opcode == ATTN_PUSH_CONSTANT) {
      stack[depth++] = instruction->operand;
    } else if (instruction->opcode == ATTN_PUSH_SIZE) {
      stack[depth++] = sizes[instruction->operand];
    } else if (instruction->opcode == ATTN_PUSH_DIMENSION) {
      stack[depth++] = dimension;
    } else {
      --depth;
      if (apply(instruction->opcode, stack[depth - 1], stack[depth], &stack[depth - 1]))
        return 1;
    }
  }
  *value = stack[0];
  return 0;
}

/* The size that an expression is, where it is nothing but a name; otherwise -1. */
static int64_t plain_size(const attn_expression *expression) {
  return expression->length == 1 && expression->program[0].opcode == ATTN_PUSH_SIZE ? expression->program[0].operand
                                                                                    : -1;
}

/* A solution copies its dimension where the dimension is the size itself. */
static int is_plain_solution(const attn_size *size) { return size->solution.length == 1; }

int attn_solve_sizes(const attn_signature *signature, const DLTensor *const *tensors, int64_t *sizes) {
  for (int64_t i = 0; i < signature->size_count; ++i) {
    const attn_size *size = &signature->sizes[i];
    const attn_tensor *source = &signature->tensors[size->tensor];
    const attn_expression *expression = &source->shape[size->dimension];
    int64_t extent = tensors[size->tensor]->shape[size->dimension];
    if (attn_evaluate(&size->solution, sizes, extent, &sizes[i]) || sizes[i] > ATTN_MAX_EXTENT)
      return attn_fail(ATTN_ERROR_SIZE, "%s: dimension %lld (%s) is %lld, which makes %s too large", source->name,
                       (long long)size->dimension, expression->text, (long long)extent, size->name);
    int64_t check = extent;
    if (!is_plain_solution(size) && attn_evaluate(expression, sizes, extent, &check))
      check = -1;
    if (check != extent)
      return attn_fail(ATTN_ERROR_SHAPE, "%s: dimension %lld (%s) is %lld, which no whole %s gives", source->name,
                       (long long)size->dimension, expression->text, (long long)extent, size->name);
    if (sizes[i] < 0)
      return attn_fail(ATTN_ERROR_SHAPE, "%s: dimension %lld (%s) is %lld, which makes %s = %lld", source->name,
                       (long long)size->dimension, expression->text, (long long)extent, size->name,
                       (long long)sizes[i]);
  }
  return 0;
}

/* "k: dimension 1 (N) is 10, but v: dimension 1 made N = 12". */
static int fail_plain(const attn_signature *signature, const attn_tensor *tensor, int64_t dimension, int64_t extent,
                      int64_t plain, const int64_t *sizes) {
  const attn_size *size = &signature->sizes[plain];
  const attn_tensor *source = &signature->tensors[size->tensor];
  const char *expression = source->shape[size->dimension].text;
  int simple = is_plain_solution(size);
  return attn_fail(ATTN_ERROR_SHAPE, "%s: dimension %lld (%s) is %lld, but %s: dimension %lld %s%s%smade %s = %lld",
                   tensor->name, (long long)dimension, size->name, (long long)extent, source->name,
                   (long long)size->dimension, simple ? "" : "(", simple ? "" : expression, simple ? "" : ") ",
                   size->name, (long long)sizes[plain]);
}

/* "wq: dimension 0 (H * D) is 10, but must be 48 (H = 12, D = 4)". */
static int fail_expression(const attn_signature *signature, const attn_tensor *tensor, int64_t dimension,
                           int64_t extent, int64_t expected, const int64_t *sizes) {
  const attn_expression *expression = &tensor->shape[dimension];
  char known[256] = "";
  size_t used = 0;
  for (int64_t i = 0; i < expression->length; ++i) {
    if (expression->program[i].opcode != ATTN_PUSH_SIZE)
      continue;
    int64_t size = expression->program[i].operand;
    int written = snprintf(known + used, sizeof known - used, "%s%s = %lld", used ? ", " : "",
                           signature->sizes[size].name, (long long)sizes[size]);
    if (written < 0 || (size_t)written >= sizeof known - used)
      break;
    used += (size_t)written;
  }
  return attn_fail(ATTN_ERROR_SHAPE, "%s: dimension %lld%s%s%s is %lld, but must be %lld%s%s%s", tensor->name,
                   (long long)dimension, used ? " (" : "", used ? expression->text : "", used ? ")" : "",
                   (long long)extent, (long long)expected, used ? " (" : "", known, used ? ")" : "");
}

int attn_check_shape(const attn_signature *signature, int64_t index, const DLTensor *const *tensors,
                     const int64_t *sizes) {
  const attn_tensor *tensor = &signature->tensors[index];
  for (int64_t i = 0; i < tensor->rank; ++i) {
    int64_t extent = tensors[index]->shape[i];
    int64_t plain = plain_size(&tensor->shape[i]);
    if (plain >= 0 && extent != sizes[plain])
      return fail_plain(signature, tensor, i, extent, plain, sizes);
    int64_t expected = 0;
    if (attn_evaluate(&tensor->shape[i], sizes, extent, &expected) || expected > ATTN_MAX_EXTENT)
      return attn_fail(ATTN_ERROR_SIZE, "%s: dimension %lld (%s) would be too large", tensor->name, (long long)i,
                       tensor->shape[i].text);
    if (expected < 0)
      return attn_fail(ATTN_ERROR_SIZE, "%s: dimension %lld (%s) would be %lld", tensor->name, (long long)i,
                       tensor->shape[i].text, (long long)expected);
    if (extent != expected)
      return fail_expression(signature, tensor, i, extent, expected, sizes);
  }
  return 0;
}

int attn_check_sizes(const attn_signature *signature, const int64_t *sizes) {
  for (int64_t i = 0; i < signature->check_count; ++i) {
    const attn_check *check = &signature->checks[i];
    int64_t part = 0, whole = 0;
    if (attn_evaluate(&check->part, sizes, 0, &part) || attn_evaluate(&check->whole, sizes, 0, &whole))
      return attn_fail(ATTN_ERROR_SIZE, "%s: %s: the sizes cannot be computed", signature->name, check->message);
    if (part > whole)
      return attn_fail(ATTN_ERROR_SHAPE, "%s: %s: the dimension is %lld, but must be at least %lld", signature->name,
                       check->message, (long long)whole, (long long)part);
  }
  for (int64_t i = 0; i < signature->range_count; ++i) {
    const attn_range *range = &signature->ranges[i];
    int64_t extent = 0;
    if (attn_evaluate(&range->size, sizes, 0, &extent) || extent > ATTN_MAX_EXTENT)
      return attn_fail(ATTN_ERROR_SIZE, "%s: the range %s of index `%s` would be too large: at most %lld is possible",
                       signature->name, range->size.text, range->index, (long long)ATTN_MAX_EXTENT);
  }
  return 0;
}
