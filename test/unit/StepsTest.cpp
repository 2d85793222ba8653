//===- StepsTest.cpp - Kernels of several steps ---------------------------===//
//
// The functions here take the place of Halide's; each says what it was given.
//
//===----------------------------------------------------------------------===//

#include "RuntimeTest.h"

#include "attn/Runtime/ThreadPool.h"
#include "lib/Runtime/HalideBuffer.h"

#include <sys/mman.h>

using namespace attn;

static const char *const stepsText = R"(
attn.kernel @steps(%x: !attn.tensor<[M, N], f32>) {
  %y = attn.tensor "y"(%m: M, %n: N) : f32 {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[M, N], f32> as f32
})";

namespace {

/// What the functions were called with, in order.
std::vector<std::string> calls;
/// How many threads were worth waking then.
std::vector<int> mostThreads;

std::string describe(const void *argument) {
  auto *buffer = static_cast<const attn_halide_buffer *>(argument);
  std::string text = "[";
  for (int i = buffer->dimensions; i-- > 0;)
    text += std::to_string(buffer->dimension[i].extent) + "*" + std::to_string(buffer->dimension[i].stride) +
            (i ? ", " : "]");
  return text;
}

int few(void **arguments) {
  calls.push_back("few " + describe(arguments[0]));
  return 0;
}

int many(void **arguments) {
  calls.push_back("many " + describe(arguments[0]));
  mostThreads.push_back(attn_most_threads);
  auto *buffer = static_cast<attn_halide_buffer *>(arguments[0]);
  *reinterpret_cast<int64_t *>(buffer->host) = 42;
  return 0;
}

int last(void **arguments) {
  auto *intermediate = static_cast<attn_halide_buffer *>(arguments[1]);
  mostThreads.push_back(attn_most_threads);
  calls.push_back("last " + describe(arguments[0]) + " " +
                  std::to_string(*reinterpret_cast<int64_t *>(intermediate->host)));
  return 0;
}

int readsTheLast(void **arguments) {
  auto *buffer = static_cast<const attn_halide_buffer *>(arguments[0]);
  calls.push_back(describe(buffer) + " " + std::to_string(reinterpret_cast<const float *>(buffer->host)[5]));
  return 0;
}

int fails(void **) { return ATTN_HALIDE_OUT_OF_MEMORY; }

/// Two steps with an i64 tensor [M, 1000000000 * N − 999999996] between them; the first has a variant for M <= 3.
class Steps : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_NE(signature, nullptr);
    calls.clear();
    mostThreads.clear();
  }

  int run(int64_t rows, int64_t columns) {
    TestTensor x("f32", {rows, columns}), y("f32", {rows, columns});
    return run(x.tensor, y.tensor);
  }

  int run(const DLTensor &x, const DLTensor &y) {
    attn_signature table = signature->get();
    table.program_count = programs;
    table.programs = &program;
    table.targets = "a machine";
    const DLTensor *tensors[] = {&x, &y};
    return attn_invoke(&table, tensors);
  }

  std::unique_ptr<NativeSignature> signature = signatureOf(stepsText, nullptr);
  // Arguments are numbered: 0 x, 1 M, 2 N, 3 y, 4 the intermediate.
  const attn_instruction rows[1] = {{ATTN_PUSH_SIZE, 0}};
  const attn_instruction columns[5] = {{ATTN_PUSH_SIZE, 1},
                                       {ATTN_PUSH_CONSTANT, 1000000000},
                                       {ATTN_MUL, 0},
                                       {ATTN_PUSH_CONSTANT, 999999996},
                                       {ATTN_SUB, 0}};
  const attn_expression shape[2] = {{"M", 1, rows}, {"1000000000 * N - 999999996", 5, columns}};
  const attn_intermediate intermediate = {{"middle", kDLInt, 64, 2, shape, 0, 0}, 0, 1};
  const attn_instruction twice[3] = {{ATTN_PUSH_SIZE, 0}, {ATTN_PUSH_CONSTANT, 2}, {ATTN_MUL, 0}};
  const attn_limit limit = {{"M * 2", 3, twice}, 6};
  const int64_t firstArguments[1] = {4}, lastArguments[2] = {3, 4};
  attn_variant first[2] = {{&limit, 1, firstArguments, few}, {nullptr, 1, firstArguments, many}};
  attn_variant second = {nullptr, 2, lastArguments, last};
  attn_step steps[2] = {{{}, first}, {{}, &second}};
  attn_program program = {1, &intermediate, 2,       steps,   0, nullptr, 0,      nullptr,
                          0, nullptr,       nullptr, nullptr, 0, nullptr, nullptr};
  int programs = 1;
};

} // namespace

