//===- CutSizes.cpp - Sizes along which a call is several calls ------------===//

#include "attn/Analysis/CutSizes.h"

using namespace mlir;
using namespace attn;

static AttnTensorType typeOf(Value tensor) { return cast<AttnTensorType>(tensor.getType()); }

std::optional<unsigned> attn::dimensionOf(StringAttr size, Value tensor) {
  ArrayRef<SizeAttr> shape = typeOf(tensor).getShape();
  const auto *found = llvm::find_if(shape, [&](SizeAttr each) { return each.isName() && each.getName() == size; });
  return found == shape.end() ? std::nullopt : std::optional<unsigned>(found - shape.begin());
}

namespace {
/// One size of a kernel.
class Cut {
public:
  Cut(KernelOp kernel, StringAttr name) : kernel(kernel), name(name) {}

  bool isPossible(ArrayRef<Value> stored) {
    auto hasIt = [&](Value tensor) { return dimension(tensor).has_value(); };
    auto isPlain = [&](Value tensor) { return isPlainIn(typeOf(tensor)); };
    return llvm::all_of(kernel.getParameters(), isPlain) && llvm::all_of(kernel.getReturn().getOutputs(), hasIt) &&
           llvm::all_of(stored, hasIt) &&
           llvm::all_of(kernel.getBody().front().without_terminator(),
                        [&](Operation &op) { return llvm::all_of(op.getResults(), isPlain) && isApart(op); });
  }

  bool isOfRows() {
    bool found = false;
    auto look = [&](Value tensor) {
      std::optional<unsigned> position = dimension(tensor);
      found |= position && *position + 2 >= typeOf(tensor).getRank();
    };
    llvm::for_each(kernel.getParameters(), look);
    for (Operation &op : kernel.getBody().front())
      llvm::for_each(op.getResults(), look);
    return found;
  }

private:
  bool isIn(SizeAttr size) const {
    bool found = false;
    size.forEachName([&](StringAttr each) { found |= each == name; });
    return found;
  }
  std::optional<unsigned> dimension(Value tensor) const { return dimensionOf(name, tensor); }

  /// Whether at most one dimension has to do with the size, and is the size itself.
  bool isPlainIn(AttnTensorType type) const {
    return llvm::count_if(type.getShape(), [&](SizeAttr size) { return isIn(size); }) <= 1 &&
           llvm::none_of(type.getShape(), [&](SizeAttr size) { return isIn(size) && !size.isName(); });
  }

  /// Whether `op` makes each of its elements of those at the same index, and parts compute nothing twice.
  bool isApart(Operation &op) const {
    if (auto softmax = dyn_cast<SoftmaxOp>(op))
      return !isIn(typeOf(softmax.getScore()).getShape().back());
    auto statement = dyn_cast<DefinitionOpInterface>(op);
    auto sum = dyn_cast<WeightedSumOp>(op);
    if (!statement || (sum && isIn(sum.getKeySize())))
      return false;
    std::optional<unsigned> own = dimension(statement.getDefinedTensor());
    unsigned rank = typeOf(statement.getDefinedTensor()).getRank();
    if (own && rank > 1 && *own + 1 == rank && (sum || !statement.getBody().getOps<ReduceOp>().empty()))
      return false; // columns of a sum: what its terms take from the rows would be computed for each part
    return llvm::all_of(op.getRegions(), [&](Region &region) {
      Value index = own && !region.empty() ? region.getArgument(*own) : Value();
      return !region
                  .walk([&](Operation *inner) {
                    return readsAt(inner, index) ? WalkResult::advance() : WalkResult::interrupt();
                  })
                  .wasInterrupted();
    });
  }

  /// Whether `op`, in a formula, uses `index` (null: there is none) as a subscript of this size alone, and nothing else
  /// that has to do with the size.
  bool readsAt(Operation *op, Value index) const {
    if (auto size = dyn_cast<SizeOp>(op))
      return !isIn(size.getSize());
    if (auto reduce = dyn_cast<ReduceOp>(op))
      return llvm::none_of(reduce.getSizes().getAsRange<SizeAttr>(), [&](SizeAttr size) { return isIn(size); });
    auto read = dyn_cast<ReadOp>(op);
    std::optional<unsigned> position = read ? dimension(read.getTensor()) : std::nullopt;
    if (position && (!index || read.getSubscripts()[*position] != index))
      return false;
    unsigned uses = llvm::count(op->getOperands(), index);
    return uses == (position ? 1 : 0);
  }

  KernelOp kernel;
  StringAttr name;
};
} // namespace

SmallVector<CutSize> attn::findCutSizes(KernelOp kernel, ArrayRef<Value> stored) {
  SmallVector<CutSize> found;
  for (StringAttr name : kernel.getSizeNames())
    if (Cut cut(kernel, name); cut.isPossible(stored))
      found.push_back({name, cut.isOfRows()});
  return found;
}
