//===- GpuProduct.cpp - A weighted sum on a GPU: sums over rows and keys ----===//
//
// What depends on a row and the sum's index, or on a key and the sum's index, is computed once for the pairs of a tile,
// where reading it from memory is coalesced whatever the pairs' threads are.
//
//===----------------------------------------------------------------------===//

#include "GpuTile.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::Var;

namespace attn::lowering {

/// Whether `value` is made of an element of a tensor.
static bool hasRead(mlir::Value value) {
  mlir::Operation *op = value.getDefiningOp();
  return op && (mlir::isa<ReadOp>(op) || llvm::any_of(op->getOperands(), hasRead));
}

namespace {

/// The term of a sum, whose factors are in shared memory.
class GpuProductRegion : public PlainRegion {
public:
  using Stage = llvm::function_ref<Expr(mlir::Value)>;

  /// `stage` gives the place of a value that is kept in shared memory; undefined for others.
  GpuProductRegion(StepLowering &kernel, Environment &environment, Stage stage)
      : PlainRegion(kernel, environment), stage(stage) {}

protected:
  Expr stored(mlir::Value value) override { return stage(value); }

private:
  Stage stage;
};

} // namespace

bool GpuTile::canStage(ReduceOp reduce, const Environment &environment) const {
  mlir::Value result = reduce.getResult();
  return staged < GpuTilePlan::stagedSums && reduce.getSizes().size() == 1 &&
         mlir::isa<mlir::FloatType>(result.getType()) && !hasReductionAround(reduce) &&
         environment.changesWith(result, q) && environment.changesWith(result, k);
}

/// Whether `value` is not the same for all rows of a tile.
bool GpuTile::changesWithRows(mlir::Value value) const {
  return llvm::any_of(dependence(value), [&](mlir::BlockArgument index) {
    auto row = isRow.find(index);
    return row != isRow.end() && !isShared(value, index, rows[row->second].shared.group);
  });
}

Expr GpuTile::addProduct(Pairs &stage, ReduceOp reduce, const Environment &environment) {
  ++staged;
  Product &product = stage.products.emplace_back();
  std::string name = func.name() + "_product";
  product.func = Func(kernel.uniqueName(name));
  product.ofSlice = Func(kernel.uniqueName(name + "_of_slice"));
  SizeAttr size = *reduce.getSizes().getAsRange<SizeAttr>().begin();
  RDom terms(0, plan.slice);
  terms.where(slice * plan.slice + terms.x < extent(kernel, size));
  IndexBinding at = {slice * plan.slice + terms.x, {slice}, false, {}};
  IndexBinding ofFactors = {
      Halide::clamp(slice * plan.slice + term, 0, lastIndex(kernel, size)), {term, slice}, false, {}};

  auto factorsOf = [&](mlir::Value value) -> Expr {
    bool changesWithKeys = environment.changesWith(value, k), isOfRows = changesWithRows(value);
    mlir::Block &body = reduce.getBody().front();
    if (!mlir::isa<mlir::FloatType>(value.getType()) || changesWithKeys == isOfRows || !hasRead(value) ||
        !dependence(value).contains(body.getArgument(0)))
      return {};
    Environment inner = bind(k, changesWithKeys);
    bindReduction(reduce, inner, ofFactors);
    Factors &factors = product.factors.emplace_back();
    factors.isOfKeys = changesWithKeys;
    factors.func = Func(kernel.uniqueName(func.name() + (changesWithKeys ? "_key_factors" : "_row_factors")));
    Var own = changesWithKeys ? k : q;
    Expr factor = inSharedMemory(PlainRegion(kernel, inner).expression(value));
    if (changesWithKeys) {
      factors.func(withOuter({own, term, slice, chunk})) = factor;
      return factors.func(atOuter({own, terms.x, slice, chunk}));
    }
    factors.func(withOuter({own, term, slice})) = factor;
    return factors.func(atOuter({own, terms.x, slice}));
  };
  Environment inner;
  inner.indices = environment.indices;
  bindReduction(reduce, inner, at);
  GpuProductRegion lowering(kernel, inner, factorsOf);
  ReduceKind kind = reduce.getKind();
  Expr value = inSharedMemory(atEachStep(kind, reductionTerm(reduce, lowering), terms.x));
  std::vector<Expr> ofSlice = atOuter({q, k, slice, chunk}), all = atOuter({q, k, chunk});
  product.ofSlice(withOuter({q, k, slice, chunk})) = identity(kind, value.type());
  product.ofSlice(ofSlice) = combine(kind, product.ofSlice(ofSlice), value);
  product.slices = RDom(0, lastIndex(kernel, size) / plan.slice + 1); // one where there are no terms
  product.func(withOuter({q, k, chunk})) = identity(kind, value.type());
  product.func(all) = combine(kind, product.func(all), product.ofSlice(atOuter({q, k, product.slices.x, chunk})));
  return product.func(all);
}

} // namespace attn::lowering
