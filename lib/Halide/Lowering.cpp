//===- Lowering.cpp - A kernel becomes steps ------------------------------===//

#include "ArgumentChecks.h"
#include "Division.h"
#include "Fetch.h"
#include "GpuFunctions.h"
#include "Hints.h"
#include "Implementation.h"
#include "Lanes.h"
#include "Pairs.h"
#include "PassNumbers.h"
#include "PipelineForm.h"
#include "StepLowering.h"
#include "Transposition.h"
#include "TrimChunks.h"
#include "Unmask.h"
#include "attn/Analysis/Fusion.h"
#include "attn/Analysis/Work.h"

using namespace attn;
using namespace attn::lowering;

/// Loops are not cut into a middle and its edges unless their schedule asks for it: that would copy the code of all
/// they hold. Where there is nothing but one Func the code is little, and the edges are what a vector's time goes into.
static void neverPartitionLoops(const std::vector<Halide::Func> &outputs) {
  std::vector<Halide::Internal::Function> functions;
  for (const Halide::Func &output : outputs)
    functions.push_back(output.function());
  std::map<std::string, Halide::Internal::Function> all = Halide::Internal::build_environment(functions);
  if (all.size() == 1)
    return;
  auto notByItself = [](Halide::Internal::Definition &stage) {
    for (Halide::Internal::Dim &loop : stage.schedule().dims())
      if (loop.partition_policy == Halide::Partition::Auto)
        loop.partition_policy = Halide::Partition::Never;
  };
  for (auto &[name, function] : all) {
    notByItself(function.definition());
    for (int update = 0; update < static_cast<int>(function.updates().size()); ++update)
      notByItself(function.update(update));
  }
}

namespace {

/// Lowers the steps of a kernel from the last to the first.
class KernelLowering {
public:
  KernelLowering(KernelOp kernel, const Plan &plan, const Machine &machine)
      : kernel(kernel), plan(plan), target(loweringTarget(machine)), device(machine.device),
        storage(kernel, plan.blocks) {}

  LoweredKernel run() {
    for (unsigned output : llvm::reverse(storage.converted)) {
      std::string name = kernel.getReturn().getOutputName(output).str() + "_output";
      addVariant(name, std::nullopt, [&](StepLowering &step) { step.convertOutput(output); });
      endStep();
    }
    llvm::SmallVector<mlir::Operation *> order = *orderWithBlocks(kernel, plan.blocks); // findPairBlocks has seen to it
    for (mlir::Operation *op : llvm::reverse(order)) {
      enterBlocksOf(op);
      auto softmax = mlir::dyn_cast<SoftmaxOp>(op);
      if (softmax && plan.storesScores(softmax) && storage.isNeeded(softmax.getWeight()) &&
          !storage.isNeeded(softmax.getScore()))
        storage.placeLike(softmax.getScore(), softmax.getWeight());
      for (mlir::OpResult result : llvm::reverse(op->getResults()))
        if ((storage.isNeeded(result) || isForLogSumExp(op)) && !written.contains(result))
          addStore(result);
    }
    enterBlocksOf(nullptr);
    return finish();
  }

private:
  /// Ends the blocks that `op` is not of, and begins those that it is of.
  void enterBlocksOf(mlir::Operation *op) {
    auto found = llvm::find_if(plan.blocks, [&](const PairBlocks &each) { return op && each.contains(op); });
    const PairBlocks *next = found == plan.blocks.end() ? nullptr : &*found;
    if (next == inside)
      return;
    if (inside && steps.size() > lastOfBlocks)
      endBlocks();
    inside = next;
    lastOfBlocks = steps.size();
  }

  /// What the blocks write is there from their first step on, and what they read until their last.
  void endBlocks() {
    LoweredBlocks &described = blocks.emplace_back();
    addVariant("keys", std::nullopt, [&](StepLowering &step) { described.keys = step.storeKeys(); });
    if (described.keys != BlockKeys::All)
      endStep();
    described.cutsKeys = inside->cutsKeys;
    described.first = steps.size() - 1;
    described.end = lastOfBlocks; // from the last step; see finish
    for (unsigned row : inside->rows)
      described.sizes.push_back(indexSize(inside->indices()[row]));
    described.sizes.push_back(indexSize(inside->indices().back()));
    for (TensorOp statement : inside->statements) {
      auto own = written.find(statement.getResult());
      if (own == written.end())
        continue;
      own->second = steps.size() - 1;
      BlockTensor &tensor = described.tensors.emplace_back();
      tensor.place = storage.place(statement.getResult());
      tensor.isPairs = isPairs(statement.getResult());
      for (std::optional<unsigned> axis : inside->axesOf(statement))
        tensor.axes.push_back(axis ? static_cast<int>(*axis) : -1);
    }
  }

  /// The log-sum-exp that is stored with the sum `tensor`; null where none is.
  mlir::Value logSumExpOf(mlir::OpResult tensor) {
    auto sum = mlir::dyn_cast<WeightedSumOp>(tensor.getOwner());
    if (!sum || plan.gpu || plan.countChunks || plan.sum(sum).has(PlanKind::Nest))
      return {};
    mlir::Value logSumExp = logSumExpBeside(sum);
    return logSumExp && storage.isNeeded(logSumExp) && !written.contains(logSumExp) ? logSumExp : mlir::Value();
  }

  /// Whether `op` is a sum that nobody reads: it is there for the log-sum-exp of its weights (`attn-sum-weights`).
  static bool isForLogSumExp(mlir::Operation *op) { return mlir::isa<WeightedSumOp>(op) && op->use_empty(); }

