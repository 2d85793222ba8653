//===- Pattern.cpp - Attention among a kernel's statements ----------------===//

#include "Pattern.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Fusion.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace attn;
using namespace attn::cuda;

//===----------------------------------------------------------------------===//
// What an attention is made of
//===----------------------------------------------------------------------===//

llvm::SmallVector<mlir::Value> Attention::tensors() {
  llvm::SmallVector<mlir::Value> all(inputs);
  all.push_back(sum.getResult());
  if (logSumExp())
    all.push_back(logSumExp());
  return all;
}

mlir::Value Attention::logSumExp() {
  mlir::Value value = softmax.getLogsumexp();
  return value.use_empty() ? mlir::Value() : value;
}

mlir::Type Attention::elementOf(mlir::Value tensor) {
  if (tensor.getDefiningOp() && tensor.hasOneUse())
    if (auto returned = mlir::dyn_cast<ReturnOp>(*tensor.user_begin()))
      return returned.getOutputType(tensor.use_begin()->getOperandNumber()).getElementType();
  return mlir::cast<AttnTensorType>(tensor.getType()).getElementType();
}

bool Attention::isValue(mlir::Value tensor) {
  return mlir::isa<mlir::BlockArgument>(tensor) && mlir::cast<AttnTensorType>(tensor.getType()).getRank() == 0;
}

mlir::BlockArgument Attention::queryIndex() {
  bool hasQuery = static_cast<int64_t>(sum.getQuery()) >= 0 && !hasValuesOfPairs(sum);
  return hasQuery ? sum.getBody().getArgument(sum.getQuery()) : mlir::BlockArgument();
}

SizeAttr Attention::querySize() {
  return queryIndex() ? indexSize(queryIndex()) : SizeAttr::constant(kernel.getContext(), 1);
}

mlir::BlockArgument Attention::keyIndex() { return sum.getBody().getArguments().back(); }

mlir::BlockArgument Attention::columnIndex() { return sum.getBody().getArguments().drop_back().back(); }

SizeAttr Attention::dotSize() { return dots.front().getSize(0); }
SizeAttr Attention::valueSize() { return indexSize(columnIndex()); }

bool Attention::dependsOn(mlir::Value value, mlir::BlockArgument own) {
  return own && llvm::any_of(dependence(value), [&](mlir::Value index) { return indices.lookup(index) == own; });
}

bool Attention::isGroup(mlir::Value value) {
  auto division = sharing && sharing->group ? value.getDefiningOp<FloorDivOp>() : FloorDivOp();
  return division && indices.lookup(division.getLhs()) == sharing->index && sizeOf(division.getRhs()) == sharing->group;
}

bool Attention::isOfRow(mlir::BlockArgument own) { return own == queryIndex() || (sharing && own == sharing->index); }

bool Attention::changesAtPairs(mlir::Value value) {
  return dependsOn(value, keyIndex()) || dependsOn(value, queryIndex());
}

bool Attention::readsAtPairs() {
  bool found = false;
  for (mlir::Value tensor : {softmax.getScore(), softmax.getMask()})
    if (tensor)
      for (ReadOp read : bodyOf(tensor).getOps<ReadOp>())
        found |= changesAtPairs(read.getResult());
  return found;
}

bool Attention::isScaledProduct() {
  mlir::Value rest = score();
  while (mlir::isa_and_nonnull<mlir::arith::MulFOp, mlir::arith::DivFOp>(rest.getDefiningOp())) {
    mlir::Operation *op = rest.getDefiningOp();
    if (!changesAtPairs(op->getOperand(1)))
      rest = op->getOperand(0);
    else if (mlir::isa<mlir::arith::MulFOp>(op) && !changesAtPairs(op->getOperand(0)))
      rest = op->getOperand(1);
    else
      return false;
  }
  return rest == dots.front().getResult();
}

ElementFormulas Attention::formulas() {
  if (readsAtPairs())
    return ElementFormulas::Reads;
  bool divides = mask() && llvm::any_of(bodyOf(softmax.getMask()).getOps(),
                                        [](mlir::Operation &op) { return mlir::isa<FloorDivOp, ModOp>(op); });
  // One query has few rows: smaller tiles are as good for it. A log-sum-exp has rows of its own, too.
  bool isMore = divides || sink() || logSumExp() || !queryIndex();
  return isMore || !isScaledProduct() ? ElementFormulas::Arithmetic : ElementFormulas::Comparisons;
}

mlir::Value Attention::score() { return yielded(bodyOf(softmax.getScore())); }

mlir::Value Attention::mask() {
  mlir::Value mask = softmax.getMask();
  return mask ? yielded(bodyOf(mask)) : mlir::Value();
}

