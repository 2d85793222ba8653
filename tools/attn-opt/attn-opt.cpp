//===- attn-opt.cpp - Runs passes over .mlir files, for lit ----------------===//

#include "attn/IR/Attn.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  registry.insert<attn::AttnDialect, mlir::arith::ArithDialect, mlir::math::MathDialect>();
  mlir::registerTransformsPasses();
  attn::registerAttnPasses();
  attn::registerSimplification();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "attn optimizer driver\n", registry));
}
