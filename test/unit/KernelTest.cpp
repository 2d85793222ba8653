//===- KernelTest.cpp - Kernels compiled and run in this process ----------===//

#include "TestTensor.h"
#include "attn/Compiler/Compiler.h"
#include "attn/Compiler/Tune.h"
#include "attn/Runtime/Runtime.h"

#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace attn;
using testing::ElementsAre;

static const char *const scaleText = "attention scaled(x: f32[M, N], factor: f32 = 2.0) {\n"
                                     "  y[m, n] = factor * x[m, n]\n"
                                     "  return y\n"
                                     "}\n";

/// An attention that adds a number, so that two numbers make two kernels.
static std::string adding(int number) {
  return fmt::format("attention add(x: f32[N]) {{\n  y[n] = x[n] + {}.0\n  return y\n}}\n", number);
}

static std::string compileError(std::string_view source, const CompileOptions &options = {}) {
  try {
    compile(source, options);
  } catch (const CompileError &error) {
    return error.what();
  }
  return "";
}

TEST(Kernel, DescribesItsTensors) {
  Kernel kernel = compile(scaleText);
  EXPECT_EQ(kernel.name(), "scaled");
  ASSERT_EQ(kernel.inputs().size(), 2u);
  EXPECT_EQ(kernel.inputs()[0].name, "x");
  EXPECT_EQ(kernel.inputs()[0].dtype, "f32");
  EXPECT_THAT(kernel.inputs()[0].shape, ElementsAre("M", "N"));
  EXPECT_EQ(kernel.inputs()[0].defaultValue, std::nullopt);
  EXPECT_EQ(kernel.inputs()[1].defaultValue, 2.0);
  ASSERT_EQ(kernel.outputs().size(), 1u);
  EXPECT_EQ(kernel.outputs()[0].name, "y");
}

TEST(Kernel, RunsAndTakesDefaults) {
  Kernel kernel = compile(scaleText);
  TestTensor x("f32", {2, 3}), factor("f32", {}), y("f32", {2, 3});
  x.fill<float>({1, 2, 3, 4, 5, 6});
  factor.fill<float>({10});
  kernel.run({&x.tensor, &factor.tensor}, {&y.tensor});
  EXPECT_EQ(y.data<float>()[5], 60);
  kernel.run({&x.tensor, nullptr}, {&y.tensor});
  EXPECT_EQ(y.data<float>()[5], 12);
  EXPECT_THAT(kernel.outputShapes({&x.tensor, nullptr}), ElementsAre(ElementsAre(2, 3)));
}

/// The one value that a kernel gives which copies a scalar parameter of this dtype, called with NULL for it.
template <typename T> static T valueOfDefault(const std::string &dtype, const std::string &value) {
  Kernel kernel = compile(fmt::format("attention copied(x: i32[N], given: {0} = {1}) {{\n"
                                      "  y[n: N]: {0} = given\n"
                                      "  return y\n}}\n",
                                      dtype, value));
  TestTensor x("i32", {1}), y(dtype, {1});
  kernel.run({&x.tensor, nullptr}, {&y.tensor});
  return *y.data<T>();
}

TEST(Kernel, DefaultsAreExact) {
  EXPECT_EQ(valueOfDefault<int64_t>("i64", "9007199254740993"), 9007199254740993) << "no double has this value";
  EXPECT_EQ(valueOfDefault<int64_t>("i64", "-9223372036854775807"), -INT64_MAX);
  EXPECT_EQ(valueOfDefault<int32_t>("i32", "-5"), -5);
  EXPECT_EQ(valueOfDefault<int8_t>("i8", "-128"), -128);
  EXPECT_EQ(valueOfDefault<uint8_t>("u8", "255"), 255);
  EXPECT_EQ(valueOfDefault<bool>("bool", "true"), true);
  EXPECT_EQ(valueOfDefault<float>("f32", "-inf"), -INFINITY);
  EXPECT_EQ(valueOfDefault<double>("f64", "0.1"), 0.1);
}

