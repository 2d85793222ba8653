//===- ArrayTest.cpp - What attn-run does with arrays ---------------------===//

#include "tools/attn-run/Array.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>

using namespace attn::run;

static constexpr double infinity = std::numeric_limits<double>::infinity();

static Array make(const char *type, std::vector<int64_t> shape, const std::vector<double> &values) {
  Array array(ElementType::named(type), std::move(shape));
  for (size_t number = 0; number < values.size(); ++number)
    array.set(static_cast<int64_t>(number), values[number]);
  return array;
}

TEST(Array, HalvesAreRoundedToNearestEven) {
  auto rounded = [](const char *type, double value) { return make(type, {}, {value}).get(0); };
  EXPECT_EQ(rounded("bf16", 1 + 0x1p-8), 1);
  EXPECT_EQ(rounded("bf16", 1 + 3 * 0x1p-8), 1 + 0x1p-6);
  EXPECT_EQ(rounded("bf16", 1 + 0x1p-8 + 0x1p-30), 1 + 0x1p-7);
  EXPECT_EQ(rounded("bf16", -3.4e38), -infinity);
  EXPECT_EQ(rounded("bf16", -3.39e38), -0x1.fep127);
  EXPECT_EQ(rounded("bf16", 0x1p-133), 0x1p-133) << "the smallest";
  EXPECT_EQ(rounded("bf16", 0x1p-134), 0);
  EXPECT_EQ(rounded("f16", 65519), 65504);
  EXPECT_EQ(rounded("f16", 65520), infinity);
  EXPECT_EQ(rounded("f16", -1e300), -infinity);
  EXPECT_EQ(rounded("f16", 2049), 2048);
  EXPECT_EQ(rounded("f16", 2051), 2052);
  EXPECT_EQ(rounded("f16", 3 * 0x1p-25), 0x1p-23) << "of smallest numbers, to even";
  EXPECT_TRUE(std::isnan(rounded("f16", std::nan(""))));
  EXPECT_TRUE(std::signbit(rounded("f16", -0.0)));
  // Every finite half is its own rounding.
  for (const char *type : {"f16", "bf16"})
    for (int bits = 0; bits < 0x10000; ++bits) {
      Array array(ElementType::named(type), {});
      array.data()[0] = bits & 0xff;
      array.data()[1] = bits >> 8;
      double value = array.get(0);
      if (!std::isnan(value)) {
        Array again = make(type, {}, {value});
        ASSERT_EQ(again.data()[0] | again.data()[1] << 8, bits) << type;
      }
    }
}

TEST(Array, Random) {
  Array normal(ElementType::named("f32"), {10000}), again = normal, other = normal;
  fillRandom(normal, std::nullopt, 1);
  fillRandom(again, std::nullopt, 1);
  fillRandom(other, std::nullopt, 2);
  double sum = 0, squares = 0, differences = 0;
  for (int64_t number = 0; number < 10000; ++number) {
    EXPECT_EQ(normal.get(number), again.get(number));
    differences += normal.get(number) != other.get(number);
    sum += normal.get(number);
    squares += normal.get(number) * normal.get(number);
  }
  EXPECT_GT(differences, 9900);
  EXPECT_NEAR(sum / 1e4, 0, 0.05);
  EXPECT_NEAR(squares / 1e4, 1, 0.07);

  Array lengths(ElementType::named("i32"), {1000});
  fillRandom(lengths, Range{-1, 2}, 3);
  int counts[4] = {};
  for (int64_t number = 0; number < 1000; ++number) {
    ASSERT_GE(lengths.get(number), -1);
    ASSERT_LE(lengths.get(number), 2);
    ++counts[static_cast<int>(lengths.get(number)) + 1];
  }
  for (int count : counts)
    EXPECT_GT(count, 150);
}

TEST(Array, TooLarge) {
  try {
    Array(ElementType::named("f32"), {int64_t{1} << 40, int64_t{1} << 40});
    FAIL();
  } catch (const Failure &failure) {
    EXPECT_STREQ(failure.what(), "no memory for an array of shape [1099511627776, 1099511627776]");
  }
}

TEST(Array, Printed) {
  EXPECT_EQ(printArray(make("f32", {}, {1.5})), "1.5");
  EXPECT_EQ(printArray(make("f32", {0}, {})), "[]");
  EXPECT_EQ(printArray(make("bool", {2}, {1, 0})), "[ True False]");
  EXPECT_EQ(printArray(make("f64", {2, 2}, {1, -infinity, 1.0 / 3, std::nan("")})),
            "[[       1     -inf]\n [0.333333      nan]]");
  EXPECT_EQ(printArray(make("i64", {2, 1, 2}, {1, 2, 3, 40})), "[[[ 1  2]]\n\n [[ 3 40]]]");
  Array large(ElementType::named("i32"), {2000});
  for (int64_t number = 0; number < 2000; ++number)
    large.set(number, number);
  EXPECT_EQ(printArray(large), "[   0    1    2 ... 1997 1998 1999]");
}

TEST(Array, Compared) {
  // Differences count relative to their row: 0.5 of 100 in the first, 0.5 of 10 in the second.
  Array expected = make("f32", {2, 2}, {100, 1, 10, 0}), found = make("f32", {2, 2}, {100, 1.5, 9.5, 0});
  Comparison worst = compare(found, expected);
  EXPECT_DOUBLE_EQ(worst.error, 0.05);
  EXPECT_EQ(worst.describe(found, expected), "worst error 0.05 at [1, 0] (found 9.5, reference 10)");
  EXPECT_EQ(compare(expected, expected).describe(expected, expected), "no difference");

  auto error = [](double found, double expected) {
    return compare(make("f64", {}, {found}), make("f64", {}, {expected})).error;
  };
  EXPECT_EQ(error(-infinity, -infinity), 0);
  EXPECT_EQ(error(std::nan(""), std::nan("")), 0);
  EXPECT_EQ(error(infinity, -infinity), infinity);
  EXPECT_EQ(error(std::nan(""), 1), infinity);
  EXPECT_EQ(error(1, std::nan("")), infinity);
  EXPECT_EQ(error(1e-3, 0), 1e-3) << "a row of zeros has no scale";
}
