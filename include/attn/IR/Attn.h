//===- Attn.h - The attn dialect --------------------------------*- C++ -*-===//
//
// The dialect's attributes, types and ops. Their reference page, docs/dialect.md, is
// generated from the .td files beside this header.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_IR_ATTN_H
#define ATTN_IR_ATTN_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/StringMap.h"

#include <optional>
#include <string>

namespace attn {
class ReturnOp;

/// No dimension is longer, and no index ranges over more, for the runtime checks it: sums of two indices fit in 32
/// bits.
inline constexpr int64_t longestDimension = int64_t(1) << 30;
} // namespace attn

#include "attn/IR/AttnEnums.h.inc"

#include "attn/IR/AttnDialect.h.inc"

#define GET_ATTRDEF_CLASSES
#include "attn/IR/AttnAttributes.h.inc"

#define GET_TYPEDEF_CLASSES
#include "attn/IR/AttnTypes.h.inc"

#include "attn/IR/AttnInterfaces.h.inc"

#define GET_OP_CLASSES
#include "attn/IR/AttnOps.h.inc"

namespace attn {

/// Calls in which `size` is at most `atMost`.
struct SizeLimit {
  SizeAttr size;
  int64_t atMost;
};

/// Whether a reduction of this kind sums exponentials: a softmax or a log-sum-exp.
bool isExponential(ReduceKind kind);

/// Whether a reduction of this kind is a maximum or a minimum: one of its terms.
bool isExtreme(ReduceKind kind);

/// The value that the formula in `region` yields; of a weighted sum's two, the weight, or the value at `position` 1.
mlir::Value yielded(mlir::Region &region, unsigned position = 0);

/// The region whose formula defines an element of `tensor`, which is no parameter and not of a softmax.
mlir::Region &bodyOf(mlir::Value tensor);

/// The name of `tensor` in the source: of a parameter, or of its statement. "softmax" for the result of a softmax that
/// has no name for it.
std::string tensorName(mlir::Value tensor);

} // namespace attn

#endif // ATTN_IR_ATTN_H
