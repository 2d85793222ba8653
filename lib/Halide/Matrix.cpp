//===- Matrix.cpp - The matrix plan: what is computed ----------------------===//

#include "Matrix.h"
#include "Fetch.h"
#include "Mathematics.h"
#include "Reduction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::Var;

namespace attn::lowering {

/// `value` where `condition` is true, else 0, by its bits: of what a select chooses, Halide computes only what is
/// chosen, which would be no whole tile.
static Expr keptWhere(Expr condition, Expr value) {
  Halide::Type bits = Halide::UInt(value.type().bits());
  Expr kept = Halide::select(condition, bits.max(), Halide::cast(bits, 0));
  return Halide::reinterpret(value.type(), Halide::reinterpret(bits, value) & kept);
}

/// Lowers the formula, and the terms of its sums: there what only columns change is read from a pack.
class MatrixRegion : public RegionLowering {
public:
  MatrixRegion(Matrix &matrix, Environment &environment, ReduceOp sum = {})
      : RegionLowering(matrix.kernel, environment), matrix(matrix), sum(sum) {}

protected:
  Expr reduce(ReduceOp op) override { return matrix.addSum(op); }
  Expr stored(mlir::Value value) override {
    if (sum && matrix.isPacked(value, sum))
      return matrix.pack(value, sum, environment);
    if (sum && matrix.plan.packsRows && isApartRowFactor(value, sum, matrix.plan.row))
      return matrix.packRows(value, sum, environment);
    if (auto choice = value.getDefiningOp<mlir::arith::SelectOp>(); choice && choosesZero(choice))
      return keptWhere(expression(choice.getCondition()), expression(choice.getTrueValue()));
    return {};
  }

private:
  Matrix &matrix;
  ReduceOp sum;
};

Matrix::Matrix(StepLowering &kernel, const MatrixPlan &plan, DefinitionOpInterface op)
    : func(kernel.uniqueName(op.getName())), kernel(kernel), plan(plan), op(op), oneBlock(isShort()),
      groupTiles(static_cast<int>(plan.tiles)) {
  vars = loopsAlong(op.getIndices());
  unsigned rank = vars.size();
  column = vars[0];
  row = vars[rank - 1 - plan.row];
  if (plan.second)
    second = vars[rank - 1 - *plan.second];
  placed = PlacedSum::of(op);
  for (unsigned position = 1; position < rank; ++position)
    if (position != rank - 1 - plan.row && !(plan.second && position == rank - 1 - *plan.second) &&
        !(placed && placed->isPlace(rank - 1 - position)))
      others.push_back(vars[position]);
  if (!placed)
    return;
  Halide::Region ranges;
  for (unsigned position : placed->deciding()) {
    mlir::BlockArgument index = placed->sum.getBody().getArgument(position);
    auto [first, count] = kernel.values(index);
    ranges.push_back({first, count});
    deciding.insert({position, Var(kernel.uniqueName(indexName(index).str() + "_"))});
  }
  decidingLoops = RDom(ranges);
}

void Matrix::bindIndices(Environment &environment) {
  for (auto [index, var] : llvm::zip_equal(op.getBody().getArguments(), llvm::reverse(vars)))
    environment.indices[index] = kernel.storedIndex(index, var);
}

bool Matrix::isPacked(mlir::Value value, ReduceOp sum) const {
  return isColumnFactor(value, sum, plan.row) || (plan.second && isColumnFactor(value, sum, *plan.second));
}

bool Matrix::isShort() {
  Expr result = Halide::Internal::const_true();
  op.walk([&](ReduceOp sum) {
    result = result && sum.getSizes().size() == 1 && extent(kernel, sum.getSize(0)) <= static_cast<int>(plan.block);
  });
  return Halide::Internal::is_const_one(Halide::Internal::simplify(result));
}

void Matrix::definePlaced() {
  Environment environment, ofPlaces;
  bindIndices(environment);
  bindIndices(ofPlaces);
  for (auto [dimension, position] : llvm::enumerate(placed->deciding())) {
    Halide::RVar loop = decidingLoops[dimension];
    ofPlaces.indices[placed->sum.getWhere().getArgument(position)] = {loop, {}, false, loop};
  }
  std::vector<Expr> element(vars.begin(), vars.end());
  for (auto [position, value] : placed->places)
    element[vars.size() - 1 - position] = placeOf(value, op.getBody().getArgument(position), kernel, ofPlaces);
  Halide::Type type = kernel.typeInMemory(op.getDefinedTensor());
  func(vars) = Halide::undef(type);
  func(element) += convert(MatrixRegion(*this, environment).expression(yielded(op.getBody())), type);
}

void Matrix::define() {
  if (placed)
    return definePlaced();
  Environment environment;
  bindIndices(environment);
  Expr value = MatrixRegion(*this, environment).expression(yielded(op.getBody()));
  value = kernel.withEarlierBlocks(value, op.getDefinedTensor(), {vars.begin(), vars.end()});
  func(vars) = convert(value, kernel.typeInMemory(op.getDefinedTensor()));
}

Expr Matrix::outputBefore() {
  std::vector<Expr> element;
  for (unsigned position = 0; position < vars.size(); ++position) {
    auto [first, count] = kernel.storedValues(op.getBody().getArgument(vars.size() - 1 - position));
    element.push_back(Halide::unsafe_promise_clamped(vars[position], first, first + Halide::max(count, 1) - 1));
  }
  return kernel.before(op.getDefinedTensor(), element);
}

Expr Matrix::addSum(ReduceOp reduce) {
  std::string base = op.getName().str() + "_sum";
  Sum sum;
  sum.chain = Func(kernel.uniqueName(base + "_chain"));
  sum.block = Func(kernel.uniqueName(base + "_block"));
  std::vector<Var> elementVars = {column, row};
  if (second)
    elementVars.push_back(*second);
  elementVars.insert(elementVars.end(), others.begin(), others.end());
  std::vector<Expr> element(elementVars.begin(), elementVars.end()), read = element;
  for (auto [dimension, index] : llvm::enumerate(deciding)) {
    elementVars.push_back(index.second);
    element.push_back(index.second);
    read.push_back(decidingLoops[dimension]);
  }

  // Blocks of the last index, for each value of the others.
  llvm::SmallVector<IndexValues> values;
  for (mlir::BlockArgument index : reduce.getBody().getArguments())
    if (!deciding.count(index.getArgNumber()))
      values.push_back(kernel.values(index));
  Expr start = values.back().first, count = values.back().count;
  int chainSize = plan.chain, blockSize = plan.block;
  Halide::Region ranges = {{0, (count + blockSize - 1) / blockSize}};
  for (const IndexValues &outer : llvm::reverse(llvm::ArrayRef(values).drop_back()))
    ranges.push_back({outer.first, outer.count});
  sum.blocks = RDom(ranges);
  sum.groups = RDom(0, blockSize / chainSize);
  sum.terms = RDom(0, chainSize);

  // The last tile's surplus rows repeat the last row.
  Environment environment;
  bindIndices(environment);
  environment.indices[op.getBody().getArgument(plan.row)].padded = true;
  if (second)
    environment.indices[op.getBody().getArgument(*plan.second)].padded = true;
  std::vector<Var> chainVars = elementVars;
  llvm::SmallVector<IndexBinding> at;
  for (int dimension = sum.blocks.dimensions() - 1; dimension > 0; --dimension) {
    Var outer(kernel.uniqueName("r$"));
    chainVars.push_back(outer);
    at.push_back({outer, {outer}, false, {}});
  }
  Var block(kernel.uniqueName("block$")), group(kernel.uniqueName("group$"));
  chainVars.push_back(block);
  std::vector<Var> blockVars = chainVars;
  chainVars.push_back(group);
  Expr first = block * blockSize, index = first + group * chainSize + sum.terms.x;
  sum.terms.where(index < count);
  Expr inside = Halide::unsafe_promise_clamped(start + index, start, start + Halide::max(count, 1) - 1);
  at.push_back({inside, {}, false, sum.terms.x});
  for (auto &[position, var] : deciding)
    at.insert(at.begin() + position, {var, {var}, false, {}});
  bindReduction(reduce, environment, at);
  MatrixRegion lowering(*this, environment, reduce);
  Expr term = atEachStep(ReduceKind::Sum, reductionTerm(reduce, lowering, !placed), sum.terms.x);
  Expr zero = constant(term.type(), 0);
  std::vector<Expr> chainAt(chainVars.begin(), chainVars.end());
  sum.chain(chainVars) = zero;
  sum.chain(chainAt) += term;

  sum.groups.where(first + sum.groups.x * chainSize < count);
  std::vector<Expr> blockAt(blockVars.begin(), blockVars.end());
  chainAt.back() = sum.groups.x;
  // The tile is stored in rows far apart: they are fetched with the first sum, before the last one needs them.
  bool isFirst = sums.empty() && !placed;
  sum.block(blockVars) = isFirst ? fetchingAhead(zero, outputBefore()) : zero;
  sum.block(blockAt) += sum.chain(chainAt);

  Expr result;
  if (oneBlock) {
    blockAt.back() = 0;
    result = sum.block(blockAt);
  } else {
    sum.total = Func(kernel.uniqueName(base));
    std::vector<Expr> call = element;
    for (int dimension = sum.blocks.dimensions() - 1; dimension >= 0; --dimension)
      call.push_back(sum.blocks[dimension]);
    // What blocks add is rounded for each block anyway.
    Halide::Type wide = kernel.isInBlocks() ? term.type() : Halide::Float(64);
    sum.total(elementVars) = constant(wide, 0);
    sum.total(element) += Halide::cast(wide, sum.block(call));
    result = Halide::cast(term.type(), sum.total(read));
  }
  sums.push_back(sum);
  return result;
}

/// What a pack is made of: its arguments, what they are where a term reads it, and how they bind indices.
struct Matrix::PackForm {
  std::vector<Var> arguments;
  std::vector<Expr> call;
  Environment indices;

