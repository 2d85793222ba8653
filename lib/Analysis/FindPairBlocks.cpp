//===- FindPairBlocks.cpp - Which statements run block by block -----------===//

#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/PairBlocks.h"
#include "attn/Analysis/Scan.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace attn;

namespace attn {
/// Makes the blocks of pairs that are read together.
class PairBlocksFinder {
public:
  /// `statements` define or read these pairs, and no others.
  explicit PairBlocksFinder(ArrayRef<TensorOp> statements) {
    blocks.statements.assign(statements.begin(), statements.end());
  }

  std::optional<PairBlocks> find(bool mayCutKeys);

private:
  void cutWhereRead(TensorOp statement, llvm::SmallBitVector &cut) const;
  void keepWhereSummed(TensorOp statement, llvm::SmallBitVector &cut) const;
  bool name(BlockArgument index, unsigned position);
  bool nameAxes(TensorOp statement);
  bool nameAxesOfReads(Region &region);
  bool hasAllAxes(Block::BlockArgListType indices, Block::BlockArgListType summed) const;
  bool isReadInBlocks(TensorOp statement) const;
  bool readsOwnBlock(TensorOp statement) const;
  bool needsAllKeys(TensorOp statement) const;
  bool isInOrder() const;

  ArrayRef<SizeAttr> shape;
  PairBlocks blocks;
};
} // namespace attn

/// The graph op whose formula `op` is in, or that is `op`.
static Operation *graphOp(Operation *op) {
  while (!isa<KernelOp>(op->getParentOp()))
    op = op->getParentOp();
  return op;
}

/// Whether no sum of the formula that `value` is in has to do with it.
static bool isFree(Value value) {
  bool isFree = true;
  walkFormula(value, [&](Operation *op) { return isFree &= !isa<ReduceOp>(op); });
  return isFree;
}

/// Whether `value` is a sum in its formula or an element of pairs, times or by what has nothing to do with those; or a
/// choice between such, or of 0: it is 0 where pairs are.
static bool isLinear(Value value) {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<arith::MulFOp>(op)) {
    Value lhs = op->getOperand(0), rhs = op->getOperand(1);
    if (isFree(rhs))
      return isLinear(lhs);
    return isFree(lhs) && isLinear(rhs);
  }
  if (isa_and_nonnull<arith::DivFOp>(op))
    return isLinear(op->getOperand(0)) && isFree(op->getOperand(1));
  if (auto choice = dyn_cast_or_null<arith::SelectOp>(op))
    return isFree(choice.getCondition()) && isLinear(choice.getTrueValue()) &&
           (choosesZero(choice) || isLinear(choice.getFalseValue()));
  auto read = dyn_cast_or_null<ReadOp>(op);
  return isa_and_nonnull<ReduceOp>(op) || (read && isPairs(read.getTensor()));
}

/// Leaves in `cut` the positions of pairs at which `statement` reads them by an index variable: its own one there, if
/// it is a tensor of pairs.
void PairBlocksFinder::cutWhereRead(TensorOp statement, llvm::SmallBitVector &cut) const {
  bool ofPairs = isPairs(statement.getResult());
  statement.getBody().walk([&](ReadOp read) {
    if (!isPairs(read.getTensor()))
      return;
    for (auto [position, subscript] : llvm::enumerate(read.getSubscripts())) {
      auto index = dyn_cast<BlockArgument>(subscript);
      bool isIndex = index && isInRange(index, shape[position]) &&
                     (!ofPairs || indexAlong(index, statement) == statement.getBody().getArgument(position));
      if (!isIndex)
        cut.reset(position);
    }
  });
}

