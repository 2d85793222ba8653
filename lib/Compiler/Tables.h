//===- Tables.h - The runtime's tables in LLVM IR ---------------*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_TABLES_H
#define ATTN_LIB_COMPILER_TABLES_H

#include "Interface.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Module.h"

#include <map>

namespace attn {

/// Lays out the structures of attn/Runtime/Signature.h as constants of a module. All their fields are 8 bytes wide: an
/// i64 or a pointer.
class TableBuilder {
public:
  explicit TableBuilder(llvm::Module &module);

  /// An attn_program. `canUse` says whether a processor has its features; without it any processor has them. The
  /// functions are declared where the module does not have them.
  llvm::Constant *program(const ProgramInterface &program, llvm::Constant *canUse);
  /// A pointer to an attn_signature and to an attn_bounds with these programs, which were compiled for `targets`.
  llvm::Constant *signature(const KernelInterface &interface, llvm::ArrayRef<llvm::Constant *> programs,
                            llvm::StringRef targets);
  llvm::Constant *bounds(const KernelInterface &interface, llvm::ArrayRef<llvm::Constant *> programs);

private:
  /// A pointer to an attn_device, the same one for all programs; null for the CPU.
  llvm::Constant *device(Device device);
  /// A pointer to an attn_launch; null where there is none.
  llvm::Constant *launch(const std::optional<LaunchInterface> &launch);
  /// A pointer to an attn_launcher, the same one for all launches.
  llvm::Constant *launcher();
  llvm::Constant *function(llvm::StringRef name);
  llvm::Constant *describe(const TensorInterface &tensor);
  llvm::Constant *expression(const SizeProgram &program);
  llvm::Constant *limit(const LimitInterface &limit);
  llvm::Constant *variant(const VariantInterface &variant);
  llvm::Constant *integer(uint64_t value);
  llvm::Constant *record(llvm::ArrayRef<llvm::Constant *> fields);
  llvm::Constant *text(llvm::StringRef value);
  /// A pointer to the elements; null where there are none.
  llvm::Constant *array(llvm::ArrayRef<llvm::Constant *> elements);
  llvm::Constant *global(llvm::Constant *value);

  llvm::Module &module;
  llvm::IntegerType *number;
  llvm::PointerType *pointer;
  std::map<Device, llvm::GlobalVariable *> devices;
  llvm::Constant *launcherTable = nullptr;
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_TABLES_H
