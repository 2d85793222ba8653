//===- Lowering.h - From the dialect to Halide ------------------*- C++ -*-===//
//
// The only folder that includes Halide.h, and the only exception boundary: everything that
// Halide throws comes out of here as an llvm::Error.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_HALIDE_LOWERING_H
#define ATTN_HALIDE_LOWERING_H

#include "attn/IR/Attn.h"
#include "attn/Plan/Plan.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>
#include <vector>

namespace attn {

/// The machine that a Halide target string names; "host" is the one this runs on. An error for anything else.
llvm::Expected<Machine> machineForTarget(llvm::StringRef target);

/// What `emit` can print of a lowered kernel.
enum class HalideStage { Halide, Loops };

/// A kernel as a scheduled Halide pipeline.
///
/// The function it becomes has C linkage and is called through `FUNCTION_argv(void **arguments)`. The arguments are, in
/// order: one for each parameter (`halide_buffer_t *`, or a pointer to the value of a scalar), one `int32_t *` for each
/// size of `KernelOp::getSizeNames()`, one `halide_buffer_t *` for each output. Dimension 0 of a buffer is the last of
/// the tensor (row-major order reversed) and has stride 1; all minima are 0; an extent of 0 is passed as 1
/// (the sizes say the truth; the data does not matter, but there must be one row of it). No size exceeds 2^30.
/// It returns 0 or a Halide error code.
class HalideKernel {
public:
  HalideKernel(HalideKernel &&);
  ~HalideKernel();

  /// The pipeline before or after Halide's own lowering, as text.
  llvm::Expected<std::string> print(HalideStage stage) const;
  /// The sums whose chunks the kernel counts, where its plan says so. Each has one more output after the kernel's own,
  /// of three int64_t: the chunks that were visited, those of them on which the mask was evaluated, and all there are.
  const std::vector<std::string> &countedSums() const;

  /// The target's features, a bit each, as halide_can_use_target_features of Halide's runtime takes them.
  std::vector<uint64_t> features() const;
  /// LLVM bitcode of the function `function` (and `function_argv`), without Halide's runtime.
  llvm::Expected<std::string> bitcode(llvm::StringRef function) const;

  struct Implementation;
  explicit HalideKernel(std::unique_ptr<Implementation> implementation);

private:
  std::unique_ptr<Implementation> implementation;
};

/// Builds the pipeline of a simplified kernel and schedules it by `plan`.
/// What cannot be lowered yet is an error that names it.
llvm::Expected<HalideKernel> lowerToHalide(KernelOp kernel, const Plan &plan, const Machine &machine);

/// Halide's runtime alone, as LLVM bitcode, for the processor of `target` without its features.
llvm::Expected<std::string> halideRuntimeBitcode(llvm::StringRef target);

} // namespace attn

#endif // ATTN_HALIDE_LOWERING_H