/// Takes from `cut` the rows that a sum of `statement` runs through outside of one that it keeps, with the key, if it
/// has several elements for each pair: sums over heads that a pair has columns of would be added to from far apart.
void PairBlocksFinder::keepWhereSummed(TensorOp statement, llvm::SmallBitVector &cut) const {
  auto own = statement.getBody().getArguments();
  auto isOwn = [&](Value index) { return llvm::is_contained(own, index); };
  for (ReduceOp sum : statement.getBody().getOps<ReduceOp>())
    for (ReadOp read : sum.getBody().getOps<ReadOp>()) {
      Operation::operand_range subscripts = read.getSubscripts();
      auto isOfPair = [&](BlockArgument index) { return llvm::is_contained(subscripts, index); };
      if (!isPairs(read.getTensor()) || !isOwn(subscripts.back()) || llvm::all_of(own, isOfPair))
        continue;
      bool keeps = false;
      for (unsigned position = subscripts.size() - 1; position-- > 0;) {
        keeps |= isOwn(subscripts[position]);
        if (keeps && !isOwn(subscripts[position]))
          cut.reset(position);
      }
    }
}

/// Says that `index` is where pairs are read at `position`. False where it is another axis as well.
bool PairBlocksFinder::name(BlockArgument index, unsigned position) {
  auto row = llvm::find(blocks.rows, position);
  if (row == blocks.rows.end() && position + 1 != shape.size())
    return true;
  unsigned axis = row - blocks.rows.begin();
  return blocks.axes.try_emplace(index, axis).first->second == axis;
}

/// Says which axis each index variable of `statement` and its sums runs along. False where it has none, or two.
bool PairBlocksFinder::nameAxes(TensorOp statement) {
  if (isPairs(statement.getResult())) {
    if (std::optional<Scan> scan = Scan::of(statement); scan && scan->isAlongLast())
      for (Region &region : scan->reduce->getRegions())
        name(region.getArgument(0), scan->end.getArgNumber());
    return llvm::all_of(statement.getBody().getArguments(),
                        [&](BlockArgument index) { return name(index, index.getArgNumber()); });
  }
  Value formula = yielded(statement.getBody());
  SmallVector<ReduceOp> sums(statement.getBody().getOps<ReduceOp>());
  bool readsInside =
      statement.getBody()
          .walk([&](ReadOp read) {
            Region *region = read->getParentRegion();
            bool isDirect = region == &statement.getBody() ||
                            llvm::any_of(sums, [&](ReduceOp sum) { return region->getParentOp() == sum; });
            return !isDirect && isPairs(read.getTensor()) ? WalkResult::interrupt() : WalkResult::advance();
          })
          .wasInterrupted();
  if (!isa<FloatType>(formula.getType()) || !isLinear(formula) || readsInside || !nameAxesOfReads(statement.getBody()))
    return false;
  // What has an element for each pair is stored as a whole only where it is returned.
  if (sums.empty())
    return isReturned(statement.getResult()) && hasAllAxes(statement.getBody().getArguments(), {});
  return llvm::all_of(sums, [&](ReduceOp sum) {
    // Blocks leave out the keys at which all pairs are 0.
    if (sum.getKind() != ReduceKind::Sum || !isMultipleOf(sum.getBody().front(), isPairs) ||
        !nameAxesOfReads(sum.getBody()))
      return false;
    if (sum.isConditional()) {
      for (auto [index, inCondition] : llvm::zip_equal(sum.getBody().getArguments(), sum.getWhere().getArguments()))
        if (std::optional<unsigned> axis = blocks.axisOf(index))
          blocks.axes[inCondition] = *axis;
      if (!nameAxesOfReads(sum.getWhere()))
        return false;
    }
    return hasAllAxes(statement.getBody().getArguments(), sum.getBody().getArguments());
  });
}

/// Names the variables by which the formula of `region` reads pairs, itself.
bool PairBlocksFinder::nameAxesOfReads(Region &region) {
  return llvm::all_of(region.getOps<ReadOp>(), [&](ReadOp read) {
    return !isPairs(read.getTensor()) || llvm::all_of(llvm::enumerate(read.getSubscripts()), [&](auto subscript) {
      auto index = dyn_cast<BlockArgument>(subscript.value());
      return !index || name(index, subscript.index());
    });
  });
}

