//===- ReferenceTest.cpp - The interpreter against loops written by hand --===//

#include "ReferenceFixture.h"

using attn::ReferenceTensor;

TEST_F(ReferenceFixture, MatrixProduct) {
  int64_t rows = 37, inner = 5, columns = 41; // more than 1024 elements, so that threads share them
  ReferenceTensor x{{rows, inner}, numbers(rows * inner)}, y{{inner, columns}, numbers(inner * columns, 2)};
  std::vector<double> expected;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < inner; ++k)
        sum += x.values[i * inner + k] * y.values[k * columns + j];
      expected.push_back(sum);
    }
  std::vector<ReferenceTensor> outputs = runAll(R"(
    attn.kernel @bmm(%x: !attn.tensor<[I, K], f32>, %y: !attn.tensor<[K, J], f32>) {
      %out = attn.tensor "out"(%i: I, %j: J) : f32 {
        %s = attn.reduce sum(%k: K) : f32 {
          %a = attn.read %x[%i, %k] : !attn.tensor<[I, K], f32>
          %b = attn.read %y[%k, %j] : !attn.tensor<[K, J], f32>
          %p = arith.mulf %a, %b : f32
          attn.yield %p : f32
        }
        attn.yield %s : f32
      }
      attn.return %out : !attn.tensor<[I, J], f32> as f32
    })",
                                                {x, y});
  EXPECT_EQ(outputs[0].shape, (std::vector<int64_t>{rows, columns}));
  EXPECT_EQ(outputs[0].values, expected);
}

static const char *const masked = R"(
  attn.kernel @masked(%x: !attn.tensor<[M, N], f32>, %valid: !attn.tensor<[M], i32>) {
    %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
      %w = attn.reduce softmax(%j: N) at (%n) : f32 {
        %a = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
        attn.yield %a : f32
      } where {
        %l = attn.read %valid[%m] : !attn.tensor<[M], i32>
        %c = arith.cmpi slt, %j, %l : i64
        attn.yield %c : i1
      }
      attn.yield %w : f32
    }
    %lse = attn.tensor "lse"(%m: M) : f32 {
      %l = attn.reduce logsumexp(%j: N) : f32 {
        %a = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
        attn.yield %a : f32
      } where {
        %l = attn.read %valid[%m] : !attn.tensor<[M], i32>
        %c = arith.cmpi slt, %j, %l : i64
        attn.yield %c : i1
      }
      attn.yield %l : f32
    }
    attn.return %weight : !attn.tensor<[M, N], f32> as f32, %lse : !attn.tensor<[M], f32> as f32
  })";

TEST_F(ReferenceFixture, MaskedSoftmaxWithAnEmptyRow) {
  // log 1, log 3: weights 1/4 and 3/4. What is masked away may be anything.
  double one = 0, three = std::log(3.0), nan = std::nan("");
  std::vector<ReferenceTensor> outputs =
      runAll(masked, {{{3, 3}, {one, three, nan, 5, infinity, nan, one, one, one}}, {{3}, {2, 0, 3}}});
  expectNear(outputs[0].values, {0.25, 0.75, 0, 0, 0, 0, 1. / 3, 1. / 3, 1. / 3});
  expectNear(outputs[1].values, {std::log(4.0), -infinity, std::log(3.0)});
}

TEST_F(ReferenceFixture, SoftmaxNeitherOverflowsNorHidesNaN) {
  std::vector<ReferenceTensor> outputs =
      runAll(masked, {{{3, 2}, {1e4, 1e4, -infinity, 0, 1, std::nan("")}}, {{3}, {2, 2, 2}}});
  expectNear(llvm::ArrayRef(outputs[0].values).take_front(4), {0.5, 0.5, 0, 1});
  expectNear(llvm::ArrayRef(outputs[1].values).take_front(2), {1e4 + std::log(2.0), 0});
  EXPECT_TRUE(std::isnan(outputs[0].values[4]) && std::isnan(outputs[0].values[5]) && std::isnan(outputs[1].values[2]));
}

// The same attention before and after raising: causal, scaled, with a sink.
static const char *const unraised = R"(
  attn.kernel @attention(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>,
                         %s: !attn.tensor<[], f32>) {
    %score = attn.tensor "score"(%m: M, %n: N) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
      %sink = attn.read %s[] : !attn.tensor<[], f32>
      %w = attn.reduce softmax(%j: N) at (%n) sink %sink : f32 {
        %a = attn.read %score[%m, %j] : !attn.tensor<[M, N], f32>
        attn.yield %a : f32
      } where {
        %c = arith.cmpi slt, %j, %m : i64
        attn.yield %c : i1
      }
      attn.yield %w : f32
    }
    %out = attn.tensor "out"(%m: M, %e: E) : f32 {
      %o = attn.reduce sum(%n: N) : f32 {
        %w = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
        %x = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
        %p = arith.mulf %w, %x : f32
        attn.yield %p : f32
      } where {
        %two = arith.constant 2 : i64
        %r = attn.mod %n, %two
        %zero = arith.constant 0 : i64
        %c = arith.cmpi eq, %r, %zero : i64
        attn.yield %c : i1
      }
      attn.yield %o : f32
    }
    attn.return %out : !attn.tensor<[M, E], f32> as f32, %weight : !attn.tensor<[M, N], f32> as f32
  })";

