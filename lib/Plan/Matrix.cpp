//===- Matrix.cpp - Which statements take the matrix plan ------------------===//

#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/PairBlocks.h"
#include "attn/Analysis/PlacedSum.h"
#include "attn/Plan/Plan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace attn;

bool attn::isColumnFactor(mlir::Value value, ReduceOp sum, unsigned row) {
  auto &body = llvm::cast<DefinitionOpInterface>(sum->getParentOp()).getBody();
  if (!llvm::isa<mlir::FloatType>(value.getType()))
    return false;
  IndexSet indices = dependence(value);
  return indices.contains(body.getArguments().back()) && !indices.contains(body.getArgument(row)) &&
         llvm::any_of(sum.getBody().getArguments(), [&](mlir::BlockArgument index) { return indices.contains(index); });
}

bool attn::isApartRowFactor(mlir::Value value, ReduceOp sum, unsigned row) {
  auto &body = llvm::cast<DefinitionOpInterface>(sum->getParentOp()).getBody();
  mlir::BlockArgument rowIndex = body.getArgument(row), term = sum.getBody().getArguments().back();
  IndexSet indices = dependence(value);
  if (!llvm::isa<mlir::FloatType>(value.getType()) || indices.contains(body.getArguments().back()) ||
      !indices.contains(rowIndex) || !indices.contains(term))
    return false;
  bool isApart = false;
  walkFormula(value, [&](mlir::Operation *op) {
    if (auto read = llvm::dyn_cast<ReadOp>(op); read && !read.getSubscripts().empty())
      isApart |= read.getSubscripts().back() == rowIndex && dependence(read.getSubscripts().drop_back()).contains(term);
    return !isApart;
  });
  return isApart;
}

/// Whether all that `value`, part of a term of `sum`, takes from the columns is in column factors for one of `rows`.
static bool hasColumnsInFactors(mlir::Value value, ReduceOp sum, llvm::ArrayRef<unsigned> rows,
                                mlir::BlockArgument column) {
  if (!dependence(value).contains(column) ||
      llvm::any_of(rows, [&](unsigned row) { return isColumnFactor(value, sum, row); }))
    return true;
  mlir::Operation *op = value.getDefiningOp();
  return op && !llvm::isa<ReadOp>(op) && llvm::all_of(op->getOperands(), [&](mlir::Value operand) {
           return hasColumnsInFactors(operand, sum, rows, column);
         });
}

/// Whether `value` compares index variables.
static bool comparesIndices(mlir::Value value) {
  bool compares = false;
  walkFormula(value, [&](mlir::Operation *op) {
    compares |= llvm::isa<mlir::arith::CmpIOp>(op) && !dependence(op->getResult(0)).empty();
    return !compares && !llvm::isa<ReadOp, ReduceOp>(op);
  });
  return compares;
}

/// Whether the formula `body` chooses between sums, or one and something else, by comparing index variables. Halide
/// computes what is chosen on one side for that side's elements alone, which are no whole tiles. A choice of 0 is made
/// bit by bit instead.
static bool choosesSums(mlir::Region &body) {
  return llvm::any_of(body.getOps<mlir::arith::SelectOp>(), [](mlir::arith::SelectOp choice) {
    return !choosesZero(choice) && comparesIndices(choice.getCondition()) &&
           (reduces(choice.getTrueValue()) || reduces(choice.getFalseValue()));
  });
}

/// Whether `sum` is one of floats, for each of the columns, and stands in the formula `body` itself, without a
/// condition but that of `placed`.
static bool isPlain(ReduceOp sum, mlir::Region &body, const std::optional<PlacedSum> &placed = std::nullopt) {
  return sum.getKind() == ReduceKind::Sum && llvm::isa<mlir::FloatType>(sum.getType()) &&
         sum->getParentRegion() == &body && (!sum.isConditional() || placed) &&
         sum.getBody().getOps<ReduceOp>().empty() &&
         dependence(yielded(sum.getBody())).contains(body.getArguments().back());
}

/// Whether its terms combine columns, which all rows share along one of the indices `rows`, with rows.
static bool suits(ReduceOp sum, mlir::Region &body, llvm::ArrayRef<unsigned> rows,
                  const std::optional<PlacedSum> &placed = std::nullopt) {
  if (!isPlain(sum, body, placed))
    return false;
  mlir::Value term = sum.getBody().front().back().getOperand(0);
  mlir::BlockArgument column = body.getArguments().back();
  IndexSet indices = dependence(term);
  auto changesWith = [&](unsigned row) { return indices.contains(body.getArgument(row)); };
  return llvm::all_of(rows, changesWith) && hasColumnsInFactors(term, sum, rows, column);
}

