//===- Implementation.h - What a HalideFunction holds -----------*- C++ -*-===//

#ifndef ATTN_LIB_HALIDE_IMPLEMENTATION_H
#define ATTN_LIB_HALIDE_IMPLEMENTATION_H

#include "StepLowering.h"
#include "attn/Halide/Lowering.h"

struct attn::HalideFunction::Implementation {
  std::string name, code;
  std::optional<SizeLimit> limit;
  mutable Halide::Pipeline pipeline; // printing and compiling cache inside it
  std::vector<Halide::Argument> inputs;
  std::vector<HalideArgument> arguments;
  std::vector<lowering::DerivedSize> derivedSizes;
  Halide::Target target;

  /// What the pipeline becomes. It computes the derived sizes when it starts.
  Halide::Module module(const std::string &function, const Halide::Target &target) const;
};

namespace attn::lowering {

/// The Halide target of a machine, with the rules all our kernels are compiled by.
Halide::Target loweringTarget(const Machine &machine);

/// Its features, a bit each, as halide_can_use_target_features of Halide's runtime takes them.
std::vector<uint64_t> featureWords(const Halide::Target &target);

/// Keeps Halide from writing its warnings to the process's stderr; errors are thrown as they are by default. Once a
/// process.
void silenceHalide();

/// Runs `body` and turns what this folder and Halide throw into an error.
template <typename Body> auto guarded(Body body) -> llvm::Expected<decltype(body())> {
  silenceHalide();
  try {
    return body();
  } catch (const Unsupported &error) {
    return llvm::createStringError(error.what());
  } catch (const Halide::Error &error) {
    return llvm::createStringError("internal error in Halide: " + std::string(error.what()));
  } catch (const std::logic_error &error) {
    return llvm::createStringError("internal error in the lowering: " + std::string(error.what()));
  }
}

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_IMPLEMENTATION_H
