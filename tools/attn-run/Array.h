//===- Array.h - Arrays of attn-run -----------------------------*- C++ -*-===//
//
// A dense row-major array that owns its bytes, and what attn-run does with one: read and write .npy files, draw random
// numbers, print, compare.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TOOLS_ATTNRUN_ARRAY_H
#define ATTN_TOOLS_ATTNRUN_ARRAY_H

#include "attn/Runtime/DLPack.h"

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace attn::run {

/// What the user has to mend; `what()` is the message.
class Failure : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

enum class ElementKind : uint8_t { Float, Integer, Bool };

/// An element type: f64 f32 f16 bf16 i64 i32 i8 u8 bool.
struct ElementType {
  std::string_view name;
  ElementKind kind;
  size_t bytes;
  std::string_view descriptor; ///< Of NumPy, without the byte order; bf16, which it lacks, travels as u2.
  uint8_t code;                ///< Of DLPack.

  /// Throws Failure for a name that is none.
  static const ElementType &named(std::string_view name);
  /// The type with this NumPy descriptor (`f4`), or null.
  static const ElementType *described(std::string_view descriptor);
};

class Array {
public:
  /// Zeros. Throws Failure where the number of bytes overflows or there is no memory.
  Array(const ElementType &type, std::vector<int64_t> shape);

  const ElementType &type() const { return *elementType; }
  const std::vector<int64_t> &shape() const { return extents; }
  int64_t elementCount() const { return static_cast<int64_t>(storage.size() / elementType->bytes); }
  uint8_t *data() { return storage.data(); }
  const uint8_t *data() const { return storage.data(); }
  size_t byteCount() const { return storage.size(); }

  /// Element `number` in row-major order. i64 values beyond 2^53 lose their last bits.
  double get(int64_t number) const;
  /// Stores a value, rounded to nearest (ties to even) or, for integers, wrapped.
  void set(int64_t number, double value);
  void set(int64_t number, int64_t value);

  /// A view for a kernel; it lives as long as the array.
  DLTensor tensor();

private:
  const ElementType *elementType;
  std::vector<int64_t> extents;
  std::vector<uint8_t> storage;
};

/// `[2, 8, 128]`
std::string printShape(const std::vector<int64_t> &shape);

/// The array in the bytes of a .npy file (versions 1 to 3, C or Fortran order, little-endian). `name` stands in
/// messages. A u2 array becomes bf16. Throws Failure for anything else, naming what was found.
Array parseNpy(std::string_view bytes, const std::string &name);
Array readNpy(const std::string &path);
/// The bytes of a version 1 file in C order.
std::string formatNpy(const Array &array);
void writeNpy(const std::string &path, const Array &array);

/// Numbers to draw: uniform between the bounds, both included.
struct Range {
  double low;
  double high;
};

/// Fills the array with random numbers: floats are normal, bools fair, integers in `range`; with a range, floats are
/// uniform in it. The same seed gives the same numbers on every machine.
void fillRandom(Array &array, std::optional<Range> range, uint64_t seed);

/// The values as NumPy prints them, with `…` in dimensions longer than 6 when there are more than 1000.
std::string printArray(const Array &array);

/// The worst difference between a kernel's output and the reference's.
struct Comparison {
  double error = 0;   ///< Divided by the largest |reference| of the same row; plain where that is below 1e-30.
  int64_t number = 0; ///< Of the element.
  std::string describe(const Array &found, const Array &expected) const;
};

/// Compares arrays of the same type and shape. Equal infinities agree, and so do two NaNs; otherwise they differ by
/// infinity.
Comparison compare(const Array &found, const Array &expected);

/// The error that --check allows for an output of this type: 0 for integers and bools.
double defaultTolerance(const ElementType &type);

} // namespace attn::run

#endif // ATTN_TOOLS_ATTNRUN_ARRAY_H
