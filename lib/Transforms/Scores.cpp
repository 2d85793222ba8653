//===- Scores.cpp - Formulas that are computed for every pair -------------===//

#include "Scores.h"
#include "Form.h"
#include "Slice.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

SmallVector<PairFormula> attn::pairFormulas(KernelOp kernel) {
  SmallVector<PairFormula> formulas;
  for (Operation &op : kernel.getBody().front()) {
    if (!isa<ScoreOp, WeightedSumOp>(op))
      continue;
    Block &block = cast<DefinitionOpInterface>(op).getBody().front();
    formulas.push_back({&op, &block, block.getArguments().back()});
  }
  return formulas;
}

TensorOp attn::earlierCopy(TensorOp tensor) {
  for (TensorOp other : tensor->getBlock()->getOps<TensorOp>()) {
    if (other == tensor)
      break;
    if (sameFormula(other, tensor))
      return other;
  }
  return {};
}

Value attn::hoist(Value value, Operation *op, StringRef name, OpBuilder &builder, BlockArgument innermost) {
  MLIRContext *context = op->getContext();
  SmallVector<BlockArgument> indices = inOrder(dependence(value));
  llvm::stable_sort(indices, [&](BlockArgument a, BlockArgument b) { return a != innermost && b == innermost; });
  SmallVector<Attribute> names;
  SmallVector<SizeAttr> shape;
  SmallVector<Value> subscripts(indices.begin(), indices.end());
  for (BlockArgument index : indices) {
    names.push_back(StringAttr::get(context, indexName(index)));
    shape.push_back(indexSize(index));
  }
  OpBuilder outside(op);
  auto type = AttnTensorType::get(context, shape, value.getType());
  TensorOp tensor = tensorOf(value, subscripts, freshName(op->getParentOfType<KernelOp>(), name),
                             ArrayAttr::get(context, names), type, outside);
  if (TensorOp same = earlierCopy(tensor)) {
    tensor.erase();
    tensor = same;
  }
  return ReadOp::create(builder, op->getLoc(), tensor.getResult(), subscripts);
}

TensorOp attn::splitOff(ReduceOp reduce, TensorOp tensor, const Twine &suffix) {
  OpBuilder builder(reduce);
  Value element = hoist(reduce.getResult(), tensor, (tensor.getName() + suffix).str(), builder);
  reduce.replaceAllUsesWith(element);
  reduce.erase();
  return element.getDefiningOp<ReadOp>().getTensor().getDefiningOp<TensorOp>();
}

Value attn::floatConstant(double value, Type type, OpBuilder &builder, Location location) {
  return arith::ConstantOp::create(builder, location, builder.getFloatAttr(type, value));
}

Value attn::logisticOperand(Operation *op) {
  auto quotient = dyn_cast<arith::DivFOp>(op);
  auto sum = quotient ? quotient.getRhs().getDefiningOp<arith::AddFOp>() : arith::AddFOp();
  if (!sum || !matchPattern(quotient.getLhs(), m_OneFloat()))
    return {};
  for (unsigned position : {0, 1})
    if (auto exponential = sum->getOperand(position).getDefiningOp<math::ExpOp>();
        exponential && matchPattern(sum->getOperand(1 - position), m_OneFloat()))
      return exponential.getOperand();
  return {};
}

void attn::eraseUnused(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (op.use_empty() && !op.hasTrait<OpTrait::IsTerminator>())
      op.erase();
}

IndexSet attn::queryIndices(const PairFormula &formula) {
  auto rows = formula.block->getArguments().drop_back();
  IndexSet queries;
  if (auto sum = dyn_cast<WeightedSumOp>(formula.op)) {
    if (static_cast<int64_t>(sum.getQuery()) >= 0)
      queries.insert(rows[sum.getQuery()]);
    return queries;
  }
  size_t most = 0;
  formula.block->walk([&](ReadOp read) {
    IndexSet used = dependence(read.getSubscripts()), lacking;
    if (!isa<FloatType>(read.getType()) || !used.contains(formula.key))
      return;
    for (BlockArgument row : rows)
      if (!used.contains(row))
        lacking.insert(row);
    size_t held = rows.size() - lacking.size();
    if (!lacking.empty() && (queries.empty() || held > most))
      most = held, queries = lacking;
  });
  return queries;
}

Value attn::sumLike(ReduceOp reduce, Value condition, OpBuilder &builder,
                    llvm::function_ref<Value(OpBuilder &, IRMapping &)> term) {
  Location location = reduce.getLoc();
  SmallVector<SizeAttr> sizes(reduce.getSizes().getAsRange<SizeAttr>());
  auto sum = ReduceOp::create(builder, location, ReduceKind::Sum, reduce.getIndices(), sizes, reduce.getType(),
                              ValueRange(), Value(), static_cast<bool>(condition));
  IRMapping mapping;
  mapping.map(reduce.getBody().getArguments(), sum.getBody().getArguments());
  for (Block *around = reduce->getBlock(); !isa<KernelOp>(around->getParentOp());
       around = around->getParentOp()->getBlock())
    mapping.map(around->getArguments(), around->getArguments());
  OpBuilder inside = OpBuilder::atBlockEnd(&sum.getBody().front());
  Value value = term(inside, mapping);
  YieldOp::create(inside, location, value);
  if (condition) {
    inside.setInsertionPointToEnd(&sum.getWhere().front());
    YieldOp::create(inside, location, condition);
  }
  return sum;
}

void attn::distribute(ReduceOp reduce, Operation *both) {
  OpBuilder builder(reduce);
  Value parts[2];
  for (unsigned part : {0, 1}) {
    Value copy;
    parts[part] = sumLike(reduce, {}, builder, [&](OpBuilder &inside, IRMapping &mapping) {
      Value term = cloneSlice(yielded(reduce.getBody()), mapping, inside);
      copy = mapping.lookup(both->getResult(0));
      return term;
    });
    copy.replaceAllUsesWith(copy.getDefiningOp()->getOperand(part));
    eraseUnused(parts[part].getDefiningOp<ReduceOp>().getBody().front());
  }
  Value result = isa<arith::AddFOp>(both)
                     ? arith::AddFOp::create(builder, reduce.getLoc(), parts[0], parts[1]).getResult()
                     : arith::SubFOp::create(builder, reduce.getLoc(), parts[0], parts[1]).getResult();
  reduce.getResult().replaceAllUsesWith(result);
  reduce->erase();
}

Value attn::negate(Value condition, OpBuilder &builder) {
  Location location = condition.getLoc();
  Value yes = arith::ConstantOp::create(builder, location, builder.getBoolAttr(true));
  return arith::XOrIOp::create(builder, location, condition, yes);
}