TEST_F(Steps, RunInOrderWithWhatLiesBetweenThem) {
  EXPECT_EQ(run(5, 1), ATTN_OK) << attn_last_error();
  EXPECT_EQ(calls, (std::vector<std::string>{"many [5*4, 4*1]", "last [5*1, 1*1] 42"}));
}

TEST_F(Steps, TakeTheVariantForTheSizes) {
  EXPECT_EQ(run(3, 1), ATTN_OK);
  EXPECT_EQ(run(4, 1), ATTN_OK);
  ASSERT_EQ(calls.size(), 4u);
  EXPECT_EQ(calls[0], "few [3*4, 4*1]");
  EXPECT_EQ(calls[2], "many [4*4, 4*1]");
}

TEST_F(Steps, WakeAsManyThreadsAsTheirWorkIsWorth) {
  const attn_instruction code[3] = {{ATTN_PUSH_SIZE, 0}, {ATTN_PUSH_CONSTANT, ATTN_THREAD_WORK / 2}, {ATTN_MUL, 0}};
  steps[0].work = {"M * 131072", 3, code};
  EXPECT_EQ(run(5, 1), ATTN_OK);
  EXPECT_EQ(mostThreads, (std::vector<int>{3, 0}));
}

/// The tensor has room for one row all the same, in the place of all.
TEST_F(Steps, ThatNobodyReadsDoNotRun) {
  first[0].function = nullptr;
  second.function = [](void **arguments) {
    calls.push_back(describe(arguments[1]));
    auto *row = reinterpret_cast<int64_t *>(static_cast<attn_halide_buffer *>(arguments[1])->host);
    row[0] = row[3] = 1;
    return 0;
  };
  EXPECT_EQ(run(3, 1), ATTN_OK) << attn_last_error();
  EXPECT_EQ(calls, (std::vector<std::string>{"[3*0, 4*1]"}));
}

TEST_F(Steps, SayWhatIsTooLarge) {
  EXPECT_EQ(run(4, 2), ATTN_ERROR_SIZE);
  EXPECT_STREQ(attn_last_error(), "steps: middle would have more than 2147483647 elements");
  EXPECT_EQ(run(4, 3), ATTN_ERROR_SIZE);
  EXPECT_STREQ(attn_last_error(),
               "steps: dimension 1 (1000000000 * N - 999999996) of middle would be negative or too large");
  EXPECT_TRUE(calls.empty());
}

TEST_F(Steps, EndWithTheFirstThatFails) {
  first[1].function = fails;
  EXPECT_EQ(run(4, 1), ATTN_ERROR_MEMORY);
  EXPECT_STREQ(attn_last_error(), "steps: out of memory");
  EXPECT_TRUE(calls.empty());
}

TEST_F(Steps, HaveTheErrorOfHalideWhereItHasNoText) {
  first[1].function = [](void **) { return -3; };
  EXPECT_EQ(run(4, 1), ATTN_ERROR_KERNEL);
  EXPECT_STREQ(attn_last_error(), "steps: the kernel failed with Halide's error -3");
}

TEST_F(Steps, SayForWhichTensorThereIsNoMemory) {
  const attn_instruction many[] = {{ATTN_PUSH_CONSTANT, 1 << 28}};
  const attn_expression large[] = {{"L", 1, many}};
  const attn_intermediate middle = {{"middle", kDLInt, 64, 1, large, 0, 0}, 0, 1};
  program.intermediates = &middle;
  LittleMemory little;
  EXPECT_EQ(run(4, 1), ATTN_ERROR_MEMORY);
  EXPECT_STREQ(attn_last_error(), "steps: no memory for the 268435456 elements of middle");
  EXPECT_TRUE(calls.empty());
}

TEST_F(Steps, NeedAProcessorThatHasTheirInstructions) {
  program.can_use = [](int, const uint64_t *) { return 0; };
  EXPECT_EQ(run(4, 1), ATTN_ERROR_KERNEL);
  EXPECT_STREQ(attn_last_error(),
               "steps: this processor lacks instructions that the kernel was compiled for: a machine");
  EXPECT_TRUE(calls.empty());
}

