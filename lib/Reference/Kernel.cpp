//===- Kernel.cpp - Runs the graph ops one after the other ----------------===//

#include "attn/Reference/Reference.h"

#include "Program.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace attn;
using namespace attn::reference;
using llvm::ArrayRef;
using llvm::Error;
using llvm::Expected;
using mlir::Type;
using mlir::Value;

int64_t ReferenceTensor::elementCount() const {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

Expected<int64_t> Environment::evaluate(SizeAttr size) const {
  std::optional<int64_t> value = size.evaluate(sizes);
  if (!value)
    return llvm::createStringError(
        llvm::formatv("size {0} cannot be computed: it divides by zero or overflows", size.str()).str());
  return *value;
}

Expected<int64_t> Environment::extent(SizeAttr size) const {
  Expected<int64_t> value = evaluate(size);
  if (value && *value < 0)
    return llvm::createStringError(llvm::formatv("size {0} is negative: {1}", size.str(), *value).str());
  return value;
}

Expected<std::vector<int64_t>> Environment::evaluate(AttnTensorType type) const {
  std::vector<int64_t> shape;
  int64_t count = sizeof(Cell);
  for (SizeAttr size : type.getShape()) {
    Expected<int64_t> dimension = extent(size);
    if (!dimension)
      return dimension.takeError();
    shape.push_back(*dimension);
    if (*dimension != 0 && llvm::MulOverflow(count, *dimension, count))
      return llvm::createStringError(llvm::formatv("a tensor of type {0} has too many elements", type).str());
  }
  return shape;
}

namespace {

/// Runs one kernel: holds the tensors defined so far.
class KernelRun {
public:
  KernelRun(KernelOp kernel, llvm::StringMap<int64_t> sizes) : kernel(kernel) { environment.sizes = std::move(sizes); }

  Error readInputs(ArrayRef<ReferenceTensor> inputs);
  Error runDefinitions();
  std::vector<ReferenceTensor> outputs();

private:
  void define(Value value, Tensor tensor);
  Error run(DefinitionOpInterface op);
  Error run(SoftmaxOp op);

  KernelOp kernel;
  Environment environment;
  std::vector<std::unique_ptr<Tensor>> tensors;
};

void KernelRun::define(Value value, Tensor tensor) {
  Type element = llvm::cast<AttnTensorType>(value.getType()).getElementType();
  if (Operation store = findStorage(element))
    for (Cell &value : tensor.cells)
      value = store(value, {}, {}, {});
  tensors.push_back(std::make_unique<Tensor>(std::move(tensor)));
  environment.tensors[value] = tensors.back().get();
}

Error KernelRun::readInputs(ArrayRef<ReferenceTensor> inputs) {
  for (auto [index, input] : llvm::enumerate(inputs)) {
    if (static_cast<int64_t>(input.values.size()) != input.elementCount())
      return llvm::createStringError(llvm::formatv("{0}: has {1} values, but must have {2} for its shape",
                                                   kernel.getParameterName(index), input.values.size(),
                                                   input.elementCount())
                                         .str());
    Type scalar = kernel.getParameterType(index).getComputeType();
    Tensor tensor{input.shape, {}};
    tensor.cells.reserve(input.values.size());
    for (double value : input.values) {
      if (llvm::isa<mlir::FloatType>(scalar))
        tensor.cells.push_back(cell(value));
      else if (scalar.isSignlessInteger(1))
        tensor.cells.push_back(cell(static_cast<int64_t>(value != 0)));
      else // the largest integers are 2^63 as doubles
        tensor.cells.push_back(cell(value < 0x1p63 ? static_cast<int64_t>(value) : INT64_MAX));
    }
    define(kernel.getParameters()[index], std::move(tensor));
  }
  return Error::success();
}

Error KernelRun::runDefinitions() {
  for (mlir::Operation &op : kernel.getBody().front().without_terminator()) {
    // What is neither is a scalar, which the definitions that use it compile.
    Error failed = llvm::TypeSwitch<mlir::Operation *, Error>(&op)
                       .Case([&](SoftmaxOp softmax) { return run(softmax); })
                       .Case([&](DefinitionOpInterface definition) { return run(definition); })
                       .Default([](mlir::Operation *) { return Error::success(); });
    if (failed)
      return failed;
  }
  return Error::success();
}

Error KernelRun::run(DefinitionOpInterface op) {
  Value defined = op.getDefinedTensor();
  Expected<std::vector<int64_t>> shape = environment.evaluate(llvm::cast<AttnTensorType>(defined.getType()));
  if (!shape)
    return shape.takeError();
  Expected<Program> program = compileDefinition(op, environment);
  if (!program)
    return program.takeError();
  define(defined, {*shape, evaluate(*program, *shape)});
  return Error::success();
}

Error KernelRun::run(SoftmaxOp op) {
  const Tensor &score = *environment.tensors.lookup(op.getScore());
  const Tensor *mask = op.getMask() ? environment.tensors.lookup(op.getMask()) : nullptr;
  const Tensor *sink = op.getSink() ? environment.tensors.lookup(op.getSink()) : nullptr;
  int64_t keys = score.shape.back(), rows = 1;
  Tensor weight{score.shape, {}}, logSumExp{score.shape, {}};
  logSumExp.shape.pop_back();
  for (int64_t extent : logSumExp.shape)
    rows *= extent;
  std::vector<double> left;
  for (int64_t row = 0; row < rows; ++row) {
    auto kept = [&](int64_t key) { return !mask || mask->cells[row * keys + key].integer; };
    left.clear();
    for (int64_t key = 0; key < keys; ++key)
      if (kept(key))
        left.push_back(score.cells[row * keys + key].real);
    SoftmaxRow softmax = SoftmaxRow::over(left, sink ? std::optional(sink->cells[row].real) : std::nullopt);
    for (int64_t key = 0; key < keys; ++key)
      weight.cells.push_back(cell(kept(key) ? softmax.weight(score.cells[row * keys + key].real) : 0.0));
    logSumExp.cells.push_back(cell(softmax.logSumExp()));
  }
  define(op.getWeight(), std::move(weight));
  define(op.getLogsumexp(), std::move(logSumExp));
  return Error::success();
}

std::vector<ReferenceTensor> KernelRun::outputs() {
  std::vector<ReferenceTensor> results;
  ReturnOp returned = kernel.getReturn();
  for (auto [index, value] : llvm::enumerate(returned.getOutputs())) {
    const Tensor &tensor = *environment.tensors.lookup(value);
    Type scalar = llvm::cast<AttnTensorType>(value.getType()).getComputeType();
    Type stored = returned.getOutputType(index).getElementType();
    ReferenceTensor &result = results.emplace_back();
    result.shape = tensor.shape;
    result.values.reserve(tensor.cells.size());
    bool real = llvm::isa<mlir::FloatType>(scalar);
    Operation store = real ? nullptr : findStorage(stored);
    for (Cell value : tensor.cells)
      result.values.push_back(real ? value.real
                                   : static_cast<double>((store ? store(value, {}, {}, {}) : value).integer));
  }
  return results;
}

} // namespace

Expected<std::vector<ReferenceTensor>> attn::runReference(KernelOp kernel, ArrayRef<ReferenceTensor> inputs) {
  std::vector<std::vector<int64_t>> shapes;
  for (const ReferenceTensor &input : inputs)
    shapes.push_back(input.shape);
  Expected<llvm::StringMap<int64_t>> sizes = bindSizes(kernel, shapes);
  if (!sizes)
    return sizes.takeError();
  KernelRun run(kernel, std::move(*sizes));
  if (Error failed = run.readInputs(inputs))
    return std::move(failed);
  if (Error failed = run.runDefinitions())
    return std::move(failed);
  return run.outputs();
}
