//===- Object.cpp - Kernels, their wrappers and the runtime as one object -===//

#include "Object.h"

#include "Embedded.h"
#include "MachineCode.h"
#include "Wrapper.h"
#include "llvm/Linker/Linker.h"

using namespace attn;

std::string attn::halideFunction(const KernelInterface &interface) { return "attn_kernel_" + interface.name; }
std::string attn::halideArgvFunction(const KernelInterface &interface) { return halideFunction(interface) + "_argv"; }

struct ObjectBuilder::Implementation {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  bool runtime;
};

ObjectBuilder::ObjectBuilder(bool runtime) : implementation(std::make_unique<Implementation>()) {
  implementation->runtime = runtime;
}
ObjectBuilder::~ObjectBuilder() = default;

static llvm::Error link(llvm::Module &into, std::unique_ptr<llvm::Module> module) {
  std::string name = module->getName().str(); // linking destroys the module
  if (llvm::Linker::linkModules(into, std::move(module)))
    return llvm::createStringError("LLVM cannot link " + name);
  return llvm::Error::success();
}

/// Hides what Halide exports for a kernel: only the wrapper is called from outside.
static void hideStrongSymbols(llvm::Module &module) {
  for (llvm::GlobalValue &value : module.global_values())
    if (!value.isDeclaration() && value.hasExternalLinkage())
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

static llvm::Expected<std::unique_ptr<llvm::Module>> readRuntime(const llvm::Module &like) {
  const llvm::Triple &triple = like.getTargetTriple();
  llvm::StringRef bitcode = runtimeBitcode(llvm::Triple::getArchTypeName(triple.getArch()));
  if (bitcode.empty() || !triple.isOSLinux())
    return llvm::createStringError("there is no runtime for the target " + triple.str() +
                                   ": objects can be written for 64-bit x86 and ARM Linux");
  llvm::Expected<std::unique_ptr<llvm::Module>> module = readBitcode(bitcode, like.getContext());
  if (module) {
    (*module)->setTargetTriple(triple);
    (*module)->setDataLayout(like.getDataLayout());
    makeWeak(**module);
  }
  return module;
}

llvm::Error ObjectBuilder::add(const HalideKernel &kernel, const KernelInterface &interface) {
  std::unique_ptr<llvm::Module> &module = implementation->module;
  // One copy of Halide's runtime serves all kernels.
  llvm::Expected<std::string> bitcode = kernel.bitcode(halideFunction(interface), implementation->runtime && !module);
  if (!bitcode)
    return bitcode.takeError();
  llvm::Expected<std::unique_ptr<llvm::Module>> read = readBitcode(*bitcode, implementation->context);
  if (!read)
    return read.takeError();
  std::string argvFunction = halideArgvFunction(interface);
  hideStrongSymbols(**read);
  llvm::Function *argv = (*read)->getFunction(argvFunction);
  if (!argv)
    return llvm::createStringError("Halide wrote no function " + argvFunction);
  if (module && module->getNamedValue(interface.name))
    return llvm::createStringError("two kernels are named '" + interface.name + "'");
  if (llvm::Error error = addWrapper(**read, interface, *argv))
    return error;
  if (!module) {
    module = std::move(*read);
    return llvm::Error::success();
  }
  return link(*module, std::move(*read));
}

llvm::Expected<std::string> ObjectBuilder::finish() {
  llvm::Module &module = *implementation->module;
  llvm::Expected<std::unique_ptr<llvm::Module>> runtime = readRuntime(module);
  if (!runtime)
    return runtime.takeError();
  if (implementation->runtime) {
    replaceDefinitions(module, **runtime);
    if (llvm::Error error = link(module, std::move(*runtime)))
      return error;
  }
  return emitMachineCode(module, MachineCodeKind::Object);
}
