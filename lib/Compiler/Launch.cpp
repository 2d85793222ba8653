//===- Launch.cpp - Kernels for tensor cores in objects and libraries -----===//

#include "Launch.h"

#include "Embedded.h"
#include "SizePrograms.h"

using namespace attn;

/// The number of blocks: tiles of queries times the other indices.
static SizeAttr blocksOf(const CudaKernel &kernel) {
  mlir::MLIRContext *context = kernel.queries.getContext();
  auto constant = [&](int64_t value) { return SizeAttr::constant(context, value); };
  SizeAttr rounded = SizeAttr::binary(SizeKind::Add, kernel.queries, constant(kernel.plan.queries - 1));
  SizeAttr blocks = SizeAttr::binary(SizeKind::FloorDiv, rounded, constant(kernel.plan.queries));
  for (SizeAttr size : kernel.others)
    blocks = SizeAttr::binary(SizeKind::Mul, blocks, size);
  return blocks;
}

llvm::Error attn::addLaunch(ProgramInterface &program, const LoweredKernel &kernel, const KernelInterface &interface) {
  if (!kernel.tensorCores)
    return llvm::Error::success();
  const CudaKernel &code = *kernel.tensorCores;
  SizePositions positions;
  for (auto [position, size] : llvm::enumerate(interface.sizes))
    positions[size.name] = position;
  LaunchInterface launch;
  launch.blocks = sizeProgram(blocksOf(code), positions);
  // Sizes that are nested as deeply as can be: the product would be too deep.
  if (stackDepth(launch.blocks) > ATTN_STACK_DEPTH)
    return llvm::Error::success();
  auto images = compileCuda(cudaHeaders() + code.text, code.name, kernel.architectures);
  if (!images)
    return images.takeError();
  launch.function = code.name;
  launch.images = std::move(*images);
  launch.threads = code.plan.threads();
  launch.sharedBytes = code.plan.sharedBytes();
  for (auto [size, atMost] : code.limits)
    launch.limits.push_back({sizeProgram(size, positions), atMost});
  llvm::append_range(launch.rows, code.rowInputs);
  launch.rows.push_back(interface.inputs.size() + interface.sizes.size() + code.rowOutput);
  program.launch = std::move(launch);
  return llvm::Error::success();
}
