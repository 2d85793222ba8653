//===- Interface.cpp - What a kernel takes and gives -----------------------===//

#include "Interface.h"

#include "SizePrograms.h"
#include "attn/Analysis/Dependence.h"
#include "llvm/ADT/APFloat.h"

using namespace attn;
using namespace mlir;

static_assert(ATTN_MAX_EXTENT == longestDimension, "what is checked is what kernels are compiled for");

// DLPack 0.6, which Debian ships, does not declare kDLBool.
static constexpr int64_t boolCode = 6;

static void setElementType(TensorInterface &tensor, Type type) {
  tensor.bits = type.isSignlessInteger(1) ? 8 : type.getIntOrFloatBitWidth();
  std::string bits = std::to_string(tensor.bits);
  if (type.isSignlessInteger(1)) {
    tensor.dtype = "bool";
    tensor.code = boolCode;
  } else if (type.isBF16()) {
    tensor.dtype = "bf16";
    tensor.code = kDLBfloat;
  } else if (isa<FloatType>(type)) {
    tensor.dtype = "f" + bits;
    tensor.code = kDLFloat;
  } else {
    bool isUnsigned = type.isUnsignedInteger();
    tensor.dtype = (isUnsigned ? "u" : "i") + bits;
    tensor.code = isUnsigned ? kDLUInt : kDLInt;
  }
}

static void setDefault(TensorInterface &tensor, TypedAttr value) {
  if (auto number = dyn_cast<FloatAttr>(value)) {
    tensor.defaultValue = number.getValueAsDouble();
    tensor.defaultBits = number.getValue().bitcastToAPInt().getZExtValue();
  } else if (auto integer = dyn_cast<IntegerAttr>(value)) {
    bool isSigned = !integer.getType().isUnsignedInteger() && !integer.getType().isSignlessInteger(1);
    tensor.defaultValue = isSigned ? integer.getValue().signedRoundToDouble() : integer.getValue().roundToDouble();
    tensor.defaultBits = integer.getValue().getZExtValue();
  }
}

/// Orders the sizes so that each follows from one dimension and those before it: plain names first, then, as long as
/// there are any, expressions with one unknown name.
static SizePositions orderSizes(KernelOp kernel, std::vector<SizeInterface> &sizes) {
  SizePositions positions;
  auto visit = [&](bool plain) {
    bool found = false;
    for (auto [tensor, parameter] : llvm::enumerate(kernel.getParameters()))
      for (auto [dimension, size] : llvm::enumerate(cast<AttnTensorType>(parameter.getType()).getShape())) {
        StringAttr name = size.isName() == plain ? solvableName(size, positions) : StringAttr();
        if (!name)
          continue;
        sizes.push_back({name.str(), int64_t(tensor), int64_t(dimension), solutionProgram(size, name, positions)});
        positions[name.getValue()] = sizes.size() - 1;
        found = true;
      }
    return found;
  };
  visit(/*plain=*/true);
  while (visit(/*plain=*/false))
    ;
  return positions;
}

static TensorInterface describe(StringRef name, AttnTensorType type, const SizePositions &positions) {
  TensorInterface tensor{name.str(), "", 0, 0, {}, {}, 0};
  setElementType(tensor, type.getElementType());
  for (SizeAttr size : type.getShape())
    tensor.shape.push_back(sizeProgram(size, positions));
  return tensor;
}

static LogicalResult checkDepth(KernelOp kernel, const SizeProgram &program) {
  if (stackDepth(program) <= ATTN_STACK_DEPTH)
    return success();
  return kernel.emitError() << "the size expression '" << program.text << "' is nested too deeply";
}

/// What indices range over that no shape of a parameter bounds, each with one of its indices. A name is bounded by the
/// dimension that it is solved from.
static llvm::MapVector<SizeAttr, BlockArgument> unboundedRanges(KernelOp kernel) {
  llvm::DenseSet<SizeAttr> bounded;
  for (BlockArgument parameter : kernel.getParameters())
    bounded.insert_range(cast<AttnTensorType>(parameter.getType()).getShape());
  llvm::MapVector<SizeAttr, BlockArgument> ranges;
  kernel.walk([&](Block *block) {
    for (BlockArgument index : block->getArguments()) {
      if (!index.getType().isInteger(64))
        continue;
      SizeAttr size = indexSize(index);
      bool isBounded =
          size.isName() || bounded.contains(size) || (size.isConstant() && size.getValue() <= longestDimension);
      if (!isBounded)
        ranges.insert({size, index});
    }
  });
  return ranges;
}

