//===- BlocksTest.cpp - Steps that run for one block after the other ------===//
//
// The functions here take the place of Halide's; each says which elements it was given.
//
//===----------------------------------------------------------------------===//

#include "RuntimeTest.h"

#include "attn/Runtime/ThreadPool.h"
#include "lib/Runtime/HalideBuffer.h"

#include <gmock/gmock.h>
#include <thread>

using namespace attn;
using testing::ElementsAre;

extern "C" void halide_error(void *context, const char *text);

static const char *const blocksText = R"(
attn.kernel @blocks(%x: !attn.tensor<[H, M, N], f32>) {
  %added = attn.tensor "added"(%n: N) : f32 {
    %0 = arith.constant 0.0 : f32
    attn.yield %0 : f32
  }
  %row = attn.tensor "row"(%h: H, %m: M) : f32 {
    %0 = arith.constant 0.0 : f32
    attn.yield %0 : f32
  }
  attn.return %added : !attn.tensor<[N], f32> as f32, %row : !attn.tensor<[H, M], f32> as f32
})";

namespace {

std::vector<std::string> calls;
std::vector<int> mostThreads; ///< That the steps which write pairs may have.
int32_t keys[2];
int32_t keysOfRow = 0; ///< If it is not 0, row m needs so many keys up to the m-th, in place of `keys`.
std::vector<std::pair<int32_t, int32_t>> seen; ///< If there are any: ranges of keys that rows see, in place of `keys`.
int searches = 0;                              ///< How often keys were looked for.

attn_halide_buffer *buffer(void *argument) { return static_cast<attn_halide_buffer *>(argument); }

/// "first+extent" of each dimension, the tensor's first one first.
std::string describe(void *argument) {
  std::string text;
  for (int i = buffer(argument)->dimensions; i-- > 0;) {
    const attn_halide_dimension &dimension = buffer(argument)->dimension[i];
    text += (text.empty() ? "" : ", ") + std::to_string(dimension.minimum) + "+" + std::to_string(dimension.extent);
  }
  return "[" + text + "]";
}

/// "first+count" of the axis that begins at `arguments`.
std::string axis(void **arguments) {
  return std::to_string(*static_cast<int32_t *>(arguments[0])) + "+" +
         std::to_string(*static_cast<int32_t *>(arguments[1]));
}

int findKeys(void **arguments) {
  auto *written = reinterpret_cast<int32_t *>(buffer(arguments[0])->host);
  written[0] = keys[0], written[1] = keys[1];
  if (keysOfRow) {
    int32_t first = *static_cast<int32_t *>(arguments[1]), count = *static_cast<int32_t *>(arguments[2]);
    written[0] = std::max(first + 1 - keysOfRow, 0), written[1] = first + count;
  }
  return 0;
}

/// Of the keys that it is given.
int searchKeys(void **arguments) {
  auto *written = reinterpret_cast<int32_t *>(buffer(arguments[0])->host);
  int32_t first = *static_cast<int32_t *>(arguments[1]), end = first + *static_cast<int32_t *>(arguments[2]);
  written[0] = end, written[1] = first;
  for (auto [from, to] : seen)
    if (from < end && to > first) {
      written[0] = std::min(written[0], std::max(from, first));
      written[1] = std::max(written[1], std::min(to, end));
    }
  ++searches;
  return 0;
}

/// Pairs, and the axes h, m and n.
int writePairs(void **arguments) {
  calls.push_back("pairs " + describe(arguments[0]) + " of " + axis(arguments + 1) + ", " + axis(arguments + 3) + ", " +
                  axis(arguments + 5));
  mostThreads.push_back(attn_most_threads);
  // All of the block can be written.
  const attn_halide_buffer &pairs = *buffer(arguments[0]);
  int64_t last = 0;
  for (int i = 0; i < pairs.dimensions; ++i)
    last += int64_t(pairs.dimension[i].extent - 1) * pairs.dimension[i].stride;
  reinterpret_cast<float *>(pairs.host)[0] = reinterpret_cast<float *>(pairs.host)[last] = 1;
  return 0;
}

/// Adds 1 to every key, and writes 10 m + h of every row.
int addUp(void **arguments) {
  const attn_halide_buffer &added = *buffer(arguments[0]), &row = *buffer(arguments[1]);
  for (int n = 0; n < added.dimension[0].extent; ++n)
    reinterpret_cast<float *>(added.host)[n] += 1;
  const attn_halide_dimension &m = row.dimension[0], &h = row.dimension[1];
  for (int i = 0; i < h.extent; ++i)
    for (int j = 0; j < m.extent; ++j)
      reinterpret_cast<float *>(row.host)[i * h.stride + j * m.stride] = 10 * (m.minimum + j) + h.minimum + i;
  return 0;
}

int fails(void **) { return ATTN_HALIDE_OUT_OF_MEMORY; }

int saysWhyItFails(void **arguments) {
  halide_error(nullptr, ("block " + axis(arguments + 1) + " failed").c_str());
  return -1;
}

/// Halide's pool, which has this thread alone.
int runsInOrder(void *context, attn_halide_task task, int first, int count, uint8_t *closure) {
  for (int i = first; i < first + count; ++i)
    task(context, i, closure);
  return 0;
}

int oneThread() { return 1; }

/// A program's pool that runs tasks on this thread, the last one first.
void lastFirst(void *, void (*task)(void *, int), void *closure, int count) {
  while (count-- > 0)
    task(closure, count);
}

/// One with a thread for each task.
void onOtherThreads(void *, void (*task)(void *, int), void *closure, int count) {
  for (int i = 0; i < count; ++i)
    std::thread(task, closure, i).join();
}

/// Pairs [H, M, N] between two steps, in blocks of h and m.
class Blocks : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_NE(signature, nullptr);
    calls.clear();
    mostThreads.clear();
    keysOfRow = searches = 0;
    seen.clear();
    attn_halide_threads = {runsInOrder, oneThread};
  }

  void TearDown() override { attn_halide_threads = pool; }

  /// Runs on H, M, N.
  int run(int64_t heads, int64_t rows, int64_t keyCount) {
    TestTensor x("f32", {heads, rows, keyCount}), added("f32", {keyCount}), row("f32", {heads, rows});
    added.fill(std::vector<float>(keyCount, 7));
    attn_signature table = signature->get();
    table.program_count = 1;
    table.programs = &program;
    const DLTensor *tensors[] = {&x.tensor, &added.tensor, &row.tensor};
    int error = attn_invoke(&table, tensors);
    sums.assign(added.data<float>(), added.data<float>() + keyCount);
    ofRows.assign(row.data<float>(), row.data<float>() + heads * rows);
    return error;
  }

  std::unique_ptr<NativeSignature> signature = signatureOf(blocksText, nullptr);
  attn_halide_pool pool = attn_halide_threads;
  std::vector<float> sums, ofRows; ///< What the last run has written.
  // Arguments are numbered: 0 x, 1 H, 2 M, 3 N, 4 added, 5 row, 6 the pairs; 7 to 12 the axes h, m and n, 13 keys.
  const attn_instruction h[1] = {{ATTN_PUSH_SIZE, 0}}, m[1] = {{ATTN_PUSH_SIZE, 1}}, n[1] = {{ATTN_PUSH_SIZE, 2}};
  const attn_expression shape[3] = {{"H", 1, h}, {"M", 1, m}, {"N", 1, n}};
  const attn_intermediate intermediate = {{"pairs", kDLFloat, 32, 3, shape, 0, 0}, -1, -1};
  const int64_t keyArguments[3] = {13, 9, 10}, pairArguments[7] = {6, 7, 8, 9, 10, 11, 12}, sumArguments[2] = {4, 5};
  attn_variant variants[3] = {
      {nullptr, 3, keyArguments, findKeys}, {nullptr, 7, pairArguments, writePairs}, {nullptr, 2, sumArguments, addUp}};
  attn_step steps[3] = {{{}, &variants[0]}, {{}, &variants[1]}, {{}, &variants[2]}};
  const int64_t ofPairs[3] = {0, 1, 2}, ofAdded[1] = {2}, ofRow[2] = {0, 1};
  const attn_block_tensor tensors[3] = {{6, 1, ofPairs}, {5, 0, ofRow}, {4, 0, ofAdded}}; ///< The first two: apart.
  attn_blocks blocks = {0, 3, 1, 0, 0, 3, shape, 3, tensors};
  attn_program program = {1, &intermediate, 3,       steps,   1, &blocks, 0,      nullptr,
                          0, nullptr,       nullptr, nullptr, 0, nullptr, nullptr};
};

} // namespace

