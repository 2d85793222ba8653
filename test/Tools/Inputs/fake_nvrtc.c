/* NVRTC for tests of what calls it: a libnvrtc.so.13 that knows two architectures and prints what it is asked for. Its
 * code is no code. FAKE_NVRTC=refuse: it finds an error in every text. FAKE_NVRTC=nothing: its code is empty. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char code[] = "code", message[] = "attn_causal.cu(1): error: this is refused\n";
static char program[64];

static int is(const char *mode) {
  const char *given = getenv("FAKE_NVRTC");
  return given && !strcmp(given, mode);
}

const char *nvrtcGetErrorString(int error) {
  (void)error;
  return "NVRTC_ERROR_COMPILATION";
}

int nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return 0;
}

int nvrtcGetNumSupportedArchs(int *count) {
  *count = 2;
  return 0;
}

int nvrtcGetSupportedArchs(int *capabilities) {
  capabilities[0] = 80;
  capabilities[1] = 90;
  return 0;
}

int nvrtcCreateProgram(char **created, const char *text, const char *name, int headers, const char *const *contents,
                       const char *const *names) {
  (void)headers;
  (void)contents;
  (void)names;
  snprintf(program, sizeof program, "%s", name);
  *created = program;
  return strstr(text, "void attention(") ? 0 : 1;
}

int nvrtcDestroyProgram(char **destroyed) {
  *destroyed = 0;
  return 0;
}

int nvrtcCompileProgram(char *compiled, int count, const char *const *options) {
  if (!is("refuse"))
    fprintf(stderr, "%s:", compiled);
  for (int i = 0; i < count && !is("refuse"); ++i)
    fprintf(stderr, " %s%s", options[i], i + 1 < count ? "" : "\n");
  return is("refuse") ? 6 : 0;
}

static int size(size_t *bytes, size_t given) {
  *bytes = is("nothing") ? 0 : given;
  return 0;
}

static int give(char *to, const char *from, size_t bytes) {
  memcpy(to, from, bytes);
  return 0;
}

int nvrtcGetProgramLogSize(char *compiled, size_t *bytes) { return size(bytes, compiled ? sizeof message : 0); }
int nvrtcGetProgramLog(char *compiled, char *to) { return give(to, message, compiled ? sizeof message : 0); }
int nvrtcGetCUBINSize(char *compiled, size_t *bytes) { return size(bytes, compiled ? sizeof code : 0); }
int nvrtcGetCUBIN(char *compiled, char *to) { return give(to, code, compiled && !is("nothing") ? sizeof code : 0); }
int nvrtcGetPTXSize(char *compiled, size_t *bytes) { return size(bytes, compiled ? sizeof code : 0); }
int nvrtcGetPTX(char *compiled, char *to) { return give(to, code, compiled && !is("nothing") ? sizeof code : 0); }