static const char *const raised = R"(
  attn.kernel @attention(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>,
                         %s: !attn.tensor<[], f32>) {
    %two = arith.constant 2 : i64
    %zero = arith.constant 0 : i64
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    %mask = attn.mask "mask"(%m: M, %n: N) : i1 {
      %c = arith.cmpi slt, %n, %m : i64
      attn.yield %c : i1
    }
    %sink = attn.tensor "sink"(%m: M) : f32 {
      %0 = attn.read %s[] : !attn.tensor<[], f32>
      attn.yield %0 : f32
    }
    %weight, %lse = attn.softmax "weight", "lse"(%score where %mask sink %sink) : !attn.tensor<[M, N], f32>
    %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
      %w = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %x = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      attn.yield %w, %x : f32, f32
    } where {
      %r = attn.mod %n, %two
      %c = arith.cmpi eq, %r, %zero : i64
      attn.yield %c : i1
    }
    attn.return %out : !attn.tensor<[M, E], f32> as f32, %weight : !attn.tensor<[M, N], f32> as f32,
                %lse : !attn.tensor<[M], f32> as f32
  })";

TEST_F(ReferenceFixture, AttentionRaisedAndNot) {
  int64_t queries = 5, keys = 7, width = 3, values = 2;
  double sink = 0.3;
  std::vector<ReferenceTensor> inputs = {{{queries, width}, numbers(queries * width)},
                                         {{keys, width}, numbers(keys * width, 2)},
                                         {{keys, values}, numbers(keys * values, 3)},
                                         {{}, {sink}}};
  std::vector<double> weight(queries * keys), out(queries * values), lse;
  for (int64_t m = 0; m < queries; ++m) {
    double denominator = std::exp(sink);
    for (int64_t n = 0; n < std::min(m, keys); ++n) {
      double dot = 0;
      for (int64_t d = 0; d < width; ++d)
        dot += inputs[0].values[m * width + d] * inputs[1].values[n * width + d];
      denominator += weight[m * keys + n] = std::exp(dot);
    }
    for (int64_t n = 0; n < keys; ++n)
      weight[m * keys + n] /= denominator;
    for (int64_t n = 0; n < keys; n += 2)
      for (int64_t e = 0; e < values; ++e)
        out[m * values + e] += weight[m * keys + n] * inputs[2].values[n * values + e];
    lse.push_back(std::log(denominator)); // query 0 sees no key, only the sink
  }
  std::vector<ReferenceTensor> before = runAll(unraised, inputs), after = runAll(raised, inputs);
  expectNear(before[0].values, out);
  expectNear(before[1].values, weight);
  expectNear(after[0].values, out);
  expectNear(after[1].values, weight);
  expectNear(after[2].values, lse);
}

TEST_F(ReferenceFixture, DivisionFloorsAndZeroGivesZero) {
  std::vector<ReferenceTensor> outputs = runAll(R"(
    attn.kernel @division(%a: !attn.tensor<[N], i64>, %b: !attn.tensor<[N], i64>) {
      %quotient = attn.tensor "quotient"(%n: N) : i64 {
        %x = attn.read %a[%n] : !attn.tensor<[N], i64>
        %y = attn.read %b[%n] : !attn.tensor<[N], i64>
        %0 = attn.floordiv %x, %y
        attn.yield %0 : i64
      }
      %remainder = attn.tensor "remainder"(%n: N) : i64 {
        %x = attn.read %a[%n] : !attn.tensor<[N], i64>
        %y = attn.read %b[%n] : !attn.tensor<[N], i64>
        %0 = attn.mod %x, %y
        attn.yield %0 : i64
      }
      attn.return %quotient : !attn.tensor<[N], i64> as i64, %remainder : !attn.tensor<[N], i64> as i64
    })",
                                                {{{7}, {7, -7, 7, -7, 6, 5, -6}}, {{7}, {2, 2, -2, -2, -3, 0, -1}}});
  EXPECT_EQ(outputs[0].values, (std::vector<double>{3, -4, -4, 3, -2, 0, 6}));
  EXPECT_EQ(outputs[1].values, (std::vector<double>{1, 1, -1, -1, 0, 0, 0}));
}

