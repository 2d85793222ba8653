//===- SharedKeysTest.cpp - Which rows of a weighted sum read the same keys -===//

#include "ReferenceFixture.h"

#include "attn/Analysis/SharedKeys.h"

#include <gmock/gmock.h>

using testing::ElementsAre;

namespace {
class KeysOfRows : public ReferenceFixture {
protected:
  /// What a sum over keys reads; %group is h // G, %of_four is h // 4.
  struct Formulas {
    std::string key = "%group";                                                 ///< Of the keys.
    std::string value = "%group";                                               ///< Of the values.
    std::string limit = "%n";                                                   ///< What a key must be below.
    std::string factor = "attn.read %bias[%h, %n] : !attn.tensor<[H, N], f32>"; ///< Of the weights.
    std::string sharers = "attn.size G";
  };

  /// Which indices share keys: "h in groups of G".
  std::vector<std::string> shared(const Formulas &formulas) {
    std::string groups = R"(
      %g = )" + formulas.sharers +
                         R"(
      %c4 = arith.constant 4 : i64
      %group = attn.floordiv %h, %g
      %of_four = attn.floordiv %h, %c4
      %next = arith.addi %h, %c4 : i64
      %of_next = attn.floordiv %next, %g
      %page = attn.read %pages[%group, %n] : !attn.tensor<[H, N], i32>
      %length = attn.read %lengths[%group] : !attn.tensor<[G], i32>
      %window = attn.read %lengths[%h] : !attn.tensor<[G], i32>
)";
    attn::KernelOp kernel = parse(R"(
attn.kernel @f(%q: !attn.tensor<[H, M, D], f32>, %k: !attn.tensor<[H, N, D], f32>, %bias: !attn.tensor<[H, N], f32>,
               %pages: !attn.tensor<[H, N], i32>, %lengths: !attn.tensor<[G], i32>) {
  %score = attn.score "score"(%h: H, %m: M, %n: N) : f32 {)" +
                                  groups + R"(
    %dot = attn.reduce sum(%d: D) : f32 {
      %a = attn.read %q[%h, %m, %d] : !attn.tensor<[H, M, D], f32>
      %b = attn.read %k[)" + formulas.key +
                                  R"(, %n, %d] : !attn.tensor<[H, N, D], f32>
      %product = arith.mulf %a, %b : f32
      attn.yield %product : f32
    }
    %x = attn.read %bias[%h, %n] : !attn.tensor<[H, N], f32>
    %sum = arith.addf %dot, %x : f32
    attn.yield %sum : f32
  }
  %mask = attn.mask "mask"(%h: H, %m: M, %n: N) : i1 {)" +
                                  groups + R"(
    %kept = arith.cmpi slt, %n, )" +
                                  formulas.limit + R"( : i64
    attn.yield %kept : i1
  }
  %weight, %lse = attn.softmax "weight", ""(%score where %mask) : !attn.tensor<[H, M, N], f32>
  %out = attn.weighted_sum "out"(%h: H, %m: M, %e: D) over (%n: N) query 1 : f32 {)" +
                                  groups + R"(
    %w = attn.read %weight[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
    %factor = )" + formulas.factor +
                                  R"(
    %scaled = arith.mulf %w, %factor : f32
    %x = attn.read %k[)" + formulas.value +
                                  R"(, %n, %e] : !attn.tensor<[H, N, D], f32>
    attn.yield %scaled, %x : f32, f32
  }
  attn.return %out : !attn.tensor<[H, M, D], f32> as f32
})");
    std::vector<std::string> found;
    for (const attn::SharedKeys &each : attn::sharedKeys(*kernel.getOps<attn::WeightedSumOp>().begin())) {
      mlir::StringAttr name = mlir::cast<mlir::StringAttr>(
          mlir::cast<attn::WeightedSumOp>(each.index.getOwner()->getParentOp()).getIndices()[each.position()]);
      found.push_back(name.str() + (each.group ? " in groups of " + each.group.str() : "") +
                      (each.sharesRange ? "" : ", not the range"));
    }
    return found;
  }
};
} // namespace

