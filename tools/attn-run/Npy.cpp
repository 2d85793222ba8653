//===- Npy.cpp - NumPy's file format --------------------------------------===//
//
// "\x93NUMPY", the version's two bytes, the header's length (2 bytes little-endian, from version 2 on 4), the header,
// the data. The header is a Python dictionary literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
// Source: numpy.lib.format's documentation.
//
//===----------------------------------------------------------------------===//

#include "Array.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <iterator>

using namespace attn::run;

namespace {

/// Reads the header's dictionary; `text` shrinks as it goes.
class HeaderParser {
public:
  HeaderParser(std::string_view text, const std::string &name) : text(text), name(name) {}

  std::string descriptor;
  bool fortranOrder = false;
  std::vector<int64_t> shape;

  void parse() {
    bool seen[3] = {};
    expect('{');
    while (!accept('}')) {
      std::string key = parseString();
      expect(':');
      if (key == "descr")
        seen[0] = true, descriptor = parseString();
      else if (key == "fortran_order")
        seen[1] = true, fortranOrder = parseBool();
      else if (key == "shape")
        seen[2] = true, shape = parseShape();
      else
        throw Failure(fmt::format("{}: the header has the unknown key '{}'", name, key));
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    const char *const keys[] = {"descr", "fortran_order", "shape"};
    for (int key = 0; key < 3; ++key)
      if (!seen[key])
        throw Failure(fmt::format("{}: the header lacks '{}'", name, keys[key]));
  }

private:
  void skipSpace() {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\n' || text.front() == '\t'))
      text.remove_prefix(1);
  }

  bool accept(char wanted) {
    skipSpace();
    if (text.empty() || text.front() != wanted)
      return false;
    text.remove_prefix(1);
    return true;
  }

  [[noreturn]] void fail(std::string_view wanted) {
    skipSpace();
    std::string found = text.empty() ? "its end" : fmt::format("'{}'", text.substr(0, 16));
    throw Failure(fmt::format("{}: the header must have {} where {} is", name, wanted, found));
  }

  void expect(char wanted) {
    if (!accept(wanted))
      fail(fmt::format("'{}'", wanted));
  }

  std::string parseString() {
    skipSpace();
    char quote = text.empty() ? 0 : text.front();
    size_t end = quote == '\'' || quote == '"' ? text.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos)
      fail("a string");
    std::string result(text.substr(1, end - 1));
    text.remove_prefix(end + 1);
    return result;
  }

  bool parseBool() {
    skipSpace();
    for (bool value : {false, true}) {
      std::string_view word = value ? "True" : "False";
      if (text.substr(0, word.size()) == word) {
        text.remove_prefix(word.size());
        return value;
      }
    }
    fail("True or False");
  }

  std::vector<int64_t> parseShape() {
    std::vector<int64_t> result;
    expect('(');
    while (!accept(')')) {
      result.push_back(parseExtent());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return result;
  }

  int64_t parseExtent() {
    skipSpace();
    int64_t value = 0;
    size_t digits = 0;
    for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits)
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text[digits] - '0', &value))
        fail("a dimension below 2^63");
    if (digits == 0)
      fail("a dimension");
    text.remove_prefix(digits);
    accept('L'); // Python 2 wrote 3L
    return value;
  }

  std::string_view text;
  const std::string &name;
};

const ElementType &findType(const std::string &descriptor, const std::string &name) {
  std::string_view order = "|<=", text = descriptor;
  if (!text.empty() && text.front() == '>')
    throw Failure(fmt::format("{}: holds big-endian '{}'; only little-endian arrays can be read", name, descriptor));
  if (const ElementType *type = !text.empty() && order.find(text.front()) != std::string_view::npos
                                    ? ElementType::described(text.substr(1))
                                    : nullptr)
    return *type;
  throw Failure(
      fmt::format("{}: holds '{}'; only f8 f4 f2 i8 i4 i1 u1 b1 and u2 (for bf16) can be read", name, descriptor));
}

