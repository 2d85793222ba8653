//===- Region.cpp - Region values as Halide expressions --------------------===//

#include "Region.h"
#include "Mathematics.h"
#include "Random.h"
#include "StepLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using Halide::cast;
using Halide::Expr;
using Halide::select;

namespace attn::lowering {

//===----------------------------------------------------------------------===//
// Dependence
//===----------------------------------------------------------------------===//

IndexSet freeIndices(mlir::Region &region) {
  IndexSet found;
  if (!region.empty())
    for (mlir::BlockArgument index : dependence(region.front().back().getOperands()))
      if (index.getParentRegion() != &region)
        found.insert(index);
  return found;
}

//===----------------------------------------------------------------------===//
// Environments
//===----------------------------------------------------------------------===//

/// Their names are those of the indices and an underscore: Halide gives what belongs to a loop the loop's name and one
/// of its own (`s`, `loop_max`), and calls parts of a split loop the same where they have that for their name.
std::vector<Halide::Var> loopsAlong(mlir::ArrayAttr indices) {
  std::vector<Halide::Var> loops;
  for (mlir::StringAttr index : llvm::reverse(indices.getAsRange<mlir::StringAttr>()))
    loops.emplace_back(index.str() + "_");
  return loops;
}

bool IndexBinding::has(const Halide::Var &var) const {
  return llvm::any_of(vars, [&](const Halide::Var &own) { return own.same_as(var); });
}

bool Environment::changesWith(mlir::Value value, const Halide::Var &var) const {
  return llvm::any_of(dependence(value), [&](mlir::Value index) {
    auto found = indices.find(index);
    return found != indices.end() && found->second.has(var);
  });
}

const IndexBinding *Environment::bindingWith(const Halide::Var &var) const {
  auto found = llvm::find_if(indices, [&](const auto &each) { return each.second.has(var); });
  return found == indices.end() ? nullptr : &found->second;
}

void Environment::rebind(const Halide::Var &var, const IndexBinding &binding) {
  for (auto &[index, own] : indices)
    if (own.has(var))
      own = binding;
}

//===----------------------------------------------------------------------===//
// Booleans and floats
//===----------------------------------------------------------------------===//

/// 1 / x from the processor's estimate (12 bits or more) and a step of Newton's method, for x and 1 / x that are normal
/// numbers.
static Expr reciprocal(Expr x) {
  Expr estimate = Halide::fast_inverse(x);
  return estimate * (2.0f - x * estimate);
}

static Expr compare(mlir::arith::CmpIPredicate predicate, Expr a, Expr b) {
  using mlir::arith::CmpIPredicate;
  Halide::Type type = a.type().bits() == 64 ? a.type() : b.type();
  a = cast(type, a), b = cast(type, b);
  switch (predicate) {
  case CmpIPredicate::eq:
    return a == b;
  case CmpIPredicate::ne:
    return a != b;
  case CmpIPredicate::slt:
    return a < b;
  case CmpIPredicate::sle:
    return a <= b;
  case CmpIPredicate::sgt:
    return a > b;
  case CmpIPredicate::sge:
    return a >= b;
  default:
    throw Unsupported("unsigned comparisons are not supported yet");
  }
}

static Expr compare(mlir::arith::CmpFPredicate predicate, Expr a, Expr b) {
  using mlir::arith::CmpFPredicate;
  Expr ordered = !Halide::is_nan(a) && !Halide::is_nan(b);
  switch (predicate) {
  case CmpFPredicate::OEQ:
    return a == b;
  case CmpFPredicate::UNE:
    return a != b;
  case CmpFPredicate::OLT:
    return a < b;
  case CmpFPredicate::OLE:
    return a <= b;
  case CmpFPredicate::OGT:
    return a > b;
  case CmpFPredicate::OGE:
    return a >= b;
  case CmpFPredicate::ONE:
    return a < b || a > b;
  case CmpFPredicate::UEQ:
    return !ordered || a == b;
  case CmpFPredicate::ULT:
    return !ordered || a < b;
  case CmpFPredicate::ULE:
    return !ordered || a <= b;
  case CmpFPredicate::UGT:
    return !ordered || a > b;
  case CmpFPredicate::UGE:
    return !ordered || a >= b;
  case CmpFPredicate::ORD:
    return ordered;
  case CmpFPredicate::UNO:
    return !ordered;
  case CmpFPredicate::AlwaysTrue:
    return Halide::Internal::const_true();
  case CmpFPredicate::AlwaysFalse:
    return Halide::Internal::const_false();
  }
  llvm_unreachable("unknown predicate");
}

/// The operand that `Op` with a constant bounds, if `value` is that.
template <typename Op> static mlir::Value boundedBy(mlir::Value value, llvm::function_ref<bool(double)> isBound) {
  auto op = value.getDefiningOp<Op>();
  mlir::FloatAttr constantBound;
  for (unsigned position = 0; op && position < 2; ++position)
    if (mlir::matchPattern(op->getOperand(position), mlir::m_Constant(&constantBound)) &&
        isBound(constantBound.getValueAsDouble()))
      return op->getOperand(1 - position);
  return {};
}

/// Whether `value` is clamped to ±limit, or NaN.
static bool isWithin(mlir::Value value, double limit) {
  mlir::Value below =
      boundedBy<mlir::arith::MaximumFOp>(value, [&](double low) { return low >= -limit && low <= limit; });
  return below && boundedBy<mlir::arith::MinimumFOp>(below, [&](double high) { return high <= limit; });
}

/// 1 / `divisor`. Halide refuses to divide by a constant that is 0.
static Expr inverse(const Expr &divisor) {
  if (std::optional<double> number = Halide::Internal::as_const_float(divisor))
    return constant(divisor.type(), 1 / *number);
  return constant(divisor.type(), 1.0) / divisor;
}

Expr RegionLowering::lowerFloat(mlir::Operation *op) {
  auto operand = [&](unsigned index) { return expression(op->getOperand(index)); };
  using namespace mlir;
  mlir::Type result = op->getResult(0).getType();
  return llvm::TypeSwitch<Operation *, Expr>(op)
      .Case([&](arith::ConstantOp constantOp) -> Expr {
        if (auto value = dyn_cast<FloatAttr>(constantOp.getValue()))
          return constant(computeType(result), value.getValueAsDouble());
        return dyn_cast<IntegerAttr>(constantOp.getValue()).getValue().isZero() ? Halide::Internal::const_false()
                                                                                : Halide::Internal::const_true();
      })
      .Case([&](arith::AddFOp) { return operand(0) + operand(1); })
      .Case([&](arith::SubFOp) { return operand(0) - operand(1); })
      .Case([&](arith::MulFOp) { return operand(0) * operand(1); })
      .Case([&](arith::DivFOp division) {
        // A divisor that no index changes is inverted once.
        if (dependence(division.getRhs()).empty())
          return operand(0) * inverse(operand(1));
        if (arith::bitEnumContainsAll(division.getFastmath(), arith::FastMathFlags::arcp) && result.isF32())
          return operand(0) * reciprocal(operand(1));
        return operand(0) / operand(1);
      })
      .Case([&](arith::RemFOp) { return lowering::remainder(operand(0), operand(1)); })
      // 0 − x, which Halide's minus is, loses the sign of zero.
      .Case([&](arith::NegFOp) { return operand(0) * constant(computeType(result), -1.0); })
      .Case([&](arith::MaximumFOp) { return maximum(operand(0), operand(1)); })
      .Case([&](arith::MinimumFOp) { return minimum(operand(0), operand(1)); })
      .Case([&](arith::SelectOp) { return select(operand(0), operand(1), operand(2)); })
      .Case([&](arith::SIToFPOp) { return kernel.rounded(cast(computeType(result), operand(0)), storageType(result)); })
      .Case([&](arith::UIToFPOp) {
        return select(operand(0), constant(computeType(result), 1.0), constant(computeType(result), 0.0));
      })
      .Case([&](arith::ExtFOp) { return cast(computeType(result), operand(0)); })
      .Case([&](arith::CmpIOp comparison) { return compare(comparison.getPredicate(), operand(0), operand(1)); })
      .Case([&](arith::CmpFOp comparison) { return compare(comparison.getPredicate(), operand(0), operand(1)); })
      .Case([&](arith::AndIOp) { return operand(0) && operand(1); })
      .Case([&](arith::OrIOp) { return operand(0) || operand(1); })
      .Case([&](arith::XOrIOp) { return operand(0) != operand(1); })
      .Case([&](math::ExpOp exponential) {
        if (arith::bitEnumContainsAll(exponential.getFastmath(), arith::FastMathFlags::afn) && result.isF32())
          return exp2OfNonPositive(operand(0) * log2e(Halide::Float(32)));
        bool isBounded = result.isF32() && isWithin(exponential.getOperand(), 87);
        return isBounded ? expOfBounded(operand(0)) : lowering::exp(operand(0));
      })
      .Case([&](math::Exp2Op) { return lowering::exp2(operand(0)); })
      .Case([&](math::LogOp) { return lowering::log(operand(0)); })
      .Case([&](math::Log2Op) { return lowering::log(operand(0)) * log2e(computeType(result)); })
      .Case([&](math::SqrtOp) { return Halide::sqrt(operand(0)); })
      .Case([&](math::RsqrtOp) { return constant(computeType(result), 1.0) / Halide::sqrt(operand(0)); })
      .Case([&](math::SinOp) { return Halide::sin(operand(0)); })
      .Case([&](math::CosOp) { return Halide::cos(operand(0)); })
      .Case([&](math::TanhOp) { return lowering::tanh(operand(0)); })
      .Case([&](math::ErfOp) { return lowering::erf(operand(0)); })
      .Case([&](math::AbsFOp) { return Halide::abs(operand(0)); })
      .Case([&](math::FloorOp) { return Halide::floor(operand(0)); })
      .Case([&](math::RoundEvenOp) { return Halide::round(operand(0)); })
      .Case([&](math::PowFOp) { return lowering::pow(operand(0), operand(1)); })
      .Case([&](arith::TruncFOp) { return kernel.rounded(operand(0), storageType(result)); })
      .Case([&](DropoutOp) {
        Halide::Type type = computeType(result);
        Expr probability = operand(1), scale = constant(type, 1.0) / (constant(type, 1.0) - probability);
        return select(isDropped(probability, operand(2), operand(3)), constant(type, 0.0), operand(0) * scale);
      })
      .Default([&](Operation *) -> Expr {
        throw Unsupported("operation '" + op->getName().getStringRef().str() + "' is not supported yet");
      });
}

//===----------------------------------------------------------------------===//
// Reads
//===----------------------------------------------------------------------===//

Scalar RegionLowering::read(ReadOp op) {
  std::vector<Expr> subscripts;
  for (unsigned dimension = 0; dimension < op.getSubscripts().size(); ++dimension)
    subscripts.push_back(subscript(op, dimension));
  Expr element = kernel.element(op.getTensor(), subscripts);
  if (op.getType().isSignlessInteger(1))
    return {element.type().is_bool() ? element : element != 0, {}};
  if (!op.getType().isSignlessInteger(64))
    return {cast(computeType(op.getType()), element), {}};
  IntegerRange range;
  if (element.type().bits() <= 32)
    range = {element.type().is_uint() ? 0 : -(int64_t(1) << (element.type().bits() - 1)),
             (int64_t(1) << (element.type().bits() - (element.type().is_uint() ? 0 : 1))) - 1};
  return integer(element, range);
}

//===----------------------------------------------------------------------===//
// Dispatch
//===----------------------------------------------------------------------===//

Scalar RegionLowering::lowerOperation(mlir::Operation *op) {
  if (auto readOp = mlir::dyn_cast<ReadOp>(op))
    return read(readOp);
  if (auto reduceOp = mlir::dyn_cast<ReduceOp>(op))
    return {reduce(reduceOp), {}};
  mlir::Type type = op->getResult(0).getType();
  if (type.isInteger() && !type.isSignlessInteger(1))
    return lowerInteger(op);
  return {lowerFloat(op), {}};
}

Scalar RegionLowering::lower(mlir::Value value) {
  auto known = environment.values.find(value);
  if (known != environment.values.end())
    return known->second;
  auto index = environment.indices.find(value);
  if (index != environment.indices.end())
    return {index->second.expr, {0, longestDimension - 1}};
  mlir::Operation *op = value.getDefiningOp();
  if (!op)
    throw std::logic_error("an index variable is not bound in this stage");
  Scalar result;
  if (Expr elsewhere = stored(value); elsewhere.defined())
    result = {elsewhere, {}};
  else
    result = lowerOperation(op);
  environment.values[value] = result;
  return result;
}

} // namespace attn::lowering
