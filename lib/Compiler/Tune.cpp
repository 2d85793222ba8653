//===- Tune.cpp - Finds a kernel's best plan by measuring ------------------===//
//
// One setting after the other: its values are measured beside the best plan so far, in turns, on all shapes. A value
// that changes no plan at the shapes is not measured.
//
//===----------------------------------------------------------------------===//

#include "attn/Compiler/Tune.h"

#include "Program.h"
#include "Tensors.h"
#include "TuningDatabase.h"
#include "attn/Plan/Settings.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <random>

using namespace attn;

namespace {

/// A plan takes the place of the best so far if its time is less by more than measurements differ.
constexpr double worthwhile = 0.97;
constexpr double shortestSample = 2e-3, longestMeasurement = 0.4; ///< Seconds.
constexpr unsigned fewestSamples = 5;

double median(std::vector<double> values) {
  auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void check(llvm::Error error) {
  if (error)
    throw CompileError(llvm::toString(std::move(error)));
}

template <typename T> T check(llvm::Expected<T> value) {
  check(value.takeError());
  return std::move(*value);
}

/// The tensors of a call at one shape.
class Call {
public:
  Call(const KernelInterface &interface, const TuneShape &shape) {
    int64_t largest = 1;
    for (const TensorInterface &input : interface.inputs)
      for (const SizeProgram &size : input.shape)
        largest = std::max(largest, extent(size));
    for (const TensorInterface &input : interface.inputs)
      if (input.shape.empty() && input.defaultValue && !shape.contains(input.name))
        inputs.push_back(nullptr);
      else
        inputs.push_back(random(input, shape, largest));
    for (const TensorInterface &output : interface.outputs)
      outputs.push_back(make(output));
  }

  void run(const Kernel &kernel) const { kernel.run(inputs, outputs); }

private:
  struct Storage {
    std::vector<int64_t> shape;
    std::vector<char> bytes;
    DLTensor tensor;
  };

  static int64_t extent(const SizeProgram &size) {
    if (size.code.size() != 1 || size.code[0].opcode != ATTN_PUSH_CONSTANT)
      throw std::invalid_argument(fmt::format("the shape lacks a size: it does not say what {} is", size.text));
    return size.code[0].operand;
  }

  DLTensor *make(const TensorInterface &interface) {
    auto storage = std::make_unique<Storage>();
    int64_t count = 1;
    for (const SizeProgram &size : interface.shape) {
      storage->shape.push_back(extent(size));
      count *= storage->shape.back();
    }
    storage->bytes.resize(count * interface.bits / 8);
    DLDataType type = {static_cast<uint8_t>(interface.code), static_cast<uint8_t>(interface.bits), 1};
    storage->tensor = {storage->bytes.data(),
                       {kDLCPU, 0},
                       static_cast<int>(storage->shape.size()),
                       type,
                       storage->shape.data(),
                       nullptr,
                       0};
    all.push_back(std::move(storage));
    return &all.back()->tensor;
  }

  DLTensor *random(const TensorInterface &interface, const TuneShape &shape, int64_t largest) {
    DLTensor *tensor = make(interface);
    ReferenceTensor values{all.back()->shape, {}};
    bool isFloat = interface.code == kDLFloat || interface.code == kDLBfloat;
    if (values.shape.empty()) {
      auto given = shape.find(interface.name);
      if (given == shape.end())
        throw std::invalid_argument(
            fmt::format("the shape lacks a value of the scalar {}: give it {}=INT", interface.name, interface.name));
      values.values.push_back(given->second);
    } else {
      std::normal_distribution<double> normal;
      std::uniform_int_distribution<int64_t> integer(interface.dtype == "bool" ? 0 : 1,
                                                     interface.dtype == "bool" ? 1 : largest);
      values.values.resize(values.elementCount());
      for (double &value : values.values)
        value = isFloat ? normal(generator) : integer(generator);
    }
    writeTensor(values, *tensor);
    return tensor;
  }

  std::mt19937_64 generator;
  std::vector<std::unique_ptr<Storage>> all;
  std::vector<const DLTensor *> inputs;
  std::vector<DLTensor *> outputs;
};

/// A shape to measure at: the kernel with its sizes fixed, whose plan says what a setting changes there.
struct Case {
  Case(std::string_view source, CompileOptions options, const TuneShape &shape) {
    Program dynamic(source, options);
    check(dynamic.parse());
    std::vector<TensorInterface> inputs = check(dynamic.interfaceOf(check(dynamic.onlyKernel()))).inputs;
    auto isScalar = [&](const std::string &name) {
      return llvm::any_of(inputs,
                          [&](const TensorInterface &input) { return input.shape.empty() && input.name == name; });
    };
    for (const auto &[name, value] : shape)
      if (!isScalar(name))
        options.sizes[name] = value;
    program = std::make_unique<Program>(source, options);
    check(program->parse());
    call.emplace(check(program->interfaceOf(check(program->onlyKernel()))), shape);
    check(program->simplify());
  }

  std::string planText(const PlanSettings &settings, const Machine &machine) const {
    std::string text;
    llvm::raw_string_ostream os(text);
    PlanOptions choice;
    choice.settings = settings;
    check(Plan::choose(program->kernels().front(), machine, choice)).print(os);
    return text;
  }

  std::unique_ptr<Program> program;
  std::optional<Call> call;
};

class Tuner {
public:
  Tuner(std::string_view source, const CompileOptions &options, const TuneOptions &tuning)
      : source(source), options(options), tuning(tuning), machine(check(machineForTarget("host"))) {
    for (const TuneShape &shape : tuning.shapes)
      cases.emplace_back(source, options, shape);
  }

  TuneResult run() {
    Kernel chosen = compiled({}), best = chosen;
    size_t total = 0, done = 0;
    for (const PlanSetting &setting : planSettings())
      total += setting.values.size();
    PlanSettings settings;
    for (const PlanSetting &setting : planSettings()) {
      std::optional<int64_t> found;
      for (int64_t value : setting.values) {
        if (tuning.progress)
          tuning.progress(done++, total, fmt::format("{} = {}", setting.name.str(), value));
        PlanSettings candidate = settings;
        candidate[setting.name.str()] = value;
        if (changesNothing(settings, candidate))
          continue;
        Kernel kernel = compiled(candidate);
        if (meanRatio(best, kernel) < worthwhile) {
          best = kernel;
          found = value;
        }
      }
      if (found)
        settings[setting.name.str()] = *found;
    }
    TuneResult result{settings, {}, {}};
    for (const Case &each : cases) {
      auto [before, after] = measure(each, chosen, best);
      result.chosen.push_back(before);
      result.tuned.push_back(settings.empty() ? before : after);
    }
    return result;
  }

private:
  Kernel compiled(const PlanSettings &settings) const {
    CompileOptions with = options;
    with.plan = settings;
    return compileLazily(source, with); // of other sizes nothing is measured
  }

  /// Whether the plans of all shapes are the same with `a` and `b`.
  bool changesNothing(const PlanSettings &a, const PlanSettings &b) const {
    return llvm::all_of(cases,
                        [&](const Case &each) { return each.planText(a, machine) == each.planText(b, machine); });
  }

  static double sample(const Case &each, const Kernel &kernel, unsigned count) {
    auto start = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < count; ++i)
      each.call->run(kernel);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / count;
  }

  /// The medians of both kernels' times, in turns.
  static std::pair<double, double> measure(const Case &each, const Kernel &a, const Kernel &b) {
    sample(each, a, 1);
    double once = sample(each, a, 1);
    sample(each, b, 1);
    auto count = static_cast<unsigned>(std::clamp(shortestSample / once, 1.0, 1e4));
    std::vector<double> first, second;
    for (double total = 0; first.size() < fewestSamples || total < longestMeasurement;) {
      first.push_back(sample(each, a, count));
      second.push_back(sample(each, b, count));
      total += (first.back() + second.back()) * count;
    }
    return {median(first), median(second)};
  }

  /// The geometric mean over the shapes of `kernel`'s time over `best`'s.
  double meanRatio(const Kernel &best, const Kernel &kernel) const {
    double logarithm = 0;
    for (const Case &each : cases) {
      auto [before, after] = measure(each, best, kernel);
      logarithm += std::log(after / before);
    }
    return std::exp(logarithm / cases.size());
  }

  std::string_view source;
  const CompileOptions &options;
  const TuneOptions &tuning;
  Machine machine;
  std::vector<Case> cases;
};

/// The entry for the kernel as `options` say: its sizes are those of the options, not of the shapes.
TuningEntry entryFor(std::string_view source, const CompileOptions &options, const TuneOptions &tuning,
                     const TuneResult &result) {
  Program program(source, options);
  check(program.parse());
  check(program.onlyKernel());
  check(program.simplify());
  KernelOp kernel = program.kernels().front();
  TuningEntry entry{
      check(machineForTarget("host")).target, kernel.getSymName().str(), specHash(kernel), result.settings, {}};
  for (auto [index, shape] : llvm::enumerate(tuning.shapes))
    entry.measured.push_back({assignmentText(shape), result.chosen[index], result.tuned[index]});
  return entry;
}

} // namespace

std::string attn::assignmentText(const std::map<std::string, int64_t> &values) {
  std::string text;
  for (const auto &[name, value] : values)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

TuneResult attn::tune(std::string_view source, const CompileOptions &options, const TuneOptions &tuning,
                      const std::string &database) {
  if (tuning.shapes.empty())
    throw std::invalid_argument("tune needs a shape to measure at");
  if (options.target != "host")
    throw std::invalid_argument("tune measures on this machine: the target must be host, but is " + options.target);
  if (!database.empty())
    check(TuningDatabase::read(database).takeError()); // before the time is spent
  setNumThreads(tuning.threads);
  TuneResult result = Tuner(source, options, tuning).run();
  if (!database.empty()) {
    TuningDatabase all = check(TuningDatabase::read(database));
    all.insert(entryFor(source, options, tuning, result));
    check(all.write(database));
  }
  return result;
}
