//===- Backward.cpp - From a kernel to its gradients ----------------------===//

#include "Backward.h"
#include "Form.h"
#include "Formula.h"
#include "Scores.h"
#include "Statement.h"
#include "Unnormalised.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

bool attn::hasGradient(Value tensor) {
  auto statement = tensor.getDefiningOp<TensorOp>();
  return isa<FloatType>(cast<AttnTensorType>(tensor.getType()).getElementType()) &&
         !(statement && statement->hasAttr(TensorOp::shiftName));
}

Backward::Backward(KernelOp kernel, ArrayRef<StringRef> inputs)
    : kernel(kernel), builder(kernel.getReturn()), inputs(inputs), computeType(builder.getF32Type()) {
  for (BlockArgument parameter : kernel.getParameters()) {
    names.push_back(kernel.getParameterName(parameter.getArgNumber()).str());
    if (cast<AttnTensorType>(parameter.getType()).getElementType().isF64())
      computeType = builder.getF64Type();
  }
  for (unsigned index = 0; index < kernel.getReturn().getNumOperands(); ++index)
    outputNames.push_back(kernel.getReturn().getOutputName(index).str());
}

std::string Backward::nameOf(Value tensor) {
  if (auto parameter = dyn_cast<BlockArgument>(tensor))
    return names[parameter.getArgNumber()];
  return cast<TensorOp>(tensor.getDefiningOp()).getName().str();
}

bool Backward::isActive(SoftmaxGroup &group) {
  return active.contains(group.score.getResult()) || (group.sink && active.contains(group.sink.getResult()));
}

void Backward::findActive() {
  for (BlockArgument parameter : kernel.getParameters())
    if (llvm::is_contained(inputs, names[parameter.getArgNumber()]))
      active.insert(parameter);
  for (TensorOp tensor : kernel.getBody().front().getOps<TensorOp>()) {
    for (SoftmaxGroup &group : groups)
      if (group.weight == tensor && isActive(group))
        active.insert(group.logSumExp);
    bool reads = false;
    tensor.getBody().walk([&](ReadOp read) { reads |= active.contains(read.getTensor()); });
    if (reads && hasGradient(tensor.getResult()))
      active.insert(tensor.getResult());
    markPairs(tensor);
  }
}

/// What is computed from a pair of query and key alone is one too, and has its mask where it is a multiple.
void Backward::markPairs(TensorOp tensor) {
  Block &body = tensor.getBody().front();
  for (ReadOp read : body.getOps<ReadOp>()) {
    if (!facts.pairs.contains(read.getTensor()) || body.getNumArguments() == 0 ||
        read.getSubscripts().back() != body.getArguments().back())
      continue;
    facts.pairs.insert(tensor.getResult());
    Value mask = facts.masks.lookup(read.getTensor());
    bool same = llvm::equal(read.getSubscripts(), body.getArguments());
    if (mask && same && isMultipleOf(yielded(tensor.getBody()), read))
      facts.masks[tensor.getResult()] = mask;
  }
}

void Backward::addOutputGradients() {
  firstGradient = names.size();
  ReturnOp returned = kernel.getReturn();
  for (auto [index, output] : llvm::enumerate(returned.getOutputs())) {
    if (!hasGradient(output))
      continue;
    std::string name = freshName(kernel, "grad_" + outputNames[index]);
    Value gradient = kernel.getBody().front().addArgument(returned.getOutputType(index), returned.getLoc());
    names.push_back(name);
    if (active.contains(output))
      parts[output].push_back({gradient, {}});
  }
}

/// An element in the type that gradients are computed in.
Value Backward::readWide(OpBuilder &builder, Value tensor, ValueRange subscripts) {
  Value element = ReadOp::create(builder, tensor.getLoc(), tensor, subscripts);
  if (element.getType() == computeType)
    return element;
  if (element.getType().isF64()) // an output that is declared as one
    return arith::TruncFOp::create(builder, tensor.getLoc(), computeType, element);
  return arith::ExtFOp::create(builder, tensor.getLoc(), computeType, element);
}

