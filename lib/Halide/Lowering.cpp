//===- Lowering.cpp - A kernel's tensors become Funcs ----------------------===//

#include "Implementation.h"
#include "Mathematics.h"
#include "Nest.h"
#include "Split.h"
#include "Tile.h"

using Halide::Expr;
using Halide::Func;

namespace attn::lowering {

Halide::Type storageType(mlir::Type element) {
  if (element.isBF16())
    return Halide::BFloat(16);
  if (mlir::isa<mlir::FloatType>(element))
    return Halide::Float(element.getIntOrFloatBitWidth());
  if (element.isUnsignedInteger())
    return Halide::UInt(element.getIntOrFloatBitWidth());
  return element.isSignlessInteger(1) ? Halide::Bool() : Halide::Int(element.getIntOrFloatBitWidth());
}

Halide::Type computeType(mlir::Type element) {
  if (element.isF64())
    return Halide::Float(64);
  if (mlir::isa<mlir::FloatType>(element))
    return Halide::Float(32);
  return element.isSignlessInteger(1) ? Halide::Bool() : Halide::Int(64);
}

KernelLowering::KernelLowering(KernelOp kernel, const Plan &plan) : kernel(kernel), plan(plan) {}

std::string KernelLowering::uniqueName(llvm::StringRef base) {
  int &count = names[base.str()];
  std::string name = count == 0 ? base.str() : base.str() + "_" + std::to_string(count);
  ++count;
  return name;
}

Expr KernelLowering::size(mlir::StringAttr name) { return sizes.at(name.str()); }

void KernelLowering::addParameters() {
  for (auto [index, parameter] : llvm::enumerate(kernel.getParameters())) {
    AttnTensorType type = kernel.getParameterType(index);
    std::string name = uniqueName(kernel.getParameterName(index));
    Halide::Type storage = storageType(type.getElementType());
    if (type.getRank() == 0) {
      Halide::Parameter scalar(storage, false, 0, name);
      arguments.push_back(
          Halide::Argument(name, Halide::Argument::InputScalar, storage, 0, Halide::ArgumentEstimates{}));
      scalars[parameter] = Halide::Internal::Variable::make(storage, name, scalar);
      continue;
    }
    Halide::ImageParam buffer(storage, type.getRank(), name);
    arguments.push_back(buffer);
    buffers[parameter] = buffer;
  }
  for (mlir::StringAttr size : kernel.getSizeNames()) {
    Halide::Param<int32_t> value(uniqueName(size.getValue()));
    arguments.push_back(value);
    sizes[size.str()] = value;
  }
}

Expr KernelLowering::element(mlir::Value tensor, const std::vector<Expr> &subscripts) {
  if (auto scalar = scalars.find(tensor); scalar != scalars.end())
    return scalar->second;
  std::vector<Expr> reversed(subscripts.rbegin(), subscripts.rend());
  if (auto buffer = buffers.find(tensor); buffer != buffers.end())
    return buffer->second(reversed);
  return stored(tensor)(reversed);
}

Expr KernelLowering::lastIndex(mlir::Value tensor, unsigned dimension, SizeAttr size) {
  if (auto buffer = buffers.find(tensor); buffer != buffers.end())
    return buffer->second.dim(buffer->second.dimensions() - 1 - dimension).extent() - 1;
  if (isOutput(tensor)) {
    Func func = stored(tensor);
    return func.output_buffer().dim(func.dimensions() - 1 - dimension).extent() - 1;
  }
  return lowering::lastIndex(*this, size);
}

bool KernelLowering::isOutput(mlir::Value tensor) {
  ReturnOp returned = kernel.getReturn();
  for (auto [index, output] : llvm::enumerate(returned.getOutputs()))
    if (output == tensor && storageType(returned.getOutputType(index).getElementType()) ==
                                storageType(mlir::cast<AttnTensorType>(tensor.getType()).getElementType()))
      return true;
  return false;
}

Func KernelLowering::stored(mlir::Value tensor) {
  if (auto found = funcs.find(tensor); found != funcs.end())
    return found->second;
  auto result = mlir::cast<mlir::OpResult>(tensor);
  std::vector<std::string> indices;
  auto definition = mlir::dyn_cast<DefinitionOpInterface>(result.getOwner());
  auto softmax = mlir::dyn_cast<SoftmaxOp>(result.getOwner());
  auto source = definition ? definition : mlir::cast<DefinitionOpInterface>(softmax.getScore().getDefiningOp());
  for (mlir::StringAttr index : source.getIndices().getAsRange<mlir::StringAttr>())
    indices.push_back(index.str());
  if (softmax && tensor == softmax.getLogsumexp())
    indices.pop_back();
  std::string name = definition                      ? definition.getName().str()
                     : tensor == softmax.getWeight() ? softmax.getName().str()
                                                     : softmax.getLogsumexpName().str();
  auto sum = mlir::dyn_cast<WeightedSumOp>(result.getOwner());
  if (sum && (plan.sum(sum).tiled || plan.sum(sum).split))
    return funcs[tensor] = fusedSum(sum);
  Nest nest(*this, name.empty() ? "softmax" : name, indices);
  if (sum)
    nest.defineWeightedSum(sum);
  else if (definition)
    nest.definePointwise(definition);
  else if (tensor == softmax.getWeight())
    nest.defineWeight(softmax);
  else
    nest.defineLogSumExp(softmax);
  nest.schedule();
  return funcs[tensor] = nest.func;
}

/// Many queries are computed in tiles, few are split over the keys: a call has the one or the other.
Func KernelLowering::fusedSum(WeightedSumOp sum) {
  const SumPlan &choice = plan.sum(sum);
  std::optional<Split> split;
  if (choice.split) {
    split.emplace(*this, sum);
    split->define();
  }
  if (!choice.tiled) {
    Func func(uniqueName(sum.getName()));
    func(split->vars) = split->result();
    split->schedule(func);
    split->scheduleRows(func.compute_root());
    return func;
  }
  Tile tile(*this, sum);
  if (!split) {
    tile.define();
    tile.schedule();
    if (plan.countChunks) {
      chunkCounts.push_back(tile.chunkCounts());
      countedSums.push_back(sum.getName().str());
    }
    return tile.result();
  }
  Expr few = extent(*this, sum.getResult().getType().getShape()[sum.getQuery()]) <= plan.split.queries;
  tile.define(few, split->result());
  Func func = tile.result();
  split->scheduleRows(func.specialize(few)); // before the schedule of what is not few
  split->schedule(func);
  tile.schedule();
  return func;
}

Func KernelLowering::output(unsigned index) {
  ReturnOp returned = kernel.getReturn();
  Func source = stored(returned.getOutputs()[index]);
  Halide::Type type = storageType(returned.getOutputType(index).getElementType());
  bool repeated = llvm::any_of(outputs, [&](const Func &other) { return other.name() == source.name(); });
  if (isOutput(returned.getOutputs()[index]) && !repeated)
    return source;
  Func rounded(uniqueName(returned.getOutputName(index).str() + "_output"));
  std::vector<Halide::Var> vars = source.args();
  std::vector<Expr> at(vars.begin(), vars.end());
  rounded(vars) = convert(source(at), type);
  if (!vars.empty())
    rounded.vectorize(vars[0], static_cast<int>(plan.lanes), Halide::TailStrategy::GuardWithIf);
  return rounded;
}

void KernelLowering::run() {
  addParameters();
  for (unsigned index = 0; index < kernel.getReturn().getOutputs().size(); ++index)
    outputs.push_back(output(index));
  outputs.insert(outputs.end(), chunkCounts.begin(), chunkCounts.end());
}

} // namespace attn::lowering

using namespace attn;

llvm::Expected<HalideKernel> attn::lowerToHalide(KernelOp kernel, const Plan &plan, const Machine &machine) {
  return lowering::guarded([&]() -> HalideKernel {
    lowering::KernelLowering state(kernel, plan);
    state.run();
    auto implementation = std::make_unique<HalideKernel::Implementation>();
    implementation->pipeline = Halide::Pipeline(state.outputs);
    implementation->arguments = state.arguments;
    implementation->countedSums = state.countedSums;
    implementation->target = lowering::loweringTarget(machine);
    return HalideKernel(std::move(implementation));
  });
}
