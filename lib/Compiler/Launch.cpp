//===- Launch.cpp - Kernels for tensor cores in objects and libraries -----===//

#include "Launch.h"

#include "Embedded.h"
#include "SizePrograms.h"

#include "llvm/Support/MathExtras.h"

using namespace attn;

//===----------------------------------------------------------------------===//
// What it takes the place of
//===----------------------------------------------------------------------===//

/// Where a tensor is; none where no step needs it.
static std::optional<HalideArgument> placeOf(mlir::Value tensor, const LoweredKernel &kernel) {
  if (auto parameter = mlir::dyn_cast<mlir::BlockArgument>(tensor))
    return HalideArgument{HalideArgument::Input, parameter.getArgNumber()};
  for (auto [number, intermediate] : llvm::enumerate(kernel.intermediates))
    if (intermediate.tensor == tensor)
      return HalideArgument{HalideArgument::Intermediate, unsigned(number)};
  mlir::ValueRange outputs = tensor.getDefiningOp()->getParentOfType<KernelOp>().getReturn().getOutputs();
  auto found = llvm::find(outputs, tensor);
  if (found == outputs.end())
    return std::nullopt;
  return HalideArgument{HalideArgument::Output, unsigned(found - outputs.begin())};
}

namespace {
/// The steps around a launch.
struct LaunchSteps {
  unsigned step;              ///< In whose place it runs: the last that writes what it writes.
  std::vector<bool> replaced; ///< Of each step: whether nobody needs what it writes.
};
} // namespace

/// None where the launch cannot run: a step that does not wait for it needs what it writes.
static std::optional<LaunchSteps> findSteps(const LoweredKernel &kernel, llvm::ArrayRef<HalideArgument> read,
                                            llvm::ArrayRef<HalideArgument> written) {
  auto isWritten = [&](const HalideArgument &place) { return llvm::is_contained(written, place); };
  auto last = std::find_if(kernel.steps.rbegin(), kernel.steps.rend(),
                           [&](const LoweredStep &step) { return llvm::any_of(step.written, isWritten); });
  if (last == kernel.steps.rend() || !kernel.blocks.empty())
    return std::nullopt;
  LaunchSteps result = {unsigned(kernel.steps.rend() - last - 1), std::vector<bool>(kernel.steps.size())};
  std::vector<HalideArgument> needed;
  for (unsigned number = kernel.steps.size(); number-- > 0;) {
    const LoweredStep &step = kernel.steps[number];
    if (number == result.step)
      llvm::append_range(needed, read);
    result.replaced[number] = llvm::none_of(step.written, [&](const HalideArgument &place) {
      return !isWritten(place) && (place.kind == HalideArgument::Output || llvm::is_contained(needed, place));
    });
    if (result.replaced[number])
      continue;
    for (const HalideFunction &variant : step.variants)
      for (const HalideArgument &argument : variant.arguments())
        if (number < result.step && isWritten(argument))
          return std::nullopt;
        else
          needed.push_back(argument);
  }
  return result.replaced[result.step] ? std::optional(result) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// The launch
//===----------------------------------------------------------------------===//

llvm::Error attn::addLaunch(ProgramInterface &program, const LoweredProgram &lowered,
                            const KernelInterface &interface) {
  if (!lowered.tensorCores)
    return llvm::Error::success();
  const CudaKernel &code = *lowered.tensorCores;
  const LoweredKernel &kernel = lowered.steps;
  LaunchInterface launch;
  std::vector<HalideArgument> read, written;
  llvm::DenseMap<mlir::Value, int64_t> numbers;
  const std::array<size_t, 6> first = firstArguments(kernel, interface, interface.outputs.size());
  for (const auto &[tensor, isWritten] : code.tensors) {
    std::optional<HalideArgument> place = placeOf(tensor, kernel);
    if (!place)
      return llvm::Error::success();
    (isWritten ? written : read).push_back(*place);
    int64_t number = first[place->kind] + place->index;
    numbers[tensor] = number;
    auto type = mlir::cast<AttnTensorType>(tensor.getType());
    bool isValue = place->kind == HalideArgument::Input && type.getRank() == 0;
    int64_t bytes = isValue ? llvm::divideCeil(type.getElementType().getIntOrFloatBitWidth(), 8) : 0;
    launch.arguments.push_back({number, bytes, isWritten});
  }
  std::optional<LaunchSteps> steps = findSteps(kernel, read, written);
  if (!steps)
    return llvm::Error::success();
  launch.step = steps->step;
  llvm::append_range(launch.replaced, steps->replaced);
  for (const HalideArgument &place : read)
    if (place.kind == HalideArgument::Intermediate)
      program.intermediates[place.index].read = std::max(program.intermediates[place.index].read, launch.step);

  SizePositions positions;
  for (auto [position, size] : llvm::enumerate(interface.sizes))
    positions[size.name] = position;
  SizeAttr others = SizeAttr::constant(code.rows.getContext(), 1);
  for (SizeAttr size : code.others)
    others = SizeAttr::binary(SizeKind::Mul, others, size);
  launch.rows = sizeProgram(code.rows, positions);
  launch.others = sizeProgram(others, positions);
  launch.keys = sizeProgram(code.keys, positions);
  // Sizes that are nested as deeply as can be: the products would be too deep.
  for (const SizeProgram &size : {launch.rows, launch.others})
    if (stackDepth(size) > ATTN_STACK_DEPTH)
      return llvm::Error::success();
  auto images = compileCuda(cudaHeaders() + code.text, code.name, lowered.architectures,
                            /*forLater=*/!code.plan.warpgroups);
  if (!images)
    return images.takeError();
  for (const auto &[function, plan] : {std::pair(code.name + "_few", code.plan.forFewRows()), {code.name, code.plan}})
    launch.tilings.push_back({function, plan.queries, plan.keys, plan.threads(), plan.sharedBytes(), plan.resident()});
  launch.merge = code.name + "_merge";
  launch.mergingThreads = code.plan.mergingThreads();
  launch.images = std::move(*images);
  launch.stateSize = code.plan.stateSize();
  for (auto [size, atMost] : code.limits)
    launch.limits.push_back({sizeProgram(size, positions), atMost});
  for (mlir::Value tensor : code.contiguous)
    launch.contiguous.push_back(numbers.lookup(tensor));
  for (const CudaTensorMap &map : code.maps)
    launch.maps.push_back({numbers.lookup(map.tensor), map.axis});
  program.launch = std::move(launch);
  return llvm::Error::success();
}