mlir::Value Attention::sink() {
  mlir::Value sink = softmax.getSink();
  return sink ? yielded(bodyOf(sink)) : mlir::Value();
}

//===----------------------------------------------------------------------===//
// Recognition
//===----------------------------------------------------------------------===//

namespace {
class Recognition {
public:
  Recognition(KernelOp kernel, WeightedSumOp sum) {
    attention.kernel = kernel;
    attention.sum = sum;
  }

  llvm::Expected<Attention> run() {
    for (auto step : {&Recognition::findWeight, &Recognition::findSoftmax, &Recognition::findDot,
                      &Recognition::findValue, &Recognition::findInputs})
      if (std::string problem = (this->*step)(); !problem.empty())
        return llvm::createStringError(problem);
    for (const SharedKeys &shared : sharedKeys(attention.sum))
      if (shared.index != attention.queryIndex() && shared.sharesRange)
        attention.sharing = shared;
    return attention;
  }

private:
  std::string findWeight() {
    std::string name = attention.sum.getName().str();
    attention.weight = softmaxWeight(attention.sum);
    if (!attention.weight)
      return "the weights of '" + name + "' are not those of one softmax";
    attention.softmax = softmaxOf(attention.sum);
    for (mlir::Value output : {mlir::Value(attention.sum.getResult()), attention.logSumExp()})
      if (mlir::Type element = output ? attention.elementOf(output) : mlir::Type();
          element && !element.isF32() && !element.isF16() && !element.isBF16())
        return "'" + tensorName(output) + "' is not f32, f16 or bf16";
    return {};
  }

  std::string findSoftmax() {
    mlir::Region &body = attention.sum.getBody();
    for (mlir::BlockArgument index : body.getArguments())
      attention.indices[index] = index;
    if (!attention.sum.getWhere().empty())
      for (auto [index, own] : llvm::zip(attention.sum.getWhere().getArguments(), body.getArguments()))
        attention.indices[index] = own;
    llvm::SmallVector<mlir::BlockArgument> at;
    for (mlir::Value subscript : attention.weight.getSubscripts()) {
      auto index = mlir::dyn_cast<mlir::BlockArgument>(subscript);
      if (!index || (index == attention.keyIndex()) != (subscript == attention.weight.getSubscripts().back()) ||
          llvm::is_contained(at, index))
        return "the weight is not read at the indices of '" + attention.sum.getName().str() + "'";
      at.push_back(index);
    }
    if (attention.queryIndex() && !llvm::is_contained(at, attention.queryIndex()))
      return "the weight does not depend on the query index";
    for (mlir::Value tensor : {attention.softmax.getScore(), attention.softmax.getMask(), attention.softmax.getSink()})
      if (tensor)
        for (auto [index, own] : llvm::zip(bodyOf(tensor).getArguments(), at))
          attention.indices[index] = own;
    return {};
  }

  /// Whether two values of formulas are the same, index by index; `same` has pairs of index variables that are.
  bool isSame(mlir::Value a, mlir::Value b, llvm::DenseMap<mlir::Value, mlir::Value> &same) {
    if (a == b || same.lookup(a) == b)
      return true;
    if (mlir::isa<mlir::BlockArgument>(a) || mlir::isa<mlir::BlockArgument>(b))
      return attention.indices.contains(a) && attention.indices.lookup(a) == attention.indices.lookup(b);
    mlir::Operation *x = a.getDefiningOp(), *y = b.getDefiningOp();
    return x->getName() == y->getName() && x->getAttrDictionary() == y->getAttrDictionary() &&
           x->getNumRegions() == 0 && x->getNumOperands() == y->getNumOperands() &&
           llvm::all_of(llvm::zip(x->getOperands(), y->getOperands()),
                        [&](auto pair) { return isSame(std::get<0>(pair), std::get<1>(pair), same); });
  }

  bool isSame(ReduceOp a, ReduceOp b) {
    if (a.getSizes() != b.getSizes() || b.getKind() != ReduceKind::Sum || b.isConditional())
      return false;
    llvm::DenseMap<mlir::Value, mlir::Value> same;
    for (auto [x, y] : llvm::zip(a.getBody().getArguments(), b.getBody().getArguments()))
      same[x] = y;
    return isSame(yielded(a.getBody()), yielded(b.getBody()), same);
  }

