/*===- Error.c - The last error of a thread -------------------------------===*/

#include "Internal.h"

/* Not static: what is local to a shared library is found through __tls_get_addr, which no library but the dynamic
 * linker has; what is not is found through a descriptor (MachineCode.cpp). */
__thread char attn_error_message[1024];

const char *attn_last_error(void) { return attn_error_message; }

void attn_clear_error(void) { attn_error_message[0] = 0; }

int attn_fail(int code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(attn_error_message, sizeof attn_error_message, format, arguments);
  va_end(arguments);
  return code;
}

/* Takes the place of Halide's own, which prints and aborts. */
void halide_error(void *context, const char *text) {
  (void)context;
  attn_fail(ATTN_ERROR_KERNEL, "%s", text);
}
