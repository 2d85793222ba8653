//===- Inputs.h - The arrays that a kernel is run on ------------*- C++ -*-===//

#ifndef ATTN_TOOLS_ATTNRUN_INPUTS_H
#define ATTN_TOOLS_ATTNRUN_INPUTS_H

#include "Arguments.h"

namespace attn::run {

/// One array a parameter, nothing where a scalar has its default. Throws Failure for a missing or unknown name, another
/// element type than the parameter's, and what else does not fit; shapes are left to the kernel.
std::vector<std::optional<Array>> makeInputs(const std::vector<TensorInfo> &parameters, const Arguments &arguments);

/// `q: f32[B, M, D]`
std::string describe(const TensorInfo &tensor);

/// Throws Failure where a name of `--output` is not one of `outputs`.
void checkOutputNames(const std::vector<TensorInfo> &outputs, const Arguments &arguments);

} // namespace attn::run

#endif // ATTN_TOOLS_ATTNRUN_INPUTS_H
