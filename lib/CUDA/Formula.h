//===- Formula.h - Formulas of regions as C++ expressions -------*- C++ -*-===//
//
// The formulas of an attention become member functions of the kernel's struct (see Attention.cuh), one for each
// element. What does not change from element to element is computed once: values that neither the query nor the key
// changes are fields of `block`, those that the key does not change are fields of `row`.
//
// Integers are i64 in the dialect; as in lib/Halide/Region.h they are 32 bits wide here where their range proves that
// no bit is lost.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_CUDA_FORMULA_H
#define ATTN_LIB_CUDA_FORMULA_H

#include "Pattern.h"

#include "llvm/ADT/StringSet.h"

#include <map>
#include <string>
#include <vector>

namespace attn::cuda {

/// How often a value changes: with the block of threads, with the query, with the key, with every element.
enum class Level { Block, Row, Key, Element };

/// The values an integer may take.
struct IntegerRange {
  int64_t low = INT64_MIN, high = INT64_MAX;
  bool fits32() const { return low >= INT32_MIN && high <= INT32_MAX; }
};

/// An expression. `range` is that of an integer, which is an int if the range fits, else an int64.
struct Expression {
  std::string text;
  IntegerRange range = {};

  /// As an operand.
  std::string operand() const;
};

/// Names that differ from each other and from the words of C++.
class Names {
public:
  std::string unique(llvm::StringRef wanted);

private:
  llvm::StringSet<> taken;
};

/// A member of `block`, `row` or `place`.
struct Field {
  std::string type, name, value;
};

/// Names of what all formulas refer to, and the fields that they need.
class Formulas {
public:
  explicit Formulas(Attention &attention);

  Level levelOf(mlir::Value value) const;
  /// Whether the rows of keys or values that `read` is of are a dimension of their own: of its subscripts but the last
  /// one is the sum's key, over all of it, and only the block changes the others.
  bool isInLine(ReadOp read) const;
  /// The field of `level` that is `value`; there is one for each value.
  std::string field(Level level, llvm::StringRef name, const std::string &type, const std::string &value);
  llvm::ArrayRef<Field> fields(Level level) const { return members[int(level)].fields; }
  /// "block.", …
  static std::string owner(Level level);

  /// An index variable: "key", or a member of `at` or `block`.
  std::string index(mlir::Value index) const;
  /// A tensor's member of `arguments`.
  std::string tensor(mlir::Value tensor) const { return "arguments." + tensors.lookup(tensor); }
  /// A named size's member of `arguments`.
  std::string sizeName(llvm::StringRef name) const { return "arguments.size." + sizes.at(name.str()); }

  /// What is not supported, if something is not.
  std::string problem;

  Attention &attention;
  std::map<std::string, std::string> sizes;
  llvm::DenseMap<mlir::Value, std::string> tensors;      ///< Members of `arguments`.
  llvm::DenseMap<mlir::Value, std::string> blockIndices; ///< Of the sum's index variables.
  std::string sharer;                                    ///< The index of those that share keys, if there is one.

private:
  struct Members {
    Names names;
    std::vector<Field> fields;
  };
  Members members[3]; ///< Of the levels that have fields.
};

/// The C++ type of a tensor's elements.
std::string elementType(mlir::Type type);

/// Writes the formulas of one function, whose parameters are `arguments` and, as far as it has them, `block`, `row`,
/// `place`, `at` (the query), `key`, `dot` and `weight`.
class FormulaWriter {
public:
  /// `level` is how often the function is called; `hasRow` and `hasPlace` whether it has `row` and `place`.
  FormulaWriter(Formulas &formulas, Level level, bool hasRow, bool hasPlace = false)
      : formulas(formulas), level(level), hasRow(hasRow), hasPlace(hasPlace) {}

  /// From here on `value` is `text`, whatever defines it.
  void replace(mlir::Value value, const std::string &text) { known[value] = {text, {}}; }
  Expression write(mlir::Value value);
  /// The address of the element that `read` is of, without the last subscript.
  std::string rowAddress(ReadOp read);
  /// Its subscripts but the last, the last of them first, with `key` in the place of the sum's key, where they are what
  /// a tensor map takes. Else nothing.
  std::vector<std::string> place(ReadOp read);
  /// The statements before the expressions.
  const std::string &statements() const { return text; }
  /// The definition of the function, which has this head and returns `value`.
  std::string function(const std::string &head, const std::string &value) const;

  Expression size(SizeAttr size);
  /// An operand, inside of a dimension of this size.
  std::string subscript(mlir::Value value, SizeAttr size);

private:
  void count(mlir::Value value);
  bool canBeField(Level own) const;
  bool canBeField(Level own, mlir::Operation *op) const;
  std::string address(ReadOp read, size_t dimensions);
  Expression element(ReadOp read);
  Expression define(mlir::Operation *op);
  Expression defineInteger(mlir::Operation *op);
  Expression group(FloorDivOp op);
  Expression unsupported(mlir::Operation *op);

  // Floats and booleans (Floats.cpp).
  Expression defineFloat(mlir::Operation *op);

  Formulas &formulas;
  Level level;
  bool hasRow, hasPlace;
  llvm::DenseMap<mlir::Value, Expression> known;
  llvm::DenseMap<mlir::Value, unsigned> uses;
  std::string text;
  unsigned locals = 0;
};

/// Arithmetic on integers that may have any value in their range.
Expression integer(int64_t value);
Expression add(const Expression &a, const Expression &b);
Expression subtract(const Expression &a, const Expression &b);
Expression multiply(const Expression &a, const Expression &b);
Expression floorDivide(const Expression &a, const Expression &b);
Expression floorModulo(const Expression &a, const Expression &b);
Expression extremum(const Expression &a, const Expression &b, bool largest);
/// An integer's C++ type.
const char *typeOf(IntegerRange range);

} // namespace attn::cuda

#endif // ATTN_LIB_CUDA_FORMULA_H
