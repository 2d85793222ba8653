//===- Tensors.h - Between DLTensors and the reference's doubles -*- C++ -*-===//

#ifndef ATTN_LIB_COMPILER_TENSORS_H
#define ATTN_LIB_COMPILER_TENSORS_H

#include "attn/Reference/Reference.h"
#include "attn/Runtime/DLPack.h"

namespace attn {

/// The values of a tensor of any strides and any dtype of the language, which the caller has checked.
ReferenceTensor readTensor(const DLTensor &tensor);

/// Stores values into a tensor of their shape, rounded to its dtype: to nearest, ties to even.
void writeTensor(const ReferenceTensor &values, const DLTensor &tensor);

} // namespace attn

#endif // ATTN_LIB_COMPILER_TENSORS_H
