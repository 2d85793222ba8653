//===- TileScore.cpp - The tiled plan: scores -------------------------------===//

#include "Hints.h"
#include "Mathematics.h"
#include "Tile.h"
#include "attn/Analysis/Cost.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

Expr TileRegion::reduce(ReduceOp op) {
  return keyed ? tile.reductionAt(op, environment) : tile.addQueryReduction(op, environment);
}

Expr TileRegion::stored(mlir::Value value) {
  auto read = value.getDefiningOp<ReadOp>();
  return read && keyed && tile.isAcross(read, environment) ? tile.addTransposed(read, environment) : Expr();
}

/// The body of a product. What depends on the query but not on the key is packed once a tile. Reductions that it has
/// stand around its own: a score within a sum.
class ProductRegion : public RegionLowering {
public:
  ProductRegion(Tile &tile, Environment &environment) : RegionLowering(tile.kernel, environment), tile(tile) {}

protected:
  Expr reduce(ReduceOp op) override { return tile.reductionAt(op, environment); }
  Expr stored(mlir::Value value) override {
    if (auto read = value.getDefiningOp<ReadOp>(); read && tile.isOfDistance(read, environment))
      return tile.addDistances(read, environment);
    if (tile.isNarrow(value, environment))
      return tile.addWidened(value, environment);
    bool isPacked = mlir::isa<mlir::FloatType>(value.getType()) && environment.changesWith(value, tile.q) &&
                    !environment.changesWith(value, tile.k);
    return isPacked ? tile.addPack("_query", packedFormula(kernel, value, environment, tile.rowsMade())) : Expr();
  }

private:
  Tile &tile;
};

/// Whether a formula evaluates functions that take many instructions, once for each of its index variables.
static bool evaluatesFunctions(mlir::Region &region) {
  bool found = false;
  region.walk([&](mlir::Operation *inner) { found |= isFunction(inner) && !dependence(inner->getResult(0)).empty(); });
  return found;
}

/// Whether a formula is dear enough to be computed once for maximum and weights, rather than twice: it calls functions,
/// or reads what is different for each pair. What a key has for all queries (a bias, a norm) is a broadcast.
static bool isDear(mlir::Region &region, unsigned query) {
  bool dear = false;
  region.walk([&](mlir::Operation *inner) {
    if (inner->getParentOfType<ReduceOp>() || mlir::isa<ReduceOp>(inner))
      return;
    IndexSet indices = inner->getNumResults() ? dependence(inner->getResult(0)) : IndexSet();
    dear |= isFunction(inner) && !indices.empty();
    dear |= mlir::isa<ReadOp>(inner) && indices.contains(region.getArgument(query)) &&
            indices.contains(region.getArguments().back());
  });
  return dear;
}

/// Once a tile: `suffix` says what.
Expr Tile::addPack(const std::string &suffix, const PackedFormula &formula) {
  std::vector<Var> arguments = {q};
  std::vector<Expr> call = {q};
  llvm::append_range(arguments, formula.variables);
  llvm::append_range(call, formula.at);
  Func pack(kernel.uniqueName(func.name() + suffix));
  pack(arguments) = formula.value;
  packs.push_back(pack);
  return pack(call);
}

Expr Tile::reductionAt(ReduceOp reduce, Environment &environment) {
  if (!environment.changesWith(reduce.getResult(), k))
    return addQueryReduction(reduce, environment);
  auto isOf = [&](const Product &product) { return product.reduction == reduce.getResult(); };
  if (llvm::none_of(products, isOf))
    addProduct(reduce, environment);
  return productAt(*llvm::find_if(products, isOf), environment);
}

