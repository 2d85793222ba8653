//===- TestTensor.h - A DLTensor with memory of its own ---------*- C++ -*-===//

#ifndef ATTN_TEST_UNIT_TESTTENSOR_H
#define ATTN_TEST_UNIT_TESTTENSOR_H

#include "attn/Runtime/DLPack.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace attn {

/// The DLPack dtype of one of the language's names.
inline DLDataType dtypeOf(const std::string &name) {
  if (name == "bool")
    return {6, 8, 1}; // kDLBool
  if (name == "bf16")
    return {kDLBfloat, 16, 1};
  uint8_t code = name[0] == 'f' ? kDLFloat : name[0] == 'i' ? kDLInt : kDLUInt;
  return {code, uint8_t(std::stoi(name.substr(1))), 1};
}

/// A row-major tensor of zeros. `tensor` may be changed at will; its memory has room for `slack` more elements.
struct TestTensor {
  TestTensor(const std::string &dtype, std::vector<int64_t> extents, int64_t slack = 0) : shape(std::move(extents)) {
    int64_t count = 1;
    strides.resize(shape.size());
    for (size_t i = shape.size(); i-- > 0;) {
      strides[i] = count;
      count *= shape[i];
    }
    memory.resize((count + slack) + 1);
    tensor = {memory.data(), {kDLCPU, 0}, int32_t(shape.size()), dtypeOf(dtype), shape.data(), strides.data(), 0};
  }
  TestTensor(const TestTensor &) = delete;

  template <typename T> T *data() {
    return reinterpret_cast<T *>(static_cast<char *>(tensor.data) + tensor.byte_offset);
  }
  template <typename T> void fill(const std::vector<T> &values) {
    std::copy(values.begin(), values.end(), data<T>());
  }
  /// Bytes that tell whether anything was written.
  void fillPattern() { std::memset(memory.data(), 0x5A, memory.size() * sizeof(uint64_t)); }
  bool hasPattern() const {
    for (uint64_t word : memory)
      if (word != 0x5A5A5A5A5A5A5A5Au)
        return false;
    return true;
  }

  std::vector<int64_t> shape, strides;
  std::vector<uint64_t> memory;
  DLTensor tensor;
};

} // namespace attn

#endif // ATTN_TEST_UNIT_TESTTENSOR_H
