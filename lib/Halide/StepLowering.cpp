//===- StepLowering.cpp - A stored tensor becomes a pipeline ---------------===//

#include "StepLowering.h"

#include "GpuMemory.h"
#include "GpuNest.h"
#include "GpuTile.h"
#include "Mathematics.h"
#include "Matrix.h"
#include "Nest.h"
#include "ScanLoop.h"
#include "Scatter.h"
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

StepLowering::StepLowering(KernelOp kernel, const Plan &plan, Storage &storage, const PairBlocks *blocks)
    : kernel(kernel), plan(plan), storage(storage), blocks(blocks) {}

/// A letter and a number, as Halide calls what it computes once for several uses (`t12`).
static bool isHalides(llvm::StringRef name) {
  return name.size() > 1 && llvm::isAlpha(name.front()) && llvm::all_of(name.drop_front(), llvm::isDigit);
}

std::string StepLowering::uniqueName(llvm::StringRef base) {
  std::string name = withoutNumbers(base); // `base` may be what a Func is called
  if (isHalides(name))
    name += "_";
  // In the source of a device's code what Halide calls name$1 is name_1.
  std::string last = plan.gpu ? "_" : "";
  if (llvm::isDigit(name.back()))
    name += last;
  int &count = names[name];
  std::string unique = name;
  while (count++ > 0) {
    unique = name + "_" + std::to_string(count - 1) + last;
    if (names.emplace(unique, 1).second) // a tensor may be called so
      break;
  }
  return unique;
}

Expr StepLowering::size(mlir::StringAttr name) {
  Expr &expr = sizes[name.str()];
  if (!expr.defined()) {
    llvm::SmallVector<mlir::StringAttr> all = kernel.getSizeNames();
    Halide::Param<int32_t> value(uniqueName(name.getValue()));
    inputs.push_back(value);
    inputArguments.push_back({HalideArgument::Size, static_cast<unsigned>(llvm::find(all, name) - all.begin())});
    expr = value;
  }
  return expr;
}

Expr StepLowering::derivedSize(llvm::StringRef name, Expr value, int least) {
  value = Halide::Internal::simplify(Halide::max(value, least));
  if (Halide::Internal::is_const(value))
    return value;
  Halide::Param<int32_t> param(uniqueName(name));
  derivedSizes.push_back({param, value});
  return Halide::max(param, least);
}

Expr StepLowering::axisValue(unsigned index) {
  Expr &expr = axisValues[index];
  if (!expr.defined()) {
    Halide::Param<int32_t> value(uniqueName(index % 2 ? "count" : "first"));
    inputs.push_back(value);
    inputArguments.push_back({HalideArgument::Axis, index});
    expr = value;
  }
  return expr;
}

IndexValues StepLowering::values(mlir::BlockArgument index) {
  if (std::optional<unsigned> axis = blocks ? blocks->axisOf(index) : std::nullopt)
    return {axisValue(2 * *axis), axisValue(2 * *axis + 1)};
  return {0, extent(*this, indexSize(index))};
}

Expr StepLowering::origin(mlir::BlockArgument index) {
  auto statement = mlir::dyn_cast<TensorOp>(index.getOwner()->getParentOp());
  return statement && isPairsOfBlock(statement.getResult()) ? values(index).first : Expr(0);
}

IndexValues StepLowering::storedValues(mlir::BlockArgument index) {
  auto [first, count] = values(index);
  return {Halide::Internal::simplify(first - origin(index)), count};
}

IndexBinding StepLowering::storedIndex(mlir::BlockArgument index, const Halide::Var &var) {
  Expr first = origin(index);
  return {Halide::Internal::is_const_zero(first) ? Expr(var) : var + first, {var}, false, {}};
}