void Tile::addProduct(ReduceOp reduce, Environment &environment) {
  llvm::SmallVector<Expr> sizes = reversedSizes(kernel, reduce);
  std::optional<PairFactors> factors = pairFactors(reduce, environment);
  Expr last = sizes[0];
  if (factors)
    sizes[0] = last / 2;
  Product product;
  product.reduction = reduce.getResult();
  product.band = bandOf(reduce, environment);
  if (product.band) {
    product.band->first = endOfBand(*product.band, environment, /*largest=*/false);
    product.band->last = endOfBand(*product.band, environment, /*largest=*/true);
  }
  product.func = Func(kernel.uniqueName(func.name() + "_product"));
  product.sums = Func(kernel.uniqueName(func.name() + "_product_sums"));
  product.keys = product.band ? keysOfBand(*product.band) : keys();
  product.domain = loopOver(sizes);
  product.dear = evaluatesFunctions(reduce.getBody());

  Environment inner;
  inner.indices = environment.indices;
  // What is ruled out is not even set to zero.
  runWhereFlagged(reduce, kernel, product.keys, product.keys[1], static_cast<int>(plan.chunk));
  Halide::Type type = computeType(reduce.getType());
  product.sums(q, k, keyTile) = identity(reduce.getKind(), type);
  inner.rebind(k, keyBinding(keyTile * static_cast<int>(plan.keyUnroll) + k));
  auto addTerms = [&](const RDom &domain, Expr first) {
    Environment terms;
    terms.indices = inner.indices;
    if (product.band)
      terms.subscripts[product.band->row] = rowsOfTile(*product.band);
    llvm::SmallVector<IndexBinding> indices = loopBindings(domain, sizes.size());
    indices.back().expr = first + indices.back().expr;
    bindReduction(reduce, terms, indices);
    ProductRegion lowering(*this, terms);
    Expr value = atEachStep(reduce.getKind(), reductionTerm(reduce, lowering, !hasFlag(reduce)), domain[0]);
    if (reduce.isConditional())
      value = unconditional(value);
    product.sums(q, k, keyTile) = combine(reduce.getKind(), product.sums(q, k, keyTile), value);
  };
  if (!factors) {
    addTerms(product.domain, 0);
  } else {
    product.sums(q, k, keyTile) += pairedTerm(product, reduce, *factors, inner);
    sizes[0] = Halide::Internal::simplify(last % 2);
    if (!Halide::Internal::is_const_zero(sizes[0])) {
      product.rest = loopOver(sizes);
      addTerms(product.rest, last / 2 * 2);
    }
  }
  Func &result = product.func;
  defineOnKeys(result, {q, k}, {q, keyOf(product.keys)}, product.sums(q, product.keys[0], product.keys[1]));
  products.push_back(product);
}

/// The key that `environment` has, counted within the chunk.
Expr Tile::keyInChunk(const Environment &environment) const {
  Expr key = environment.bindingWith(k)->expr;
  return Halide::Internal::simplify(key - firstKey);
}

bool Tile::isAcross(ReadOp read, const Environment &environment) const {
  if (!mlir::isa<mlir::FloatType>(read.getType()) && !read.getType().isSignlessInteger(1))
    return false;
  mlir::ValueRange subscripts = read.getSubscripts();
  if (subscripts.size() < 2 || !mlir::isa<mlir::BlockArgument>(subscripts.back()) ||
      !environment.changesWith(subscripts.back(), k))
    return false;
  return llvm::any_of(subscripts.drop_back(),
                      [&](mlir::Value subscript) { return environment.changesWith(subscript, q); });
}

/// In blocks of as many keys as queries (Transposition.h), rather than for the lanes of each vector of queries, which
/// lie far apart.
Expr Tile::addTransposed(ReadOp read, const Environment &environment) {
  Environment inner;
  inner.indices = environment.indices;
  int lanes = plan.lanes;
  Transposed result{read.getResult(), Func(kernel.uniqueName(func.name() + "_transposed")), keyTiles(lanes, lanes)};
  inner.rebind(k, keyBinding(keyOf(result.keys)));
  PlainRegion lowering(kernel, inner);
  Expr value = lowering.expression(read.getResult());
  result.func(q, k) = Halide::undef(value.type());
  result.func(q, keyOf(result.keys)) = value;
  transposed.push_back(result);
  return result.func(q, keyInChunk(environment));
}

bool Tile::isOfTerm(mlir::Value index, const Environment &environment) const {
  const IndexBinding &binding = environment.indices.find(index)->second;
  return binding.loop || binding.has(e);
}

bool Tile::isNarrow(mlir::Value value, const Environment &environment) const {
  auto isOfTerm = [&](mlir::Value index) { return this->isOfTerm(index, environment); };
  return mlir::isa<mlir::FloatType>(value.getType()) && environment.changesWith(value, k) &&
         !environment.changesWith(value, q) && llvm::any_of(dependence(value), isOfTerm) && !reduces(value) &&
         anyInSlice(value, [&](mlir::Operation *inner) {
           auto read = mlir::dyn_cast<ReadOp>(inner);
           return read && kernel.typeInMemory(read.getTensor()).bits() < 32;
         });
}