/// The gradient of a tensor, all of whose readers have been differentiated; null where nothing returned depends on it.
Value Backward::gradientOf(Value tensor) {
  if (Value known = gradients.lookup(tensor))
    return known;
  SmallVector<Part> added = parts.lookup(tensor);
  if (added.empty())
    return {};
  std::string name = "grad_" + nameOf(tensor);
  if (added.size() == 1) {
    if (auto only = added.front().tensor.getDefiningOp<TensorOp>(); only && only.getName() != name)
      only.setName(freshName(kernel, name));
    return gradients[tensor] = added.front().tensor;
  }
  Statement sum{freshName(kernel, name), {}, {}, computeType, nullptr};
  auto type = cast<AttnTensorType>(tensor.getType());
  TensorOp like = tensor.getDefiningOp<TensorOp>();
  for (unsigned dimension = 0; dimension < type.getRank(); ++dimension)
    sum.axes.push_back({like ? indexName(like.getBody().getArgument(dimension)).str() : "i" + std::to_string(dimension),
                        type.getShape()[dimension]});
  sum.term = [&](OpBuilder &builder, Indices indices) {
    Value total;
    for (const Part &part : added) {
      Value element = readWide(builder, part.tensor, indices);
      total = total ? arith::AddFOp::create(builder, tensor.getLoc(), total, element).getResult() : element;
    }
    return total;
  };
  Value gradient = gradients[tensor] = sum.write(kernel, builder, tensor.getLoc()).getResult();
  if (facts.pairs.contains(tensor))
    facts.pairs.insert(gradient);
  Value mask = facts.masks.lookup(added.front().tensor);
  if (mask && llvm::all_of(added, [&](const Part &part) { return facts.masks.lookup(part.tensor) == mask; }))
    facts.masks[gradient] = mask;
  return gradient;
}

/// The gradients of a group's score and sink.
void Backward::differentiate(SoftmaxGroup &group) {
  Value weights = group.weight.getResult(), dot;
  SmallVector<unsigned> rows = llvm::to_vector(llvm::seq(group.rows));
  if (!parts.lookup(weights).empty() && group.hasPairs())
    dot = dotWithGradient(group.weight, rows);
  Value weight = gradientOf(weights), logSumExp = gradientOf(group.logSumExp);
  if (!weight && !logSumExp)
    return;
  if (weight && !dot)
    dot = this->dot(weights, weight, group.weight, rows);
  SoftmaxGradients found = gradientsOf(group, weight, logSumExp, dot, facts, builder);
  // Not all of it: the terms of a maximum may be the same tensor as the scores.
  parts[group.score.getResult()].push_back({found.score, {}});
  if (found.sink)
    parts[group.sink.getResult()].push_back({found.sink, {}});
}

/// Weights that derivatives in `scratch` use are read, since sums need them, too, rather than computed again.
static void readWeights(TensorOp tensor, Block &scratch) {
  Value result = yielded(tensor.getBody());
  auto isInScratch = [&](OpOperand &use) { return scratch.findAncestorOpInBlock(*use.getOwner()) != nullptr; };
  bool isStoredAsIs = result.getType() == tensor.getResult().getType().getElementType();
  if (!isStoredAsIs || !holdsWeights(tensor) || llvm::none_of(result.getUses(), isInScratch))
    return;
  OpBuilder builder = OpBuilder::atBlockBegin(&scratch);
  Value element =
      ReadOp::create(builder, tensor.getLoc(), tensor.getResult(), ValueRange(tensor.getBody().getArguments()));
  result.replaceUsesWithIf(element, isInScratch);
}

/// Adds what `tensor` contributes to the gradients of what it reads.
LogicalResult Backward::differentiate(TensorOp tensor) {
  Value gradient = gradientOf(tensor.getResult());
  if (!gradient)
    return success();
  auto scratch = TensorOp::create(builder, tensor.getLoc(), "", builder.getArrayAttr({}),
                                  AttnTensorType::get(builder.getContext(), {}, computeType));
  Block &block = scratch.getBody().front();
  OpBuilder inside = OpBuilder::atBlockEnd(&block);
  Value seed = readWide(inside, gradient, tensor.getBody().getArguments());
  FailureOr<SmallVector<ReadGradient>> reads = attn::differentiate(
      tensor, seed, block,
      {[&](Value read) { return active.contains(read); }, [&](ReduceOp reduce) { return extremes.lookup(reduce); }});
  readWeights(tensor, block);
  if (succeeded(reads))
    for (ReadGradient &read : *reads) {
      Value target = read.read.getTensor();
      std::string name = "grad_" + nameOf(target) + "_by_" + tensor.getName().str();
      parts[target].push_back({contribution(kernel, read, name, facts, builder), tensor});
    }
  scratch.erase();
  return success(succeeded(reads));
}

