//===- Tensor.cpp - A Python array as a DLTensor --------------------------===//

#include "Tensor.h"

#include "llvm/ADT/APFloat.h"

#include <cstring>
#include <limits>

namespace nb = nanobind;

namespace attn::python {
namespace {

struct NamedType {
  const char *name;
  DLDataType type;
};

constexpr NamedType namedTypes[] = {
    {"f64", {kDLFloat, 64, 1}},   {"f32", {kDLFloat, 32, 1}}, {"f16", {kDLFloat, 16, 1}},
    {"bf16", {kDLBfloat, 16, 1}}, {"i64", {kDLInt, 64, 1}},   {"i32", {kDLInt, 32, 1}},
    {"i8", {kDLInt, 8, 1}},       {"u8", {kDLUInt, 8, 1}},    {"bool", {kDLBool, 8, 1}},
};

constexpr uint8_t complexCode = 5; // DLPack's; no kernel has such tensors

std::string nameOf(DLDataType type) {
  for (const NamedType &named : namedTypes)
    if (type.code == named.type.code && type.bits == named.type.bits && type.lanes == 1)
      return named.name;
  std::string kind = "dtype";
  if (type.code == kDLInt)
    kind = "i";
  else if (type.code == kDLUInt)
    kind = "u";
  else if (type.code == kDLFloat)
    kind = "f";
  else if (type.code == complexCode)
    kind = "c";
  return kind + std::to_string(type.bits);
}

template <typename T> uint64_t bitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

[[noreturn]] void doesNotFit(nb::handle value, const std::string &dtype) {
  throw nb::value_error((std::string(nb::str(value).c_str()) + " does not fit " + dtype).c_str());
}

uint64_t integerBits(nb::handle value, const std::string &dtype, DLDataType type) {
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid())
    throw nb::python_error();
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  bool isSigned = type.code == kDLInt;
  int64_t highest = std::numeric_limits<int64_t>::max() >> (64 - type.bits + (isSigned ? 0 : -1));
  int64_t lowest = isSigned ? -highest - 1 : 0;
  if (overflow || number < lowest || number > highest)
    doesNotFit(value, dtype);
  return bitsOf<int64_t>(number);
}

const llvm::fltSemantics &semanticsOf(DLDataType type) {
  if (type.code == kDLBfloat)
    return llvm::APFloat::BFloat();
  return type.bits == 64   ? llvm::APFloat::IEEEdouble()
         : type.bits == 32 ? llvm::APFloat::IEEEsingle()
                           : llvm::APFloat::IEEEhalf();
}

/// Rounded to the nearest: infinite, where it is beyond all numbers of the type.
uint64_t floatBits(nb::handle value, const std::string &dtype, DLDataType type) {
  double given = PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) // an integer beyond all doubles
      throw nb::python_error();
    PyErr_Clear();
    doesNotFit(value, dtype);
  }
  llvm::APFloat number(given);
  bool losesInformation = false;
  number.convert(semanticsOf(type), llvm::APFloat::rmNearestTiesToEven, &losesInformation);
  return number.bitcastToAPInt().getZExtValue();
}

} // namespace

DLDataType typeNamed(const std::string &name) {
  for (const NamedType &named : namedTypes)
    if (name == named.name)
      return named.type;
  throw nb::value_error(("unknown dtype '" + name + "'").c_str());
}

Tensor::Tensor(nb::handle array, bool writable, const std::string &dtype) {
  bool viewed = false;
  if (nb::ndarray<> mutableArray; writable) {
    viewed = nb::try_cast(array, mutableArray, false);
    keepAlive = nb::ndarray<nb::ro>(mutableArray);
  } else {
    viewed = nb::try_cast(array, keepAlive, false);
  }
  if (!viewed)
    throw nb::buffer_error(writable ? "it is read-only, or DLPack cannot view it" : "DLPack cannot view it");
  for (size_t dimension = 0; dimension < keepAlive.ndim(); ++dimension) {
    extents.push_back(static_cast<int64_t>(keepAlive.shape(dimension)));
    strides.push_back(keepAlive.stride(dimension));
  }
  nb::dlpack::dtype type = keepAlive.dtype();
  tensor.data = const_cast<void *>(static_cast<const void *>(keepAlive.data()));
  tensor.device = {static_cast<DLDeviceType>(keepAlive.device_type()), keepAlive.device_id()};
  tensor.ndim = static_cast<int32_t>(extents.size());
  tensor.dtype = dtype.empty() ? DLDataType{type.code, type.bits, type.lanes} : typeNamed(dtype);
}

Tensor Tensor::scalar(nb::handle value, const std::string &dtype) {
  DLDataType type = typeNamed(dtype);
  Tensor result;
  result.isScalar = true;
  result.tensor.device = {kDLCPU, 0};
  result.tensor.dtype = type;
  if (type.code == kDLBool) {
    if (!PyBool_Check(value.ptr()))
      throw nb::type_error("it must be True or False");
    result.scalarBits = value.is(nb::handle(Py_True));
  } else if (type.code == kDLInt || type.code == kDLUInt) {
    result.scalarBits = integerBits(value, dtype, type);
  } else {
    result.scalarBits = floatBits(value, dtype, type);
  }
  return result;
}

DLTensor Tensor::view() const {
  DLTensor result = tensor;
  if (isScalar)
    result.data = const_cast<uint64_t *>(&scalarBits);
  result.shape = const_cast<int64_t *>(extents.data());
  result.strides = const_cast<int64_t *>(strides.data());
  return result;
}

std::string Tensor::dtype() const { return nameOf(tensor.dtype); }

} // namespace attn::python
