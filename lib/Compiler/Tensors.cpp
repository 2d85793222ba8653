//===- Tensors.cpp - Between DLTensors and the reference's doubles --------===//

#include "Tensors.h"

#include "llvm/ADT/APFloat.h"
#include <cstring>

using namespace attn;

template <typename T> static double readAs(const char *element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return double(value);
}

template <typename T, typename Value> static void writeAs(char *element, Value value) {
  T stored = T(value);
  std::memcpy(element, &stored, sizeof stored);
}

static double readHalf(const char *element, const llvm::fltSemantics &semantics) {
  return llvm::APFloat(semantics, llvm::APInt(16, readAs<uint16_t>(element))).convertToDouble();
}

/// By way of f32, as kernels do: they compute in f32 and round when they store.
static void writeHalf(char *element, double value, const llvm::fltSemantics &semantics) {
  llvm::APFloat number{float(value)};
  bool losesInformation;
  number.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &losesInformation);
  uint16_t bits = number.bitcastToAPInt().getZExtValue();
  std::memcpy(element, &bits, sizeof bits);
}

static double readElement(DLDataType dtype, const char *element) {
  switch (dtype.code) {
  case kDLFloat:
    return dtype.bits == 64   ? readAs<double>(element)
           : dtype.bits == 32 ? readAs<float>(element)
                              : readHalf(element, llvm::APFloat::IEEEhalf());
  case kDLBfloat:
    return readHalf(element, llvm::APFloat::BFloat());
  case kDLInt:
    return dtype.bits == 64   ? readAs<int64_t>(element)
           : dtype.bits == 32 ? readAs<int32_t>(element)
                              : readAs<int8_t>(element);
  default: // u8 and bool
    return readAs<uint8_t>(element);
  }
}

static void writeElement(DLDataType dtype, char *element, double value) {
  switch (dtype.code) {
  case kDLFloat:
    return dtype.bits == 64   ? writeAs<double>(element, value)
           : dtype.bits == 32 ? writeAs<float>(element, value)
                              : writeHalf(element, value, llvm::APFloat::IEEEhalf());
  case kDLBfloat:
    return writeHalf(element, value, llvm::APFloat::BFloat());
  case kDLInt: { // Through i64: narrowing an integer wraps around, narrowing a double would be undefined.
    int64_t whole = value < 0x1p63 ? int64_t(value) : INT64_MAX; // which is 2^63 as a double
    return dtype.bits == 64   ? writeAs<int64_t>(element, whole)
           : dtype.bits == 32 ? writeAs<int32_t>(element, whole)
                              : writeAs<int8_t>(element, whole);
  }
  default:
    return writeAs<uint8_t>(element, int64_t(value));
  }
}

/// Calls `visit` with the address of each element in row-major order.
template <typename Visit> static void forEachElement(const DLTensor &tensor, Visit visit) {
  int64_t count = 1;
  std::vector<int64_t> strides(tensor.ndim), index(tensor.ndim, 0);
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    strides[i] = tensor.strides ? tensor.strides[i] : count;
    count *= tensor.shape[i];
  }
  char *data = static_cast<char *>(tensor.data) + tensor.byte_offset;
  for (int64_t done = 0; done < count; ++done) {
    int64_t offset = 0;
    for (int i = 0; i < tensor.ndim; ++i)
      offset += index[i] * strides[i];
    visit(data + offset * (tensor.dtype.bits / 8));
    for (int i = tensor.ndim - 1; i >= 0 && ++index[i] == tensor.shape[i]; --i)
      index[i] = 0;
  }
}

ReferenceTensor attn::readTensor(const DLTensor &tensor) {
  ReferenceTensor result;
  result.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  forEachElement(tensor, [&](char *element) { result.values.push_back(readElement(tensor.dtype, element)); });
  return result;
}

void attn::writeTensor(const ReferenceTensor &values, const DLTensor &tensor) {
  auto value = values.values.begin();
  forEachElement(tensor, [&](char *element) { writeElement(tensor.dtype, element, *value++); });
}
