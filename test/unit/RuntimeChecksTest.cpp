//===- RuntimeChecksTest.cpp - Wrong arguments and their messages ---------===//
//
// Each wrong call is a right one with one thing changed. It must be rejected with its code and text, the kernel must
// not run, and the outputs must keep their bytes.
//
//===----------------------------------------------------------------------===//

#include "RuntimeTest.h"

#include <fmt/format.h>
#include <functional>
#include <map>

using namespace attn;

static const char *const kernelText = R"(
attn.kernel @checked(%q: !attn.tensor<[B, M, D], f32>, %k: !attn.tensor<[B, N, D], f32>,
                     %w: !attn.tensor<[H * D, X + 2], f32>, %valid: !attn.tensor<[B], i32>,
                     %keep: !attn.tensor<[N], i1>, %slope: !attn.tensor<[H], f64>, %half: !attn.tensor<[D - 1], bf16>,
                     %flat: !attn.tensor<[D * Y], i8>, %pair: !attn.tensor<[2], i64>,
                     %scale: !attn.tensor<[], f32> = 0.5 : f32, %seed: !attn.tensor<[], i64>) {
  %out = attn.tensor "out"(%b: B, %m: M, %h: H * D) : f32 {
    %0 = attn.read %scale[] : !attn.tensor<[], f32>
    attn.yield %0 : f32
  }
  %lse = attn.tensor "lse"(%b: B, %m: M) : f32 {
    %0 = attn.read %scale[] : !attn.tensor<[], f32>
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[B, M, H * D], f32> as f32, %lse : !attn.tensor<[B, M], f32> as f32
})";

static int runs = 0;
static int countRun(void **) {
  ++runs;
  return 0;
}

namespace {

/// A right call with B = 2, M = 3, D = 6, N = 4, H = 5, X = 7, Y = 2.
struct Call {
  TestTensor q{"f32", {2, 3, 6}}, k{"f32", {2, 4, 6}}, w{"f32", {30, 9}}, valid{"i32", {2}}, keep{"bool", {4}},
      slope{"f64", {5}}, half{"bf16", {5}}, flat{"i8", {12}}, pair{"i64", {2}}, scale{"f32", {}}, seed{"i64", {}},
      out{"f32", {2, 3, 30}, 100}, lse{"f32", {2, 3}, 100};
  std::map<std::string, TestTensor *> named = {{"q", &q},       {"k", &k},         {"w", &w},       {"valid", &valid},
                                               {"keep", &keep}, {"slope", &slope}, {"half", &half}, {"flat", &flat},
                                               {"pair", &pair}, {"scale", &scale}, {"seed", &seed}, {"out", &out},
                                               {"lse", &lse}};
  std::vector<const DLTensor *> tensors = {&q.tensor,     &k.tensor,    &w.tensor,    &valid.tensor, &keep.tensor,
                                           &slope.tensor, &half.tensor, &flat.tensor, &pair.tensor,  &scale.tensor,
                                           &seed.tensor,  &out.tensor,  &lse.tensor};
};

struct WrongCall {
  std::string what;
  std::function<void(Call &)> change;
  int code;
  std::string message;
};

class RuntimeChecks : public testing::Test {
protected:
  void SetUp() override { ASSERT_NE(signature, nullptr); }

  void expectRejected(const WrongCall &wrong) {
    SCOPED_TRACE(wrong.what);
    Call call;
    call.out.fillPattern();
    call.lse.fillPattern();
    wrong.change(call);
    runs = 0;
    EXPECT_EQ(attn_invoke(&signature->get(), call.tensors.data()), wrong.code);
    EXPECT_EQ(attn_last_error(), wrong.message);
    EXPECT_EQ(runs, 0);
    EXPECT_TRUE(call.out.hasPattern());
    EXPECT_TRUE(call.lse.hasPattern());
  }

  std::unique_ptr<NativeSignature> signature = signatureOf(kernelText, countRun);
};

} // namespace

