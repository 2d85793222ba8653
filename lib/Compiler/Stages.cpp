//===- Stages.cpp - Prints every stage of a compilation -------------------===//
//
//   ast → attn → simplified → plan → halide → loops → llvm → asm → object
//                             ↘ cuda                ↘ ptx, opencl
//
//===----------------------------------------------------------------------===//

#include "Embedded.h"
#include "MachineCode.h"
#include "Object.h"
#include "Occupancy.h"
#include "Program.h"
#include "attn/CUDA/Emission.h"
#include "attn/CUDA/Nvrtc.h"
#include "attn/Plan/Prediction.h"
#include "attn/Plan/Settings.h"

#include "llvm/ADT/StringExtras.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace attn;

const std::vector<std::string> &attn::stages() {
  static const std::vector<std::string> names = {"ast",  "attn", "simplified", "plan",   "halide", "loops",
                                                 "llvm", "asm",  "ptx",        "opencl", "cuda",   "object"};
  return names;
}

static std::string moduleText(mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  module.print(os);
  return text + "\n";
}

/// What each step takes, at the sizes of a typical call.
static void printPrediction(llvm::raw_ostream &os, KernelOp kernel, const Plan &plan, const Machine &machine) {
  SizeValues sizes = typicalSizes(kernel);
  os << fmt::format("predicted for one core at {} GHz", machine.gigahertz);
  llvm::ListSeparator comma(", ", ", where ");
  for (mlir::StringAttr name : kernel.getSizeNames())
    os << comma << name.getValue() << " = " << sizes.lookup(name);
  os << '\n';
  for (const StepPrediction &step : predict(kernel, plan, machine, sizes))
    os << fmt::format("  {}: {:.3g} flops, {:.3g} bytes, {:.3g} ms\n", step.name, step.flops, step.bytes,
                      step.seconds * 1e3);
}

/// What the kernel takes of a GPU of CUDA.
static llvm::Error printDevice(llvm::raw_ostream &os, Program &program, KernelOp kernel, const Machine &machine) {
  llvm::Expected<LoweredProgram> lowered = program.lower(kernel, machine);
  if (!lowered)
    return lowered.takeError();
  for (const HalideFunction *part : functionsOf(lowered->steps)) {
    llvm::Expected<std::string> source = part->deviceSource();
    if (!source)
      return source.takeError();
    printOccupancy(os, part->name(), *source, machine.target);
  }
  return llvm::Error::success();
}

/// What a launch on tensor cores takes and which calls it is for; or why there is none.
static void printTensorCores(llvm::raw_ostream &os, llvm::Expected<CudaKernel> code) {
  if (!code) {
    os << "tensor cores: not used: " << llvm::toString(code.takeError()) << '\n';
    return;
  }
  const TensorCorePlan &plan = code->plan;
  std::string shared = code->sharer.empty() ? "" : fmt::format(" of all {} that share keys,", code->sharer);
  os << fmt::format("tensor cores: {} queries{} a block of {} warps{},{} {} keys a tile{}, rows of {} and {} columns, {} "
                    "bytes of shared memory",
                    plan.queries, shared, plan.warps, plan.producer ? " and 4 that copy" : "",
                    plan.warpgroups ? " with wgmma," : "", plan.keys,
                    plan.searchesTiles ? ", tiles that some row sees" : "", plan.dotColumns, plan.valueColumns,
                    plan.sharedBytes());
  const TensorCorePlan few = plan.forFewRows();
  os << fmt::format("; for at most {} a block of {} warp, {} keys a tile, {} bytes", few.queries, few.warps, few.keys,
                    few.sharedBytes());
  llvm::ListSeparator comma(" and ", "; where ");
  for (const auto &[size, atMost] : code->limits)
    os << comma << size.str() << " <= " << atMost;
  llvm::ListSeparator next(", ", "; after the statements ");
  for (const std::string &statement : code->statements)
    os << next << statement;
  os << '\n';
}

static llvm::Expected<std::string> planText(Program &program, KernelOp kernel, const Machine &machine) {
  llvm::Expected<Plan> plan = program.plan(kernel, machine);
  if (!plan)
    return plan.takeError();
  std::string text;
  llvm::raw_string_ostream os(text);
  plan->print(os);
  if (!machine.tensorCores.empty())
    printTensorCores(os, emitCuda(kernel, *plan));
  if (!plan->gpu)
    printPrediction(os, kernel, *plan, machine);
  if (machine.device == Device::Cuda)
    if (llvm::Error error = printDevice(os, program, kernel, machine))
      return error;
  return text;
}

/// The kernel's own code, without runtime and wrapper, as LLVM IR or assembly.
static llvm::Expected<std::string> codeText(const HalideFunction &function, const std::string &name, bool assembly) {
  llvm::Expected<std::string> bitcode = function.bitcode(name);
  if (!bitcode)
    return bitcode.takeError();
  if (assembly)
    return emitMachineCode(*bitcode, MachineCodeKind::Assembly);
  llvm::LLVMContext context;
  llvm::Expected<std::unique_ptr<llvm::Module>> module = readBitcode(*bitcode, context);
  if (!module)
    return module.takeError();
  std::string text;
  llvm::raw_string_ostream os(text);
  (*module)->print(os, nullptr);
  return text;
}

/// What a comment begins with in the text of a stage.
static std::string_view commentOf(llvm::StringRef stage) {
  if (stage == "llvm")
    return ";";
  return stage == "ptx" || stage == "opencl" ? "//" : "#";
}