/// 3.25 MiB hold 851968 floats: of rows of 65536 keys and 16 of padding, 12.
TEST_F(Blocks, HaveAsManyRowsAsThereIsRoomFor) {
  keys[0] = 0, keys[1] = 65536;
  ASSERT_EQ(run(2, 32, 65536), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls, ElementsAre("pairs [0+1, 0+11, 0+65536] of 0+1, 0+11, 0+65536",
                                 "pairs [0+1, 0+11, 0+65536] of 0+1, 11+11, 0+65536",
                                 "pairs [0+1, 0+10, 0+65536] of 0+1, 22+10, 0+65536",
                                 "pairs [0+1, 0+11, 0+65536] of 1+1, 0+11, 0+65536",
                                 "pairs [0+1, 0+11, 0+65536] of 1+1, 11+11, 0+65536",
                                 "pairs [0+1, 0+10, 0+65536] of 1+1, 22+10, 0+65536"));
  EXPECT_EQ(sums[0], 6);
  EXPECT_EQ(sums[65535], 6);
  EXPECT_EQ(ofRows[0], 0);
  EXPECT_EQ(ofRows[32 + 31], 311);
}

TEST_F(Blocks, AreOneWhereAllRowsFit) {
  keys[0] = 0, keys[1] = 9;
  ASSERT_EQ(run(3, 5, 9), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls, ElementsAre("pairs [0+3, 0+5, 0+9] of 0+3, 0+5, 0+9"));
}

