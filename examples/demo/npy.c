/*===- npy.c - Reads and writes NumPy's .npy files ------------------------===*
 *
 * A file is the magic "\x93NUMPY", two version bytes, the header's length (2 bytes in version 1, 4 in version 2), the
 * header, which is a Python dict as text, and the elements.
 *
 *===----------------------------------------------------------------------===*/

#include "npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t npy_count(const npy_array *array) {
  int64_t count = 1;
  for (int i = 0; i < array->rank; ++i)
    count *= array->shape[i];
  return count;
}

static int complain(const char *path, const char *what) {
  fprintf(stderr, "%s: %s\n", path, what);
  return 1;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (2, 10, 4), } */
static int parse_header(const char *path, const char *header, npy_array *array) {
  if (strstr(header, "'<f4'"))
    array->kind = 'f';
  else if (strstr(header, "'<i4'"))
    array->kind = 'i';
  else
    return complain(path, "the elements must be float32 or int32");
  if (!strstr(header, "'fortran_order': False"))
    return complain(path, "the array must be row-major");
  const char *text = strstr(header, "'shape': (");
  if (!text)
    return complain(path, "the header has no shape");
  text += strlen("'shape': (");
  array->rank = 0;
  for (;;) {
    char *end;
    long long extent = strtoll(text, &end, 10);
    if (end == text)
      return 0;
    if (array->rank == NPY_MAX_RANK)
      return complain(path, "the array has too many dimensions");
    array->shape[array->rank++] = extent;
    text = end + strspn(end, ", ");
  }
}

static int read_file(FILE *file, const char *path, npy_array *array) {
  unsigned char start[12];
  if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0)
    return complain(path, "is not an .npy file");
  size_t length = start[8] | (size_t)start[9] << 8;
  if (start[6] > 1) {
    if (fread(start + 10, 1, 2, file) != 2)
      return complain(path, "ends in its header");
    length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
  }
  char *header = calloc(length + 1, 1);
  int failed = !header || fread(header, 1, length, file) != length || parse_header(path, header, array);
  free(header);
  if (failed)
    return complain(path, "its header cannot be read");
  size_t count = (size_t)npy_count(array);
  array->data = malloc(4 * count + 1);
  if (!array->data || fread(array->data, 4, count, file) != count) {
    free(array->data);
    return complain(path, "has fewer elements than its shape says");
  }
  return 0;
}

int npy_read(const char *path, npy_array *array) {
  FILE *file = fopen(path, "rb");
  if (!file)
    return complain(path, "cannot be opened");
  int failed = read_file(file, path, array);
  fclose(file);
  return failed;
}

int npy_write(const char *path, const npy_array *array) {
  char header[256];
  int length = snprintf(header, sizeof header, "{'descr': '<%c4', 'fortran_order': False, 'shape': (", array->kind);
  for (int i = 0; i < array->rank; ++i)
    length += snprintf(header + length, sizeof header - (size_t)length, "%lld,", (long long)array->shape[i]);
  length += snprintf(header + length, sizeof header - (size_t)length, "), }");
  while ((10 + length + 1) % 64 != 0) /* the elements begin at a multiple of 64 bytes */
    header[length++] = ' ';
  header[length++] = '\n';

  FILE *file = fopen(path, "wb");
  if (!file)
    return complain(path, "cannot be written");
  unsigned char start[10] = {
      0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(length & 255), (unsigned char)(length >> 8)};
  size_t count = (size_t)npy_count(array);
  int failed = fwrite(start, 1, 10, file) != 10 || fwrite(header, 1, (size_t)length, file) != (size_t)length ||
               fwrite(array->data, 4, count, file) != count;
  failed |= fclose(file) != 0;
  return failed ? complain(path, "cannot be written") : 0;
}
