//===- PairTables.cpp - Placed sums of pairs become products of matrices --===//
//
//   grad_r[row, e] = sum[b, m, n](weight[b, m, n] * grad_out[b, m, e] where clamp(n - m + K) == row)
//
// becomes
//
//   grad_r_table[b, m, row] = sum[n](weight[b, m, n] where clamp(n - m + K) == row)
//   grad_r[row, e]          = sum[b, m](grad_r_table[b, m, row] * grad_out[b, m, e])
//
// A number is added where it belongs for each pair, instead of a row.
//
//===----------------------------------------------------------------------===//

#include "PairTensors.h"
#include "Slice.h"
#include "Statement.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Distance.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

namespace {
/// A placed sum whose terms are numbers of pairs times elements of rows.
class PlacedRows {
public:
  PlacedRows(TensorOp statement, const PlacedSum &placed)
      : statement(statement), sum(placed.sum), place(statement.getBody().getArgument(placed.places.front().first)),
        conditions(placed.conditions) {
    conditions.push_back(placed.places.front().second);
  }

  /// Whether the rows have columns of their own, and do not change with `index`, one of the pair.
  bool areBeside(BlockArgument index);
  void write();

private:
  TensorOp writeTable();

  TensorOp statement;
  ReduceOp sum;
  BlockArgument place;
  SmallVector<Value> conditions; ///< With the place of a term.
  SmallVector<Factor> ofPair, ofRow;
  bool negative = false;
  SmallVector<BlockArgument> tableRows; ///< The table's indices, but for the place.
  SmallVector<BlockArgument> added;     ///< What is summed for each of its elements.
  SmallVector<BlockArgument> kept;      ///< What is summed for a row of the statement.
};
} // namespace

bool PlacedRows::areBeside(BlockArgument index) {
  Product product = Product::of(yielded(sum.getBody()));
  negative = product.negative;
  ofPair.clear(), ofRow.clear();
  IndexSet inTable, inRows;
  for (const Factor &factor : product.factors) {
    bool isOfPair = factor.indices.contains(index);
    (isOfPair ? ofPair : ofRow).push_back(factor);
    (isOfPair ? inTable : inRows).insert(factor.indices.begin(), factor.indices.end());
  }
  for (BlockArgument used : dependence(conditions)) // by the sum's body
    inTable.insert(used.getParentRegion() == &sum.getWhere() ? sum.getBody().getArgument(used.getArgNumber()) : used);

  tableRows.clear(), added.clear(), kept.clear();
  bool haveColumns = false;
  for (BlockArgument own : statement.getBody().getArguments()) {
    haveColumns |= inRows.contains(own) && !inTable.contains(own);
    if (inTable.contains(own))
      tableRows.push_back(own);
  }
  for (BlockArgument summed : sum.getBody().getArguments()) {
    (inRows.contains(summed) ? kept : added).push_back(summed);
    if (inRows.contains(summed) && inTable.contains(summed))
      tableRows.push_back(summed);
  }
  return haveColumns && !ofPair.empty();
}

TensorOp PlacedRows::writeTable() {
  Statement table{(statement.getName() + "_table").str(), llvm::map_to_vector(tableRows, axisOf),
                  llvm::map_to_vector(added, axisOf), sum.getType(), nullptr};
  table.axes.push_back(axisOf(place));
  auto mapped = [&](Indices indices) {
    IRMapping mapping;
    SmallVector<BlockArgument> order(tableRows);
    order.push_back(place);
    llvm::append_range(order, added);
    for (auto [index, value] : llvm::zip_equal(order, indices)) {
      mapping.map(index, value);
      if (index.getParentRegion() == &sum.getBody())
        mapping.map(sum.getWhere().getArgument(index.getArgNumber()), value);
    }
    return mapping;
  };
  table.term = [&](OpBuilder &builder, Indices indices) {
    IRMapping mapping = mapped(indices);
    return multiply(ofPair, /*negative=*/false, sum.getType(), mapping, builder, sum.getLoc());
  };
  table.condition = [&](OpBuilder &builder, Indices indices) {
    IRMapping mapping = mapped(indices);
    return cloneSlice(yielded(sum.getWhere()), mapping, builder);
  };
  OpBuilder builder(statement);
  return table.write(statement->getParentOfType<KernelOp>(), builder, sum.getLoc());
}

void PlacedRows::write() {
  TensorOp table = writeTable();
  OpBuilder builder(sum);
  auto product = ReduceOp::create(
      builder, sum.getLoc(), ReduceKind::Sum,
      builder.getArrayAttr(llvm::map_to_vector(
          kept, [&](BlockArgument index) -> Attribute { return builder.getStringAttr(indexName(index)); })),
      llvm::map_to_vector(kept, indexSize), sum.getType(), ValueRange(), Value(), /*conditional=*/false);
  builder.setInsertionPointToEnd(&product.getBody().front());
  IRMapping mapping;
  mapping.map(statement.getBody().getArguments(), statement.getBody().getArguments());
  mapping.map(kept, product.getBody().getArguments());
  SmallVector<Value> subscripts = llvm::map_to_vector(tableRows, [&](Value index) { return mapping.lookup(index); });
  subscripts.push_back(place);
  Value number = ReadOp::create(builder, sum.getLoc(), table.getResult(), subscripts);
  Value row = multiply(ofRow, negative, sum.getType(), mapping, builder, sum.getLoc());
  YieldOp::create(builder, sum.getLoc(), arith::MulFOp::create(builder, sum.getLoc(), number, row).getResult());
  sum.replaceAllUsesWith(product.getResult());
  sum.erase();
}

void PairTensors::multiplyPlaced(TensorOp statement) {
  std::optional<PlacedSum> placed = PlacedSum::of(statement);
  if (!placed || placed->sum.getKind() != ReduceKind::Sum || placed->places.size() != 1 || !readsPairs(statement))
    return;
  auto [position, row] = placed->places.front();
  SmallVector<unsigned> deciding = placed->deciding();
  if (deciding.size() != 2 || !choosesFewRows(row, indexSize(statement.getBody().getArgument(position))))
    return;
  PlacedRows rows(statement, *placed);
  for (unsigned number : llvm::reverse(deciding))
    if (rows.areBeside(ReduceOp(placed->sum).getBody().getArgument(number)))
      return rows.write();
}