/// Whether there is one variable for each axis.
bool PairBlocksFinder::hasAllAxes(Block::BlockArgListType indices, Block::BlockArgListType summed) const {
  llvm::SmallBitVector found(blocks.rows.size() + 1);
  for (Block::BlockArgListType list : {indices, summed})
    for (BlockArgument index : list)
      if (std::optional<unsigned> axis = blocks.axisOf(index)) {
        if (found.test(*axis))
          return false;
        found.set(*axis);
      }
  return found.all();
}

/// Whether nothing but the statements of these blocks reads the pairs that `statement` defines.
bool PairBlocksFinder::isReadInBlocks(TensorOp statement) const {
  return !isPairs(statement.getResult()) || llvm::all_of(statement.getResult().getUsers(), [&](Operation *user) {
    return blocks.contains(graphOp(user));
  });
}

/// Whether `statement` reads what other statements have for rows at the rows of its own block: not at the one before.
bool PairBlocksFinder::readsOwnBlock(TensorOp statement) const {
  auto isOwn = [&](ReadOp read) {
    auto source = read.getTensor().getDefiningOp<TensorOp>();
    if (!source || isPairs(source.getResult()) || !blocks.contains(source))
      return true;
    return llvm::all_of(llvm::zip_equal(blocks.axesOf(source), read.getSubscripts()), [&](auto dimension) {
      auto [axis, subscript] = dimension;
      auto index = dyn_cast<BlockArgument>(subscript);
      return !axis || (index && blocks.axisOf(index) == axis);
    });
  };
  return !statement.getBody()
              .walk([&](ReadOp read) { return isOwn(read) ? WalkResult::advance() : WalkResult::interrupt(); })
              .wasInterrupted();
}

/// Whether every statement reads, of what depends on these statements, only what its own block has.
bool PairBlocksFinder::isInOrder() const {
  llvm::DenseSet<Value> late;
  for (Operation &op : *blocks.statements.front()->getBlock()) {
    bool isOurs = blocks.contains(&op), readsLate = uses(&op, [&](Value operand) { return late.contains(operand); });
    bool readsOurs =
        uses(&op, [&](Value operand) { return operand.getDefiningOp() && blocks.contains(operand.getDefiningOp()); });
    if (isOurs && readsLate)
      return false;
    if (isOurs ? !isPairs(op.getResult(0)) && blocks.isAdded(cast<TensorOp>(op)) : readsLate || readsOurs)
      late.insert(op.result_begin(), op.result_end());
  }
  return true;
}

/// Whether an element of pairs, which `statement` defines, is made of those of other keys.
bool PairBlocksFinder::needsAllKeys(TensorOp statement) const {
  if (!isPairs(statement.getResult()))
    return false;
  std::optional<Scan> scan = Scan::of(statement);
  BlockArgument key = statement.getBody().getArguments().back();
  auto isOfKey = [&](ReadOp read) { return !isPairs(read.getTensor()) || read.getSubscripts().back() == key; };
  return (scan && scan->isAlongLast()) ||
         statement.getBody()
             .walk([&](ReadOp read) { return isOfKey(read) ? WalkResult::advance() : WalkResult::interrupt(); })
             .wasInterrupted();
}