/// Copies elements in Fortran order (first index fastest) into row-major order.
void copyTransposed(const char *from, Array &array) {
  size_t bytes = array.type().bytes, rank = array.shape().size();
  std::vector<int64_t> index(rank);
  for (int64_t number = 0; number < array.elementCount(); ++number) {
    int64_t offset = 0;
    for (size_t axis = 0; axis < rank; ++axis)
      offset = offset * array.shape()[axis] + index[axis];
    std::memcpy(array.data() + offset * bytes, from + number * bytes, bytes);
    for (size_t axis = 0; axis < rank && ++index[axis] == array.shape()[axis]; ++axis)
      index[axis] = 0;
  }
}

} // namespace

Array attn::run::parseNpy(std::string_view bytes, const std::string &name) {
  if (bytes.substr(0, 6) != "\x93NUMPY")
    throw Failure(fmt::format("{}: is not a .npy file: it does not begin with \\x93NUMPY", name));
  if (bytes.size() < 8)
    throw Failure(fmt::format("{}: ends within the header", name));
  int major = static_cast<uint8_t>(bytes[6]), minor = static_cast<uint8_t>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0)
    throw Failure(
        fmt::format("{}: has the format version {}.{}; only 1.0, 2.0 and 3.0 can be read", name, major, minor));
  size_t lengthBytes = major == 1 ? 2 : 4, start = 8 + lengthBytes, length = 0;
  for (size_t byte = 0; byte < lengthBytes && 8 + byte < bytes.size(); ++byte)
    length |= static_cast<size_t>(static_cast<uint8_t>(bytes[8 + byte])) << (8 * byte);
  if (bytes.size() < start || bytes.size() - start < length)
    throw Failure(fmt::format("{}: ends within the header", name));

  HeaderParser header(bytes.substr(start, length), name);
  header.parse();
  std::string_view data = bytes.substr(start + length);
  const ElementType &type = findType(header.descriptor, name);
  // Compared before anything is allocated: a corrupt shape must not ask for all memory.
  uint64_t needed = type.bytes;
  bool overflow = false;
  for (int64_t extent : header.shape)
    overflow |= __builtin_mul_overflow(needed, static_cast<uint64_t>(extent), &needed);
  if (overflow || needed != data.size())
    throw Failure(fmt::format("{}: shape {} of {} needs {} bytes of data, but the file has {}", name,
                              printShape(header.shape), type.name, overflow ? "more than 2^64" : fmt::to_string(needed),
                              data.size()));

  Array array(type, header.shape);
  if (header.fortranOrder)
    copyTransposed(data.data(), array);
  else if (!data.empty())
    std::memcpy(array.data(), data.data(), data.size());
  if (type.kind == ElementKind::Bool)
    for (int64_t number = 0; number < array.elementCount(); ++number)
      array.data()[number] = array.data()[number] != 0;
  return array;
}

Array attn::run::readNpy(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Failure(fmt::format("{}: {}", path, std::strerror(errno)));
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (file.bad())
    throw Failure(fmt::format("{}: cannot be read", path));
  return parseNpy(bytes, path);
}

std::string attn::run::formatNpy(const Array &array) {
  std::string shape;
  for (int64_t extent : array.shape())
    shape += fmt::format("{},{}", extent, array.shape().size() == 1 ? "" : " ");
  if (array.shape().size() > 1)
    shape.resize(shape.size() - 2); // (2, 3), but (2,)
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                   array.type().bytes == 1 ? '|' : '<', array.type().descriptor, shape);
  // Padded so that the data begins at a multiple of 64 bytes, after a newline.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  bytes.append(reinterpret_cast<const char *>(array.data()), array.byteCount());
  return bytes;
}

void attn::run::writeNpy(const std::string &path, const Array &array) {
  std::string bytes = formatNpy(array);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file)
    throw Failure(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}
