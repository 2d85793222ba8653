//===- Differentiate.cpp - The backward kernel of a kernel ----------------===//
//
//   attention square(x: f32[N]) {
//     y[n] = x[n] * x[n]
//     return y
//   }
//
// becomes `square_forward`, which returns what `square` does and what the gradients need of its softmaxes and sums, and
//
//   attention square_backward(x: f32[N], grad_y: f32[N]) {
//     grad_x[n] = grad_y[n] * x[n] + grad_y[n] * x[n]
//     return grad_x
//   }
//
// From the last statement to the first: the gradient of a tensor is the sum of what the statements that read it
// contribute (Contribution.h). Weights are computed again from the scores and their saved log-sum-exp
// (SoftmaxGradient.h); what else the gradients read is computed again, too.
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Slice.h"
#include "SoftmaxGradient.h"
#include "Statement.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNDIFFERENTIATE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

static bool isFloat(Value tensor) { return isa<FloatType>(cast<AttnTensorType>(tensor.getType()).getElementType()); }

static Axis axisOf(BlockArgument index) { return {indexName(index).str(), indexSize(index)}; }

namespace {
/// Something that is added to a gradient.
struct Part {
  Value tensor;
  TensorOp reader; ///< The statement that it comes from; null for the gradient of an output.
};

/// A kernel's copy that becomes its backward kernel.
class Backward {
public:
  Backward(KernelOp kernel, ArrayRef<StringRef> inputs);

  LogicalResult run();

  SmallVector<SoftmaxGroup> groups;   ///< Whose log-sum-exp the forward kernel has to save.
  SmallVector<std::string> savedSums; ///< Statements that it has to return.

private:
  std::string nameOf(Value tensor);
  void findActive();
  void markPairs(TensorOp tensor);
  void addOutputGradients();
  void differentiate(SoftmaxGroup &group);
  LogicalResult differentiate(TensorOp tensor);
  Value gradientOf(Value tensor);
  Value readWide(OpBuilder &builder, Value tensor, ValueRange subscripts);
  Value dotWithGradient(Value tensor, ArrayRef<unsigned> rows);
  Value saved(TensorOp tensor);
  void returnGradients();

  KernelOp kernel;
  OpBuilder builder;
  SmallVector<StringRef> inputs;
  FloatType computeType;
  GradientFacts facts;
  llvm::DenseSet<Value> active;                   ///< What depends on an input.
  llvm::DenseMap<Value, SmallVector<Part>> parts; ///< Of the gradient of a tensor.
  llvm::DenseMap<Value, Value> gradients;         ///< Their sums.
  SmallVector<std::string> outputNames;           ///< Of the kernel that is differentiated.
  SmallVector<std::string> names;                 ///< Of the parameters.
  unsigned firstGradient = 0;                     ///< The position of the first output's gradient among them.
};
} // namespace

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

void Backward::findActive() {
  for (BlockArgument parameter : kernel.getParameters())
    if (llvm::is_contained(inputs, names[parameter.getArgNumber()]))
      active.insert(parameter);
  for (TensorOp tensor : kernel.getBody().front().getOps<TensorOp>()) {
    for (SoftmaxGroup &group : groups)
      if (group.weight == tensor && active.contains(group.score.getResult()))
        active.insert(group.logSumExp);
    bool reads = false;
    tensor.getBody().walk([&](ReadOp read) { reads |= active.contains(read.getTensor()); });
    if (reads && isFloat(tensor.getResult()))
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
    if (mask && same && isMultipleOf(body.getTerminator()->getOperand(0), read))
      facts.masks[tensor.getResult()] = mask;
  }
}

