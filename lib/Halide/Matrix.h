//===- Matrix.h - The matrix plan of a statement ----------------*- C++ -*-===//
//
// A statement around sums of products, many rows at a time. Matrix.cpp says what is computed, MatrixSchedule.cpp how;
// docs/plans.md has the loop nest.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_MATRIX_H
#define ATTN_LIB_HALIDE_MATRIX_H

#include "StepLowering.h"
#include "attn/Analysis/PlacedSum.h"
#include "llvm/ADT/MapVector.h"

namespace attn::lowering {

class Matrix {
public:
  /// The plan for `op`, a statement.
  Matrix(StepLowering &kernel, const MatrixPlan &plan, DefinitionOpInterface op);
  /// Best where there are enough rows for one register tile.
  void define();
  void schedule();

  Halide::Func func; ///< The tensor.

private:
  friend class MatrixRegion;

  /// One sum of the statement.
  struct Sum {
    Halide::Func chain; ///< (column, row, others, outer reduction variables, block, group): of terms in order.
    Halide::Func block; ///< (column, row, others, outer reduction variables, block): of chains in order.
    Halide::Func total; ///< (column, row, others): of blocks, in f64; undefined where one block is all.
    Halide::RDom terms, groups, blocks; ///< Of a chain, a block, the total.
  };
  Halide::Expr addSum(ReduceOp op);
  /// Whether a term of `sum` has `value` of a pack: rows share it along one of their indices.
  bool isPacked(mlir::Value value, ReduceOp sum) const;
  /// The element of a pack of `value`, for a term of `op` at these values of the reduction variables: of what columns
  /// have, or of what rows have.
  Halide::Expr pack(mlir::Value value, ReduceOp op, const Environment &environment);
  Halide::Expr packRows(mlir::Value value, ReduceOp op, const Environment &environment);
  struct PackForm;
  /// Gives a pack an argument for each index of `op` that is among `indices`, the last first.
  void addTerms(PackForm &form, const IndexSet &indices, ReduceOp op, const Environment &environment);
  /// The pack of `value`, whose index `along` is `at`, made of `var` and others; it gets arguments for what else
  /// `value` changes with.
  Halide::Func definePack(PackForm &form, const char *suffix, mlir::Value value, mlir::BlockArgument along,
                          const Halide::Var &var, Halide::Expr at, ReduceOp op, const Environment &environment);
  /// The tensor's element before the step stores it; nothing is read of it beyond the tensor.
  Halide::Expr outputBefore();
  void bindIndices(Environment &environment);
  /// Defines the tensor, to which blocks add, by adding each tile where it belongs.
  void definePlaced();
  /// Whether no sum has more terms than a block, whatever the call.
  bool isShort();

  int columns() const { return plan.vectors * plan.lanes; }

  StepLowering &kernel;
  const MatrixPlan &plan;
  DefinitionOpInterface op;
  std::vector<Halide::Var> vars; ///< Of `func`: the last index first.
  bool oneBlock;                 ///< Sums need no total.
  Halide::Var column, row;
  std::optional<Halide::Var> second; ///< Of the rows of a tile, too.
  std::vector<Halide::Var> others;   ///< `second` is not among them.
  /// Where tiles have places: the indices of the sum that say which, as variables of its Funcs and as loops over them.
  std::optional<PlacedSum> placed;
  llvm::MapVector<unsigned, Halide::Var> deciding;
  Halide::RDom decidingLoops;
  std::vector<Sum> sums;
  /// What terms take from a panel of columns: (column, reduction variables, others). `ofTile`: from those of a tile's
  /// values of `second`.
  struct Pack {
    Halide::Func func;
    bool ofTile;
  };
  std::vector<Pack> packs;
  /// What terms take from the rows of a group of tiles, tile after tile: (row of the tile, reduction variables, tile,
  /// others).
  struct RowPack {
    Halide::Func func;
    Halide::Var inTile, tile;
  };
  std::vector<RowPack> rowPacks;
  Halide::Expr groupTiles; ///< Of a group: fewer than the plan has where packs of rows would be large.
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_MATRIX_H