/// What no block writes is 0.
TEST_F(Blocks, HaveTheKeysThatTheirFirstStepFinds) {
  keys[0] = 2, keys[1] = 5;
  ASSERT_EQ(run(1, 3, 9), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls, ElementsAre("pairs [0+1, 0+3, 0+3] of 0+1, 0+3, 2+3"));
  EXPECT_THAT(sums, ElementsAre(0, 0, 1, 1, 1, 0, 0, 0, 0));
}

/// Three blocks of 256 rows need a tenth more pairs than four at most, two or one need more than that. They are of both
/// heads.
TEST_F(Blocks, AreSmallWhereTheirRowsNeedDifferentKeys) {
  keysOfRow = 256;
  ASSERT_EQ(run(2, 256, 256), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls,
              ElementsAre("pairs [0+2, 0+86, 0+86] of 0+2, 0+86, 0+86", "pairs [0+2, 0+86, 0+172] of 0+2, 86+86, 0+172",
                          "pairs [0+2, 0+84, 0+256] of 0+2, 172+84, 0+256"));
}

/// All keys of 100 rows of 65536 would have room for 12.
TEST_F(Blocks, HaveMoreRowsWhereTheseNeedFewKeys) {
  keysOfRow = 8;
  ASSERT_EQ(run(1, 100, 65536), ATTN_OK) << attn_last_error();
  EXPECT_THAT(
      calls, ElementsAre("pairs [0+1, 0+50, 0+50] of 0+1, 0+50, 0+50", "pairs [0+1, 0+50, 0+57] of 0+1, 50+50, 43+57"));
}

/// They grow by halves, from 64 rows to what there is room for.
TEST_F(Blocks, GrowWhereAllRowsNeedTheSameKeys) {
  keys[0] = 10, keys[1] = 3010;
  ASSERT_EQ(run(1, 700, 4096), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls, ElementsAre("pairs [0+1, 0+234, 0+3000] of 0+1, 0+234, 10+3000",
                                 "pairs [0+1, 0+234, 0+3000] of 0+1, 234+234, 10+3000",
                                 "pairs [0+1, 0+232, 0+3000] of 0+1, 468+232, 10+3000"));
}