  void addStore(mlir::OpResult tensor) {
    std::string name = tensorName(tensor);
    mlir::Value logSumExp = logSumExpOf(tensor);
    written[tensor] = steps.size();
    if (logSumExp)
      written[logSumExp] = steps.size();
    for (mlir::Operation *user : tensor.getUsers()) // scores in the place of weights are there before
      if (auto softmax = mlir::dyn_cast<SoftmaxOp>(user); softmax && storage.isPlacedLike(tensor, softmax.getWeight()))
        written[softmax.getWeight()] = steps.size();
    for (const PlanVariant &variant : plan.variants(tensor.getOwner())) {
      if (variant.kind == PlanKind::None && variant.limit->size.isConstant())
        throw std::logic_error("a step reads " + name + ", which none computes");
      if (variant.kind == PlanKind::None) {
        current.unread.push_back(*variant.limit);
        continue;
      }
      bool isNarrow = variant.kind == PlanKind::NarrowTiles;
      addVariant(name + (!variant.limit ? ""
                         : isNarrow     ? "_narrow"
                                        : "_few"),
                 variant.limit, [&](StepLowering &step) { step.store(tensor, variant.kind, logSumExp); });
    }
    current.work =
        workOf(tensor.getOwner(), [&](mlir::Value read) { return storage.isNeeded(read); }).asSize(kernel.getContext());
    endStep();
  }

  void addVariant(const std::string &name, std::optional<SizeLimit> limit,
                  llvm::function_ref<void(StepLowering &)> define) {
    StepLowering step(kernel, plan, storage, inside);
    define(step);
    if (step.outputs.empty())
      return;
    neverPartitionLoops(step.outputs);
    auto implementation = std::make_unique<HalideFunction::Implementation>();
    implementation->name = name;
    for (int number = 2; !names.insert(implementation->name).second; ++number)
      implementation->name = name + "_" + std::to_string(number);
    implementation->code = implementation->name;
    if (!plan.gpu)
      implementation->code = codes.try_emplace(pipelineForm(step), implementation->name).first->second;
    implementation->limit = limit;
    implementation->pipeline = Halide::Pipeline(step.outputs);
    dropArgumentChecks(implementation->pipeline);
    trimChunks(implementation->pipeline);
    if (plan.gpu) {
      lowerDeviceFunctions(implementation->pipeline, target);
    } else {
      checkPassNumbers(implementation->pipeline);
      lowerHints(implementation->pipeline);
      lowerFetches(implementation->pipeline);
      lowerPairs(implementation->pipeline);
      lowerLanes(implementation->pipeline);
      transposeCopies(implementation->pipeline);
      divideInDoubles(implementation->pipeline);
      unmask(implementation->pipeline, step.accumulators);
    }
    implementation->inputs = step.inputs;
    implementation->derivedSizes = step.derivedSizes;
    implementation->arguments = step.inputArguments;
    llvm::append_range(implementation->arguments, step.outputArguments);
    implementation->target = target;
    current.written = step.outputArguments;
    current.variants.push_back(HalideFunction(std::move(implementation)));
  }

  void endStep() {
    read.resize(storage.intermediates.size(), inside ? lastOfBlocks : steps.size());
    steps.push_back(std::exchange(current, {}));
  }

  LoweredKernel finish() {
    LoweredKernel lowered;
    auto inOrder = [&](unsigned step) { return static_cast<int>(steps.size() - 1 - step); };
    for (auto [tensor, lastRead] : llvm::zip_equal(storage.intermediates, read)) {
      bool isCut = isPairs(tensor) && llvm::any_of(plan.blocks, [&](const PairBlocks &each) {
                     return each.contains(tensor.getDefiningOp());
                   });
      lowered.intermediates.push_back({tensor, tensorName(tensor), mlir::cast<AttnTensorType>(tensor.getType()),
                                       isCut ? -1 : inOrder(written.at(tensor)), isCut ? -1 : inOrder(lastRead)});
    }
    for (LoweredBlocks &each : llvm::reverse(blocks)) {
      each.first = inOrder(each.first);
      each.end = inOrder(each.end) + 1;
      lowered.blocks.push_back(std::move(each));
    }
    std::move(steps.rbegin(), steps.rend(), std::back_inserter(lowered.steps));
    llvm::copy_if(plan.cuts, std::back_inserter(lowered.cuts), [&](const CutSize &cut) {
      return llvm::all_of(storage.intermediates, [&](mlir::Value tensor) { return dimensionOf(cut.name, tensor); });
    });
    lowered.countedSums = plan.countedSums();
    lowered.features = featureWords(target);
    lowered.device = device;
    return lowered;
  }

  KernelOp kernel;
  const Plan &plan;
  Halide::Target target;
  Device device;
  Storage storage;
  LoweredStep current;
  const PairBlocks *inside = nullptr;            ///< The blocks that steps are of.
  unsigned lastOfBlocks = 0;                     ///< Their last step.
  std::vector<LoweredBlocks> blocks;             ///< The last first.
  std::vector<LoweredStep> steps;                ///< The last first.
  std::vector<unsigned> read;                    ///< Of each intermediate, the last step that reads it.
  llvm::DenseMap<mlir::Value, unsigned> written; ///< The step that writes a tensor.
  std::set<std::string> names;                   ///< Of the functions.
  std::map<std::string, std::string> codes;      ///< By a pipeline's form, the first function that has it.
};

} // namespace

llvm::Expected<LoweredKernel> attn::lowerToHalide(KernelOp kernel, const Plan &plan, const Machine &machine) {
  return guarded([&] { return KernelLowering(kernel, plan, machine).run(); });
}

std::vector<const HalideFunction *> attn::functionsOf(const LoweredKernel &kernel) {
  std::vector<const HalideFunction *> functions;
  for (const LoweredStep &step : kernel.steps)
    for (const HalideFunction &variant : step.variants)
      functions.push_back(&variant);
  return functions;
}
