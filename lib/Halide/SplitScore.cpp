//===- SplitScore.cpp - The split plan: scores ------------------------------===//

#include "Hints.h"
#include "Lanes.h"
#include "Mathematics.h"
#include "SplitRegions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

Expr SplitRegion::reduce(ReduceOp op) { return split.reductionAt(op, environment, key); }

Expr KeyRegion::reduce(ReduceOp op) { return split.reductionAt(op, environment, key.key); }

bool LaneMask::hides(mlir::Value value) const {
  return isThere.defined() &&
         llvm::any_of(dependence(value), [&](mlir::Value index) { return llvm::is_contained(indices, index); });
}

static bool isSumOfProducts(mlir::Value value) {
  mlir::Operation *op = value.getDefiningOp();
  if (!mlir::isa_and_nonnull<mlir::arith::AddIOp, mlir::arith::SubIOp, mlir::arith::MulIOp>(op))
    return dependence(value).empty() || mlir::isa<mlir::BlockArgument>(value);
  return llvm::all_of(op->getOperands(), isSumOfProducts);
}

Expr LaneMask::read(StepLowering &kernel, const Environment &environment, ReadOp read,
                    llvm::function_ref<Expr()> plain) const {
  auto isPlain = [&](mlir::Value subscript) { return !hides(subscript) || isSumOfProducts(subscript); };
  if (llvm::all_of(read.getSubscripts(), isPlain))
    return readWhere(isThere, plain());
  Environment inside;
  inside.indices = environment.indices;
  inside.subscripts = environment.subscripts;
  for (mlir::Value index : indices)
    if (auto binding = inside.indices.find(index); binding != inside.indices.end())
      binding->second.expr =
          Halide::min(binding->second.expr, lastIndex(kernel, indexSize(mlir::cast<mlir::BlockArgument>(index))));
  return PlainRegion(kernel, inside).expression(read.getResult());
}

Expr MaskedRegion::stored(mlir::Value value) {
  auto read = value.getDefiningOp<ReadOp>();
  if (!read || !mask.hides(value))
    return {};
  return mask.read(kernel, environment, read, [&] { return lowerOperation(read).expr; });
}

Expr KeyRegion::stored(mlir::Value value) {
  auto read = value.getDefiningOp<ReadOp>();
  if (!read)
    return {};
  if (split.keyTensor(read))
    return split.keyTensorAt(read, environment, key);
  if (environment.changesWith(value, split.k))
    return MaskedRegion(kernel, first, mask).expression(value);
  Expr found;
  if (mlir::isa<mlir::FloatType>(value.getType()) &&
      (environment.changesWith(value, split.row) || split.readsQueryTensor(read)))
    found = split.addPack(value, packedFormula(kernel, value, environment, split.queryRows()));
  if (!mask.hides(value))
    return found;
  if (found.defined())
    return readWhere(mask.isThere, found);
  return mask.read(kernel, environment, read, [&] { return lowerOperation(read).expr; });
}

Expr Split::addPack(mlir::Value value, const PackedFormula &formula) {
  bool ofPairs = formula.value.type().is_uint();
  auto found = llvm::find_if(packs, [&](const Pack &pack) { return pack.value == value && pack.ofPairs == ofPairs; });
  if (found == packs.end()) {
    std::vector<Var> arguments = formula.variables;
    arguments.push_back(row);
    found = packs.insert(found, {value, Func(kernel.uniqueName(func.name() + "_row")), ofPairs});
    found->func(arguments) = formula.value;
  }
  std::vector<Expr> call = formula.at;
  call.push_back(row);
  return found->func(call);
}

Expr Split::reductionAt(ReduceOp reduce, const Environment &environment, Expr key) {
  if (!environment.changesWith(reduce.getResult(), k))
    return addRowReduction(reduce, environment);
  auto isOf = [&](const Product &product) { return product.op == reduce; };
  if (llvm::none_of(products, isOf))
    addProduct(reduce, environment);
  return whereFlagged(reduce, kernel, llvm::find_if(products, isOf)->func(key, row));
}

