//===- Print.cpp - Plans and machines as text -----------------------------===//

#include "attn/Plan/Plan.h"
#include "attn/Runtime/Signature.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace attn;

std::string Machine::platform() const {
  llvm::SmallVector<llvm::StringRef> parts;
  llvm::StringRef(target).split(parts, '-');
  return llvm::join(llvm::ArrayRef(parts).take_front(3), "-");
}

/// "32 KiB", "1 MiB".
static std::string byteCount(uint64_t bytes) {
  bool isMebi = bytes % (1 << 20) == 0;
  return llvm::utostr(isMebi ? bytes >> 20 : bytes >> 10) + (isMebi ? " MiB" : " KiB");
}

void Machine::print(llvm::raw_ostream &os) const {
  os << "target: " << target << "\nvectors: " << vectorBytes << " bytes, " << vectorRegisters << " registers, "
     << multiplyAdds << " of multiply-adds begin in a clock" << (maskedLoads ? ", loads of some lanes alone" : "")
     << "\nbf16: " << (bf16Pairs ? "products of pairs" : "widened to f32") << '\n';
  for (const CudaArchitecture &architecture : tensorCores)
    os << (&architecture == &tensorCores.front() ? "tensor cores: " : ", ") << architecture.name();
  if (!tensorCores.empty())
    os << '\n';
  if (cores)
    os << "cores: " << cores << '\n';
  for (unsigned level = 0; level < cacheBytes.size(); ++level)
    if (cacheBytes[level])
      os << "cache " << level + 1 << ": " << byteCount(cacheBytes[level]) << '\n';
}

static void print(llvm::raw_ostream &os, const char *name, const TilePlan &tile) {
  os << name << ": " << tile.queries << " queries a tile in vectors of " << tile.lanes << ", " << tile.chunk
     << " keys a chunk, added in blocks of " << tile.block << ", register tiles of " << tile.queries << " x "
     << tile.keyUnroll << " scores and " << tile.queries << " x " << tile.valueUnroll << " outputs"
     << (tile.bf16Pairs ? ", bf16 in pairs" : "") << "\n";
}

static llvm::StringRef nameOf(PlanKind kind, llvm::StringRef nest) {
  switch (kind) {
  case PlanKind::None:
    return "none";
  case PlanKind::Nest:
    return nest;
  case PlanKind::Scatter:
    return "scatter";
  case PlanKind::Scan:
    return "scan";
  case PlanKind::Matrix:
    return "matrix";
  case PlanKind::Split:
    return "split";
  case PlanKind::NarrowTiles:
    return "narrow";
  case PlanKind::Tiles:
    return "tiled";
  }
  llvm_unreachable("unknown plan");
}

void SumPlan::print(llvm::raw_ostream &os, llvm::StringRef nest) const {
  os << "sum " << name << ": ";
  for (const PlanVariant &variant : variants) {
    os << nameOf(variant.kind, nest);
    std::vector<std::string> made;
    for (TensorOp tensor : keyTensors)
      if (makes(variant.kind, tensor))
        made.push_back(tensor.getName().str() + " made at keys");
    for (TensorOp tensor : queryTensors)
      made.push_back(tensor.getName().str() + " made at queries");
    if (!made.empty())
      os << " (" << llvm::join(made, ", ") << ')';
    if (variant.limit)
      os << " for at most " << variant.limit->atMost << ' ' << queryName << ", else ";
  }
  os << '\n';
}

void Plan::print(llvm::raw_ostream &os) const {
  if (gpu)
    return printForGpu(os);
  auto some = [&](PlanKind kind) { return llvm::any_of(sums, [&](const SumPlan &sum) { return sum.has(kind); }); };
  if (some(PlanKind::Tiles))
    ::print(os, "tiled", tile);
  if (some(PlanKind::NarrowTiles))
    ::print(os, "narrow", narrow);
  if (some(PlanKind::Split))
    os << "split: " << split.chunk << " keys a chunk, added in blocks of " << split.block() << ", spans for "
       << split.tasks << " tasks, at most " << split.rows << " rows in a pass over keys, register tiles of 1 x "
       << split.scoreKeys << " and " << split.rowTile << " x " << split.scoreKeysOfSeveral() << " scores, and for "
       << split.keyTile << " keys of 1 x " << split.valueVectors * lanes << " and " << split.valueRows << " x "
       << split.valueVectorsOfSeveral * lanes << " outputs" << (split.bf16Pairs ? ", bf16 in pairs" : "") << '\n';
  os << "other statements: vectors of " << lanes << '\n';
  for (const SumPlan &sum : sums)
    sum.print(os, "by rows");
  for (const MatrixPlan &matrix : matrices) {
    os << "matrix " << matrix.name << ": ";
    if (!matrix.inPlaceOf.empty())
      os << "in the place of " << matrix.inPlaceOf << ": ";
    if (matrix.rowSize)
      os << "for at least " << MatrixPlan::fewRows + 1 << ' ' << matrix.rowName << ": ";
    os << "register tiles of " << matrix.rows << ' ' << matrix.rowName << " x ";
    if (matrix.second)
      os << matrix.secondRows << ' ' << matrix.secondName << " x ";
    os << matrix.vectors * matrix.lanes << ' ' << matrix.columnName << ", panels of " << matrix.vectors * matrix.lanes
       << ' ' << matrix.columnName << (matrix.packsRows ? " and rows packed for at most " : " packed for ")
       << matrix.rows * matrix.tiles << ' ' << matrix.rowName << ", sums in chains of " << matrix.chain
       << " and blocks of " << matrix.block << " terms\n";
  }
  for (const ScatterPlan &scatter : scatters)
    os << "scatter " << scatter.name << ": each term of " << scatter.terms << " is added where it belongs along "
       << scatter.places << '\n';
  for (const ScanPlan &scan : scans)
    os << "scan " << scan.name << ": a running total along " << scan.end
       << (scan.isReversed ? ", from the last to the first\n" : "\n");
  for (const UnreadPlan &calls : unread) {
    os << "not computed: " << calls.name;
    if (!calls.calls.size.isConstant())
      os << " where " << calls.calls.size.str() << " <= " << calls.calls.atMost;
    os << '\n';
  }
  if (!cuts.empty())
    os << "calls that store more than " << (ATTN_CUT_BYTES >> 20) << " MiB between steps: in parts along "
       << llvm::join(llvm::map_range(cuts, [](const CutSize &cut) { return cut.name.getValue(); }), ", ") << '\n';
  printBlocks(os);
}

void Plan::printBlocks(llvm::raw_ostream &os) const {
  for (const PairBlocks &each : blocks)
    os << each.str() << '\n';
  for (const KeyRangePlan &range : ranges)
    os << "keys of " << range.name << ": visited " << range.possible
       << (range.searched ? " from the first to the last seen" : "")
       << (range.certain.empty() ? "" : "; without a mask ") << range.certain << '\n';
}
