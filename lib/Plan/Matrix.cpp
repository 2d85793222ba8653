//===- Matrix.cpp - Which statements take the matrix plan ------------------===//

#include "attn/Plan/Plan.h"
#include "attn/Analysis/Dependence.h"

using namespace attn;

bool attn::isColumnFactor(mlir::Value value, ReduceOp sum, unsigned row) {
  auto &body = llvm::cast<DefinitionOpInterface>(sum->getParentOp()).getBody();
  if (!llvm::isa<mlir::FloatType>(value.getType()))
    return false;
  IndexSet indices = dependence(value);
  return indices.contains(body.getArguments().back()) && !indices.contains(body.getArgument(row)) &&
         llvm::any_of(sum.getBody().getArguments(), [&](mlir::BlockArgument index) { return indices.contains(index); });
}

/// Whether a term of `sum` is made of something that depends on the column and not on `row`, and something else.
static bool hasColumnFactor(mlir::Value term, ReduceOp sum, unsigned row) {
  if (isColumnFactor(term, sum, row))
    return true;
  mlir::Operation *op = term.getDefiningOp();
  if (!op || llvm::isa<ReadOp>(op))
    return false;
  return llvm::any_of(op->getOperands(), [&](mlir::Value operand) { return hasColumnFactor(operand, sum, row); });
}

/// All values of the column that a term reads for one row are column factors.
static bool readsColumnsInFactors(mlir::Value term, ReduceOp sum, unsigned row, mlir::BlockArgument column) {
  if (!dependence(term).contains(column) || isColumnFactor(term, sum, row))
    return true;
  mlir::Operation *op = term.getDefiningOp();
  if (!op || llvm::isa<ReadOp>(op))
    return false;
  return llvm::all_of(op->getOperands(), [&](mlir::Value operand) { return readsColumnsInFactors(operand, sum, row, column); });
}

static bool suits(ReduceOp sum, mlir::Region &body, unsigned row) {
  if (sum.getKind() != ReduceKind::Sum || !llvm::isa<mlir::FloatType>(sum.getType()) || sum->getParentRegion() != &body)
    return false;
  bool nested = false;
  sum.walk([&](ReduceOp inner) { nested |= inner != sum; });
  mlir::Value term = sum.getBody().front().back().getOperand(0);
  IndexSet indices = dependence(term);
  return !nested && !sum.isConditional() && indices.contains(body.getArgument(row)) &&
         hasColumnFactor(term, sum, row) &&
         readsColumnsInFactors(term, sum, row, body.getArguments().back());
}

std::optional<MatrixPlan> MatrixPlan::choose(DefinitionOpInterface op, const Machine &machine, unsigned lanes) {
  mlir::Region &body = op.getBody();
  if (llvm::isa<WeightedSumOp>(op) || body.getNumArguments() < 2)
    return std::nullopt;
  llvm::SmallVector<ReduceOp> sums;
  op.walk([&](ReduceOp sum) { sums.push_back(sum); });
  if (sums.empty())
    return std::nullopt;
  unsigned rank = body.getNumArguments();
  for (unsigned row = rank - 1; row-- > 0;)
    if (llvm::all_of(sums, [&](ReduceOp sum) { return suits(sum, body, row); })) {
      MatrixPlan plan;
      plan.statement = op;
      plan.name = op.getName().str();
      plan.row = row;
      plan.rowName = indexName(body.getArgument(row)).str();
      plan.columnName = indexName(body.getArguments().back()).str();
      plan.lanes = lanes;
      plan.rows = machine.vectorRegisters >= 32 ? 7 : 6;
      plan.vectors = 2;
      if (const char *text = getenv("MM")) sscanf(text, "%ux%u,%u,%u,%u", &plan.rows, &plan.vectors, &plan.tiles, &plan.chain, &plan.block);
      return plan;
    }
  return std::nullopt;
}