TEST_F(RuntimeChecks, AcceptsTheRightCall) {
  Call call;
  runs = 0;
  EXPECT_EQ(attn_invoke(&signature->get(), call.tensors.data()), ATTN_OK) << attn_last_error();
  EXPECT_EQ(runs, 1);
  call.tensors[9] = nullptr; // scale has a default
  EXPECT_EQ(attn_invoke(&signature->get(), call.tensors.data()), ATTN_OK) << attn_last_error();
  EXPECT_EQ(runs, 2);
}

// What can be wrong with any tensor: 13 tensors, up to 10 faults each.
TEST_F(RuntimeChecks, RejectsEachTensorByItself) {
  std::vector<WrongCall> table;
  Call example;
  for (size_t i = 0; i < signature->getInterface().inputs.size() + signature->getInterface().outputs.size(); ++i) {
    size_t inputs = signature->getInterface().inputs.size();
    const TensorInterface &tensor =
        i < inputs ? signature->getInterface().inputs[i] : signature->getInterface().outputs[i - inputs];
    std::string name = tensor.name;
    int rank = tensor.shape.size();
    auto add = [&](const char *what, int code, const std::string &message, std::function<void(DLTensor &)> change) {
      table.push_back(
          {name + ": " + what, [=](Call &call) { change(call.named[name]->tensor); }, code, name + ": " + message});
    };
    if (!tensor.defaultValue)
      table.push_back({name + ": null", [i](Call &call) { call.tensors[i] = nullptr; }, ATTN_ERROR_NULL_TENSOR,
                       name + ": the tensor is NULL, and it has no default"});
    add("rank", ATTN_ERROR_RANK,
        rank ? fmt::format("rank is {}, but must be {}", rank + 1, rank)
             : "is a scalar, so its rank must be 0, but is 1",
        [=](DLTensor &t) { t.ndim = rank + 1; });
    add("device", ATTN_ERROR_DEVICE, "is on a device of type 2, but must be on the CPU (type 1)",
        [](DLTensor &t) { t.device.device_type = kDLCUDA; });
    add("code", ATTN_ERROR_DTYPE, "dtype is code 99 with 64 bits, but must be " + tensor.dtype,
        [](DLTensor &t) { t.dtype = {99, 64, 1}; });
    add("lanes", ATTN_ERROR_DTYPE, fmt::format("dtype is {0}x4, but must be {0}", tensor.dtype),
        [](DLTensor &t) { t.dtype.lanes = 4; });
    add("data", ATTN_ERROR_NULL_DATA, "the data is NULL, but the tensor has elements",
        [](DLTensor &t) { t.data = nullptr; });
    if (tensor.bits > 8)
      add("alignment", ATTN_ERROR_ALIGNMENT,
          fmt::format("the data must be aligned to {} bytes, but is 1 past one", tensor.bits / 8),
          [](DLTensor &t) { t.byte_offset = 1; });
    if (!rank)
      continue;
    add("shape", ATTN_ERROR_NULL_TENSOR, "the shape is NULL", [](DLTensor &t) { t.shape = nullptr; });
    add("negative", ATTN_ERROR_SIZE, fmt::format("dimension 0 ({}) is -1, which is negative", tensor.shape[0].text),
        [](DLTensor &t) { t.shape[0] = -1; });
    add("large", ATTN_ERROR_SIZE,
        fmt::format("dimension 0 ({}) is 4294967296, but can be at most 1073741824", tensor.shape[0].text),
        [](DLTensor &t) { t.shape[0] = int64_t(1) << 32; });
  }
  EXPECT_GE(table.size(), 110u);
  for (const WrongCall &wrong : table)
    expectRejected(wrong);
}

