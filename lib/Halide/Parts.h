//===- Parts.h - Formulas that differ between parts of a row ----*- C++ -*-===//
//
//   turned[n, d] = k[n, d] * cosine[n, d % (D // 2)] + select(d < D // 2, -k[n, d + D // 2], k[n, d - D // 2]) * …
//
// In vectors along d, remainder and condition have a value of their own for each lane, and every read is a gather. In
// each half of a row they have one for all:
//
//   for d < D // 2:  turned[n, d]          = k[n, d] * cosine[n, d] - k[n, d + D // 2] * …
//   for d < D // 2:  turned[n, d + D // 2] = k[n, d + D // 2] * cosine[n, d] + k[n, d] * …
//   for d < D % 2:   turned[n, d + D // 2 * 2], as it is written
//
// So it is with elements that lie side by side: where a formula has d % 2 and d // 2 the parts are every other element.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_PARTS_H
#define ATTN_LIB_HALIDE_PARTS_H

#include "StepLowering.h"

namespace attn::lowering {

/// A formula along one part of its last index.
struct PartFormula {
  Halide::RDom within;
  Halide::Expr last;  ///< The index, at `within`.
  Halide::Expr value; ///< The formula there, in the type that it is computed in.
};

/// The formula of `op`, in the parts of its last index between which it differs: it divides that by a few, or by their
/// length, with which it may compare it. The last one is of what they leave, which is shorter than there are parts.
/// None where it does not differ. `bind` gives the indices, with the last one at an expression.
std::vector<PartFormula> partFormulas(StepLowering &kernel, DefinitionOpInterface op,
                                      llvm::function_ref<Environment(Halide::Expr last)> bind);

/// Defines `func` over the last index and `others`, with elements of `type`: an update for each of `parts`.
void defineByParts(Halide::Func func, llvm::ArrayRef<PartFormula> parts, llvm::ArrayRef<Halide::Var> others,
                   Halide::Type type);

/// Those updates run in vectors of `lanes`, but for the last of several.
void vectorizeParts(Halide::Func func, int lanes);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_PARTS_H