/// Of 200 rows of 65536 keys a sixteenth: 3.25 MiB hold 851968 floats, so many keys 13107200.
TEST_F(Blocks, HaveSomeOfTheKeysWhereThereIsNoRoomForAll) {
  blocks.cuts_keys = 1;
  keys[0] = 1, keys[1] = 65535;
  ASSERT_EQ(run(1, 200, 65536), ATTN_OK) << attn_last_error();
  ASSERT_EQ(calls.size(), 16U);
  EXPECT_EQ(calls[0], "pairs [0+1, 0+200, 0+4096] of 0+1, 0+200, 1+4096");
  EXPECT_EQ(calls[1], "pairs [0+1, 0+200, 0+4096] of 0+1, 0+200, 4097+4096");
  EXPECT_EQ(calls[15], "pairs [0+1, 0+200, 0+4094] of 0+1, 0+200, 61441+4094");
  EXPECT_EQ(sums[0], 0);
  EXPECT_EQ(sums[1], 1);
  EXPECT_EQ(sums[65534], 1);
  EXPECT_EQ(sums[65535], 0);
}

/// 1024 keys are enough for blocks to have more rows instead.
TEST_F(Blocks, HaveManyRowsWhereKeysAreCut) {
  blocks.cuts_keys = 1;
  blocks.finds_keys = 0;
  blocks.first = 1;
  variants[0].function = [](void **) { return 0; };
  ASSERT_EQ(run(1, 1000, 5000), ATTN_OK) << attn_last_error();
  ASSERT_EQ(calls.size(), 6U);
  EXPECT_EQ(calls[0], "pairs [0+1, 0+500, 0+1667] of 0+1, 0+500, 0+1667");
  EXPECT_EQ(calls[3], "pairs [0+1, 0+500, 0+1667] of 0+1, 500+500, 0+1667");
  EXPECT_EQ(calls[5], "pairs [0+1, 0+500, 0+1666] of 0+1, 500+500, 3334+1666");
}

/// 256 keys at a time are looked at for gaps, of which one of less than 64 keys is none.
TEST_F(Blocks, LeaveOutKeysThatNoRowSees) {
  const int64_t searchArguments[3] = {13, 11, 12};
  variants[0] = {nullptr, 3, searchArguments, searchKeys};
  seen = {{0, 4}, {700, 710}, {760, 1030}, {1700, 1701}};
  blocks.cuts_keys = blocks.searches_keys = 1;
  ASSERT_EQ(run(1, 2, 2000), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls,
              ElementsAre("pairs [0+1, 0+2, 0+4] of 0+1, 0+2, 0+4", "pairs [0+1, 0+2, 0+330] of 0+1, 0+2, 700+330",
                          "pairs [0+1, 0+2, 0+1] of 0+1, 0+2, 1700+1"));
  // Steps that need all keys of a row get those between the first and the last.
  calls.clear();
  blocks.cuts_keys = 0;
  ASSERT_EQ(run(1, 2, 2000), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls, ElementsAre("pairs [0+1, 0+2, 0+1701] of 0+1, 0+2, 0+1701"));
}

/// Blocks of the second head need the same keys, for the search does not ask for the head.
TEST_F(Blocks, AreMeasuredForOneHeadWhereOthersAreAlike) {
  const int64_t searchArguments[5] = {13, 11, 12, 9, 10}, ofHeads[7] = {13, 11, 12, 9, 10, 7, 8};
  seen = {{0, 200}};
  blocks.searches_keys = 1;
  variants[0] = {nullptr, 5, searchArguments, searchKeys};
  ASSERT_EQ(run(2, 128, 200), ATTN_OK) << attn_last_error();
  int once = std::exchange(searches, 0);
  variants[0] = {nullptr, 7, ofHeads, searchKeys};
  ASSERT_EQ(run(2, 128, 200), ATTN_OK) << attn_last_error();
  EXPECT_LT(once, searches);
}

