//===- Work.h - How much a statement computes, at most ----------*- C++ -*-===//
//
// What decides how many threads are worth waking for it: a bound that is quick to evaluate when the sizes are known,
// not a prediction of time.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_ANALYSIS_WORK_H
#define ATTN_ANALYSIS_WORK_H

#include "attn/Analysis/Cost.h"

namespace attn {

/// The operations of `statement`, and of all that is computed with it: what it reads that is not stored. Each counts
/// once for each value of the index variables around it, whatever a mask says; a function such as exp counts as 30.
SizePolynomial workOf(mlir::Operation *statement, llvm::function_ref<bool(mlir::Value)> isStored);

} // namespace attn

#endif // ATTN_ANALYSIS_WORK_H
