//===- SyntaxTree.h - What the parser makes of a file -----------*- C++ -*-===//
//
// Every name is a piece of the source buffer, so it is its own location. Nothing here is
// resolved: a `NameExpression` may turn out to be a size, an index, a scalar or a constant.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_LANGUAGE_SYNTAXTREE_H
#define ATTN_LIB_LANGUAGE_SYNTAXTREE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Casting.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace llvm {
class raw_ostream;
}

namespace attn::language {

using llvm::StringRef;

struct Expression {
  enum class Kind { Integer, Float, Name, Unary, Binary, Call, Subscript, Reduction };

  const Kind kind;
  StringRef text;      ///< All of the expression.
  unsigned height = 1; ///< Nodes on the longest path down: bounds the recursion over the tree.

  virtual ~Expression() = default;

protected:
  Expression(Kind kind, StringRef text) : kind(kind), text(text) {}
};
using ExpressionPtr = std::unique_ptr<Expression>;

template <Expression::Kind kindOfNode> struct ExpressionOf : Expression {
  explicit ExpressionOf(StringRef text) : Expression(kindOfNode, text) {}
  static bool classof(const Expression *expression) { return expression->kind == kindOfNode; }
};

struct IntegerExpression : ExpressionOf<Expression::Kind::Integer> {
  using ExpressionOf::ExpressionOf;
  int64_t value = 0;
};

struct FloatExpression : ExpressionOf<Expression::Kind::Float> {
  using ExpressionOf::ExpressionOf;
  double value = 0;
};

/// A size, an index variable, a scalar, a function's parameter, or a constant.
struct NameExpression : ExpressionOf<Expression::Kind::Name> {
  explicit NameExpression(StringRef name) : ExpressionOf(name), name(name) {}
  StringRef name;
};

/// `-x` or `not x`.
struct UnaryExpression : ExpressionOf<Expression::Kind::Unary> {
  using ExpressionOf::ExpressionOf;
  StringRef op;
  bool isNot = false;
  ExpressionPtr operand;
};

enum class BinaryOperator {
  Or,
  And,
  Equal,
  NotEqual,
  Less,
  LessEqual,
  Greater,
  GreaterEqual,
  Add,
  Sub,
  Mul,
  Div,
  FloorDiv,
  Mod,
  Power
};

struct BinaryExpression : ExpressionOf<Expression::Kind::Binary> {
  using ExpressionOf::ExpressionOf;
  BinaryOperator op = BinaryOperator::Add;
  StringRef opText;
  ExpressionPtr lhs, rhs;
};

/// `name(arguments)`: a built-in function, a `def`, or a conversion.
struct CallExpression : ExpressionOf<Expression::Kind::Call> {
  using ExpressionOf::ExpressionOf;
  StringRef name;
  std::vector<ExpressionPtr> arguments;
};

/// `name[subscripts]`.
struct SubscriptExpression : ExpressionOf<Expression::Kind::Subscript> {
  using ExpressionOf::ExpressionOf;
  StringRef name;
  std::vector<ExpressionPtr> subscripts;
};

/// An index variable where it is introduced: `i` or `i: X`.
struct Index {
  StringRef name;
  ExpressionPtr range;
};

/// `sum[i, j: X](body where condition, sink = sink)`.
struct ReductionExpression : ExpressionOf<Expression::Kind::Reduction> {
  using ExpressionOf::ExpressionOf;
  StringRef name;
  std::vector<Index> indices;
  ExpressionPtr body, condition, sink;
};

struct Statement {
  StringRef name;
  std::vector<Index> indices;
  StringRef dtype;     ///< Empty where there is no annotation.
  ExpressionPtr value; ///< Null where it could not be parsed: the name is defined, but nothing is known of it.
};

struct Parameter {
  StringRef name;
  StringRef dtype;
  std::vector<ExpressionPtr> shape; ///< Empty for a scalar.
  ExpressionPtr defaultValue;
};

/// A size declared in brackets: `H` or `H = 12`.
struct DeclaredSize {
  StringRef name;
  std::optional<int64_t> value;
};

struct Kernel {
  StringRef name;
  std::vector<DeclaredSize> sizes;
  std::vector<Parameter> parameters;
  std::vector<Statement> statements;
  std::vector<StringRef> outputs;
  bool broken = false; ///< The head could not be parsed, so the names in the body mean nothing.
};

struct Function {
  StringRef name;
  std::vector<StringRef> parameters;
  ExpressionPtr body; ///< Null where it could not be parsed.
};

struct File {
  std::vector<Function> functions;
  std::vector<Kernel> kernels;
};

/// Prints `file`, one node a line, children indented under their parent.
void print(const File &file, llvm::raw_ostream &os);

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_SYNTAXTREE_H