TEST(Kernel, ChecksRangesWhenItIsCalled) {
  Kernel kernel = compile("attention part(x: f32[N], w: f32[K]) {\n"
                          "  y[j: K] = x[j] + w[j]\n"
                          "  return y\n}\n");
  TestTensor x("f32", {2}), w("f32", {3}), y("f32", {3});
  y.fillPattern();
  auto expectRejected = [](auto call) {
    try {
      call();
      FAIL() << "accepted";
    } catch (const RunError &error) {
      EXPECT_EQ(error.code, ATTN_ERROR_SHAPE);
      EXPECT_STREQ(error.what(), "part: index `j` ranges over K and leaves dimension 0 of `x`, which is N: the "
                                 "dimension is 2, but must be at least 3");
    }
  };
  expectRejected([&] { kernel.run({&x.tensor, &w.tensor}, {&y.tensor}); });
  expectRejected([&] { kernel.reference({&x.tensor, &w.tensor}, {&y.tensor}); });
  expectRejected([&] { kernel.outputShapes({&x.tensor, &w.tensor}); });
  EXPECT_TRUE(y.hasPattern());
}

TEST(Kernel, ChecksSubscriptsThatDependOnData) {
  Kernel kernel = compile("attention picked(x: f32[N], at: i64[M], on: bool[M]) {\n"
                          "  y[m] = select(on[m], x[at[m]], 0.0)\n"
                          "  return y\n}\n",
                          {.checkBounds = true});
  TestTensor x("f32", {3}), at("i64", {2}), on("bool", {2}), y("f32", {2});
  x.fill<float>({1, 2, 3});
  on.fill<uint8_t>({1, 1});
  auto run = [&] { kernel.run({&x.tensor, &at.tensor, &on.tensor}, {&y.tensor}); };
  y.fillPattern();
  for (int64_t wrong : {int64_t(3), int64_t(-1), INT64_MAX, INT64_MIN}) {
    at.fill<int64_t>({2, wrong});
    try {
      run();
      FAIL() << "accepted " << wrong;
    } catch (const RunError &error) {
      EXPECT_EQ(error.code, ATTN_ERROR_BOUNDS);
      EXPECT_EQ(error.what(), fmt::format("picked: x: dimension 0 (N) is 3, but its subscript in y is {}", wrong));
    }
  }
  EXPECT_TRUE(y.hasPattern());
  // The reference clamps, and so does everything that is not used.
  TestTensor expected("f32", {2});
  at.fill<int64_t>({2, -1});
  kernel.reference({&x.tensor, &at.tensor, &on.tensor}, {&expected.tensor});
  EXPECT_EQ(expected.data<float>()[1], 1);
  on.fill<uint8_t>({1, 0});
  run();
  EXPECT_EQ(y.data<float>()[0], 3);
  EXPECT_EQ(y.data<float>()[1], 0);
}

TEST(Kernel, TakesAnyStrides) {
  Kernel kernel = compile(scaleText);
  TestTensor x("f32", {3, 2}), y("f32", {2, 3}, 20);
  x.fill<float>({1, 2, 3, 4, 5, 6});
  // x transposed, with its rows backwards: [[2, 4, 6], [1, 3, 5]].
  x.shape = {2, 3};
  x.strides = {-1, 2};
  x.tensor.byte_offset = sizeof(float);
  y.strides = {1, 4};
  y.tensor.byte_offset = 4 * sizeof(float);
  for (int i = 0; i < 24; ++i)
    static_cast<float *>(y.tensor.data)[i] = -1;
  kernel.run({&x.tensor, nullptr}, {&y.tensor});
  const float *data = static_cast<float *>(y.tensor.data);
  std::vector<float> found(data, data + 16);
  EXPECT_EQ(found, (std::vector<float>{-1, -1, -1, -1, 4, 2, -1, -1, 8, 6, -1, -1, 12, 10, -1, -1}));
}

TEST(Kernel, BroadcastsByStrideZeroAndReferenceAgrees) {
  Kernel kernel = compile(scaleText);
  TestTensor x("f32", {2, 3}), y("f32", {2, 3}), expected("f32", {2, 3});
  x.fill<float>({7});
  x.strides = {0, 0};
  kernel.run({&x.tensor, nullptr}, {&y.tensor});
  kernel.reference({&x.tensor, nullptr}, {&expected.tensor});
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(y.data<float>()[i], 14);
    EXPECT_EQ(expected.data<float>()[i], 14);
  }
}