void Backward::addOutputGradients() {
  firstGradient = names.size();
  ReturnOp returned = kernel.getReturn();
  for (auto [index, output] : llvm::enumerate(returned.getOutputs())) {
    if (!isFloat(output))
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
  return arith::ExtFOp::create(builder, tensor.getLoc(), computeType, element);
}

/// The gradient of a tensor, all of whose readers have been differentiated; null where nothing returned depends on it.
Value Backward::gradientOf(Value tensor) {
  if (Value known = gradients.lookup(tensor))
    return known;
  SmallVector<Part> added = parts.lookup(tensor);
  if (added.empty())
    return {};
  std::string name = freshName(kernel, "grad_" + nameOf(tensor));
  auto only = added.size() == 1 ? added.front().tensor.getDefiningOp<TensorOp>() : TensorOp();
  if (only || added.size() == 1) {
    if (only)
      only.setName(name);
    return gradients[tensor] = added.front().tensor;
  }
  Statement sum{name, {}, {}, computeType, nullptr};
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

/// The forward kernel's element of a sum, instead of computing it again.
Value Backward::saved(TensorOp tensor) {
  Block &block = kernel.getBody().front();
  std::string name = tensor.getName().str();
  ReturnOp returned = kernel.getReturn();
  auto outputs = returned.getOutputs();
  auto output = llvm::find(outputs, Value(tensor.getResult()));
  bool isReturned = output != outputs.end();
  AttnTensorType type = isReturned ? returned.getOutputType(output - outputs.begin()) : tensor.getResult().getType();
  Value parameter = block.insertArgument(firstGradient, type, tensor.getLoc());
  names.insert(names.begin() + firstGradient++, name);
  if (!isReturned)
    savedSums.push_back(name);
  return parameter;
}

/// sum[…](tensor * tensor') over all indices but `rows`, which come in this order, or null where there is no way to it
/// without a sum over pairs. A statement y that is a multiple of x has Σ x·x' = Σ y·y'.
Value Backward::dotWithGradient(Value tensor, ArrayRef<unsigned> rows) {
  auto owner = tensor.getDefiningOp<TensorOp>();
  SmallVector<Value> terms;
  auto addSum = [&](Value element, Value gradient) {
    SmallVector<BlockArgument> indices, order;
    for (unsigned row : rows)
      indices.push_back(owner.getBody().getArgument(row));
    for (BlockArgument index : owner.getBody().getArguments())
      if (!llvm::is_contained(indices, index))
        order.push_back(index);
    Statement sum{"grad_" + owner.getName().str() + "_dot", {}, {}, computeType, nullptr};
    sum.axes = llvm::map_to_vector(indices, axisOf);
    sum.summed = llvm::map_to_vector(order, axisOf);
    llvm::append_range(indices, order);
    sum.term = [&](OpBuilder &builder, Indices places) -> Value {
      IRMapping mapping;
      mapping.map(ArrayRef<BlockArgument>(indices), places);
      SmallVector<Value> subscripts;
      for (BlockArgument index : owner.getBody().getArguments())
        subscripts.push_back(mapping.lookup(index));
      return arith::MulFOp::create(builder, owner.getLoc(), readWide(builder, element, subscripts),
                                   readWide(builder, gradient, subscripts));
    };
    terms.push_back(sum.write(kernel, builder, owner.getLoc()).getResult());
  };
  if (!facts.pairs.contains(tensor)) {
    addSum(saved(owner), gradientOf(tensor));
    return terms.front();
  }
  for (Part part : SmallVector<Part>(parts.lookup(tensor))) {
    if (!part.reader) {
      addSum(tensor, part.tensor);
      continue;
    }
    SmallVector<ReadOp> reads;
    part.reader.getBody().walk([&](ReadOp read) {
      if (read.getTensor() == tensor)
        reads.push_back(read);
    });
    Value formula = part.reader.getBody().front().getTerminator()->getOperand(0);
    if (reads.size() != 1 || !isMultipleOf(formula, reads.front()))
      return {};
    SmallVector<unsigned> positions;
    for (unsigned row : rows) {
      auto index = dyn_cast<BlockArgument>(reads.front().getSubscripts()[row]);
      if (!index || index.getOwner() != &part.reader.getBody().front() ||
          indexSize(index) != indexSize(owner.getBody().getArgument(row)))
        return {};
      positions.push_back(index.getArgNumber());
    }
    Value term = dotWithGradient(part.reader.getResult(), positions);
    if (!term)
      return {};
    terms.push_back(term);
  }
  if (terms.size() == 1)
    return terms.front();
  Statement total{"grad_" + owner.getName().str() + "_dot", {}, {}, computeType, nullptr};
  for (unsigned row : rows)
    total.axes.push_back(axisOf(owner.getBody().getArgument(row)));
  total.term = [&](OpBuilder &builder, Indices indices) {
    Value sum;
    for (Value term : terms) {
      Value element = ReadOp::create(builder, owner.getLoc(), term, indices);
      sum = sum ? arith::AddFOp::create(builder, owner.getLoc(), sum, element).getResult() : element;
    }
    return sum;
  };
  return total.write(kernel, builder, owner.getLoc()).getResult();
}

/// The gradients of a group's score and sink.
void Backward::differentiate(SoftmaxGroup &group) {
  Value weights = group.weight.getResult(), dot;
  if (!parts.lookup(weights).empty() && group.hasPairs())
    dot = dotWithGradient(weights, llvm::to_vector(llvm::seq(group.rows)));
  Value weight = gradientOf(weights), logSumExp = gradientOf(group.logSumExp);
  if (!weight && !logSumExp)
    return;
  SoftmaxGradients found = gradientsOf(group, weight, logSumExp, dot, facts, builder);
  gradients[group.score.getResult()] = found.score;
  if (found.sink)
    gradients[group.sink.getResult()] = found.sink;
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
  FailureOr<SmallVector<ReadGradient>> reads =
      attn::differentiate(tensor, seed, block, [&](Value read) { return active.contains(read); });
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
      zero.term = [&](OpBuilder &builder, Indices) -> Value {
        return arith::ConstantOp::create(builder, kernel.getLoc(), builder.getFloatAttr(computeType, 0));
      };
      gradient = zero.write(kernel, builder, kernel.getLoc()).getResult();
    }
    outputs.push_back(gradient);
    types.push_back(TypeAttr::get(type.getElementType()));
  }
  ReturnOp old = kernel.getReturn();
  ReturnOp::create(builder, old.getLoc(), outputs, builder.getArrayAttr(types));
  old.erase();
  SmallVector<TensorOp> tensors(kernel.getBody().front().getOps<TensorOp>());
  for (TensorOp tensor : llvm::reverse(tensors))
    if (tensor.getResult().use_empty())
      tensor.erase();
  SmallVector<StringRef> all(names.begin(), names.end());
  SmallVector<Attribute> defaults(kernel.getDefaults().begin(), kernel.getDefaults().end());
  defaults.resize(names.size(), builder.getUnitAttr());
  kernel.setParameterNamesAttr(builder.getStrArrayAttr(all));
  kernel.setDefaultsAttr(builder.getArrayAttr(defaults));
}

