//===- DependenceTest.cpp - Which index variables a value uses ------------===//

#include "ReferenceFixture.h"

#include "attn/Analysis/Dependence.h"

#include <gmock/gmock.h>

using attn::dependence;

namespace {
class Dependence : public ReferenceFixture {
protected:
  /// The kernel's tensor `name`.
  attn::TensorOp tensor(llvm::StringRef name) {
    attn::TensorOp found;
    module->walk([&](attn::TensorOp op) {
      if (op.getName() == name)
        found = op;
    });
    return found;
  }

  static std::vector<std::string> names(const attn::IndexSet &indices) {
    std::vector<std::string> result;
    for (mlir::BlockArgument index : attn::inOrder(indices))
      result.push_back(attn::indexName(index).str());
    return result;
  }

  static mlir::Value yielded(mlir::Region &region) { return region.front().getTerminator()->getOperand(0); }
};
} // namespace

static const char *const text = R"(
attn.kernel @f(%q: !attn.tensor<[B, M, D], f32>, %k: !attn.tensor<[B, N, D], f32>, %at: !attn.tensor<[B], i32>) {
  %a = attn.tensor "a"(%b: B, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%b, %m, %d] : !attn.tensor<[B, M, D], f32>
      %2 = attn.read %k[%b, %n, %d] : !attn.tensor<[B, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %4 = arith.cmpi slt, %d, %m : i64
      attn.yield %4 : i1
    }
    attn.yield %0 : f32
  }
  %c = attn.tensor "c"(%b: B, %m: M, %n: N) : f32 {
    %0 = arith.constant 0 : i64
    %1 = attn.read %at[%b] : !attn.tensor<[B], i32>
    %2 = attn.read %q[%b, %1, %0] : !attn.tensor<[B, M, D], f32>
    attn.yield %2 : f32
  }
  attn.return %a : !attn.tensor<[B, M, N], f32> as f32, %c : !attn.tensor<[B, M, N], f32> as f32
})";

TEST_F(Dependence, OfReductionsIsWhatTheyTakeFromOutside) {
  parse(text);
  attn::TensorOp a = tensor("a");
  EXPECT_THAT(names(dependence(yielded(a.getBody()))), testing::ElementsAre("b", "m", "n"));
  auto reduce = yielded(a.getBody()).getDefiningOp<attn::ReduceOp>();
  // The condition's m counts; in the body an index of the reduction is like any other.
  EXPECT_THAT(names(dependence(yielded(reduce.getWhere()))), testing::ElementsAre("m", "d"));
  mlir::Operation *product = yielded(reduce.getBody()).getDefiningOp();
  EXPECT_THAT(names(dependence(product->getOperand(1))), testing::ElementsAre("b", "n", "d"));
}

TEST_F(Dependence, OfReadsIsThatOfTheirSubscripts) {
  parse(text);
  attn::TensorOp c = tensor("c");
  // What is subscripted by data depends on what the data depends on, not on the dimension's index.
  EXPECT_THAT(names(dependence(yielded(c.getBody()))), testing::ElementsAre("b"));
  EXPECT_TRUE(dependence(mlir::ValueRange()).empty());
}

TEST_F(Dependence, SizesAndRanges) {
  parse(text);
  attn::TensorOp a = tensor("a"), c = tensor("c");
  EXPECT_EQ(attn::indexSize(a.getBody().getArgument(2)).str(), "N");
  auto reduce = yielded(a.getBody()).getDefiningOp<attn::ReduceOp>();
  EXPECT_EQ(attn::indexSize(reduce.getBody().getArgument(0)).str(), "D");
  for (attn::ReadOp read : reduce.getBody().getOps<attn::ReadOp>())
    EXPECT_TRUE(attn::isInRange(read));
  // Data may be anything, and D may be 0.
  EXPECT_FALSE(attn::isInRange(yielded(c.getBody()).getDefiningOp<attn::ReadOp>()));
}

TEST_F(Dependence, RangesOfSubscriptsWhoseSizesAreKnown) {
  parse(R"(
attn.kernel @f(%x: !attn.tensor<[13], f32>, %y: !attn.tensor<[N], f32>) {
  %a = attn.tensor "a"(%p: 49, %i: 7, %n: N) : f32 {
    %c6 = arith.constant 6 : i64
    %c7 = arith.constant 7 : i64
    %row = attn.floordiv %p, %c7
    %column = attn.mod %p, %c7
    %distance = arith.subi %row, %i : i64
    %inside = arith.addi %distance, %c6 : i64
    %0 = attn.read %x[%inside] : !attn.tensor<[13], f32>
    %far = arith.addi %inside, %column : i64
    %1 = attn.read %x[%far] : !attn.tensor<[13], f32>
    %least = arith.minsi %far, %c6 : i64
    %2 = attn.read %x[%least] : !attn.tensor<[13], f32>
    %3 = attn.read %x[%distance] : !attn.tensor<[13], f32>
    %one = arith.addi %i, %n : i64
    %4 = attn.read %x[%one] : !attn.tensor<[13], f32>
    %5 = attn.read %y[%i] : !attn.tensor<[N], f32>
    %s1 = arith.addf %0, %1 : f32
    %s2 = arith.addf %s1, %2 : f32
    %s3 = arith.addf %s2, %3 : f32
    %s4 = arith.addf %s3, %4 : f32
    %s5 = arith.addf %s4, %5 : f32
    attn.yield %s5 : f32
  }
  attn.return %a : !attn.tensor<[49, 7, N], f32> as f32
})");
  std::vector<bool> found;
  for (attn::ReadOp read : tensor("a").getBody().getOps<attn::ReadOp>())
    found.push_back(attn::isInRange(read));
  // 0 to 12; to 18; that at most 6; -6 to 6; of a size that is not known; in a dimension whose size is not.
  EXPECT_THAT(found, testing::ElementsAre(true, false, true, false, false, false));
}