FailureOr<KernelInterface> KernelInterface::of(KernelOp kernel, KernelOp checking) {
  KernelInterface interface;
  interface.name = kernel.getSymName().str();
  SizePositions positions = orderSizes(kernel, interface.sizes);
  for (StringAttr name : kernel.getSizeNames())
    interface.sizeOrder.push_back(positions.at(name.getValue())); // the front end has found it
  for (unsigned i = 0; i < kernel.getParameters().size(); ++i) {
    interface.inputs.push_back(describe(kernel.getParameterName(i), kernel.getParameterType(i), positions));
    if (TypedAttr value = kernel.getDefault(i))
      setDefault(interface.inputs.back(), value);
  }
  ReturnOp outputs = kernel.getReturn();
  for (unsigned i = 0; i < outputs.getOutputs().size(); ++i)
    interface.outputs.push_back(describe(outputs.getOutputName(i), outputs.getOutputType(i), positions));
  for (const KernelOp::Check &check : kernel.getChecks()) {
    interface.checks.push_back(
        {check.message.str(), sizeProgram(check.part, positions), sizeProgram(check.whole, positions)});
    for (const SizeProgram *size : {&interface.checks.back().part, &interface.checks.back().whole})
      if (failed(checkDepth(kernel, *size)))
        return failure();
  }
  for (auto [size, index] : unboundedRanges(kernel)) {
    interface.ranges.push_back({indexName(index).str(), sizeProgram(size, positions)});
    if (failed(checkDepth(kernel, interface.ranges.back().size)))
      return failure();
  }
  if (checking)
    for (const KernelOp::Bound &bound : checking.getBounds()) {
      interface.bounds.push_back(
          {bound.statement.str(), bound.tensor.str(), bound.dimension, sizeProgram(bound.size, positions)});
      if (failed(checkDepth(kernel, interface.bounds.back().size)))
        return failure();
    }
  for (const auto *tensors : {&interface.inputs, &interface.outputs})
    for (const TensorInterface &tensor : *tensors)
      for (const SizeProgram &size : tensor.shape)
        if (failed(checkDepth(kernel, size)))
          return failure();
  for (const SizeInterface &size : interface.sizes)
    if (failed(checkDepth(kernel, size.solution)))
      return failure();
  return interface;
}

void KernelInterface::addOutput(const std::string &name, Type element, int64_t extent) {
  TensorInterface &tensor = outputs.emplace_back(TensorInterface{name, "", 0, 0, {}, {}, 0});
  setElementType(tensor, element);
  tensor.shape.push_back(sizeProgram(SizeAttr::constant(element.getContext(), extent), {}));
}

std::array<size_t, 6> attn::firstArguments(const LoweredKernel &kernel, const KernelInterface &interface,
                                           size_t outputs) {
  size_t sizes = interface.inputs.size(), firstOutput = sizes + interface.sizes.size();
  size_t firstIntermediate = firstOutput + outputs, firstAxis = firstIntermediate + kernel.intermediates.size();
  size_t axes = 0;
  for (const LoweredBlocks &blocks : kernel.blocks)
    axes = std::max(axes, blocks.sizes.size());
  return {0, sizes, firstOutput, firstIntermediate, firstAxis, firstAxis + 2 * axes};
}

