/*===- Error.c - The last error of a thread -------------------------------===*/

#include "Internal.h"

static __thread char message[1024];

const char *attn_last_error(void) { return message; }

void attn_clear_error(void) { message[0] = 0; }

int attn_fail(int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return code;
}

/* Takes the place of Halide's own, which prints and aborts. */
void halide_error(void *context, const char *text) {
  (void)context;
  attn_fail(ATTN_ERROR_KERNEL, "%s", text);
}
