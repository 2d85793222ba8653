//===- Matrix.cpp - The matrix plan: what is computed ----------------------===//

#include "Matrix.h"
#include "Mathematics.h"
#include "Reduction.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::Var;

namespace attn::lowering {

/// Lowers the formula, and the terms of its sums: there what only columns change is read from a pack.
class MatrixRegion : public RegionLowering {
public:
  MatrixRegion(Matrix &matrix, Environment &environment, ReduceOp sum = {})
      : RegionLowering(matrix.kernel, environment), matrix(matrix), sum(sum) {}

protected:
  Expr reduce(ReduceOp op) override { return matrix.addSum(op); }
  Expr stored(mlir::Value value) override {
    return sum && isColumnFactor(value, sum, matrix.plan.row) ? matrix.pack(value, sum, environment) : Expr();
  }

private:
  Matrix &matrix;
  ReduceOp sum;
};

Matrix::Matrix(KernelLowering &kernel, const MatrixPlan &plan, DefinitionOpInterface op, std::vector<Var> vars)
    : kernel(kernel), plan(plan), op(op), vars(vars) {
  unsigned rank = vars.size();
  column = vars[0];
  row = vars[rank - 1 - plan.row];
  for (unsigned position = 1; position < rank; ++position)
    if (position != rank - 1 - plan.row)
      others.push_back(vars[position]);
}

void Matrix::bindIndices(Environment &environment) {
  for (unsigned position = 0; position < vars.size(); ++position)
    environment.bind(op.getBody().getArgument(position), vars[vars.size() - 1 - position]);
}

Expr Matrix::suits() {
  auto shape = mlir::cast<AttnTensorType>(op.getDefinedTensor().getType()).getShape();
  return extent(kernel, shape[plan.row]) >= static_cast<int>(plan.rows) && extent(kernel, shape.back()) >= columns();
}

Expr Matrix::define() {
  Environment environment;
  bindIndices(environment);
  Expr value = MatrixRegion(*this, environment).expression(yielded(op.getBody()));
  auto type = mlir::cast<AttnTensorType>(op.getDefinedTensor().getType());
  return convert(value, storageType(type.getElementType()));
}

Expr Matrix::addSum(ReduceOp reduce) {
  std::string base = op.getName().str() + "_sum";
  Sum sum;
  sum.part = Func(kernel.uniqueName(base + "_block"));
  sum.total = Func(kernel.uniqueName(base));
  std::vector<Var> elementVars = {column, row};
  elementVars.insert(elementVars.end(), others.begin(), others.end());
  std::vector<Expr> element(elementVars.begin(), elementVars.end());

  // Blocks of the last index, for each value of the others.
  llvm::SmallVector<Expr> counts;
  for (SizeAttr size : reduce.getSizes().getAsRange<SizeAttr>())
    counts.push_back(extent(kernel, size));
  int blockSize = plan.block;
  Halide::Region ranges = {{0, (counts.back() + blockSize - 1) / blockSize}};
  for (const Expr &count : llvm::reverse(llvm::ArrayRef(counts).drop_back()))
    ranges.push_back({0, count});
  RDom blocks(ranges), terms(0, blockSize);
  sum.blocks = blocks;

  Environment environment;
  bindIndices(environment);
  std::vector<Var> partVars = elementVars;
  std::vector<Expr> call = element;
  llvm::SmallVector<IndexBinding> at;
  for (int dimension = blocks.dimensions() - 1; dimension > 0; --dimension) {
    Var outer(kernel.uniqueName("r$"));
    partVars.push_back(outer);
    call.push_back(blocks[dimension]);
    at.push_back({outer, {outer}, false, {}});
  }
  Var block(kernel.uniqueName("block$"));
  partVars.push_back(block);
  call.push_back(blocks[0]);
  Expr index = block * blockSize + terms.x;
  terms.where(index < counts.back());
  sum.terms = terms;
  at.push_back({Halide::unsafe_promise_clamped(index, 0, Halide::max(counts.back(), 1) - 1), {}, false, terms.x});
  bindReduction(reduce, environment, at);
  MatrixRegion lowering(*this, environment, reduce);
  Expr term = atEachStep(ReduceKind::Sum, reductionTerm(reduce, lowering), terms.x);
  std::vector<Expr> partElement(partVars.begin(), partVars.end());
  sum.part(partVars) = constant(term.type(), 0);
  sum.part(partElement) += term;

  Halide::Type wide = Halide::Float(64);
  sum.total(elementVars) = constant(wide, 0);
  sum.total(element) += Halide::cast(wide, sum.part(call));
  Expr result = Halide::cast(term.type(), sum.total(element));
  sums.push_back(sum);
  return result;
}

Expr Matrix::pack(mlir::Value value, ReduceOp reduce, const Environment &environment) {
  IndexSet indices = dependence(value);
  auto columnIndex = op.getBody().getArguments().back();
  Environment inner;
  std::vector<Var> arguments = {column};
  std::vector<Expr> call = {column};
  // Reduction variables follow the column, the last first; then the other indices.
  for (mlir::BlockArgument argument : llvm::reverse(reduce.getBody().getArguments()))
    if (indices.contains(argument)) {
      Var var(kernel.uniqueName("r$"));
      inner.bind(argument, var);
      arguments.push_back(var);
      call.push_back(environment.indices.find(argument)->second.expr);
    }
  inner.bind(columnIndex, column);
  for (mlir::BlockArgument argument : inOrder(indices))
    if (argument.getOwner() != reduce.getBody().front().getArguments().front().getOwner() && argument != columnIndex) {
      Var var = environment.indices.find(argument)->second.vars[0];
      inner.bind(argument, var);
      arguments.push_back(var);
      call.push_back(var);
    }
  Pack pack;
  pack.value = value;
  pack.func = Func(kernel.uniqueName(op.getName().str() + "_panel"));
  pack.func(arguments) = MatrixRegion(*this, inner).expression(value);
  packs.push_back(pack);
  return pack.func(call);
}

} // namespace attn::lowering
