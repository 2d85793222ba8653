//===- Conjunction.cpp - Conditions that must all hold --------------------===//

#include "Conjunction.h"
#include "Scores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

Value attn::conjunction(ArrayRef<Value> conditions, OpBuilder &builder) {
  Value all;
  for (Value condition : conditions)
    all = all ? arith::AndIOp::create(builder, condition.getLoc(), all, condition).getResult() : condition;
  return all;
}

void attn::setConditions(ReduceOp reduce, ArrayRef<Value> conditions) {
  Block &where = reduce.getWhere().front();
  if (conditions.empty()) {
    where.erase(); // a reduction without a block there has no condition
    return;
  }
  OpBuilder builder(where.getTerminator());
  where.getTerminator()->setOperand(0, conjunction(conditions, builder));
  eraseUnused(where);
}