/// An empty intermediate looks as if each empty dimension had one element, and all rows lie in one place.
TEST_F(Steps, EmptyIntermediatesHaveOneRow) {
  const attn_instruction nothing[] = {{ATTN_PUSH_CONSTANT, 0}}, large[] = {{ATTN_PUSH_CONSTANT, 1 << 30}};
  const attn_expression emptyShape[] = {{"0", 1, nothing}, {"L", 1, large}, {"M", 1, rows}};
  const attn_intermediate empty = {{"middle", kDLInt, 64, 3, emptyShape, 0, 0}, 0, 1};
  program.intermediates = &empty;
  EXPECT_EQ(run(4, 1), ATTN_OK) << attn_last_error();
  EXPECT_EQ(calls[0], "many [1*0, 1073741824*0, 4*1]");
}

/// Kernels count elements in 32 bits. What spans more is copied, and what has more is too large.
TEST_F(Steps, GetACopyOfWhatSpansTooMuch) {
  const int64_t firstInput[] = {0};
  const attn_variant reader = {nullptr, 1, firstInput, readsTheLast};
  const attn_step only = {{}, &reader};
  program = {0, nullptr, 1, &only, 0, nullptr, 0, nullptr, 0, nullptr, nullptr, nullptr, 0, nullptr, nullptr};
  TestTensor x("f32", {2, 3}), y("f32", {2, 3});
  x.strides[0] = int64_t(1) << 30;
  size_t bytes = (x.strides[0] + 3) * sizeof(float);
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  x.tensor.data = memory;
  static_cast<float *>(memory)[x.strides[0] + 2] = 7;
  EXPECT_EQ(run(x.tensor, y.tensor), ATTN_OK) << attn_last_error();
  EXPECT_EQ(calls, std::vector<std::string>{"[2*3, 3*1] 7.000000"});
  munmap(memory, bytes);
}

/// Tensors [2^16, columns] without memory of their own: nothing is read or written there.
struct LargeTensors {
  explicit LargeTensors(int64_t columns) : shape{1 << 16, columns} {
    for (DLTensor *tensor : {&x.tensor, &y.tensor}) {
      tensor->shape = shape;
      tensor->strides = nullptr;
    }
    y.tensor.data = static_cast<char *>(x.tensor.data) + (int64_t(1) << 40);
  }

  int64_t shape[2];
  TestTensor x{"f32", {1, 1}}, y{"f32", {1, 1}};
};

TEST_F(Steps, DoNotRunOnWhatHasTooManyElements) {
  LargeTensors large(1 << 16);
  EXPECT_EQ(run(large.x.tensor, large.y.tensor), ATTN_ERROR_SIZE);
  EXPECT_STREQ(attn_last_error(), "x: has more than 2147483647 elements");
  EXPECT_TRUE(calls.empty());
}

TEST_F(Steps, SayForWhichCopyThereIsNoMemory) {
  LargeTensors large(1 << 12);
  int64_t strides[] = {0, 0};
  large.x.tensor.strides = strides; // not 1 in the last dimension
  LittleMemory little;
  EXPECT_EQ(run(large.x.tensor, large.y.tensor), ATTN_ERROR_MEMORY);
  EXPECT_STREQ(attn_last_error(), "x: no memory for a copy of 268435456 elements");
  EXPECT_TRUE(calls.empty());
}

/// A tensor on a GPU is not copied.
TEST_F(Steps, NeedTheElementsOfATensorOnAGpuNearEachOther) {
  attn_device gpu = {};
  gpu.type = kDLCUDA;
  gpu.symbol = [](void *, const char *) -> void * { return &calls; };
  gpu.capability = [](void *, int *, int *) { return 0; };
  program.device = &gpu;
  TestTensor x("f32", {2, 3}), y("f32", {2, 3});
  x.tensor.device.device_type = y.tensor.device.device_type = kDLCUDA;
  x.strides[0] = int64_t(1) << 31;
  y.tensor.data = static_cast<char *>(x.tensor.data) + (int64_t(1) << 40);
  EXPECT_EQ(run(x.tensor, y.tensor), ATTN_ERROR_SIZE);
  EXPECT_STREQ(attn_last_error(), "x: its elements are more than 2147483647 apart");
  EXPECT_TRUE(calls.empty());
}
