//===- Emitter.h - Resolved statements to the dialect -----------*- C++ -*-===//
//
// Emits the region of one element: types are checked here, because the type of a function's
// body depends on its arguments. A null value means that an error was reported below.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_LANGUAGE_EMITTER_H
#define ATTN_LIB_LANGUAGE_EMITTER_H

#include "Resolver.h"

#include "mlir/IR/Builders.h"

namespace attn::language {

class Emitter {
public:
  /// `computeType` is the type all floats are computed in: f32 or f64.
  Emitter(mlir::OpBuilder &builder, const llvm::SourceMgr &sources, Diagnostics &diagnostics, const Resolver &resolver,
          mlir::FloatType computeType)
      : builder(builder), sources(sources), diagnostics(diagnostics), resolver(resolver), computeType(computeType) {}

  /// Emits `statement`, whose index variables are `indices`, as an attn.tensor. Null after an error.
  mlir::Value emitStatement(const Statement &statement, llvm::ArrayRef<Variable *> indices);
  mlir::Location location(StringRef text) const;

private:
  // --- Expressions (Emitter.cpp) --------------------------------------------------------------

  mlir::Value emit(const Expression &expression);
  mlir::Value emitName(const NameExpression &expression);
  mlir::Value emitSubscript(const SubscriptExpression &expression);
  mlir::Value emitRead(const Tensor &tensor, mlir::ValueRange subscripts, mlir::Location place);
  mlir::Value emitSize(SizeAttr size, mlir::Location place);
  mlir::Value constant(double value, mlir::Location place);
  mlir::Value integer(int64_t value, mlir::Location place);

  // --- Operands of a type that is needed (Emitter.cpp) ----------------------------------------

  /// A number; a bool is an error that names `user`.
  mlir::Value emitNumber(const Expression &expression, const llvm::Twine &user);
  mlir::Value emitFloat(const Expression &expression, const llvm::Twine &user);
  mlir::Value emitInteger(const Expression &expression, const llvm::Twine &user);
  mlir::Value emitBool(const Expression &expression, const llvm::Twine &user);
  /// The statement's value as `wanted`, the type that its annotation is computed in. Null after an error.
  mlir::Value toAnnotated(const Statement &statement, mlir::Value value, mlir::Type wanted);
  /// Integers to the compute type; floats stay what they are.
  mlir::Value toFloat(mlir::Value value);
  /// Makes both floats where one is.
  void unify(mlir::Value &lhs, mlir::Value &rhs);
  SourceError &error(StringRef where, std::string message);

  // --- Operators (EmitOperators.cpp) ----------------------------------------------------------

  mlir::Value emitUnary(const UnaryExpression &expression);
  mlir::Value emitBinary(const BinaryExpression &expression);
  mlir::Value emitLogical(const BinaryExpression &expression);
  mlir::Value emitComparison(const BinaryExpression &expression);
  mlir::Value emitArithmetic(const BinaryExpression &expression);
  mlir::Value emitPower(const Expression &whole, const Expression &base, const Expression &exponent);
  std::optional<SizeAttr> sizeExpression(const Expression &expression) const;

  // --- Calls (EmitCalls.cpp) ------------------------------------------------------------------

  mlir::Value emitCall(const CallExpression &expression);
  mlir::Value emitFunction(const CallExpression &expression, const Function &function);
  mlir::Value emitBuiltin(const CallExpression &expression, Builtin function);
  mlir::Value emitUnaryFloat(Builtin function, mlir::Value x, mlir::Location place);
  mlir::Value emitSelect(const CallExpression &expression);
  mlir::Value emitDropout(const CallExpression &expression);
  mlir::Value emitConversion(const CallExpression &expression, StringRef dtype);

  // --- Reductions (EmitReductions.cpp) --------------------------------------------------------

  mlir::Value emitReduction(const ReductionExpression &expression);

  mlir::OpBuilder &builder;
  const llvm::SourceMgr &sources;
  Diagnostics &diagnostics;
  const Resolver &resolver;
  mlir::FloatType computeType;

  llvm::DenseMap<const Variable *, mlir::Value> current; ///< The value of each variable at this point.
  llvm::SmallVector<mlir::Value> element;                ///< The statement's own index arguments.
  llvm::SmallVector<SizeAttr> shape;                     ///< The statement's shape.
  llvm::ArrayRef<mlir::Value> arguments;                 ///< Of the function whose body is emitted.
  llvm::SmallVector<StringRef> calls;                    ///< Outermost first.
  size_t inlined = 0;                                    ///< Calls inlined in this statement.
};

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_EMITTER_H
