//===- Reduction.cpp - What the plans share of reductions ------------------===//

#include "Reduction.h"
#include "Mathematics.h"
#include "Pairs.h"
#include "StepLowering.h"
#include "attn/Analysis/Fusion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using Halide::Expr;

namespace attn::lowering {

Expr placeOf(mlir::Value value, mlir::BlockArgument index, StepLowering &kernel, Environment &environment) {
  // In range as it is: the clamp tells Halide.
  Expr place = Halide::cast<int32_t>(PlainRegion(kernel, environment).expression(value));
  return Halide::clamp(place, 0, lastIndex(kernel, indexSize(index)));
}

Expr combine(ReduceKind kind, Expr a, Expr b) {
  bool isFloat = a.type().is_float();
  switch (kind) {
  case ReduceKind::Sum:
    return a + b;
  case ReduceKind::Max:
    return isFloat ? maximum(a, b) : Halide::max(a, b);
  case ReduceKind::Min:
    return isFloat ? minimum(a, b) : Halide::min(a, b);
  case ReduceKind::Softmax:
  case ReduceKind::LogSumExp:
    break;
  }
  llvm_unreachable("not a plain reduction");
}

Expr identity(ReduceKind kind, Halide::Type type) {
  if (kind == ReduceKind::Sum)
    return constant(type, 0);
  if (type.is_float())
    return kind == ReduceKind::Max ? -infinity(type) : infinity(type);
  return kind == ReduceKind::Max ? type.min() : type.max();
}

Expr combineTree(ReduceKind kind, std::vector<Expr> values) {
  for (size_t width = values.size() / 2; width > 0; width /= 2)
    for (size_t index = 0; index < width; ++index)
      values[index] = combine(kind, values[index], values[index + width]);
  return values[0];
}

ReadOp bf16Read(mlir::Value value) {
  auto read = value.getDefiningOp<ReadOp>();
  return read && read.getTensor().getType().getElementType().isBF16() ? read : ReadOp();
}

std::optional<std::pair<mlir::Value, mlir::Value>> bf16Factors(ReduceOp op) {
  auto product = yielded(op.getBody()).getDefiningOp<mlir::arith::MulFOp>();
  if (op.getKind() != ReduceKind::Sum || op.isConditional() || !product || !bf16Read(product.getLhs()) ||
      !bf16Read(product.getRhs()))
    return std::nullopt;
  return std::pair(product.getLhs(), product.getRhs());
}

bool canPairWeights(StepLowering &kernel, WeightedSumOp op) {
  mlir::Value value = yielded(op.getBody(), 1);
  return hasPlainWeights(op) && kernel.typeInMemory(op.getResult()).is_bfloat() && bf16Read(value) &&
         dependence(value).contains(op.getBody().getArguments().back());
}

bool hasFlag(ReduceOp op) {
  return op.isConditional() && dependence(yielded(op.getWhere())).empty() && op.getWhere().getOps<ReduceOp>().empty();
}

llvm::SmallVector<Expr> reversedSizes(StepLowering &kernel, ReduceOp op) {
  llvm::SmallVector<Expr> sizes;
  for (SizeAttr size : llvm::reverse(op.getSizes().getAsRange<SizeAttr>()))
    sizes.push_back(extent(kernel, size));
  return sizes;
}

Halide::RDom loopOver(llvm::ArrayRef<Expr> sizes) {
  Halide::Region ranges;
  for (const Expr &size : sizes)
    ranges.push_back({0, size});
  return Halide::RDom(ranges);
}

llvm::SmallVector<IndexBinding> loopBindings(const Halide::RDom &domain, unsigned count) {
  llvm::SmallVector<IndexBinding> result;
  while (count-- > 0)
    result.push_back({domain[count], {}, false, domain[count]});
  return result;
}

void bindReduction(ReduceOp op, Environment &environment, llvm::ArrayRef<IndexBinding> at) {
  for (mlir::Region &region : op->getRegions())
    if (!region.empty())
      for (auto [argument, binding] : llvm::zip_equal(region.getArguments(), at))
        environment.indices[argument] = binding;
}

PackedFormula packedFormula(StepLowering &kernel, mlir::Value value, const Environment &environment,
                            const RowsMade &rows) {
  Environment inner;
  inner.indices = environment.indices;
  PackedFormula result;
  for (mlir::Value index : dependence(value)) {
    IndexBinding &binding = inner.indices[index];
    if (!binding.loop)
      continue;
    Halide::Var var(kernel.uniqueName("r$"));
    result.variables.push_back(var);
    result.at.push_back(binding.expr);
    binding = {var, {var}, false, {}};
  }
  result.value = RowRegion(kernel, inner, rows).expression(value);
  return result;
}

PackedFormula packedPairs(StepLowering &kernel, mlir::Value value, ReduceOp op, const Halide::RDom &domain,
                          const Environment &environment, const RowsMade &rows) {
  PackedFormula result;
  llvm::SmallVector<IndexBinding> indices;
  for (unsigned dimension = 0; dimension < op.getSizes().size(); ++dimension) {
    Halide::Var var(kernel.uniqueName("r$"));
    result.variables.push_back(var);
    result.at.push_back(domain[dimension]);
    indices.insert(indices.begin(), {var, {var}, false, {}});
  }
  Expr numbers[2];
  for (int position : {0, 1}) {
    Environment inner;
    inner.indices = environment.indices;
    indices.back().expr = result.variables.front() * 2 + position;
    bindReduction(op, inner, indices);
    numbers[position] = RowRegion(kernel, inner, rows).expression(value);
  }
  result.value = pairOf(numbers[0], numbers[1]);
  return result;
}

Expr reductionTerm(ReduceOp op, RegionLowering &lowering, bool withCondition) {
  Expr value = lowering.expression(yielded(op.getBody()));
  if (value.type().is_int()) // a narrow element, or one whose range is small; their combination is not
    value = Halide::cast<int64_t>(value);
  if (!op.isConditional() || !withCondition)
    return value;
  return Halide::select(lowering.expression(yielded(op.getWhere())), value, identity(op.getKind(), value.type()));
}

static Expr flag(ReduceOp op, StepLowering &kernel) {
  Environment environment;
  return PlainRegion(kernel, environment).expression(yielded(op.getWhere()));
}

void runWhereFlagged(ReduceOp op, StepLowering &kernel, Halide::RDom &domain) {
  if (hasFlag(op))
    domain.where(flag(op, kernel));
}

void runWhereFlagged(ReduceOp op, StepLowering &kernel, Halide::RDom &domain, const Halide::RVar &loop, int steps) {
  if (hasFlag(op))
    domain.where(loop < Halide::select(flag(op, kernel), steps, 0));
}

Expr whereFlagged(ReduceOp op, StepLowering &kernel, Expr result) {
  return hasFlag(op) ? Halide::select(flag(op, kernel), result, identity(op.getKind(), result.type())) : result;
}

Expr atEachStep(ReduceKind kind, Expr term, const Halide::RVar &loop) {
  if (Halide::Internal::expr_uses_var(term, loop.name()))
    return term;
  return Halide::select(loop >= 0, term, identity(kind, term.type()));
}

Expr plusWeighted(WeightedSumOp op, Expr sum, Expr weight, Expr value) {
  Expr added = sum + weight * value;
  return op.getWhere().empty() ? added : Halide::select(weight == 0, sum, added);
}

} // namespace attn::lowering
