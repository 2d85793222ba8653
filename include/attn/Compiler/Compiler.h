//===- Compiler.h - Compile and run attention from C++ ----------*- C++ -*-===//
//
// The embeddable compiler. This header needs neither MLIR nor Halide.
//
//   attn::Kernel kernel = attn::compile(source, {.target = "host"});
//   kernel.run({&q, &k, &v, &valid}, {&out, &weight});
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_COMPILER_COMPILER_H
#define ATTN_COMPILER_COMPILER_H

#include "attn/Runtime/DLPack.h"
#include "attn/Runtime/Runtime.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#define ATTN_EXPORT __attribute__((visibility("default")))

namespace attn {

/// There is no kernel: the source has errors, and `what()` is the text of all of them, with source lines and carets; or
/// an option is wrong, such as the target.
class ATTN_EXPORT CompileError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;

  /// What `tool` says of it, in whole lines: an error that is of no place in the source is its own, `TOOL: error: …`.
  std::string report(std::string_view tool) const;
};

/// The arguments of a call do not fit the kernel, or the kernel failed: `what()` names the tensor, what was
/// expected and what was found. `code` is that of the C interface (attn/Runtime/Runtime.h).
class ATTN_EXPORT RunError : public std::runtime_error {
public:
  RunError(int code, const std::string &message) : std::runtime_error(message), code(code) {}
  int code;
};

struct CompileOptions {
  std::string kernel = {}; ///< Which kernel of the source; empty where it has only one.
  /// A Halide target string, or "opencl" or "cuda" for a GPU of this machine. Kernels run where this machine has what
  /// the target names. "cuda-sm_80,sm_90a" has code for the tensor cores of these architectures where a kernel is one
  /// for them (docs/tensor-cores.md); compiling it needs NVRTC.
  std::string target = "host";
  std::map<std::string, int64_t> sizes = {}; ///< Sizes fixed at compile time, by name.
  std::string dtype = {};                    ///< "f32", "bf16", "f16", or empty for the source's own.
  std::string name = "<source>";             ///< The source's name in messages.
  /// A run fails with ATTN_ERROR_BOUNDS where a subscript that depends on data is used and outside its tensor, and
  /// writes nothing. (The reference clamps such subscripts, as kernels do without this.)
  bool checkBounds = false;
  /// For tests, of `compile` alone: each tiled sum NAME has one more output, NAME_chunks: i64[3], with how many chunks
  /// of keys the kernel visited, on how many of them it evaluated the mask, and how many there are. (The reference has
  /// none.)
  bool countChunks = false;
  /// Compiles the forward and the backward kernel instead, named NAME_forward and NAME_backward: the gradients by these
  /// inputs; by all floating-point ones where there are none. `kernel` may name one of the two. (docs/gradients.md)
  std::optional<std::vector<std::string>> gradient = {};
  /// On a GPU: tensors in the CPU's memory are copied there and back. Without, they are an error.
  bool copy = false;
  /// Sizes of the plan by name, in place of those that are chosen: "tile.chunk" (`attnc --plan=help` lists them).
  /// Without, they come from the tuning database that the variable ATTN_TUNING_DB names (attn/Compiler/Tune.h), where
  /// it has this kernel on this machine.
  std::optional<std::map<std::string, int64_t>> plan = {};
};

/// A parameter or an output of a kernel.
struct TensorInfo {
  std::string name;
  std::string dtype;                  ///< f64 f32 f16 bf16 i64 i32 i8 u8 bool
  std::vector<std::string> shape;     ///< Size expressions: "B", "H * D"; empty for a scalar.
  std::optional<double> defaultValue; ///< Of a scalar parameter.
};

/// A compiled kernel: a cheap handle, shared between copies. All members are thread-safe.
class ATTN_EXPORT Kernel {
public:
  const std::string &name() const;
  const std::vector<TensorInfo> &inputs() const;
  const std::vector<TensorInfo> &outputs() const;

  /// Runs on the caller's tensors. `inputs` has one tensor for each parameter; a scalar is a tensor of rank 0, or null
  /// for its default. `outputs` has one tensor for each output, of the dtype and shape that `outputShapes` gives.
  /// Throws RunError; then nothing was written. What a kernel of `compileLazily` lacks for these sizes is compiled
  /// first.
  void run(const std::vector<const DLTensor *> &inputs, const std::vector<DLTensor *> &outputs) const;

