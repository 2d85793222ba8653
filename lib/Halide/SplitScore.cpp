//===- SplitScore.cpp - The split plan: scores ------------------------------===//

#include "Fetch.h"
#include "Lanes.h"
#include "Mathematics.h"
#include "Split.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

Expr SplitRegion::reduce(ReduceOp op) {
  return environment.changesWith(op.getResult(), split.k) ? split.addProduct(op, environment, key)
                                                          : split.addRowReduction(op, environment);
}

Expr Split::addProduct(ReduceOp reduce, const Environment &environment, Expr key) {
  Product product;
  product.op = reduce;
  product.func = Func(kernel.uniqueName(func.name() + "_product"));
  IndexSet indices = dependence(reduce.getResult());
  mlir::Value keyArgument =
      *llvm::find_if(indices, [&](mlir::Value index) { return environment.changesWith(index, k); });
  if (isContiguous(reduce, keyArgument))
    addContiguousProduct(environment, product);
  else
    addProductAlongKeys(environment, product);
  products.push_back(product);
  return product.func(at({key}));
}

/// Binds the indices of `op` to `domain`, but the last one to `last`, and the key to `key`.
Environment Split::bindTerm(const Environment &environment, ReduceOp op, const RDom &domain, Expr last, Expr key) {
  Environment inner;
  inner.indices = environment.indices;
  inner.rebind(k, keyBinding(key));
  llvm::SmallVector<IndexBinding> indices = loopBindings(domain, op.getSizes().size());
  indices.back().expr = last;
  bindReduction(op, inner, indices);
  keepSubscripts(yielded(op.getBody()), inner, key);
  return inner;
}

Expr Split::term(const Environment &environment, ReduceOp op, const RDom &domain, Expr last, Expr key) {
  Environment inner = bindTerm(environment, op, domain, last, key);
  PlainRegion lowering(kernel, inner);
  return atEachStep(op.getKind(), reductionTerm(op, lowering), domain[0]);
}

/// Lanes are partial results along the last index of the reduction, of pairs of bf16 numbers or single ones: whole
/// vectors, and what is left one by one.
void Split::addContiguousProduct(const Environment &environment, Product &product) {
  llvm::SmallVector<Expr> sizes = reversedSizes(kernel, product.op);
  int each = isPaired(product.op, environment) ? 2 : 1;
  Expr vectors = sizes[0] / (lanes * each), whole = vectors * (lanes * each), rest = sizes[0] - whole;
  ReduceKind kind = product.op.getKind();
  llvm::SmallVector<Expr> vectorSizes = sizes, restSizes = sizes;
  vectorSizes[0] = vectors;
  restSizes[0] = rest;

  product.partial = Func(kernel.uniqueName(func.name() + "_lanes"));
  product.vectors = loopOver(vectorSizes);
  Expr position = product.vectors[0] * lanes + lane;
  Expr value = each == 2 ? pairedTerm(environment, product, position, k)
                         : term(environment, product.op, product.vectors, position, k);
  if (plan.ahead)
    value = fetchingAhead(value, term(environment, product.op, product.vectors, position * each, laterKey(k)));
  std::vector<Expr> partialAt = at({lane, k});
  product.partial(stageVars({lane, k})) = identity(kind, value.type());
  product.partial(partialAt) = combine(kind, product.partial(partialAt), value);

  product.keys = tiles(plan.scoreKeys, Expr(plan.scoreKeys));
  Expr key = product.keys[1] * plan.scoreKeys + product.keys[0];
  std::vector<Expr> values;
  for (int index = 0; index < lanes; ++index)
    values.push_back(product.partial(at({index, key})));
  product.func(stageVars({k})) = Halide::undef(value.type());
  bool isSum = kind == ReduceKind::Sum && value.type() == Halide::Float(32);
  product.func(at({key})) = isSum ? sumOfLanes(values) : combineTree(kind, values);

  unsigned count = sizes.size();
  product.rest = tiles(1, restSizes);
  Expr restKey = product.rest[count];
  product.rest.where(restKey < select(rest > 0, plan.chunk, 0));
  Expr more = term(environment, product.op, product.rest, whole + product.rest[0], restKey);
  product.func(at({restKey})) = combine(kind, product.func(at({restKey})), more);
}

/// Lanes are keys.
void Split::addProductAlongKeys(const Environment &environment, Product &product) {
  ReduceKind kind = product.op.getKind();
  llvm::SmallVector<Expr> sizes = reversedSizes(kernel, product.op);
  unsigned count = sizes.size();
  sizes.insert(sizes.begin(), lanes);
  product.rest = tiles(lanes, sizes);
  product.keys = tiles(lanes, Expr(lanes));
  Expr key = product.rest[count + 1] * lanes + product.rest[0];
  Environment inner;
  inner.indices = environment.indices;
  inner.rebind(k, keyBinding(key));
  llvm::SmallVector<IndexBinding> indices;
  for (unsigned dimension = count; dimension > 0; --dimension)
    indices.push_back({product.rest[dimension], {}, false, product.rest[dimension]});
  bindReduction(product.op, inner, indices);
  PlainRegion lowering(kernel, inner);
  Expr value = atEachStep(kind, reductionTerm(product.op, lowering), product.rest[1]);
  product.func(stageVars({k})) = Halide::undef(value.type());
  product.func(at({product.keys[1] * lanes + product.keys[0]})) = identity(kind, value.type());
  product.func(at({key})) = combine(kind, product.func(at({key})), value);
}

/// A reduction that no key changes: once for each row.
Expr Split::addRowReduction(ReduceOp reduce, const Environment &environment) {
  Environment inner;
  inner.indices = environment.indices;
  RDom domain = loopOver(reversedSizes(kernel, reduce));
  bindReduction(reduce, inner, loopBindings(domain, domain.dimensions()));
  PlainRegion lowering(kernel, inner);
  Expr value = atEachStep(reduce.getKind(), reductionTerm(reduce, lowering), domain[0]);
  Func result(kernel.uniqueName(func.name() + "_row"));
  std::vector<Expr> element(rows.begin(), rows.end());
  result(rows) = identity(reduce.getKind(), value.type());
  result(element) = combine(reduce.getKind(), result(element), value);
  rowReductions.push_back(result);
  return result(element);
}

/// In powers of two; −inf where the key is masked.
void Split::defineScore() {
  scoreKeys = tiles(lanes, Expr(lanes));
  score = Func(kernel.uniqueName(func.name() + "_score"));
  Expr key = keyOf(scoreKeys);
  IndexBinding binding = keyBinding(key);
  Environment environment = bind(op.getBody(), binding);
  bindScore(environment);
  SplitRegion lowering(*this, environment, key);
  Expr value = lowering.expression(yielded(definition(softmax.getScore())));
  value = value * log2e(value.type());
  Expr kept = binding.expr < keyCount;
  if (softmax.getMask())
    kept = kept && lowering.expression(yielded(definition(softmax.getMask())));
  score(stageVars({k})) = Halide::undef(value.type());
  score(at({key})) = select(kept, value, -infinity(value.type()));
}

} // namespace attn::lowering
