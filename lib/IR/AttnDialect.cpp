//===- AttnDialect.cpp - Registration of the attn dialect -----------------===//

#include "attn/IR/Attn.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn;

#include "attn/IR/AttnDialect.cpp.inc"
#include "attn/IR/AttnEnums.cpp.inc"
#include "attn/IR/AttnInterfaces.cpp.inc"

void AttnDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "attn/IR/AttnOps.cpp.inc"
      >();
  registerAttributesAndTypes();
}

Operation *AttnDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type, Location location) {
  return arith::ConstantOp::materialize(builder, value, type, location);
}
