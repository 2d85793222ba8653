//===- Settings.cpp - The sizes of plans that may be set -------------------===//
//
// Values are those that the lowering's loops divide: a chunk is a whole number of vectors of keys and of register
// tiles.
//
//===----------------------------------------------------------------------===//

#include "attn/Plan/Settings.h"

#include "llvm/ADT/StringExtras.h"

using namespace attn;

/// The setting of a member of one of the two tiled plans.
template <auto Part, auto Member>
static PlanSetting of(llvm::StringLiteral name, llvm::StringLiteral meaning, std::vector<int64_t> values) {
  return {name, meaning, std::move(values), [](Plan &plan, int64_t value) { plan.*Part.*Member = value; }};
}

template <auto Part> static PlanSetting vectorsOf(llvm::StringLiteral name, std::vector<int64_t> values) {
  return {name, "vectors of queries in a tile", std::move(values),
          [](Plan &plan, int64_t value) { (plan.*Part).queries = value * (plan.*Part).lanes; }};
}

const std::vector<PlanSetting> &attn::planSettings() {
  static constexpr llvm::StringLiteral scores = "keys of a register tile of scores",
                                       rescalings = "keys between two rescalings";
  static const std::vector<PlanSetting> settings = {
      vectorsOf<&Plan::tile>("tile.vectors", {1, 2, 3, 4, 6}),
      of<&Plan::tile, &TilePlan::keyUnroll>("tile.keys", scores, {2, 4, 8}),
      of<&Plan::tile, &TilePlan::valueUnroll>("tile.columns", "columns of a register tile of outputs", {2, 4, 8}),
      of<&Plan::tile, &TilePlan::chunk>("tile.chunk", rescalings, {64, 128, 256, 512, 1024}),
      {"narrow.queries",
       "the most queries for narrow tiles",
       {0, 31, 63, 127, 255, 511, 1023},
       [](Plan &plan, int64_t value) { plan.narrowQueries = value; }},
      vectorsOf<&Plan::narrow>("narrow.vectors", {1, 2}),
      of<&Plan::narrow, &TilePlan::keyUnroll>("narrow.keys", scores, {2, 4, 8}),
      of<&Plan::narrow, &TilePlan::valueUnroll>("narrow.columns", "columns of a register tile of outputs", {2, 4, 8}),
      of<&Plan::narrow, &TilePlan::chunk>("narrow.chunk", rescalings, {64, 128, 256, 512, 1024}),
      {"split.queries",
       "the most queries for which keys are split",
       {0, 1, 2, 4, 8, 16, 32, 64},
       [](Plan &plan, int64_t value) { plan.splitQueries = value; }},
      of<&Plan::split, &SplitPlan::rows>("split.rows", "the most rows in a pass over keys", {1, 2, 4, 8, 16, 32}),
      of<&Plan::split, &SplitPlan::chunk>("split.chunk", rescalings, {64, 128, 256, 512, 1024, 2048, 4096}),
      of<&Plan::split, &SplitPlan::scoreKeys>("split.keys", scores, {2, 4, 8, 16}),
      of<&Plan::split, &SplitPlan::keyTile>("split.key_tile", "keys that are added to an output at once",
                                            {4, 8, 16, 32}),
      of<&Plan::split, &SplitPlan::valueVectors>("split.vectors", "vectors of a register tile of outputs",
                                                 {1, 2, 4, 8}),
      of<&Plan::split, &SplitPlan::ahead>("split.ahead", "keys before they are used that they are fetched",
                                          {0, 8, 16, 32, 64}),
      of<&Plan::split, &SplitPlan::tasks>("split.tasks", "tasks that spans of keys are made for",
                                          {1, 2, 4, 8, 16, 32, 64}),
      of<&Plan::tensorCores, &TensorCorePlan::queries>("tensor.queries", "queries of a block on tensor cores",
                                                       {64, 128}),
      of<&Plan::tensorCores, &TensorCorePlan::keys>("tensor.keys", "keys of a tile on tensor cores",
                                                    {32, 64, 128, 160, 192}),
      of<&Plan::tensorCores, &TensorCorePlan::width>("tensor.width", "the most columns where a width is not given",
                                                     {16, 32, 64, 128, 256}),
      of<&Plan::tensorCores, &TensorCorePlan::warpgroups>("tensor.warpgroups", "warpgroups of a block on sm_90a",
                                                          {0, 1, 2}),
      of<&Plan::tensorCores, &TensorCorePlan::producer>("tensor.producer", "warpgroups that copy for two others",
                                                        {0, 1}),
      {"matrix.tiles",
       "register tiles that a panel is packed for",
       {8, 16, 32, 64, 128},
       [](Plan &plan, int64_t value) { plan.panelTiles = value; }},
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
