//===- Launch.cpp - Kernels for tensor cores in objects and libraries -----===//

#include "Launch.h"

#include "Embedded.h"
#include "SizePrograms.h"

using namespace attn;

llvm::Error attn::addLaunch(ProgramInterface &program, const LoweredKernel &kernel, const KernelInterface &interface) {
  if (!kernel.tensorCores)
    return llvm::Error::success();
  const CudaKernel &code = *kernel.tensorCores;
  SizePositions positions;
  for (auto [position, size] : llvm::enumerate(interface.sizes))
    positions[size.name] = position;
  LaunchInterface launch;
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
  auto images = compileCuda(cudaHeaders() + code.text, code.name, kernel.architectures,
                            /*forLater=*/!code.plan.warpgroups);
  if (!images)
    return images.takeError();
  launch.function = code.name;
  launch.merge = code.name + "_merge";
  launch.images = std::move(*images);
  launch.threads = code.plan.threads();
  launch.sharedBytes = code.plan.sharedBytes();
  launch.tileRows = code.plan.queries;
  launch.tileKeys = code.plan.keys;
  launch.mergedRows = code.plan.warps;
  launch.stateSize = code.plan.stateSize();
  for (auto [size, atMost] : code.limits)
    launch.limits.push_back({sizeProgram(size, positions), atMost});
  llvm::append_range(launch.contiguous, code.rowInputs);
  launch.contiguous.push_back(interface.inputs.size() + interface.sizes.size() + code.rowOutput);
  launch.maps = code.maps;
  program.launch = std::move(launch);
  return llvm::Error::success();
}
