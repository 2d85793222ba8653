//===- Reciprocals.cpp - Estimates in whole vectors -----------------------===//

#include "Reciprocals.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsX86.h"

using namespace attn;

/// Whether `value` is the estimate of the half of `whole` that starts at lane `first`.
static bool isEstimateOfHalf(llvm::Value *value, int first, llvm::Value *&whole) {
  auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(value);
  if (!call || call->getIntrinsicID() != llvm::Intrinsic::x86_avx_rcp_ps_256)
    return false;
  auto *half = llvm::dyn_cast<llvm::ShuffleVectorInst>(call->getArgOperand(0));
  int start = 0;
  if (!half || !half->isExtractSubvectorMask(start) || start != first)
    return false;
  whole = half->getOperand(0);
  return llvm::cast<llvm::FixedVectorType>(whole->getType())->getNumElements() == 16;
}

void attn::joinReciprocalEstimates(llvm::Module &module) {
  for (llvm::Function &function : module) {
    if (!function.getFnAttribute("target-features").getValueAsString().contains("+avx512f"))
      continue;
    for (llvm::Instruction &instruction : llvm::make_early_inc_range(llvm::instructions(function))) {
      auto *joined = llvm::dyn_cast<llvm::ShuffleVectorInst>(&instruction);
      llvm::Value *low = nullptr, *high = nullptr;
      if (!joined || !joined->isConcat() || !isEstimateOfHalf(joined->getOperand(0), 0, low) ||
          !isEstimateOfHalf(joined->getOperand(1), 8, high) || low != high)
        continue;
      llvm::IRBuilder<> builder(joined);
      llvm::Value *estimate =
          builder.CreateIntrinsic(llvm::Intrinsic::x86_avx512_rcp14_ps_512, {},
                                  {low, llvm::Constant::getNullValue(low->getType()), builder.getInt16(-1)});
      joined->replaceAllUsesWith(estimate);
      joined->eraseFromParent();
    }
  }
}
