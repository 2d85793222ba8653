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
#include <optional>
#include <string>
#include <vector>

namespace attn {

/// The machine that a Halide target string names; "host" is the one this runs on, "cuda" and "opencl" are its GPU.
/// Architectures of NVIDIA's GPUs may follow "cuda": x86-64-linux-cuda-sm_80,sm_90a. An error for anything else.
llvm::Expected<Machine> machineForTarget(llvm::StringRef target);
/// The targets of a list that is separated by commas, as are the architectures in each.
llvm::SmallVector<llvm::StringRef> splitTargets(llvm::StringRef targets);

/// `name` without the numbers, $1 for example, by which Halide tells apart what has the same name in a process.
std::string withoutNumbers(llvm::StringRef name);

/// What `emit` can print of a lowered kernel.
enum class HalideStage { Halide, Loops };

/// What a Halide function is given: a parameter, a size of `KernelOp::getSizeNames()`, an output (those of the kernel,
/// then what it counts), or an intermediate of `LoweredKernel`. In steps of blocks (LoweredBlocks) also where a block
/// begins along an axis (2 · axis) and how far it goes (2 · axis + 1), as numbers; and where to write which keys it
/// needs: the first, and the one after the last.
struct HalideArgument {
  enum Kind { Input, Size, Output, Intermediate, Axis, Keys } kind;
  unsigned index;
  /// If it is repeated: it is given dimension 0 of the argument before it first, along which it has the same elements,
  /// and then its own, dimension i in the bits from 4 · i on.
  std::optional<uint64_t> repeated = std::nullopt;

  bool operator==(const HalideArgument &) const = default;
};

/// A step of a kernel, or its variant for some calls, as a scheduled Halide pipeline.
///
/// The function it becomes has C linkage and is called through `FUNCTION_argv(void **arguments)`. Tensors are
/// `halide_buffer_t *`, scalar parameters pointers to their values, sizes `int32_t *`. Dimension 0 of a buffer is the
/// last of the tensor (row-major order reversed) and has stride 1; all minima are 0; an extent of 0 is passed as 1
/// (the sizes say the truth; the data does not matter, but there must be one row of it). No size exceeds 2^30.
/// It returns 0 or a Halide error code.
class HalideFunction {
public:
  HalideFunction(HalideFunction &&);
  HalideFunction &operator=(HalideFunction &&);
  ~HalideFunction();

  /// What it computes, as a word that no other function of the kernel has.
  const std::string &name() const;
  /// The name of the function whose code it has: its own, or that of another of the kernel which differs in names
  /// alone.
  const std::string &code() const;
  /// The calls it is for: those within this limit, or all.
  const std::optional<SizeLimit> &limit() const;
  /// What it is given, in order.
  const std::vector<HalideArgument> &arguments() const;

  /// The pipeline before or after Halide's own lowering, as text.
  llvm::Expected<std::string> print(HalideStage stage) const;
  /// LLVM bitcode of the function `function` (and `function_argv`), without Halide's runtime.
  llvm::Expected<std::string> bitcode(llvm::StringRef function) const;
  /// What the device compiles: PTX or OpenCL C, after a line for each launch (see Occupancy.cpp).
  llvm::Expected<std::string> deviceSource() const;

  struct Implementation;
  explicit HalideFunction(std::unique_ptr<Implementation> implementation);

private:
  std::unique_ptr<Implementation> implementation;
};

/// What computes one tensor. A call takes the first variant within whose limit it is; the last has none. One within a
/// limit of `unread` takes none.
struct LoweredStep {
  SizeAttr work; ///< Its operations, at most (attn/Analysis/Work.h). Null: they are not known.
  std::vector<SizeLimit> unread;
  std::vector<HalideFunction> variants;
  std::vector<HalideArgument> written; ///< Where that tensor is.
};

/// A tensor between steps.
struct Intermediate {
  mlir::Value tensor;
  std::string name;
  AttnTensorType type;
  int written; ///< The step that writes it; −1: there is only a block of it at a time.
  int read;    ///< The last step that reads it.
};

/// A tensor that steps of blocks write.
struct BlockTensor {
  HalideArgument place;
  bool isPairs;          ///< Only a block of it is stored. Otherwise it is 0 before the first block.
  std::vector<int> axes; ///< The axis of each dimension; −1: it is not cut.
};

/// Which keys a block of rows computes.
enum class BlockKeys {
  All,
  OfText,  ///< Those that masks let through by their text.
  Searched ///< Those that they let through among some that the step is given.
};

/// Steps that run for one block after the other (attn/Analysis/PairBlocks.h). Their buffers of block tensors have the
/// elements of the block alone. Minima say where it begins, but for pairs, which are counted from there.
struct LoweredBlocks {
  unsigned first, end;             ///< The steps from `first` to the one before `end`.
  std::vector<SizeAttr> sizes;     ///< Of the axes: rows, the outermost first, then keys.
  BlockKeys keys = BlockKeys::All; ///< Unless all, the first step writes HalideArgument::Keys, and needs no other.
  bool cutsKeys;                   ///< See PairBlocks::cutsKeys.
  std::vector<BlockTensor> tensors;
};

/// A kernel for one machine. Every tensor that is stored has a step of its own, so that each is compiled by itself:
/// what Halide and LLVM spend on a pipeline grows faster than its size.
struct LoweredKernel {
  std::vector<Intermediate> intermediates;
  std::vector<LoweredStep> steps;    ///< In the order in which they run.
  std::vector<LoweredBlocks> blocks; ///< The first steps first.
  std::vector<CutSize> cuts;         ///< The sizes along which a call may run as several.
  /// The sums whose chunks the kernel counts, where its plan says so. Each has one more output after the kernel's own,
  /// of three int64_t: the chunks that were visited, those of them on which the mask was evaluated, and all there are.
  std::vector<std::string> countedSums;
  /// The machine's features, a bit each, as halide_can_use_target_features of Halide's runtime takes them.
  std::vector<uint64_t> features;
  /// What runs the steps. On a GPU, tensors are in its memory: functions are given buffers with the device's handle in
  /// place of an address, or with an address that they copy from; outputs are left on the device.
  Device device = Device::Cpu;
};

/// The functions of a kernel, in order.
std::vector<const HalideFunction *> functionsOf(const LoweredKernel &kernel);

/// Builds the pipelines of a simplified kernel and schedules them by `plan`.
/// What cannot be lowered yet is an error that names it.
llvm::Expected<LoweredKernel> lowerToHalide(KernelOp kernel, const Plan &plan, const Machine &machine);

/// Halide's runtime alone, as LLVM bitcode, for the processor of `target` without its features; with what drives these
/// devices.
llvm::Expected<std::string> halideRuntimeBitcode(llvm::StringRef target, llvm::ArrayRef<Device> devices);

} // namespace attn

#endif // ATTN_HALIDE_LOWERING_H
