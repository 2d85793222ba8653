//===- Lowering.cpp - A kernel becomes steps ------------------------------===//

#include "Implementation.h"
#include "StepLowering.h"

using namespace attn;
using namespace attn::lowering;

namespace {

/// Lowers the steps of a kernel from the last to the first.
class KernelLowering {
public:
  KernelLowering(KernelOp kernel, const Plan &plan, const Machine &machine)
      : kernel(kernel), plan(plan), target(loweringTarget(machine)), storage(kernel) {}

  LoweredKernel run() {
    for (unsigned output : llvm::reverse(storage.converted)) {
      std::string name = kernel.getReturn().getOutputName(output).str() + "_output";
      addVariant(name, {}, [&](StepLowering &step) { step.convertOutput(output); });
      endStep();
    }
    for (mlir::Operation &op : llvm::reverse(kernel.getBody().front()))
      for (mlir::OpResult result : llvm::reverse(op.getResults()))
        if (storage.isNeeded(result))
          addStore(result);
    return finish();
  }

private:
  /// A fused sum that is split for few queries and tiled for many has a variant for each.
  void addStore(mlir::OpResult tensor) {
    std::string name = tensorName(kernel, tensor);
    written[tensor] = steps.size();
    auto sum = mlir::dyn_cast<WeightedSumOp>(tensor.getOwner());
    bool split = sum && plan.sum(sum).split;
    if (split && plan.sum(sum).tiled) {
      llvm::SmallVector<mlir::StringAttr> sizes = kernel.getSizeNames();
      auto queries = llvm::find_if(sizes, [&](mlir::StringAttr size) { return size == plan.sum(sum).querySize; });
      SizeLimit few{static_cast<unsigned>(queries - sizes.begin()), plan.split.queries};
      addVariant(name + "_split", {few}, [&](StepLowering &step) { step.store(tensor, true); });
      split = false;
    }
    addVariant(name, {}, [&](StepLowering &step) { step.store(tensor, split); });
    endStep();
  }

  void addVariant(const std::string &name, std::vector<SizeLimit> limits,
                  llvm::function_ref<void(StepLowering &)> define) {
    StepLowering step(kernel, plan, storage);
    define(step);
    auto implementation = std::make_unique<HalideFunction::Implementation>();
    int &count = names[name];
    implementation->name = count++ ? name + "_" + std::to_string(count) : name;
    implementation->limits = std::move(limits);
    implementation->pipeline = Halide::Pipeline(step.outputs);
    implementation->inputs = step.inputs;
    implementation->arguments = step.inputArguments;
    llvm::append_range(implementation->arguments, step.outputArguments);
    implementation->target = target;
    current.variants.push_back(HalideFunction(std::move(implementation)));
  }

  void endStep() {
    read.resize(storage.intermediates.size(), steps.size());
    steps.push_back(std::exchange(current, {}));
  }

  LoweredKernel finish() {
    LoweredKernel lowered;
    auto inOrder = [&](unsigned step) { return static_cast<unsigned>(steps.size() - 1 - step); };
    for (auto [tensor, lastRead] : llvm::zip_equal(storage.intermediates, read))
      lowered.intermediates.push_back({tensorName(kernel, tensor), mlir::cast<AttnTensorType>(tensor.getType()),
                                       inOrder(written.at(tensor)), inOrder(lastRead)});
    std::move(steps.rbegin(), steps.rend(), std::back_inserter(lowered.steps));
    lowered.countedSums = plan.countedSums();
    lowered.features = featureWords(target);
    return lowered;
  }

  KernelOp kernel;
  const Plan &plan;
  Halide::Target target;
  Storage storage;
  LoweredStep current;
  std::vector<LoweredStep> steps;                ///< The last first.
  std::vector<unsigned> read;                    ///< Of each intermediate, the last step that reads it.
  llvm::DenseMap<mlir::Value, unsigned> written; ///< The step that writes a tensor.
  std::map<std::string, int> names;
};

} // namespace

llvm::Expected<LoweredKernel> attn::lowerToHalide(KernelOp kernel, const Plan &plan, const Machine &machine) {
  return guarded([&] { return KernelLowering(kernel, plan, machine).run(); });
}