TEST_F(RuntimeChecks, RejectsDtypes) {
  auto dtype = [](const char *name, DLDataType dtype) {
    return [name = std::string(name), dtype](Call &call) { call.named[name]->tensor.dtype = dtype; };
  };
  for (const WrongCall &wrong : std::vector<WrongCall>{
           {"f64 for f32", dtype("q", dtypeOf("f64")), ATTN_ERROR_DTYPE, "q: dtype is f64, but must be f32"},
           {"f16 for bf16", dtype("half", dtypeOf("f16")), ATTN_ERROR_DTYPE, "half: dtype is f16, but must be bf16"},
           {"i64 for i32", dtype("valid", dtypeOf("i64")), ATTN_ERROR_DTYPE, "valid: dtype is i64, but must be i32"},
           {"u8 for bool", dtype("keep", dtypeOf("u8")), ATTN_ERROR_DTYPE, "keep: dtype is u8, but must be bool"},
           {"complex64 for f32", dtype("q", {5, 64, 1}), ATTN_ERROR_DTYPE,
            "q: dtype is complex64 (which no tensor can be), but must be f32"},
           {"a float of 8 bits", dtype("half", {10, 8, 1}), ATTN_ERROR_DTYPE,
            "half: dtype is float8_e4m3fn (which no tensor can be), but must be bf16"},
           {"u8 for i8", dtype("flat", dtypeOf("u8")), ATTN_ERROR_DTYPE, "flat: dtype is u8, but must be i8"},
           {"u64 for i64", dtype("pair", {kDLUInt, 64, 1}), ATTN_ERROR_DTYPE,
            "pair: dtype is u64 (which no tensor can be), but must be i64"},
           {"f64 for a scalar", dtype("scale", dtypeOf("f64")), ATTN_ERROR_DTYPE,
            "scale: dtype is f64, but must be f32"},
           {"no lanes", dtype("q", {kDLFloat, 32, 0}), ATTN_ERROR_DTYPE, "q: dtype is f32x0, but must be f32"},
           {"f64 for an output", dtype("lse", dtypeOf("f64")), ATTN_ERROR_DTYPE, "lse: dtype is f64, but must be f32"}})
    expectRejected(wrong);
}

TEST_F(RuntimeChecks, RejectsSizesThatDisagree) {
  auto extent = [](const char *name, int dimension, int64_t value) {
    return [name = std::string(name), dimension, value](Call &call) { call.named[name]->shape[dimension] = value; };
  };
  for (const WrongCall &wrong : std::vector<WrongCall>{
           {"batch of k", extent("k", 0, 1), ATTN_ERROR_SHAPE,
            "k: dimension 0 (B) is 1, but q: dimension 0 made B = 2"},
           {"depth of k", extent("k", 2, 5), ATTN_ERROR_SHAPE,
            "k: dimension 2 (D) is 5, but q: dimension 2 made D = 6"},
           {"broadcast is not implied", extent("valid", 0, 1), ATTN_ERROR_SHAPE,
            "valid: dimension 0 (B) is 1, but q: dimension 0 made B = 2"},
           {"keys of keep", extent("keep", 0, 3), ATTN_ERROR_SHAPE,
            "keep: dimension 0 (N) is 3, but k: dimension 1 made N = 4"},
           {"empty keep", extent("keep", 0, 0), ATTN_ERROR_SHAPE,
            "keep: dimension 0 (N) is 0, but k: dimension 1 made N = 4"},
           {"product", extent("w", 0, 29), ATTN_ERROR_SHAPE,
            "w: dimension 0 (H * D) is 29, but must be 30 (H = 5, D = 6)"},
           {"difference", extent("half", 0, 6), ATTN_ERROR_SHAPE,
            "half: dimension 0 (D - 1) is 6, but must be 5 (D = 6)"},
           {"constant", extent("pair", 0, 3), ATTN_ERROR_SHAPE, "pair: dimension 0 is 3, but must be 2"},
           {"not whole", extent("flat", 0, 13), ATTN_ERROR_SHAPE,
            "flat: dimension 0 (D * Y) is 13, which no whole Y gives"},
           {"negative X", extent("w", 1, 1), ATTN_ERROR_SHAPE, "w: dimension 1 (X + 2) is 1, which makes X = -1"},
           {"product of an output", extent("out", 2, 31), ATTN_ERROR_SHAPE,
            "out: dimension 2 (H * D) is 31, but must be 30 (H = 5, D = 6)"},
           {"queries of an output", extent("out", 1, 4), ATTN_ERROR_SHAPE,
            "out: dimension 1 (M) is 4, but q: dimension 1 made M = 3"},
           {"queries of lse", extent("lse", 1, 2), ATTN_ERROR_SHAPE,
            "lse: dimension 1 (M) is 2, but q: dimension 1 made M = 3"},
           {"swapped q and k", [](Call &call) { std::swap(call.tensors[0], call.tensors[1]); }, ATTN_ERROR_SHAPE,
            "keep: dimension 0 (N) is 4, but k: dimension 1 made N = 3"}})
    expectRejected(wrong);
}

