//===- KeySearch.h - Keys that a mask lets through --------------*- C++ -*-===//
//
// Where the text of a mask does not say all of it (KeyRange.h), and it takes little to look: between which keys it is
// true for some row. A tile looks at the keys of a chunk before it computes their scores; for few rows, and for blocks
// of rows, all keys are looked at before anything else.
//
// A vector of keys is passed over where the mask compares what keys have with what rows have (`document[m] ==
// document[n]`), and the least and the greatest of both say that no row sees any of the keys.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_KEYSEARCH_H
#define ATTN_LIB_HALIDE_KEYSEARCH_H

#include "StepLowering.h"

namespace attn::lowering {

/// As many keys as are looked at together, a vector of bytes or fewer: a power of two. 0 where none are looked for.
int keysInVector(mlir::Value condition, mlir::BlockArgument key, int lanes);

/// Where a domain is along `count` of its dimensions, from `first` on.
std::vector<Halide::Expr> loopsOf(const Halide::RDom &domain, size_t first, size_t count);

class KeySearch {
public:
  /// What is looked through: all keys, or some vectors of them.
  struct Part {
    Halide::Expr first;       ///< A multiple of a vector.
    Halide::Expr vectors;     ///< Those that are whole.
    Halide::Expr hasEnd;      ///< Whether it has the last key.
    Halide::Expr keyCount;    ///< Of all.
    Halide::Expr least, most; ///< Between which keys the text says that there may be some: others are not looked at.
  };
  /// A value of the mask's formula at a row, of which `row` has each index, and at `key`.
  using Lower =
      llvm::function_ref<Halide::Expr(mlir::Value value, llvm::ArrayRef<Halide::Expr> row, const IndexBinding &key)>;

  /// For each of `group`. Rows have the last index first.
  KeySearch(StepLowering &kernel, const std::vector<Halide::Var> &group, const Halide::Region &rows, const Part &part,
            int inVector, mlir::Value condition, Lower lower);
  /// `ofRows`: where what rows alone have is computed.
  void computeAt(const Halide::LoopLevel &level, const Halide::LoopLevel &ofRows, int lanes);

  /// At some group: the first key, and the one after the last; `otherwise` where all keys are fewer than a vector has.
  Halide::Expr firstOr(const Halide::Expr &otherwise, const std::vector<Halide::Expr> &at = {}) const;
  Halide::Expr endOr(const Halide::Expr &otherwise, const std::vector<Halide::Expr> &at = {}) const;

private:
  /// The least and the greatest of a value, for the keys of a vector or for all rows.
  struct Extremes {
    Halide::Expr least, greatest;
  };
  std::optional<Extremes> extremes(mlir::Value value, Lower lower);
  /// What is true where `condition` is for some row and some key of `vector`, and mostly false where not; undefined
  /// where nothing is known.
  Halide::Expr mayHold(mlir::Value condition, Lower lower);

  StepLowering &kernel;
  Halide::Region rows;
  Part part;
  int inVector;
  mlir::BlockArgument key;
  Halide::Expr lastVector; ///< The first key of the vector that ends with the last key.
  Halide::Expr isEnough;
  Halide::Var lane{"lane$"}, vector{"vector$"};
  std::vector<Halide::Expr> group;
  Halide::Func seen;       ///< (lane, vector, group): bytes, which are 1 where some row sees the key.
  Halide::RDom all;        ///< Of those.
  Halide::Func first, end; ///< (group)
  std::vector<Halide::Func> ofVectors, ofRows; ///< Extremes: (vector, group) and (group).
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_KEYSEARCH_H