TEST(Kernel, RejectsWrongArguments) {
  Kernel kernel = compile(scaleText);
  TestTensor x("f32", {2, 3}), y("f32", {2, 4});
  y.fillPattern();
  auto rejected = [&](std::vector<const DLTensor *> inputs, std::vector<DLTensor *> outputs) {
    try {
      kernel.run(inputs, outputs);
    } catch (const RunError &error) {
      return fmt::format("{}: {}", error.code, error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(rejected({&x.tensor}, {&y.tensor}), "12: scaled: 1 input given, but it has 2");
  EXPECT_EQ(rejected({&x.tensor, nullptr}, {}), "12: scaled: 0 outputs given, but it has 1");
  EXPECT_EQ(rejected({nullptr, nullptr}, {&y.tensor}), "1: x: the tensor is NULL, and it has no default");
  EXPECT_EQ(rejected({&x.tensor, nullptr}, {&y.tensor}), "7: y: dimension 1 (N) is 4, but x: dimension 1 made N = 3");
  EXPECT_TRUE(y.hasPattern());
}

TEST(Kernel, RunsWhereTheMachineHasWhatItWasCompiledFor) {
  TestTensor x("f32", {1, 1}), y("f32", {1, 1});
  for (const char *other : {"arm-64-linux", "x86-64-linux"}) {
    Kernel kernel = compile(scaleText, {.target = other});
#ifdef __x86_64__
    bool runs = std::string_view(other).starts_with("x86");
#else
    bool runs = std::string_view(other).starts_with("arm");
#endif
    try {
      kernel.run({&x.tensor, nullptr}, {&y.tensor});
      EXPECT_TRUE(runs);
    } catch (const RunError &error) {
      EXPECT_FALSE(runs);
      EXPECT_EQ(std::string(error.what()),
                "scaled: was compiled for " + std::string(other) + ", which this machine cannot run");
    }
  }
}

TEST(Compile, ReportsErrors) {
  std::string message = compileError("attention a(x: f32[N]) {\n  y[n] = z[n]\n  return y\n}\n", {.name = "a.attn"});
  EXPECT_THAT(message, testing::HasSubstr("a.attn:2:10: error: "));
  EXPECT_EQ(
      compileError(adding(1) + "attention other(x: f32[N]) {\n  y[n] = x[n]\n  return y\n}\n", {.name = "a.attn"}),
      "a.attn: error: the source has 2 kernels (add, other): say which one");
  EXPECT_EQ(compileError(scaleText, {.dtype = "f8"}), "the dtype must be f32, bf16 or f16, but is 'f8'");
  EXPECT_EQ(compileError(scaleText, {.target = "pdp-11"}),
            "unknown target 'pdp-11': expected host, cuda, opencl or a Halide target such as "
            "x86-64-linux-avx2-fma");
}

TEST(Compile, AnUnknownStageNamesTheStages) {
  try {
    compile(scaleText).emit("assembler");
    FAIL();
  } catch (const std::invalid_argument &error) {
    EXPECT_STREQ(error.what(), "there is no stage 'assembler'; the stages are ast, attn, simplified, plan, halide, "
                               "loops, llvm, asm, ptx, opencl, cuda, object");
  }
}

TEST(Tune, SaysWhatItCannotMeasure) {
  auto error = [](const CompileOptions &options, const TuneOptions &tuning) -> std::string {
    try {
      tune(scaleText, options, tuning, "");
    } catch (const std::invalid_argument &error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error({}, {}), "tune needs a shape to measure at");
  EXPECT_EQ(error({.target = "arm-64-linux"}, {.shapes = {{{"M", 2}, {"N", 3}}}}),
            "tune measures on this machine: the target must be host, but is arm-64-linux");
}

// A kernel's name is part of its cache entry: the entry is shared exactly if everything is the same.
TEST(Compile, CachesBySourceAndOptions) {
  const std::string *first = &compile(scaleText).name();
  EXPECT_EQ(&compile(scaleText).name(), first);
  EXPECT_NE(&compile(scaleText, {.sizes = {{"N", 3}}}).name(), first);
  EXPECT_NE(&compile(std::string(scaleText) + "\n").name(), first);
}
