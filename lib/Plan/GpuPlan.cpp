//===- GpuPlan.cpp - The choice of plans on a GPU --------------------------===//

#include "attn/Analysis/Fusion.h"
#include "attn/Plan/Plan.h"

using namespace attn;

std::string CudaArchitecture::name() const {
  return (llvm::Twine("sm_") + llvm::Twine(capability) + (isExact ? "a" : "")).str();
}

/// In tiles of queries, where the value needs no sums of its own: each thread has one for each column.
static bool isTileableOnGpu(WeightedSumOp sum) {
  if (!isFusible(sum) || !isTileable(sum))
    return false;
  bool nested = false;
  mlir::Value value = sum.getBody().front().back().getOperand(1);
  llvm::SmallVector<mlir::Value> open = {value};
  while (!open.empty()) {
    mlir::Operation *op = open.pop_back_val().getDefiningOp();
    if (!op)
      continue;
    nested |= llvm::isa<ReduceOp>(op);
    llvm::append_range(open, op->getOperands());
  }
  if (ReadOp read = proportionalTo(sum.getBody().front().back().getOperand(0))) {
    auto softmax = read.getTensor().getDefiningOp<SoftmaxOp>();
    if (mlir::Value sink = softmax.getSink())
      nested |= !llvm::cast<DefinitionOpInterface>(sink.getDefiningOp()).getBody().getOps<ReduceOp>().empty();
  }
  return !nested;
}

/// Whether the sum is known to have more columns than a block of the usual size.
static bool isWide(WeightedSumOp sum, int columns) {
  SizeAttr width = sum.getResult().getType().getShape().back();
  return width.isConstant() && width.getValue() > columns;
}

void Plan::chooseForGpu(bool isDouble) {
  gpu = GpuPlan();
  matrices.clear();
  bool wide = false;
  for (SumPlan &sum : sums) {
    auto statement = llvm::cast<WeightedSumOp>(sum.statement);
    bool isTiled = isTileableOnGpu(statement);
    sum.variants = {{isTiled ? PlanKind::Tiles : PlanKind::Nest, "", 0}};
    wide |= isTiled && isWide(statement, gpu->columns);
  }
  // Shared memory has room for half as many queries, of numbers or columns that are twice as large or many.
  if (isDouble)
    gpu->bytes = 8;
  else if (wide)
    gpu->columns = 128;
  if (isDouble || wide)
    gpu->queries = 16;
}

void Plan::printForGpu(llvm::raw_ostream &os) const {
  os << "tiled: " << gpu->queries << " queries x " << gpu->columns << " columns a block of " << gpu->threads << " x "
     << gpu->threads << " threads, " << gpu->chunk << " keys a chunk, at most " << gpu->sharedBytes()
     << " bytes of shared memory\n"
     << "statements: an element a thread, " << gpu->elementThreads << " threads a block\n";
  for (const SumPlan &sum : sums)
    os << "sum " << sum.name << ": " << (sum.has(PlanKind::Tiles) ? "tiled" : "an element a thread") << '\n';
  printRanges(os);
}
