//===- Settings.cpp - The sizes of plans that may be set -------------------===//
//
// Values are those that the lowering's loops divide: a chunk is a whole number of vectors of keys and of register
// tiles.
//
//===----------------------------------------------------------------------===//

#include "attn/Plan/Settings.h"

#include "llvm/ADT/StringExtras.h"

using namespace attn;

static bool hasTiled(const Plan &plan) {
  return llvm::any_of(plan.sums, [](const SumPlan &sum) { return sum.tiled; });
}

static bool hasSplit(const Plan &plan) {
  return llvm::any_of(plan.sums, [](const SumPlan &sum) { return sum.split; });
}

static bool hasBoth(const Plan &plan) {
  return llvm::any_of(plan.sums, [](const SumPlan &sum) { return sum.tiled && sum.split; });
}

/// The setting of a member of the tiled plan.
template <auto Member>
static PlanSetting ofTile(llvm::StringLiteral name, llvm::StringLiteral meaning, std::vector<int64_t> values) {
  return {name,
          meaning,
          std::move(values),
          [](const Plan &plan) { return static_cast<int64_t>(plan.tile.*Member); },
          [](Plan &plan, int64_t value) { plan.tile.*Member = value; },
          hasTiled};
}

template <auto Member>
static PlanSetting ofSplit(llvm::StringLiteral name, llvm::StringLiteral meaning, std::vector<int64_t> values) {
  return {name,
          meaning,
          std::move(values),
          [](const Plan &plan) { return static_cast<int64_t>(plan.split.*Member); },
          [](Plan &plan, int64_t value) { plan.split.*Member = value; },
          hasSplit};
}

const std::vector<PlanSetting> &attn::planSettings() {
  static const std::vector<PlanSetting> settings = {
      {"tile.vectors",
       "vectors of queries in a tile",
       {1, 2, 3, 4, 6},
       [](const Plan &plan) { return static_cast<int64_t>(plan.tile.queries / plan.tile.lanes); },
       [](Plan &plan, int64_t value) { plan.tile.queries = value * plan.tile.lanes; },
       hasTiled},
      ofTile<&TilePlan::keyUnroll>("tile.keys", "keys of a register tile of scores", {2, 4, 8}),
      ofTile<&TilePlan::valueUnroll>("tile.columns", "columns of a register tile of outputs", {2, 4, 8}),
      ofTile<&TilePlan::chunk>("tile.chunk", "keys between two rescalings", {64, 128, 256, 512, 1024}),
      {"split.queries",
       "the most queries for which keys are split",
       {1, 2, 4, 8, 16, 32, 64},
       [](const Plan &plan) { return static_cast<int64_t>(plan.split.queries); },
       [](Plan &plan, int64_t value) { plan.split.queries = value; },
       hasBoth},
      ofSplit<&SplitPlan::rows>("split.rows", "the most rows in a pass over keys", {1, 2, 4, 8, 16, 32}),
      ofSplit<&SplitPlan::chunk>("split.chunk", "keys between two rescalings", {64, 128, 256, 512, 1024}),
      ofSplit<&SplitPlan::scoreKeys>("split.keys", "keys of a register tile of scores", {2, 4, 8}),
      ofSplit<&SplitPlan::keyTile>("split.key_tile", "keys that are added to an output at once", {4, 8, 16, 32}),
      ofSplit<&SplitPlan::valueVectors>("split.vectors", "vectors of a register tile of outputs", {1, 2, 4, 8}),
      ofSplit<&SplitPlan::tasks>("split.tasks", "tasks that spans of keys are made for", {1, 2, 4, 8, 16, 32, 64}),
      {"matrix.tiles",
       "register tiles that a panel is packed for",
       {8, 16, 32, 64, 128},
       [](const Plan &plan) { return static_cast<int64_t>(plan.panelTiles); },
       [](Plan &plan, int64_t value) { plan.panelTiles = value; },
       [](const Plan &plan) { return !plan.matrices.empty(); }},
  };
  return settings;
}

llvm::Error attn::checkSettings(const PlanSettings &settings) {
  for (const auto &[name, value] : settings) {
    auto setting = llvm::find_if(planSettings(), [&](const PlanSetting &other) { return other.name == name; });
    if (setting == planSettings().end()) {
      std::string names =
          llvm::join(llvm::map_range(planSettings(), [](const PlanSetting &other) { return other.name.str(); }), ", ");
      return llvm::createStringError("a plan has no size '" + name + "'; its sizes are " + names);
    }
    if (!llvm::is_contained(setting->values, value)) {
      std::string values =
          llvm::join(llvm::map_range(setting->values, [](int64_t value) { return std::to_string(value); }), ", ");
      return llvm::createStringError("a plan's " + name + " is one of " + values + ", but was given " +
                                     std::to_string(value));
    }
  }
  return llvm::Error::success();
}
