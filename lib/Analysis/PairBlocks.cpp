//===- PairBlocks.cpp - Pairs that are stored for some rows at a time -----===//

#include "attn/Analysis/PairBlocks.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace attn;

bool attn::isPairs(Value tensor) {
  Operation *op = tensor.getDefiningOp();
  return op && op->hasAttr(TensorOp::pairsName);
}

bool attn::readsPairs(Operation *statement) {
  return statement
      ->walk([](ReadOp read) { return isPairs(read.getTensor()) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

bool attn::choosesZero(arith::SelectOp choice) { return matchPattern(choice.getFalseValue(), m_PosZeroFloat()); }

Value attn::maskOf(TensorOp tensor) {
  Value formula = yielded(tensor.getBody());
  auto choice = formula.getDefiningOp<arith::SelectOp>();
  return choice && choosesZero(choice) ? choice.getCondition() : Value();
}

bool attn::isMultipleOf(Block &formula, llvm::function_ref<bool(Value)> contains) {
  llvm::DenseSet<Value> multiples;
  auto is = [&](Value value) { return multiples.contains(value); };
  for (Operation &op : formula) {
    bool isMultiple = false;
    if (auto read = dyn_cast<ReadOp>(op))
      isMultiple = contains(read.getTensor());
    else if (isa<arith::MulFOp>(op))
      isMultiple = llvm::any_of(op.getOperands(), is);
    else if (isa<arith::AddFOp, arith::SubFOp>(op))
      isMultiple = llvm::all_of(op.getOperands(), is);
    else if (auto choice = dyn_cast<arith::SelectOp>(op))
      isMultiple = is(choice.getTrueValue()) && (choosesZero(choice) || is(choice.getFalseValue()));
    else if (isa<arith::DivFOp, arith::NegFOp, math::AbsFOp, DropoutOp>(op))
      isMultiple = is(op.getOperand(0));
    if (isMultiple)
      multiples.insert(op.getResult(0));
  }
  return is(formula.getTerminator()->getOperand(0));
}

Block::BlockArgListType PairBlocks::indices() const {
  TensorOp pairs = *llvm::find_if(statements, [](TensorOp statement) { return isPairs(statement.getResult()); });
  return pairs.getBody().getArguments();
}

std::optional<unsigned> PairBlocks::axisOf(BlockArgument index) const {
  auto found = axes.find(index);
  return found == axes.end() ? std::nullopt : std::optional(found->second);
}

SmallVector<std::optional<unsigned>> PairBlocks::axesOf(TensorOp statement) const {
  return llvm::map_to_vector(statement.getBody().getArguments(), [&](BlockArgument index) { return axisOf(index); });
}

bool PairBlocks::isAdded(TensorOp statement) const {
  SmallVector<std::optional<unsigned>> found = axesOf(statement);
  return !llvm::all_of(llvm::seq<unsigned>(rows.size() + cutsKeys),
                       [&](unsigned axis) { return llvm::is_contained(found, std::optional(axis)); });
}

std::string PairBlocks::str() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "blocks of ";
  llvm::ListSeparator comma;
  for (unsigned position : rows)
    os << comma << indexName(indices()[position]);
  if (cutsKeys)
    os << comma << indexName(indices().back());
  os << ": ";
  llvm::ListSeparator next;
  for (TensorOp statement : statements)
    os << next << statement.getName()
       << (isPairs(statement.getResult()) ? " stored"
           : isAdded(statement)           ? " added"
                                          : "");
  return text;
}
