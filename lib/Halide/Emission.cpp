//===- Emission.cpp - Text and bitcode of a lowered step -----------------===//

#include "Implementation.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

#include <mutex>
#include <sstream>

using namespace attn;
using Halide::Target;

/// Floats are IEEE: NaN, infinities and the order of sums are kept. (Multiply-adds are contracted later,
/// when the bitcode becomes an object.)
Halide::Target lowering::loweringTarget(const Machine &machine) {
  return Target(machine.target).with_feature(Target::StrictFloat).with_feature(Target::NoBoundsQuery);
}

std::string attn::withoutNumbers(llvm::StringRef name) {
  std::string result;
  while (!name.empty()) {
    llvm::StringRef rest = name.drop_front(1), number = rest.take_while(llvm::isDigit);
    if (name.front() == '$' && !number.empty()) {
      name = rest.drop_front(number.size());
    } else {
      result += name.front();
      name = rest;
    }
  }
  return result;
}

namespace {
/// Warnings are for people who write Halide programs, not for those who write specs.
class QuietReporter : public Halide::CompileTimeErrorReporter {
public:
  void warning(const char *) override {}
  [[noreturn]] void error(const char *message) override { throw Halide::CompileError(message); }
};
} // namespace

void attn::lowering::silenceHalide() {
  static QuietReporter reporter;
  static std::once_flag once;
  std::call_once(once, [] { Halide::set_custom_compile_time_error_reporter(&reporter); });
}

HalideFunction::HalideFunction(std::unique_ptr<Implementation> implementation)
    : implementation(std::move(implementation)) {}
HalideFunction::HalideFunction(HalideFunction &&) = default;
HalideFunction &HalideFunction::operator=(HalideFunction &&) = default;
HalideFunction::~HalideFunction() = default;

const std::string &HalideFunction::name() const { return implementation->name; }
const std::string &HalideFunction::code() const { return implementation->code; }
const std::optional<SizeLimit> &HalideFunction::limit() const { return implementation->limit; }
const std::vector<HalideArgument> &HalideFunction::arguments() const { return implementation->arguments; }

/// The text that `write` puts into the file whose name it is given.
template <typename Write> static std::string throughFile(llvm::StringRef suffix, Write write) {
  llvm::SmallString<128> path;
  if (std::error_code code = llvm::sys::fs::createTemporaryFile("attn", suffix, path))
    throw Halide::RuntimeError(("cannot create a temporary file: " + code.message()).c_str());
  std::string name = path.str().str();
  try {
    write(name);
  } catch (...) {
    llvm::sys::fs::remove(path);
    throw;
  }
  auto buffer = llvm::MemoryBuffer::getFile(path);
  std::string text = buffer ? (*buffer)->getBuffer().str() : "";
  llvm::sys::fs::remove(path);
  return text;
}

/// Where a Func is computed; nothing where it is inlined into its uses.
static std::string printLevel(const Halide::Internal::Function &function) {
  Halide::LoopLevel level = function.schedule().compute_level();
  level.lock(); // an unlocked level cannot be printed
  if (level.is_inlined())
    return "";
  if (level.is_root())
    return "  computed once, before all loops\n";
  return "  computed in each iteration of " + level.var().name() + " of " + level.func() + "\n";
}

static std::string printSizes(llvm::ArrayRef<lowering::DerivedSize> sizes) {
  std::ostringstream os;
  for (const lowering::DerivedSize &size : sizes)
    os << size.argument.name << " = " << size.value << "\n\n";
  return os.str();
}

/// Every Func of the pipeline as equations, producers first.
static std::string printFuncs(const Halide::Pipeline &pipeline) {
  std::vector<Halide::Internal::Function> outputs;
  for (const Halide::Func &func : pipeline.outputs())
    outputs.push_back(func.function());
  std::map<std::string, Halide::Internal::Function> funcs = Halide::Internal::build_environment(outputs);
  std::vector<std::string> order = Halide::Internal::topological_order(outputs, funcs);
  std::ostringstream os;
  for (const std::string &name : order) {
    const Halide::Internal::Function &function = funcs.at(name);
    auto equation = [&](const Halide::Internal::Definition &definition, const char *equals) {
      os << name << '(';
      for (size_t index = 0; index < definition.args().size(); ++index)
        os << (index ? ", " : "") << definition.args()[index];
      os << ')' << equals;
      for (size_t index = 0; index < definition.values().size(); ++index)
        os << (index ? ", " : "") << definition.values()[index];
      os << '\n';
    };
    equation(function.definition(), " = ");
    for (const Halide::Internal::Definition &update : function.updates())
      equation(update, " <- ");
    os << printLevel(function) << '\n';
  }
  return os.str();
}

