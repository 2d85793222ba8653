//===- Region.h - Region values as Halide expressions -----------*- C++ -*-===//
//
// A region of an attn op becomes one Halide expression. Integers are i64 in the dialect; they
// become 32-bit expressions (which Halide's bounds inference and vector units want) wherever
// their range proves that no bit is lost, and 64-bit ones elsewhere.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_HALIDE_REGION_H
#define ATTN_LIB_HALIDE_REGION_H

#include "attn/Analysis/Dependence.h"

#include "Halide.h"
#include "llvm/ADT/DenseMap.h"

#include <functional>
#include <optional>
#include <stdexcept>
#include <vector>

namespace attn::lowering {

/// Something the lowering does not do yet. Caught at the folder's boundary.
class Unsupported : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// The values an integer may take.
struct IntegerRange {
  int64_t low = INT64_MIN, high = INT64_MAX;
  bool fits32() const { return low >= INT32_MIN && high <= INT32_MAX; }
};

/// A region value. `range` is that of an integer; its expression is Int(32) if the range fits, else Int(64).
struct Scalar {
  Halide::Expr expr;
  IntegerRange range;
};

/// What an index variable stands for in one stage of the pipeline.
struct IndexBinding {
  Halide::Expr expr;                ///< Int(32)
  std::vector<Halide::Var> vars;    ///< The pure variables in `expr`.
  bool padded = false;              ///< The loop may run past the size: reads clamp.
  std::optional<Halide::RVar> loop; ///< The reduction variable that `expr` is, if it is one.

  /// Whether `var` is one of `vars`.
  bool has(const Halide::Var &var) const;
};

/// The loops along the indices of a tensor, that along the last index first, as Halide has dimensions.
std::vector<Halide::Var> loopsAlong(mlir::ArrayAttr indices);

/// Index variables and the values computed from them so far, within one stage.
struct Environment {
  llvm::DenseMap<mlir::Value, IndexBinding> indices;
  llvm::DenseMap<mlir::Value, Scalar> values;
  /// Subscripts of dimensions whose last index is `top`, which are computed elsewhere and lie within them.
  struct Subscript {
    Halide::Expr expr, top;
  };
  llvm::DenseMap<mlir::Value, Subscript> subscripts;

  void bind(mlir::Value index, Halide::Var var) { indices[index] = {var, {var}, false, {}}; }
  /// Whether `value` depends on an index that `var` is a part of.
  bool changesWith(mlir::Value value, const Halide::Var &var) const;
  /// What `var` is a part of: of the indices that stand for the same, such as a score's key and its sum's, any. Null if
  /// there is none.
  const IndexBinding *bindingWith(const Halide::Var &var) const;
  /// Every index that `var` is a part of becomes `binding`.
  void rebind(const Halide::Var &var, const IndexBinding &binding);
  /// From here on `value` is `expr`, whatever defines it.
  void replace(mlir::Value value, Halide::Expr expr) { values[value] = {expr, {}}; }
};

/// The index variables that the values yielded by `region` depend on, beyond the region's own.
IndexSet freeIndices(mlir::Region &region);

class StepLowering;

/// Lowers the values of one stage. Reductions nested in a region go to `reduce`, which the stage provides.
class RegionLowering {
public:
  RegionLowering(StepLowering &kernel, Environment &environment) : kernel(kernel), environment(environment) {}
  virtual ~RegionLowering() = default;

  Scalar lower(mlir::Value value);
  /// The subscript of a dimension, inside of it.
  Halide::Expr subscript(ReadOp read, unsigned dimension);
  /// The same, where the last index of the dimension is `top`.
  Halide::Expr subscript(ReadOp read, unsigned dimension, Halide::Expr top);
  Halide::Expr expression(mlir::Value value) { return lower(value).expr; }

protected:
  /// The value of a nested reduction.
  virtual Halide::Expr reduce(ReduceOp op) = 0;
  /// Called first for every value that an operation defines: a stage that keeps a value elsewhere returns it.
  virtual Halide::Expr stored(mlir::Value) { return {}; }
  Scalar lowerOperation(mlir::Operation *op);

  StepLowering &kernel;
  Environment &environment;

private:
  Scalar lowerInteger(mlir::Operation *op);
  Halide::Expr lowerFloat(mlir::Operation *op);
  Scalar read(ReadOp op);
};

/// A formula without reductions, such as a mask's.
class PlainRegion : public RegionLowering {
public:
  using RegionLowering::RegionLowering;

protected:
  Halide::Expr reduce(ReduceOp) override { throw std::logic_error("a reduction where none can be"); }
};

/// What a read gives where `environment` has it: undefined where the tensor is read as it is stored.
using RowsMade = std::function<Halide::Expr(ReadOp read, const Environment &environment)>;

/// The same, where `rows` are made of some tensors that it reads (Rows.h).
class RowRegion : public PlainRegion {
public:
  RowRegion(StepLowering &kernel, Environment &environment, RowsMade rows)
      : PlainRegion(kernel, environment), rows(std::move(rows)) {}

protected:
  Halide::Expr stored(mlir::Value value) override {
    auto read = value.getDefiningOp<ReadOp>();
    return read ? rows(read, environment) : Halide::Expr();
  }

private:
  RowsMade rows;
};

/// An integer expression of `range`: 32 bits wide where that is enough.
Scalar integer(Halide::Expr expr, IntegerRange range);
/// A size as a number in a formula, with its range.
Scalar lowerSize(StepLowering &kernel, SizeAttr size);
/// A size as the extent of a dimension or loop: Int(32), for no dimension is longer than `longestDimension`.
Halide::Expr extent(StepLowering &kernel, SizeAttr size);
/// The last index of a dimension, 0 where it is empty: what subscripts are clamped to.
Halide::Expr lastIndex(StepLowering &kernel, SizeAttr size);

} // namespace attn::lowering

#endif // ATTN_LIB_HALIDE_REGION_H