void Backward::returnGradients() {
  SmallVector<Value> outputs;
  SmallVector<Attribute> types;
  for (StringRef input : inputs) {
    BlockArgument parameter = kernel.getBody().getArgument(llvm::find(names, input) - names.begin());
    auto type = cast<AttnTensorType>(parameter.getType());
    Value gradient = gradientOf(parameter);
    if (!gradient) {
      Statement zero{("grad_" + input).str(), {}, {}, computeType, nullptr};
      for (auto [dimension, size] : llvm::enumerate(type.getShape()))
        zero.axes.push_back({"i" + std::to_string(dimension), size});
      zero.term = [&](OpBuilder &builder, Indices) { return floatConstant(0, computeType, builder, kernel.getLoc()); };
      gradient = zero.write(kernel, builder, kernel.getLoc()).getResult();
    }
    outputs.push_back(gradient);
    types.push_back(TypeAttr::get(type.getElementType()));
  }
  ReturnOp old = kernel.getReturn();
  ReturnOp::create(builder, old.getLoc(), outputs, builder.getArrayAttr(types));
  old.erase();
  eraseUnread(kernel);
  SmallVector<StringRef> all(names.begin(), names.end());
  SmallVector<Attribute> defaults(kernel.getDefaults().begin(), kernel.getDefaults().end());
  defaults.resize(names.size(), builder.getUnitAttr());
  kernel.setParameterNamesAttr(builder.getStrArrayAttr(all));
  kernel.setDefaultsAttr(builder.getArrayAttr(defaults));
}

/// The terms that a maximum or minimum is taken of become tensors: its gradient goes to those that equal it, and only
/// what is stored is the same number both times (ComparedTensors.h). They are counted, for they share it. Those within
/// terms follow in the terms' tensors.
void Backward::outlineExtremes() {
  auto tensors = llvm::to_vector_of<TensorOp>(kernel.getBody().front().getOps<TensorOp>());
  llvm::DenseSet<Operation *> seen(tensors.begin(), tensors.end());
  for (size_t next = 0; next < tensors.size(); ++next) {
    TensorOp tensor = tensors[next];
    SmallVector<ReduceOp> reductions;
    tensor.getBody().walk<WalkOrder::PreOrder>([&](ReduceOp reduce) {
      if (!isExtreme(reduce.getKind()) || !isa<FloatType>(reduce.getType()))
        return WalkResult::advance();
      reductions.push_back(reduce);
      return WalkResult::skip();
    });
    for (ReduceOp reduce : reductions) {
      Operation *yield = reduce.getBody().front().getTerminator();
      OpBuilder inside(yield), after(reduce->getContext());
      after.setInsertionPointAfter(reduce);
      auto stored = [&](Value value, StringRef suffix, OpBuilder &builder) {
        return hoist(value, tensor, (tensor.getName() + suffix).str(), builder);
      };
      if (Value term = yield->getOperand(0); !term.getDefiningOp<ReadOp>()) {
        Value element = stored(term, "_term", inside);
        yield->setOperand(0, element);
        auto terms = element.getDefiningOp<ReadOp>().getTensor().getDefiningOp<TensorOp>();
        if (seen.insert(terms).second)
          tensors.push_back(terms);
      }
      Value extreme = stored(reduce.getResult(), "_extreme", after);
      Formula ofTerm(inside, reduce.getLoc());
      Value isEqual = ofTerm.compare(arith::CmpFPredicate::OEQ, yield->getOperand(0), extreme);
      Value one = ofTerm.select(isEqual, ofTerm.constant(1, reduce.getType()), ofTerm.constant(0, reduce.getType()));
      Value count = Formula(after, reduce.getLoc()).sumOver(reduce, one);
      eraseUnused(reduce.getBody().front());
      extremes[reduce] = {extreme, stored(count, "_equal", after)};
    }
  }
}

LogicalResult Backward::run() {
  for (TensorOp tensor : kernel.getBody().front().getOps<TensorOp>())
    facts.statements.insert(tensor.getName());
  groups = rewriteSoftmaxes(kernel, facts);
  for (const SoftmaxGroup &group : groups)
    names.push_back(group.saved);
  outlineExtremes();
  outlineDots(kernel);
  findActive();
  addOutputGradients();
  llvm::DenseMap<Operation *, SoftmaxGroup *> scores;
  llvm::DenseSet<Operation *> weights;
  for (SoftmaxGroup &group : groups) {
    scores[group.score] = &group;
    weights.insert(group.weight);
  }
  SmallVector<TensorOp> tensors(kernel.getBody().front().getOps<TensorOp>());
  for (TensorOp tensor : llvm::reverse(tensors)) {
    if (weights.contains(tensor))
      continue;
    if (SoftmaxGroup *group = scores.lookup(tensor); group && isActive(*group))
      differentiate(*group);
    if (active.contains(tensor.getResult()) && failed(differentiate(tensor)))
      return failure();
  }
  returnGradients();
  return success();
}
