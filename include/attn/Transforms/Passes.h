//===- Passes.h - Passes over the attn dialect ------------------*- C++ -*-===//
//
// From the front end's list of attn.tensors to raised attention: score, mask, softmax, weighted sum.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_TRANSFORMS_PASSES_H
#define ATTN_TRANSFORMS_PASSES_H

#include "attn/IR/Attn.h"
#include "mlir/Pass/Pass.h"

namespace attn {

#define GEN_PASS_DECL
#include "attn/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "attn/Transforms/Passes.h.inc"

/// Appends what turns the front end's kernels into the form that plans and lowerings take.
/// `manager` runs on modules.
void buildSimplification(mlir::OpPassManager &manager);

/// Makes `--attn-simplify` run all of `buildSimplification`.
void registerSimplification();

} // namespace attn

#endif // ATTN_TRANSFORMS_PASSES_H