/// `buffer` at a place, as a load from an address. Of what is written as a call, Halide infers the region that the
/// whole pipeline needs, to check that the buffer holds it: our checks have seen to that, and the inference takes more
/// time than what it is for.
static Expr load(const Halide::ImageParam &buffer, const std::vector<Expr> &at) {
  const Halide::Parameter &parameter = buffer.parameter();
  Expr index = 0;
  for (int dimension = 0; dimension < buffer.dimensions(); ++dimension) {
    Expr first = parameter.min_constraint(dimension), stride = parameter.stride_constraint(dimension);
    index += (at[dimension] - (first.defined() ? first : buffer.dim(dimension).min())) *
             (stride.defined() ? stride : buffer.dim(dimension).stride());
  }
  return Halide::Internal::Load::make(buffer.type(), buffer.name(), Halide::Internal::simplify(index), {}, parameter,
                                      Halide::Internal::const_true(), {});
}

Expr StepLowering::before(mlir::Value tensor, const std::vector<Expr> &at) {
  if (!earlier.defined()) {
    earlier = Halide::ImageParam(typeInMemory(tensor), at.size(), uniqueName(tensorName(tensor) + "_earlier"));
    if (plan.gpu && !at.empty())
      earlier.dim(0).set_stride(Expr());
    inputs.push_back(earlier);
    inputArguments.push_back(storage.place(tensor));
  }
  return load(earlier, at);
}

Expr StepLowering::withEarlierBlocks(Expr value, mlir::Value tensor, const std::vector<Expr> &at) {
  auto statement = tensor.getDefiningOp<TensorOp>();
  if (!blocks || isPairs(tensor) || !blocks->isAdded(statement))
    return value;
  if (!plan.gpu)
    return before(tensor, at) + value;
  // A device's memory is not cleared before the first block that adds.
  llvm::SmallVector<std::optional<unsigned>> own = blocks->axesOf(statement);
  Expr rowsBefore = 0;
  for (unsigned axis = 0; axis < blocks->rows.size(); ++axis)
    if (!llvm::is_contained(own, std::optional(axis)))
      rowsBefore += axisValue(2 * axis);
  return Halide::select(rowsBefore == 0, constant(value.type(), 0), before(tensor, at)) + value;
}

/// Whether the buffer of `tensor` is that of a block: of pairs there is no more, of what else blocks write a device's
/// buffers are whole.
bool StepLowering::isOfBlock(mlir::Value tensor) const {
  return blocks && blocks->contains(tensor.getDefiningOp()) && (isPairs(tensor) || !plan.gpu);
}

bool StepLowering::isPairsOfBlock(mlir::Value tensor) const { return isOfBlock(tensor) && isPairs(tensor); }

Halide::ImageParam StepLowering::buffer(mlir::Value tensor) {
  auto [found, isNew] = buffers.try_emplace(tensor);
  if (isNew) {
    auto type = mlir::cast<AttnTensorType>(tensor.getType());
    Halide::Type element = storageType(type.getElementType());
    Halide::ImageParam buffer(plan.gpu ? typeOnDevice(element) : element, type.getRank(),
                              uniqueName(tensorName(tensor)));
    for (int dimension = 0; dimension < buffer.dimensions(); ++dimension)
      buffer.dim(dimension).set_min(0);
    if (isOfBlock(tensor) && !isPairs(tensor))
      for (mlir::BlockArgument index : tensor.getDefiningOp<TensorOp>().getBody().getArguments())
        buffer.dim(buffer.dimensions() - 1 - index.getArgNumber()).set_min(values(index).first);
    if (plan.gpu && type.getRank() > 0)
      buffer.dim(0).set_stride(Expr()); // nothing is copied on a device only to have a stride of 1
    inputs.push_back(buffer);
    inputArguments.push_back(storage.place(tensor));
    found->second = buffer;
  }
  return found->second;
}

