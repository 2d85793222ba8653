//===- CostTest.cpp - What formulas cost ----------------------------------===//

#include "ReferenceFixture.h"

#include "attn/Analysis/Work.h"

using attn::SizePolynomial;

namespace {
class CostTest : public ReferenceFixture {
protected:
  SizePolynomial size(llvm::StringRef name) { return attn::SizeAttr::named(&context, name); }
};
} // namespace

TEST_F(CostTest, Polynomials) {
  SizePolynomial m = size("M"), n = size("N"), sum = m;
  sum += n;
  sum += 1;
  EXPECT_EQ(sum.str(), "M + N + 1");
  EXPECT_EQ((sum * m).str(), "M·M + M·N + M");
  EXPECT_EQ((sum * 0).str(), "0");
  SizePolynomial difference = m * n * 3;
  difference += m * -1;
  EXPECT_EQ(difference.str(), "3·M·N - M");
  difference += m;
  EXPECT_EQ(difference, n * 3 * m);
  attn::SizeAttr heads = attn::SizeAttr::named(&context, "H"), two = attn::SizeAttr::constant(&context, 2);
  EXPECT_EQ(SizePolynomial(attn::SizeAttr::binary(attn::SizeKind::Mul, heads, two)).str(), "2·H");
  EXPECT_EQ((SizePolynomial(attn::SizeAttr::binary(attn::SizeKind::FloorDiv, heads, two)) * 4).str(), "4·(H // 2)");
}

TEST_F(CostTest, TensorsAreStoredAndScoresAreNot) {
  attn::Cost cost = attn::costOf(parse(R"(
attn.kernel @f(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], bf16>) {
  %norm = attn.tensor "norm"(%n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], bf16>
      %2 = arith.mulf %1, %1 : f32
      attn.yield %2 : f32
    }
    %3 = math.sqrt %0 : f32
    attn.yield %3 : f32
  }
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.read %norm[%n] : !attn.tensor<[N], f32>
    %1 = attn.reduce sum(%d: D) : f32 {
      %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], bf16>
      %4 = arith.mulf %2, %3 : f32
      attn.yield %4 : f32
    }
    %5 = arith.divf %1, %0 : f32
    attn.yield %5 : f32
  }
  %weight, %lse = attn.softmax "weight", "lse"(%score) : !attn.tensor<[M, N], f32>
  attn.return %lse : !attn.tensor<[M], f32> as f32
})"));
  // Norms: a product and a sum for each element. Scores: the same, a quotient, and four for the softmax.
  EXPECT_EQ(cost.flops.str(), "2·D·M·N + 2·D·N + 5·M·N");
  EXPECT_EQ(cost.calls.str(), "M·N + N");
  // q and k, two bytes each; norms written and read; the output.
  EXPECT_EQ(cost.bytes.str(), "4·D·M + 2·D·N + 4·M + 8·N");
}

TEST_F(CostTest, SoftmaxesCountOnceForTheirRowsAndRuledOutSumsDoNot) {
  attn::Cost cost = attn::costOf(parse(R"(
attn.kernel @f(%x: !attn.tensor<[M, N], f32>, %flag: !attn.tensor<[], i1>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at(%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      %2 = math.tanh %1 : f32
      attn.yield %2 : f32
    }
    attn.yield %0 : f32
  }
  %sum = attn.tensor "sum"(%m: M) : f32 {
    %true = arith.constant true
    %flagged = attn.read %flag[] : !attn.tensor<[], i1>
    %otherwise = arith.xori %flagged, %true : i1
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      attn.yield %flagged : i1
    }
    %2 = attn.reduce sum(%n: N) : f32 {
      %3 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      %4 = math.exp %3 : f32
      attn.yield %4 : f32
    } where {
      attn.yield %otherwise : i1
    }
    %5 = arith.select %flagged, %0, %2 : f32
    attn.yield %5 : f32
  }
  attn.return %weight : !attn.tensor<[M, N], f32> as f32, %sum : !attn.tensor<[M], f32> as f32
})"));
  EXPECT_EQ(cost.calls.str(), "2·M·N");
  EXPECT_EQ(cost.flops.str(), "5·M·N");
}

TEST_F(CostTest, WorkIsOfAllThatIsComputedWithAStatement) {
  attn::KernelOp kernel = parse(R"(
attn.kernel @f(%x: !attn.tensor<[N], f32>, %h: !attn.tensor<[H], f32>) {
  %square = attn.tensor "square"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %sum = attn.tensor "sum"(%m: (H floordiv 2)) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %square[%n] : !attn.tensor<[N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %sum : !attn.tensor<[(H floordiv 2)], f32> as f32
})");
  auto statements = llvm::to_vector(kernel.getOps<attn::TensorOp>());
  auto none = [](mlir::Value) { return false; };
  // A read, 30 for the exponential, and what ends the formula.
  EXPECT_EQ(attn::workOf(statements[0], none).str(), "32·N");
  EXPECT_EQ(attn::workOf(statements[1], none).str(), "2·(H // 2)·N + 2·(H // 2) + 32·N");
  SizePolynomial alone = attn::workOf(statements[1], [](mlir::Value) { return true; });
  EXPECT_EQ(alone.str(), "2·(H // 2)·N + 2·(H // 2)");
  EXPECT_EQ(alone.asSize(&context).evaluate({{"H", 7}, {"N", 10}}), 66);
}
