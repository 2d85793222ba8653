//===- RowSum.cpp - Weighted sums, row by row ------------------------------===//

#include "Mathematics.h"
#include "Nest.h"

using Halide::Expr;
using Halide::Func;
using Halide::Var;

namespace attn::lowering {

void Nest::defineWeightedSum(WeightedSumOp op) {
  mlir::Region &body = op.getBody();
  size_t rank = vars.size();
  mlir::Value weightFactor = yielded(body, 0), valueFactor = yielded(body, 1);
  SizeAttr keySize = op.getKeySize();
  Var key(kernel.uniqueName("key$"));
  auto bindIndices = [&](mlir::Region &region, Environment &environment, IndexBinding keyBinding) {
    for (size_t index = 0; index < rank; ++index)
      environment.bind(region.getArgument(index), vars[rank - 1 - index]);
    environment.indices[region.getArguments().back()] = keyBinding;
  };

  // The weights of one row, not yet divided by their sum where they are proportional to one softmax.
  Environment environment;
  bindIndices(body, environment, {key, {key}, false, {}});
  Stage stage;
  stage.kind = Stage::Kind::Row;
  stage.func = Func(kernel.uniqueName(name + "_weights"));
  IndexSet weightIndices = dependence(weightFactor);
  weightIndices.insert(body.getArguments().back());
  std::vector<Var> found;
  for (mlir::Value index : weightIndices)
    found.push_back(environment.indices[index].vars[0]);
  stage.vars = {key};
  for (const Var &var : ordered(found, -1))
    if (!var.same_as(key))
      stage.vars.push_back(var);
  Func weights = stage.func;
  std::vector<Var> weightVars = stage.vars;
  int self = addStage(stage);

  ReadOp single = weightOfOneSoftmax(op);
  RowSoftmax softmax;
  StageLowering lowering(*this, environment, self);
  for (ReadOp read : softmaxReads(weightFactor)) {
    auto producer = read.getTensor().getDefiningOp<SoftmaxOp>();
    bool isWeight = read.getTensor() == producer.getWeight();
    llvm::SmallVector<IndexBinding> rows;
    auto ofRow = isWeight ? read.getSubscripts().drop_back() : read.getSubscripts();
    for (auto [dimension, subscript] : llvm::enumerate(ofRow)) { // of which scores may compute more than they read
      IndexBinding binding{lowering.subscript(read, dimension), {}, true, {}};
      for (mlir::Value index : dependence(subscript))
        binding.vars.push_back(environment.indices[index].vars[0]);
      rows.push_back(binding);
    }
    softmax = addSoftmax(producer, rows);
    if (!isWeight) {
      environment.replace(read.getResult(), softmax.logSumExp());
      continue;
    }
    Expr at = Halide::clamp(lowering.subscript(read, ofRow.size()), 0,
                            lastIndex(kernel, producer.getScore().getType().getShape().back()));
    environment.replace(read.getResult(), read == single ? softmax.exponential({at}) : softmax.weight({at}));
  }
  weights(weightVars) = lowering.expression(weightFactor);

  // Σ over keys, lanes along the value index.
  Stage sumStage;
  sumStage.vars = vars;
  Func sum(kernel.uniqueName(name + "_sum"));
  addSum(
      sum, extent(kernel, keySize), sumStage, Expr(), [](Halide::RDom &) {},
      [&](llvm::ArrayRef<IndexBinding> at, int sumSelf) {
        const IndexBinding &keyLoop = at.front();
        Environment inside;
        bindIndices(body, inside, keyLoop);
        std::vector<Expr> weightAt = {Halide::clamp(keyLoop.expr, 0, lastIndex(kernel, keySize))};
        weightAt.insert(weightAt.end(), weightVars.begin() + 1, weightVars.end());
        Expr term = weights(weightAt) * StageLowering(*this, inside, sumSelf).expression(valueFactor);
        if (op.getWhere().empty())
          return term;
        bindIndices(op.getWhere(), inside, keyLoop);
        Expr condition = StageLowering(*this, inside, sumSelf).expression(yielded(op.getWhere()));
        return Halide::select(condition, term, constant(term.type(), 0));
      });

  std::vector<Expr> arguments(vars.begin(), vars.end());
  Expr result = sum(arguments);
  if (single) {
    Expr total = softmax.sum(softmax.rows);
    result = Halide::select(total == 0.0f, constant(result.type(), 0), result / total);
  }
  func(vars) = convert(result, kernel.typeInMemory(op.getResult()));
}

} // namespace attn::lowering
