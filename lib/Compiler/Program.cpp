//===- Program.cpp - A source on its way through the stages ---------------===//

#include "Program.h"

#include "WholeKernels.h"
#include "attn/Language/Language.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/MemoryBuffer.h"

#include <utility>

using namespace attn;
using namespace mlir;

static llvm::Error textError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

static DialectRegistry dialects() {
  DialectRegistry registry;
  registry.insert<AttnDialect, arith::ArithDialect, math::MathDialect>();
  return registry;
}

static llvm::SourceMgr sourceManager(std::string_view source, const std::string &name) {
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(source, name), llvm::SMLoc());
  return sources;
}

Program::Program(std::string_view source, const CompileOptions &options)
    : options(options), context(dialects(), MLIRContext::Threading::DISABLED),
      sources(sourceManager(source, options.name)), report(text), handler(sources, &context, report) {
  context.loadAllAvailableDialects();
  context.printOpOnDiagnostic(false); // errors are about the source
}

llvm::Error Program::reported(const llvm::Twine &otherwise) {
  if (text.empty())
    return textError(otherwise);
  llvm::Error error = textError(llvm::StringRef(text).rtrim());
  text.clear();
  return error;
}

llvm::Expected<std::string> Program::syntaxTree() {
  std::string tree;
  llvm::raw_string_ostream os(tree);
  if (!printSyntaxTree(sources, os, report))
    return reported("the source has errors");
  return tree;
}

/// The kernel of the source that has the kernel asked for.
static std::string originalName(const CompileOptions &options) {
  llvm::StringRef name = options.kernel;
  if (options.gradient && !name.consume_back(KernelOp::forwardSuffix))
    name.consume_back(KernelOp::backwardSuffix);
  return name.str();
}

llvm::Error Program::parse() {
  static const char *const dtypes[] = {"", "f32", "bf16", "f16"};
  if (!llvm::is_contained(dtypes, options.dtype))
    return textError("the dtype must be f32, bf16 or f16, but is '" + options.dtype + "'");
  LanguageOptions language;
  for (const auto &[name, value] : options.sizes)
    language.sizes[name] = value;
  language.dtype = options.dtype;
  language.kernel = originalName(options);
  module = parseSource(sources, context, language, report);
  if (!module)
    return reported("the source has errors");
  PassManager passes(&context);
  if (options.gradient)
    buildDifferentiation(passes, *options.gradient);
  if (options.checkBounds)
    passes.addPass(createAttnCheckBounds());
  if (failed(passes.run(*module)))
    return reported("a pass failed");
  if (options.gradient && language.kernel != options.kernel)
    for (KernelOp kernel : llvm::to_vector(module->getOps<KernelOp>()))
      if (!kernel.getSymName().starts_with(options.kernel))
        kernel.erase();
  return llvm::Error::success();
}

/// The machines that "target,target,…" names, in this order.
llvm::Expected<std::vector<Machine>> attn::machinesForTargets(llvm::StringRef targets) {
  std::vector<Machine> machines;
  for (llvm::StringRef target : splitTargets(targets)) {
    llvm::Expected<Machine> machine = machineForTarget(target);
    if (!machine)
      return machine.takeError();
    if (!machines.empty() && machine->platform() != machines.front().platform())
      return llvm::createStringError("one object cannot hold code for " + machines.front().target + " and for " +
                                     machine->target + ": the targets may differ in their features alone");
    machines.push_back(std::move(*machine));
  }
  return machines;
}

llvm::Error Program::simplify(bool forGpu) {
  if (std::exchange(simplified, true))
    return llvm::Error::success();
  llvm::Expected<std::vector<Machine>> machines = machinesForTargets(options.target);
  if (!machines)
    return machines.takeError();
  if (llvm::any_of(*machines, [](const Machine &machine) { return machine.device != Device::Cpu; })) {
    forGpu = true;
    markWhole(*module);
  }
  PassManager passes(&context);
  buildSimplification(passes, forGpu);
  return succeeded(passes.run(*module)) ? llvm::Error::success() : reported("a pass failed");
}

llvm::Expected<Plan> Program::plan(KernelOp kernel, const Machine &machine) {
  PlanOptions choice{options.countChunks && !kernel.checksBounds(), options.plan.value_or(PlanSettings())};
  if (std::string path = TuningDatabase::path(); !options.plan && !path.empty()) {
    if (!database) {
      llvm::Expected<TuningDatabase> read = TuningDatabase::read(path);
      if (!read)
        return read.takeError();
      database = std::move(*read);
    }
    choice.settings = database->find(machine.target, specHash(kernel));
  }
  return Plan::choose(kernel, machine, choice);
}

/// What tensor cores cannot compute is computed by the steps. `--emit=plan` says why.
static void setTensorCores(LoweredProgram &lowered, llvm::Expected<CudaKernel> kernel, const Machine &machine) {
  if (!kernel)
    return llvm::consumeError(kernel.takeError());
  lowered.tensorCores = std::move(*kernel);
  lowered.architectures = machine.tensorCores;
}

llvm::Expected<LoweredProgram> Program::lower(KernelOp kernel, const Machine &machine) {
  llvm::Expected<Plan> plan = this->plan(kernel, machine);
  if (!plan)
    return plan.takeError();
  llvm::Expected<LoweredKernel> steps = lowerToHalide(kernel, *plan, machine);
  if (steps) {
    LoweredProgram lowered = {std::move(*steps)};
    lowered.copies = options.copy;
    if (!machine.tensorCores.empty() && !kernel.checksBounds())
      setTensorCores(lowered, emitCuda(kernel, *plan), machine);
    return lowered;
  }
  std::string message = llvm::toString(steps.takeError());
  return text.empty() ? textError(options.name + ": error: " + message) : reported(message);
}

llvm::SmallVector<KernelOp> Program::kernels() {
  return llvm::to_vector(
      llvm::make_filter_range(module->getOps<KernelOp>(), [](KernelOp kernel) { return !kernel.checksBounds(); }));
}

KernelOp Program::checkingKernel(KernelOp kernel) {
  return module->lookupSymbol<KernelOp>((kernel.getSymName() + KernelOp::boundsSuffix).str());
}

llvm::Expected<KernelInterface> Program::interfaceOf(KernelOp kernel) {
  FailureOr<KernelInterface> interface = KernelInterface::of(kernel, checkingKernel(kernel));
  if (failed(interface))
    return reported("the kernel has no interface");
  return *interface;
}

llvm::Expected<KernelOp> Program::onlyKernel() {
  llvm::SmallVector<KernelOp> found = kernels();
  if (found.size() == 1)
    return found.front();
  std::string names;
  for (KernelOp kernel : found)
    names += (names.empty() ? "" : ", ") + kernel.getSymName().str();
  return textError(options.name + ": error: the source has " + llvm::Twine(found.size()) + " kernels (" + names +
                   "): say which one");
}
