//===- WriteHalideRuntime.cpp - Build tool: Halide's runtime as an object -===//
//
// Building Halide's runtime takes 0.4 s, so it is done once, when attn is built: attn-write-halide-runtime OUTPUT.
//
// Nothing runs an object's constructors where it is loaded into a process. What they do is done by one function,
// attn_initialize_halide_runtime, in their place.
//
//===----------------------------------------------------------------------===//

#include "MachineCode.h"
#include "attn/Halide/Lowering.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/Support/raw_ostream.h"

using namespace attn;

static void callConstructors(llvm::Module &module) {
  llvm::IRBuilder<> builder(module.getContext());
  auto *type = llvm::FunctionType::get(builder.getVoidTy(), false);
  auto *function =
      llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, "attn_initialize_halide_runtime", module);
  builder.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", function));
  if (llvm::GlobalVariable *constructors = module.getGlobalVariable("llvm.global_ctors")) {
    for (const llvm::Use &entry : constructors->getInitializer()->operands()) // priority, function, what it is for
      builder.CreateCall(type, llvm::cast<llvm::Constant>(entry)->getOperand(1));
    constructors->eraseFromParent();
  }
  builder.CreateRetVoid();
}

static llvm::Error write(llvm::StringRef path) {
  llvm::Expected<std::string> bitcode = halideRuntimeBitcode("host", {Device::Cuda, Device::OpenCl});
  if (!bitcode)
    return bitcode.takeError();
  llvm::LLVMContext context;
  llvm::Expected<std::unique_ptr<llvm::Module>> module = readBitcode(*bitcode, context);
  if (!module)
    return module.takeError();
  callConstructors(**module);
  llvm::Expected<std::string> object = emitMachineCode(**module, MachineCodeKind::Object);
  if (!object)
    return object.takeError();
  return llvm::writeToOutput(path, [&](llvm::raw_ostream &os) {
    os << *object;
    return llvm::Error::success();
  });
}

int main(int argc, char **argv) {
  if (argc != 2) {
    llvm::errs() << "usage: attn-write-halide-runtime OUTPUT\n";
    return 1;
  }
  if (llvm::Error error = write(argv[1])) {
    llvm::errs() << "attn-write-halide-runtime: " << llvm::toString(std::move(error)) << '\n';
    return 1;
  }
}