TEST_F(Blocks, AreLeftOutWhereTheyNeedNoKeys) {
  keys[0] = 5, keys[1] = 2;
  ASSERT_EQ(run(1, 2, 3), ATTN_OK) << attn_last_error();
  EXPECT_TRUE(calls.empty());
  EXPECT_THAT(sums, ElementsAre(0, 0, 0));
  EXPECT_THAT(ofRows, ElementsAre(0, 0));
}

TEST_F(Blocks, HaveAllKeysWhereNoStepFindsThem) {
  blocks.finds_keys = 0;
  blocks.first = 1;
  variants[0].function = [](void **) { return 0; };
  ASSERT_EQ(run(1, 2, 3), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls, ElementsAre("pairs [0+1, 0+2, 0+3] of 0+1, 0+2, 0+3"));
}

TEST_F(Blocks, DoNotRunWithoutRowsOrKeys) {
  for (auto [heads, rows, keyCount] : {std::array{0, 2, 3}, std::array{2, 0, 3}, std::array{2, 3, 0}}) {
    ASSERT_EQ(run(heads, rows, keyCount), ATTN_OK) << attn_last_error();
    EXPECT_TRUE(calls.empty());
    EXPECT_THAT(ofRows, testing::Each(0));
    EXPECT_THAT(sums, testing::Each(0));
  }
}

TEST_F(Blocks, EndWithTheFirstStepThatFails) {
  keys[0] = 0, keys[1] = 3;
  variants[1].function = fails;
  EXPECT_EQ(run(1, 2, 3), ATTN_ERROR_MEMORY);
  EXPECT_STREQ(attn_last_error(), "blocks: out of memory");
}

TEST_F(Blocks, SayThatARowIsTooLong) {
  attn_instruction many[] = {{ATTN_PUSH_CONSTANT, 1 << 30}}, some[] = {{ATTN_PUSH_CONSTANT, 2}};
  const attn_expression long_[] = {{"2", 1, some}, {"M", 1, m}, {"L", 1, many}};
  const attn_intermediate pairs = {{"pairs", kDLFloat, 32, 3, long_, 0, 0}, -1, -1};
  const int64_t axes[] = {-1, 0, 1};
  const attn_block_tensor only = {6, 1, axes};
  program.intermediates = &pairs;
  blocks = {0, 3, 1, 0, 0, 2, long_ + 1, 1, &only};
  EXPECT_EQ(run(1, 1, 1), ATTN_ERROR_SIZE);
  EXPECT_STREQ(attn_last_error(), "blocks: a row of pairs would have more than 2147483647 elements");
  some[0].operand = 1;
  LittleMemory little;
  EXPECT_EQ(run(1, 1, 1), ATTN_ERROR_MEMORY);
  EXPECT_STREQ(attn_last_error(), "blocks: no memory for a block of 4294967360 bytes");
}

TEST_F(Blocks, SayThatAnAxisIsTooLong) {
  const attn_instruction many[] = {{ATTN_PUSH_SIZE, 1}, {ATTN_PUSH_CONSTANT, INT64_MAX}, {ATTN_MUL, 0}};
  const attn_expression axes[] = {shape[0], {"M * L", 3, many}, shape[2]};
  blocks.sizes = axes;
  EXPECT_EQ(run(1, 2, 3), ATTN_ERROR_SIZE);
  EXPECT_STREQ(attn_last_error(), "blocks: M * L would be too large");
  EXPECT_TRUE(calls.empty());
}

/// Series of blocks: rows whose outputs have nothing in common, here all of them.
class BlockSeries : public Blocks {
protected:
  void SetUp() override {
    Blocks::SetUp();
    blocks.tensor_count = 2;
    keys[0] = 0, keys[1] = 65536;
  }
  void TearDown() override {
    attn_use_thread_pool(nullptr, nullptr);
    attn_use_threads(0);
    Blocks::TearDown();
  }
};

