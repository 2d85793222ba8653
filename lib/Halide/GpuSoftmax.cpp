//===- GpuSoftmax.cpp - Softmaxes on a GPU, two numbers a row ---------------===//
//
// Scores are computed wherever they are read, in powers of two: weight(n) = 2^(score(n) − maximum) / sum. Masked ones
// are −inf; the maximum is at least the lowest finite float, so that a row with nothing left has sum 0.
//
//===----------------------------------------------------------------------===//

#include "GpuNest.h"
#include "Mathematics.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::Var;

namespace attn::lowering {

Expr GpuSoftmax::logSumExp() const {
  Expr total = sum();
  Halide::Type type = total.type();
  Expr value = maximum() * constant(type, 0.693147180559945309417) + lowering::log(total);
  return Halide::select(total == 0.0f, -infinity(type), value);
}

Expr GpuNest::exponential(const GpuSoftmax &softmax, Expr score) {
  return exp2OfNonPositive(score - softmax.maximum());
}

Expr GpuNest::weight(const GpuSoftmax &softmax, Expr score) {
  // What is masked has weight 0 in a row of NaN, too; a row whose sum is 0 has nothing else.
  Expr value = exponential(softmax, score) / softmax.sum();
  return Halide::select(score == -infinity(score.type()), constant(score.type(), 0), value);
}

Expr GpuNest::scoreAt(const GpuSoftmax &softmax, const Environment &rows, llvm::ArrayRef<IndexBinding> keys,
                      int consumer) {
  Environment environment;
  environment.indices = rows.indices;
  for (mlir::Region *region : {softmax.score, softmax.mask}) {
    if (!region)
      continue;
    // The rows of a graph op's regions are arguments of each; those of a nested softmax are bound already.
    for (auto [own, theirs] : llvm::zip(region->getArguments().drop_back(softmax.keys),
                                        softmax.score->getArguments().drop_back(softmax.keys)))
      environment.indices[own] = rows.indices.find(theirs)->second;
    for (auto [argument, key] : llvm::zip_equal(region->getArguments().take_back(softmax.keys), keys))
      environment.indices[argument] = key;
  }
  GpuRegion lowering(*this, environment, consumer);
  Expr value = lowering.expression(yielded(*softmax.score));
  value = value * log2e(value.type());
  if (!softmax.mask)
    return value;
  return Halide::select(lowering.expression(yielded(*softmax.mask)), value, -infinity(value.type()));
}

void GpuNest::addStatistics(GpuSoftmax &softmax, const std::string &base, const Environment &rows, const Var &row,
                            llvm::ArrayRef<SizeAttr> sizes, mlir::Value sink) {
  softmax.statistics = Func(kernel.uniqueName(base + "_rows"));
  Func maximum(kernel.uniqueName(base + "_maximum")), sum(kernel.uniqueName(base + "_sum"));
  int launched = addStage({softmax.statistics, {row}, -1, {}});
  Halide::Region ranges;
  for (SizeAttr size : llvm::reverse(sizes)) // the last index runs fastest
    ranges.push_back({0, extent(kernel, size)});
  auto scoreIn = [&](const RDom &domain, Func func) {
    int self = addStage({func, {row}, launched, {}});
    return atEachStep(ReduceKind::Max, scoreAt(softmax, rows, loopBindings(domain, softmax.keys), self), domain[0]);
  };

  // NaN are left out (the sum finds them); at least the lowest float, so that −∞ minus the maximum is −∞.
  RDom maximumKeys(ranges), sumKeys(ranges);
  Expr score = scoreIn(maximumKeys, maximum);
  Halide::Type type = score.type();
  Expr sinkScore;
  if (sink) {
    Environment environment;
    environment.indices = rows.indices;
    sinkScore = GpuRegion(*this, environment, launched).expression(sink) * log2e(type);
  }
  maximum(row) = sink ? larger(lowest(type), sinkScore) : lowest(type);
  maximum(row) = larger(maximum(row), score);

  Halide::Type wide = Halide::Float(64);
  Expr largest = maximum(row);
  Expr start = sink ? exp2OfNonPositive(sinkScore - largest) : constant(type, 0);
  sum(row) = Halide::cast(wide, start);
  sum(row) += Halide::cast(wide, exp2OfNonPositive(scoreIn(sumKeys, sum) - largest));
  softmax.statistics(row) = Halide::Tuple(largest, Halide::cast(type, sum(row)));
}

GpuSoftmax GpuNest::addSoftmax(SoftmaxOp op, llvm::ArrayRef<IndexBinding> rows) {
  GpuSoftmax softmax;
  softmax.score = &bodyOf(op.getScore());
  softmax.mask = op.getMask() ? &bodyOf(op.getMask()) : nullptr;
  mlir::Region *sink = op.getSink() ? &bodyOf(op.getSink()) : nullptr;
  Var row(kernel.uniqueName("row$"));
  llvm::ArrayRef<SizeAttr> sizes = op.getScore().getType().getShape();
  llvm::SmallVector<IndexBinding> own = indicesOf(row, allValues(sizes.drop_back()));
  llvm::SmallVector<Expr> at;
  Environment environment;
  for (auto [position, binding] : llvm::enumerate(rows)) {
    at.push_back(binding.expr);
    for (mlir::Region *region : {softmax.score, sink})
      if (region)
        environment.indices[region->getArgument(position)] = own[position];
  }
  softmax.row = numberOf(at, sizes.drop_back());
  std::string base = !op.getName().empty() ? op.getName().str() : name;
  addStatistics(softmax, base, environment, row, sizes.back(), sink ? yielded(*sink) : mlir::Value());
  return softmax;
}

Expr GpuNest::addNestedSoftmax(ReduceOp op, Environment &outer, int consumer) {
  GpuSoftmax softmax;
  softmax.score = &op.getBody();
  softmax.mask = op.isConditional() ? &op.getWhere() : nullptr;
  softmax.keys = op.getSizes().size();
  // The rows are the variables that score, mask and sink depend on, but for the keys.
  IndexSet found = freeIndices(op.getBody());
  if (softmax.mask)
    for (mlir::BlockArgument index : freeIndices(*softmax.mask))
      found.insert(index);
  if (op.getSink())
    for (mlir::BlockArgument index : dependence(op.getSink()))
      found.insert(index);
  Var row(kernel.uniqueName("row$"));
  llvm::SmallVector<SizeAttr> rowSizes, keySizes(op.getSizes().getAsRange<SizeAttr>());
  llvm::SmallVector<Expr> at;
  for (mlir::BlockArgument index : found) {
    const IndexBinding &binding = outer.indices.find(index)->second;
    rowSizes.push_back(indexSize(index));
    at.push_back(Halide::clamp(binding.expr, 0, lastIndex(kernel, rowSizes.back())));
  }
  Environment environment;
  for (auto [index, binding] : llvm::zip_equal(found, indicesOf(row, allValues(rowSizes))))
    environment.indices[index] = binding;
  softmax.row = numberOf(at, rowSizes);
  addStatistics(softmax, name + "_softmax", environment, row, keySizes, op.getSink());
  if (op.getKind() == ReduceKind::LogSumExp)
    return softmax.logSumExp();
  llvm::SmallVector<IndexBinding> keys;
  GpuRegion lowering(*this, outer, consumer);
  for (auto [key, size] : llvm::zip_equal(op.getAt(), keySizes)) {
    Expr index = Halide::cast<int32_t>(lowering.expression(key));
    keys.push_back({Halide::clamp(index, 0, lastIndex(kernel, size)), {}, false, {}});
    for (mlir::Value other : dependence(key)) {
      const IndexBinding &binding = outer.indices.find(other)->second;
      llvm::append_range(keys.back().vars, binding.vars);
      if (binding.loop)
        keys.back().loop = binding.loop;
    }
  }
  return weight(softmax, scoreAt(softmax, outer, keys, consumer));
}

} // namespace attn::lowering