  std::string findDot() {
    llvm::SmallVector<ReduceOp> all;
    llvm::append_range(all, bodyOf(attention.softmax.getScore()).getOps<ReduceOp>());
    if (all.empty())
      return "the score has no dot product";
    if (mlir::Value mask = attention.softmax.getMask())
      llvm::append_range(all, bodyOf(mask).getOps<ReduceOp>());
    ReduceOp dot = all.front();
    if (dot.getKind() != ReduceKind::Sum || dot.getIndices().size() != 1 || dot.isConditional())
      return "the score's reduction is not a sum over one index without a condition";
    auto product = yielded(dot.getBody()).getDefiningOp<mlir::arith::MulFOp>();
    attention.query = product ? product.getLhs().getDefiningOp<ReadOp>() : ReadOp();
    attention.key = product ? product.getRhs().getDefiningOp<ReadOp>() : ReadOp();
    if (!attention.query || !attention.key)
      return "the score's sum is not one of products of two tensors' elements";
    if (attention.dependsOn(attention.query, attention.keyIndex()))
      std::swap(attention.query, attention.key);
    if (attention.dependsOn(attention.query, attention.keyIndex()) ||
        attention.dependsOn(attention.key, attention.queryIndex()) ||
        !attention.dependsOn(attention.key, attention.keyIndex()))
      return "the score's sum is not one of products of a query's and a key's elements";
    for (ReadOp read : {attention.query, attention.key})
      if (std::string problem = checkRow(read, dot.getBody().getArgument(0)); !problem.empty())
        return problem;
    if (elementOf(attention.query) != elementOf(attention.key))
      return "queries and keys have different types";
    for (ReduceOp other : llvm::ArrayRef(all).drop_front())
      if (!isSame(dot, other))
        return "the score or its mask has a second sum";
    attention.dots = all;
    return {};
  }

  std::string findValue() {
    mlir::Value value = yielded(attention.sum.getBody(), 1);
    attention.value = value.getDefiningOp<ReadOp>();
    if (!attention.value)
      return "the values are not a tensor's elements";
    if (attention.dependsOn(value, attention.queryIndex()))
      return "the values depend on the query";
    return checkRow(attention.value, attention.columnIndex());
  }

  static mlir::Type elementOf(ReadOp read) { return read.getTensor().getType().getElementType(); }

  /// `read` goes along the rows of a tensor of 16-bit floats.
  std::string checkRow(ReadOp read, mlir::BlockArgument column) {
    std::string name = tensorName(read.getTensor());
    if (!elementOf(read).isF16() && !elementOf(read).isBF16())
      return "'" + name + "' is not f16 or bf16";
    if (read.getSubscripts().empty() || read.getSubscripts().back() != column || !isInRange(column, lastSize(read)))
      return "'" + name + "' is not read along its last dimension";
    for (mlir::Value subscript : read.getSubscripts().drop_back())
      if (dependence(subscript).contains(column))
        return "'" + name + "' has two subscripts that depend on its column";
    return {};
  }

  static SizeAttr lastSize(ReadOp read) { return read.getTensor().getType().getShape().back(); }

  /// Nothing that is read is computed by the attention itself, and no formula has a sum of its own.
  std::string findInputs() {
    std::string problem;
    llvm::SetVector<mlir::Value> inputs;
    auto visit = [&](mlir::Operation *owner) {
      owner->walk([&](mlir::Operation *op) {
        auto read = mlir::dyn_cast<ReadOp>(op);
        if (read && read != attention.weight && read.getTensor().getDefiningOp() == attention.softmax)
          problem = "'" + tensorName(read.getTensor()) + "' is read beside the weight";
        else if (read && read != attention.weight)
          inputs.insert(read.getTensor());
        if (auto reduce = mlir::dyn_cast<ReduceOp>(op); reduce && !llvm::is_contained(attention.dots, reduce))
          problem = "a formula beside the score has a sum";
      });
    };
    for (mlir::Value tensor : {attention.softmax.getScore(), attention.softmax.getMask(), attention.softmax.getSink()})
      if (tensor)
        visit(tensor.getDefiningOp());
    visit(attention.sum);
    for (mlir::Value parameter : attention.kernel.getParameters())
      if (inputs.remove(parameter))
        attention.inputs.push_back(parameter);
    llvm::append_range(attention.inputs, inputs);
    return problem;
  }

  Attention attention;
};
} // namespace

llvm::Expected<Attention> cuda::recognise(KernelOp kernel) {
  std::string problem = "no statement is a weighted sum";
  bool isFirst = true;
  for (WeightedSumOp sum : kernel.getOps<WeightedSumOp>()) {
    llvm::Expected<Attention> found = Recognition(kernel, sum).run();
    if (found)
      return found;
    std::string text = llvm::toString(found.takeError());
    if (std::exchange(isFirst, false))
      problem = text;
  }
  return llvm::createStringError(problem);
}