static const char *const partText = R"(
attn.kernel @part(%x: !attn.tensor<[N], f32>, %w: !attn.tensor<[K], f32>) attributes {attn.checks = [
    {message = "index `k` leaves x", part = #attn.size<K + 1>, whole = #attn.size<N>},
    {message = "subscript 3 is outside x", part = #attn.size<4>, whole = #attn.size<N>},
    {message = "no number", part = #attn.size<K * N * N * N>, whole = #attn.size<N>}]} {
  %y = attn.tensor "y"(%k: K) : f32 {
    %0 = attn.read %x[%k] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[K], f32> as f32
})";

TEST(SizeChecks, PartsMustLieWithinTheirDimension) {
  std::unique_ptr<NativeSignature> signature = signatureOf(partText, countRun);
  ASSERT_NE(signature, nullptr);
  runs = 0;
  auto call = [&](int64_t n, int64_t k) {
    TestTensor x("f32", {1}), w("f32", {1}), y("f32", {1});
    x.shape = {n};
    w.shape = y.shape = {k};
    y.fillPattern();
    const DLTensor *tensors[] = {&x.tensor, &w.tensor, &y.tensor};
    int64_t shape = -1;
    int code = attn_invoke(&signature->get(), tensors);
    EXPECT_TRUE(y.hasPattern());
    EXPECT_EQ(attn_output_shapes(&signature->get(), tensors, &shape), code);
    return code ? fmt::format("{}: {}", code, attn_last_error()) : "accepted";
  };
  EXPECT_EQ(call(5, 5), "7: part: index `k` leaves x: the dimension is 5, but must be at least 6");
  EXPECT_EQ(call(3, 2), "7: part: subscript 3 is outside x: the dimension is 3, but must be at least 4");
  EXPECT_EQ(call(int64_t(1) << 30, 1000), "6: part: no number: the sizes cannot be computed");
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(call(4, 0), "accepted");
}

TEST_F(RuntimeChecks, RejectsWhatNoMemoryHolds) {
  int64_t large = int64_t(1) << 30;
  for (const WrongCall &wrong : std::vector<WrongCall>{
           {"elements",
            [=](Call &call) {
              call.q.shape = {large, large, large};
              call.q.tensor.strides = nullptr;
              call.q.tensor.shape = call.q.shape.data();
            },
            ATTN_ERROR_SIZE, "q: has more elements than memory can hold"},
           {"stride", [](Call &call) { call.q.strides[0] = INT64_MAX / 2; }, ATTN_ERROR_SIZE,
            "q: stride 4611686018427387903 of dimension 0 (B) reaches beyond memory"},
           {"most negative stride", [](Call &call) { call.q.strides[1] = INT64_MIN; }, ATTN_ERROR_SIZE,
            "q: stride -9223372036854775808 of dimension 1 (M) reaches beyond memory"},
           {"size beyond 2^30", [=](Call &call) { call.k.shape[1] = large + 1; }, ATTN_ERROR_SIZE,
            "k: dimension 1 (N) is 1073741825, but can be at most 1073741824"}})
    expectRejected(wrong);
}

TEST_F(RuntimeChecks, RejectsOverlaps) {
  for (const WrongCall &wrong : std::vector<WrongCall>{
           {"output in an input", [](Call &call) { call.w.tensor.data = call.out.tensor.data; }, ATTN_ERROR_OVERLAP,
            "out: the output shares memory with the input w"},
           {"output in the end of an input", [](Call &call) { call.w.tensor.data = call.out.data<float>() + 179; },
            ATTN_ERROR_OVERLAP, "out: the output shares memory with the input w"},
           {"output in a scalar", [](Call &call) { call.scale.tensor.data = call.lse.tensor.data; }, ATTN_ERROR_OVERLAP,
            "lse: the output shares memory with the input scale"},
           {"output in an output", [](Call &call) { call.lse.tensor.data = call.out.tensor.data; }, ATTN_ERROR_OVERLAP,
            "lse: the output shares memory with the output out"},
           {"backwards strides",
            [](Call &call) {
              call.q.tensor.data = call.out.data<float>() + 179 + 17;
              call.q.strides = {-18 / 2, -3, -1};
              call.q.tensor.strides = call.q.strides.data();
            },
            ATTN_ERROR_OVERLAP, "out: the output shares memory with the input q"},
           {"stride 0", [](Call &call) { call.out.strides[1] = 0; }, ATTN_ERROR_OVERLAP,
            "out: its strides put several elements of the output in one place"},
           {"rows that run into each other", [](Call &call) { call.lse.strides[0] = 2; }, ATTN_ERROR_OVERLAP,
            "lse: its strides put several elements of the output in one place"}})
    expectRejected(wrong);
}

TEST_F(RuntimeChecks, TouchingIsNotOverlapping) {
  Call call;
  call.w.tensor.data = call.out.data<float>() + 180; // right after the output
  call.w.shape = {30, 3};
  call.w.strides = {3, 1};
  EXPECT_EQ(attn_invoke(&signature->get(), call.tensors.data()), ATTN_OK) << attn_last_error();
}

TEST_F(RuntimeChecks, InputsMayShareMemory) {
  Call call;
  call.k.tensor.data = call.w.tensor.data;
  EXPECT_EQ(attn_invoke(&signature->get(), call.tensors.data()), ATTN_OK) << attn_last_error();
}

TEST_F(RuntimeChecks, StridesOfOneElementMeanNothing) {
  Call call;
  call.q.strides[0] = INT64_MIN;
  for (TestTensor *tensor : {&call.q, &call.k, &call.valid, &call.out, &call.lse})
    tensor->shape[0] = 1;
  EXPECT_EQ(attn_invoke(&signature->get(), call.tensors.data()), ATTN_OK) << attn_last_error();
}

TEST_F(RuntimeChecks, NothingRunsWhereAllOutputsAreEmpty) {
  Call call;
  call.q.shape[1] = call.out.shape[1] = call.lse.shape[1] = 0;
  call.q.tensor.data = call.out.tensor.data = call.lse.tensor.data = nullptr;
  runs = 0;
  EXPECT_EQ(attn_invoke(&signature->get(), call.tensors.data()), ATTN_OK) << attn_last_error();
  EXPECT_EQ(runs, 0);
}

TEST_F(RuntimeChecks, OutputShapesNeedInputsAlone) {
  Call call;
  std::vector<int64_t> shapes(5);
  EXPECT_EQ(attn_output_shapes(&signature->get(), call.tensors.data(), shapes.data()), ATTN_OK);
  EXPECT_EQ(shapes, (std::vector<int64_t>{2, 3, 30, 2, 3}));
  call.k.shape[2] = 7;
  EXPECT_EQ(attn_output_shapes(&signature->get(), call.tensors.data(), shapes.data()), ATTN_ERROR_SHAPE);
  EXPECT_STREQ(attn_last_error(), "k: dimension 2 (D) is 7, but q: dimension 2 made D = 6");
}
