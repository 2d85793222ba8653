//===- PassNumbers.h - What stages read of a pass of a loop -----*- C++ -*-===//
//
// A stage that is computed in each pass of a loop is, to Halide, a function of the loop's variable too: it infers
// bounds of a dimension that has one element, for each stage that reads it and at each loop inside, and that takes more
// of the compiler's time than anything else. So only the numbers that a pass begins with are functions of the variable.
// Stages in the loop read them from where they are kept, of which Halide sees nothing, and are functions of what is
// left.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_PASSNUMBERS_H
#define ATTN_LIB_HALIDE_PASSNUMBERS_H

#include "Halide.h"

namespace attn::lowering {

/// Integers of 32 bits for each value of some variables, or none.
class PassNumbers {
public:
  PassNumbers() = default;
  PassNumbers(const std::string &name, const std::vector<Halide::Var> &variables,
              const std::vector<Halide::Expr> &values);

  /// The number at `position`, in stages that are computed where these numbers are, after them.
  Halide::Expr operator[](size_t position) const;
  /// `value`, of the stage in whose loop they are computed: of its variables, they are those `at`. It makes Halide
  /// compute them, and keep them for as long as the pass takes.
  Halide::Expr before(const std::vector<Halide::Expr> &at, const Halide::Expr &value) const;
  void computeAt(const Halide::LoopLevel &level);

private:
  Halide::Func func;
};

/// Looks whether numbers are read where they are kept, once `pipeline` is lowered.
void checkPassNumbers(Halide::Pipeline &pipeline);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_PASSNUMBERS_H
