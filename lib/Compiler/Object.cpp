//===- Object.cpp - Kernels, their wrappers and the runtime as one object -===//

#include "Object.h"

#include "Embedded.h"
#include "Launch.h"
#include "MachineCode.h"
#include "Wrapper.h"
#include "llvm/Linker/Linker.h"

using namespace attn;

std::string attn::halideFunction(llvm::StringRef kernel) { return "attn_kernel_" + kernel.str(); }
std::string attn::halideCheckingFunction(llvm::StringRef kernel) { return "attn_bounds_" + kernel.str(); }

struct ObjectBuilder::Implementation {
  std::string target;
  std::vector<Device> devices;
  bool runtime;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
};

ObjectBuilder::ObjectBuilder(llvm::ArrayRef<Machine> machines, bool runtime)
    : implementation(std::make_unique<Implementation>()) {
  implementation->target = machines.front().target;
  for (const Machine &machine : machines)
    implementation->devices.push_back(machine.device);
  implementation->runtime = runtime;
}
ObjectBuilder::~ObjectBuilder() = default;

static llvm::Error link(llvm::Module &into, std::unique_ptr<llvm::Module> module) {
  std::string name = module->getName().str(); // linking destroys the module
  if (llvm::Linker::linkModules(into, std::move(module)))
    return llvm::createStringError("LLVM cannot link " + name);
  return llvm::Error::success();
}

/// Forgets the flags by which Halide's own code generator knows a module's processor: each function says its own.
static void dropHalideFlags(llvm::Module &module) {
  llvm::SmallVector<llvm::Module::ModuleFlagEntry> flags;
  module.getModuleFlagsMetadata(flags);
  if (llvm::NamedMDNode *node = module.getModuleFlagsMetadata())
    node->eraseFromParent();
  for (const llvm::Module::ModuleFlagEntry &flag : flags)
    if (!flag.Key->getString().starts_with("halide_"))
      module.addModuleFlag(flag.Behavior, flag.Key->getString(), flag.Val);
}

static llvm::Expected<std::unique_ptr<llvm::Module>> readHalideBitcode(llvm::StringRef bitcode,
                                                                       llvm::LLVMContext &context) {
  llvm::Expected<std::unique_ptr<llvm::Module>> module = readBitcode(bitcode, context);
  if (module)
    dropHalideFlags(**module);
  return module;
}

/// Hides what Halide exports for a kernel, but for the function that is called from outside.
static void hideStrongSymbols(llvm::Module &module, llvm::StringRef function) {
  for (llvm::GlobalValue &value : module.global_values())
    if (!value.isDeclaration() && value.hasExternalLinkage() && value.getName() != function)
      value.setLinkage(llvm::GlobalValue::InternalLinkage);
}

/// Our runtime's functions take the place of Halide's of the same name, such as halide_error.
static void replaceDefinitions(llvm::Module &module, const llvm::Module &by) {
  for (const llvm::Function &function : by)
    if (!function.isDeclaration() && !function.hasLocalLinkage())
      if (llvm::Function *other = module.getFunction(function.getName()))
        other->deleteBody();
}

static void makeWeak(llvm::Module &module) {
  for (llvm::GlobalValue &value : module.global_values())
    if (!value.isDeclaration() && !value.hasLocalLinkage())
      value.setLinkage(llvm::GlobalValue::WeakAnyLinkage);
}

static llvm::StringRef runtimeFor(const llvm::Triple &triple) {
  return triple.isOSLinux() ? runtimeBitcode(llvm::Triple::getArchTypeName(triple.getArch())) : "";
}

static llvm::Error checkTarget(const llvm::Triple &triple) {
  if (!runtimeFor(triple).empty())
    return llvm::Error::success();
  return llvm::createStringError("there is no runtime for the target " + triple.str() +
                                 ": objects can be written for 64-bit x86 and ARM Linux");
}

/// Of the runtime: Cuda.c or OpenCl.c.
static bool isOfDevice(llvm::StringRef function, Device device) {
  if (device == Device::Cuda)
    return function.starts_with("halide_cuda_") || function == "attn_set_cuda_stream" ||
           function == "attn_cuda_multiprocessors" || function == "attn_cuda_tensor_map";
  return function.starts_with("halide_opencl_") || function == "halide_acquire_cl_context" ||
         function == "halide_release_cl_context" || function == "attn_set_opencl_queue";
}

/// Objects without kernels for a device need no function of the system to load its driver.
static void dropDevice(llvm::Module &runtime, Device device) {
  // They call each other.
  for (llvm::Function &function : runtime)
    if (isOfDevice(function.getName(), device) && !function.isDeclaration())
      function.deleteBody();
  for (llvm::Function &function : llvm::make_early_inc_range(runtime))
    if (isOfDevice(function.getName(), device) && function.use_empty())
      function.eraseFromParent();
  // What they alone have called.
  bool changed = true;
  while (std::exchange(changed, false))
    for (llvm::Function &function : llvm::make_early_inc_range(runtime))
      if ((function.hasLocalLinkage() || function.isDeclaration()) && function.use_empty()) {
        function.eraseFromParent();
        changed = true;
      }
}

