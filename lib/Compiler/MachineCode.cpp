//===- MachineCode.cpp - From LLVM IR to objects and assembly -------------===//

#include "MachineCode.h"
#include "Reciprocals.h"

#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/MemoryBufferRef.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Target/TargetOptions.h"

#include <mutex>

using namespace attn;

/// Registers the back ends for the processors that lib/Runtime is compiled for, if they are not yet. LLVM's other
/// twenty could serve no kernel, and would double the size of a Python package that has LLVM inside.
static void initializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmParser();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmParser();
    LLVMInitializeAArch64AsmPrinter();
  });
}

llvm::Expected<std::unique_ptr<llvm::Module>> attn::readBitcode(llvm::StringRef bitcode, llvm::LLVMContext &context) {
  return llvm::parseBitcodeFile(llvm::MemoryBufferRef(bitcode, "kernel"), context);
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

llvm::Expected<std::unique_ptr<llvm::Module>> attn::readHalideBitcode(llvm::StringRef bitcode,
                                                                      llvm::LLVMContext &context) {
  llvm::Expected<std::unique_ptr<llvm::Module>> module = readBitcode(bitcode, context);
  if (module)
    dropHalideFlags(**module);
  return module;
}

static llvm::Expected<std::unique_ptr<llvm::TargetMachine>> targetMachine(const llvm::Module &module) {
  initializeTargets();
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(module.getTargetTriple(), error);
  if (!target)
    return llvm::createStringError(error);
  llvm::TargetOptions options;
  options.FunctionSections = true;
  // A thread's variables are found through descriptors, on x86 as on ARM. The older way calls __tls_get_addr, which is
  // neither in libc nor in any other library that objects may need.
  options.EnableTLSDESC = true;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      module.getTargetTriple(), "", "", options, llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  if (!machine)
    return llvm::createStringError("LLVM has no back end for " + module.getTargetTriple().str());
  return machine;
}

/// Lets a product and the sum it goes into be one fused multiply-add. Every other rule of IEEE arithmetic stays: Halide
/// was asked for strict floats, so its instructions carry no other permission.
static void allowMultiplyAdd(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::instructions(function))
      switch (instruction.getOpcode()) {
      case llvm::Instruction::FAdd:
      case llvm::Instruction::FSub:
      case llvm::Instruction::FMul:
        instruction.setHasAllowContract(true);
        break;
      default:
        break;
      }
}

llvm::Expected<std::string> attn::emitMachineCode(llvm::Module &module, MachineCodeKind kind) {
  allowMultiplyAdd(module);
  joinReciprocalEstimates(module);
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine = targetMachine(module);
  if (!machine)
    return machine.takeError();
  module.setDataLayout((*machine)->createDataLayout());
  llvm::SmallString<0> code;
  llvm::raw_svector_ostream os(code);
  llvm::legacy::PassManager passes;
  bool object = kind == MachineCodeKind::Object;
  if ((*machine)->addPassesToEmitFile(passes, os, nullptr,
                                      object ? llvm::CodeGenFileType::ObjectFile : llvm::CodeGenFileType::AssemblyFile))
    return llvm::createStringError("LLVM cannot write " + llvm::Twine(object ? "objects" : "assembly") + " for " +
                                   module.getTargetTriple().str());
  passes.run(module);
  return code.str().str();
}

llvm::Expected<std::string> attn::emitMachineCode(llvm::StringRef bitcode, MachineCodeKind kind) {
  llvm::LLVMContext context;
  llvm::Expected<std::unique_ptr<llvm::Module>> module = readBitcode(bitcode, context);
  if (!module)
    return module.takeError();
  return emitMachineCode(**module, kind);
}
