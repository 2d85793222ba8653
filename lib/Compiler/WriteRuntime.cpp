//===- WriteRuntime.cpp - Build tool: the runtime, compiled once -----------===//
//
//   attn-write-runtime object OUTPUT                      Halide's runtime for kernels of this process
//   attn-write-runtime assembly TARGET BITCODE OUTPUT     Halide's and ours, BITCODE, for objects (Object.cpp)
//
// Compiling the runtime takes 0.4 to 0.7 s, so it is done when attn is built. An object is compiled of one module, and
// what LLVM adds to a module without compiling it is assembly: so it is assembly that is kept for objects, after a line
// of its symbols, which LLVM would assemble it to find.
//
//===----------------------------------------------------------------------===//

#include "MachineCode.h"
#include "attn/Halide/Lowering.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Object/ModuleSymbolTable.h"
#include "llvm/Support/Compression.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

using namespace attn;

/// Nothing runs an object's constructors where it is loaded into a process. What they do is done by one function,
/// attn_initialize_halide_runtime, in their place.
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

static llvm::Expected<std::unique_ptr<llvm::Module>>
readHalideRuntime(llvm::StringRef target, llvm::ArrayRef<Device> devices, llvm::LLVMContext &context) {
  llvm::Expected<std::string> bitcode = halideRuntimeBitcode(target, devices);
  if (!bitcode)
    return bitcode.takeError();
  return readHalideBitcode(*bitcode, context);
}

static llvm::Expected<std::string> objectOfHalide() {
  llvm::LLVMContext context;
  auto module = readHalideRuntime("host", {Device::Cuda, Device::OpenCl}, context);
  if (!module)
    return module.takeError();
  callConstructors(**module);
  return emitMachineCode(**module, MachineCodeKind::Object);
}

/// Of our runtime: Cuda.c or OpenCl.c.
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

/// Several objects of a program may have the runtime.
static void makeWeak(llvm::Module &module) {
  for (llvm::GlobalValue &value : module.global_values())
    if (!value.isDeclaration() && !value.hasLocalLinkage())
      value.setLinkage(llvm::GlobalValue::WeakAnyLinkage);
}

/// Our functions take the place of Halide's of the same name, such as halide_error.
static void replaceDefinitions(llvm::Module &module, const llvm::Module &by) {
  for (const llvm::Function &function : by)
    if (!function.isDeclaration() && !function.hasLocalLinkage())
      if (llvm::Function *other = module.getFunction(function.getName()))
        other->deleteBody();
}

/// As decompress of Embedded.cpp reads it.
static llvm::Expected<std::string> compress(llvm::StringRef text) {
  if (!llvm::compression::zstd::isAvailable())
    return llvm::createStringError("this LLVM was built without zstd");
  llvm::SmallVector<uint8_t, 0> result;
  llvm::compression::zstd::compress(llvm::arrayRefFromStringRef(text), result,
                                    llvm::compression::zstd::BestSizeCompression);
  return (llvm::Twine(text.size()) + " " + llvm::toStringRef(result)).str();
}

/// Labels that no function compiled by LLVM has: the assembler sees all of an object's at once.
static std::string renameLabels(llvm::StringRef assembly) {
  std::string result;
  for (auto [line, rest] = assembly.split('\n'); !line.empty() || !rest.empty();
       std::tie(line, rest) = rest.split('\n')) {
    if (!line.ltrim().starts_with(".asci"))
      for (size_t at; (at = line.find(".L")) != llvm::StringRef::npos; line = line.drop_front(at + 2))
        result += (line.take_front(at) + ".Lruntime.").str();
    result += (line + "\n").str();
  }
  return result;
}

/// A line of the names that `assembly` defines and uses.
static std::string symbolsOf(llvm::StringRef assembly, const llvm::Module &runtime) {
  llvm::Module module("runtime", runtime.getContext());
  module.setTargetTriple(runtime.getTargetTriple());
  module.setModuleInlineAsm(assembly);
  std::string symbols;
  llvm::ModuleSymbolTable::CollectAsmSymbols(module, [&](llvm::StringRef name, llvm::object::BasicSymbolRef::Flags) {
    if (!name.starts_with(".L"))
      symbols += (name + " ").str();
  });
  return symbols + "\n";
}

static llvm::Expected<std::string> assemblyOfRuntime(llvm::StringRef target, llvm::StringRef ownBitcode) {
  llvm::SmallVector<Device> devices;
  if (target.contains("cuda"))
    devices.push_back(Device::Cuda);
  if (target.contains("opencl"))
    devices.push_back(Device::OpenCl);
  llvm::LLVMContext context;
  auto module = readHalideRuntime(target, devices, context);
  if (!module)
    return module.takeError();
  llvm::Expected<std::unique_ptr<llvm::Module>> own = readBitcode(ownBitcode, context);
  if (!own)
    return own.takeError();
  for (Device device : {Device::Cuda, Device::OpenCl})
    if (!llvm::is_contained(devices, device))
      dropDevice(**own, device);
  (*own)->setTargetTriple((*module)->getTargetTriple());
  (*own)->setDataLayout((*module)->getDataLayout());
  makeWeak(**own);
  replaceDefinitions(**module, **own);
  if (llvm::Linker::linkModules(**module, std::move(*own)))
    return llvm::createStringError("LLVM cannot link the two runtimes");
  llvm::Expected<std::string> assembly = emitMachineCode(**module, MachineCodeKind::Assembly);
  if (!assembly)
    return assembly.takeError();
  std::string renamed = renameLabels(*assembly);
  return compress(symbolsOf(renamed, **module) + renamed);
}

static llvm::Error write(llvm::ArrayRef<const char *> arguments) {
  llvm::Expected<std::string> text = "";
  if (arguments.size() == 2) {
    text = objectOfHalide();
  } else {
    auto bitcode = llvm::MemoryBuffer::getFile(arguments[2]);
    if (!bitcode)
      return llvm::createStringError(bitcode.getError(), arguments[2]);
    text = assemblyOfRuntime(arguments[1], (*bitcode)->getBuffer());
  }
  if (!text)
    return text.takeError();
  return llvm::writeToOutput(arguments.back(), [&](llvm::raw_ostream &os) {
    os << *text;
    return llvm::Error::success();
  });
}

int main(int argc, char **argv) {
  llvm::ArrayRef<const char *> arguments(argv + 1, argc - 1);
  bool isObject = arguments.size() == 2 && arguments[0] == llvm::StringRef("object");
  if (!isObject && (arguments.size() != 4 || arguments[0] != llvm::StringRef("assembly"))) {
    llvm::errs() << "usage: attn-write-runtime object OUTPUT\n"
                    "       attn-write-runtime assembly TARGET BITCODE OUTPUT\n";
    return 1;
  }
  if (llvm::Error error = write(arguments)) {
    llvm::errs() << "attn-write-runtime: " << llvm::toString(std::move(error)) << '\n';
    return 1;
  }
}
