//===- Rewrites.h - What passes say they did --------------------*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_REWRITES_H
#define ATTN_TRANSFORMS_REWRITES_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"

namespace attn {

/// Says that the rewrite `name` ("fold scale") changed `op`'s kernel: in one sentence, what and why. An MLIR remark of
/// the category "attn", which costs nothing where nobody collects them (`collectRewrites` in Passes.h).
void noteRewrite(mlir::Operation *op, llvm::StringRef name, const llvm::Twine &text);

} // namespace attn

#endif // ATTN_TRANSFORMS_REWRITES_H