  void add(const Var &argument, Expr value) {
    arguments.push_back(argument);
    call.push_back(std::move(value));
  }
};

void Matrix::addTerms(PackForm &form, const IndexSet &indices, ReduceOp reduce, const Environment &environment) {
  for (mlir::BlockArgument argument : llvm::reverse(reduce.getBody().getArguments()))
    if (indices.contains(argument)) {
      Var var(kernel.uniqueName("r$"));
      form.indices.bind(argument, var);
      form.add(var, environment.indices.find(argument)->second.expr);
    }
}

Func Matrix::definePack(PackForm &form, const char *suffix, mlir::Value value, mlir::BlockArgument along,
                        const Var &var, Expr at, ReduceOp reduce, const Environment &environment) {
  // What the last pack has too much is not read: the condition is on the loop, so that the others are read as they lie.
  auto [start, count] = kernel.storedValues(along);
  Expr first = kernel.values(along).first, stored = kernel.storedIndex(along, var).expr - var + at;
  RDom once(0, 1);
  once.where(Halide::likely(at < start + count));
  Expr inside = Halide::unsafe_promise_clamped(Halide::Internal::simplify(stored) + once.x, first,
                                               first + Halide::max(count, 1) - 1);
  form.indices.indices[along] = {inside, {var}, false, {}};
  for (mlir::BlockArgument argument : inOrder(dependence(value)))
    if (argument.getOwner() != &reduce.getBody().front() && argument != along) {
      const IndexBinding &binding = environment.indices.find(argument)->second;
      form.indices.indices[argument] = binding;
      form.add(binding.vars[0], binding.vars[0]);
    }
  Func pack(kernel.uniqueName(op.getName().str() + suffix));
  std::vector<Expr> element(form.arguments.begin(), form.arguments.end());
  Expr packed = MatrixRegion(*this, form.indices).expression(value);
  pack(form.arguments) = Halide::undef(packed.type());
  pack(element) = packed;
  return pack;
}

Expr Matrix::pack(mlir::Value value, ReduceOp reduce, const Environment &environment) {
  IndexSet indices = dependence(value);
  PackForm form;
  form.add(column, column);
  addTerms(form, indices, reduce, environment);
  Func pack =
      definePack(form, "_panel", value, op.getBody().getArguments().back(), column, column, reduce, environment);
  packs.push_back({pack, plan.second && indices.contains(op.getBody().getArgument(*plan.second))});
  return pack(form.call);
}

Expr Matrix::packRows(mlir::Value value, ReduceOp reduce, const Environment &environment) {
  int rows = plan.rows;
  Var inTile(kernel.uniqueName("in_tile$")), tile(kernel.uniqueName("tile$"));
  PackForm form;
  form.add(inTile, row % rows);
  addTerms(form, dependence(value), reduce, environment);
  form.add(tile, row / rows);
  Func pack = definePack(form, "_rows", value, op.getBody().getArgument(plan.row), inTile, tile * rows + inTile, reduce,
                         environment);
  // A group's packs have a megabyte at most, unless one tile's have more.
  Expr tiles = (1 << 20) / static_cast<int>(sizeof(float)) / rows;
  for (mlir::BlockArgument index : reduce.getBody().getArguments())
    tiles /= Halide::max(kernel.values(index).count, 1);
  groupTiles = kernel.derivedSize("group_tiles", Halide::min(tiles, groupTiles), 1);
  rowPacks.push_back({pack, inTile, tile});
  return pack(form.call);
}

} // namespace attn::lowering
