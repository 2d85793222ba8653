//===- Operations.cpp - The scalar ops as functions -----------------------===//
//
// One line an op. Integers wrap; shifts by the width or more give what an infinitely wide shift would; a float that
// fits no i64 is converted to the nearest one, and NaN to 0.
//
//===----------------------------------------------------------------------===//

#include "Philox.h"
#include "Program.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringMap.h"

#include <cmath>
#include <limits>

using namespace attn;
using namespace attn::reference;

namespace {

uint64_t bits(Cell value) { return static_cast<uint64_t>(value.integer); }
Cell wrapped(uint64_t value) { return cell(static_cast<int64_t>(value)); }
Cell truth(bool value) { return cell(static_cast<int64_t>(value)); }

/// NaN where an operand is NaN, and +0 above −0.
double maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return std::numeric_limits<double>::quiet_NaN();
  return a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b);
}

int64_t floorDivide(int64_t a, int64_t b) {
  if (b == 0)
    return 0;
  if (b == -1)
    return static_cast<int64_t>(-static_cast<uint64_t>(a));
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t toInteger(double value) {
  if (std::isnan(value))
    return 0;
  if (value >= 0x1p63)
    return std::numeric_limits<int64_t>::max();
  if (value < -0x1p63)
    return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

/// base^exponent; a negative exponent gives the power's integer part (0 for base 0, as division by 0 does).
Cell integerPower(Cell base, Cell exponent) {
  if (exponent.integer < 0) {
    if (base.integer == -1)
      return cell(exponent.integer % 2 ? int64_t{-1} : int64_t{1});
    return truth(base.integer == 1);
  }
  uint64_t result = 1, power = bits(base);
  for (uint64_t rest = bits(exponent); rest; rest >>= 1, power *= power)
    if (rest & 1)
      result *= power;
  return wrapped(result);
}

/// `ordered ∧ test(a, b)`, or `unordered ∨ test(a, b)`.
Operation findFloatComparison(mlir::arith::CmpFPredicate predicate) {
  using enum mlir::arith::CmpFPredicate;
#define ATTN_COMPARE(name, expression)                                                                                 \
  case name:                                                                                                           \
    return [](Cell x, Cell y, Cell, Cell) {                                                                            \
      double a = x.real, b = y.real;                                                                                   \
      [[maybe_unused]] bool unordered = std::isnan(a) || std::isnan(b);                                                \
      return truth(expression);                                                                                        \
    }
  switch (predicate) {
    ATTN_COMPARE(AlwaysFalse, (static_cast<void>(a), static_cast<void>(b), false));
    ATTN_COMPARE(OEQ, a == b);
    ATTN_COMPARE(OGT, a > b);
    ATTN_COMPARE(OGE, a >= b);
    ATTN_COMPARE(OLT, a < b);
    ATTN_COMPARE(OLE, a <= b);
    ATTN_COMPARE(ONE, a < b || a > b);
    ATTN_COMPARE(ORD, !unordered);
    ATTN_COMPARE(UEQ, unordered || a == b);
    ATTN_COMPARE(UGT, unordered || a > b);
    ATTN_COMPARE(UGE, unordered || a >= b);
    ATTN_COMPARE(ULT, unordered || a < b);
    ATTN_COMPARE(ULE, unordered || a <= b);
    ATTN_COMPARE(UNE, a != b);
    ATTN_COMPARE(UNO, unordered);
    ATTN_COMPARE(AlwaysTrue, (static_cast<void>(a), static_cast<void>(b), true));
  }
#undef ATTN_COMPARE
  return nullptr;
}

Operation findIntegerComparison(mlir::arith::CmpIPredicate predicate) {
  using enum mlir::arith::CmpIPredicate;
  switch (predicate) {
  case eq:
    return [](Cell a, Cell b, Cell, Cell) { return truth(a.integer == b.integer); };
  case ne:
    return [](Cell a, Cell b, Cell, Cell) { return truth(a.integer != b.integer); };
  case slt:
    return [](Cell a, Cell b, Cell, Cell) { return truth(a.integer < b.integer); };
  case sle:
    return [](Cell a, Cell b, Cell, Cell) { return truth(a.integer <= b.integer); };
  case sgt:
    return [](Cell a, Cell b, Cell, Cell) { return truth(a.integer > b.integer); };
  case sge:
    return [](Cell a, Cell b, Cell, Cell) { return truth(a.integer >= b.integer); };
  case ult:
    return [](Cell a, Cell b, Cell, Cell) { return truth(bits(a) < bits(b)); };
  case ule:
    return [](Cell a, Cell b, Cell, Cell) { return truth(bits(a) <= bits(b)); };
  case ugt:
    return [](Cell a, Cell b, Cell, Cell) { return truth(bits(a) > bits(b)); };
  case uge:
    return [](Cell a, Cell b, Cell, Cell) { return truth(bits(a) >= bits(b)); };
  }
  return nullptr;
}

// Of up to four operands, as reals and as integers.
#define REAL(expression)                                                                                               \
  [](Cell x, Cell y, Cell z, Cell) {                                                                                   \
    [[maybe_unused]] double a = x.real, b = y.real, c = z.real;                                                        \
    return cell(expression);                                                                                           \
  }
#define INTEGER(expression) [](Cell a, Cell b, Cell c, Cell d) -> Cell { return expression; }
#define UNARY(function) [](Cell x, Cell, Cell, Cell) { return cell(static_cast<double>(std::function(x.real))); }

const llvm::StringMap<Operation> &table() {
  static const llvm::StringMap<Operation> operations = {
      {"arith.addf", REAL(a + b)},
      {"arith.subf", REAL(a - b)},
      {"arith.mulf", REAL(a * b)},
      {"arith.divf", REAL(a / b)},
      {"arith.negf", REAL(-a)},
      {"arith.remf", REAL(std::fmod(a, b))},
      {"arith.maximumf", REAL(maximum(a, b))},
      {"arith.minimumf", REAL(-maximum(-a, -b))},
      {"arith.maxnumf", REAL(std::fmax(a, b))},
      {"arith.minnumf", REAL(std::fmin(a, b))},
      {"arith.extf", REAL(a)},
      {"math.fma", REAL(std::fma(a, b, c))},
      {"math.powf", REAL(std::pow(a, b))},
      {"math.atan2", REAL(std::atan2(a, b))},
      {"math.rsqrt", REAL(1.0 / std::sqrt(a))},
      {"math.absf", UNARY(fabs)},
      {"math.ceil", UNARY(ceil)},
      {"math.cos", UNARY(cos)},
      {"math.erf", UNARY(erf)},
      {"math.exp", UNARY(exp)},
      {"math.exp2", UNARY(exp2)},
      {"math.expm1", UNARY(expm1)},
      {"math.floor", UNARY(floor)},
      {"math.log", UNARY(log)},
      {"math.log1p", UNARY(log1p)},
      {"math.log2", UNARY(log2)},
      {"math.round", UNARY(round)},
      {"math.roundeven", UNARY(nearbyint)},
      {"math.sin", UNARY(sin)},
      {"math.sqrt", UNARY(sqrt)},
      {"math.tanh", UNARY(tanh)},
      {"math.trunc", UNARY(trunc)},
      {"math.fpowi", [](Cell x, Cell n, Cell, Cell) { return cell(std::pow(x.real, static_cast<double>(n.integer))); }},
      {"math.isnan", [](Cell x, Cell, Cell, Cell) { return truth(std::isnan(x.real)); }},
      {"math.isinf", [](Cell x, Cell, Cell, Cell) { return truth(std::isinf(x.real)); }},
      {"math.isfinite", [](Cell x, Cell, Cell, Cell) { return truth(std::isfinite(x.real)); }},
      {"arith.addi", INTEGER(wrapped(bits(a) + bits(b)))},
      {"arith.subi", INTEGER(wrapped(bits(a) - bits(b)))},
      {"arith.muli", INTEGER(wrapped(bits(a) * bits(b)))},
      {"arith.andi", INTEGER(wrapped(bits(a) & bits(b)))},
      {"arith.ori", INTEGER(wrapped(bits(a) | bits(b)))},
      {"arith.xori", INTEGER(wrapped(bits(a) ^ bits(b)))},
      {"arith.shli", INTEGER(wrapped(bits(b) < 64 ? bits(a) << bits(b) : 0))},
      {"arith.shrsi", INTEGER(cell(a.integer >> std::min<uint64_t>(bits(b), 63)))},
      {"arith.maxsi", INTEGER(cell(std::max(a.integer, b.integer)))},
      {"arith.minsi", INTEGER(cell(std::min(a.integer, b.integer)))},
      {"arith.select", INTEGER(a.integer ? b : c)},
      {"arith.sitofp", INTEGER(cell(static_cast<double>(a.integer)))},
      {"arith.uitofp", INTEGER(cell(static_cast<double>(bits(a))))},
      {"arith.fptosi", INTEGER(cell(toInteger(a.real)))},
      {"arith.extsi", INTEGER(a)},
      {"math.absi", INTEGER(a.integer < 0 ? wrapped(-bits(a)) : a)},
      {"math.ipowi", INTEGER(integerPower(a, b))},
      {"attn.floordiv", INTEGER(cell(floorDivide(a.integer, b.integer)))},
      {"attn.mod",
       INTEGER(b.integer ? wrapped(bits(a) - bits(b) * floorDivide(a.integer, b.integer)) : cell(int64_t{0}))},
      {"attn.dropout", INTEGER(isDropped(b.real, c.integer, d.integer) ? cell(0.0) : cell(a.real / (1 - b.real)))},
  };
  return operations;
}

/// The low bits of an integer as an unsigned number.
Operation findZeroExtension(unsigned width) {
  switch (width) {
  case 1:
    return INTEGER(cell(a.integer & 1));
  case 8:
    return INTEGER(cell(int64_t{static_cast<uint8_t>(a.integer)}));
  case 32:
    return INTEGER(cell(int64_t{static_cast<uint32_t>(a.integer)}));
  }
  return nullptr;
}

double roundTo(double value, const llvm::fltSemantics &semantics) {
  llvm::APFloat number(value);
  bool inexact;
  number.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &inexact);
  number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &inexact);
  return number.convertToDouble();
}

