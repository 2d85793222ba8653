//===- PairBlocks.h - Pairs that are stored for some rows at a time -*- C++ -*-===//
//
// What has an element for each pair of query and key must not be stored as a whole. But several sums may read it (the
// gradients of queries, keys and values read weights and gradients of scores), and each would compute it again. So it
// is stored for a block of rows, everything that reads it does what it can with that block, and the next block takes
// its place:
//
//   for blocks of rows b, h, m
//     weight[b, h, m, n]      = …                                   of the block
//     grad_v[b, h, n, e]     += sum[m](weight[b, h, m, n] * …)      over the rows of the block
//     grad_score[b, h, m, n]  = …
//     grad_q[b, h, m, d]      = sum[n](grad_score[b, h, m, n] * …)
//
// The pass attn-store-pairs decides which tensors these are.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_PAIRBLOCKS_H
#define ATTN_ANALYSIS_PAIRBLOCKS_H

#include "attn/IR/Attn.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/DenseMap.h"

#include <optional>
#include <string>

namespace attn {

/// Whether the tensor is to be stored for a block of rows at a time (TensorOp::pairsName).
bool isPairs(mlir::Value tensor);

/// Whether the formula of `statement` reads such a tensor.
bool readsPairs(mlir::Operation *statement);

/// Whether `choice` is 0 where its condition is false.
bool choosesZero(mlir::arith::SelectOp choice);

/// Whether what `formula` yields is 0 where all elements are that it reads of tensors which `contains` holds for.
bool isMultipleOf(mlir::Block &formula, llvm::function_ref<bool(mlir::Value)> contains);

/// The condition without which an element of `tensor` is 0, as its formula says; or null.
mlir::Value maskOf(TensorOp tensor);

/// Statements that are computed for one block of rows after the other.
class PairBlocks {
public:
  /// In order: tensors of pairs, sums that read them, and what is a multiple of their elements.
  llvm::SmallVector<TensorOp> statements;
  /// The positions of the rows, among the indices of the pairs, that are cut into blocks; the outermost first.
  llvm::SmallVector<unsigned> rows;
  /// A block may have some of the keys of its rows; those of the same rows follow one another.
  bool cutsKeys = false;

  /// The tensors of pairs have these indices; the last is the key.
  mlir::Block::BlockArgListType indices() const;
  bool contains(mlir::Operation *statement) const { return llvm::is_contained(statements, statement); }
  /// The axis of a block that `index`, of a statement or of its sum, runs along: the number of a row in `rows`, or of
  /// the key, which is the one after them. Nothing for other indices, which are not cut.
  std::optional<unsigned> axisOf(mlir::BlockArgument index) const;
  /// The axis of each dimension of the tensor that a statement defines.
  llvm::SmallVector<std::optional<unsigned>> axesOf(TensorOp statement) const;
  /// Whether each block adds to the elements of the statement, instead of defining its own.
  bool isAdded(TensorOp statement) const;
  /// "blocks of b, h, m, n: weight stored, grad_v added, grad_score stored, grad_q added".
  std::string str() const;

private:
  friend class PairBlocksFinder;
  llvm::DenseMap<mlir::Value, unsigned> axes;
};

/// The blocks of a kernel, for which there is an order, with keys that are cut where they `mayCutKeys` and no statement
/// needs all keys of a row. Pairs that cannot be computed so are in none of them.
llvm::SmallVector<PairBlocks> findPairBlocks(KernelOp kernel, bool mayCutKeys = false);

/// Whether every tensor of pairs can be computed for a block of rows at a time.
bool arePairsInBlocks(KernelOp kernel);

/// The graph ops of a kernel, its return included, in an order in which those of each of `blocks` follow each other,
/// and otherwise as they stand; nothing where no such order is one of definitions before uses.
std::optional<llvm::SmallVector<mlir::Operation *>> orderWithBlocks(KernelOp kernel, llvm::ArrayRef<PairBlocks> blocks);

} // namespace attn

#endif // ATTN_ANALYSIS_PAIRBLOCKS_H
