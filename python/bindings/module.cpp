//===- module.cpp - The extension module attn._attn -----------------------===//
//
// A thin binding of attn/Compiler/Compiler.h; python/attn/kernel.py makes it pleasant. Whatever takes long releases
// the interpreter's lock.
//
//===----------------------------------------------------------------------===//

#include "CudaStream.h"
#include "Exchange.h"
#include "OpenMp.h"
#include "Tensor.h"
#include "attn/Compiler/Compiler.h"
#include "attn/Runtime/Runtime.h"
#include "tools/attnc/Command.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nb = nanobind;
using attn::Kernel;
using attn::python::Tensor;

namespace {

/// The arguments of a call as the compiler takes them; a null input is a scalar's default.
class Arguments {
public:
  explicit Arguments(const std::vector<const Tensor *> &tensors) {
    views.reserve(tensors.size());
    for (const Tensor *tensor : tensors) {
      views.push_back(tensor ? tensor->view() : DLTensor{});
      present.push_back(tensor != nullptr);
    }
  }

  std::vector<const DLTensor *> inputs() const {
    std::vector<const DLTensor *> result;
    for (size_t i = 0; i < views.size(); ++i)
      result.push_back(present[i] ? &views[i] : nullptr);
    return result;
  }

  std::vector<DLTensor *> outputs() {
    std::vector<DLTensor *> result;
    for (DLTensor &view : views)
      result.push_back(&view);
    return result;
  }

private:
  std::vector<DLTensor> views;
  std::vector<bool> present;
};

using Inputs = std::vector<std::optional<const Tensor *>>;

std::vector<const Tensor *> pointers(const Inputs &inputs) {
  std::vector<const Tensor *> result;
  for (const std::optional<const Tensor *> &input : inputs)
    result.push_back(input.value_or(nullptr));
  return result;
}

using Method = void (Kernel::*)(const std::vector<const DLTensor *> &, const std::vector<DLTensor *> &) const;

/// With a stream, on it; otherwise on the thread's own.
template <Method method>
void call(const Kernel &kernel, const Inputs &inputs, const std::vector<const Tensor *> &outputs,
          std::optional<attn::python::CudaStream> stream) {
  Arguments in(pointers(inputs));
  Arguments out(outputs);
  attn::python::CudaStreamScope scope(stream);
  nb::gil_scoped_release release;
  (kernel.*method)(in.inputs(), out.outputs());
}

std::vector<std::vector<int64_t>> outputShapes(const Kernel &kernel, const Inputs &inputs) {
  Arguments in(pointers(inputs));
  nb::gil_scoped_release release; // the first call may compile the kernel
  return kernel.outputShapes(in.inputs());
}

template <Kernel (*function)(std::string_view, const attn::CompileOptions &)>
Kernel compile(const std::string &source, const attn::CompileOptions &options) {
  nb::gil_scoped_release release;
  return function(source, options);
}

/// The object's bytes and the header's text.
nb::tuple compileToObject(const std::string &source, const attn::CompileOptions &options,
                          const std::string &headerName) {
  attn::ObjectFile file;
  {
    nb::gil_scoped_release release;
    file = attn::compileToObject(source, options, headerName);
  }
  return nb::make_tuple(nb::bytes(file.object.data(), file.object.size()), file.header);
}

/// attnc with the arguments of a command line, of which the first is the program's name.
int attnc(std::vector<std::string> arguments) {
  std::vector<char *> pointers;
  for (std::string &argument : arguments)
    pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  nb::gil_scoped_release release;
  return attn::attnc(int(arguments.size()), pointers.data());
}

nb::tuple info(const attn::TensorInfo &tensor) {
  nb::list shape;
  for (const std::string &size : tensor.shape)
    shape.append(size);
  return nb::make_tuple(tensor.name, tensor.dtype, nb::tuple(shape), tensor.defaultValue);
}

nb::list infos(const std::vector<attn::TensorInfo> &tensors) {
  nb::list result;
  for (const attn::TensorInfo &tensor : tensors)
    result.append(info(tensor));
  return result;
}

/// The Python exception that a caller expects for what a RunError says.
PyObject *exceptionType(int code) {
  switch (code) {
  case ATTN_ERROR_DTYPE:
  case ATTN_ERROR_COUNT:
    return PyExc_TypeError;
  case ATTN_ERROR_BOUNDS:
    return PyExc_IndexError;
  case ATTN_ERROR_MEMORY:
    return PyExc_MemoryError;
  case ATTN_ERROR_KERNEL:
  case ATTN_ERROR_NO_DEVICE:
    return PyExc_RuntimeError;
  default:
    return PyExc_ValueError;
  }
}

void translateRunError(const std::exception_ptr &exception, void *) {
  try {
    std::rethrow_exception(exception);
  } catch (const attn::RunError &error) {
    PyErr_SetString(exceptionType(error.code), error.what());
  }
}

} // namespace

