//===- ReferenceErrorsTest.cpp - What the interpreter refuses -------------===//

#include "ReferenceFixture.h"

/// A kernel whose one element is the result of `ops`, %r, of `type`.
static std::string kernel(llvm::StringRef ops, llvm::StringRef type = "f32") {
  return ("attn.kernel @k(%x: !attn.tensor<[N], f32>) { %y = attn.tensor \"y\"() : " + type + " { " + ops +
          " attn.yield %r : " + type + " } attn.return %y : !attn.tensor<[], " + type + "> as " + type + " }")
      .str();
}

TEST_F(ReferenceFixture, UnknownOp) {
  EXPECT_EQ(errorOf(kernel("%c = arith.constant 1.0 : f32 %r = math.cbrt %c : f32"), {{{1}, {1}}}),
            "'y' uses the op math.cbrt, which the reference interpreter does not know");
}

TEST_F(ReferenceFixture, UnknownScalarType) {
  EXPECT_EQ(errorOf(kernel("%c = arith.constant 1.0 : bf16 %r = arith.extf %c : bf16 to f32"), {{{1}, {1}}}),
            "'y' computes a scalar of type bf16 with arith.constant; only f32, f64, i64 and i1 are known");
}

TEST_F(ReferenceFixture, SizesThatAreNone) {
  EXPECT_EQ(
      errorOf(kernel("%r = attn.reduce sum(%i: N - 3) : f32 { %c = arith.constant 1.0 : f32 attn.yield %c : f32 }"),
              {{{1}, {1}}}),
      "size N - 3 is negative: -2");
  EXPECT_EQ(errorOf(kernel("%s = attn.size 3 floordiv N %r = arith.sitofp %s : i64 to f32"), {{{0}, {}}}),
            "size 3 // N cannot be computed: it divides by zero or overflows");
}

TEST_F(ReferenceFixture, ValuesThatDoNotFillTheShape) {
  EXPECT_EQ(errorOf(kernel("%r = arith.constant 1.0 : f32"), {{{3}, {1, 2}}}),
            "x: has 2 values, but must have 3 for its shape");
}

TEST_F(ReferenceFixture, TooManyElements) {
  EXPECT_EQ(errorOf("attn.kernel @k(%x: !attn.tensor<[N, 0], f32>) { %y = attn.tensor \"y\"(%i: N, %j: N) : f32 { "
                    "%c = arith.constant 1.0 : f32 attn.yield %c : f32 } attn.return %y : "
                    "!attn.tensor<[N, N], f32> as f32 }",
                    {{{int64_t{1} << 32, 0}, {}}}),
            "a tensor of type !attn.tensor<[N, N], f32> has too many elements");
}
