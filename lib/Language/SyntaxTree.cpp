//===- SyntaxTree.cpp - Printing the syntax tree (--emit=ast) -------------===//

#include "SyntaxTree.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace attn::language;

namespace {

class Printer {
public:
  explicit Printer(llvm::raw_ostream &os) : os(os) {}

  void print(const Function &function) {
    line(0) << "def " << function.name << '(' << llvm::join(function.parameters, ", ") << ")\n";
    print(*function.body, 1);
  }

  void print(const Kernel &kernel) {
    line(0) << "attention " << kernel.name << '\n';
    for (const DeclaredSize &size : kernel.sizes) {
      line(1) << "size " << size.name;
      if (size.value)
        os << " = " << *size.value;
      os << '\n';
    }
    for (const Parameter &parameter : kernel.parameters) {
      line(1) << "parameter " << parameter.name << ": " << parameter.dtype;
      if (!parameter.shape.empty())
        list(parameter.shape, [&](const ExpressionPtr &size) { inlined(*size); });
      os << '\n';
      child("default", parameter.defaultValue, 2);
    }
    for (const Statement &statement : kernel.statements) {
      line(1) << "tensor " << statement.name;
      indices(statement.indices);
      if (!statement.dtype.empty())
        os << ": " << statement.dtype;
      os << '\n';
      print(*statement.value, 2);
    }
    line(1) << "return " << llvm::join(kernel.outputs, ", ") << '\n';
  }

private:
  llvm::raw_ostream &line(unsigned depth) { return os.indent(2 * depth); }

  template <typename Range, typename Each> void list(const Range &range, Each each) {
    os << '[';
    llvm::interleaveComma(range, os, each);
    os << ']';
  }

  void indices(const std::vector<Index> &list) {
    if (list.empty())
      return;
    this->list(list, [&](const Index &index) {
      os << index.name;
      if (index.range) {
        os << ": ";
        inlined(*index.range);
      }
    });
  }

  /// A size on one line, with every pair of brackets that the tree implies.
  void inlined(const Expression &expression) {
    if (const auto *binary = llvm::dyn_cast<BinaryExpression>(&expression)) {
      os << '(';
      inlined(*binary->lhs);
      os << ' ' << binary->opText << ' ';
      inlined(*binary->rhs);
      os << ')';
      return;
    }
    os << expression.text;
  }

  void child(StringRef label, const ExpressionPtr &expression, unsigned depth) {
    if (!expression)
      return;
    line(depth) << label << '\n';
    print(*expression, depth + 1);
  }

  void print(const Expression &expression, unsigned depth) {
    switch (expression.kind) {
    case Expression::Kind::Integer:
      line(depth) << "integer " << llvm::cast<IntegerExpression>(expression).value << '\n';
      return;
    case Expression::Kind::Float:
      line(depth) << "float " << expression.text << '\n';
      return;
    case Expression::Kind::Name:
      line(depth) << "name " << llvm::cast<NameExpression>(expression).name << '\n';
      return;
    case Expression::Kind::Unary: {
      const auto &unary = llvm::cast<UnaryExpression>(expression);
      line(depth) << "unary " << (unary.isNot ? "not" : "-") << '\n';
      return print(*unary.operand, depth + 1);
    }
    case Expression::Kind::Binary: {
      const auto &binary = llvm::cast<BinaryExpression>(expression);
      line(depth) << "binary " << binary.opText << '\n';
      print(*binary.lhs, depth + 1);
      return print(*binary.rhs, depth + 1);
    }
    case Expression::Kind::Call: {
      const auto &call = llvm::cast<CallExpression>(expression);
      line(depth) << "call " << call.name << '\n';
      for (const ExpressionPtr &argument : call.arguments)
        print(*argument, depth + 1);
      return;
    }
    case Expression::Kind::Subscript: {
      const auto &subscript = llvm::cast<SubscriptExpression>(expression);
      line(depth) << "read " << subscript.name << '\n';
      for (const ExpressionPtr &index : subscript.subscripts)
        print(*index, depth + 1);
      return;
    }
    case Expression::Kind::Reduction: {
      const auto &reduction = llvm::cast<ReductionExpression>(expression);
      line(depth) << "reduce " << reduction.name;
      indices(reduction.indices);
      os << '\n';
      print(*reduction.body, depth + 1);
      child("where", reduction.condition, depth + 1);
      child("sink", reduction.sink, depth + 1);
      return;
    }
    }
  }

  llvm::raw_ostream &os;
};

} // namespace

void attn::language::print(const File &file, llvm::raw_ostream &os) {
  Printer printer(os);
  for (const Function &function : file.functions)
    printer.print(function);
  for (const Kernel &kernel : file.kernels)
    printer.print(kernel);
}
