//===- NestSum.cpp - Long sums of a nest, in blocks -------------------------===//
//
// A sum of n floats in order is off by up to n roundings. In a nest it is made of blocks, and blocks of f32 are added
// in f64:
//
//   total = 0                                 f64
//   for blocks of 32 terms:
//     block = 0                               f32
//     for terms of the block:  block += term
//     total += block
//
// so that its error is that of 32 terms, however many there are: at most 31 roundings and the last one, 1.9e-6 of the
// sum of magnitudes.
//
//===----------------------------------------------------------------------===//

#include "Mathematics.h"
#include "Nest.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::RVar;
using Halide::Var;

namespace attn::lowering {

void Nest::addSum(Func sum, llvm::ArrayRef<Expr> counts, Stage stage, Expr start,
                  llvm::function_ref<void(RDom &)> restrict,
                  llvm::function_ref<Expr(llvm::ArrayRef<IndexBinding>, int)> term) {
  std::vector<Var> sumVars = stage.vars;
  std::vector<Expr> arguments(sumVars.begin(), sumVars.end());
  Var block(kernel.uniqueName("block$"));
  Func total(kernel.uniqueName(sum.name() + "_total")), part(kernel.uniqueName(sum.name() + "_block"));

  // Blocks of the last index, for each value of the others.
  Expr last = counts.back();
  Halide::Region ranges = {{0, (last + blockSize - 1) / blockSize}};
  for (const Expr &count : llvm::reverse(counts.drop_back()))
    ranges.push_back({0, count});
  RDom blocks(ranges);
  restrict(blocks);

  Stage partStage;
  partStage.kind = Stage::Kind::Lanes;
  partStage.func = part;
  partStage.vars = sumVars;
  partStage.scalar = sumVars.empty();
  partStage.lanesOfConsumer = !sumVars.empty();
  partStage.loop = blocks[0];
  std::vector<Expr> call = arguments;
  llvm::SmallVector<IndexBinding> at;
  for (int dimension = blocks.dimensions() - 1; dimension > 0; --dimension) {
    Var outer(kernel.uniqueName("r$"));
    partStage.vars.push_back(outer);
    call.push_back(blocks[dimension]);
    at.push_back({outer, {outer}, false, {}});
  }
  partStage.vars.push_back(block);
  call.push_back(blocks[0]);
  stage.func = total;
  stage.kind = Stage::Kind::Lanes;
  partStage.consumer = addStage(std::move(stage));

  // Without a start the last block ends with the terms: the condition bounds the loop, and what is read for it alone is
  // clamped.
  RDom within(0, blockSize);
  Expr index = block * blockSize + within.x;
  bool isWhole = start.defined();
  if (!isWhole)
    within.where(index < last);
  restrict(within);
  at.push_back({index, {}, !isWhole, within.x});
  std::vector<Var> partVars = partStage.vars;
  Expr value = term(at, addStage(std::move(partStage)));
  std::vector<Expr> partArguments(partVars.begin(), partVars.end());
  part(partVars) = constant(value.type(), 0);
  part(partArguments) += value;

  Halide::Type wide = Halide::Float(64);
  total(sumVars) = Halide::cast(wide, isWhole ? start : constant(value.type(), 0));
  total(arguments) += Halide::cast(wide, part(call));
  sum(sumVars) = Halide::cast(value.type(), total(arguments));
}

} // namespace attn::lowering
