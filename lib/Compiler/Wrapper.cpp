//===- Wrapper.cpp - The C function of a kernel in LLVM IR ----------------===//

#include "Wrapper.h"

#include "Tables.h"

#include "llvm/IR/IRBuilder.h"

using namespace attn;

void attn::addWrapper(llvm::Module &module, const KernelInterface &interface, llvm::ArrayRef<ProgramInterface> programs,
                      llvm::ArrayRef<ProgramInterface> checking, llvm::StringRef targets) {
  llvm::IRBuilder<> builder(module.getContext());
  llvm::Type *integer = builder.getInt32Ty(), *pointer = builder.getPtrTy();
  llvm::FunctionCallee canUse = module.getOrInsertFunction("halide_can_use_target_features", integer, integer, pointer);
  TableBuilder tables(module);
  auto programTables = [&](llvm::ArrayRef<ProgramInterface> described) {
    std::vector<llvm::Constant *> result;
    for (const ProgramInterface &program : described)
      result.push_back(tables.program(program, llvm::cast<llvm::Constant>(canUse.getCallee())));
    return result;
  };
  llvm::SmallVector<llvm::Value *> arguments = {tables.signature(interface, programTables(programs), targets)};
  if (!checking.empty())
    arguments.push_back(tables.bounds(interface, programTables(checking)));
  size_t count = interface.inputs.size() + interface.outputs.size();
  auto *type = llvm::FunctionType::get(integer, llvm::SmallVector<llvm::Type *>(count, pointer), false);
  auto *function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, interface.name, module);
  builder.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", function));
  llvm::Value *tensors = builder.CreateAlloca(llvm::ArrayType::get(pointer, count));
  for (llvm::Argument &argument : function->args())
    builder.CreateStore(&argument, builder.CreateConstInBoundsGEP1_64(pointer, tensors, argument.getArgNo()));
  arguments.push_back(tensors);
  auto *invokeType =
      llvm::FunctionType::get(integer, llvm::SmallVector<llvm::Type *>(arguments.size(), pointer), false);
  llvm::FunctionCallee invoke =
      module.getOrInsertFunction(checking.empty() ? "attn_invoke" : "attn_invoke_checked", invokeType);
  builder.CreateRet(builder.CreateCall(invoke, arguments));
}