static llvm::Expected<std::unique_ptr<llvm::Module>> readRuntime(const llvm::Module &like,
                                                                 llvm::ArrayRef<Device> devices) {
  const llvm::Triple &triple = like.getTargetTriple();
  if (llvm::Error error = checkTarget(triple))
    return error;
  llvm::StringRef bitcode = runtimeFor(triple);
  llvm::Expected<std::unique_ptr<llvm::Module>> module = readBitcode(bitcode, like.getContext());
  if (module) {
    for (Device device : {Device::Cuda, Device::OpenCl})
      if (!llvm::is_contained(devices, device))
        dropDevice(**module, device);
    (*module)->setTargetTriple(triple);
    (*module)->setDataLayout(like.getDataLayout());
    makeWeak(**module);
  }
  return module;
}

llvm::Error ObjectBuilder::addFunctions(const LoweredKernel &kernel, const std::string &prefix) {
  std::unique_ptr<llvm::Module> &module = implementation->module;
  // One after the other: Halide counts the names it makes up over all threads, and objects are to be reproducible.
  for (const HalideFunction *function : functionsOf(kernel)) {
    std::string name = prefix + "_" + function->name(), argv = name + "_argv";
    llvm::Expected<std::string> bitcode = function->bitcode(name);
    if (!bitcode)
      return bitcode.takeError();
    llvm::Expected<std::unique_ptr<llvm::Module>> read = readHalideBitcode(*bitcode, implementation->context);
    if (!read)
      return read.takeError();
    if (!(*read)->getFunction(argv))
      return llvm::createStringError("Halide wrote no function " + argv);
    if (llvm::Error error = checkTarget((*read)->getTargetTriple()))
      return error;
    hideStrongSymbols(**read, argv);
    if (!module)
      module = std::move(*read);
    else if (llvm::Error error = link(*module, std::move(*read)))
      return error;
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<ProgramInterface>> ObjectBuilder::addPrograms(llvm::ArrayRef<LoweredKernel> kernels,
                                                                         const KernelInterface &interface,
                                                                         size_t outputs, const std::string &function) {
  std::vector<ProgramInterface> programs;
  for (auto [index, kernel] : llvm::enumerate(kernels)) {
    std::string prefix = function + "_" + std::to_string(index);
    if (llvm::Error error = addFunctions(kernel, prefix))
      return error;
    programs.push_back(ProgramInterface::of(kernel, interface, outputs, prefix));
    if (llvm::Error error = addLaunch(programs.back(), kernel, interface))
      return error;
  }
  return programs;
}

llvm::Error ObjectBuilder::add(llvm::ArrayRef<LoweredKernel> kernels, llvm::ArrayRef<LoweredKernel> checking,
                               const KernelInterface &interface, llvm::StringRef targets) {
  // The runtime comes first, so that no kernel takes the name of one of its functions.
  if (implementation->runtime && !implementation->module)
    if (llvm::Error error = startWithRuntime())
      return error;
  const std::string &name = interface.name;
  auto programs = addPrograms(kernels, interface, interface.outputs.size(), halideFunction(name));
  if (!programs)
    return programs.takeError();
  auto checks = addPrograms(checking, interface, 2 * interface.bounds.size(), halideCheckingFunction(name));
  if (!checks)
    return checks.takeError();
  if (llvm::Error error = addWrapper(*implementation->module, interface, *programs, *checks, targets))
    return error;
  for (const auto *list : {&*programs, &*checks})
    for (const ProgramInterface &program : *list)
      for (const StepInterface &step : program.steps)
        for (const VariantInterface &variant : step.variants)
          if (!variant.function.empty())
            implementation->module->getFunction(variant.function + "_argv")
                ->setLinkage(llvm::GlobalValue::InternalLinkage);
  return llvm::Error::success();
}

llvm::Error ObjectBuilder::startWithRuntime() {
  llvm::Expected<std::string> bitcode = halideRuntimeBitcode(implementation->target, implementation->devices);
  if (!bitcode)
    return bitcode.takeError();
  llvm::Expected<std::unique_ptr<llvm::Module>> halide = readHalideBitcode(*bitcode, implementation->context);
  if (!halide)
    return halide.takeError();
  llvm::Expected<std::unique_ptr<llvm::Module>> own = readRuntime(**halide, implementation->devices);
  if (!own)
    return own.takeError();
  implementation->module = std::move(*halide);
  replaceDefinitions(*implementation->module, **own);
  return link(*implementation->module, std::move(*own));
}

llvm::Expected<std::string> ObjectBuilder::finish() {
  return emitMachineCode(*implementation->module, MachineCodeKind::Object);
}
