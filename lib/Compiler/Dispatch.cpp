//===- Dispatch.cpp - One function from variants of a kernel --------------===//

#include "Dispatch.h"

#include "llvm/IR/Constants.h"
#include "llvm/IR/IRBuilder.h"

using namespace attn;

static llvm::GlobalVariable *constant(llvm::Module &module, llvm::Constant *value) {
  return new llvm::GlobalVariable(module, value->getType(), /*isConstant=*/true, llvm::GlobalValue::PrivateLinkage,
                                  value, "attn_features");
}

llvm::Function *attn::addDispatch(llvm::Module &module, const std::string &name,
                                  const std::vector<KernelVariant> &variants, const std::string &message) {
  llvm::LLVMContext &context = module.getContext();
  llvm::IRBuilder<> builder(context);
  llvm::Type *integer = builder.getInt32Ty(), *pointer = builder.getPtrTy();
  auto *function = llvm::Function::Create(llvm::FunctionType::get(integer, pointer, false),
                                          llvm::GlobalValue::InternalLinkage, name, module);
  llvm::FunctionCallee canUse = module.getOrInsertFunction("halide_can_use_target_features", integer, integer, pointer);
  auto block = [&] { return llvm::BasicBlock::Create(context, "", function); };
  builder.SetInsertPoint(block());
  for (const KernelVariant &variant : variants) {
    llvm::BasicBlock *use = block(), *next = block();
    llvm::Constant *features = llvm::ConstantDataArray::get(context, variant.features);
    llvm::Value *usable =
        builder.CreateCall(canUse, {builder.getInt32(variant.features.size()), constant(module, features)});
    builder.CreateCondBr(builder.CreateIsNotNull(usable), use, next);
    builder.SetInsertPoint(use);
    builder.CreateRet(builder.CreateCall(variant.function, {function->getArg(0)}));
    builder.SetInsertPoint(next);
  }
  llvm::FunctionCallee error = module.getOrInsertFunction("halide_error", builder.getVoidTy(), pointer, pointer);
  llvm::Constant *text = constant(module, llvm::ConstantDataArray::getString(context, message));
  builder.CreateCall(error, {llvm::ConstantPointerNull::get(builder.getPtrTy()), text});
  builder.CreateRet(builder.getInt32(-1)); // any code of an error that has its text
  return function;
}
