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

namespace attn {

/// The table of the one kernel of an .mlir text. `function` takes the place of its code.
inline std::unique_ptr<NativeSignature> signatureOf(const char *text, int (*function)(void **)) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<AttnDialect, mlir::arith::ArithDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module)
    return nullptr;
  mlir::FailureOr<KernelInterface> interface = KernelInterface::of(*module->getOps<KernelOp>().begin());
  return failed(interface) ? nullptr
                           : std::make_unique<NativeSignature>(std::move(*interface), KernelFunctions{function});
}

} // namespace attn

#endif // ATTN_TEST_UNIT_RUNTIMETEST_H