void Split::addProduct(ReduceOp reduce, const Environment &environment) {
  Product product;
  product.op = reduce;
  product.func = Func(kernel.uniqueName(func.name() + "_product"));
  IndexSet indices = dependence(reduce.getResult());
  mlir::Value keyArgument =
      *llvm::find_if(indices, [&](mlir::Value index) { return environment.changesWith(index, k); });
  // What terms have of other products lies key by key.
  if (!hasReductionAround(reduce) && isContiguous(reduce, keyArgument))
    addContiguousProduct(environment, product);
  else
    addProductAlongKeys(environment, product);
  products.push_back(product);
}

/// Binds the indices of `op` to `indices`, and the key to `key`.
Environment Split::bindTerm(const Environment &environment, ReduceOp op, llvm::ArrayRef<IndexBinding> indices,
                            const TileKey &key) {
  Environment inner;
  inner.indices = environment.indices;
  inner.rebind(k, keyBinding(key.key, key.isThere));
  bindReduction(op, inner, indices);
  // Halide cuts the loops over keys of sums alone to those that are visited, which have subscripts.
  if (op.getKind() == ReduceKind::Sum)
    keepSubscripts(yielded(op.getBody()), inner, key.kept, firstOfTile(key.rows));
  return inner;
}

/// The same, to `domain`, but the last one to `last`.
Environment Split::bindTerm(const Environment &environment, ReduceOp op, const RDom &domain, Expr last,
                            const TileKey &key) {
  llvm::SmallVector<IndexBinding> indices = loopBindings(domain, op.getSizes().size());
  indices.back().expr = last;
  return bindTerm(environment, op, indices, key);
}

Expr Split::term(const Environment &environment, ReduceOp op, const RDom &domain, Expr last, const TileKey &key,
                 Expr isThere) {
  Environment inner = bindTerm(environment, op, domain, last, key);
  LaneMask mask{{}, isThere};
  for (mlir::Region &region : op->getRegions())
    if (!region.empty())
      mask.indices.push_back(region.getArguments().back());
  KeyRegion lowering(*this, inner, key, std::move(mask));
  Expr value = reductionTerm(op, lowering, !hasFlag(op));
  if (isThere.defined())
    value = select(isThere, value, identity(op.getKind(), value.type()));
  return atEachStep(op.getKind(), value, domain[0]);
}

/// Lanes are partial results along the last index of the reduction, of pairs of bf16 numbers or single ones. What fills
/// no vector of pairs are vectors of single numbers, the last of which has surplus lanes.
void Split::addContiguousProduct(const Environment &environment, Product &product) {
  product.func(k, row) = Halide::undef(computeType(product.op.getType()));
  Expr size = reversedSizes(kernel, product.op)[0];
  int vector = lanes * (isPaired(product.op, environment) ? 2 : 1);
  Expr rest = plan.masksLanes ? kernel.derivedSize("rest_vectors", ceilDivide(size % vector, lanes), 0) : Expr(0);
  for (const RowTile &tile : rowTiles(plan.rowTile))
    addScoreTile(environment, product, tile, rest);
  if (!plan.masksLanes)
    addRest(environment, product);
}

/// What fills no vector, one by one.
void Split::addRest(const Environment &environment, Product &product) {
  ReduceKind kind = product.op.getKind();
  llvm::SmallVector<Expr> sizes = reversedSizes(kernel, product.op);
  int vector = lanes * (isPaired(product.op, environment) ? 2 : 1);
  unsigned count = sizes.size();
  Expr whole = sizes[0] / vector * vector, rest = sizes[0] - whole;
  sizes[0] = rest;
  product.rest = tiles(1, sizes);
  Halide::RVar restKey = product.rest[count];
  product.rest.where(restKey < select(rest > 0, plan.chunk, 0));
  runWhereFlagged(product.op, kernel, product.rest, restKey, plan.chunk);
  Expr more = term(environment, product.op, product.rest, whole + product.rest[0], ofRest(restKey));
  product.func(restKey, row) = combine(kind, product.func(restKey, row), more);
}

