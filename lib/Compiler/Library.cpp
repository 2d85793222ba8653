//===- Library.cpp - A kernel for this process ----------------------------===//

#include "Library.h"

#include "Functions.h"
#include "MachineCode.h"
#include "Tables.h"

#include "llvm/Object/ArchiveWriter.h"
#include "llvm/TargetParser/Host.h"

using namespace attn;

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
  llvm::Expected<std::vector<std::string>> objects = compileFunctions(
      kernel, function, [](llvm::StringRef bitcode) { return emitMachineCode(bitcode, MachineCodeKind::Object); });
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