static llvm::Expected<std::string> functionText(const HalideFunction &part, const std::string &function,
                                                llvm::StringRef stage) {
  if (stage == "halide")
    return part.print(HalideStage::Halide);
  if (stage == "loops")
    return part.print(HalideStage::Loops);
  if (stage == "ptx" || stage == "opencl")
    return part.deviceSource();
  if (part.code() != part.name())
    return fmt::format("{} the code of step {}\n", commentOf(stage), part.code());
  return codeText(part, function + "_" + part.name(), stage == "asm");
}

/// CUDA C++ for tensor cores, or a comment that says why there is none.
static llvm::Expected<std::string> cudaText(Program &program, KernelOp kernel, const Machine &machine) {
  llvm::Expected<Plan> plan = program.plan(kernel, machine);
  if (!plan)
    return plan.takeError();
  llvm::Expected<CudaKernel> code = emitCuda(kernel, *plan);
  if (code)
    return code->text;
  return fmt::format("\n// {}: not on tensor cores, the Halide GPU plan is used: {}\n", kernel.getSymName().str(),
                     llvm::toString(code.takeError()));
}

/// The PTX of a kernel's code for tensor cores, for each of its architectures.
static llvm::Expected<std::string> tensorCorePtx(const LoweredProgram &lowered) {
  std::string text;
  for (const CudaArchitecture &architecture : lowered.architectures) {
    const CudaKernel &code = *lowered.tensorCores;
    llvm::Expected<std::string> ptx = ptxOfCuda(cudaHeaders() + code.text, code.name, architecture);
    if (!ptx)
      return ptx.takeError();
    text += fmt::format("// tensor cores, {}\n{}\n", architecture.name(), *ptx);
  }
  return text;
}

/// The text of a stage that comes after the dialect, for one kernel.
static llvm::Expected<std::string> kernelText(Program &program, KernelOp kernel, const std::string &function,
                                              const Machine &machine, llvm::StringRef stage) {
  if (stage == "cuda")
    return cudaText(program, kernel, machine);
  if (stage == "plan")
    return planText(program, kernel, machine);
  llvm::Expected<LoweredProgram> lowered = program.lower(kernel, machine);
  if (!lowered)
    return lowered.takeError();
  std::string text;
  for (const HalideFunction *part : functionsOf(lowered->steps)) {
    llvm::Expected<std::string> partText = functionText(*part, function, stage);
    if (!partText)
      return partText.takeError();
    bool isDevice = stage == "ptx" || stage == "opencl";
    text += fmt::format("{} step {}\n{}{}", commentOf(stage), part->name(), *partText, isDevice ? "\n" : "");
  }
  if (stage == "ptx" && lowered->tensorCores) {
    llvm::Expected<std::string> ptx = tensorCorePtx(*lowered);
    if (!ptx)
      return ptx.takeError();
    text += *ptx;
  }
  return text;
}

static llvm::Expected<std::string> stageText(std::string_view source, const CompileOptions &options,
                                             llvm::StringRef stage) {
  Program program(source, options);
  if (stage == "ast")
    return program.syntaxTree();
  if (llvm::Error error = program.parse())
    return error;
  if (stage == "attn")
    return moduleText(program.getModule());
  for (KernelOp kernel : program.kernels())
    if (llvm::Expected<KernelInterface> interface = program.interfaceOf(kernel); !interface)
      return interface.takeError();
  if (llvm::Error error = program.simplify(/*forGpu=*/stage == "cuda"))
    return error;
  if (stage == "simplified")
    return moduleText(program.getModule());
  llvm::Expected<Machine> machine = machineForTarget(options.target);
  if (!machine)
    return machine.takeError();
  for (auto [name, device] : {std::pair("ptx", Device::Cuda), std::pair("opencl", Device::OpenCl)})
    if (stage == name && machine->device != device)
      return llvm::createStringError("the stage '" + stage + "' needs a target with " +
                                     (device == Device::Cuda ? "cuda" : "opencl") + ", but the target is " +
                                     machine->target);
  std::string text = stage == "cuda" ? cudaHeaders() : "";
  auto append = [&](KernelOp kernel, const std::string &function) -> llvm::Error {
    llvm::Expected<std::string> part = kernelText(program, kernel, function, *machine, stage);
    if (!part)
      return part.takeError();
    text += *part;
    return llvm::Error::success();
  };
  for (KernelOp kernel : program.kernels()) {
    if (llvm::Error error = append(kernel, halideFunction(kernel.getSymName())))
      return error;
    if (KernelOp checking = program.checkingKernel(kernel))
      if (llvm::Error error = append(checking, halideCheckingFunction(kernel.getSymName())))
        return error;
  }
  return text;
}

std::string attn::emit(std::string_view source, const CompileOptions &options, const std::string &stage) {
  if (stage == "object")
    return compileToObject(source, options, "kernel.h").object;
  if (!llvm::is_contained(stages(), stage))
    throw std::invalid_argument(
        fmt::format("there is no stage '{}'; the stages are {}", stage, llvm::join(stages(), ", ")));
  llvm::Expected<std::string> text = stageText(source, options, stage);
  if (!text)
    throw CompileError(llvm::toString(text.takeError()));
  return std::move(*text);
}

std::string attn::describePlanSettings() {
  std::string text;
  for (const PlanSetting &setting : planSettings())
    text += fmt::format("{:<18}{:<26} {}\n", setting.name.str(), fmt::format("{}", fmt::join(setting.values, " ")),
                        setting.meaning.str());
  return text;
}

std::string attn::describeMachine(const std::string &target) {
  llvm::Expected<Machine> machine = machineForTarget(target);
  if (!machine)
    throw CompileError(llvm::toString(machine.takeError()));
  std::string text;
  llvm::raw_string_ostream os(text);
  machine->print(os);
  return text;
}
