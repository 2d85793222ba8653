//===- LibraryParts.cpp - What a kernel in this process is made of --------===//

#include "LibraryParts.h"

#include "Functions.h"
#include "Launch.h"
#include "MachineCode.h"
#include "Tables.h"

#include "llvm/TargetParser/Host.h"

using namespace attn;

LibraryParts::LibraryParts(std::shared_ptr<Program> program, std::string source, CompileOptions options,
                           KernelInterface interface, Machine machine, std::string key, bool isChecking)
    : program(std::move(program)), source(std::move(source)), options(std::move(options)),
      interface(std::move(interface)), machine(std::move(machine)),
      cache(this->options.countChunks ? std::nullopt : DiskCache::open()), key(std::move(key)), isChecking(isChecking) {
  this->key += isChecking ? "checking kernel, " : "kernel, ";
}

llvm::Error LibraryParts::lower() {
  if (!program) {
    program = std::make_shared<Program>(source, options);
    if (llvm::Error error = program->parse())
      return error;
  }
  if (llvm::Error error = program->simplify())
    return error;
  KernelOp kernel = program->kernels().front(); // passes may have replaced the kernel
  llvm::Expected<LoweredProgram> result =
      program->lower(isChecking ? program->checkingKernel(kernel) : kernel, machine);
  if (!result)
    return result.takeError();
  lowered = std::move(*result);
  return llvm::Error::success();
}

llvm::Expected<std::string> LibraryParts::compileTable() {
  if (llvm::Error error = lower())
    return error;
  for (const std::string &sum : lowered->steps.countedSums)
    interface.addOutput(sum + "_chunks", mlir::IntegerType::get(program->getModule().getContext(), 64), 3);
  size_t outputs = isChecking ? 2 * interface.bounds.size() : interface.outputs.size();
  ProgramInterface described = ProgramInterface::of(*lowered, interface, outputs, "");
  for (StepInterface &step : described.steps)
    for (VariantInterface &variant : step.variants)
      if (!variant.function.empty())
        variant.function = "attn_uncompiled";
  if (llvm::Error error = addLaunch(described, *lowered, interface))
    return error;
  llvm::LLVMContext context;
  llvm::Module module("program", context);
  module.setTargetTriple(llvm::Triple(llvm::sys::getProcessTriple()));
  llvm::Constant *table = TableBuilder(module).program(described, /*canUse=*/nullptr);
  new llvm::GlobalVariable(module, table->getType(), /*isConstant=*/true, llvm::GlobalValue::ExternalLinkage, table,
                           tableSymbol);
  return emitMachineCode(module, MachineCodeKind::Object);
}

llvm::Expected<std::string> LibraryParts::table() {
  const std::string name = key + "table";
  if (std::optional<std::string> stored = cache ? cache->find(name) : std::nullopt) {
    program.reset();
    return std::move(*stored);
  }
  llvm::Expected<std::string> object = compileTable();
  if (object && cache)
    cache->store(name, *object);
  return object;
}

llvm::Expected<std::vector<std::string>> LibraryParts::compile(llvm::ArrayRef<unsigned> numbers) {
  if (!lowered)
    if (llvm::Error error = lower())
      return error;
  return compileFunctions(
      lowered->steps, numbers, [](const HalideFunction &) { return functionSymbol.str(); },
      [](llvm::StringRef bitcode) { return emitMachineCode(bitcode, MachineCodeKind::Object); });
}

llvm::Expected<std::vector<std::string>> LibraryParts::functions(llvm::ArrayRef<unsigned> numbers) {
  auto nameOf = [&](unsigned number) { return key + "function " + std::to_string(number); };
  std::vector<std::string> objects(numbers.size());
  llvm::SmallVector<unsigned> missing, places;
  for (auto [place, number] : llvm::enumerate(numbers)) {
    if (std::optional<std::string> stored = cache ? cache->find(nameOf(number)) : std::nullopt) {
      objects[place] = std::move(*stored);
      continue;
    }
    missing.push_back(number);
    places.push_back(place);
  }
  if (!missing.empty()) {
    llvm::Expected<std::vector<std::string>> compiled = compile(missing);
    if (!compiled)
      return compiled.takeError();
    for (auto [number, place, object] : llvm::zip_equal(missing, places, *compiled)) {
      if (cache)
        cache->store(nameOf(number), object);
      objects[place] = std::move(object);
    }
  }
  lowered.reset();
  program.reset();
  return objects;
}
