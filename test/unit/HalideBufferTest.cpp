//===- HalideBufferTest.cpp - Our buffers are Halide's --------------------===//

#include "lib/Runtime/HalideBuffer.h"

#include "HalideRuntime.h"
#include <cstddef>
#include <gtest/gtest.h>

TEST(HalideBuffer, HasTheAbiOfHalide) {
  EXPECT_EQ(sizeof(attn_halide_buffer), sizeof(halide_buffer_t));
  EXPECT_EQ(offsetof(attn_halide_buffer, host), offsetof(halide_buffer_t, host));
  EXPECT_EQ(offsetof(attn_halide_buffer, flags), offsetof(halide_buffer_t, flags));
  EXPECT_EQ(offsetof(attn_halide_buffer, type_code), offsetof(halide_buffer_t, type));
  EXPECT_EQ(offsetof(attn_halide_buffer, dimensions), offsetof(halide_buffer_t, dimensions));
  EXPECT_EQ(offsetof(attn_halide_buffer, dimension), offsetof(halide_buffer_t, dim));
  EXPECT_EQ(sizeof(attn_halide_dimension), sizeof(halide_dimension_t));
  EXPECT_EQ(offsetof(attn_halide_dimension, extent), offsetof(halide_dimension_t, extent));
  EXPECT_EQ(offsetof(attn_halide_dimension, stride), offsetof(halide_dimension_t, stride));
}

TEST(HalideBuffer, HasTheCodesOfHalide) {
  EXPECT_EQ(halide_type_int, 0);
  EXPECT_EQ(halide_type_uint, 1);
  EXPECT_EQ(halide_type_float, 2);
  EXPECT_EQ(halide_type_bfloat, 4);
  EXPECT_EQ(ATTN_HALIDE_OUT_OF_MEMORY, halide_error_code_out_of_memory);
}
