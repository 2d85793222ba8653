//===- GpuState.cpp - A weighted sum on a GPU: outputs and their state ------===//

#include "GpuTile.h"
#include "Mathematics.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

/// Columns of a thread that are side by side come from shared memory in one load, of 16 bytes; threads of a warp have
/// theirs side by side as well, or they would be in the same banks.
Expr GpuTile::columnOf(const Expr &own, const Expr &thread) const {
  int together = 16 / type.bytes();
  return own / together * (together * GpuTilePlan::columnThreads) + thread * together + own % together;
}

void GpuTile::defineOutput() {
  values = Func(kernel.uniqueName(func.name() + "_values"));
  Environment environment = bind(k, true);
  values(withOuter({e, k, chunk})) =
      inSharedMemory(PlainRegion(kernel, environment).expression(yielded(op.getBody(), 1)));
  output = Func(kernel.uniqueName(func.name() + "_output"));
  outputKeys = RDom(0, plan.chunk);
  output(withOuter({q, e, columns, chunk})) = constant(type, 0);
  std::vector<Expr> element = atOuter({q, e, columns, chunk});
  output(element) = plusWeighted(op, output(element), weights(atOuter({q, outputKeys.x, chunk})),
                                 values(atOuter({columnOf(e, columns), outputKeys.x, chunk})));
}

/// `start` of a maximum and a sum, where there is a softmax, and zeros.
static Halide::Tuple stateOf(llvm::ArrayRef<Expr> start, int columns, Halide::Type type) {
  std::vector<Expr> all(start.begin(), start.end());
  all.resize(all.size() + columns, constant(type, 0));
  return Halide::Tuple(all);
}

/// What the softmax's states are made of before there are keys.
llvm::SmallVector<Expr> GpuTile::startOfState(Expr sink) const {
  if (!softmax)
    return {};
  Expr start = lowest(type), startSum = constant(type, 0);
  if (sink.defined()) {
    start = larger(start, sink);
    startSum = exp2OfNonPositive(sink - start);
  }
  return {start, startSum};
}

/// Both are a maximum, a sum and outputs, or outputs alone.
Halide::Tuple GpuTile::mergeStates(llvm::ArrayRef<Expr> state, llvm::ArrayRef<Expr> added) const {
  std::vector<Expr> result;
  if (!softmax) {
    for (auto [before, next] : llvm::zip_equal(state, added))
      result.push_back(before + next);
    return Halide::Tuple(result);
  }
  Expr newMaximum = larger(state[0], added[0]);
  Expr oldScale = exp2OfNonPositive(state[0] - newMaximum), newScale = exp2OfNonPositive(added[0] - newMaximum);
  result.push_back(newMaximum);
  for (auto [before, next] : llvm::zip_equal(state.drop_front(), added.drop_front()))
    result.push_back(before * oldScale + next * newScale);
  return Halide::Tuple(result);
}

/// The numbers of a state at some element.
static llvm::SmallVector<Expr> numbersOf(Halide::FuncRef element) {
  llvm::SmallVector<Expr> result;
  for (size_t number = 0; number < element.size(); ++number)
    result.push_back(element[number]);
  return result;
}

void GpuTile::defineState(Expr sink) {
  defineChunks();
  state = Func(kernel.uniqueName(func.name() + "_state"));
  state(withOuter({q, columns})) = stateOf(startOfState(sink), plan.columnsEach(), type);
  llvm::SmallVector<Expr> added;
  if (softmax)
    added = {maximum(atOuter({q, chunks.x})), sum(atOuter({q, chunks.x}))};
  for (int column = 0; column < plan.columnsEach(); ++column)
    added.push_back(output(atOuter({q, column, columns, chunks.x})));
  Halide::FuncRef element = state(atOuter({q, columns}));
  element = mergeStates(numbersOf(element), added);
}

void GpuTile::defineMerged(Expr sink) {
  stored = Func(kernel.uniqueName(func.name() + "_parts"));
  llvm::SmallVector<Expr> ofPart = numbersOf(state(atOuter({q, columns})));
  stored(withOuter({e, columns, q})) = Halide::mux(e, std::vector<Expr>(ofPart.begin(), ofPart.end()));
  allParts = RDom(0, parts);
  merged = Func(kernel.uniqueName(func.name() + "_merged"));
  merged(q, columns, block) = stateOf(startOfState(sink), plan.columnsEach(), type);
  llvm::SmallVector<Expr> added;
  for (size_t number = 0; number < ofPart.size(); ++number)
    added.push_back(stored(static_cast<int>(number), columns, q, allParts.x, block));
  Halide::FuncRef element = merged(q, columns, block);
  element = mergeStates(numbersOf(element), added);
}

/// Puts the elements of the blocks where they belong.
void GpuTile::place() {
  // Columns and rows of a thread, threads of a block, blocks: as the loops are to be.
  elements = RDom({{0, plan.columnsEach()},
                   {0, plan.rowsEach()},
                   {0, GpuTilePlan::columnThreads},
                   {0, plan.rowThreads},
                   {0, blocks}});
  Expr ownColumn = columnOf(elements[0], elements[2]);
  Expr ownRow = elements[3] * plan.rowsEach() + elements[1];
  auto at = [&](Expr value) {
    value = Halide::Internal::substitute(e.name(), ownColumn, value);
    value = Halide::Internal::substitute(q.name(), ownRow, value);
    return Halide::Internal::substitute(block.name(), elements[4], value);
  };
  for (const Expr &condition : exists)
    elements.where(at(condition));
  std::vector<Var> vars;
  std::vector<Expr> element;
  for (const Expr &index : llvm::reverse(indices)) {
    vars.push_back(Var("dimension_" + std::to_string(vars.size())));
    element.push_back(at(index));
  }
  llvm::SmallVector<Expr> last = numbersOf((isSplit ? merged : state)(ownRow, elements[2], elements[4]));
  Expr all = Halide::mux(elements[0], std::vector<Expr>(last.begin() + (softmax ? 2 : 0), last.end()));
  Expr result = softmax ? select(last[1] == constant(type, 0), constant(type, 0), all / last[1]) : all;
  result = kernel.stored(result, op.getResult());
  func(vars) = Halide::undef(result.type());
  func(element) = result;
}

} // namespace attn::lowering
