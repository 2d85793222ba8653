//===- Rewrites.cpp - What passes say they did ----------------------------===//

#include "Rewrites.h"

#include "attn/Transforms/Passes.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;
using namespace attn;

static constexpr const char *category = "attn";

void attn::noteRewrite(Operation *op, StringRef name, const Twine &text) {
  auto kernel = op->getParentOfType<KernelOp>();
  remark::passed(op->getLoc(), remark::RemarkOpts::name(name).category(category).function(kernel.getSymName()))
      << text.str();
}

namespace {
class Collector : public remark::detail::MLIRRemarkStreamerBase {
public:
  Collector(std::vector<Rewrite> &rewrites) : rewrites(rewrites) {}

  void streamOptimizationRemark(const remark::detail::Remark &remark) override {
    Rewrite rewrite{remark.getFunction().str(), remark.getRemarkName().str(), {}};
    for (const remark::detail::Remark::Arg &part : remark.getArgs())
      rewrite.text += part.val;
    rewrites.push_back(std::move(rewrite));
  }

private:
  std::vector<Rewrite> &rewrites;
};
} // namespace

void attn::collectRewrites(MLIRContext &context, std::vector<Rewrite> &rewrites) {
  remark::RemarkCategories categories;
  categories.passed = category;
  // Fails only for expressions that are none.
  (void)remark::enableOptimizationRemarks(context, std::make_unique<Collector>(rewrites),
                                          std::make_unique<remark::RemarkEmittingPolicyAll>(), categories);
}