LogicalResult Backward::run() {
  groups = rewriteSoftmaxes(kernel, facts);
  for (const SoftmaxGroup &group : groups)
    names.push_back(group.saved);
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
    if (!active.contains(tensor.getResult()) || weights.contains(tensor))
      continue;
    if (SoftmaxGroup *group = scores.lookup(tensor))
      differentiate(*group);
    if (failed(differentiate(tensor)))
      return failure();
  }
  returnGradients();
  return success();
}

/// Makes `kernel` return what its backward kernel needs as well.
static void returnSaved(KernelOp kernel, const Backward &backward) {
  ReturnOp returned = kernel.getReturn();
  OpBuilder builder(returned);
  SmallVector<Value> outputs(returned.getOutputs());
  SmallVector<Attribute> types(returned.getOutputTypes().begin(), returned.getOutputTypes().end());
  auto find = [&](StringRef name) {
    return *llvm::find_if(kernel.getBody().front().getOps<TensorOp>(),
                          [&](TensorOp tensor) { return tensor.getName() == name; });
  };
  auto add = [&](TensorOp tensor) {
    outputs.push_back(tensor.getResult());
    types.push_back(TypeAttr::get(tensor.getResult().getType().getElementType()));
  };
  for (const SoftmaxGroup &group : backward.groups) {
    TensorOp source = find(group.source);
    auto reduce = source.getBody().front().getTerminator()->getOperand(0).getDefiningOp<ReduceOp>();
    SmallVector<BlockArgument> rows(source.getBody().getArguments());
    llvm::erase_if(rows, [&](Value index) { return llvm::is_contained(reduce.getAt(), index); });
    Statement sum{group.saved, llvm::map_to_vector(rows, axisOf), {}, reduce.getType(), nullptr};
    sum.term = [&](OpBuilder &builder, Indices indices) -> Value {
      IRMapping mapping;
      mapping.map(ArrayRef<BlockArgument>(rows), indices);
      for (Value at : reduce.getAt()) // a log-sum-exp has none
        mapping.map(at, at);
      auto copy = cast<ReduceOp>(cloneSlice(reduce.getResult(), mapping, builder).getDefiningOp());
      copy.setKind(ReduceKind::LogSumExp);
      copy.getAtMutable().clear();
      return copy.getResult();
    };
    builder.setInsertionPoint(returned);
    add(sum.write(kernel, builder, source.getLoc()));
  }
  for (StringRef name : backward.savedSums)
    add(find(name));
  ReturnOp::create(builder, returned.getLoc(), outputs, builder.getArrayAttr(types));
  returned.erase();
}

