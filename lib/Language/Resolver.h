//===- Resolver.h - What the names of a kernel mean -------------*- C++ -*-===//
//
// Binds every name of a statement to what it means, and gives every index variable its
// range, before anything is emitted. Types are the emitter's business.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_LANGUAGE_RESOLVER_H
#define ATTN_LIB_LANGUAGE_RESOLVER_H

#include "Builtins.h"
#include "Diagnostics.h"
#include "FunctionTable.h"
#include "Polynomial.h"
#include "SizeTable.h"
#include "SyntaxTree.h"

#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"

#include <deque>

namespace attn::language {

/// A parameter, or a tensor that a statement defines.
struct Tensor {
  StringRef name; ///< Where it is defined.
  bool isParameter = false;
  bool hasShape = false; ///< False where the definition has errors: its uses are not checked.
  llvm::SmallVector<SizeAttr> shape;
  mlir::Value value; ///< Null until it is emitted, and after an error.
  StringRef dtype;   ///< Of a parameter, or an annotation.
};

/// An index variable.
struct Variable {
  StringRef name; ///< Where it is introduced.
  SizeAttr range; ///< 0 … range − 1.
  bool isExplicit = false;

  /// A dimension that the variable subscripts alone.
  struct Use {
    SizeAttr size;
    StringRef place;
    StringRef tensor;
    unsigned dimension;
  };
  llvm::SmallVector<Use> uses;
};

/// What a name, a call or a subscript refers to. Nothing is set where it could not be resolved.
struct Binding {
  Variable *variable = nullptr;
  Tensor *tensor = nullptr;
  SizeAttr size;
  const Function *function = nullptr;
  const BuiltinInfo *builtin = nullptr;
  std::optional<unsigned> parameter; ///< Position among the parameters of the function it stands in.
  StringRef constant;                ///< inf, pi, true, false
  StringRef conversion;              ///< A dtype that is called.
};

/// A comparison of sizes that can only be made when they are known.
struct SizeCheck {
  SizeAttr part, whole; ///< part <= whole
  std::string message;
};

class Resolver {
public:
  Resolver(mlir::MLIRContext *context, Diagnostics &diagnostics, const FunctionTable &functions, SizeTable &sizes)
      : context(context), diagnostics(diagnostics), functions(functions), sizes(sizes) {}

  // --- Tensors --------------------------------------------------------------------------------

  /// Defines a tensor. A name that is taken is an error, and the first definition keeps it.
  Tensor &addTensor(StringRef name);
  Tensor *findTensor(StringRef name);
  std::vector<StringRef> tensorNames() const;
  /// All statements of the kernel, so that a use before the definition can be told from an unknown name.
  void setStatements(const std::vector<Statement> &statements) { this->statements = &statements; }

  // --- Statements and functions ---------------------------------------------------------------

  /// Binds the names of a statement. Returns its index variables, or nothing after an error that leaves
  /// their ranges unknown. Bindings stay valid until the next statement.
  std::optional<std::vector<Variable *>> resolveStatement(const Statement &statement);
  void resolveFunction(const Function &function);
  /// Collects the ranges that parameters give to index names anywhere in the kernel, for statements that use a name
  /// without subscripting anything with it (`mask[m, n] = n <= m`). Call it after the parameters are added.
  void collectRanges(const std::vector<Statement> &statements);

  const Binding &binding(const Expression &expression) const;
  Variable *variable(const Index &index) const { return introduced.lookup(&index); }
  const std::vector<SizeCheck> &sizeChecks() const { return checks; }

private:
  // --- Expressions and index variables (Resolver.cpp) -----------------------------------------

  void resolve(const Expression &expression);
  void resolveReduction(const ReductionExpression &expression);
  void resolveSoftmax(const ReductionExpression &expression);
  Variable *findVariable(StringRef name) const;
  Variable *introduce(const Index &index);
  void setExplicitRange(Variable &variable, const Expression &range);

  // --- What a name, a call or a subscript refers to (ResolveNames.cpp) ------------------------

  void resolveName(const NameExpression &expression);
  void resolveCall(const CallExpression &expression);
  void resolveSubscript(const SubscriptExpression &expression);
  void unknownName(StringRef name);
  void unknownFunction(StringRef name);

  // --- The ranges of index variables, and subscripts in bounds (Ranges.cpp) -------------------

  /// The least and the greatest value of a subscript, where they are known.
  struct Interval {
    Polynomial least, greatest;
  };

  void collectRanges(const Expression &expression);
  void collectRanges(const std::vector<Index> &indices);
  bool takeRangeOfName(Variable &variable, bool quiet);
  bool decideRange(Variable &variable, bool quiet);
  void checkSubscripts(const SubscriptExpression &expression);
  std::optional<Interval> boundsOf(const Expression &expression) const;
  std::optional<Interval> boundsOf(const BinaryExpression &expression) const;

  mlir::MLIRContext *context;
  Diagnostics &diagnostics;
  const FunctionTable &functions;
  SizeTable &sizes;
  const std::vector<Statement> *statements = nullptr;

  std::deque<Tensor> tensors;
  llvm::DenseMap<StringRef, Tensor *> tensorByName;
  std::vector<SizeCheck> checks;
  /// Where in the kernel an index name has which range.
  llvm::DenseMap<StringRef, llvm::SmallVector<std::pair<SizeAttr, StringRef>, 2>> rangesOfNames;
  bool hasUnparsed = false; ///< Whether a statement had a syntax error, and may have said the range of a name.

  // Of the statement or function at hand.
  const Function *currentFunction = nullptr;
  const char *scopeStart = nullptr; ///< Where the statement at hand begins.
  std::deque<Variable> variables;
  std::vector<Variable *> scope;      ///< Innermost last.
  std::vector<Variable *> hiddenRows; ///< What the softmax runs over whose sink is resolved.
  llvm::DenseMap<const Index *, Variable *> introduced;
  llvm::DenseMap<const Expression *, Binding> bindings;
  std::vector<const SubscriptExpression *> subscripts;
};

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_RESOLVER_H
