//===- RuntimeTest.h - A kernel whose arguments can be wrong ----*- C++ -*-===//

#ifndef ATTN_TEST_UNIT_RUNTIMETEST_H
#define ATTN_TEST_UNIT_RUNTIMETEST_H

#include "TestTensor.h"
#include "attn/Runtime/Runtime.h"
#include "lib/Compiler/Interface.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Parser/Parser.h"
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <sys/resource.h>
#include <unistd.h>

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

/// While this lives, the process gets no more than 64 MiB from the system.
class LittleMemory {
public:
  LittleMemory() {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before);
    rlimit limited = {pages * sysconf(_SC_PAGESIZE) + (rlim_t(64) << 20), before.rlim_max};
    setrlimit(RLIMIT_AS, &limited);
  }
  LittleMemory(const LittleMemory &) = delete;
  ~LittleMemory() { setrlimit(RLIMIT_AS, &before); }

private:
  rlimit before;
};

} // namespace attn

#endif // ATTN_TEST_UNIT_RUNTIMETEST_H
