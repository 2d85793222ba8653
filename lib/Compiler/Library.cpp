//===- Library.cpp - A kernel for this process ----------------------------===//

#include "Library.h"

#include "MachineCode.h"
#include "Tables.h"

#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Support/ThreadPool.h"
#include "llvm/TargetParser/Host.h"

using namespace attn;

/// The objects of all functions of a kernel, or the first error. Bitcode and machine code of a function are tasks of
/// their own, so that threads have as much to do where functions are few.
static llvm::Expected<std::vector<std::string>> compileFunctions(const LoweredKernel &kernel,
                                                                 const std::string &prefix) {
  // The last step is mostly the attention itself, and its first variant that for few queries: they take longest.
  std::vector<const HalideFunction *> functions;
  for (const LoweredStep &step : llvm::reverse(kernel.steps))
    for (const HalideFunction &variant : step.variants)
      functions.push_back(&variant);
  std::vector<std::optional<llvm::Expected<std::string>>> results(functions.size());
  auto lower = [&](size_t index) {
    results[index].emplace(functions[index]->bitcode(prefix + "_" + functions[index]->name()));
  };
  auto generate = [&](size_t index) {
    if (llvm::Expected<std::string> &result = *results[index])
      result = emitMachineCode(*result, MachineCodeKind::Object);
  };
  if (functions.size() == 1) {
    lower(0);
    generate(0);
  } else {
    llvm::DefaultThreadPool threads(llvm::hardware_concurrency());
    for (size_t index = 0; index < functions.size(); ++index)
      threads.async([&, index] {
        lower(index);
        threads.async([&, index] { generate(index); });
      });
    threads.wait();
  }
  std::vector<std::string> objects;
  llvm::Error error = llvm::Error::success();
  for (std::optional<llvm::Expected<std::string>> &result : results) {
    if (*result)
      objects.push_back(std::move(**result));
    else if (error)
      llvm::consumeError(result->takeError());
    else
      error = result->takeError();
  }
  if (error)
    return error;
  return objects;
}

/// An object with nothing but the table.
static llvm::Expected<std::string> tableObject(const ProgramInterface &program, const std::string &function) {
  llvm::LLVMContext context;
  llvm::Module module("program", context);
  module.setTargetTriple(llvm::Triple(llvm::sys::getProcessTriple()));
  llvm::Constant *table = TableBuilder(module).program(program, /*canUse=*/nullptr);
  new llvm::GlobalVariable(module, table->getType(), /*isConstant=*/true, llvm::GlobalValue::ExternalLinkage, table,
                           function + "_program");
  return emitMachineCode(module, MachineCodeKind::Object);
}

llvm::Expected<std::string> attn::compileToLibrary(const LoweredKernel &kernel, const ProgramInterface &program,
                                                   const std::string &function) {
  llvm::Expected<std::vector<std::string>> objects = compileFunctions(kernel, function);
  if (!objects)
    return objects.takeError();
  llvm::Expected<std::string> table = tableObject(program, function);
  if (!table)
    return table.takeError();
  objects->push_back(std::move(*table));
  std::vector<llvm::NewArchiveMember> members;
  for (const std::string &object : *objects)
    members.emplace_back(llvm::MemoryBufferRef(object, "kernel.o"));
  auto library = llvm::writeArchiveToBuffer(members, llvm::SymtabWritingMode::NormalSymtab,
                                            llvm::object::Archive::K_GNU, /*Deterministic=*/true, /*Thin=*/false);
  if (!library)
    return library.takeError();
  return (*library)->getBuffer().str();
}