/// The floating-point parameters with these names; all of them where there are no names.
static FailureOr<SmallVector<StringRef>> differentiableInputs(KernelOp kernel, ArrayRef<std::string> requested) {
  SmallVector<StringRef> floats, all;
  for (BlockArgument parameter : kernel.getParameters()) {
    StringRef name = kernel.getParameterName(parameter.getArgNumber());
    all.push_back(name);
    if (isFloat(parameter))
      floats.push_back(name);
  }
  auto fail = [&](const llvm::Twine &message) -> FailureOr<SmallVector<StringRef>> {
    return LogicalResult(kernel.emitError() << message);
  };
  if (floats.empty())
    return fail("kernel `" + kernel.getSymName() +
                "` has no floating-point input: there is nothing to differentiate by");
  for (StringRef name : requested) {
    if (!llvm::is_contained(all, name))
      return fail("kernel `" + kernel.getSymName() + "` has no input `" + name + "`: its floating-point inputs are " +
                  llvm::join(floats, ", "));
    if (!llvm::is_contained(floats, name))
      return fail("input `" + name + "` of kernel `" + kernel.getSymName() + "` holds no floats, and has no gradient");
  }
  if (requested.empty())
    return floats;
  return SmallVector<StringRef>(requested.begin(), requested.end());
}

namespace {
struct Differentiate : attn::impl::AttnDifferentiateBase<Differentiate> {
  using AttnDifferentiateBase::AttnDifferentiateBase;

  void runOnOperation() override {
    for (KernelOp kernel : llvm::to_vector(getOperation().getOps<KernelOp>())) {
      FailureOr<SmallVector<StringRef>> names = differentiableInputs(kernel, inputs);
      if (failed(names))
        return signalPassFailure();
      std::string name = kernel.getSymName().str();
      OpBuilder builder(kernel.getContext());
      builder.setInsertionPointAfter(kernel);
      auto copy = cast<KernelOp>(builder.clone(*kernel));
      copy.setSymName(name + KernelOp::backwardSuffix.str());
      kernel.setSymName(name + KernelOp::forwardSuffix.str());
      Backward backward(copy, *names);
      if (failed(backward.run()))
        return signalPassFailure();
      returnSaved(kernel, backward);
    }
  }
};
} // namespace