  /// The shapes of the outputs for these inputs. Throws RunError where the inputs do not fit. What `compileLazily` gave
  /// is lowered first: it says on which devices they may be.
  std::vector<std::vector<int64_t>> outputShapes(const std::vector<const DLTensor *> &inputs) const;

  /// Runs the reference interpreter (double precision, plain loops) on the same tensors.
  void reference(const std::vector<const DLTensor *> &inputs, const std::vector<DLTensor *> &outputs) const;

  /// What `attn::emit` gives for this kernel: the text of one of `stages`, or the bytes of the stage `object`. Throws
  /// CompileError, and std::invalid_argument for an unknown stage.
  std::string emit(const std::string &stage) const;

  struct Implementation;
  explicit Kernel(std::shared_ptr<const Implementation> implementation);

private:
  std::shared_ptr<const Implementation> implementation;
};

/// Compiles one kernel of `source` for this machine. The same source and options give the same kernel from
/// a cache in memory, and in a later process from one on disk: in the folder that the variable ATTN_CACHE_DIR names, or
/// `attn` in the user's cache folder; none where the variable is empty. Thread-safe. Throws CompileError.
ATTN_EXPORT Kernel compile(std::string_view source, const CompileOptions &options = {});

/// The same kernel, but of its functions, which are for different sizes, each is compiled when a call first needs it,
/// and never where none does; what one call needs, in as many threads as there are cores. Errors of the source and the
/// options are thrown here; what `compile` finds later, when it makes machine code, is thrown by `Kernel::run`, as
/// CompileError. `compile` makes what is missing.
ATTN_EXPORT Kernel compileLazily(std::string_view source, const CompileOptions &options = {});

/// Kernels compiled ahead of time.
struct ObjectFile {
  std::string object;               ///< A relocatable object that needs libc, libm, libdl and libpthread alone.
  std::string header;               ///< The C declarations of its kernels.
  std::vector<std::string> kernels; ///< Their names.
};

/// Compiles the kernels of `source` (all of them where `options.kernel` is empty) for `options.target`, which may be
/// several targets of one architecture and system, separated by commas, the best first: a call uses the first one whose
/// instructions the processor has, and fails with ATTN_ERROR_KERNEL where it has none of them. Where `runtime`
/// is false, the object leaves out the runtime, which another object of the program then brings. `headerName`
/// ("scaled_dot.h") is named in the header's guard and comment. Throws CompileError.
ATTN_EXPORT ObjectFile compileToObject(std::string_view source, const CompileOptions &options,
                                       const std::string &headerName, bool runtime = true);

/// The stages that `emit` can print, in the order in which a kernel passes them.
ATTN_EXPORT const std::vector<std::string> &stages();

/// The text of a stage for the kernels of `source` (all of them where `options.kernel` is empty), or the bytes of the
/// stage `object`. Throws CompileError, and std::invalid_argument for an unknown stage.
ATTN_EXPORT std::string emit(std::string_view source, const CompileOptions &options, const std::string &stage);

/// What was rewritten in the kernels of `source` and why, with the costs of their formulas before and after:
/// operations, calls of functions and bytes, as polynomials in the sizes that are not fixed. Throws CompileError.
ATTN_EXPORT std::string explain(std::string_view source, const CompileOptions &options);

/// The sizes of plans that CompileOptions::plan may have, a line each: name, values, meaning.
ATTN_EXPORT std::string describePlanSettings();

/// What is known of the processor that `target` names, a line each: its instructions and registers, and of "host" its
/// cores and caches. Throws CompileError for an unknown target.
ATTN_EXPORT std::string describeMachine(const std::string &target = "host");

/// At most how many threads work on a call of a kernel, the one that calls among them; 0 means one a core. Not to be
/// called while a kernel runs.
ATTN_EXPORT void setNumThreads(int threads);

/// Kernels of this process run on the program's own threads: see attn_set_thread_pool in attn/Runtime/Runtime.h.
ATTN_EXPORT void setThreadPool(attn_parallel_for parallelFor, void *pool);

} // namespace attn

#endif // ATTN_COMPILER_COMPILER_H
