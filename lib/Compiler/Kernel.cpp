//===- Kernel.cpp - Running a compiled kernel -----------------------------===//

#include "Kernel.h"

#include "Program.h"
#include "Tensors.h"
#include "attn/Runtime/Runtime.h"

#include <fmt/format.h>

using namespace attn;

std::string CompileError::report(std::string_view tool) const {
  std::string_view text = what(); // FILE:LINE:COLUMN: error: …, FILE: error: …
  bool hasPlace = text.substr(0, text.find('\n')).find(": error: ") != std::string_view::npos;
  return fmt::format("{}{}{}", hasPlace ? "" : fmt::format("{}: error: ", tool), text,
                     text.ends_with('\n') ? "" : "\n");
}

static std::vector<TensorInfo> publicInfo(const std::vector<TensorInterface> &tensors) {
  std::vector<TensorInfo> result;
  for (const TensorInterface &tensor : tensors) {
    TensorInfo &info = result.emplace_back(TensorInfo{tensor.name, tensor.dtype, {}, tensor.defaultValue});
    for (const SizeProgram &size : tensor.shape)
      info.shape.push_back(size.text);
  }
  return result;
}

Kernel::Implementation::Implementation(std::string source, CompileOptions options, KernelInterface interface, Load load)
    : source(std::move(source)), options(std::move(options)), declaration(std::move(interface), KernelPrograms()),
      inputs(publicInfo(declaration.getInterface().inputs)), outputs(publicInfo(declaration.getInterface().outputs)),
      load(std::move(load)) {}

const NativeSignature &Kernel::Implementation::loaded() const {
  std::call_once(once, [&] {
    llvm::Expected<KernelLibraries> result = std::exchange(load, nullptr)();
    if (!result) {
      error = llvm::toString(result.takeError());
      return;
    }
    libraries = std::move(*result);
    signature.emplace(declaration.getInterface(), libraries.programs());
  });
  if (!signature)
    throw CompileError(error);
  return *signature;
}

void Kernel::Implementation::complete() const {
  loaded();
  for (Library *library : {libraries.kernel.get(), libraries.checking.get()})
    if (llvm::Error error = library ? library->complete() : llvm::Error::success())
      throw CompileError(llvm::toString(std::move(error)));
}

Kernel::Kernel(std::shared_ptr<const Implementation> implementation) : implementation(std::move(implementation)) {}

const std::string &Kernel::name() const { return implementation->declaration.getInterface().name; }
const std::vector<TensorInfo> &Kernel::inputs() const { return implementation->inputs; }
const std::vector<TensorInfo> &Kernel::outputs() const { return implementation->outputs; }

static void check(int code) {
  if (code == Library::cannotCompile)
    throw CompileError(attn_last_error());
  if (code)
    throw RunError(code, attn_last_error());
}

static void checkCount(const std::string &kernel, const char *what, size_t found, size_t expected) {
  if (found != expected)
    throw RunError(ATTN_ERROR_COUNT, fmt::format("{}: {} {}{} given, but it has {}", kernel, found, what,
                                                 found == 1 ? "" : "s", expected));
}

void Kernel::run(const std::vector<const DLTensor *> &inputs, const std::vector<DLTensor *> &outputs) const {
  checkCount(name(), "input", inputs.size(), this->inputs().size());
  checkCount(name(), "output", outputs.size(), this->outputs().size());
  const NativeSignature &loaded = implementation->loaded();
  if (!loaded.get().program_count)
    throw RunError(ATTN_ERROR_KERNEL, fmt::format("{}: was compiled for {}, which this machine cannot run", name(),
                                                  implementation->options.target));
  llvm::SmallVector<const DLTensor *, 16> tensors(inputs.begin(), inputs.end());
  tensors.append(outputs.begin(), outputs.end());
  check(attn_invoke_checked(&loaded.get(), loaded.getBounds(), tensors.data()));
}

std::vector<std::vector<int64_t>> Kernel::outputShapes(const std::vector<const DLTensor *> &inputs) const {
  checkCount(name(), "input", inputs.size(), this->inputs().size());
  size_t total = 0;
  for (const TensorInfo &output : outputs())
    total += output.shape.size();
  std::vector<int64_t> extents(total);
  check(attn_output_shapes(&implementation->loaded().get(), inputs.data(), extents.data()));
  std::vector<std::vector<int64_t>> shapes;
  auto next = extents.begin();
  for (const TensorInfo &output : outputs()) {
    shapes.emplace_back(next, next + output.shape.size());
    next += output.shape.size();
  }
  return shapes;
}

/// Checks the arguments as a run does: of a declaration nothing runs.
static void checkArguments(const NativeSignature &declaration, const std::vector<const DLTensor *> &inputs,
                           const std::vector<DLTensor *> &outputs) {
  llvm::SmallVector<const DLTensor *, 16> tensors(inputs.begin(), inputs.end());
  tensors.append(outputs.begin(), outputs.end());
  check(attn_invoke(&declaration.get(), tensors.data()));
}

/// The reference's outputs, or what went wrong.
static llvm::Expected<std::vector<ReferenceTensor>> interpret(const std::string &source, const CompileOptions &options,
                                                              llvm::ArrayRef<ReferenceTensor> inputs) {
  Program program(source, options);
  if (llvm::Error error = program.parse())
    return error;
  llvm::Expected<KernelOp> kernel = program.onlyKernel();
  if (!kernel)
    return kernel.takeError();
  return runReference(*kernel, inputs);
}

void Kernel::reference(const std::vector<const DLTensor *> &inputs, const std::vector<DLTensor *> &outputs) const {
  checkCount(name(), "input", inputs.size(), this->inputs().size());
  checkCount(name(), "output", outputs.size(), this->outputs().size());
  checkArguments(implementation->declaration, inputs, outputs);
  std::vector<ReferenceTensor> values;
  for (size_t i = 0; i < inputs.size(); ++i)
    values.push_back(inputs[i] ? readTensor(*inputs[i]) : ReferenceTensor{{}, {*this->inputs()[i].defaultValue}});
  llvm::Expected<std::vector<ReferenceTensor>> results =
      interpret(implementation->source, implementation->options, values);
  if (!results)
    throw RunError(ATTN_ERROR_KERNEL, llvm::toString(results.takeError()));
  // Counts of chunks are outputs of the kernel only.
  for (size_t i = 0; i < outputs.size(); ++i)
    writeTensor(i < results->size() ? (*results)[i] : ReferenceTensor{{3}, {0., 0., 0.}}, *outputs[i]);
}

std::string Kernel::emit(const std::string &stage) const {
  return attn::emit(implementation->source, implementation->options, stage);
}
