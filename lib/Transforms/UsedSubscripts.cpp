//===- UsedSubscripts.cpp - Which subscripts an output depends on ---------===//
//
//   score[b, n]  = sum[d](q[b, d] * k[page[b, n // 16], n % 16, d])
//   weight[b, n] = softmax[n](score[b, n] where n < length[b])
//   out[b, e]    = sum[n](weight[b, n] * v[page[b, n // 16], n % 16, e])
//   return out
//
// `score` by itself reads k at every page of the table, but `out` uses only those with n < length[b]: the softmax reads
// no other score, and where the weight is 0 it does not matter what v is. So the walk goes from outputs to what they
// read, and takes along the condition under which a value is used. Index variables of reductions on the way add to
// those of the output. What it meets is copied into the trace:
//
//   k, dimension 0: page[b, n // 16] for all b, e, n of `out` and j of the softmax, where j < length[b]
//
//===----------------------------------------------------------------------===//

#include "UsedSubscripts.h"
#include "Scores.h"
#include "Slice.h"
#include "Subscripts.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"

#include <set>

using namespace mlir;
using namespace attn;

/// So many reads of tensors are followed. Only formulas that read each other over and over have more.
static constexpr int mostScopes = 4096;

/// One evaluation of a formula: what its values are in the trace, and the index variables they are evaluated for.
struct UsedSubscripts::Scope {
  std::string statement;
  IRMapping mapping;
  SmallVector<BlockArgument> indices;
  llvm::DenseSet<std::pair<Value, Value>> used; ///< Values with conditions.
};

UsedSubscripts::UsedSubscripts(KernelOp kernel, TensorOp trace)
    : kernel(kernel), trace(trace), builder(OpBuilder::atBlockEnd(&trace.getBody().front())) {}

//===----------------------------------------------------------------------===//
// What the front end's formulas contain
//===----------------------------------------------------------------------===//

/// The values that `op` is computed from: its operands, and what its regions yield.
static SmallVector<Value> sources(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  for (Region &region : op->getRegions())
    if (!region.empty())
      llvm::append_range(values, region.front().getTerminator()->getOperands());
  return values;
}

/// Whether `holds` is true of an operation that computes `value`. Remembers answers in `known`.
static bool anyOperation(Value value, llvm::DenseMap<Value, bool> &known, llvm::function_ref<bool(Operation *)> holds) {
  Operation *op = value.getDefiningOp();
  if (!op || isa<AttnTensorType>(value.getType()))
    return false;
  if (auto answer = known.find(value); answer != known.end())
    return answer->second;
  bool answer =
      holds(op) || llvm::any_of(sources(op), [&](Value source) { return anyOperation(source, known, holds); });
  return known[value] = answer;
}

bool UsedSubscripts::isData(Value value) {
  return anyOperation(value, data, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    auto tensor = read ? read.getTensor().getDefiningOp<TensorOp>() : TensorOp();
    return tensor ? isData(yielded(tensor.getBody())) : static_cast<bool>(read);
  });
}

bool UsedSubscripts::isChecked(Value subscript, SizeAttr size) {
  return !isInRange(subscript, size) && isData(subscript);
}

bool UsedSubscripts::reachesChecked(Value value) {
  return anyOperation(value, reaching, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    if (!read)
      return false;
    for (auto [subscript, size] : llvm::zip_equal(read.getSubscripts(), read.getTensor().getType().getShape()))
      if (isChecked(subscript, size))
        return true;
    auto tensor = read.getTensor().getDefiningOp<TensorOp>();
    return tensor && reachesChecked(yielded(tensor.getBody()));
  });
}

/// The factors of a product, of which one that is 0 makes it 0.
static SmallVector<Value> factors(Operation *op) {
  if (isa<arith::MulFOp>(op))
    return {op->getOperand(0), op->getOperand(1)};
  if (isa<arith::DivFOp, arith::NegFOp, arith::ExtFOp, arith::TruncFOp, DropoutOp>(op))
    return {op->getOperand(0)};
  return {};
}

/// Whether it is a product of numbers of which one is the weight of a masked softmax.
bool UsedSubscripts::isWeight(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return false;
  if (auto answer = weights.find(value); answer != weights.end())
    return answer->second;
  bool answer = llvm::any_of(factors(op), [&](Value factor) { return isWeight(factor); });
  if (auto reduce = dyn_cast<ReduceOp>(op))
    answer = reduce.getKind() == ReduceKind::Softmax && reduce.isConditional();
  else if (auto read = dyn_cast<ReadOp>(op))
    if (auto tensor = read.getTensor().getDefiningOp<TensorOp>())
      answer = isWeight(yielded(tensor.getBody()));
  return weights[value] = answer;
}

//===----------------------------------------------------------------------===//
// The trace
//===----------------------------------------------------------------------===//

Value UsedSubscripts::copy(Value value, Scope &scope) { return cloneSlice(value, scope.mapping, builder); }

BlockArgument UsedSubscripts::addIndex(StringRef name, SizeAttr size) {
  indices.push_back({name.str(), size});
  return trace.getBody().front().addArgument(builder.getI64Type(), trace.getLoc());
}

/// A condition that is null always holds.
Value UsedSubscripts::both(Value a, Value b) {
  if (!a || !b || a == b)
    return a ? a : b;
  Value &conjunction = conjunctions[{a, b}];
  if (!conjunction)
    conjunction = arith::AndIOp::create(builder, trace.getLoc(), a, b);
  return conjunction;
}