NB_MODULE(_attn, module) {
  nb::set_leak_warnings(false); // kernels that are alive when the process ends are none
  nb::exception<attn::CompileError>(module, "CompileError", PyExc_Exception);
  nb::register_exception_translator(&translateRunError);

  nb::class_<Tensor>(module, "Tensor")
      .def(nb::init<nb::handle, bool, const std::string &>(), nb::arg("array"), nb::arg("writable"), nb::arg("dtype"))
      .def_static("scalar", &Tensor::scalar, nb::arg("value"), nb::arg("dtype"))
      .def_prop_ro("dtype", &Tensor::dtype)
      .def_prop_ro("rank", [](const Tensor &tensor) { return tensor.shape().size(); });

  nb::class_<Kernel>(module, "Kernel")
      .def_prop_ro("name", &Kernel::name)
      .def_prop_ro("inputs", [](const Kernel &kernel) { return infos(kernel.inputs()); })
      .def_prop_ro("outputs", [](const Kernel &kernel) { return infos(kernel.outputs()); })
      .def("run_exchanged", &attn::python::runExchanged, nb::arg("arrays"))
      .def("run", &call<&Kernel::run>, nb::arg("inputs"), nb::arg("outputs"), nb::arg("stream").none())
      .def("reference", &call<&Kernel::reference>, nb::arg("inputs"), nb::arg("outputs"), nb::arg("stream").none())
      .def("output_shapes", &outputShapes, nb::arg("inputs"))
      .def("emit", &Kernel::emit, nb::arg("stage"), nb::call_guard<nb::gil_scoped_release>());

  nb::class_<attn::CompileOptions>(module, "CompileOptions")
      .def(
          "__init__",
          [](attn::CompileOptions *options, const std::string &name, const std::string &kernel,
             const std::string &target, const std::map<std::string, int64_t> &sizes, const std::string &dtype,
             bool checkBounds, bool countChunks, bool copy, const std::optional<std::map<std::string, int64_t>> &plan,
             const std::optional<std::vector<std::string>> &gradient) {
            new (options) attn::CompileOptions{kernel,      target,      sizes,    dtype, name,
                                               checkBounds, countChunks, gradient, copy,  plan};
          },
          nb::kw_only(), nb::arg("name"), nb::arg("kernel"), nb::arg("target"), nb::arg("sizes"), nb::arg("dtype"),
          nb::arg("check_bounds"), nb::arg("count_chunks"), nb::arg("copy"), nb::arg("plan").none(),
          nb::arg("gradient").none());

  module.def("compile", &compile<&attn::compile>, nb::arg("source"), nb::arg("options"));
  module.def("compile_lazily", &compile<&attn::compileLazily>, nb::arg("source"), nb::arg("options"));
  module.def("compile_to_object", &compileToObject, nb::arg("source"), nb::arg("options"), nb::arg("header_name"));
  module.def("attnc", &attnc, nb::arg("arguments"));
  module.def("set_num_threads", &attn::setNumThreads, nb::arg("threads"));
  module.def("use_openmp", &attn::python::useOpenMp);
  module.def("cuda_stream", &attn::python::cudaStream);
  module.def("set_cuda_stream", &attn::python::setCudaStream, nb::arg("stream"));
}
