//===- Program.h - A region as a flat program over slots --------*- C++ -*-===//
//
// The formula of one element, compiled once and run for every element: instructions that read and write numbered
// slots. `attn.reduce` becomes an instruction that holds two programs of its own, its condition and its body.
//
//   %0 = attn.reduce sum(%d: D) { … }        slot 5 = reduce over slot 4 in 0 … D−1
//     %1 = attn.read %q[%m, %d]                slot 6 = read q[slot 0, slot 4]
//     %2 = attn.read %k[%n, %d]                slot 7 = read k[slot 1, slot 4]
//     %3 = arith.mulf %1, %2                   slot 8 = multiply(slot 6, slot 7)
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_REFERENCE_PROGRAM_H
#define ATTN_LIB_REFERENCE_PROGRAM_H

#include "attn/IR/Attn.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace attn::reference {

/// A scalar: floats are `real`; integers, and bools as 0 and 1, are `integer`.
union Cell {
  int64_t integer;
  double real;
};

inline Cell cell(int64_t integer) {
  Cell result;
  result.integer = integer;
  return result;
}
inline Cell cell(double real) {
  Cell result;
  result.real = real;
  return result;
}

/// A row-major tensor.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<Cell> cells;
};

/// A scalar function. Operands that it does not have are those of slot 0.
using Operation = Cell (*)(Cell, Cell, Cell, Cell);
using Slot = uint32_t;

/// The function of a scalar op, or null for an op that the interpreter does not know.
Operation findOperation(mlir::Operation *op);

/// What storing a value in a tensor of `element` makes of it (bf16 and f16 round, narrow integers wrap), or null where
/// it stays the same.
Operation findStorage(mlir::Type element);

struct Instruction {
  enum class Kind : uint8_t { Scalar, Read, Reduce };
  Kind kind;
  Slot result;
  Operation operation = nullptr; ///< Of a scalar instruction.
  Slot operands[4] = {};         ///< Of a scalar instruction.
  uint32_t index = 0;            ///< Of the access or the reduction in the program.
};

using Block = std::vector<Instruction>;

/// `tensor[subscript, …]`, each subscript clamped to its dimension. An element of an empty tensor is 0.
struct Access {
  struct Subscript {
    Slot slot;
    int64_t extent;
    int64_t stride;
  };
  const Cell *cells;
  bool empty;
  llvm::SmallVector<Subscript, 4> subscripts;
};

/// An `attn.reduce`.
struct Reduction {
  ReduceKind kind;
  mlir::Type type;
  llvm::SmallVector<Slot, 2> indices;
  llvm::SmallVector<int64_t, 2> extents;
  std::optional<Slot> condition; ///< Computed by `where`; absent: always true.
  Block where;
  Slot value; ///< Computed by `body`.
  Block body;
  llvm::SmallVector<Slot, 2> at; ///< The element of a softmax.
  std::optional<Slot> sink;
  /// Slots from outside that condition, body and sink read: while they stay the same, so does what runs over all
  /// elements. That makes a row of a softmax cost one pass, not one for each of its elements.
  llvm::SmallVector<Slot, 4> captured;
};

/// What computes one element of a tensor.
struct Program {
  std::vector<Cell> initialSlots; ///< Constants are in their slots from the start.
  std::vector<Slot> indices;      ///< Where the element's index goes.
  Block block;
  std::vector<Access> accesses;
  std::vector<std::unique_ptr<Reduction>> reductions;
  Slot value = 0;
};

/// The tensors defined so far and the values of the sizes.
struct Environment {
  llvm::DenseMap<mlir::Value, const Tensor *> tensors;
  llvm::StringMap<int64_t> sizes;

  /// The value of a size; an error if it is negative or cannot be computed.
  llvm::Expected<int64_t> evaluate(SizeAttr size) const;
  /// The same as the extent of a dimension or loop: an error where it is negative.
  llvm::Expected<int64_t> extent(SizeAttr size) const;
  llvm::Expected<std::vector<int64_t>> evaluate(AttnTensorType type) const;
};

/// Compiles the formula of a tensor, score, mask or weighted sum. The program points into the tensors of `environment`.
llvm::Expected<Program> compileDefinition(DefinitionOpInterface definition, const Environment &environment);

/// Runs `program` for every index of `shape`, in row-major order, on all cores.
std::vector<Cell> evaluate(const Program &program, llvm::ArrayRef<int64_t> shape);

/// log Σ exp(x) in the form that overflows nowhere: `maximum` + log(`sum`), where `sum` is Σ exp(x − maximum).
/// Where nothing is left (or only −inf is) the sum is 0 and its logarithm −inf. A sink is something left: the weights
/// are 0 then too, but log Σ exp(x) is the sink.
struct SoftmaxRow {
  double maximum;
  double sum;

  static SoftmaxRow over(llvm::ArrayRef<double> values, std::optional<double> sink);
  double weight(double value) const;
  double logSumExp() const;
};

} // namespace attn::reference

#endif // ATTN_LIB_REFERENCE_PROGRAM_H
