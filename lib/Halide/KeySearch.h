//===- KeySearch.h - Keys that a condition lets through ---------*- C++ -*-===//
//
// Where the text of a mask does not say all of it (KeyRange.h), and it takes little to look: between which keys it is
// true for some row. A tile looks at the keys of a chunk before it computes their scores; for few rows, and for blocks
// of rows, all keys are looked at before anything else.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_KEYSEARCH_H
#define ATTN_LIB_HALIDE_KEYSEARCH_H

#include "StepLowering.h"

namespace attn::lowering {

/// As many keys as are looked at together, a vector of bytes or fewer: a power of two. 0 where none are looked for.
int keysInVector(mlir::Value condition, mlir::BlockArgument key, int lanes);

class KeySearch {
public:
  /// What is looked through: all keys, or some vectors of them.
  struct Part {
    Halide::Expr first;    ///< A multiple of a vector.
    Halide::Expr vectors;  ///< Those that are whole.
    Halide::Expr hasEnd;   ///< Whether it has the last key.
    Halide::Expr keyCount; ///< Of all.
  };
  /// The condition at the row that `rows` is at in its first dimensions, and at `key`.
  using Condition = llvm::function_ref<Halide::Expr(const Halide::RDom &rows, const IndexBinding &key)>;
  using Visit = llvm::function_ref<void(Halide::RDom &domain, const Halide::Expr &vector)>;

  /// For each of `group`. Rows have the last index first. `visit` says which vectors are worth a look.
  KeySearch(StepLowering &kernel, const std::vector<Halide::Var> &group, const Halide::Region &rows, const Part &part,
            int inVector, Condition condition, Visit visit = [](Halide::RDom &, const Halide::Expr &) {});
  void computeAt(const Halide::LoopLevel &level, int lanes);

  /// At some group: the first key, and the one after the last; `otherwise` where all keys are fewer than a vector has.
  Halide::Expr firstOr(const Halide::Expr &otherwise, const std::vector<Halide::Expr> &at = {}) const;
  Halide::Expr endOr(const Halide::Expr &otherwise, const std::vector<Halide::Expr> &at = {}) const;

private:
  int inVector;
  Halide::Expr isEnough;
  Halide::Var lane{"lane$"}, vector{"vector$"};
  Halide::Func seen;       ///< (lane, vector, group): bytes, which are 1 where some row sees the key.
  Halide::RDom all;        ///< Of those.
  Halide::Func first, end; ///< (group)
};

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_KEYSEARCH_H
