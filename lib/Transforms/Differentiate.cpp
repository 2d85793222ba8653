//===- Differentiate.cpp - The backward kernel of a kernel ----------------===//
//
//   attention square(x: f32[N]) {
//     y[n] = x[n] * x[n]
//     return y
//   }
//
// becomes `square_forward`, which returns what `square` does and what the gradients need of its softmaxes and sums, and
//
//   attention square_backward(x: f32[N], grad_y: f32[N]) {
//     grad_x[n] = grad_y[n] * x[n] + grad_y[n] * x[n]
//     return grad_x
//   }
//
//===----------------------------------------------------------------------===//

#include "Backward.h"
#include "Form.h"
#include "LogSumExp.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNDIFFERENTIATE
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

/// Makes `kernel` return what its backward kernel needs as well.
static void returnSaved(KernelOp kernel, const Backward &backward) {
  ReturnOp returned = kernel.getReturn();
  OpBuilder builder(returned);
  SmallVector<Value> outputs(returned.getOutputs());
  SmallVector<Attribute> types(returned.getOutputTypes().begin(), returned.getOutputTypes().end());
  auto add = [&](TensorOp tensor) {
    outputs.push_back(tensor.getResult());
    types.push_back(TypeAttr::get(tensor.getResult().getType().getElementType()));
  };
  for (const SoftmaxGroup &group : backward.groups) {
    builder.setInsertionPoint(returned);
    add(writeLogSumExp(tensorNamed(kernel, group.source), group.saved, builder));
  }
  for (StringRef name : backward.savedSums)
    add(tensorNamed(kernel, name));
  if (size_t saved = outputs.size() - returned.getOutputs().size())
    kernel->setAttr(KernelOp::savedName, builder.getI64IntegerAttr(saved));
  ReturnOp::create(builder, returned.getLoc(), outputs, builder.getArrayAttr(types));
  returned.erase();
}

/// The floating-point parameters with these names; all of them where there are no names.
static FailureOr<SmallVector<StringRef>> differentiableInputs(KernelOp kernel, ArrayRef<std::string> requested) {
  SmallVector<StringRef> floats, all;
  for (BlockArgument parameter : kernel.getParameters()) {
    StringRef name = kernel.getParameterName(parameter.getArgNumber());
    all.push_back(name);
    if (hasGradient(parameter))
      floats.push_back(name);
  }
  auto fail = [&](const llvm::Twine &message) -> FailureOr<SmallVector<StringRef>> {
    return LogicalResult(kernel.emitError() << message);
  };
  if (floats.empty())
    return fail("kernel `" + kernel.getSymName() +
                "` has no floating-point input: there is nothing to differentiate by");
  for (StringRef name : requested) {
    if (llvm::count(requested, name) > 1)
      return fail("the gradient by `" + name + "` is asked for twice");
    if (!llvm::is_contained(all, name))
      return fail("kernel `" + kernel.getSymName() + "` has no input `" + name + "`: its floating-point inputs are " +
                  llvm::join(floats, ", "));
    if (!llvm::is_contained(floats, name))
      return fail("input `" + name + "` of kernel `" + kernel.getSymName() + "` holds no floats, and has no gradient");
  }
  if (requested.empty())
    return floats;
  return SmallVector<StringRef>(requested.begin(), requested.end());
}

namespace {
struct Differentiate : attn::impl::AttnDifferentiateBase<Differentiate> {
  using AttnDifferentiateBase::AttnDifferentiateBase;

  void runOnOperation() override {
    for (KernelOp kernel : llvm::to_vector(getOperation().getOps<KernelOp>())) {
      FailureOr<SmallVector<StringRef>> names = differentiableInputs(kernel, inputs);
      if (failed(names))
        return signalPassFailure();
      std::string name = kernel.getSymName().str();
      OpBuilder builder(kernel.getContext());
      builder.setInsertionPointAfter(kernel);
      auto copy = cast<KernelOp>(builder.clone(*kernel));
      copy.setSymName(name + KernelOp::backwardSuffix.str());
      kernel.setSymName(name + KernelOp::forwardSuffix.str());
      Backward backward(copy, *names);
      if (failed(backward.run()))
        return signalPassFailure();
      returnSaved(kernel, backward);
    }
  }
};
} // namespace
