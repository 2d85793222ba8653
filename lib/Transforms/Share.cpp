//===- Share.cpp - Tensors with the same formula are one ------------------===//
//
//   a[n] = sum[d](k[n, d] ** 2)
//   b[j] = sum[d](k[j, d] ** 2)
//
// What reads b reads a. Names do not matter; locations neither. A tensor is compared with those before it, so what
// reads only shared tensors is shared too. Where both are outputs, b stays one, and reads a.
//
//===----------------------------------------------------------------------===//

#include "Rewrites.h"
#include "Scores.h"
#include "attn/Transforms/Passes.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNSHARE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Makes every element of `tensor` that of `same`.
static void readInstead(TensorOp tensor, TensorOp same) {
  Block &body = tensor.getBody().front();
  while (!body.empty())
    body.back().erase();
  OpBuilder builder = OpBuilder::atBlockEnd(&body);
  Value element = ReadOp::create(builder, tensor.getLoc(), same.getResult(), ValueRange(body.getArguments()));
  YieldOp::create(builder, tensor.getLoc(), element);
}

namespace {
struct Share : attn::impl::AttnShareBase<Share> {
  void runOnOperation() override {
    for (TensorOp tensor : llvm::make_early_inc_range(getOperation().getBody().front().getOps<TensorOp>())) {
      TensorOp same = earlierCopy(tensor);
      if (!same)
        continue;
      noteRewrite(tensor, "share",
                  "'" + tensor.getName() + "' has the formula of '" + same.getName() + "', which is read in its place");
      if (isReturned(tensor.getResult()) && isReturned(same.getResult())) {
        readInstead(tensor, same);
        continue;
      }
      tensor.getResult().replaceAllUsesWith(same.getResult());
      tensor.erase();
    }
  }
};
} // namespace
