//===- Plan.cpp - The choice of tile sizes ---------------------------------===//

#include "attn/Plan/Plan.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/KeyRange.h"

#include "llvm/Support/raw_ostream.h"

using namespace attn;

/// "lower <= n < upper"; a bound that is missing is the size's own.
static std::string describe(const KeyRange &range, mlir::BlockArgument key) {
  std::string lower = range.lower ? describe(*range.lower) : "0";
  std::string upper = range.upper ? describe(*range.upper) : indexSize(key).str();
  return lower + " <= " + indexName(key).str() + " < " + upper;
}

static void addRange(std::vector<KeyRangePlan> &ranges, llvm::StringRef name, mlir::Region &condition) {
  mlir::BlockArgument key = condition.getArguments().back();
  MaskRange range = maskRange(condition.front().back().getOperand(0), key);
  ranges.push_back({name.str(), describe(range.possible, key), describe(range.certain, key)});
}

/// Register tiles of queries × keys whose accumulators fill most of the vector registers: the product
/// loads `vectors` query vectors and `keyUnroll` broadcast keys for vectors · keyUnroll multiply-adds.
/// 32 registers: 3 × 8 = 24 accumulators; 16 registers: 3 × 4 = 12.
Plan Plan::choose(KernelOp kernel, const Machine &machine) {
  constexpr unsigned vectors = 3;
  bool isDouble = llvm::any_of(kernel.getParameters(), [](mlir::Value parameter) {
    return llvm::cast<AttnTensorType>(parameter.getType()).getElementType().isF64();
  });
  unsigned bytesPerScore = isDouble ? 8 : 4;
  Plan plan;
  plan.lanes = machine.vectorBytes / bytesPerScore;
  plan.tile.lanes = plan.lanes;
  plan.tile.queries = vectors * plan.lanes;
  plan.tile.keyUnroll = plan.tile.valueUnroll = machine.vectorRegisters >= 32 ? 8 : 4;
  plan.tile.chunk = 256;
  kernel.walk([&](mlir::Operation *op) {
    if (auto softmax = llvm::dyn_cast<SoftmaxOp>(op); softmax && softmax.getMask())
      addRange(plan.ranges, softmax.getName().empty() ? softmax.getLogsumexpName() : softmax.getName(),
               softmax.getMask().getDefiningOp<MaskOp>().getBody());
    if (auto sum = llvm::dyn_cast<WeightedSumOp>(op); sum && !sum.getWhere().empty())
      addRange(plan.ranges, sum.getName(), sum.getWhere());
  });
  return plan;
}

void Plan::print(llvm::raw_ostream &os) const {
  os << "tiled: " << tile.queries << " queries a tile in vectors of " << tile.lanes << ", " << tile.chunk
     << " keys a chunk, register tiles of " << tile.queries << " x " << tile.keyUnroll << " scores and " << tile.queries
     << " x " << tile.valueUnroll << " outputs\n"
     << "other statements: vectors of " << lanes << '\n';
  for (const KeyRangePlan &range : ranges)
    os << "keys of " << range.name << ": visited " << range.possible << "; without a mask " << range.certain << '\n';
}
