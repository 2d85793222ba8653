//===- RowSoftmax.cpp - Softmaxes, row by row ------------------------------===//
//
// The general form of an attention: scores of one row over all its keys, their maximum and
// sum, then what is made of them. Memory: one row of keys a thread. Any score, any mask, any
// use of the weights; the tiled form (Tile.h) is faster for the common ones.
//
//===----------------------------------------------------------------------===//

#include "Mathematics.h"
#include "Nest.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::Var;

namespace attn::lowering {

static std::vector<Expr> concat(std::vector<Expr> first, const std::vector<Expr> &second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Expr RowSoftmax::scoreAt(std::vector<Expr> keys) const {
  std::reverse(keys.begin(), keys.end());
  return score(concat(std::move(keys), rows));
}

Expr RowSoftmax::inPowersOfTwo(Expr score) const { return isNatural ? score * log2e(score.type()) : score; }

Expr RowSoftmax::exponential(std::vector<Expr> keys) const { return exponentialOf(scoreAt(std::move(keys))); }

Expr RowSoftmax::exponentialOf(Expr score) const { return exp2OfNonPositive(inPowersOfTwo(score - maximum(rows))); }

Expr RowSoftmax::weight(std::vector<Expr> keys) const {
  // What is masked has weight 0 in a row of NaN, too; a row whose sum is 0 has nothing else.
  Expr masked = scoreAt(keys) == -infinity(score.type());
  Expr value = exponential(std::move(keys));
  return Halide::select(masked, constant(value.type(), 0), value / sum(rows));
}

Expr RowSoftmax::logSumExp() const { return lowering::logSumExp(inPowersOfTwo(maximum(rows)), sum(rows)); }

namespace {
/// The keys of a row with lanes along the last index: whole vectors, then one by one what is left.
struct RowKeys {
  RowKeys(llvm::ArrayRef<Expr> counts, int width, Var lane)
      : vectors(domain(counts, counts.back() / width)), tail(domain(counts, counts.back() % width)),
        vectorKeys(keys(vectors, vectors[0] * width + lane)),
        tailKeys(keys(tail, counts.back() / width * width + tail[0])) {}

  RDom vectors, tail;
  std::vector<Expr> vectorKeys, tailKeys;

private:
  static RDom domain(llvm::ArrayRef<Expr> counts, Expr last) {
    Halide::Region ranges = {{0, last}};
    for (const Expr &count : llvm::reverse(counts.drop_back()))
      ranges.push_back({0, count});
    return RDom(ranges);
  }
  static std::vector<Expr> keys(const RDom &domain, Expr last) {
    std::vector<Expr> result;
    for (int dimension = domain.dimensions() - 1; dimension > 0; --dimension)
      result.push_back(domain[dimension]);
    result.push_back(last);
    return result;
  }
};
} // namespace

/// (Σ term, what the additions rounded away), for terms that are not negative: a step that loses something else doubles
/// the sum, so that all such steps together lose no more than the last one could.
static Func compensatedSum(const std::string &name, const std::vector<Var> &vars, Expr term) {
  Func sum(name);
  Expr zero = constant(term.type(), 0);
  std::vector<Expr> at(vars.begin(), vars.end());
  sum(vars) = Halide::Tuple(zero, zero);
  Expr before = sum(at)[0], after = before + term;
  sum(at) = Halide::Tuple(after, sum(at)[1] + ((before - after) + term));
  return sum;
}

void Nest::addMaximumAndSum(RowSoftmax &softmax, const std::string &base, llvm::ArrayRef<Expr> counts,
                            const std::vector<Var> &rowVars, Expr sink) {
  int width = kernel.plan.lanes;
  Var lane("lane$");
  RowKeys keys(counts, width, lane);
  std::vector<Expr> laneAt = concat({lane}, softmax.rows);
  std::vector<Var> laneVars = {lane};
  laneVars.insert(laneVars.end(), rowVars.begin(), rowVars.end());
  auto addRows = [&](Func func, Func partial) {
    Stage stage;
    stage.kind = Stage::Kind::Rows;
    stage.func = func;
    stage.partial = partial;
    stage.vars = rowVars;
    addStage(stage);
  };

  // NaN are left out (the sum finds them); at least the lowest float, so that −∞ minus the maximum is −∞.
  Halide::Type type = softmax.score.type();
  Expr start = lowest(type), first = sink.defined() ? larger(start, sink) : start;
  Func maximumLanes(kernel.uniqueName(base + "_maximum_lanes"));
  maximumLanes(laneVars) = start;
  maximumLanes(laneAt) = larger(maximumLanes(laneAt), softmax.scoreAt(keys.vectorKeys));
  softmax.maximum = Func(kernel.uniqueName(base + "_maximum"));
  std::vector<Expr> lanesValues;
  for (int index = 0; index < width; ++index)
    lanesValues.push_back(maximumLanes(concat({index}, softmax.rows)));
  softmax.maximum(rowVars) = larger(first, combineTree(ReduceKind::Max, lanesValues));
  softmax.maximum(softmax.rows) = larger(softmax.maximum(softmax.rows), softmax.scoreAt(keys.tailKeys));
  addRows(softmax.maximum, maximumLanes);

  Func sumLanes =
      compensatedSum(kernel.uniqueName(base + "_sum_lanes"), laneVars, softmax.exponential(keys.vectorKeys));
  Func sumTail = compensatedSum(kernel.uniqueName(base + "_sum_tail"), rowVars, softmax.exponential(keys.tailKeys));
  addRows(sumTail, Func());
  lanesValues.clear();
  for (int index = 0; index < width; ++index) {
    Halide::FuncRef value = sumLanes(concat({index}, softmax.rows));
    lanesValues.push_back(value[0] + value[1]);
  }
  Halide::FuncRef tail = sumTail(softmax.rows);
  Expr total = combineTree(ReduceKind::Sum, lanesValues) + (tail[0] + tail[1]);
  softmax.sum = Func(kernel.uniqueName(base + "_sum"));
  softmax.sum(rowVars) = sink.defined() ? softmax.exponentialOf(sink) + total : total;
  addRows(softmax.sum, sumLanes);
}

RowSoftmax Nest::addSoftmax(llvm::StringRef base, mlir::Region &scoreRegion, mlir::Region *mask, mlir::Value sink,
                            llvm::ArrayRef<SizeAttr> sizes, const Environment &rows, mlir::Value storedScore) {
  // The rows are the variables that score, mask and sink depend on, but for the keys.
  IndexSet indices = freeIndices(scoreRegion);
  if (mask)
    for (mlir::BlockArgument index : freeIndices(*mask))
      indices.insert(index);
  if (sink)
    for (mlir::BlockArgument index : dependence(sink))
      indices.insert(index);
  // A graph op's rows are arguments of the region itself: all but the last ones, the keys.
  for (mlir::BlockArgument argument : scoreRegion.getArguments().drop_back(sizes.size()))
    indices.insert(argument);
  std::vector<Var> found;
  for (mlir::Value index : indices) {
    const IndexBinding &binding = rows.indices.find(index)->second;
    found.insert(found.end(), binding.vars.begin(), binding.vars.end());
  }
  std::vector<Var> rowVars = ordered(found, -1);

  RowSoftmax softmax;
  softmax.rows.assign(rowVars.begin(), rowVars.end());
  std::vector<Var> keys, arguments;
  for (size_t position = 0; position < sizes.size(); ++position)
    keys.push_back(Var(kernel.uniqueName("key$")));
  arguments.assign(keys.rbegin(), keys.rend()); // the last index runs fastest
  arguments.insert(arguments.end(), rowVars.begin(), rowVars.end());

  Stage stage;
  stage.kind = Stage::Kind::Row;
  stage.vars = arguments;
  stage.func = softmax.score = Func(kernel.uniqueName(base.str() + "_score"));
  // What is stored already is read from there each time.
  int self = storedScore ? -1 : addStage(stage);

  Environment environment;
  environment.indices = rows.indices;
  for (mlir::Region *region : {&scoreRegion, mask})
    if (region)
      for (size_t position = 0; position < sizes.size(); ++position)
        environment.bind(region->getArguments().take_back(sizes.size())[position], keys[position]);
  // In graph ops the mask's rows are arguments of its own.
  if (mask)
    for (auto [own, theirs] :
         llvm::zip(mask->getArguments().drop_back(sizes.size()), scoreRegion.getArguments().drop_back(sizes.size())))
      environment.indices[own] = environment.indices[theirs];
  StageLowering lowering(*this, environment, self);
  Expr value;
  if (storedScore) {
    std::vector<Expr> at;
    for (mlir::BlockArgument index : scoreRegion.getArguments())
      at.push_back(environment.indices[index].expr);
    value = kernel.element(storedScore, at);
  } else {
    value = lowering.expression(yielded(scoreRegion));
  }
  // Scores are multiplied by log2(e) once, as they are computed. Those that are read each time stay as they are: the
  // product would be rounded where it is compared, and not where the maximum is subtracted from it.
  Halide::Type type = value.type();
  softmax.isNatural = static_cast<bool>(storedScore);
  auto scaled = [&](Expr natural) { return softmax.isNatural ? natural : natural * log2e(type); };
  value = scaled(value);
  if (mask)
    value = Halide::select(lowering.expression(yielded(*mask)), value, -infinity(type));
  softmax.score(arguments) = value;

  llvm::SmallVector<Expr> counts;
  for (SizeAttr size : sizes)
    counts.push_back(extent(kernel, size));
  addMaximumAndSum(softmax, base.str(), counts, rowVars, sink ? scaled(lowering.expression(sink)) : Expr());
  return softmax;
}

/// One element of a tensor, where lowering needs a value to start from: the sink's formula at the rows.
RowSoftmax Nest::addSoftmax(SoftmaxOp op, llvm::ArrayRef<IndexBinding> rows, mlir::Value storedScore) {
  mlir::Region &score = bodyOf(op.getScore());
  mlir::Region *mask = op.getMask() ? &bodyOf(op.getMask()) : nullptr;
  Environment environment;
  for (auto [argument, binding] : llvm::zip_equal(score.getArguments().drop_back(), rows))
    environment.indices[argument] = binding;
  mlir::Value sink;
  if (op.getSink()) {
    mlir::Region &region = bodyOf(op.getSink());
    for (auto [argument, binding] : llvm::zip_equal(region.getArguments(), rows))
      environment.indices[argument] = binding;
    sink = yielded(region);
  }
  std::string base = !op.getName().empty() ? op.getName().str() : name;
  SizeAttr key = op.getScore().getType().getShape().back();
  return addSoftmax(base, score, mask, sink, key, environment, storedScore);
}

void Nest::defineWeight(SoftmaxOp op) {
  llvm::SmallVector<IndexBinding> rows;
  for (const Var &var : llvm::reverse(llvm::ArrayRef(vars).drop_front()))
    rows.push_back({var, {var}, false, {}});
  RowSoftmax softmax = addSoftmax(op, rows, kernel.plan.storesScores(op) ? op.getScore() : mlir::Value());
  func(vars) = convert(softmax.weight({vars[0]}), kernel.typeInMemory(op.getWeight()));
}

void Nest::defineLogSumExp(SoftmaxOp op) {
  llvm::SmallVector<IndexBinding> rows;
  for (const Var &var : llvm::reverse(vars))
    rows.push_back({var, {var}, false, {}});
  lanes = false;
  RowSoftmax softmax = addSoftmax(op, rows);
  func(vars) = convert(softmax.logSumExp(), kernel.typeInMemory(op.getLogsumexp()));
}

} // namespace attn::lowering
