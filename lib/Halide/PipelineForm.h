//===- PipelineForm.h - What pipelines with the same code share -*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_PIPELINEFORM_H
#define ATTN_LIB_HALIDE_PIPELINEFORM_H

#include "StepLowering.h"

namespace attn::lowering {

/// All that decides the code of the step's pipeline, as a text: arguments in order, definitions and schedules, with
/// numbers for names, in the order in which they are met. Steps of one form become the same code, as three projections
/// do that differ in what they are called.
std::string pipelineForm(const StepLowering &step);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_PIPELINEFORM_H
