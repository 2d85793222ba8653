//===- SplitRange.cpp - The split plan: rows that share keys, and which keys -===//

#include "Hints.h"
#include "Mathematics.h"
#include "Split.h"
#include "attn/Analysis/SharedKeys.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace attn::lowering {

//===----------------------------------------------------------------------===//
// Which rows read the same keys
//===----------------------------------------------------------------------===//

void Split::findShared() {
  llvm::ArrayRef<SizeAttr> shape = op.getResult().getType().getShape();
  // At least 1: that Halide sees what is positive lets it bound loops by what these numbers say.
  auto atLeastOne = [&](const std::string &name, Expr value) { return kernel.derivedSize(name, value, 1); };
  auto sizeOf = [&](unsigned position) { return Halide::max(extent(kernel, shape[position]), 1); };
  // A task is a number, of which each index is a digit.
  Expr rest = task;
  Expr mostWithinKeys = plan.rowsWithinKeys;
  auto add = [&](unsigned position, Expr sharers, bool isWithinKeys) {
    Shared found;
    found.index = vars[vars.size() - 1 - position];
    found.size = sizeOf(position);
    std::string name = indexName(op.getBody().getArgument(position)).str();
    sharers = atLeastOne(name + "_sharers", sharers);
    found.passes = atLeastOne(name + "_passes", ceilDivide(sharers, plan.rows));
    found.rows = atLeastOne(name + "_rows", ceilDivide(sharers, found.passes));
    found.run = sharers;
    if (isWithinKeys) {
      Expr groups = ceilDivide(found.size, sharers);
      Expr balanced = ceilDivide(groups, ceilDivide(groups * sharers, mostWithinKeys));
      found.blocks = atLeastOne(name + "_blocks", select(found.passes == 1, balanced, 1));
      if (!rowsOfKey.defined())
        rowsOfKey = atLeastOne("rows_of_key", rowCount * found.rows);
      keyBlocks = keyBlocks * found.blocks;
      found.rowsOfBlock = found.rows;
      found.rows = atLeastOne(name + "_block_rows", found.rows * found.blocks);
      found.run = atLeastOne(name + "_run", sharers * found.blocks);
      mostWithinKeys = Halide::max(mostWithinKeys / found.rows, 1);
    }
    found.groups = atLeastOne(name + "_groups", ceilDivide(found.size, found.run) * found.passes);
    found.group = takeDigit(rest, found.groups);
    Expr ofRun = found.group / found.passes * found.run;
    found.first = ofRun + found.group % found.passes * found.rows;
    found.last = Halide::min(ofRun + found.run, found.size) - 1;
    rowCount = rowCount * found.rows;
    shared.push_back(found);
  };
  rowCount = keyBlocks = 1;
  llvm::SmallVector<mlir::BlockArgument> withinKeys = indicesWithinKeys(op);
  Expr sharersWithinKeys = 1;
  for (const SharedKeys &index : sharedKeys(op)) {
    Expr sharers = index.group ? extent(kernel, index.group) : sizeOf(index.position());
    if (!llvm::is_contained(withinKeys, index.index))
      add(index.position(), sharers, false);
    else if (index.index == withinKeys.front())
      sharersWithinKeys = sharers;
  }
  // The last ones, so that rows that read the same keys follow one another.
  for (mlir::BlockArgument index : withinKeys)
    add(index.getArgNumber(), index == withinKeys.front() ? sharersWithinKeys : Expr(1), true);
  if (withinKeys.size() > 1)
    keyBlocks = atLeastOne("key_blocks", keyBlocks);
  rowCount = atLeastOne("rows", rowCount);
  for (unsigned position = vars.size() - 1; position-- > 0;) {
    Var var = vars[vars.size() - 1 - position];
    if (llvm::none_of(shared, [&](const Shared &other) { return other.index.same_as(var); })) {
      Expr size = sizeOf(position), value = takeDigit(rest, size);
      own.push_back({var, size, value, value});
    }
  }
  span = rest;
  keepTaskNumbers();
}

