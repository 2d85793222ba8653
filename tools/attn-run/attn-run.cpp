//===- attn-run.cpp - Runs a kernel on arrays -----------------------------===//
//
// Compiles, makes the inputs, runs, and then prints, stores, checks or times. Everything goes through the public
// interface, attn/Compiler/Compiler.h.
//
//===----------------------------------------------------------------------===//

#include "Inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>

using namespace attn;
using namespace attn::run;

namespace {

std::string readText(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Failure(fmt::format("{}: {}", path, std::strerror(errno)));
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Arrays and the views of them that a kernel takes.
class Tensors {
public:
  explicit Tensors(std::vector<std::optional<Array>> given) : arrays(std::move(given)), views(arrays.size()) {
    for (size_t index = 0; index < arrays.size(); ++index)
      if (arrays[index])
        views[index] = arrays[index]->tensor();
  }

  /// Null where a scalar has its default.
  template <typename Pointer> std::vector<Pointer> pointers() {
    std::vector<Pointer> result;
    for (size_t index = 0; index < arrays.size(); ++index)
      result.push_back(arrays[index] ? &views[index] : nullptr);
    return result;
  }

  const Array &operator[](size_t index) const { return *arrays[index]; }

private:
  std::vector<std::optional<Array>> arrays;
  std::vector<DLTensor> views;
};

Tensors makeOutputs(const Kernel &kernel, const std::vector<std::vector<int64_t>> &shapes) {
  std::vector<std::optional<Array>> arrays;
  for (size_t index = 0; index < shapes.size(); ++index)
    arrays.emplace_back(Array(ElementType::named(kernel.outputs()[index].dtype), shapes[index]));
  return Tensors(std::move(arrays));
}

/// Prints the median of half a second of runs.
void time(const Kernel &kernel, Tensors &inputs, Tensors &outputs) {
  using Clock = std::chrono::steady_clock;
  auto arguments = inputs.pointers<const DLTensor *>();
  auto results = outputs.pointers<DLTensor *>();
  std::vector<double> seconds;
  for (double total = 0; total < 0.5 || seconds.size() < 3; total += seconds.back()) {
    Clock::time_point start = Clock::now();
    kernel.run(arguments, results);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  fmt::print("time: {:.4g} ms, the median of {} runs\n", seconds[seconds.size() / 2] * 1e3, seconds.size());
}

/// Whether every output is within its tolerance of the reference.
bool check(const Kernel &kernel, Tensors &inputs, Tensors &outputs, const std::vector<std::vector<int64_t>> &shapes,
           std::optional<double> tolerance) {
  Tensors expected = makeOutputs(kernel, shapes);
  kernel.reference(inputs.pointers<const DLTensor *>(), expected.pointers<DLTensor *>());
  bool passed = true;
  for (size_t index = 0; index < shapes.size(); ++index) {
    Comparison comparison = compare(outputs[index], expected[index]);
    double allowed = tolerance.value_or(defaultTolerance(outputs[index].type()));
    bool ok = comparison.error <= allowed;
    passed &= ok;
    fmt::print("check: {}: {}, tolerance {:.2g}: {}\n", kernel.outputs()[index].name,
               comparison.describe(outputs[index], expected[index]), allowed, ok ? "passed" : "FAILED");
  }
  return passed;
}

void storeOrPrint(const Kernel &kernel, Tensors &outputs, const Arguments &arguments) {
  bool print = arguments.outputs.empty() && !arguments.check && !arguments.time;
  for (size_t index = 0; index < kernel.outputs().size(); ++index) {
    const TensorInfo &output = kernel.outputs()[index];
    if (print)
      fmt::print("{}: {}{}\n{}\n", output.name, output.dtype, printShape(outputs[index].shape()),
                 printArray(outputs[index]));
    auto path = arguments.outputs.find(output.name);
    if (path == arguments.outputs.end())
      continue;
    writeNpy(path->second, outputs[index]);
    if (output.dtype == "bf16")
      fmt::print(stderr, "attn-run: note: {} holds the bits of bf16 as u2, because NumPy has no bf16\n", path->second);
  }
}

int runTool(const std::vector<std::string> &words) {
  Arguments arguments = parseArguments(words);
  if (arguments.help) {
    fmt::print("{}", helpText);
    return 0;
  }
  if (arguments.threads)
    setNumThreads(*arguments.threads);
  Kernel kernel = compileLazily(readText(arguments.specification), arguments.options);
  checkOutputNames(kernel.outputs(), arguments);
  Tensors inputs(makeInputs(kernel.inputs(), arguments));
  std::vector<std::vector<int64_t>> shapes = kernel.outputShapes(inputs.pointers<const DLTensor *>());
  Tensors outputs = makeOutputs(kernel, shapes);
  kernel.run(inputs.pointers<const DLTensor *>(), outputs.pointers<DLTensor *>());

  storeOrPrint(kernel, outputs, arguments);
  bool passed = !arguments.check || check(kernel, inputs, outputs, shapes, arguments.tolerance);
  if (arguments.time)
    time(kernel, inputs, outputs);
  return passed ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
  try {
    return runTool(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const CompileError &error) {
    fmt::print(stderr, "{}", error.report("attn-run"));
  } catch (const std::exception &error) {
    fmt::print(stderr, "attn-run: error: {}\n", error.what());
  }
  return 1;
}