TEST_F(BlockSeries, RunSideBySide) {
  attn_use_thread_pool(lastFirst, nullptr);
  keys[1] = 9;
  ASSERT_EQ(run(2, 2, 9), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls, ElementsAre("pairs [0+1, 0+1, 0+9] of 1+1, 1+1, 0+9", "pairs [0+1, 0+1, 0+9] of 0+1, 1+1, 0+9",
                                 "pairs [0+1, 0+1, 0+9] of 1+1, 0+1, 0+9", "pairs [0+1, 0+1, 0+9] of 0+1, 0+1, 0+9"));
  EXPECT_THAT(ofRows, ElementsAre(0, 10, 1, 11));
}

TEST_F(BlockSeries, HaveTheirBlocksInOrder) {
  const int64_t ofHead[2] = {0, -1};
  const attn_block_tensor ofHeads[2] = {tensors[0], {5, 0, ofHead}};
  blocks.tensors = ofHeads;
  attn_use_thread_pool(lastFirst, nullptr);
  ASSERT_EQ(run(2, 20, 65536), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls, ElementsAre("pairs [0+1, 0+10, 0+65536] of 1+1, 0+10, 0+65536",
                                 "pairs [0+1, 0+10, 0+65536] of 1+1, 10+10, 0+65536",
                                 "pairs [0+1, 0+10, 0+65536] of 0+1, 0+10, 0+65536",
                                 "pairs [0+1, 0+10, 0+65536] of 0+1, 10+10, 0+65536"));
}

/// Steps that are worth six threads make three series.
TEST_F(BlockSeries, AreFewWhereThereIsLittleToDo) {
  const attn_instruction operations[1] = {{ATTN_PUSH_CONSTANT, 5 * ATTN_THREAD_WORK}};
  for (attn_step &step : steps)
    step.work = {"5", 1, operations};
  attn_use_thread_pool(lastFirst, nullptr);
  keys[1] = 9;
  ASSERT_EQ(run(7, 2, 9), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls, ElementsAre("pairs [0+1, 0+2, 0+9] of 6+1, 0+2, 0+9", "pairs [0+2, 0+2, 0+9] of 4+2, 0+2, 0+9",
                                 "pairs [0+2, 0+2, 0+9] of 2+2, 0+2, 0+9", "pairs [0+2, 0+2, 0+9] of 0+2, 0+2, 0+9"));
}

TEST_F(BlockSeries, AreOneWhereThereIsNextToNothingToDo) {
  const attn_instruction operations[1] = {{ATTN_PUSH_CONSTANT, 9}};
  for (attn_step &step : steps)
    step.work = {"9", 1, operations};
  keys[1] = 9;
  ASSERT_EQ(run(7, 2, 9), ATTN_OK) << attn_last_error();
  EXPECT_THAT(calls, ElementsAre("pairs [0+7, 0+2, 0+9] of 0+7, 0+2, 0+9"));
}

/// As many for each thread; all share the steps of what is left, unless it is enough for half of them.
TEST_F(BlockSeries, HaveAThreadEach) {
  using Counts = std::vector<int>;
  for (auto [threads, heads, most] : {std::tuple{1, 3, Counts{0, 0, 0}},
                                      {2, 1, {0}},
                                      {2, 2, {1, 1}},
                                      {2, 3, {1, 1, 0}},
                                      {3, 5, {0, 0, 0, 0, 0}},
                                      {5, 2, {0, 0}}}) {
    attn_use_threads(threads);
    mostThreads.clear();
    EXPECT_EQ(run(heads, 1, 65536), ATTN_OK) << attn_last_error();
    EXPECT_EQ(mostThreads, most) << threads << " threads, " << heads << " heads";
  }
}

TEST_F(BlockSeries, SayWhyTheyFailOnAnotherThread) {
  variants[1].function = saysWhyItFails;
  attn_use_thread_pool(onOtherThreads, nullptr);
  EXPECT_EQ(run(2, 1, 65536), ATTN_ERROR_KERNEL);
  EXPECT_STREQ(attn_last_error(), "block 0+1 failed");
}
