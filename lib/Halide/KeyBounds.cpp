//===- KeyBounds.cpp - Bounds on keys as expressions -----------------------===//

#include "KeyBounds.h"

using Halide::cast;
using Halide::Expr;
using Halide::Int;
using Halide::Internal::make_const;

namespace attn::lowering {

/// In 64 bits: loaded data may be anything.
static Expr evaluate(const KeyBound &bound, RegionLowering &lowering, Expr unbounded) {
  switch (bound.kind) {
  case KeyBound::Kind::Linear: {
    Expr value = make_const(Int(64), bound.constant);
    for (auto [term, coefficient] : bound.terms)
      value += cast<int64_t>(lowering.expression(term)) * make_const(Int(64), coefficient);
    return value;
  }
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
  }
  llvm_unreachable("unknown kind of bound");
}

Expr boundOfKeys(const KeyBound &bound, RegionLowering &lowering, Expr count) {
  Expr wide = cast<int64_t>(count);
  Expr keys = cast<int32_t>(Halide::clamp(evaluate(bound, lowering, wide), make_const(Int(64), 0), wide));
  return Halide::clamp(keys, 0, count); // this one tells Halide the bounds
}

} // namespace attn::lowering
