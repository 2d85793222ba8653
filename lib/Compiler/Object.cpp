//===- Object.cpp - Kernels, their wrappers and the runtime as one object -===//

#include "Object.h"

#include "Embedded.h"
#include "Functions.h"
#include "Launch.h"
#include "MachineCode.h"
#include "Wrapper.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/Constants.h"
#include "llvm/Linker/Linker.h"

using namespace attn;

std::string attn::halideFunction(llvm::StringRef kernel) { return "attn_kernel_" + kernel.str(); }
std::string attn::halideCheckingFunction(llvm::StringRef kernel) { return "attn_bounds_" + kernel.str(); }

struct ObjectBuilder::Implementation {
  std::vector<Device> devices;
  bool runtime;
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  llvm::StringSet<> runtimeSymbols; ///< What it defines and what it calls.
};

ObjectBuilder::ObjectBuilder(llvm::ArrayRef<Machine> machines, bool runtime)
    : implementation(std::make_unique<Implementation>()) {
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

/// Hides what Halide exports for a kernel, but for `function`, which is called from outside.
static void hideStrongSymbols(llvm::Module &module, llvm::StringRef function) {
  for (llvm::GlobalValue &value : module.global_values())
    if (!value.isDeclaration() && value.hasExternalLinkage() && value.getName() != function)
      value.setLinkage(llvm::GlobalValue::InternalLinkage);
}

/// Halide gives each name a number that depends on what else the process has compiled, and on the order in which its
/// threads did. Objects are to be reproducible, so numbers are dropped from what is left of names: those of parallel
/// loops, which become functions, and those of memory in texts of errors. Texts of several lines are a device's code.
static void dropNumbers(llvm::Module &module, llvm::StringRef loops) {
  for (auto [count, loop] : llvm::enumerate(llvm::make_filter_range(module, [](llvm::Function &each) {
         return each.hasLocalLinkage() && each.getName().contains("_par_for_");
       })))
    loop.setName(loops + llvm::Twine(count));
  for (llvm::GlobalVariable &global : llvm::make_early_inc_range(module.globals())) {
    auto *data = global.hasInitializer() ? llvm::dyn_cast<llvm::ConstantDataArray>(global.getInitializer()) : nullptr;
    if (!data || !data->isCString() || data->getAsCString().contains('\n'))
      continue;
    std::string name = withoutNumbers(data->getAsCString());
    if (name.size() == data->getAsCString().size())
      continue;
    llvm::Constant *text = llvm::ConstantDataArray::getString(module.getContext(), name);
    auto *renamed =
        new llvm::GlobalVariable(module, text->getType(), /*isConstant=*/true, global.getLinkage(), text, "", &global);
    renamed->copyAttributesFrom(&global);
    renamed->takeName(&global);
    global.replaceAllUsesWith(renamed);
    global.eraseFromParent();
  }
}

static llvm::Error checkTarget(const llvm::Triple &triple) {
  if (triple.isOSLinux() && (triple.getArch() == llvm::Triple::x86_64 || triple.getArch() == llvm::Triple::aarch64))
    return llvm::Error::success();
  return llvm::createStringError("there is no runtime for the target " + triple.str() +
                                 ": objects can be written for 64-bit x86 and ARM Linux");
}

llvm::Error ObjectBuilder::addFunctions(const LoweredKernel &kernel, const std::string &prefix) {
  std::unique_ptr<llvm::Module> &module = implementation->module;
  const std::vector<const HalideFunction *> functions = functionsOf(kernel);
  llvm::SmallVector<unsigned> numbers;
  for (auto [number, function] : llvm::enumerate(functions))
    if (function->code() == function->name())
      numbers.push_back(number);
  auto nameOf = [&](const HalideFunction &function) { return prefix + "_" + function.name(); };
  llvm::Expected<std::vector<std::string>> bitcodes = compileFunctions(kernel, numbers, nameOf);
  if (!bitcodes)
    return bitcodes.takeError();
  for (auto [number, bitcode] : llvm::zip_equal(numbers, *bitcodes)) {
    std::string name = nameOf(*functions[number]), argv = name + "_argv";
    llvm::Expected<std::unique_ptr<llvm::Module>> read = readHalideBitcode(bitcode, implementation->context);
    if (!read)
      return read.takeError();
    if (!(*read)->getFunction(argv))
      return llvm::createStringError("Halide wrote no function " + argv);
    if (llvm::Error error = checkTarget((*read)->getTargetTriple()))
      return error;
    hideStrongSymbols(**read, argv);
    dropNumbers(**read, name + "_loop_");
    if (!module)
      module = std::move(*read);
    else if (llvm::Error error = link(*module, std::move(*read)))
      return error;
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<ProgramInterface>> ObjectBuilder::addPrograms(llvm::ArrayRef<LoweredProgram> kernels,
                                                                         const KernelInterface &interface,
                                                                         size_t outputs, const std::string &function) {
  std::vector<ProgramInterface> programs;
  for (auto [index, kernel] : llvm::enumerate(kernels)) {
    std::string prefix = function + "_" + std::to_string(index);
    if (llvm::Error error = addFunctions(kernel.steps, prefix))
      return error;
    programs.push_back(ProgramInterface::of(kernel, interface, outputs, prefix));
    if (llvm::Error error = addLaunch(programs.back(), kernel, interface))
      return error;
  }
  return programs;
}

llvm::Error ObjectBuilder::add(llvm::ArrayRef<LoweredProgram> kernels, llvm::ArrayRef<LoweredProgram> checking,
                               const KernelInterface &interface, llvm::StringRef targets) {
  const std::string &name = interface.name;
  auto programs = addPrograms(kernels, interface, interface.outputs.size(), halideFunction(name));
  if (!programs)
    return programs.takeError();
  auto checks = addPrograms(checking, interface, 2 * interface.bounds.size(), halideCheckingFunction(name));
  if (!checks)
    return checks.takeError();
  addRuntime();
  llvm::Module &module = *implementation->module;
  if (module.getNamedValue(name) || implementation->runtimeSymbols.contains(name))
    return llvm::createStringError("a kernel cannot be named '" + name +
                                   "': its object needs another function of this name");
  addWrapper(module, interface, *programs, *checks, targets);
  for (const auto *list : {&*programs, &*checks})
    for (const ProgramInterface &program : *list)
      for (const StepInterface &step : program.steps)
        for (const VariantInterface &variant : step.variants)
          if (!variant.function.empty())
            module.getFunction(variant.function + "_argv")->setLinkage(llvm::GlobalValue::InternalLinkage);
  return llvm::Error::success();
}

void ObjectBuilder::addRuntime() {
  llvm::Module &module = *implementation->module;
  if (!implementation->runtime || !module.getModuleInlineAsm().empty())
    return;
  RuntimeAssembly runtime = runtimeAssembly(module.getTargetTriple().getArchName(), implementation->devices);
  module.appendModuleInlineAsm(runtime.text);
  for (llvm::StringRef name : llvm::split(runtime.symbols, ' '))
    implementation->runtimeSymbols.insert(name);
}

llvm::Expected<std::string> ObjectBuilder::finish() {
  return emitMachineCode(*implementation->module, MachineCodeKind::Object);
}