/// Rounds a float to nearest, ties to even, or keeps the low bits of an integer, which are then signed (of i1: 0 or 1).
Operation findNarrowing(mlir::Type type) {
  if (type.isBF16())
    return REAL(roundTo(a, llvm::APFloat::BFloat()));
  if (type.isF16())
    return REAL(roundTo(a, llvm::APFloat::IEEEhalf()));
  if (type.isF32())
    return REAL(roundTo(a, llvm::APFloat::IEEEsingle()));
  if (type.isSignlessInteger(32))
    return INTEGER(cell(int64_t{static_cast<int32_t>(a.integer)}));
  if (type.isSignlessInteger(8))
    return INTEGER(cell(int64_t{static_cast<int8_t>(a.integer)}));
  if (type.isUnsignedInteger(8))
    return findZeroExtension(8);
  return type.isSignlessInteger(1) ? findZeroExtension(1) : nullptr;
}

} // namespace

Operation reference::findOperation(mlir::Operation *op) {
  if (llvm::isa<mlir::arith::TruncFOp, mlir::arith::TruncIOp>(op))
    return findNarrowing(op->getResult(0).getType());
  if (llvm::isa<mlir::arith::ExtUIOp>(op))
    return findZeroExtension(op->getOperand(0).getType().getIntOrFloatBitWidth());
  if (auto compare = llvm::dyn_cast<mlir::arith::CmpFOp>(op))
    return findFloatComparison(compare.getPredicate());
  if (auto compare = llvm::dyn_cast<mlir::arith::CmpIOp>(op))
    return findIntegerComparison(compare.getPredicate());
  return table().lookup(op->getName().getStringRef());
}

Operation reference::findStorage(mlir::Type element) {
  // f32 and f64 stay what they are, because the oracle is as exact as it can be.
  return element.isF32() || element.isF64() || element.isSignlessInteger(64) ? nullptr : findNarrowing(element);
}
