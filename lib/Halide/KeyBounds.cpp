//===- KeyBounds.cpp - Bounds on keys as expressions -----------------------===//

#include "KeyBounds.h"

using Halide::cast;
using Halide::Expr;
using Halide::Int;
using Halide::Internal::make_const;

namespace attn::lowering {

/// constant + Σ coefficient · value, exactly as far as it matters: what is below 0 becomes −1, and what is above any
/// number of keys, or a multiple of it, 2⁶⁰. Data of 64 bits may be anything, the largest integer for "no limit"
/// included: the two halves of such values are summed by themselves.
static Expr evaluateLinear(const KeyBound &bound, RegionLowering &lowering) {
  Expr low = make_const(Int(64), bound.constant), high;
  for (auto [term, factor] : bound.terms) {
    Expr value = lowering.expression(term), coefficient = make_const(Int(64), factor);
    if (value.type().bits() < 64) {
      low += cast<int64_t>(value) * coefficient;
      continue;
    }
    Expr upperHalf = (value >> 32) * coefficient;
    high = high.defined() ? high + upperHalf : upperHalf;
    low += (value & make_const(Int(64), UINT32_MAX)) * coefficient;
  }
  if (!high.defined())
    return low;
  high += low >> 32;
  Expr most = make_const(Int(64), int64_t(1) << 28);
  return select(high < 0, make_const(Int(64), -1), high >= most, make_const(Int(64), int64_t(1) << 60),
                (high << 32) + (low & make_const(Int(64), UINT32_MAX)));
}

/// In 64 bits.
static Expr evaluate(const KeyBound &bound, RegionLowering &lowering, Expr unbounded) {
  switch (bound.kind) {
  case KeyBound::Kind::Linear:
    return evaluateLinear(bound, lowering);
  case KeyBound::Kind::Min:
    return Halide::min(evaluate(*bound.lhs, lowering, unbounded), evaluate(*bound.rhs, lowering, unbounded));
  case KeyBound::Kind::Max:
    return Halide::max(evaluate(*bound.lhs, lowering, unbounded), evaluate(*bound.rhs, lowering, unbounded));
  case KeyBound::Kind::Guard:
    return Halide::select(lowering.expression(bound.condition), unbounded, make_const(Int(64), 0));
  case KeyBound::Kind::Times: { // of no more than all keys, which have no more quotients than that
    Expr quotient = Halide::clamp(evaluate(*bound.lhs, lowering, unbounded), make_const(Int(64), 0), unbounded);
    return quotient * cast<int64_t>(lowering.expression(bound.factor));
  }
  case KeyBound::Kind::Quotient:
    return evaluate(*bound.lhs, lowering, unbounded) / make_const(Int(64), bound.constant);
  }
  llvm_unreachable("unknown kind of bound");
}

Expr boundOfKeys(const KeyBound &bound, RegionLowering &lowering, Expr count) {
  Expr wide = cast<int64_t>(count);
  Expr keys = cast<int32_t>(Halide::clamp(evaluate(bound, lowering, wide), make_const(Int(64), 0), wide));
  return Halide::clamp(keys, 0, count); // this one tells Halide the bounds
}

} // namespace attn::lowering
