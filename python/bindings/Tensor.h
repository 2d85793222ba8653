//===- Tensor.h - A Python array as a DLTensor ------------------*- C++ -*-===//
//
// Inputs and outputs reach a kernel through DLPack, so no element is copied.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_PYTHON_BINDINGS_TENSOR_H
#define ATTN_PYTHON_BINDINGS_TENSOR_H

#include "attn/Runtime/DLPack.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <string>
#include <vector>

namespace attn::python {

/// The type with this name: "f32". Throws ValueError for an unknown name.
DLDataType typeNamed(const std::string &name);

/// A view of an array that keeps it alive, or the value of a scalar.
class Tensor {
public:
  /// Views `array`: anything with `__dlpack__` or the buffer protocol. `dtype`, where not empty, is what its elements
  /// are read as, for dtypes that the array's own library cannot export (NumPy and bf16).
  /// Throws BufferError where the array cannot be viewed, or is read-only and `writable`.
  Tensor(nanobind::handle array, bool writable, const std::string &dtype);
  /// A tensor of rank 0. Throws ValueError where `value` does not fit `dtype`, TypeError where it is not such a number.
  static Tensor scalar(nanobind::handle value, const std::string &dtype);

  Tensor(Tensor &&) = default;

  /// Valid as long as this object.
  DLTensor view() const;
  /// f64 f32 f16 bf16 i64 i32 i8 u8 bool, or DLPack's name for another ("c64").
  std::string dtype() const;
  const std::vector<int64_t> &shape() const { return extents; }

private:
  Tensor() = default;

  nanobind::ndarray<nanobind::ro> keepAlive;
  std::vector<int64_t> extents;
  std::vector<int64_t> strides;
  uint64_t scalarBits = 0; ///< What `data` points to where `isScalar`.
  bool isScalar = false;
  DLTensor tensor = {};
};

} // namespace attn::python

#endif // ATTN_PYTHON_BINDINGS_TENSOR_H
