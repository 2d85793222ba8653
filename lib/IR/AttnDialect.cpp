//===- AttnDialect.cpp - Registration of the attn dialect -----------------===//

#include "attn/IR/Attn.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FoldInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn;

#include "attn/IR/AttnDialect.cpp.inc"
#include "attn/IR/AttnEnums.cpp.inc"
#include "attn/IR/AttnInterfaces.cpp.inc"

namespace {
/// Constants stay in the formula that uses them: a kernel's block holds graph ops only.
struct FoldInterface : DialectFoldInterface {
  using DialectFoldInterface::DialectFoldInterface;

  bool shouldMaterializeInto(Region *region) const final { return isa<DefinitionOpInterface>(region->getParentOp()); }
};
} // namespace

void AttnDialect::initialize() {
  addInterfaces<FoldInterface>();
  addOperations<
#define GET_OP_LIST
#include "attn/IR/AttnOps.cpp.inc"
      >();
  registerAttributesAndTypes();
}

Operation *AttnDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type, Location location) {
  return arith::ConstantOp::materialize(builder, value, type, location);
}