/// The formula of `tensor` at the subscripts of `read`, which are clamped as the read clamps them.
UsedSubscripts::Scope UsedSubscripts::enter(ReadOp read, TensorOp tensor, Scope &scope) {
  ++scopes;
  Scope inner{tensor.getName().str(), {}, scope.indices, {}};
  AttnTensorType type = read.getTensor().getType();
  for (auto [subscript, size, index] :
       llvm::zip_equal(read.getSubscripts(), type.getShape(), tensor.getBody().getArguments())) {
    Value at = copy(subscript, scope);
    inner.mapping.map(index, isInRange(subscript, size) ? at : clamp(at, size, builder, read.getLoc()));
  }
  return inner;
}

/// The condition without which a product is 0, because a weight in it is masked; null where there is none.
Value UsedSubscripts::unlessZero(Value value, Scope &scope) {
  if (!isWeight(value) || scopes > mostScopes)
    return {};
  Operation *op = value.getDefiningOp();
  if (auto read = dyn_cast<ReadOp>(op)) {
    auto tensor = read.getTensor().getDefiningOp<TensorOp>();
    Scope inner = enter(read, tensor, scope);
    return unlessZero(yielded(tensor.getBody()), inner);
  }
  if (auto softmax = dyn_cast<ReduceOp>(op)) {
    Scope inner = scope;
    for (auto [index, at] : llvm::zip_equal(softmax.getWhere().getArguments(), softmax.getAt()))
      inner.mapping.map(index, copy(at, scope));
    return copy(yielded(softmax.getWhere()), inner);
  }
  Value condition;
  for (Value factor : factors(op))
    condition = both(condition, unlessZero(factor, scope));
  return condition;
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

void UsedSubscripts::useRead(ReadOp read, Scope &scope, Value condition) {
  for (Value subscript : read.getSubscripts())
    use(subscript, scope, condition);
  AttnTensorType type = read.getTensor().getType();
  for (auto [dimension, size] : llvm::enumerate(type.getShape())) {
    Value subscript = read.getSubscripts()[dimension];
    if (isChecked(subscript, size))
      found.push_back({scope.statement, read.getTensor(), static_cast<unsigned>(dimension), copy(subscript, scope),
                       condition, scope.indices});
  }
  auto tensor = read.getTensor().getDefiningOp<TensorOp>();
  // All elements of an output are used anyway.
  if (!tensor || llvm::is_contained(kernel.getOwnOutputs(), tensor.getResult()) || scopes > mostScopes)
    return;
  Value value = yielded(tensor.getBody());
  if (!reachesChecked(value))
    return;
  Scope inner = enter(read, tensor, scope);
  use(value, inner, condition);
}

void UsedSubscripts::useReduction(ReduceOp reduce, Scope &scope, Value condition) {
  for (Value operand : reduce->getOperands())
    use(operand, scope, condition);
  Scope inner = scope;
  for (auto [position, name] : llvm::enumerate(reduce.getIndices().getAsValueRange<StringAttr>())) {
    BlockArgument index = addIndex(name, reduce.getSize(position));
    inner.indices.push_back(index);
    for (Region &region : reduce->getRegions())
      if (!region.empty())
        inner.mapping.map(region.getArgument(position), index);
  }
  if (reduce.isConditional()) {
    Value where = yielded(reduce.getWhere());
    use(where, inner, condition);
    condition = both(condition, copy(where, inner));
  }
  use(yielded(reduce.getBody()), inner, condition);
}

void UsedSubscripts::use(Value value, Scope &scope, Value condition) {
  if (!reachesChecked(value) || !scope.used.insert({value, condition}).second)
    return;
  Operation *op = value.getDefiningOp();
  auto when = [&](Value other) { return both(condition, other); };
  if (auto read = dyn_cast<ReadOp>(op))
    return useRead(read, scope, condition);
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return useReduction(reduce, scope, condition);
  bool isBool = value.getType().isSignlessInteger(1);
  if (auto choice = dyn_cast<arith::SelectOp>(op)) {
    Value first = copy(choice.getCondition(), scope);
    use(choice.getCondition(), scope, condition);
    use(choice.getTrueValue(), scope, when(first));
    use(choice.getFalseValue(), scope, when(negate(first, builder)));
  } else if (isBool && isa<arith::AndIOp, arith::OrIOp>(op)) {
    // The right side matters only where the left one does not decide.
    Value first = copy(op->getOperand(0), scope);
    use(op->getOperand(0), scope, condition);
    use(op->getOperand(1), scope, when(isa<arith::AndIOp>(op) ? first : negate(first, builder)));
  } else if (isa<arith::MulFOp>(op)) {
    use(op->getOperand(0), scope, when(unlessZero(op->getOperand(1), scope)));
    use(op->getOperand(1), scope, when(unlessZero(op->getOperand(0), scope)));
  } else {
    for (Value operand : op->getOperands())
      use(operand, scope, condition);
  }
}

LogicalResult UsedSubscripts::find() {
  // What a forward kernel saves may be anything where its own outputs do not use it.
  for (Value output : kernel.getOwnOutputs()) {
    auto tensor = output.getDefiningOp<TensorOp>();
    if (!reachesChecked(yielded(tensor.getBody())))
      continue;
    Scope scope{tensor.getName().str(), {}, {}, {}};
    for (auto [argument, name, size] :
         llvm::zip_equal(tensor.getBody().getArguments(), tensor.getIndices().getAsValueRange<StringAttr>(),
                         tensor.getResult().getType().getShape())) {
      scope.indices.push_back(addIndex(name, size));
      scope.mapping.map(argument, scope.indices.back());
    }
    use(yielded(tensor.getBody()), scope, {});
  }
  if (scopes <= mostScopes)
    return success();
  return kernel.emitError() << "subscripts that depend on data are read in more than " << mostScopes
                            << " ways: too many to check";
}
