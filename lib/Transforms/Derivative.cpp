//===- Derivative.cpp - How a formula changes with what it reads ----------===//
//
// Backwards through the formula: the gradient of an operation's result gives those of its operands by the chain rule.
//
//   z = x * y      x' += z' * y, y' += z' * x
//   z = exp(x)     x' += z' * z
//   z = sum[d](x)  x' += z', for every d
//
//===----------------------------------------------------------------------===//

#include "Derivative.h"
#include "Formula.h"
#include "Scores.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

#include <numbers>

using namespace mlir;
using namespace attn;

namespace {
class Derivative {
public:
  Derivative(Block &scratch, Location location, const DerivativeFacts &facts)
      : formula(scratch, location), facts(facts) {}

  LogicalResult run(Block &block, Value gradient);

  SmallVector<ReadGradient> reads;

private:
  LogicalResult propagate(Operation *op, Value gradient);
  LogicalResult propagate(ReduceOp reduce, Value gradient);
  bool propagateFunction(Operation *op, Value gradient);
  void propagatePower(math::PowFOp op, Value gradient);
  void accumulate(Value value, Value gradient, Block *block);
  bool leadsToActive(Value value);

  Formula formula;
  const DerivativeFacts &facts;
  llvm::DenseMap<Value, Value> gradients;
};
} // namespace

/// Whether the formula of `value` reads an active tensor.
bool Derivative::leadsToActive(Value value) {
  return anyInSlice(value, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    return read && facts.isActive(read.getTensor());
  });
}

/// Adds to the gradient of `value` what an operation of `block` has for it. The value may belong to a block further
/// out: then every element of the reductions in between adds to it.
void Derivative::accumulate(Value value, Value gradient, Block *block) {
  if (!leadsToActive(value))
    return;
  while (block != value.getParentBlock()) {
    auto reduce = cast<ReduceOp>(block->getParentOp());
    gradient = formula.sumOver(reduce, gradient);
    block = reduce->getBlock();
  }
  Value &sum = gradients[value];
  sum = sum ? formula.add(sum, gradient) : gradient;
}

/// The block yields one value, which has this gradient.
LogicalResult Derivative::run(Block &block, Value gradient) {
  accumulate(block.getTerminator()->getOperand(0), gradient, &block);
  for (Operation &op : llvm::reverse(block.without_terminator()))
    if (op.getNumResults() == 1)
      if (Value found = gradients.lookup(op.getResult(0)); found && failed(propagate(&op, found)))
        return failure();
  return success();
}

LogicalResult Derivative::propagate(Operation *op, Value gradient) {
  if (auto read = dyn_cast<ReadOp>(op)) {
    if (facts.isActive(read.getTensor()))
      reads.push_back({read, gradient});
    return success();
  }
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return propagate(reduce, gradient);
  auto give = [&](unsigned operand, Value part) { accumulate(op->getOperand(operand), part, op->getBlock()); };
  auto operand = [&](unsigned index) { return op->getOperand(index); };
  auto choose = [&](arith::CmpFPredicate predicate) {
    Value first = formula.compare(predicate, operand(0), operand(1)), zero = formula.zero(gradient);
    give(0, formula.select(first, gradient, zero));
    give(1, formula.select(first, zero, gradient));
  };
  bool isKnown = true;
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](arith::AddFOp) {
        give(0, gradient);
        give(1, gradient);
      })
      .Case([&](arith::SubFOp) {
        give(0, gradient);
        give(1, formula.negate(gradient));
      })
      .Case([&](arith::MulFOp) {
        give(0, formula.multiply(gradient, operand(1)));
        give(1, formula.multiply(gradient, operand(0)));
      })
      .Case([&](arith::DivFOp) {
        if (Value x = logisticOperand(op)) { // whole: the parts' factors are 0 and infinite where exp(x) is
          Value y = op->getResult(0), one = formula.constant(1, y.getType());
          Value slope = formula.multiply(y, formula.subtract(y, one));
          accumulate(x, formula.multiply(gradient, slope), op->getBlock());
          return;
        }
        give(0, formula.scale(gradient, [&](Value given) { return formula.divide(given, operand(1)); }));
        give(1, formula.scale(gradient, [&](Value given) {
          return formula.negate(formula.multiply(formula.divide(given, operand(1)), op->getResult(0)));
        }));
      })
      .Case([&](arith::RemFOp) { // x − trunc(x / y) · y
        give(0, gradient);
        Value times = formula.divide(formula.subtract(op->getResult(0), operand(0)), operand(1));
        give(1, formula.multiply(gradient, times));
      })
      .Case([&](arith::NegFOp) { give(0, formula.negate(gradient)); })
      .Case([&](arith::MaximumFOp) { choose(arith::CmpFPredicate::OGT); })
      .Case([&](arith::MinimumFOp) { choose(arith::CmpFPredicate::OLT); })
      .Case([&](arith::SelectOp) {
        if (!isa<FloatType>(op->getResult(0).getType()))
          return;
        give(1, formula.select(operand(0), gradient, formula.zero(gradient)));
        give(2, formula.select(operand(0), formula.zero(gradient), gradient));
      })
      .Case<arith::ExtFOp, arith::TruncFOp>([&](auto) { give(0, gradient); })
      .Case([&](DropoutOp dropout) {
        Value part = formula.function<DropoutOp>(gradient.getType(), gradient, dropout.getProbability(),
                                                 dropout.getSeed(), dropout.getElement());
        give(0, part);
      })
      .Case<arith::ConstantOp, arith::SIToFPOp, arith::UIToFPOp, math::FloorOp, math::RoundEvenOp>([](auto) {})
      .Default([&](Operation *other) { isKnown = propagateFunction(other, gradient); });
  if (!isKnown)
    return op->emitError() << "has no derivative that attn-differentiate knows";
  return success();
}