std::optional<PairBlocks> PairBlocksFinder::find(bool mayCutKeys) {
  shape = llvm::cast<TensorOp>(blocks.indices().front().getOwner()->getParentOp()).getResult().getType().getShape();
  llvm::SmallBitVector cut(shape.size(), true);
  for (TensorOp statement : blocks.statements) {
    if (isPairs(statement.getResult()) && statement.getResult().getType().getShape() != shape)
      return std::nullopt;
    cutWhereRead(statement, cut);
    keepWhereSummed(statement, cut);
  }
  for (unsigned position = 0; position + 1 < shape.size(); ++position)
    if (cut.test(position))
      blocks.rows.push_back(position);
  bool isCut = cut.test(shape.size() - 1) && !blocks.rows.empty();
  bool isValid = isCut && llvm::all_of(blocks.statements, [&](TensorOp statement) {
                   return nameAxes(statement) && isReadInBlocks(statement);
                 });
  // Once all have named their axes.
  isValid = isValid && llvm::all_of(blocks.statements, [&](TensorOp statement) { return readsOwnBlock(statement); });
  if (!isValid)
    return std::nullopt;
  auto needsAll = [&](TensorOp statement) { return needsAllKeys(statement); };
  blocks.cutsKeys = mayCutKeys && llvm::none_of(blocks.statements, needsAll);
  if (blocks.cutsKeys && !isInOrder()) // some statement reads what others have added up of a row
    blocks.cutsKeys = false;
  return isInOrder() ? std::optional(std::move(blocks)) : std::nullopt;
}

SmallVector<PairBlocks> attn::findPairBlocks(KernelOp kernel, bool mayCutKeys) {
  // Pairs that some statement has to do with together.
  llvm::EquivalenceClasses<Value> together;
  SmallVector<std::pair<TensorOp, Value>> statements; // and one of their pairs
  for (TensorOp tensor : kernel.getBody().front().getOps<TensorOp>()) {
    SmallVector<Value> pairs;
    if (isPairs(tensor.getResult()))
      pairs.push_back(tensor.getResult());
    tensor.getBody().walk([&](ReadOp read) {
      if (isPairs(read.getTensor()))
        pairs.push_back(read.getTensor());
    });
    for (Value each : pairs)
      together.unionSets(pairs.front(), each);
    if (!pairs.empty())
      statements.push_back({tensor, pairs.front()});
  }
  llvm::MapVector<Value, SmallVector<TensorOp>> groups;
  for (auto [statement, pairs] : statements)
    groups[together.getLeaderValue(pairs)].push_back(statement);
  SmallVector<PairBlocks> found;
  for (auto &[pairs, group] : groups)
    if (std::optional<PairBlocks> blocks = PairBlocksFinder(group).find(mayCutKeys)) {
      found.push_back(std::move(*blocks));
      if (!orderWithBlocks(kernel, found)) // each waits for the other
        found.pop_back();
    }
  return found;
}

bool attn::arePairsInBlocks(KernelOp kernel) {
  SmallVector<PairBlocks> blocks = findPairBlocks(kernel);
  return llvm::all_of(kernel.getBody().front().getOps<TensorOp>(), [&](TensorOp tensor) {
    return !isPairs(tensor.getResult()) ||
           llvm::any_of(blocks, [&](const PairBlocks &each) { return each.contains(tensor); });
  });
}

std::optional<SmallVector<Operation *>> attn::orderWithBlocks(KernelOp kernel, ArrayRef<PairBlocks> blocks) {
  // What is placed at once: the statements of a block, where the last of them stands, or an op.
  SmallVector<SmallVector<Operation *>> left;
  for (Operation &op : kernel.getBody().front()) {
    auto block = llvm::find_if(blocks, [&](const PairBlocks &each) { return each.contains(&op); });
    if (block == blocks.end())
      left.push_back({&op});
    else if (block->statements.back() == &op)
      left.emplace_back(block->statements.begin(), block->statements.end());
  }
  SmallVector<Operation *> order;
  while (!left.empty()) {
    llvm::DenseSet<Operation *> unplaced;
    for (const SmallVector<Operation *> &each : left)
      unplaced.insert_range(each);
    auto next = llvm::find_if(left, [&](const SmallVector<Operation *> &each) {
      return llvm::none_of(each, [&](Operation *op) {
        return uses(op, [&](Value operand) {
          return unplaced.contains(operand.getDefiningOp()) && !llvm::is_contained(each, operand.getDefiningOp());
        });
      });
    });
    if (next == left.end())
      return std::nullopt;
    order.append(*next);
    left.erase(next);
  }
  return order;
}
