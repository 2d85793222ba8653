//===- Equality.cpp - Where a number that is read says a place ------------===//

#include "Equality.h"
#include "Subscripts.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/PlacedSum.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

std::optional<Equality> attn::equalityOf(Value condition, Block &block) {
  auto compare = condition.getDefiningOp<arith::CmpIOp>();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::eq)
    return std::nullopt;
  for (auto [side, value] :
       {std::pair(compare.getLhs(), compare.getRhs()), std::pair(compare.getRhs(), compare.getLhs())}) {
    auto index = dyn_cast<BlockArgument>(side);
    if (index && index.getOwner() == &block && !dependence(value).contains(index) &&
        anyInSlice(value, [](Operation *op) { return isa<ReadOp>(op); }))
      return Equality{condition, index, value};
  }
  return std::nullopt;
}

std::optional<Equality> attn::equalityIn(ReduceOp reduce, Block &block) {
  for (Value condition : conjunctsOf(yielded(reduce.getWhere())))
    if (std::optional<Equality> equality = equalityOf(condition, block))
      return equality;
  return std::nullopt;
}

static bool isPlace(Value value, SizeAttr size) { return isClamped(value, size) || isInRange(value, size); }

SmallVector<Value> attn::insideOf(Value value, SizeAttr size, OpBuilder &builder) {
  if (isPlace(value, size))
    return {};
  Location location = value.getLoc();
  Value zero = arith::ConstantOp::create(builder, location, builder.getI64IntegerAttr(0));
  Value end = SizeOp::create(builder, location, size);
  return {arith::CmpIOp::create(builder, location, arith::CmpIPredicate::sge, value, zero),
          arith::CmpIOp::create(builder, location, arith::CmpIPredicate::slt, value, end)};
}

Value attn::placeIn(Value value, SizeAttr size, OpBuilder &builder) {
  return isPlace(value, size) ? value : clamp(value, size, builder, value.getLoc());
}
