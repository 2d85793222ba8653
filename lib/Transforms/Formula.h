//===- Formula.h - Arithmetic of gradients ----------------------*- C++ -*-===//

#ifndef ATTN_TRANSFORMS_FORMULA_H
#define ATTN_TRANSFORMS_FORMULA_H

#include "Scores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

namespace attn {

/// Arithmetic at the end of a block.
class Formula {
public:
  Formula(mlir::Block &block, mlir::Location location) : Formula(mlir::OpBuilder::atBlockEnd(&block), location) {}
  Formula(mlir::OpBuilder builder, mlir::Location location) : builder(std::move(builder)), location(location) {}

  mlir::Value multiply(mlir::Value a, mlir::Value b) {
    return builder.createOrFold<mlir::arith::MulFOp>(location, a, b);
  }
  mlir::Value multiply(mlir::Value a, double b) { return multiply(a, constant(b, a.getType())); }
  mlir::Value divide(mlir::Value a, mlir::Value b) { return builder.createOrFold<mlir::arith::DivFOp>(location, a, b); }
  mlir::Value add(mlir::Value a, mlir::Value b) { return builder.createOrFold<mlir::arith::AddFOp>(location, a, b); }
  mlir::Value subtract(mlir::Value a, mlir::Value b) {
    return builder.createOrFold<mlir::arith::SubFOp>(location, a, b);
  }
  mlir::Value negate(mlir::Value a) { return builder.createOrFold<mlir::arith::NegFOp>(location, a); }
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b) {
    return builder.createOrFold<mlir::arith::SelectOp>(location, condition, a, b);
  }
  mlir::Value compare(mlir::arith::CmpFPredicate predicate, mlir::Value a, mlir::Value b) {
    return mlir::arith::CmpFOp::create(builder, location, predicate, a, b);
  }
  mlir::Value constant(double value, mlir::Type type) { return floatConstant(value, type, builder, location); }
  mlir::Value zero(mlir::Value like) { return constant(0, like.getType()); }
  /// What `slope` makes of a gradient, which is a multiple of it. Where the gradient is 0 because a choice is another,
  /// the result is, too, even if there is no slope: it may be infinite or NaN where nobody wants it.
  mlir::Value scale(mlir::Value gradient, llvm::function_ref<mlir::Value(mlir::Value)> slope);
  template <typename Op, typename... Operands> mlir::Value function(Operands... operands) {
    return Op::create(builder, location, operands...);
  }
  /// The sum of `term`, a value inside `reduce`, over what that is over.
  mlir::Value sumOver(ReduceOp reduce, mlir::Value term);

private:
  mlir::OpBuilder builder;
  mlir::Location location;
};

} // namespace attn

#endif // ATTN_TRANSFORMS_FORMULA_H
