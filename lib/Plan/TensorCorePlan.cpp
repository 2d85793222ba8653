//===- TensorCorePlan.cpp - Sizes of attention on tensor cores -------------===//

#include "attn/Plan/TensorCorePlan.h"

#include <algorithm>

using namespace attn;

/// What a block can have on sm_90; 163 KiB on sm_80, 99 KiB on sm_86 and sm_89.
static constexpr int mostSharedBytes = 227 * 1024;

/// Of the list in lib/CUDA/SeenTiles.cuh.
static constexpr int bytesOfSeenTiles = 1032;

int TensorCorePlan::sharedBytes() const {
  // Elements that a row of a tile takes: see lib/CUDA/Tiles.cuh.
  auto pitch = [&](int columns) {
    return warpgroups || columns > 32 ? (columns + 63) / 64 * 64 : columns <= 16 ? 16 : 32;
  };
  return 2 * (queries * pitch(dotColumns) + 2 * keys * (pitch(dotColumns) + pitch(valueColumns))) +
         threads() / 32 * 16 + (searchesTiles ? bytesOfSeenTiles : 0) + barriers() * 8;
}

int TensorCorePlan::resident() const {
  constexpr int reservedBytes = 1024, registersOfMultiprocessor = 64 * 1024, mostRegisters = 255;
  return std::min((mostSharedBytes + reservedBytes) / (sharedBytes() + reservedBytes),
                  std::max(registersOfMultiprocessor / (mostRegisters * threads()), 1));
}

TensorCorePlan TensorCorePlan::forFewRows() const {
  TensorCorePlan plan = *this;
  plan.warpgroups = plan.producer = 0;
  plan.warps = 1;
  plan.queries = 16;
  plan.keys = std::max(dotColumns, valueColumns) <= 64 ? 64 : 32;
  return plan;
}

llvm::Error TensorCorePlan::chooseFor(llvm::ArrayRef<CudaArchitecture> architectures) {
  auto isHopper = [](const CudaArchitecture &architecture) { return architecture.name() == "sm_90a"; };
  if (warpgroups == chosen)
    warpgroups = !architectures.empty() && llvm::all_of(architectures, isHopper) && queries == 0 ? 2 : 0;
  for (const CudaArchitecture &architecture : architectures)
    if (warpgroups && !isHopper(architecture))
      return llvm::createStringError("a plan with tensor.warpgroups is for sm_90a alone, but the target has " +
                                     architecture.name());
  return llvm::Error::success();
}

llvm::Expected<TensorCorePlan> TensorCorePlan::forWidths(SizeAttr dot, SizeAttr value, ElementFormulas formulas,
                                                         bool searchesTiles) const {
  TensorCorePlan plan = *this;
  plan.searchesTiles = searchesTiles;
  auto columns = [&](SizeAttr size) -> int64_t {
    return size.isConstant() ? std::max<int64_t>((size.getValue() + 15) / 16 * 16, 16) : width;
  };
  for (auto [size, member] : {std::pair(dot, &TensorCorePlan::dotColumns), {value, &TensorCorePlan::valueColumns}}) {
    if (columns(size) > 256)
      return llvm::createStringError("rows of " + size.str() + " elements are longer than 256");
    plan.*member = columns(size);
  }
  const int widest = std::max(plan.dotColumns, plan.valueColumns);
  constexpr int widestOfProducer = 192;
  if (producer == chosen)
    plan.producer = warpgroups == 2 && widest <= widestOfProducer;
  if (plan.producer && warpgroups != 2)
    return llvm::createStringError("a plan with tensor.producer has tensor.warpgroups=2, but it is " +
                                   std::to_string(warpgroups));
  // Wider outputs leave too few of the registers that a block has for three warpgroups.
  if (plan.producer && widest > widestOfProducer)
    return llvm::createStringError("rows of " + std::to_string(widest) + " elements are longer than " +
                                   std::to_string(widestOfProducer) +
                                   ", which a plan with tensor.producer takes at most");
  if (warpgroups) {
    plan.warps = 4 * warpgroups;
    plan.valueColumns = (plan.valueColumns + 63) / 64 * 64;
    if (queries && queries != 64 * warpgroups)
      return llvm::createStringError("a plan with tensor.warpgroups=" + std::to_string(warpgroups) + " has blocks of " +
                                     std::to_string(64 * warpgroups) + " queries, but tensor.queries is " +
                                     std::to_string(queries));
    plan.queries = 64 * warpgroups;
  }
  // As many as registers hold: a thread has queries · (keys + value columns) / (32 · warps) numbers of scores and
  // outputs, and addresses and rows of other tensors, where these are read.
  const bool reads = formulas == ElementFormulas::Reads, computes = formulas != ElementFormulas::Comparisons;
  if (!plan.queries)
    plan.queries = widest <= (computes ? 64 : 128) ? 128 : 64;
  if (!plan.keys && plan.producer && !computes && widest <= 128)
    plan.keys = 160;
  else if (!plan.keys && warpgroups)
    plan.keys = (widest > 128 || (widest <= 64 && !plan.producer) ? 64 : 128) / (reads ? 2 : 1);
  else if (!plan.keys)
    plan.keys = widest > 128 || (reads && plan.queries == 128) ? 32 : 64;
  if (!warpgroups && plan.keys > 128)
    return llvm::createStringError(
        "tiles of more than 128 keys are for plans with tensor.warpgroups, but tensor.keys is " +
        std::to_string(plan.keys));
  if (plan.sharedBytes() > mostSharedBytes)
    return llvm::createStringError("tiles of " + std::to_string(plan.queries) + " queries and " +
                                   std::to_string(plan.keys) + " keys take " + std::to_string(plan.sharedBytes()) +
                                   " bytes of shared memory, but a block has at most " +
                                   std::to_string(mostSharedBytes));
  return plan;
}