ProgramInterface ProgramInterface::of(const LoweredProgram &kernel, const KernelInterface &interface, size_t outputs,
                                      const std::string &function) {
  const LoweredKernel &lowered = kernel.steps;
  SizePositions positions;
  for (auto [position, size] : llvm::enumerate(interface.sizes))
    positions[size.name] = position;
  ProgramInterface program;
  program.features = lowered.features;
  program.device = lowered.device;
  program.copies = kernel.copies;
  for (const Intermediate &tensor : lowered.intermediates)
    program.intermediates.push_back({describe(tensor.name, tensor.type, positions), tensor.written, tensor.read});
  const std::array<size_t, 6> first = firstArguments(lowered, interface, outputs);
  for (const LoweredStep &step : lowered.steps) {
    auto &[work, variants] = program.steps.emplace_back();
    if (step.work)
      work = sizeProgram(step.work, positions);
    if (stackDepth(work) > ATTN_STACK_DEPTH)
      work = {};
    auto describeLimit = [&](const SizeLimit &limit) {
      return LimitInterface{sizeProgram(limit.size, positions), limit.atMost};
    };
    for (const SizeLimit &limit : step.unread)
      variants.push_back({describeLimit(limit), {}, ""});
    for (const HalideFunction &variant : step.variants) {
      VariantInterface &described = variants.emplace_back();
      described.function = function + "_" + variant.code();
      if (const std::optional<SizeLimit> &limit = variant.limit())
        described.limit = describeLimit(*limit);
      for (const HalideArgument &argument : variant.arguments()) {
        int64_t number = first[argument.kind] + argument.index;
        if (argument.repeated)
          number = -1 - static_cast<int64_t>(number | *argument.repeated << ATTN_REPEATED_BITS);
        described.arguments.push_back(number);
      }
    }
  }
  for (const LoweredBlocks &blocks : lowered.blocks) {
    BlocksInterface &described = program.blocks.emplace_back();
    described.first = blocks.first;
    described.end = blocks.end;
    described.findsKeys = blocks.keys != BlockKeys::All;
    described.searchesKeys = blocks.keys == BlockKeys::Searched;
    described.cutsKeys = blocks.cutsKeys;
    for (SizeAttr size : blocks.sizes)
      described.sizes.push_back(sizeProgram(size, positions));
    for (const BlockTensor &tensor : blocks.tensors)
      described.tensors.push_back({int64_t(first[tensor.place.kind] + tensor.place.index),
                                   tensor.isPairs,
                                   {tensor.axes.begin(), tensor.axes.end()}});
  }
  for (const CutSize &cut : lowered.cuts)
    program.cuts.push_back({positions.at(cut.name.getValue()), cut.isOfRows ? ATTN_CUT_ROWS : 1});
  return program;
}

static attn_expression view(const SizeProgram &program) {
  return {program.text.c_str(), int64_t(program.code.size()), program.code.data()};
}

NativeSignature::NativeSignature(KernelInterface described, KernelPrograms programs) : interface(std::move(described)) {
  for (const auto *list : {&interface.inputs, &interface.outputs})
    for (const TensorInterface &tensor : *list) {
      auto &shape = shapes.emplace_back();
      llvm::append_range(shape, llvm::map_range(tensor.shape, view));
      tensors.push_back({tensor.name.c_str(), tensor.code, tensor.bits, int64_t(shape.size()), shape.data(),
                         tensor.defaultValue.has_value(), tensor.defaultBits});
    }
  for (const SizeInterface &size : interface.sizes)
    sizes.push_back({size.name.c_str(), size.tensor, size.dimension, view(size.solution)});
  for (const CheckInterface &check : interface.checks)
    checks.push_back({check.message.c_str(), view(check.part), view(check.whole)});
  for (const RangeInterface &range : interface.ranges)
    ranges.push_back({range.index.c_str(), view(range.size)});
  for (const BoundInterface &bound : interface.bounds)
    boundList.push_back({bound.statement.c_str(), bound.tensor.c_str(), bound.dimension, view(bound.size)});
  bounds = {int64_t(boundList.size()), boundList.data(), programs.checking != nullptr, programs.checking};
  signature = {interface.name.c_str(),
               int64_t(interface.inputs.size()),
               int64_t(interface.outputs.size()),
               int64_t(sizes.size()),
               tensors.data(),
               sizes.data(),
               interface.sizeOrder.data(),
               int64_t(checks.size()),
               checks.data(),
               int64_t(ranges.size()),
               ranges.data(),
               programs.kernel != nullptr,
               programs.kernel,
               ""};
}
