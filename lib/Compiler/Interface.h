//===- Interface.h - What a kernel takes and gives ---------------*- C++ -*-===//
//
// A kernel's tensors and sizes in a form that needs no MLIR: from it come the table that the runtime checks arguments
// by (attn/Runtime/Signature.h) for this process and for objects, the C header, and Kernel::inputs.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_COMPILER_INTERFACE_H
#define ATTN_LIB_COMPILER_INTERFACE_H

#include "LoweredProgram.h"
#include "attn/CUDA/Nvrtc.h"
#include "attn/IR/Attn.h"
#include "attn/Runtime/Signature.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace attn {

/// A size expression as text and as a postfix program (attn_opcode).
struct SizeProgram {
  std::string text;
  std::vector<attn_instruction> code;
};

struct TensorInterface {
  std::string name;
  std::string dtype; ///< f64 f32 f16 bf16 i64 i32 i8 u8 bool
  int64_t code;      ///< DLDataTypeCode
  int64_t bits;
  std::vector<SizeProgram> shape;
  std::optional<double> defaultValue;
  uint64_t defaultBits = 0; ///< The default's bytes in the tensor's dtype.
};

struct SizeInterface {
  std::string name;
  int64_t tensor, dimension; ///< The dimension of an input that it is solved from.
  SizeProgram solution;
};

/// The value of `part` must not exceed that of `whole`, or `message` is the error.
struct CheckInterface {
  std::string message;
  SizeProgram part, whole;
};

/// See attn_range.
struct RangeInterface {
  std::string index;
  SizeProgram size;
};

/// A subscript that the checking kernel looks at: see attn_bound.
struct BoundInterface {
  std::string statement, tensor;
  int64_t dimension;
  SizeProgram size;
};

struct KernelInterface {
  std::string name;
  std::vector<TensorInterface> inputs, outputs;
  std::vector<SizeInterface> sizes; ///< In an order in which each follows from those before it.
  std::vector<int64_t> sizeOrder;   ///< Position in `sizes` of each of KernelOp::getSizeNames().
  std::vector<CheckInterface> checks;
  std::vector<RangeInterface> ranges;
  std::vector<BoundInterface> bounds;

  /// `checking` is the checking kernel, or null. Fails with a diagnostic where a size is nested too deeply.
  static mlir::FailureOr<KernelInterface> of(KernelOp kernel, KernelOp checking = {});
  /// One more output, of rank 1.
  void addOutput(const std::string &name, mlir::Type element, int64_t extent);
};

struct IntermediateInterface {
  TensorInterface tensor;
  int64_t written, read; ///< Steps.
};

/// See attn_block_tensor and attn_blocks.
struct BlockTensorInterface {
  int64_t argument, isPairs;
  std::vector<int64_t> axes;
};

struct BlocksInterface {
  int64_t first, end, findsKeys, searchesKeys, cutsKeys;
  std::vector<SizeProgram> sizes;
  std::vector<BlockTensorInterface> tensors;
};

/// See attn_cut.
struct CutInterface {
  int64_t size, unit;
};

/// See attn_limit.
struct LimitInterface {
  SizeProgram size;
  int64_t atMost;
};

/// See attn_variant.
struct VariantInterface {
  std::optional<LimitInterface> limit;
  std::vector<int64_t> arguments;
  std::string function; ///< Of Halide; it is called by FUNCTION_argv. Empty: there is nothing to compute.
};

/// See attn_step.
struct StepInterface {
  SizeProgram work;
  std::vector<VariantInterface> variants;
};

/// See attn_tiling.
struct TilingInterface {
  std::string function;
  int64_t rows, keys, threads, sharedBytes, resident;
};

/// See attn_launch.
struct LaunchInterface {
  int64_t step;
  std::vector<int64_t> replaced;
  std::vector<attn_launch_argument> arguments;
  std::vector<TilingInterface> tilings;
  std::string merge;
  int64_t mergingThreads;
  std::vector<CudaImage> images;
  SizeProgram rows, others, keys;
  int64_t stateSize;
  std::vector<LimitInterface> limits;
  std::vector<int64_t> contiguous;
  std::vector<attn_mapped_argument> maps;
};

/// How a kernel runs on one machine: see attn_program.
struct ProgramInterface {
  std::vector<IntermediateInterface> intermediates;
  std::vector<StepInterface> steps;
  std::vector<BlocksInterface> blocks;
  std::vector<CutInterface> cuts;
  std::vector<uint64_t> features;
  Device device = Device::Cpu;
  bool copies = false;
  std::optional<LaunchInterface> launch; ///< See addLaunch.

  /// Of a kernel with these inputs and sizes, and so many outputs, whose functions are called FUNCTION_NAME.
  static ProgramInterface of(const LoweredProgram &kernel, const KernelInterface &interface, size_t outputs,
                             const std::string &function);
};

/// The number of the first argument of each HalideArgument::Kind, as attn_variant counts them, for a kernel with these
/// inputs and sizes, and so many outputs.
std::array<size_t, 6> firstArguments(const LoweredKernel &kernel, const KernelInterface &interface, size_t outputs);

/// What runs of a kernel in this process: itself, and its checking kernel where it has one.
struct KernelPrograms {
  const attn_program *kernel = nullptr;
  const attn_program *checking = nullptr;
};

/// The table of an interface for kernels that run in this process.
class NativeSignature {
public:
  NativeSignature(KernelInterface interface, KernelPrograms programs);
  NativeSignature(const NativeSignature &) = delete;
  const attn_signature &get() const { return signature; }
  /// Null where nothing is checked.
  const attn_bounds *getBounds() const { return bounds.program_count ? &bounds : nullptr; }
  const KernelInterface &getInterface() const { return interface; }

private:
  KernelInterface interface;
  std::vector<std::vector<attn_expression>> shapes;
  std::vector<attn_tensor> tensors;
  std::vector<attn_size> sizes;
  std::vector<attn_check> checks;
  std::vector<attn_range> ranges;
  std::vector<attn_bound> boundList;
  attn_signature signature;
  attn_bounds bounds;
};

} // namespace attn

#endif // ATTN_LIB_COMPILER_INTERFACE_H