/// For a chunk of keys, in vectors along the last index of a term or of the output: each vector of queries would widen
/// a single number again.
Expr Tile::addWidened(mlir::Value value, const Environment &environment) {
  Environment inner;
  inner.indices = environment.indices;
  llvm::SmallVector<mlir::BlockArgument> indices;
  llvm::SmallVector<Expr> sizes;
  std::vector<Var> variables;
  std::vector<Expr> element, call;
  llvm::SmallVector<mlir::BlockArgument> all = inOrder(dependence(value));
  for (mlir::BlockArgument index : llvm::reverse(all)) {
    if (!isOfTerm(index, environment))
      continue;
    indices.push_back(index);
    sizes.push_back(extent(kernel, indexSize(index)));
    variables.push_back(Var(kernel.uniqueName("r$")));
    call.push_back(environment.indices.find(index)->second.expr);
  }
  Widened result{Func(kernel.uniqueName(func.name() + "_widened")), keys(sizes)};
  for (auto [dimension, index] : llvm::enumerate(indices)) {
    element.push_back(result.domain[dimension]);
    inner.indices[index] = {element.back(), {}, false, {}};
  }
  inner.rebind(k, keyBinding(keyOf(result.domain)));
  variables.push_back(k);
  element.push_back(keyOf(result.domain));
  call.push_back(keyInChunk(environment));
  defineOnKeys(result.func, variables, element, PlainRegion(kernel, inner).expression(value));
  widened.push_back(result);
  return result.func(call);
}

/// A reduction that no key changes: once for each query of the tile.
Expr Tile::addQueryReduction(ReduceOp reduce, Environment &environment) {
  Environment inner;
  inner.indices = environment.indices;
  RDom domain = loopOver(reversedSizes(kernel, reduce));
  bindReduction(reduce, inner, loopBindings(domain, domain.dimensions()));
  RowRegion lowering(kernel, inner, rowsMade());
  Expr value = atEachStep(reduce.getKind(), reductionTerm(reduce, lowering), domain[0]);
  Expr start = identity(reduce.getKind(), value.type());
  Func result(kernel.uniqueName(func.name() + "_row"));
  result(q) = start;
  result(q) = combine(reduce.getKind(), result(q), value);
  rowReductions.push_back({reduce.getResult(), result});
  return result(q);
}

Expr Tile::scoreAt(Expr key, bool whole, Expr largest) {
  Environment environment = bind(op.getBody(), keyBinding(key));
  bindScore(softmax, environment);
  TileRegion lowering(*this, environment, true);
  // Reductions of the score are products: one Func each, however often the score is written down.
  for (Product &product : products)
    environment.replace(product.reduction, productAt(product, environment));
  for (const Transposed &other : transposed)
    environment.replace(other.value, other.func(q, key));
  for (auto &[reduction, row] : rowReductions)
    environment.replace(reduction, row(q));
  Expr value = lowering.expression(yielded(bodyOf(softmax.getScore())));
  value = value * log2e(value.type());
  if (largest.defined())
    value -= largest;
  if (whole)
    return unconditional(value);
  Expr kept = firstKey + key < keyCount;
  if (softmax.getMask())
    kept = kept && lowering.expression(yielded(bodyOf(softmax.getMask())));
  return unconditional(select(kept, value, -infinity(value.type())));
}

void Tile::defineScore() {
  mlir::Region *mask = softmax.getMask() ? &bodyOf(softmax.getMask()) : nullptr;
  Environment environment = bind(op.getBody(), keyBinding(k));
  bindScore(softmax, environment);
  defineRange(mask, environment);
  unsigned query = llvm::find(read.getSubscripts(), queryArgument) - read.getSubscripts().begin();
  storeScore = isDear(bodyOf(softmax.getScore()), query) || (mask && isDear(*mask, query)) ||
               hasBand(bodyOf(softmax.getScore()), environment);
  if (!storeScore)
    return;
  score = Func(kernel.uniqueName(func.name() + "_score"));
  for (bool whole : {false, true}) {
    scoreKeys.push_back(keysOfForm(whole));
    Expr key = keyOf(scoreKeys.back()), value = scoreAt(key, whole);
    if (!whole)
      score(q, k) = Halide::undef(value.type());
    score(q, key) = value;
  }
}

} // namespace attn::lowering
