//===- GpuTile.cpp - A weighted sum on a GPU: what a block computes ---------===//

#include "GpuTile.h"
#include "GpuMemory.h"
#include "Mathematics.h"
#include "attn/Analysis/Fusion.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

GpuTile::GpuTile(StepLowering &kernel, WeightedSumOp op, PlanKind kind)
    : func(kernel.uniqueName(op.getName())), kernel(kernel), isSplit(kind == PlanKind::Split),
      plan(isSplit ? kernel.plan.gpu->split : kernel.plan.gpu->tiled), op(op), read(softmaxWeight(op)),
      softmax(softmaxOf(op)),
      type(kernel.plan.gpu->isDouble ? Halide::Float(64) : computeType(op.getResult().getType().getElementType())),
      keyCount(extent(kernel, op.getKeySize())) {
  findRows(isSplit ? sharedKeys(op) : llvm::SmallVector<SharedKeys>{{op.getBody().getArgument(op.getQuery())}});
  outer = {block};
  if (!isSplit)
    return;
  outer = {part, block};
  const GpuPlan &gpu = *kernel.plan.gpu;
  Expr mostParts = Halide::max(ceilDivide(keyCount, plan.chunk) / gpu.partChunks, 1);
  parts = Halide::clamp(ceilDivide(gpu.splitBlocks, blocks), 1, mostParts);
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

/// A block's number is that of an element of (others…, tiles of rows, tiles of columns) in row-major order.
void GpuTile::findRows(llvm::ArrayRef<SharedKeys> shared) {
  llvm::ArrayRef<SizeAttr> shape = op.getResult().getType().getShape();
  unsigned last = shape.size() - 1;
  Expr rest = block, rowCount = 1;
  blocks = 1;
  auto sizeOf = [&](unsigned position) { return atLeastOne(extent(kernel, shape[position])); };
  auto take = [&](Expr count) {
    Expr index = rest % count;
    rest = rest / count;
    blocks = blocks * count;
    return index;
  };
  for (const SharedKeys &index : shared) {
    rows.push_back({index, index.group ? atLeastOne(extent(kernel, index.group)) : sizeOf(index.position()), 0, {}});
    rowCount = rowCount * rows.back().count;
  }
  column = take(ceilDivide(sizeOf(last), plan.columns)) * plan.columns + e;
  Expr row = take(ceilDivide(rowCount, plan.rows)) * plan.rows + q;
  // Likely ones: of two conditions with the same bound Halide makes one of the larger number, and finds no bounds in
  // it.
  exists = {column < sizeOf(last), Halide::likely(row < rowCount)};
  indices.resize(shape.size());
  for (RowIndex &index : llvm::reverse(rows)) {
    bool isFirst = &index == &rows.front();
    index.offset = isFirst ? row : row % index.count;
    row = row / index.count;
  }
  for (unsigned position = last; position-- > 0;) {
    Expr size = sizeOf(position);
    auto own = llvm::find_if(rows, [&](const RowIndex &row) { return row.shared.position() == position; });
    if (own == rows.end()) {
      indices[position] = take(size);
      continue;
    }
    if (own->shared.group) {
      own->base = take(ceilDivide(size, own->count)) * own->count;
      exists.push_back(Halide::likely(own->base + own->offset < size));
    }
    indices[position] = Halide::clamp(own->base + own->offset, 0, lastIndex(kernel, shape[position]));
  }
  indices[last] = Halide::clamp(column, 0, lastIndex(kernel, shape[last]));
}

std::vector<Var> GpuTile::withOuter(std::vector<Var> first) const {
  first.insert(first.end(), outer.begin(), outer.end());
  return first;
}

std::vector<Expr> GpuTile::atOuter(std::vector<Expr> first) const {
  first.insert(first.end(), outer.begin(), outer.end());
  return first;
}

Expr GpuTile::keyAt(const Expr &key) const {
  Expr first = isSplit ? Halide::cast<int>(range(part, block)[0]) : Expr(0);
  return (first + chunk) * plan.chunk + key;
}

Environment GpuTile::bind(const Expr &key, bool forAllRows) {
  Environment environment;
  unsigned last = indices.size() - 1;
  for (mlir::Region &region : op->getRegions()) {
    if (region.empty())
      continue;
    for (auto [position, index] : llvm::enumerate(indices))
      environment.indices[region.getArgument(position)] = {
          index, position == last ? std::vector<Var>{e, block} : std::vector<Var>{block}, false, {}};
    for (auto [number, row] : llvm::enumerate(rows)) {
      mlir::BlockArgument argument = region.getArgument(row.shared.position());
      isRow[argument] = number;
      if (forAllRows)
        environment.indices[argument].expr = row.base;
      else
        environment.indices[argument].vars.push_back(q);
    }
    if (key.defined())
      environment.indices[region.getArguments().back()] = {
          Halide::clamp(keyAt(key), 0, lastIndex(kernel, op.getKeySize())), withOuter({k, chunk}), false, {}};
  }
  if (!softmax)
    return environment;
  for (mlir::Value tensor : {softmax.getScore(), softmax.getMask(), softmax.getSink()})
    if (tensor)
      for (auto [argument, subscript] : llvm::zip(bodyOf(tensor).getArguments(), read.getSubscripts())) {
        IndexBinding binding = environment.indices[subscript];
        environment.indices[argument] = binding;
        if (auto row = isRow.find(subscript); row != isRow.end())
          isRow[argument] = unsigned(row->second);
      }
  return environment;
}

Expr GpuTile::inSharedMemory(const Expr &value) const {
  return Halide::cast(value.type().with_bits(type.bits()), value);
}

//===----------------------------------------------------------------------===//
// Rows × keys
//===----------------------------------------------------------------------===//

Expr GpuTile::addSum(Pairs &stage, ReduceOp reduce, Environment &environment) {
  if (canStage(reduce, environment))
    return addProduct(stage, reduce, environment);
  std::vector<Var> vars;
  for (const Var &var : withOuter({q, k, chunk}))
    if (environment.changesWith(reduce.getResult(), var))
      vars.push_back(var);
  Environment inner;
  inner.indices = environment.indices;
  RDom domain = loopOver(reversedSizes(kernel, reduce));
  bindReduction(reduce, inner, loopBindings(domain, domain.dimensions()));
  if (hasReductionAround(reduce))
    anyInSlice(yielded(reduce.getBody()), [&](mlir::Operation *op) {
      if (mlir::isa<ReduceOp>(op))
        inner.replace(op->getResult(0), GpuTileRegion(*this, environment, stage).expression(op->getResult(0)));
      return false;
    });
  PlainRegion lowering(kernel, inner);
  Expr value = atEachStep(reduce.getKind(), reductionTerm(reduce, lowering), domain[0]);
  Func result(kernel.uniqueName(func.name() + "_product"));
  std::vector<Expr> at(vars.begin(), vars.end());
  result(vars) = identity(reduce.getKind(), value.type());
  result(at) = combine(reduce.getKind(), result(at), value);
  stage.sums.push_back({result, vars});
  return result(at);
}

void GpuTile::definePairs(Pairs &stage, const std::string &name,
                          llvm::function_ref<Expr(RegionLowering &, Environment &)> value) {
  stage.func = Func(kernel.uniqueName(func.name() + name));
  Environment environment = bind(k);
  GpuTileRegion lowering(*this, environment, stage);
  stage.func(withOuter({q, k, chunk})) = value(lowering, environment);
}

Func GpuTile::defineRow(const char *name, Expr start, const Func &ofPairs, llvm::function_ref<Expr(Expr, Expr)> after) {
  int keysEach = plan.chunk / GpuTilePlan::rowParts;
  RDom keys(0, keysEach), all(0, GpuTilePlan::rowParts);
  RowNumber row;
  row.ofPart = Func(kernel.uniqueName(func.name() + name + "_of_part"));
  row.ofPart(withOuter({q, k, chunk})) = start;
  row.ofPart(atOuter({q, k, chunk})) =
      after(row.ofPart(atOuter({q, k, chunk})), ofPairs(atOuter({q, k * keysEach + keys.x, chunk})));
  row.func = Func(kernel.uniqueName(func.name() + name));
  row.func(withOuter({q, chunk})) = start;
  row.func(atOuter({q, chunk})) = after(row.func(atOuter({q, chunk})), row.ofPart(atOuter({q, all.x, chunk})));
  rowNumbers.push_back(row);
  return row.func;
}

void GpuTile::defineWeights(mlir::Region *mask, mlir::Region *condition) {
  Expr isKey = keyAt(k) < keyCount;
  if (softmax) {
    definePairs(pairs.emplace_back(), "_score", [&](RegionLowering &lowering, Environment &) {
      Expr value = inSharedMemory(lowering.expression(yielded(bodyOf(softmax.getScore())))) * log2e(type);
      Expr kept = mask ? isKey && lowering.expression(yielded(*mask)) : isKey;
      return select(kept, value, -infinity(type));
    });
    Func score = pairs.back().func;
    maximum = defineRow("_maximum", lowest(type), score, larger);
    definePairs(pairs.emplace_back(), "_exponential", [&](RegionLowering &, Environment &) {
      return exp2OfNonPositive(score(atOuter({q, k, chunk})) - maximum(atOuter({q, chunk})));
    });
    weights = pairs.back().func;
    sum = defineRow("_sum", constant(type, 0), weights, [](Expr before, Expr next) { return before + next; });
    if (!condition && yielded(op.getBody(), 0) == read.getResult())
      return;
  }
  Func ofSoftmax = weights;
  definePairs(pairs.emplace_back(), "_weight", [&](RegionLowering &lowering, Environment &environment) {
    if (softmax)
      environment.replace(read.getResult(), ofSoftmax(atOuter({q, k, chunk})));
    Expr value = inSharedMemory(lowering.expression(yielded(op.getBody(), 0)));
    Expr kept = condition ? isKey && lowering.expression(yielded(*condition)) : isKey;
    return select(kept, value, constant(type, 0));
  });
  weights = pairs.back().func;
}

//===----------------------------------------------------------------------===//
// All of it
//===----------------------------------------------------------------------===//

void GpuTile::define() {
  mlir::Region *condition = op.getWhere().empty() ? nullptr : &op.getWhere();
  mlir::Region *mask = softmax && softmax.getMask() ? &bodyOf(softmax.getMask()) : nullptr;
  defineRange(softmax ? mask : condition);
  defineWeights(mask, condition);
  defineOutput();
  Expr sink;
  if (softmax && softmax.getSink()) {
    Environment at = bind({});
    sink = inSharedMemory(PlainRegion(kernel, at).expression(yielded(bodyOf(softmax.getSink())))) * log2e(type);
  }
  defineState(isSplit ? Expr() : sink);
  if (isSplit)
    defineMerged(sink);
  place();
}

} // namespace attn::lowering
