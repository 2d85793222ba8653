//===- Cost.h - What a kernel's formulas cost -------------------*- C++ -*-===//
//
// Counts of the mathematics as it is written, so that two forms of a kernel can be compared: not a prediction of time.
// An operation counts once for each value of the index variables around it; in a score or a weight, what no key changes
// counts once for all keys.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_COST_H
#define ATTN_ANALYSIS_COST_H

#include "attn/IR/Attn.h"

#include <map>
#include <string>
#include <vector>

namespace attn {

/// A polynomial in sizes with integer coefficients: "2·B·M·N·D + 3·B·M·N". A size that is no polynomial (`N // 2`)
/// counts as a name.
class SizePolynomial {
public:
  SizePolynomial(int64_t constant = 0);
  SizePolynomial(SizeAttr size);

  SizePolynomial &operator+=(const SizePolynomial &other);
  SizePolynomial operator*(const SizePolynomial &other) const;
  bool operator==(const SizePolynomial &other) const { return terms == other.terms; }

  /// The terms of the highest degree first.
  std::string str() const;
  /// Its value where names have these values; a size that has none is 0.
  double evaluate(const llvm::StringMap<int64_t> &values) const;
  /// The same as an expression of sizes.
  SizeAttr asSize(mlir::MLIRContext *context) const;

private:
  /// A product of sizes, in order, and its coefficient, which is not 0.
  std::map<std::vector<std::string>, int64_t> terms;
  std::map<std::string, SizeAttr> quotients; ///< What those names in `terms` stand for that are no sizes' names.
};

struct Cost {
  SizePolynomial flops; ///< Additions, subtractions, multiplications, divisions, and comparisons that pick a number.
  SizePolynomial calls; ///< Of functions such as exp, tanh and sqrt.
  SizePolynomial
      bytes; ///< Read of parameters and written to outputs, once each; stored between tensors and read again.

  Cost &operator+=(const Cost &other);
};

/// Whether `op` is a call of a function that takes many instructions, such as exp, tanh and sqrt: an absolute value is
/// as cheap as arithmetic.
bool isFunction(mlir::Operation *op);

/// The cost of a statement's own formula, or of a softmax for its scores, without bytes.
Cost costOf(mlir::Operation *statement);

/// The cost of all formulas of `kernel`. An attn.tensor, and the result of an attn.weighted_sum, is stored; scores,
/// masks and weights that nobody returns are not. Of sums that exclude each other (`where` a flag, `where` its
/// negation) the first counts.
Cost costOf(KernelOp kernel);

} // namespace attn

#endif // ATTN_ANALYSIS_COST_H