static llvm::SmallVector<ReduceOp> sumsOf(DefinitionOpInterface op) {
  llvm::SmallVector<ReduceOp> sums;
  op.walk([&](ReduceOp sum) { sums.push_back(sum); });
  return sums;
}

bool attn::isProduct(DefinitionOpInterface op) {
  mlir::Region &body = op.getBody();
  llvm::SmallVector<ReduceOp> sums = sumsOf(op);
  if (llvm::isa<WeightedSumOp>(op) || body.getNumArguments() == 0 || sums.empty() || choosesSums(body))
    return false;
  unsigned column = body.getNumArguments() - 1;
  if (column == 0)
    return llvm::all_of(sums, [&](ReduceOp sum) { return isPlain(sum, body); });
  return llvm::any_of(llvm::seq(column), [&](unsigned row) {
    return llvm::all_of(sums, [&](ReduceOp sum) { return suits(sum, body, row); });
  });
}

/// Whether `sum` reads columns that change with the index at position `row`.
static bool readsColumnsOf(ReduceOp sum, mlir::Region &body, unsigned row) {
  return llvm::any_of(sum.getBody().getOps<ReadOp>(), [&](ReadOp read) {
    IndexSet indices = dependence(read.getResult());
    return indices.contains(body.getArgument(row)) && indices.contains(body.getArguments().back());
  });
}

/// Whether a block can add what whole tiles of `placed` give: they have one place each. Sums outside of blocks are
/// added in f64 (PlanKind::Scatter).
static bool placesTiles(const PlacedSum &placed, mlir::Operation *statement, unsigned row, unsigned column) {
  if (!placed.conditions.empty() || !readsPairs(statement) || placed.isPlace(row) || placed.isPlace(column))
    return false;
  mlir::Block &body = llvm::cast<DefinitionOpInterface>(statement).getBody().front();
  auto isOfTile = [&](mlir::BlockArgument index) {
    return index == body.getArgument(row) || index == body.getArgument(column) ||
           index == ReduceOp(placed.sum).getWhere().getArguments().back();
  };
  return llvm::none_of(placed.places,
                       [&](const auto &place) { return llvm::any_of(dependence(place.second), isOfTile); });
}

/// Of a register tile. Eight take a little less time a row than seven where all are there, although four of the block's
/// accumulators lie in the cache then; surplus rows take as much as others.
static unsigned rowsOfTile(SizeAttr size, const Machine &machine) {
  if (machine.vectorRegisters < 32)
    return 6;
  return size.isConstant() && llvm::alignTo(size.getValue(), 8) <= llvm::alignTo(size.getValue(), 7) ? 8 : 7;
}

/// Whether what the rows of `op` at position `row` give to its sums is packed: where neighbouring terms lie whole rows
/// apart, all of them may want the same few places of the first cache. Pairs that are stored lie so that they do not.
/// Zen 3, one thread: 2048 x 64 of 2048 terms take 0.45 of the time, 512 x 512 of 512 0.86. Not measured with AVX-512,
/// where there are half as many panels that a pack is read for.
static bool hasRowsApart(DefinitionOpInterface op, llvm::ArrayRef<ReduceOp> sums, unsigned row,
                         const Machine &machine) {
  auto isApart = [&](ReduceOp sum) {
    return llvm::any_of(sum.getBody().getOps<ReadOp>(),
                        [&](ReadOp read) { return isApartRowFactor(read.getResult(), sum, row); });
  };
  return machine.vectorRegisters < 32 && !readsPairs(op) && !PlacedSum::of(op) && llvm::any_of(sums, isApart);
}