/// Of the first term: no bounds of the reduction are asked for, which may have none.
Expr Split::firstReadOf(const Environment &environment, ReduceOp op, const TileKey &key) {
  llvm::SmallVector<IndexBinding> indices;
  for (unsigned index = 0; index < op.getSizes().size(); ++index)
    indices.push_back({Expr(0), {}, false, {}});
  Environment inner = bindTerm(environment, op, indices, key);
  ReadOp found;
  op.getBody().walk([&](ReadOp read) {
    if (inner.changesWith(read.getResult(), k))
      found = read;
  });
  if (!found)
    return {};
  Environment first = ofBlock(inner, blockOfTile(key.rows));
  if (keyTensor(found))
    return firstReadOfKeyTensor(found, first);
  return PlainRegion(kernel, first).expression(found.getResult());
}

/// Keys of one row are visited by a loop that ends with the last key.
void Split::addTerms(Product &product, ScoreTile &tile, Expr count,
                     llvm::function_ref<Expr(const RDom &terms, const TileKey &key)> termAt, bool isFetched) {
  if (Halide::Internal::is_const_zero(count))
    return;
  llvm::SmallVector<Expr> sizes = reversedSizes(kernel, product.op);
  sizes[0] = count;
  bool isLoop = tile.rows == 1;
  if (isLoop)
    sizes.push_back(tile.keyCount);
  RDom terms = loopOver(sizes);
  Expr ofTile = isLoop ? Expr(terms[sizes.size() - 1]) : Expr(k), key = keyTile * tile.keyCount + ofTile;
  if (isLoop)
    terms.where(keyBinding(key).expr < keyCount);
  TileKey tileKey = isLoop ? thatIsThere(key, 1) : thatMayBeSurplus(key, tile.rows);
  auto termOf = [&](const TileKey &key) { return termAt(terms, key); };
  Expr value = isFetched ? atKey(tileKey, termOf) : termOf(tileKey);
  tile.partial(lane, ofTile, keyTile, row) =
      combine(product.op.getKind(), tile.partial(lane, ofTile, keyTile, row), value);
  tile.terms.push_back(terms);
}

/// The lanes of a register tile of keys and rows are added together: a load of a key is one for all of its rows.
void Split::addScoreTile(const Environment &environment, Product &product, const RowTile &rowTile, Expr restVectors) {
  int each = isPaired(product.op, environment) ? 2 : 1;
  ReduceKind kind = product.op.getKind();
  Halide::Type type = computeType(product.op.getType());
  int keysOfTile = rowTile.rows == 1 ? plan.scoreKeys : plan.scoreKeysOfSeveral();
  ScoreTile tile{rowTile.rows, keysOfTile, Func(kernel.uniqueName(func.name() + "_lanes")), {}, {}};
  tile.partial(lane, k, keyTile, row) = identity(kind, type);
  Expr size = reversedSizes(kernel, product.op)[0], vectors = size / (lanes * each);
  auto ofWhole = [&](const RDom &terms, const TileKey &key) {
    Expr position = terms[0] * lanes + lane;
    return each == 2 ? pairedTerm(environment, product.op, terms, position, key)
                     : term(environment, product.op, terms, position, key);
  };
  auto ofRest = [&](const RDom &terms, const TileKey &key) {
    Expr position = vectors * (lanes * each) + terms[0] * lanes + lane;
    Expr last = Halide::unsafe_promise_clamped(position, 0, size - 1);
    return term(environment, product.op, terms, last, key, position < size);
  };
  // What is made at keys is made of them in the order in which they lie, however many rows a tile has.
  bool readsKeyTensor = this->readsKeyTensor(product.op);
  addTerms(product, tile, vectors, ofWhole, /*isFetched=*/!readsKeyTensor);
  addTerms(product, tile, restVectors, ofRest, /*isFetched=*/false);

  tile.keys = tiles(keysOfTile, {Expr(keysOfTile), Expr(rowTile.rows)}, &rowTile);
  runWhereFlagged(product.op, kernel, tile.keys, tile.keys[3], plan.chunk);
  Expr ofRow = tile.keys[2] * rowTile.rows + tile.keys[1];
  std::vector<Expr> values;
  for (int index = 0; index < lanes; ++index)
    values.push_back(tile.partial(index, tile.keys[0], tile.keys[3], ofRow));
  bool isSum = kind == ReduceKind::Sum && type == Halide::Float(32);
  Expr joined = isSum ? sumOfLanes(values) : combineTree(kind, values), first = tile.keys[3] * keysOfTile;
  product.func(first + tile.keys[0], ofRow) = beforeNextPages(
      joined, thatMayBeSurplus(first, readsKeyTensor ? 1 : tile.rows), keysOfTile, [&](const TileKey &key) {
        Expr read = firstReadOf(environment, product.op, key);
        return read.defined() ? Halide::Internal::substitute(row.name(), ofRow, read) : Expr();
      });
  product.tiles.push_back(tile);
}

