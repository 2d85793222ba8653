//===- GpuNest.cpp - The formula of a stored tensor, an element a thread ---===//

#include "GpuNest.h"
#include "GpuMemory.h"
#include "Mathematics.h"
#include "attn/Analysis/Fusion.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::Var;

namespace attn::lowering {

/// Terms that are added in f32 before their sum is added in f64: see NestSum.cpp.
static constexpr int blockSize = 32;

GpuNest::GpuNest(StepLowering &kernel, llvm::StringRef base, llvm::ArrayRef<SizeAttr> shape)
    : func(kernel.uniqueName(base)), kernel(kernel), name(base), values(allValues(shape)),
      indices(indicesOf(element, values)), place(indices) {
  stages.push_back({func, {}, -1, {}});
}

int GpuNest::addStage(Stage stage) {
  stages.push_back(std::move(stage));
  return stages.size() - 1;
}

llvm::SmallVector<IndexValues> GpuNest::allValues(llvm::ArrayRef<SizeAttr> shape) {
  return llvm::map_to_vector(shape, [&](SizeAttr size) { return IndexValues{0, extent(kernel, size)}; });
}

llvm::SmallVector<IndexBinding> GpuNest::indicesOf(const Var &number, llvm::ArrayRef<IndexValues> values) {
  llvm::SmallVector<IndexBinding> result(values.size());
  Expr rest = number;
  for (size_t position = values.size(); position-- > 0;) {
    Expr count = atLeastOne(values[position].count);
    result[position] = {values[position].first + (position ? rest % count : rest), {number}, false, {}};
    rest = rest / count;
  }
  return result;
}

Expr GpuNest::numberOf(llvm::ArrayRef<Expr> at, llvm::ArrayRef<SizeAttr> sizes) {
  Expr number = 0;
  for (auto [index, size] : llvm::zip_equal(at, sizes))
    number = number * atLeastOne(extent(kernel, size)) + index;
  return number;
}

void GpuNest::define(Expr value) {
  if (values.empty()) {
    func() = Halide::Internal::substitute(element.name(), 0, value);
    return;
  }
  Expr count = 1;
  for (const IndexValues &index : values)
    count = count * atLeastOne(index.count);
  elements = RDom(0, count);
  std::vector<Var> vars;
  std::vector<Expr> at;
  for (const IndexBinding &index : llvm::reverse(place)) {
    vars.push_back(Var("dimension_" + std::to_string(vars.size())));
    at.push_back(Halide::Internal::substitute(element.name(), elements->x, index.expr));
  }
  func(vars) = Halide::undef(value.type());
  func(at) = Halide::Internal::substitute(element.name(), elements->x, value);
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

Expr GpuNest::reductionBody(ReduceOp op, const Environment &inner, llvm::ArrayRef<IndexBinding> at, int consumer) {
  Environment environment;
  environment.indices = inner.indices;
  llvm::SmallVector<IndexBinding> indices(at);
  for (auto [binding, index] : llvm::zip_equal(indices, op.getBody().getArguments()))
    binding.expr += kernel.values(index).first;
  bindReduction(op, environment, indices);
  GpuRegion lowering(*this, environment, consumer);
  // A condition that is one for all elements is not made one of the loops: Halide would move it out of the kernel, to
  // where the device's memory cannot be read.
  Expr term = reductionTerm(op, lowering);
  for (const IndexBinding &binding : at)
    if (binding.loop)
      return atEachStep(op.getKind(), term, *binding.loop);
  return term;
}

Expr GpuNest::addReduction(ReduceOp op, Environment &outer, int consumer) {
  if (isExponential(op.getKind()))
    return addNestedSoftmax(op, outer, consumer);
  // The Func's variables: those of the loops it stands in; a reduction loop around it becomes a variable of its own.
  Environment inner;
  Stage stage;
  stage.consumer = consumer;
  std::vector<Expr> call;
  auto add = [&](const Var &var, Expr at) {
    stage.vars.push_back(var);
    call.push_back(at);
  };
  unsigned innermost = 0; // the loops of a reduction: its last index is the innermost one
  for (mlir::Value index : dependence(op.getResult())) {
    const IndexBinding &binding = outer.indices.find(index)->second;
    if (!binding.loop) {
      inner.indices[index] = binding;
      for (const Var &var : binding.vars)
        if (llvm::none_of(stage.vars, [&](const Var &other) { return other.same_as(var); }))
          add(var, var);
      continue;
    }
    Var var(kernel.uniqueName("r$"));
    inner.indices[index] = {var, {var}, binding.padded, {}};
    add(var, binding.expr);
    unsigned position = mlir::cast<mlir::BlockArgument>(index).getArgNumber();
    if (!stage.loop || position > innermost) {
      stage.loop = binding.loop;
      innermost = position;
    }
  }
  stage.func = Func(kernel.uniqueName(name + "_" + stringifyReduceKind(op.getKind()).str()));
  Func result = stage.func;
  llvm::SmallVector<Expr> counts;
  for (mlir::BlockArgument index : op.getBody().getArguments())
    counts.push_back(kernel.values(index).count);
  if (op.getKind() == ReduceKind::Sum && mlir::isa<mlir::FloatType>(op.getType())) {
    addSum(std::move(stage), counts, computeType(op.getType()),
           [&](llvm::ArrayRef<IndexBinding> at, int self) { return reductionBody(op, inner, at, self); });
    return result(call);
  }
  Halide::Region ranges;
  for (const Expr &count : llvm::reverse(counts)) // the last index runs fastest
    ranges.push_back({0, count});
  RDom domain(ranges);
  std::vector<Var> stageVars = stage.vars;
  std::vector<Expr> element(stageVars.begin(), stageVars.end());
  Expr value = reductionBody(op, inner, loopBindings(domain, domain.dimensions()), addStage(std::move(stage)));
  result(stageVars) = identity(op.getKind(), value.type());
  result(element) = combine(op.getKind(), result(element), value);
  return result(call);
}

void GpuNest::addSum(Stage stage, llvm::ArrayRef<Expr> counts, Halide::Type type,
                     llvm::function_ref<Expr(llvm::ArrayRef<IndexBinding>, int)> term) {
  Func sum = stage.func;
  Func total(kernel.uniqueName(sum.name() + "_total")), part(kernel.uniqueName(sum.name() + "_block"));
  std::vector<Var> sumVars = stage.vars;
  std::vector<Expr> element(sumVars.begin(), sumVars.end());

  // Blocks of the last index, for each value of the others.
  Expr last = counts.back();
  Halide::Region ranges = {{0, (last + blockSize - 1) / blockSize}};
  for (const Expr &count : llvm::reverse(counts.drop_back()))
    ranges.push_back({0, count});
  RDom blocks(ranges);

  Stage partStage;
  partStage.func = part;
  partStage.vars = sumVars;
  partStage.loop = blocks[0];
  std::vector<Expr> call = element;
  llvm::SmallVector<IndexBinding> at;
  for (int dimension = blocks.dimensions() - 1; dimension > 0; --dimension) {
    Var outer(kernel.uniqueName("r$"));
    partStage.vars.push_back(outer);
    call.push_back(blocks[dimension]);
    at.push_back({outer, {outer}, false, {}});
  }
  Var block(kernel.uniqueName("block_of_terms$"));
  partStage.vars.push_back(block);
  call.push_back(blocks[0]);
  stage.func = total;
  partStage.consumer = addStage(std::move(stage));

  // The last block ends with the terms: the condition bounds the loop, and what is read for it alone is clamped.
  RDom within(0, blockSize);
  Expr index = block * blockSize + within.x;
  within.where(index < last);
  at.push_back({index, {block}, true, within.x});
  std::vector<Var> partVars = partStage.vars;
  Expr value = term(at, addStage(std::move(partStage)));
  std::vector<Expr> partElement(partVars.begin(), partVars.end());
  part(partVars) = constant(type, 0);
  part(partElement) += value;

  Halide::Type wide = Halide::Float(64);
  total(sumVars) = constant(wide, 0);
  total(element) += Halide::cast(wide, part(call));
  sum(sumVars) = Halide::cast(type, total(element));
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

void GpuNest::definePointwise(DefinitionOpInterface op) {
  llvm::SmallVector<IndexValues> stored;
  for (auto [index, own] : llvm::zip_equal(op.getBody().getArguments(), values)) {
    own = kernel.values(index);
    stored.push_back(kernel.storedValues(index));
  }
  indices = indicesOf(element, values);
  place = indicesOf(element, stored);
  Environment environment;
  std::vector<Expr> at;
  for (auto [index, binding] : llvm::zip_equal(op.getBody().getArguments(), indices)) {
    environment.indices[index] = binding;
    at.insert(at.begin(), binding.expr);
  }
  Expr value = GpuRegion(*this, environment, 0).expression(yielded(op.getBody()));
  define(kernel.stored(kernel.withEarlierBlocks(value, op.getDefinedTensor(), at), op.getDefinedTensor()));
}

void GpuNest::defineConverted(mlir::Value tensor, Halide::Type type) {
  std::vector<Expr> at;
  for (const IndexBinding &index : indices)
    at.push_back(index.expr);
  define(toDeviceMemory(kernel.element(tensor, at), type));
}

void GpuNest::defineWeight(SoftmaxOp op) {
  llvm::SmallVector<IndexBinding> rows = indices;
  IndexBinding key = rows.pop_back_val();
  GpuSoftmax softmax = addSoftmax(op, rows);
  Environment environment;
  for (auto [argument, binding] : llvm::zip(softmax.score->getArguments(), rows))
    environment.indices[argument] = binding;
  define(kernel.stored(weight(softmax, scoreAt(softmax, environment, key, 0)), op.getWeight()));
}

void GpuNest::defineLogSumExp(SoftmaxOp op) {
  define(kernel.stored(addSoftmax(op, indices).logSumExp(), op.getLogsumexp()));
}

/// Σ over keys of weight · value. What the weight is proportional to is divided by the softmax's sum in the end.
void GpuNest::defineWeightedSum(WeightedSumOp op) {
  mlir::Region &body = op.getBody();
  mlir::Value weightFactor = yielded(body, 0), valueFactor = yielded(body, 1);
  ReadOp single = weightOfOneSoftmax(op);
  GpuSoftmax divisor;

  Halide::Type type = computeType(op.getResult().getType().getElementType());
  Stage stage;
  stage.func = Func(kernel.uniqueName(name + "_sum"));
  stage.vars = {element};
  stage.consumer = 0;
  Func sum = stage.func;
  auto term = [&](llvm::ArrayRef<IndexBinding> at, int self) -> Expr {
    Environment environment;
    for (mlir::Region &region : op->getRegions())
      if (!region.empty()) {
        for (auto [index, binding] : llvm::zip(region.getArguments(), indices))
          environment.indices[index] = binding;
        environment.indices[region.getArguments().back()] = at.front();
      }
    GpuRegion lowering(*this, environment, self);
    auto binding = [&](mlir::Value subscript, SizeAttr size) {
      Expr index = Halide::cast<int32_t>(lowering.expression(subscript));
      IndexBinding result{Halide::clamp(index, 0, lastIndex(kernel, size)), {}, false, {}};
      for (mlir::Value other : dependence(subscript)) {
        const IndexBinding &found = environment.indices[other];
        llvm::append_range(result.vars, found.vars);
        if (found.loop)
          result.loop = found.loop;
      }
      return result;
    };
    for (ReadOp read : softmaxReads(weightFactor)) {
      auto producer = read.getTensor().getDefiningOp<SoftmaxOp>();
      llvm::SmallVector<IndexBinding> rows;
      for (auto [subscript, size] : llvm::zip(read.getSubscripts(), producer.getScore().getType().getShape()))
        rows.push_back(binding(subscript, size));
      bool isWeight = read.getTensor() == producer.getWeight();
      IndexBinding at = isWeight ? rows.pop_back_val() : IndexBinding();
      GpuSoftmax softmax = addSoftmax(producer, rows);
      if (!isWeight) {
        environment.replace(read.getResult(), softmax.logSumExp());
        continue;
      }
      Environment scores;
      for (auto [argument, row] : llvm::zip(softmax.score->getArguments(), rows))
        scores.indices[argument] = row;
      Expr score = scoreAt(softmax, scores, at, self);
      environment.replace(read.getResult(), read == single ? exponential(softmax, score) : weight(softmax, score));
      if (read == single)
        divisor = softmax;
    }
    Expr product = lowering.expression(weightFactor) * lowering.expression(valueFactor);
    product = atEachStep(ReduceKind::Sum, product, *at.front().loop);
    if (op.getWhere().empty())
      return product;
    return Halide::select(lowering.expression(yielded(op.getWhere())), product, constant(type, 0));
  };
  addSum(std::move(stage), extent(kernel, op.getKeySize()), type, term);

  Expr result = sum(element);
  if (single) {
    Expr total = divisor.sum();
    result = Halide::select(total == 0.0f, constant(type, 0), result / total);
  }
  define(kernel.stored(result, op.getResult()));
}

} // namespace attn::lowering
