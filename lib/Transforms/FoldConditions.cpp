//===- FoldConditions.cpp - What a sum's `where` says already -------------===//
//
//   sum[n](select(n <= m, x[n], 0.0) where n <= m)
//
// becomes
//
//   sum[n](x[n] where n <= m)
//
//===----------------------------------------------------------------------===//

#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/OperationSupport.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNFOLDCONDITIONS
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Whether two values, one in the body and one in the condition of `reduce`, have the same formula.
static bool isSame(Value inBody, Value inCondition, ReduceOp reduce) {
  if (inBody == inCondition)
    return true;
  auto index = dyn_cast<BlockArgument>(inBody), other = dyn_cast<BlockArgument>(inCondition);
  if (index || other)
    return index && other && index.getOwner()->getParent() == &reduce.getBody() &&
           other.getOwner()->getParent() == &reduce.getWhere() && index.getArgNumber() == other.getArgNumber();
  Operation *a = inBody.getDefiningOp(), *b = inCondition.getDefiningOp();
  return a->getName() == b->getName() && a->getNumRegions() == 0 && a->getAttrDictionary() == b->getAttrDictionary() &&
         a->getPropertiesAsAttribute() == b->getPropertiesAsAttribute() && a->getNumOperands() == b->getNumOperands() &&
         llvm::all_of(llvm::zip_equal(a->getOperands(), b->getOperands()),
                      [&](auto pair) { return isSame(std::get<0>(pair), std::get<1>(pair), reduce); });
}

/// Whether `condition` holds for every term of `reduce`, because `where` is it, or it and something else.
static bool holds(Value condition, Value where, ReduceOp reduce) {
  if (isSame(condition, where, reduce))
    return true;
  if (auto both = condition.getDefiningOp<arith::AndIOp>())
    return holds(both.getLhs(), where, reduce) && holds(both.getRhs(), where, reduce);
  auto both = where.getDefiningOp<arith::AndIOp>();
  return both && (holds(condition, both.getLhs(), reduce) || holds(condition, both.getRhs(), reduce));
}

namespace {
struct FoldConditions : attn::impl::AttnFoldConditionsBase<FoldConditions> {
  void runOnOperation() override {
    getOperation().walk([](ReduceOp reduce) {
      if (!reduce.isConditional())
        return;
      Value where = yielded(reduce.getWhere());
      reduce.getBody().walk([&](arith::SelectOp select) {
        if (holds(select.getCondition(), where, reduce)) {
          select.getResult().replaceAllUsesWith(select.getTrueValue());
          select.erase();
        }
      });
    });
  }
};
} // namespace