TEST_F(KeysOfRows, AreThoseOfAGroup) {
  EXPECT_THAT(shared({}), ElementsAre("h in groups of G", "m"));
  EXPECT_THAT(shared({.key = "%of_four", .value = "%of_four"}), ElementsAre("h in groups of 4", "m"));
  EXPECT_THAT(shared({.key = "%page", .value = "%page"}), ElementsAre("h in groups of G", "m"));
  EXPECT_THAT(shared({.value = "%c4"}), ElementsAre("h in groups of G", "m"));
}

TEST_F(KeysOfRows, AreThoseOfAllWhereNoneHasItsOwn) {
  EXPECT_THAT(shared({.key = "%c4", .value = "%c4"}), ElementsAre("h", "m"));
}

TEST_F(KeysOfRows, AreNotThoseOfTwoGroupings) {
  EXPECT_THAT(shared({.value = "%of_four"}), ElementsAre("m"));
  EXPECT_THAT(shared({.value = "%h"}), ElementsAre("m"));
  EXPECT_THAT(shared({.key = "%h"}), ElementsAre("m"));
  EXPECT_THAT(shared({.key = "%of_next"}), ElementsAre("m"));
  EXPECT_THAT(shared({.value = "%m"}), ElementsAre("h in groups of G"));
}

TEST_F(KeysOfRows, AreNotThoseOfGroupsThatMayBeNegativeOrOfOne) {
  EXPECT_THAT(shared({.sharers = "attn.size H - M"}), ElementsAre("m"));
  EXPECT_THAT(shared({.sharers = "arith.constant 1 : i64"}), ElementsAre("m"));
  EXPECT_THAT(shared({.sharers = "attn.size H * M"}), ElementsAre("h in groups of H * M", "m"));
}

TEST_F(KeysOfRows, MayHaveRangesOfTheirOwn) {
  EXPECT_THAT(shared({.limit = "%length"}), ElementsAre("h in groups of G", "m"));
  EXPECT_THAT(shared({.limit = "%window"}), ElementsAre("h in groups of G, not the range", "m"));
  EXPECT_THAT(shared({.limit = "%m"}), ElementsAre("h in groups of G", "m, not the range"));
  EXPECT_THAT(shared({.key = "%c4", .value = "%c4", .limit = "%length"}), ElementsAre("h, not the range", "m"));
}

TEST_F(KeysOfRows, ReadKeysInTheSumsOfWeightsToo) {
  std::string product = R"(attn.reduce sum(%d: D) : f32 {
      %a = attn.read %k[KEY, %n, %d] : !attn.tensor<[H, N, D], f32>
      attn.yield %a : f32
    })";
  auto with = [&](const std::string &key) {
    std::string factor = product;
    return shared({.factor = factor.replace(factor.find("KEY"), 3, key)});
  };
  EXPECT_THAT(with("%group"), ElementsAre("h in groups of G", "m"));
  EXPECT_THAT(with("%h"), ElementsAre("m"));
}

TEST_F(KeysOfRows, CountsGroups) {
  shared({});
  attn::WeightedSumOp sum = *(*module->getOps<attn::KernelOp>().begin()).getOps<attn::WeightedSumOp>().begin();
  attn::SharedKeys heads = attn::sharedKeys(sum).front();
  auto at = [](attn::SizeAttr size, int64_t heads, int64_t group) {
    llvm::StringMap<int64_t> sizes = {{"H", heads}, {"G", group}};
    return *size.evaluate(sizes);
  };
  for (auto [count, group, sharers, groups] : {std::array{8, 4, 4, 2}, {7, 3, 3, 3}, {5, 0, 1, 5}, {2, 6, 6, 1}}) {
    EXPECT_EQ(at(heads.sharers(), count, group), sharers) << count << " " << group;
    EXPECT_EQ(at(heads.groups(), count, group), groups) << count << " " << group;
  }
  heads.group = {};
  EXPECT_EQ(at(heads.sharers(), 8, 4), 8);
  EXPECT_EQ(at(heads.groups(), 8, 4), 1);
}