Expr StepLowering::element(mlir::Value tensor, const std::vector<Expr> &subscripts) {
  std::vector<Expr> reversed(subscripts.rbegin(), subscripts.rend());
  if (isPairsOfBlock(tensor))
    for (mlir::BlockArgument index : tensor.getDefiningOp<TensorOp>().getBody().getArguments()) {
      Expr &subscript = reversed[reversed.size() - 1 - index.getArgNumber()];
      subscript = Halide::Internal::simplify(subscript - origin(index));
    }
  auto parameter = mlir::dyn_cast<mlir::BlockArgument>(tensor);
  Halide::Type element = storageType(mlir::cast<AttnTensorType>(tensor.getType()).getElementType());
  if (!parameter || !subscripts.empty()) {
    Expr loaded = load(buffer(tensor), reversed);
    return plan.gpu ? fromDeviceMemory(loaded, element) : loaded;
  }
  Expr &scalar = scalars[tensor];
  if (!scalar.defined()) {
    std::string name = uniqueName(tensorName(tensor));
    Halide::Type type = plan.gpu ? typeOnDevice(element) : element;
    inputs.push_back(Halide::Argument(name, Halide::Argument::InputScalar, type, 0, Halide::ArgumentEstimates{}));
    inputArguments.push_back(storage.place(tensor));
    scalar = Halide::Internal::Variable::make(type, name, Halide::Parameter(type, false, 0, name));
  }
  return plan.gpu ? fromDeviceMemory(scalar, element) : scalar;
}

Expr StepLowering::stored(Expr value, mlir::Value tensor) const {
  return plan.gpu ? toDeviceMemory(value, typeInMemory(tensor)) : convert(value, typeInMemory(tensor));
}

Expr StepLowering::rounded(Expr value, Halide::Type type) const {
  return plan.gpu ? fromDeviceMemory(toDeviceMemory(value, type), type) : convert(value, type);
}

Expr StepLowering::lastIndex(mlir::Value tensor, unsigned dimension) {
  Halide::ImageParam all = buffer(tensor);
  Expr extent = all.dim(all.dimensions() - 1 - dimension).extent();
  if (isOfBlock(tensor))
    extent += values(tensor.getDefiningOp<TensorOp>().getBody().getArgument(dimension)).first;
  return extent - 1;
}

/// That its minima are 0 as well is not said: Halide 21 then computes some sums inside vectorised loops at twice their
/// position (test/python/test_random.py, slots).
void StepLowering::addOutput(Func func, HalideArgument argument) {
  if (plan.gpu && func.dimensions() > 0)
    func.output_buffer().dim(0).set_stride(Expr());
  outputs.push_back(func);
  outputArguments.push_back(argument);
}

/// The dimensions of the log-sum-exp of `sum`'s softmax in the order in which the sum has its rows: see HalideArgument.
static uint64_t rowsOfLogSumExp(WeightedSumOp sum) {
  mlir::ValueRange rows = softmaxWeight(sum).getSubscripts().drop_back();
  unsigned rank = rows.size();
  uint64_t order = 0;
  for (unsigned dimension = 0; dimension < rank; ++dimension) {
    mlir::Value index = sum.getBody().getArgument(rank - 1 - dimension);
    order |= static_cast<uint64_t>(rank - 1 - (llvm::find(rows, index) - rows.begin())) << 4 * dimension;
  }
  return order;
}

void StepLowering::addFusedSum(WeightedSumOp sum, PlanKind kind, mlir::Value logSumExp) {
  Func result;
  if (kind == PlanKind::Split) {
    Split split(*this, sum, static_cast<bool>(logSumExp));
    split.define();
    split.schedule();
    result = split.func;
    addOutput(result, storage.place(sum.getResult()));
  } else {
    Tile tile(*this, sum, kind == PlanKind::Tiles ? plan.tile : plan.narrow, static_cast<bool>(logSumExp));
    tile.define();
    tile.schedule();
    result = tile.result();
    addOutput(result, storage.place(sum.getResult()));
    if (plan.countChunks) {
      std::vector<std::string> counted = plan.countedSums();
      unsigned position = llvm::find(counted, sum.getName()) - counted.begin();
      addOutput(tile.chunkCounts(), {HalideArgument::Output, kernel.getReturn().getNumOperands() + position});
    }
  }
  if (logSumExp) {
    HalideArgument place = storage.place(logSumExp);
    place.repeated = rowsOfLogSumExp(sum);
    outputArguments.push_back(place);
    result.output_buffers()[1].dim(0).set_stride(Expr()); // all elements of a row are one
  }
}

