//===- PhiloxTest.cpp - Philox4x32-10 against its published vectors -------===//

#include "lib/Reference/Philox.h"

#include "gtest/gtest.h"

using namespace attn::reference;
using Words = std::array<uint32_t, 4>;

// The three known-answer vectors that come with the paper's implementation.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DropsTheShareAskedFor) {
  int64_t dropped = 0;
  for (int64_t element = 0; element < 100000; ++element) {
    dropped += isDropped(0.25, 42, element);
    EXPECT_FALSE(isDropped(0.0, 42, element));
    EXPECT_TRUE(isDropped(1.0, 42, element));
  }
  EXPECT_NEAR(dropped, 25000, 700); // five standard deviations
}

TEST(Philox, UsesAllOfSeedAndElement) {
  // The first word for key 0 and counter 0 is 0x6627e8d5 = 0.39905 · 2³².
  EXPECT_TRUE(isDropped(0.400, 0, 0));
  EXPECT_FALSE(isDropped(0.399, 0, 0));
  int64_t differences[2] = {0, 0};
  for (int64_t i = 0; i < 256; ++i) {
    differences[0] += isDropped(0.5, i, 7) != isDropped(0.5, i + (int64_t{1} << 32), 7);
    differences[1] += isDropped(0.5, 7, i) != isDropped(0.5, 7, i + (int64_t{1} << 32));
  }
  EXPECT_GT(differences[0], 80);
  EXPECT_GT(differences[1], 80);
}
