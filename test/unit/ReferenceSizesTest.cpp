//===- ReferenceSizesTest.cpp - Sizes from the shapes of arguments --------===//

#include "ReferenceFixture.h"

class Sizes : public ReferenceFixture {
protected:
  /// Binds the sizes of a kernel whose parameters a, b, … have the shapes `types`.
  llvm::Expected<llvm::StringMap<int64_t>> bind(std::vector<std::string> types,
                                                std::vector<std::vector<int64_t>> shapes) {
    std::string text = "attn.kernel @k(";
    for (size_t index = 0; index < types.size(); ++index)
      text += (index ? ", %" : "%") + std::string(1, 'a' + index) + ": !attn.tensor<" + types[index] + ", f32>";
    text += ") { %y = attn.tensor \"y\"() : f32 { %one = arith.constant 1.0 : f32 attn.yield %one : f32 } "
            "attn.return %y : !attn.tensor<[], f32> as f32 }";
    return attn::bindSizes(parse(text), shapes);
  }

  std::string error(std::vector<std::string> types, std::vector<std::vector<int64_t>> shapes) {
    auto sizes = bind(std::move(types), std::move(shapes));
    return sizes ? "no error" : llvm::toString(sizes.takeError());
  }

  int64_t value(llvm::StringRef name, std::vector<std::string> types, std::vector<std::vector<int64_t>> shapes) {
    auto sizes = bind(std::move(types), std::move(shapes));
    if (sizes)
      return sizes->contains(name) ? sizes->lookup(name) : -1;
    ADD_FAILURE() << llvm::toString(sizes.takeError());
    return -1;
  }
};

TEST_F(Sizes, Bound) {
  EXPECT_EQ(value("N", {"[M, N]", "[N]"}, {{2, 3}, {3}}), 3);
  EXPECT_EQ(value("M", {"[M, N]", "[]"}, {{0, 3}, {}}), 0);
}

TEST_F(Sizes, Solved) {
  EXPECT_EQ(value("D", {"[12 * D, J]"}, {{768, 5}}), 64);
  EXPECT_EQ(value("Y", {"[X + Y]", "[X]"}, {{7}, {3}}), 4);
  EXPECT_EQ(value("X", {"[X - Y]", "[Y]"}, {{7}, {3}}), 10);
  EXPECT_EQ(value("Y", {"[X - Y]", "[X]"}, {{7}, {9}}), 2);
  EXPECT_EQ(value("X", {"[2 * (X + 1) - Y]", "[Z + Y]", "[Z]"}, {{7}, {8}, {3}}), 5) << "one after the other";
  EXPECT_EQ(value("X", {"[X floordiv 2]", "[X]"}, {{3}, {7}}), 7) << "checked, though it cannot be solved";
}

TEST_F(Sizes, RankAndCount) {
  EXPECT_EQ(error({"[B, M, D]"}, {{4, 8}}), "a: has rank 2 [4, 8], but must have rank 3 [B, M, D]");
  EXPECT_EQ(error({"[]"}, {{1}}), "a: has rank 1 [1], but must have rank 0 []");
  EXPECT_EQ(error({"[M]", "[N]"}, {{1}}), "k: takes 2 arguments, but 1 were given");
}

TEST_F(Sizes, Mismatch) {
  EXPECT_EQ(error({"[M, D]", "[N, D]"}, {{2, 64}, {3, 32}}),
            "b: dimension 1 (D) is 32, but a: dimension 1 made D = 64");
  EXPECT_EQ(error({"[M, 16]"}, {{2, 8}}), "a: dimension 1 (16) is 8, but must be 16");
  EXPECT_EQ(error({"[H, D]", "[H * D]"}, {{12, 4}, {10}}),
            "b: dimension 0 (H * D) is 10, but must be 48 (H = 12, D = 4)");
  EXPECT_EQ(error({"[M]"}, {{-1}}), "a: dimension 0 (M) is -1, but must be at least 0");
}

TEST_F(Sizes, Checks) {
  auto bound = [&](int64_t n, int64_t k) {
    auto sizes = attn::bindSizes(
        parse("attn.kernel @part(%x: !attn.tensor<[N], f32>, %w: !attn.tensor<[K], f32>) attributes {attn.checks = "
              "[{message = \"index `k` leaves x\", part = #attn.size<K + 1>, whole = #attn.size<N>}, "
              "{message = \"no number\", part = #attn.size<K * K>, whole = #attn.size<N>}]} "
              "{ %y = attn.tensor \"y\"() : f32 { %one = arith.constant 1.0 : f32 attn.yield %one : f32 } "
              "attn.return %y : !attn.tensor<[], f32> as f32 }"),
        {{n}, {k}});
    return sizes ? "no error" : llvm::toString(sizes.takeError());
  };
  EXPECT_EQ(bound(5, 5), "part: index `k` leaves x: the dimension is 5, but must be at least 6");
  EXPECT_EQ(bound(int64_t(1) << 41, int64_t(1) << 40), "part: no number: the sizes cannot be computed");
  EXPECT_EQ(bound(2, 1), "no error");
}

TEST_F(Sizes, Unsolvable) {
  EXPECT_EQ(error({"[12 * D]"}, {{100}}), "a: dimension 0 (12 * D) is 100, but must be a multiple of 12");
  EXPECT_EQ(error({"[H]", "[H * D]"}, {{3}, {100}}),
            "b: dimension 0 (H * D) is 100, but must be a multiple of 3 (H = 3)");
  EXPECT_EQ(error({"[X + Y]", "[Y]"}, {{3}, {5}}),
            "a: dimension 0 (X + Y) is 3, but must not make X negative: -2 (Y = 5)");
  EXPECT_EQ(error({"[X * Y]"}, {{6}}),
            "a: dimension 0 (X * Y) is 6, from which Y cannot be told; fix its value at compile time");
  EXPECT_EQ(error({"[X]", "[X * Y]"}, {{0}, {6}}),
            "b: dimension 0 (X * Y) is 6, from which Y cannot be told (X = 0); fix its value at compile time");
  EXPECT_EQ(error({"[X]", "[4 floordiv X]"}, {{0}, {6}}),
            "b: dimension 0 (4 // X) is 6, but must be a number that cannot be computed (X = 0)");
}
