//===- Wrapper.cpp - The C function of a kernel in LLVM IR ----------------===//

#include "Wrapper.h"

#include "llvm/IR/Constants.h"
#include "llvm/IR/IRBuilder.h"

using namespace attn;

namespace {

/// Lays out the structures of attn/Runtime/Signature.h as constants. All their fields are 8 bytes wide: an i64 or a
/// pointer.
class TableBuilder {
public:
  explicit TableBuilder(llvm::Module &module)
      : module(module), number(llvm::Type::getInt64Ty(module.getContext())),
        pointer(llvm::PointerType::getUnqual(module.getContext())) {}

  llvm::Constant *build(const KernelInterface &interface, llvm::Function &argvFunction) {
    std::vector<llvm::Constant *> tensors, sizes, order, checks;
    for (const auto *list : {&interface.inputs, &interface.outputs})
      for (const TensorInterface &tensor : *list)
        tensors.push_back(describe(tensor));
    for (const SizeInterface &size : interface.sizes)
      sizes.push_back(
          record({text(size.name), integer(size.tensor), integer(size.dimension), expression(size.solution)}));
    for (int64_t position : interface.sizeOrder)
      order.push_back(integer(position));
    for (const CheckInterface &check : interface.checks)
      checks.push_back(record({text(check.message), expression(check.part), expression(check.whole)}));
    return global(record({text(interface.name), integer(interface.inputs.size()), integer(interface.outputs.size()),
                          integer(sizes.size()), array(tensors), array(sizes), array(order), integer(checks.size()),
                          array(checks), &argvFunction}));
  }

  llvm::Constant *buildBounds(const KernelInterface &interface, llvm::Function &checking) {
    std::vector<llvm::Constant *> bounds;
    for (const BoundInterface &bound : interface.bounds)
      bounds.push_back(
          record({text(bound.statement), text(bound.tensor), integer(bound.dimension), expression(bound.size)}));
    return global(record({integer(bounds.size()), array(bounds), &checking}));
  }

private:
  llvm::Constant *describe(const TensorInterface &tensor) {
    std::vector<llvm::Constant *> shape;
    for (const SizeProgram &size : tensor.shape)
      shape.push_back(expression(size));
    return record({text(tensor.name), integer(tensor.code), integer(tensor.bits), integer(shape.size()), array(shape),
                   integer(tensor.defaultValue.has_value()), integer(tensor.defaultBits)});
  }

  llvm::Constant *expression(const SizeProgram &program) {
    std::vector<llvm::Constant *> code;
    for (const attn_instruction &instruction : program.code)
      code.push_back(record({integer(instruction.opcode), integer(instruction.operand)}));
    return record({text(program.text), integer(code.size()), array(code)});
  }

  llvm::Constant *integer(uint64_t value) { return llvm::ConstantInt::get(number, value); }
  llvm::Constant *record(llvm::ArrayRef<llvm::Constant *> fields) { return llvm::ConstantStruct::getAnon(fields); }
  llvm::Constant *text(llvm::StringRef value) {
    return global(llvm::ConstantDataArray::getString(module.getContext(), value));
  }
  llvm::Constant *array(llvm::ArrayRef<llvm::Constant *> elements) {
    if (elements.empty())
      return llvm::ConstantPointerNull::get(pointer);
    return global(llvm::ConstantArray::get(llvm::ArrayType::get(elements[0]->getType(), elements.size()), elements));
  }
  llvm::Constant *global(llvm::Constant *value) {
    return new llvm::GlobalVariable(module, value->getType(), /*isConstant=*/true, llvm::GlobalValue::PrivateLinkage,
                                    value, "attn_table");
  }

  llvm::Module &module;
  llvm::IntegerType *number;
  llvm::PointerType *pointer;
};

} // namespace

llvm::Error attn::addWrapper(llvm::Module &module, const KernelInterface &interface, llvm::Function &kernel,
                             llvm::Function *checking) {
  if (module.getNamedValue(interface.name))
    return llvm::createStringError("a kernel cannot be named '" + interface.name +
                                   "': its object needs another function of this name");
  TableBuilder tables(module);
  llvm::SmallVector<llvm::Value *> arguments = {tables.build(interface, kernel)};
  if (checking)
    arguments.push_back(tables.buildBounds(interface, *checking));
  llvm::IRBuilder<> builder(module.getContext());
  llvm::PointerType *pointer = builder.getPtrTy();
  size_t count = interface.inputs.size() + interface.outputs.size();
  auto *type = llvm::FunctionType::get(builder.getInt32Ty(), llvm::SmallVector<llvm::Type *>(count, pointer), false);
  auto *function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, interface.name, module);
  builder.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", function));
  llvm::Value *tensors = builder.CreateAlloca(llvm::ArrayType::get(pointer, count));
  for (llvm::Argument &argument : function->args())
    builder.CreateStore(&argument, builder.CreateConstInBoundsGEP1_64(pointer, tensors, argument.getArgNo()));
  arguments.push_back(tensors);
  auto *invokeType =
      llvm::FunctionType::get(builder.getInt32Ty(), llvm::SmallVector<llvm::Type *>(arguments.size(), pointer), false);
  llvm::FunctionCallee invoke =
      module.getOrInsertFunction(checking ? "attn_invoke_checked" : "attn_invoke", invokeType);
  builder.CreateRet(builder.CreateCall(invoke, arguments));
  return llvm::Error::success();
}
