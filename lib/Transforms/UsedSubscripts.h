//===- UsedSubscripts.h - Which subscripts an output depends on -*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_USEDSUBSCRIPTS_H
#define ATTN_TRANSFORMS_USEDSUBSCRIPTS_H

#include "attn/IR/Attn.h"
#include "llvm/ADT/SetVector.h"

#include <optional>

namespace attn {

/// A subscript that depends on data, and where it is used. Values are of the trace.
struct UsedSubscript {
  std::string statement; ///< What reads.
  mlir::Value tensor;    ///< What is read.
  unsigned dimension;
  mlir::Value subscript;
  mlir::Value condition;                          ///< When it is used; null for always.
  llvm::SmallVector<mlir::BlockArgument> indices; ///< For all values of which it is used.
};

/// All uses of subscripts that depend on data, from the outputs of a kernel of attn.tensors to its parameters. A use is
/// for all values of index variables under which its condition holds: the conditions of the reductions and the
/// masks of the softmaxes around it, and which side of `select`, `and` and `or` it is on. Subscripts within
/// subscripts come first.
class UsedSubscripts {
public:
  /// `trace` is an attn.tensor without indices and with an empty block, behind all tensors of `kernel`. The formulas of
  /// subscripts and conditions go there, and index variables become its arguments; it does not outlive the caller.
  UsedSubscripts(KernelOp kernel, TensorOp trace);

  /// Fails where there are too many uses, with a diagnostic.
  mlir::LogicalResult find();

  llvm::ArrayRef<UsedSubscript> get() const { return found; }
  llvm::StringRef indexName(mlir::BlockArgument index) const { return indices[index.getArgNumber()].first; }
  SizeAttr indexSize(mlir::BlockArgument index) const { return indices[index.getArgNumber()].second; }

private:
  struct Scope;
  void use(mlir::Value value, Scope &scope, mlir::Value condition);
  void useRead(ReadOp read, Scope &scope, mlir::Value condition);
  void useReduction(ReduceOp reduce, Scope &scope, mlir::Value condition);
  mlir::Value unlessZero(mlir::Value value, Scope &scope);

  Scope enter(ReadOp read, TensorOp tensor, Scope &scope);
  mlir::Value copy(mlir::Value value, Scope &scope);
  mlir::Value both(mlir::Value a, mlir::Value b);
  mlir::BlockArgument addIndex(llvm::StringRef name, SizeAttr size);

  bool isChecked(mlir::Value subscript, SizeAttr size);
  bool isData(mlir::Value value);
  bool reachesChecked(mlir::Value value);
  bool isWeight(mlir::Value value);

  KernelOp kernel;
  TensorOp trace;
  mlir::OpBuilder builder;
  llvm::SmallVector<UsedSubscript> found;
  llvm::SmallVector<std::pair<std::string, SizeAttr>> indices;
  llvm::DenseMap<std::pair<mlir::Value, mlir::Value>, mlir::Value> conjunctions;
  llvm::DenseMap<mlir::Value, bool> data, reaching, weights;
  int scopes = 0;
};

} // namespace attn

#endif // ATTN_TRANSFORMS_USEDSUBSCRIPTS_H
