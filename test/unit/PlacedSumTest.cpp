//===- PlacedSumTest.cpp - Sums whose terms each have one place -----------===//

#include "ReferenceFixture.h"

#include "attn/Analysis/Cost.h"
#include "attn/Analysis/PlacedSum.h"

#include <gmock/gmock.h>

namespace {
class SumsWithPlaces : public ReferenceFixture {
protected:
  /// That of a statement y[at: G, d: D] with a sum over h: H of `term`, where `condition`; `clamped` is h // 4,
  /// clamped.
  std::optional<attn::PlacedSum> sumOf(const std::string &condition, const std::string &term = "%x") {
    attn::KernelOp kernel = parse((llvm::Twine(R"(
attn.kernel @f(%part: !attn.tensor<[H, D], f32>, %table: !attn.tensor<[G], f32>, %visible: !attn.tensor<[H], i1>) {
  %y = attn.tensor "y"(%at: G, %d: D) : f32 {
    %0 = attn.reduce sum(%h: H) : f32 {
      %x = attn.read %part[%h, %d] : !attn.tensor<[H, D], f32>
      %own = attn.read %table[%at] : !attn.tensor<[G], f32>
      attn.yield )") + term + R"( : f32
    } where {
      %c0 = arith.constant 0 : i64
      %c4 = arith.constant 4 : i64
      %quotient = attn.floordiv %h, %c4
      %last = attn.size G - 1
      %least = arith.minsi %quotient, %last : i64
      %clamped = arith.maxsi %least, %c0 : i64
      %is_place = arith.cmpi eq, %clamped, %at : i64
      %is_quotient = arith.cmpi eq, %quotient, %at : i64
      %is_seen = attn.read %visible[%h] : !attn.tensor<[H], i1>
      %both = arith.andi %is_place, %is_seen : i1
      attn.yield )" + condition + R"( : i1
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[G, D], f32> as f32
})")
                                      .str());
    statement = *kernel.getBody().front().getOps<attn::TensorOp>().begin();
    return attn::PlacedSum::of(mlir::cast<attn::DefinitionOpInterface>(statement.getOperation()));
  }

  attn::TensorOp statement;
};
} // namespace

TEST_F(SumsWithPlaces, SaysWhereTermsBelong) {
  std::optional<attn::PlacedSum> found = sumOf("%is_place");
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->isPlace(0));
  EXPECT_FALSE(found->isPlace(1));
  EXPECT_TRUE(found->conditions.empty());
  EXPECT_THAT(found->deciding(), testing::ElementsAre(0u));
  EXPECT_EQ(attn::costOf(statement.getOperation()).flops.str(), "D·H"); // not for each place
}

TEST_F(SumsWithPlaces, MayHaveOtherConditions) {
  std::optional<attn::PlacedSum> found = sumOf("%both");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->conditions.size(), 1u);
}

/// What is not clamped may be no place at all, and what depends on the place is another term at each.
TEST_F(SumsWithPlaces, IsNoSumWhoseTermsHaveNoneOrSeveral) {
  EXPECT_FALSE(sumOf("%is_quotient"));
  EXPECT_FALSE(sumOf("%is_seen"));
  EXPECT_FALSE(sumOf("%is_place", "%own"));
}