void StepLowering::storeOnGpu(mlir::OpResult tensor, PlanKind kind) {
  if (auto sum = mlir::dyn_cast<WeightedSumOp>(tensor.getOwner()); sum && kind != PlanKind::Nest) {
    GpuTile tile(*this, sum, kind);
    tile.define();
    tile.schedule();
    return addOutput(tile.func, storage.place(tensor));
  }
  GpuNest nest(*this, tensorName(tensor), mlir::cast<AttnTensorType>(tensor.getType()).getShape());
  if (auto sum = mlir::dyn_cast<WeightedSumOp>(tensor.getOwner()))
    nest.defineWeightedSum(sum);
  else if (auto softmax = mlir::dyn_cast<SoftmaxOp>(tensor.getOwner()))
    tensor == softmax.getWeight() ? nest.defineWeight(softmax) : nest.defineLogSumExp(softmax);
  else
    nest.definePointwise(mlir::cast<DefinitionOpInterface>(tensor.getOwner()));
  nest.schedule();
  addOutput(nest.func, storage.place(tensor));
}

void StepLowering::store(mlir::OpResult tensor, PlanKind kind, mlir::Value logSumExp) {
  if (plan.gpu)
    return storeOnGpu(tensor, kind);
  mlir::Operation *op = tensor.getOwner();
  auto sum = mlir::dyn_cast<WeightedSumOp>(op);
  if (sum && kind != PlanKind::Nest)
    return addFusedSum(sum, kind, logSumExp);
  auto storeBy = [&](auto &&loops) {
    loops.define();
    loops.schedule();
    addOutput(loops.func, storage.place(tensor));
  };
  if (kind == PlanKind::Matrix)
    return storeBy(Matrix(*this, *plan.matrix(op), mlir::cast<DefinitionOpInterface>(op)));
  if (kind == PlanKind::Scatter)
    return storeBy(Scatter(*this, mlir::cast<DefinitionOpInterface>(op)));
  if (kind == PlanKind::Scan)
    return storeBy(ScanLoop(*this, mlir::cast<DefinitionOpInterface>(op)));
  auto softmax = mlir::dyn_cast<SoftmaxOp>(op);
  bool isLogSumExp = softmax && tensor == softmax.getLogsumexp();
  auto statement = mlir::cast<DefinitionOpInterface>(softmax ? softmax.getScore().getDefiningOp() : op);
  std::vector<Halide::Var> vars = loopsAlong(statement.getIndices());
  if (isLogSumExp)
    vars.erase(vars.begin()); // the key
  Nest nest(*this, tensorName(tensor), std::move(vars));
  if (sum)
    nest.defineWeightedSum(sum);
  else if (isLogSumExp)
    nest.defineLogSumExp(softmax);
  else if (softmax)
    nest.defineWeight(softmax);
  else
    nest.definePointwise(statement);
  nest.hasFewRows = !softmax && !isInBlocks() && isProduct(statement);
  nest.schedule();
  addOutput(nest.func, storage.place(tensor));
}

void StepLowering::convertOutput(unsigned index) {
  ReturnOp returned = kernel.getReturn();
  mlir::Value tensor = returned.getOutputs()[index];
  Halide::Type type = storageType(returned.getOutputType(index).getElementType());
  if (plan.gpu) {
    GpuNest nest(*this, returned.getOutputName(index).str() + "_output",
                 mlir::cast<AttnTensorType>(tensor.getType()).getShape());
    nest.defineConverted(tensor, type);
    nest.schedule();
    return addOutput(nest.func, {HalideArgument::Output, index});
  }
  std::vector<Halide::Var> vars;
  unsigned rank = mlir::cast<AttnTensorType>(tensor.getType()).getRank();
  for (unsigned dimension = 0; dimension < rank; ++dimension)
    vars.push_back(Halide::Var("dimension_" + std::to_string(dimension)));
  std::vector<Expr> subscripts(vars.rbegin(), vars.rend());
  Func converted(uniqueName(returned.getOutputName(index).str() + "_output"));
  converted(vars) = convert(element(tensor, subscripts), type);
  if (!vars.empty())
    converted.vectorize(vars[0], static_cast<int>(plan.lanes), Halide::TailStrategy::GuardWithIf);
  if (rank > 1)
    converted.parallel(vars.back());
  addOutput(converted, {HalideArgument::Output, index});
}

} // namespace attn::lowering