Halide::Module HalideFunction::Implementation::module(const std::string &function, const Target &target) const {
  std::vector<Halide::Argument> all = inputs;
  for (const lowering::DerivedSize &size : derivedSizes)
    all.push_back(size.argument);
  Halide::Module result = pipeline.compile_to_module(all, function, target);
  for (Halide::Internal::LoweredFunc &part : result.functions())
    for (const lowering::DerivedSize &size : llvm::reverse(derivedSizes)) {
      auto argument = llvm::find_if(part.args, [&](const auto &other) { return other.name == size.argument.name; });
      if (argument == part.args.end())
        continue; // not the function itself; or the pipeline has kept the module of an earlier call
      part.args.erase(argument);
      part.body = Halide::Internal::LetStmt::make(size.argument.name, size.value, part.body);
    }
  return result;
}

llvm::Expected<std::string> HalideFunction::print(HalideStage stage) const {
  return lowering::guarded([&] {
    if (stage == HalideStage::Halide)
      return printSizes(implementation->derivedSizes) + printFuncs(implementation->pipeline);
    return throughFile("stmt", [&](const std::string &path) {
      implementation->module(implementation->name, implementation->target)
          .compile({{Halide::OutputFileType::stmt, path}});
    });
  });
}

std::vector<uint64_t> lowering::featureWords(const Target &target) {
  std::vector<uint64_t> words((Target::FeatureEnd + 63) / 64);
  for (int feature = 0; feature < Target::FeatureEnd; ++feature)
    if (target.has_feature(static_cast<Target::Feature>(feature)))
      words[feature / 64] |= uint64_t(1) << feature % 64;
  return words;
}

/// Halide sorts expressions by the names in them, which it counts through, for all threads of a process: `t1000` comes
/// before `t999`. Which of a function's names have a digit more would depend on what other threads compile meanwhile,
/// and its code on that. So all have six digits, for more functions than an object has.
static void countNamesFromSixDigits() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (int count = 0; count < 100000; ++count)
      Halide::Internal::unique_name('t');
  });
}

llvm::Expected<std::string> HalideFunction::bitcode(llvm::StringRef function) const {
  countNamesFromSixDigits();
  return lowering::guarded([&] {
    Target target = implementation->target.with_feature(Target::NoRuntime);
    return throughFile("bc", [&](const std::string &path) {
      implementation->module(function.str(), target).compile({{Halide::OutputFileType::bitcode, path}});
    });
  });
}

namespace {
/// Finds what Halide embeds for a device: an array, given to the call that loads it; and the calls that launch kernels.
class FindDeviceSource : public Halide::Internal::IRVisitor {
  using IRVisitor::visit;

  /// Arguments: the module, the kernel's name, blocks and threads in three dimensions each, bytes of shared memory.
  void visit(const Halide::Internal::Call *op) override {
    if (op->name == "halide_cuda_run" || op->name == "halide_opencl_run") {
      auto number = [&](int argument) {
        return Halide::Internal::as_const_int(Halide::Internal::simplify(op->args[argument])).value_or(0);
      };
      const auto *name = op->args[1].as<Halide::Internal::StringImm>();
      launches << "// launch " << (name ? name->value : "") << ": " << number(5) * number(6) * number(7)
               << " threads a block, " << number(8) << " bytes of shared memory\n";
    }
    IRVisitor::visit(op);
  }

  void visit(const Halide::Internal::Variable *op) override {
    if (op->image.defined() && llvm::StringRef(op->name).contains("_gpu_source_kernels"))
      source.assign(static_cast<const char *>(op->image.data()), op->image.number_of_elements());
  }

public:
  std::string source;
  std::ostringstream launches;
};
} // namespace

llvm::Expected<std::string> HalideFunction::deviceSource() const {
  return lowering::guarded([&] {
    Halide::Module module = implementation->module(implementation->name, implementation->target);
    FindDeviceSource find;
    for (const Halide::Internal::LoweredFunc &function : module.functions())
      function.body.accept(&find);
    return find.launches.str() + llvm::StringRef(find.source).rtrim('\0').str();
  });
}

llvm::Expected<std::string> attn::halideRuntimeBitcode(llvm::StringRef text, llvm::ArrayRef<Device> devices) {
  return lowering::guarded([&] {
    Target host = Target(text.str()), target(host.os, host.arch, host.bits);
    for (Device device : devices)
      if (device != Device::Cpu)
        target.set_feature(device == Device::Cuda ? Target::CUDA : Target::OpenCL);
    return throughFile("bc", [&](const std::string &path) {
      Halide::Module module("attn_halide_runtime", target);
      module.compile({{Halide::OutputFileType::bitcode, path}});
    });
  });
}
