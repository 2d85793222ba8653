//===- CutsTest.cpp - Calls that run in parts -----------------------------===//
//
// The functions here take the place of Halide's: the first copies x to the tensor between the steps, the second that to
// y, as far as their buffers go.
//
//===----------------------------------------------------------------------===//

#include "RuntimeTest.h"

#include "lib/Runtime/HalideBuffer.h"

using namespace attn;

static const char *const cutText = R"(
attn.kernel @cut(%z: !attn.tensor<[N], f64>, %x: !attn.tensor<[M, B], f64>) {
  %y = attn.tensor "y"(%b: B, %m: M) : f64 {
    %0 = attn.read %x[%m, %b] : !attn.tensor<[M, B], f64>
    attn.yield %0 : f64
  }
  attn.return %y : !attn.tensor<[B, M], f64> as f64
})";

namespace {

/// The sizes B and M of the parts, in order.
std::vector<std::string> parts;
int failingPart;

/// The element of a tensor of 64-bit numbers; indices are those of the buffer.
double &element(void *argument, int64_t first, int64_t second) {
  auto *buffer = static_cast<attn_halide_buffer *>(argument);
  return reinterpret_cast<double *>(
      buffer->host)[first * buffer->dimension[0].stride + second * buffer->dimension[1].stride];
}

int extent(void *argument, int dimension) {
  return static_cast<attn_halide_buffer *>(argument)->dimension[dimension].extent;
}

/// Of x, B, M and what lies between: [B, M, 4096].
int takes(void **arguments) {
  int batch = *static_cast<int32_t *>(arguments[1]), rows = *static_cast<int32_t *>(arguments[2]);
  EXPECT_EQ(extent(arguments[0], 0), batch);
  EXPECT_EQ(extent(arguments[0], 1), rows);
  parts.push_back(std::to_string(batch) + " " + std::to_string(rows));
  auto *between = static_cast<attn_halide_buffer *>(arguments[3]);
  for (int b = 0; b < batch; ++b)
    for (int m = 0; m < rows; ++m)
      reinterpret_cast<double *>(between->host)[(b * rows + m) * 4096] = element(arguments[0], b, m);
  return failingPart-- ? 0 : -1;
}

/// Of what lies between and y.
int gives(void **arguments) {
  auto *between = static_cast<attn_halide_buffer *>(arguments[0]);
  int rows = extent(arguments[1], 0);
  for (int b = 0; b < extent(arguments[1], 1); ++b)
    for (int m = 0; m < rows; ++m)
      element(arguments[1], m, b) = reinterpret_cast<double *>(between->host)[(b * rows + m) * 4096];
  return 0;
}

/// 32 KiB between the steps for each of B × M; parts have whole tiles of M.
class Cuts : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_NE(signature, nullptr);
    // The numbers of sizes that are used below.
    ASSERT_EQ(std::string(signature->get().sizes[2].name) + signature->get().sizes[1].name, "BM");
    parts.clear();
    failingPart = -1;
  }

  int run(int64_t batch, int64_t rows) {
    TestTensor z("f64", {1}), x("f64", {rows, batch}), y("f64", {batch, rows});
    std::iota(x.data<double>(), x.data<double>() + batch * rows, 1);
    attn_signature table = signature->get();
    table.program_count = 1;
    table.programs = &program;
    const DLTensor *tensors[] = {&z.tensor, &x.tensor, &y.tensor};
    int error = attn_invoke(&table, tensors);
    for (int64_t b = 0; !error && b < batch; ++b)
      for (int64_t m = 0; m < rows; ++m)
        EXPECT_EQ(y.data<double>()[b * rows + m], x.data<double>()[m * batch + b]);
    return error;
  }

  std::unique_ptr<NativeSignature> signature = signatureOf(cutText, nullptr);
  // Arguments are numbered: 0 z, 1 x, 2 to 4 the kernel's sizes, 5 y, 6 what lies between.
  const attn_instruction pushB[1] = {{ATTN_PUSH_SIZE, 2}}, pushM[1] = {{ATTN_PUSH_SIZE, 1}},
                         width[1] = {{ATTN_PUSH_CONSTANT, 4096}};
  const attn_expression shape[3] = {{"B", 1, pushB}, {"M", 1, pushM}, {"4096", 1, width}};
  const attn_intermediate between = {{"between", kDLFloat, 64, 3, shape, 0, 0}, 0, 1};
  const int64_t taken[4] = {1, 4, 3, 6}, given[2] = {6, 5};
  const attn_variant take = {nullptr, 4, taken, takes}, give = {nullptr, 2, given, gives};
  const attn_step steps[2] = {{{}, &take}, {{}, &give}};
  const attn_cut cuts[2] = {{2, 1}, {1, ATTN_CUT_ROWS}};
  attn_program program = {1, &between, 2,       steps,   0, nullptr, 2,      cuts,
                          0, nullptr,  nullptr, nullptr, 0, nullptr, nullptr};
};

} // namespace

TEST_F(Cuts, AreNoneWhereLittleIsStored) {
  EXPECT_EQ(run(3, 32), ATTN_OK) << attn_last_error();
  EXPECT_EQ(parts, std::vector<std::string>{"3 32"});
}

/// Three of five would fit: parts are about as large as each other.
TEST_F(Cuts, AreOfTheOutermostSize) {
  EXPECT_EQ(run(5, 32), ATTN_OK) << attn_last_error();
  EXPECT_EQ(parts, (std::vector<std::string>{"3 32", "2 32"}));
}

TEST_F(Cuts, AreOfAFurtherSizeWhereThatIsNotEnough) {
  EXPECT_EQ(run(2, 200), ATTN_OK) << attn_last_error();
  EXPECT_EQ(parts, (std::vector<std::string>{"1 64", "1 64", "1 64", "1 8", "1 64", "1 64", "1 64", "1 8"}));
}

/// No part has fewer values than a tile, whatever it stores.
TEST_F(Cuts, HaveWholeTiles) {
  program.cuts = cuts + 1;
  program.cut_count = 1;
  EXPECT_EQ(run(50, 65), ATTN_OK) << attn_last_error();
  EXPECT_EQ(parts, (std::vector<std::string>{"50 64", "50 1"}));
}

TEST_F(Cuts, EndWithThePartThatFails) {
  failingPart = 1;
  EXPECT_EQ(run(5, 32), ATTN_ERROR_KERNEL);
  EXPECT_STREQ(attn_last_error(), "cut: the kernel failed with Halide's error -1");
  EXPECT_EQ(parts.size(), 2u);
}

TEST_F(Cuts, AreNoneOfEmptyTensors) {
  EXPECT_EQ(run(0, 32), ATTN_OK) << attn_last_error();
  EXPECT_TRUE(parts.empty());
}