TEST_F(ReferenceFixture, IntegersAreExactAndWrap) {
  // 3037000499² = 0xb504f333² needs more than the 53 bits of a double; i8 and u8 tensors wrap when they are stored.
  std::vector<ReferenceTensor> outputs = runAll(R"(
    attn.kernel @exact(%a: !attn.tensor<[N], i64>) {
      %low = attn.tensor "low"(%n: N) : i64 {
        %x = attn.read %a[%n] : !attn.tensor<[N], i64>
        %square = arith.muli %x, %x : i64
        %modulus = arith.constant 1000003 : i64
        %0 = attn.mod %square, %modulus
        attn.yield %0 : i64
      }
      %signed = attn.tensor "signed"(%n: N) : i8 {
        %x = attn.read %a[%n] : !attn.tensor<[N], i64>
        attn.yield %x : i64
      }
      %unsigned = attn.tensor "unsigned"(%n: N) : ui8 {
        %x = attn.read %a[%n] : !attn.tensor<[N], i64>
        attn.yield %x : i64
      }
      attn.return %low : !attn.tensor<[N], i64> as i64, %signed : !attn.tensor<[N], i8> as i8,
                  %unsigned : !attn.tensor<[N], ui8> as ui8
    })",
                                                {{{2}, {3037000499, 200}}});
  EXPECT_EQ(outputs[0].values, (std::vector<double>{(3037000499ll * 3037000499ll) % 1000003, 40000}));
  EXPECT_EQ(outputs[1].values, (std::vector<double>{51, -56}));
  EXPECT_EQ(outputs[2].values, (std::vector<double>{51, 200}));
}

TEST_F(ReferenceFixture, GathersAreClamped) {
  const char *gather = R"(
    attn.kernel @gather(%x: !attn.tensor<[N, D], f32>, %index: !attn.tensor<[M], i32>) {
      %out = attn.tensor "out"(%m: M, %d: D) : f32 {
        %i = attn.read %index[%m] : !attn.tensor<[M], i32>
        %0 = attn.read %x[%i, %d] : !attn.tensor<[N, D], f32>
        attn.yield %0 : f32
      }
      attn.return %out : !attn.tensor<[M, D], f32> as f32
    })";
  EXPECT_EQ(run(gather, {{{2, 2}, {1, 2, 3, 4}}, {{4}, {0, 1, 2, -5}}}), (std::vector<double>{1, 2, 3, 4, 3, 4, 1, 2}));
  EXPECT_EQ(run(gather, {{{0, 2}, {}}, {{1}, {0}}}), (std::vector<double>{0, 0})) << "nothing to read from";
}

TEST_F(ReferenceFixture, AnnotatedHalvesAreRounded) {
  std::vector<ReferenceTensor> outputs = runAll(R"(
    attn.kernel @halves(%x: !attn.tensor<[N], f32>) {
      %brain = attn.tensor "brain"(%n: N) : bf16 {
        %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
        attn.yield %0 : f32
      }
      %half = attn.tensor "half"(%n: N) : f16 {
        %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
        attn.yield %0 : f32
      }
      %single = attn.tensor "single"(%n: N) : f32 {
        %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
        attn.yield %0 : f32
      }
      attn.return %brain : !attn.tensor<[N], bf16> as f32, %half : !attn.tensor<[N], f16> as f32,
                  %single : !attn.tensor<[N], f32> as bf16
    })",
                                                {{{3}, {1 + 0x1p-8, 1 + 3 * 0x1p-8, 1e6}}});
  EXPECT_EQ(outputs[0].values, (std::vector<double>{1, 1 + 0x1p-6, 999424})) << "ties to even";
  EXPECT_EQ(outputs[1].values, (std::vector<double>{1 + 0x1p-8, 1 + 3 * 0x1p-8, infinity}));
  EXPECT_EQ(outputs[2].values, (std::vector<double>{1 + 0x1p-8, 1 + 3 * 0x1p-8, 1e6})) << "outputs stay as they are";
}

TEST_F(ReferenceFixture, Dropout) {
  const char *dropout = R"(
    attn.kernel @drop(%x: !attn.tensor<[N], f32>, %p: !attn.tensor<[], f32>, %seed: !attn.tensor<[], i64>) {
      %out = attn.tensor "out"(%n: N) : f32 {
        %a = attn.read %x[%n] : !attn.tensor<[N], f32>
        %b = attn.read %p[] : !attn.tensor<[], f32>
        %c = attn.read %seed[] : !attn.tensor<[], i64>
        %0 = attn.dropout %a, %b, %c, %n : f32
        attn.yield %0 : f32
      }
      attn.return %out : !attn.tensor<[N], f32> as f32
    })";
  ReferenceTensor x{{1000}, numbers(1000)};
  EXPECT_EQ(run(dropout, {x, {{}, {0}}, {{}, {7}}}), x.values);
  std::vector<double> halved = run(dropout, {x, {{}, {0.5}}, {{}, {0}}});
  EXPECT_EQ(halved[0], 0) << "0x6627e8d5 is below half of 2^32";
  for (size_t i = 0; i < halved.size(); ++i)
    EXPECT_TRUE(halved[i] == 0 || halved[i] == 2 * x.values[i]) << i;
  EXPECT_EQ(halved, run(dropout, {x, {{}, {0.5}}, {{}, {0}}}));
  EXPECT_NE(halved, run(dropout, {x, {{}, {0.5}}, {{}, {1}}}));
}