/// Lanes are keys.
void Split::addProductAlongKeys(const Environment &environment, Product &product) {
  ReduceKind kind = product.op.getKind();
  llvm::SmallVector<Expr> sizes = reversedSizes(kernel, product.op);
  unsigned count = sizes.size();
  sizes.insert(sizes.begin(), lanes);
  Halide::Type type = computeType(product.op.getType());
  product.keys = tiles(lanes, Expr(lanes));
  product.func(k, row) = Halide::undef(type);
  product.func(product.keys[1] * lanes + product.keys[0], row) = identity(kind, type);
  // Vectors of keys are read as they lie in memory; of the last one, if it is not whole, each is clamped by itself.
  for (bool isWhole : {true, false}) {
    RDom domain = vectors(isWhole, sizes);
    runWhereFlagged(product.op, kernel, domain, domain[count + 1], plan.chunk);
    Expr key = domain[count + 1] * lanes + domain[0];
    Environment inner;
    inner.indices = environment.indices;
    inner.rebind(k, keyBinding(key, isWhole));
    llvm::SmallVector<IndexBinding> indices;
    for (unsigned dimension = count; dimension > 0; --dimension)
      indices.push_back({domain[dimension], {}, false, domain[dimension]});
    bindReduction(product.op, inner, indices);
    KeyRegion lowering(*this, inner, isWhole ? thatIsThere(key, 1) : thatMayBeSurplus(key, 1));
    Expr value = atEachStep(kind, reductionTerm(product.op, lowering, !hasFlag(product.op)), domain[1]);
    product.func(key, row) = combine(kind, product.func(key, row), value);
    product.alongKeys.push_back(domain);
  }
}

/// A reduction that no key changes: once for each row.
Expr Split::addRowReduction(ReduceOp reduce, const Environment &environment) {
  for (auto &[op, result] : rowReductions)
    if (op == reduce)
      return result(row);
  Environment inner;
  inner.indices = environment.indices;
  RDom domain = loopOver(reversedSizes(kernel, reduce));
  bindReduction(reduce, inner, loopBindings(domain, domain.dimensions()));
  RowRegion lowering(kernel, inner, queryRows());
  Expr value = atEachStep(reduce.getKind(), reductionTerm(reduce, lowering), domain[0]);
  Func result(kernel.uniqueName(func.name() + "_row"));
  result(row) = identity(reduce.getKind(), value.type());
  result(row) = combine(reduce.getKind(), result(row), value);
  rowReductions.push_back({reduce, result});
  return result(row);
}

/// In powers of two; −inf where the key is masked.
void Split::defineScore() {
  score = Func(kernel.uniqueName(func.name() + "_score"));
  mlir::Value formula = yielded(bodyOf(softmax.getScore())),
              mask = softmax.getMask() ? yielded(bodyOf(softmax.getMask())) : mlir::Value();
  score(k, row) = Halide::undef(computeType(formula.getType()));
  scoreKeys = overVectors({formula, mask}, [&](Expr key, bool areWhole) {
    Environment environment = bind(op.getBody(), keyBinding(key, areWhole));
    bindScore(environment);
    SplitRegion lowering(*this, environment, key);
    Expr value = lowering.expression(formula);
    value = value * log2e(value.type());
    Expr kept = areWhole ? Halide::Internal::const_true() : keyBinding(key).expr < keyCount;
    if (mask)
      kept = kept && lowering.expression(mask);
    score(key, row) = unconditional(select(kept, value, -infinity(value.type())));
  });
}

} // namespace attn::lowering
