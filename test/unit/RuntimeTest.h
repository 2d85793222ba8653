//===- RuntimeTest.h - A kernel whose arguments can be wrong ----*- C++ -*-===//

#ifndef ATTN_TEST_UNIT_RUNTIMETEST_H
#define ATTN_TEST_UNIT_RUNTIMETEST_H

#include "TestTensor.h"
#include "attn/Runtime/Runtime.h"
#include "lib/Compiler/Interface.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>
#include <memory>
#include <numeric>

namespace attn {

/// A program of one step: `function` is called with the kernel's inputs, sizes and outputs.
struct OneStep {
  OneStep(const KernelInterface &interface, int (*function)(void **))
      : arguments(interface.inputs.size() + interface.sizes.size() + interface.outputs.size()) {
    std::iota(arguments.begin(), arguments.end(), 0);
    variant.argument_count = arguments.size();
    variant.arguments = arguments.data();
    variant.function = function;
    step = {{}, &variant};
    program.step_count = 1;
    program.steps = &step;
  }

  std::vector<int64_t> arguments;
  attn_variant variant = {};
  attn_step step;
  attn_program program = {};
};

/// The table of the one kernel of an .mlir text. `function` takes the place of its code.
inline std::unique_ptr<NativeSignature> signatureOf(const char *text, int (*function)(void **)) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<AttnDialect, mlir::arith::ArithDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module)
    return nullptr;
  mlir::FailureOr<KernelInterface> interface = KernelInterface::of(*module->getOps<KernelOp>().begin());
  if (failed(interface))
    return nullptr;
  static std::vector<std::unique_ptr<OneStep>> steps; // signatures point to them
  steps.push_back(std::make_unique<OneStep>(*interface, function));
  return std::make_unique<NativeSignature>(std::move(*interface), KernelPrograms{&steps.back()->program});
}

} // namespace attn

#endif // ATTN_TEST_UNIT_RUNTIMETEST_H