void Split::keepTaskNumbers() {
  llvm::SmallVector<Expr *> numbers;
  for (Shared &index : shared)
    numbers.append({&index.first, &index.last});
  for (Own &index : own)
    numbers.push_back(&index.kept);
  if (numbers.empty())
    return;
  std::vector<Expr> values;
  for (Expr *number : numbers)
    values.push_back(*number);
  taskNumbers = PassNumbers(kernel.uniqueName("numbers_of_task"), {task}, values);
  for (auto [position, number] : llvm::enumerate(numbers))
    *number = taskNumbers[position];
  for (Own &index : own)
    index.kept = Halide::unsafe_promise_clamped(index.kept, 0, index.size - 1);
}

/// Surplus rows of the last pass are its last.
Expr Split::Shared::at(Expr within) const {
  return Halide::unsafe_promise_clamped(Halide::min(first + within, last), 0, size - 1);
}

Expr Split::Shared::withinOf(Expr value) const { return Halide::clamp(value % run % rows, 0, rows - 1); }

Expr Split::Shared::groupOf(Expr value) const {
  return Halide::clamp(value / run * passes + value % run / rows, 0, groups - 1);
}

llvm::SmallVector<Split::RowTile, 2> Split::rowTiles(int size) {
  if (shared.empty() || size == 1)
    return {RowTile{1, 0, rowCount}};
  llvm::SmallVector<RowTile, 2> result;
  Expr whole = rowsOfKey.defined() ? select(rowsOfKey % size == 0, rowCount, 0) : rowCount;
  Expr tiles = kernel.derivedSize("row_tiles", whole / size, 0);
  Expr rest = kernel.derivedSize("rest_rows", rowCount - tiles * size, 0);
  for (const RowTile &tile : {RowTile{size, 0, tiles}, RowTile{1, tiles * size, rest}})
    // Of a stage that is never computed Halide would look for the storage.
    if (!Halide::Internal::is_const_zero(tile.count))
      result.push_back(tile);
  return result;
}

//===----------------------------------------------------------------------===//
// Spans and chunks
//===----------------------------------------------------------------------===//

void Split::defineRange() {
  boundKeys();
  // Spans for as many tasks as keep many threads busy, none shorter than a chunk.
  int target = plan.tasks;
  Expr count = 1;
  auto times = [&](Expr tasksOfIndex) { count = Halide::min(count * Halide::min(tasksOfIndex, target), target); };
  for (const Shared &index : shared)
    times(index.groups);
  for (const Own &index : own)
    times(index.size);
  constexpr int step = 64; // keys, of which each span has a multiple
  Expr size = kernel.derivedSize("least_span", plan.span / keyBlocks / step * step, step);
  Expr shortestOfAll = ceilDivide(Halide::max(keyCount, 1), size);
  spans = kernel.derivedSize("spans", Halide::clamp(ceilDivide(target, count), 1, shortestOfAll), 1);
  mostChunks = kernel.derivedSize("chunks", ceilDivide(ceilDivide(shortestOfAll, spans) * size, plan.chunk), 1);
  // Of the keys in range. A Func rather than formulas, for the bounds of loops have it in several places.
  // The first chunk has the first of them.
  Expr first = lower.defined() ? lower / step * step : Expr(0);
  Expr parts = Halide::max(ceilDivide(upper - first, size), 0), each = ceilDivide(parts, spans) * size;
  Func ofSpan(kernel.uniqueName("keys_of_span"));
  ofSpan(task) = {first + span * each, Halide::min(upper, first + (span + 1) * each), each};
  rangeFuncs.push_back(ofSpan);
  chunksOfSpan = ceilDivide(Expr(ofSpan(task)[2]), plan.chunk);
  Expr firstOfChunk = ofSpan(task)[0] + chunk * plan.chunk;
  // Tiles of all sizes cover the same keys: what one stage reads, another has written.
  int largest = std::max({pairsWeights ? 2 * lanes : lanes, plan.keyTile, plan.scoreKeys});
  std::vector<Expr> ofChunk = {firstOfChunk, ceilDivide(ofSpan(task)[1] - firstOfChunk, largest) * largest};
  if (lower.defined())
    ofChunk.push_back((lower - firstOfChunk) / largest * largest);
  chunkKeys = PassNumbers(kernel.uniqueName("keys_of_chunk"), {chunk, task}, ofChunk);
}

} // namespace attn::lowering