/// A plan with tiles of so many rows along the index at position `row`; the sizes are those of `sizes`. A chain's
/// accumulators and its block's, one each for a row and vector, are in registers together where there are 32: 7 x 2
/// twice, 2 vectors of columns and a broadcast row are 31. Of 16 registers, 6 x 2 hold the chain's, and the block's lie
/// in the cache. A chain of 24 terms, 8 of them in a block, blocks in f64 and the last rounding are at most 24 + 7 + 1
/// roundings, 1.91e-6. Measured on Zen 4: 64 tiles for a panel take 96% of the time of 32.
static MatrixPlan planOf(DefinitionOpInterface op, unsigned row, unsigned rows, const Plan &sizes) {
  mlir::Block &body = op.getBody().front();
  MatrixPlan plan;
  plan.statement = op;
  plan.name = op.getName().str();
  plan.rowName = indexName(body.getArgument(row)).str();
  plan.columnName = indexName(body.getArguments().back()).str();
  plan.row = row;
  plan.rows = rows;
  plan.lanes = sizes.lanes;
  plan.tiles = sizes.panelTiles;
  return plan;
}

/// The plan where all factors of `sums` change with the columns, some with one other index and some with another: 6 x 4
/// accumulators load 10 vectors for 24 multiply-adds (Zen 4, 256 rows and terms: 0.78 to 0.92 of the time of 4 x 4; 32
/// rows 1.1); of 16 registers 3 x 3 and what is read of three rows leave three. Eight tiles for a panel are what the
/// second cache holds of 256 terms.
static std::optional<MatrixPlan> planOfTwo(DefinitionOpInterface op, llvm::ArrayRef<ReduceOp> sums,
                                           const Machine &machine, const Plan &sizes) {
  mlir::Region &body = op.getBody();
  unsigned rows = machine.vectorRegisters < 32 ? 3 : 6, secondRows = machine.vectorRegisters < 32 ? 3 : 4;
  auto isEnough = [](mlir::BlockArgument index, unsigned rows) {
    SizeAttr size = indexSize(index);
    return !size.isConstant() || size.getValue() >= rows;
  };
  for (unsigned second = body.getNumArguments() - 1; second-- > 0;)
    for (unsigned row = second; row-- > 0;) {
      auto suitsBoth = [&](ReduceOp sum) {
        return suits(sum, body, {row, second}) && readsColumnsOf(sum, body, row) && readsColumnsOf(sum, body, second);
      };
      if (!isEnough(body.getArgument(row), rows) || !isEnough(body.getArgument(second), secondRows) ||
          !llvm::all_of(sums, suitsBoth))
        continue;
      MatrixPlan plan = planOf(op, row, rows, sizes);
      plan.second = second;
      plan.secondName = indexName(body.getArgument(second)).str();
      plan.secondRows = secondRows;
      plan.vectors = 1;
      plan.tiles = 8;
      return plan;
    }
  return std::nullopt;
}

std::optional<MatrixPlan> MatrixPlan::choose(DefinitionOpInterface op, const Machine &machine, const Plan &sizes) {
  mlir::Region &body = op.getBody();
  if (llvm::isa<WeightedSumOp>(op) || body.getNumArguments() < 2)
    return std::nullopt;
  llvm::SmallVector<ReduceOp> sums = sumsOf(op);
  if (sums.empty() || choosesSums(body))
    return std::nullopt;
  std::optional<PlacedSum> placed = PlacedSum::of(op);
  unsigned rank = body.getNumArguments();
  llvm::ArrayRef<SizeAttr> shape = llvm::cast<AttnTensorType>(op.getDefinedTensor().getType()).getShape();
  // A call may have fewer rows than a tile: the plan has a variant for those where the size is not constant.
  auto planOfRows = [&](auto isEnough) -> std::optional<MatrixPlan> {
    for (unsigned row = rank - 1; row-- > 0;)
      if (isEnough(shape[row]) && (!placed || placesTiles(*placed, op, row, rank - 1)) &&
          llvm::all_of(sums, [&](ReduceOp sum) { return suits(sum, body, row, placed); })) {
        MatrixPlan plan = planOf(op, row, rowsOfTile(shape[row], machine), sizes);
        plan.rowSize = shape[row].isConstant() ? SizeAttr() : shape[row];
        plan.packsRows = hasRowsApart(op, sums, row, machine);
        if (plan.packsRows) // what the second cache holds of some hundred terms
          plan.tiles = std::min(plan.tiles, 16u);
        return plan;
      }
    return std::nullopt;
  };
  auto fillsTile = [&](SizeAttr size) { return !size.isConstant() || size.getValue() >= rowsOfTile(size, machine); };
  std::optional<MatrixPlan> plan = planOfRows(fillsTile);
  if (!plan && !placed)
    plan = planOfTwo(op, sums, machine, sizes);
  return plan ? plan : planOfRows([&](SizeAttr size) { return size.getValue() > fewRows; });
}
