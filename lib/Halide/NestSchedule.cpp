//===- NestSchedule.cpp - How the stages of a nest are computed ------------===//

#include "Nest.h"
#include "Parts.h"

#include <algorithm>

using Halide::Func;
using Halide::LoopLevel;
using Halide::TailStrategy;
using Halide::Var;

namespace attn::lowering {

static bool dependsOn(const Stage &stage, const Var &var) {
  return llvm::any_of(stage.vars, [&](const Var &other) { return other.same_as(var); });
}

/// The loop over vectors of a stage or nest; every Func has its own of this name.
static Var vectorLoop() { return Var("vector$"); }

LoopLevel Nest::level(const Stage &stage) {
  LoopLevel row = rowLoop ? LoopLevel(func, *rowLoop) : LoopLevel::root();
  auto isOfNest = [&](const Var &var) { return llvm::any_of(vars, [&](const Var &own) { return own.same_as(var); }); };
  bool inRow = llvm::any_of(stage.vars, isOfNest);
  if (stage.vars.empty() || (stage.kind == Stage::Kind::Row && !inRow))
    return LoopLevel::root();
  if (stage.kind == Stage::Kind::Row || stage.kind == Stage::Kind::Rows || stage.kind == Stage::Kind::Parts)
    return row;
  if (stage.consumer < 0)
    return laneLoop && dependsOn(stage, vars[0]) ? LoopLevel(func, *laneLoop) : row;
  Stage &consumer = stages[stage.consumer];
  if (stage.loop)
    return LoopLevel(consumer.func, *stage.loop);
  if (stage.lanesOfPartial && !consumer.vars.empty())
    return LoopLevel(consumer.inVectors ? consumer.partial : consumer.func, consumer.vars[0]);
  if (consumer.kind == Stage::Kind::Row) {
    // Within the innermost loop over keys that it differs in.
    if (dependsOn(stage, consumer.vars[0]))
      return LoopLevel(consumer.func, vectorLoop());
    for (const Var &var : consumer.vars)
      if (dependsOn(stage, var) && !isOfNest(var))
        return LoopLevel(consumer.func, var);
    return row;
  }
  return level(consumer);
}

void Nest::schedulePartial(Stage &stage) {
  int width = kernel.plan.lanes;
  Var lane("lane$");
  if (stage.vars.empty()) {
    stage.partial.compute_root();
  } else if (stage.inVectors) {
    stage.partial.compute_at(level(stage)).bound(lane, 0, width).bound_storage(stage.vars[0], width);
  } else {
    stage.partial.compute_at(stage.func, stage.vars[0]);
  }
  stage.partial.vectorize(lane);
  for (int update = 0; update < stage.partial.num_update_definitions(); ++update)
    stage.partial.update(update).vectorize(lane);
}

/// Of few rows, several vectors where columns lie side by side: memory is read in longer runs.
int Nest::width() const {
  int lanes = kernel.plan.lanes;
  auto isOfLanes = [](const Stage &stage) { return stage.kind == Stage::Kind::Lanes; };
  return hasFewRows && llvm::all_of(stages, isOfLanes) ? 4 * lanes : lanes;
}

void Nest::scheduleStage(Stage &stage) {
  int width = this->width();
  LoopLevel where = level(stage);
  if (!stage.inVectors) // its lanes are joined where they are used
    stage.func.compute_at(where);
  switch (stage.kind) {
  case Stage::Kind::Row: {
    Var lane("lane$");
    stage.func.split(stage.vars[0], vectorLoop(), lane, width, TailStrategy::GuardWithIf).vectorize(lane);
    break;
  }
  case Stage::Kind::Parts:
    stage.func.store_in(Halide::MemoryType::Stack);
    vectorizeParts(stage.func, width);
    break;
  case Stage::Kind::Rows:
    if (stage.partial.defined())
      schedulePartial(stage);
    break;
  case Stage::Kind::Lanes:
    if (!stage.vars.empty() && !stage.scalar) {
      Var lane("within$");
      bool ofLanes = laneLoop && stage.vars[0].same_as(vars[0]);
      if (stage.lanesOfConsumer || (ofLanes && stage.consumer < 0)) // of one vector: it lies in registers
        stage.func.bound_storage(stage.vars[0], width);
      if (ofLanes)
        kernel.accumulators.insert(stage.func.name());
      stage.func.vectorize(stage.vars[0], width, TailStrategy::GuardWithIf);
      for (int number = 0; number < stage.func.num_update_definitions(); ++number) {
        Halide::Stage update = stage.func.update(number);
        update.split(stage.vars[0], stage.vars[0], lane, width, TailStrategy::GuardWithIf).vectorize(lane);
        // Lanes innermost, then the reduction: the accumulators stay in registers.
        std::vector<Halide::VarOrRVar> order = {lane};
        for (const Halide::Internal::ReductionVariable &variable : update.get_schedule().rvars())
          order.push_back(Halide::RVar(variable.var));
        for (const Var &var : stage.vars)
          order.push_back(var);
        update.reorder(order);
      }
    }
    break;
  case Stage::Kind::Partial:
    schedulePartial(stage);
    break;
  }
}

Var inParallel(Func &func, llvm::ArrayRef<Var> loops) {
  Var fused = loops.back();
  for (const Var &loop : llvm::reverse(loops.drop_back())) {
    Var both(loop.name() + "$" + fused.name());
    func.fuse(loop, fused, both);
    fused = both;
  }
  func.parallel(fused);
  return fused;
}

void Nest::schedule() {
  int width = this->width();
  func.compute_root();
  bool vectorise = lanes && !vars.empty();
  std::vector<Var> rows(vars.begin() + (vectorise ? 1 : 0), vars.end());
  if (vectorise) {
    Var lane("lane$");
    laneLoop = vectorLoop();
    func.split(vars[0], *laneLoop, lane, width, TailStrategy::GuardWithIf).vectorize(lane);
  }
  if (innermostRow) {
    auto isInnermost = [&](const Var &var) { return var.same_as(*innermostRow); };
    std::stable_partition(rows.begin(), rows.end(), isInnermost);
    for (; rows.size() > 2; rows.pop_back()) // of three that are one loop, Halide takes the second for a whole one
      func.parallel(rows.back());
  }
  std::optional<Var> outermost;
  if (rowsOfTask.defined() && !rows.empty()) {
    Var within("row$");
    func.split(rows.front(), rows.front(), within, rowsOfTask, TailStrategy::GuardWithIf);
    outermost = inParallel(func, rows);
    rowLoop = within;
  } else if (!rows.empty()) {
    outermost = rowLoop = inParallel(func, rows);
  }
  if (hasFewRows && vectorise) {
    constexpr int columnsOfTask = 256;
    Var columns("columns$");
    func.split(*laneLoop, columns, *laneLoop, columnsOfTask / width, TailStrategy::GuardWithIf);
    if (outermost)
      func.reorder(*outermost, columns);
    func.parallel(columns);
  }
  for (Stage &stage : stages)
    scheduleStage(stage);
}

} // namespace attn::lowering
