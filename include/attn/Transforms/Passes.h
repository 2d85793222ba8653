//===- Passes.h - Passes over the attn dialect ------------------*- C++ -*-===//
//
// From the front end's list of attn.tensors to raised attention: score, mask, softmax, weighted sum.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_PASSES_H
#define ATTN_TRANSFORMS_PASSES_H

#include "attn/IR/Attn.h"
#include "mlir/Pass/Pass.h"

#include <string>
#include <vector>

namespace attn {

#define GEN_PASS_DECL
#include "attn/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "attn/Transforms/Passes.h.inc"

/// What a pass did to a kernel, and why.
struct Rewrite {
  std::string kernel;
  std::string name; ///< Of the rewrite: "fold scale".
  std::string text; ///< One sentence.
};

/// Appends to `rewrites`, which must outlive `context`, what passes over its modules do from here on.
void collectRewrites(mlir::MLIRContext &context, std::vector<Rewrite> &rewrites);

/// Appends what turns the front end's kernels into the form that plans and lowerings take. `manager` runs on modules.
/// `forGpu`: without attn-tabulate, for a GPU's threads call functions as quickly as they read tables.
void buildSimplification(mlir::OpPassManager &manager, bool forGpu = false);

/// Appends what makes a forward and a backward kernel of each of the front end's kernels: the gradients by `inputs`, or
/// by all floating-point ones. `manager` runs on modules.
void buildDifferentiation(mlir::OpPassManager &manager, llvm::ArrayRef<std::string> inputs);

/// Makes `--attn-simplify` run all of `buildSimplification`.
void registerSimplification();

} // namespace attn

#endif // ATTN_TRANSFORMS_PASSES_H