/// The functions of one float: false where `op` is none of them.
bool Derivative::propagateFunction(Operation *op, Value gradient) {
  if (auto power = dyn_cast<math::PowFOp>(op)) {
    propagatePower(power, gradient);
    return true;
  }
  if (op->getNumOperands() != 1)
    return false;
  Value x = op->getOperand(0), y = op->getResult(0);
  auto one = [&] { return formula.constant(1, y.getType()); };
  auto scale = [&](llvm::function_ref<Value(Value)> slope) { return formula.scale(gradient, slope); };
  Value part =
      llvm::TypeSwitch<Operation *, Value>(op)
          .Case([&](math::ExpOp) { return scale([&](Value given) { return formula.multiply(given, y); }); })
          .Case([&](math::Exp2Op) {
            return scale([&](Value given) { return formula.multiply(formula.multiply(given, y), std::numbers::ln2); });
          })
          .Case([&](math::LogOp) { return scale([&](Value given) { return formula.divide(given, x); }); })
          .Case([&](math::Log2Op) {
            return scale([&](Value given) { return formula.divide(formula.multiply(given, std::numbers::log2e), x); });
          })
          .Case([&](math::SqrtOp) {
            return scale([&](Value given) { return formula.divide(formula.multiply(given, 0.5), y); });
          })
          .Case([&](math::RsqrtOp) {
            return scale(
                [&](Value given) { return formula.multiply(formula.multiply(given, -0.5), formula.divide(y, x)); });
          })
          .Case([&](math::SinOp) { return formula.multiply(gradient, formula.function<math::CosOp>(x)); })
          .Case(
              [&](math::CosOp) { return formula.negate(formula.multiply(gradient, formula.function<math::SinOp>(x))); })
          .Case(
              [&](math::TanhOp) { return formula.multiply(gradient, formula.subtract(one(), formula.multiply(y, y))); })
          .Case([&](math::ErfOp) { // 2 / √π · exp(−x²)
            Value bell = formula.function<math::ExpOp>(formula.negate(formula.multiply(x, x)));
            return formula.multiply(gradient, formula.multiply(bell, 2 * std::numbers::inv_sqrtpi));
          })
          .Case([&](math::AbsFOp) {
            Value zero = formula.zero(x);
            Value negative = formula.compare(arith::CmpFPredicate::OLT, x, zero);
            Value positive = formula.compare(arith::CmpFPredicate::OGT, x, zero);
            Value below = formula.select(negative, formula.negate(gradient), zero);
            return formula.select(positive, gradient, below);
          })
          .Default([](Operation *) { return Value(); });
  if (part)
    accumulate(x, part, op->getBlock());
  return static_cast<bool>(part);
}

/// x^y: y · x^(y − 1) by x, and x^y · log(x) by y, which is 0 at x = 0.
void Derivative::propagatePower(math::PowFOp op, Value gradient) {
  Value x = op.getLhs(), y = op.getRhs(), zero = formula.zero(x);
  auto give = [&](Value operand, Value slope) {
    Value part = formula.scale(gradient, [&](Value given) { return formula.multiply(given, slope); });
    accumulate(operand, part, op->getBlock());
  };
  Value less = formula.function<math::PowFOp>(x, formula.subtract(y, formula.constant(1, y.getType())));
  give(x, formula.multiply(y, less));
  Value logarithm = formula.multiply(op.getResult(), formula.function<math::LogOp>(x));
  give(y, formula.select(formula.compare(arith::CmpFPredicate::OEQ, x, zero), zero, logarithm));
}

LogicalResult Derivative::propagate(ReduceOp reduce, Value gradient) {
  if (!isa<FloatType>(reduce.getType()))
    return success();
  Block &body = reduce.getBody().front();
  Value term = yielded(reduce.getBody());
  switch (reduce.getKind()) {
  case ReduceKind::Sum:
    return run(body, gradient);
  case ReduceKind::Max:
  case ReduceKind::Min: {
    Extreme extreme = facts.extreme(reduce);
    Value isEqual = formula.compare(arith::CmpFPredicate::OEQ, term, extreme.value);
    Value share = formula.divide(gradient, extreme.equalTerms);
    return run(body, formula.select(isEqual, share, formula.zero(gradient)));
  }
  case ReduceKind::LogSumExp: {
    auto share = [&](Value exponent) {
      Value difference = formula.subtract(exponent, reduce.getResult());
      return formula.multiply(gradient, formula.function<math::ExpOp>(difference));
    };
    if (reduce.getSink())
      accumulate(reduce.getSink(), share(reduce.getSink()), reduce->getBlock());
    return run(body, share(term));
  }
  case ReduceKind::Softmax:
    return reduce.emitError() << "has no gradient: only a softmax that is a tensor of its own has";
  }
  llvm_unreachable("unknown reduction");
}

FailureOr<SmallVector<ReadGradient>> attn::differentiate(TensorOp tensor, Value seed, Block &scratch,
                                                         const DerivativeFacts &facts) {
  Derivative derivative(scratch, tensor.getLoc(), facts);
  if (failed(derivative.run(tensor.getBody().front(), seed)))
    return failure();
  return std::move(derivative.reads);
}
