//===- Exchange.cpp - Arrays through DLPack's C exchange ------------------===//

#include "Exchange.h"

#include "CudaStream.h"
#include "Tensor.h"

#include <memory>
#include <vector>

namespace nb = nanobind;

namespace attn::python {
namespace {

//===----------------------------------------------------------------------===//
// DLPack's structs, as of 1.2
//===----------------------------------------------------------------------===//

struct Version {
  uint32_t major, minor;
};

struct ManagedTensor {
  Version version;
  void *manager;
  void (*deleter)(ManagedTensor *self);
  uint64_t flags;
  DLTensor tensor;
};

using SetError = void (*)(void *context, const char *kind, const char *message);

struct ExchangeTable {
  Version version;
  ExchangeTable *previous;
  int (*allocate)(DLTensor *prototype, ManagedTensor **out, void *context, SetError setError);
  int (*exportManaged)(void *object, ManagedTensor **out);
  int (*import)(ManagedTensor *tensor, void **object);
  int (*view)(void *object, DLTensor *out);
  int (*currentStream)(DLDeviceType device, int32_t id, void **stream);
};

constexpr uint32_t majorVersion = 1;

//===----------------------------------------------------------------------===//
// A type's table
//===----------------------------------------------------------------------===//

struct ExchangingType {
  nb::object type;
  const ExchangeTable *table = nullptr; ///< Null: it has none.
  bool hasGradients = false;            ///< Its arrays are PyTorch's, with `requires_grad` and `is_neg`.
};

/// Of the type that was asked for last: nearly always the same one.
const ExchangingType &exchangingType(nb::handle type) {
  static ExchangingType &last = *new ExchangingType; // outlives the interpreter
  if (last.type.is(type))
    return last;
  last = {nb::borrow(type)};
  // Of its own, not of a base: the functions are for this type's objects.
  nb::object attributes = type.attr("__dict__");
  if (!nb::cast<bool>(attributes.attr("__contains__")("__dlpack_c_exchange_api__")))
    return last;
  nb::object capsule = type.attr("__dlpack_c_exchange_api__");
  auto *table = static_cast<ExchangeTable *>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (!table)
    PyErr_Clear();
  while (table && table->version.major > majorVersion)
    table = table->previous;
  if (table && table->version.major == majorVersion)
    last.table = table;
  last.hasGradients = nb::hasattr(type, "requires_grad") && nb::hasattr(type, "is_neg");
  return last;
}

/// Whether the elements are not what DLPack says of them: they have gradients, or are yet to be negated.
bool hasMoreToIt(nb::handle array) {
  return nb::cast<bool>(array.attr("requires_grad")) || nb::cast<bool>(array.attr("is_neg")());
}

//===----------------------------------------------------------------------===//
// Outputs
//===----------------------------------------------------------------------===//

struct Delete {
  void operator()(ManagedTensor *tensor) const {
    if (tensor->deleter)
      tensor->deleter(tensor);
  }
};
using Output = std::unique_ptr<ManagedTensor, Delete>;

Output allocate(const ExchangeTable &table, const TensorInfo &info, DLDevice device, std::vector<int64_t> &shape) {
  DLTensor prototype = {};
  prototype.device = device;
  prototype.ndim = static_cast<int32_t>(shape.size());
  prototype.dtype = typeNamed(info.dtype);
  prototype.shape = shape.data();
  std::string reason;
  ManagedTensor *output = nullptr;
  auto setError = [](void *text, const char *, const char *message) { *static_cast<std::string *>(text) = message; };
  if (table.allocate(&prototype, &output, &reason, setError))
    throw RunError(ATTN_ERROR_MEMORY, info.name + ": cannot be allocated: " + reason);
  return Output(output);
}

nb::object import(const ExchangeTable &table, Output output) {
  void *object = nullptr;
  if (table.import(output.release(), &object))
    throw nb::python_error();
  return nb::steal(static_cast<PyObject *>(object));
}

//===----------------------------------------------------------------------===//
// Devices
//===----------------------------------------------------------------------===//

/// Where the kernel is to run: where the first tensor is that is not in the CPU's memory.
DLDevice deviceOf(const std::vector<DLTensor> &tensors) {
  for (const DLTensor &tensor : tensors)
    if (tensor.ndim && tensor.device.device_type != kDLCPU)
      return tensor.device;
  return {kDLCPU, 0};
}

/// The stream that the library works on; nothing where the device is not CUDA's.
std::optional<CudaStream> currentStream(const ExchangeTable &table, DLDevice device) {
  void *stream = nullptr;
  if (device.device_type != kDLCUDA || !table.currentStream)
    return std::nullopt;
  if (table.currentStream(device.device_type, device.device_id, &stream))
    throw nb::python_error();
  return reinterpret_cast<CudaStream>(stream);
}

} // namespace

nb::object runExchanged(const Kernel &kernel, nb::tuple arrays) {
  size_t count = arrays.size();
  if (!count || count != kernel.inputs().size())
    return nb::none();
  const ExchangingType &type = exchangingType(arrays[0].type());
  if (!type.table)
    return nb::none();
  const ExchangeTable &table = *type.table;
  std::vector<DLTensor> views(count);
  std::vector<const DLTensor *> inputs(count);
  for (size_t i = 0; i < count; ++i) {
    nb::handle array = arrays[i];
    if (!array.type().is(type.type) || (type.hasGradients && hasMoreToIt(array)))
      return nb::none();
    if (table.view(array.ptr(), &views[i])) {
      PyErr_Clear();
      return nb::none();
    }
    inputs[i] = &views[i];
  }
  std::vector<std::vector<int64_t>> shapes;
  {
    nb::gil_scoped_release release; // the first call may compile the kernel
    shapes = kernel.outputShapes(inputs);
  }
  DLDevice device = deviceOf(views);
  std::optional<CudaStream> stream = currentStream(table, device);
  std::vector<Output> outputs;
  std::vector<DLTensor *> results;
  for (size_t i = 0; i < shapes.size(); ++i) {
    outputs.push_back(allocate(table, kernel.outputs()[i], device, shapes[i]));
    results.push_back(&outputs.back()->tensor);
  }
  {
    CudaStreamScope scope(stream);
    nb::gil_scoped_release release;
    kernel.run(inputs, results);
  }
  nb::list list;
  for (Output &output : outputs)
    list.append(import(table, std::move(output)));
  return list;
}

} // namespace attn::python
