//===- Division.cpp - Integer division in double precision -----------------===//

#include "Division.h"

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

namespace {
/// As Halide divides: the remainder is not negative and less than the divisor's magnitude, and divided by 0 all is 0.
class DivideInDoubles : public IRMutator {
  using IRMutator::visit;

  /// `make` of the divisor, once for all lanes where they share it.
  template <typename Function> static Expr ofDivisor(const Expr &divisor, Function make) {
    const auto *shared = divisor.as<Broadcast>();
    return shared ? Broadcast::make(make(shared->value), shared->lanes) : make(divisor);
  }

  bool applies(const Expr &dividend, const Expr &divisor) const {
    Type type = dividend.type();
    bool changes = type.is_scalar() && (expr_uses_vars(dividend, changing) || expr_uses_vars(divisor, changing));
    return type.is_int() && type.bits() == 32 && !is_const(divisor) && !changes;
  }

  Stmt visit(const For *op) override {
    Expr min = mutate(op->min), extent = mutate(op->extent);
    Scope<> outside = std::move(changing);
    changing = Scope<>();
    changing.push(op->name);
    Stmt body = mutate(op->body);
    changing = std::move(outside);
    return For::make(op->name, min, extent, op->for_type, op->partition_policy, op->device_api, body);
  }

  template <typename Let> auto visitLet(const Let *op) -> decltype(Let::make(op->name, op->value, op->body)) {
    Expr value = mutate(op->value);
    ScopedBinding<> changes(expr_uses_vars(value, changing), changing, op->name);
    return Let::make(op->name, value, mutate(op->body));
  }
  Expr visit(const Let *op) override { return visitLet(op); }
  Stmt visit(const LetStmt *op) override { return visitLet(op); }

  static Expr quotient(const Expr &dividend, const Expr &divisor) {
    Type type = dividend.type(), wide = Float(64, type.lanes());
    Expr magnitude = ofDivisor(divisor, [](const Expr &y) {
      return select(y == 0, make_one(Float(64, y.type().lanes())), abs(cast(Float(64, y.type().lanes()), y)));
    });
    Expr sign = ofDivisor(divisor, [](const Expr &y) {
      Type own = y.type();
      return select(y > 0, make_one(own), y < 0, make_const(own, -1), make_zero(own));
    });
    return cast(type, floor(cast(wide, dividend) / magnitude)) * sign;
  }

  Expr visit(const Div *op) override {
    Expr a = mutate(op->a), b = mutate(op->b);
    return applies(a, b) ? quotient(a, b) : Div::make(a, b);
  }

  Expr visit(const Mod *op) override {
    Expr a = mutate(op->a), b = mutate(op->b);
    if (!applies(a, b))
      return Mod::make(a, b);
    return select(b == 0, make_zero(a.type()), a - quotient(a, b) * b);
  }

  Scope<> changing; ///< In each pass of the innermost loop.
};
} // namespace

void divideInDoubles(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new DivideInDoubles); }

} // namespace attn::lowering
