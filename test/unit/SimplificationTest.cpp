//===- SimplificationTest.cpp - The passes keep the numbers ---------------===//
//
// Every program of examples/ and some that stress the passes, run by the reference interpreter before and after.
//
//===----------------------------------------------------------------------===//

#include "ReferenceFixture.h"

#include "attn/Language/Language.h"
#include "attn/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cmath>

using attn::KernelOp;
using attn::ReferenceTensor;

namespace {
class Simplification : public ReferenceFixture {
protected:
  Simplification() { attn::collectRewrites(context, rewrites); }

  std::vector<attn::Rewrite> rewrites;

  static int64_t sizeOf(llvm::StringRef name) {
    return llvm::StringSwitch<int64_t>(name).Case("B", 2).Case("G", 2).Case("S", 2).Case("H", 4).Case("N", 5).Default(
        3);
  }

  /// Numbers for every parameter: floats up to `magnitude`, integers from 0 to 4, bools mostly true, scalars their
  /// default.
  static std::vector<ReferenceTensor> inputsOf(KernelOp kernel, double magnitude) {
    llvm::StringMap<int64_t> sizes;
    for (mlir::StringAttr name : kernel.getSizeNames())
      sizes[name.getValue()] = sizeOf(name.getValue());
    std::vector<ReferenceTensor> inputs;
    for (unsigned index = 0; index < kernel.getParameters().size(); ++index) {
      attn::AttnTensorType type = kernel.getParameterType(index);
      ReferenceTensor input;
      int64_t count = 1;
      for (attn::SizeAttr size : type.getShape()) {
        input.shape.push_back(*size.evaluate(sizes));
        count *= input.shape.back();
      }
      input.values = numbers(count, index + 1);
      if (!mlir::isa<mlir::FloatType>(type.getElementType()))
        for (double &value : input.values)
          value = type.getElementType().isInteger(1) ? value > -0.7 : std::floor((value + 1) * 2.4);
      else
        for (double &value : input.values)
          value *= magnitude;
      if (auto value = mlir::dyn_cast_or_null<mlir::FloatAttr>(kernel.getDefault(index)))
        input.values = {value.getValueAsDouble()};
      else if (auto value = mlir::dyn_cast_or_null<mlir::IntegerAttr>(kernel.getDefault(index)))
        input.values = {static_cast<double>(value.getInt())};
      inputs.push_back(std::move(input));
    }
    return inputs;
  }

  /// Compiles `source`, checks that its kernels compute the same before and after, and leaves them simplified in
  /// `module`.
  void check(std::unique_ptr<llvm::MemoryBuffer> source, double magnitude) {
    llvm::SourceMgr sources;
    sources.AddNewSourceBuffer(std::move(source), llvm::SMLoc());
    std::string errors;
    llvm::raw_string_ostream stream(errors);
    module = attn::parseSource(sources, context, {}, stream);
    ASSERT_TRUE(module) << errors;
    auto run = [&] {
      std::vector<std::vector<ReferenceTensor>> results;
      for (KernelOp kernel : module->getOps<KernelOp>()) {
        llvm::Expected<std::vector<ReferenceTensor>> outputs = attn::runReference(kernel, inputsOf(kernel, magnitude));
        EXPECT_TRUE(static_cast<bool>(outputs)) << llvm::toString(outputs.takeError());
        if (outputs)
          results.push_back(*outputs);
      }
      return results;
    };
    auto before = run();
    mlir::PassManager manager(&context);
    attn::buildSimplification(manager);
    ASSERT_TRUE(mlir::succeeded(manager.run(*module)));
    auto after = run();
    ASSERT_EQ(before.size(), after.size());
    for (size_t kernel = 0; kernel < before.size(); ++kernel) {
      ASSERT_EQ(before[kernel].size(), after[kernel].size());
      for (size_t output = 0; output < before[kernel].size(); ++output) {
        EXPECT_EQ(before[kernel][output].shape, after[kernel][output].shape);
        expectSame(after[kernel][output], before[kernel][output]);
      }
    }
  }

  /// Both are computed in double, so they differ by little, in proportion to their row. What is infinite or NaN as the
  /// formula is written (0 / 0 in performer, where all features underflow) stays so.
  static void expectSame(const ReferenceTensor &found, const ReferenceTensor &expected) {
    ASSERT_EQ(found.values.size(), expected.values.size());
    size_t width = std::max<size_t>(1, expected.shape.empty() ? 1 : expected.shape.back());
    for (size_t start = 0; start < expected.values.size(); start += width) {
      double scale = 0;
      for (size_t i = start; i < start + width; ++i)
        if (std::isfinite(expected.values[i]))
          scale = std::max(scale, std::abs(expected.values[i]));
      for (size_t i = start; i < start + width; ++i) {
        double a = found.values[i], b = expected.values[i];
        if (!std::isfinite(a) || !std::isfinite(b))
          EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << a << " for " << b << " at " << i;
        else
          EXPECT_NEAR(a, b, 1e-9 * scale) << "at " << i;
      }
    }
  }

  void check(llvm::StringRef source, double magnitude = 1) {
    check(llvm::MemoryBuffer::getMemBufferCopy(source, "test.attn"), magnitude);
  }

  /// Whether some rewrite says `name: text…`.
  bool mentions(llvm::StringRef text) {
    return llvm::any_of(rewrites, [&](const attn::Rewrite &rewrite) {
      return llvm::StringRef(rewrite.name + ": " + rewrite.text).starts_with(text);
    });
  }

  template <typename Op> int count() {
    int found = 0;
    module->walk([&](Op) { ++found; });
    return found;
  }
};
} // namespace

TEST_F(Simplification, Examples) {
  std::error_code error;
  int files = 0;
  for (llvm::sys::fs::directory_iterator file(ATTN_EXAMPLES, error), end; file != end && !error;
       file.increment(error)) {
    if (!llvm::StringRef(file->path()).ends_with(".attn"))
      continue;
    SCOPED_TRACE(file->path());
    auto buffer = llvm::MemoryBuffer::getFile(file->path());
    ASSERT_TRUE(static_cast<bool>(buffer));
    llvm::StringRef text = (*buffer)->getBuffer();
    for (double magnitude : {1.0, 1e-20, 100.0, 1e4})
      check(text, magnitude);
    ++files;
  }
  EXPECT_FALSE(error);
  EXPECT_GE(files, 10);
}

TEST_F(Simplification, EverythingInOneStatement) {
  check(R"(
attention f(q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, E], bias: f32[E], valid: i32[B]) {
  out[b, m, e] = sum[n](softmax[n](sum[d](q[b, m, d] * k[b, n, d]) where n < valid[b]) * v[b, n, e]) / 3.0 + bias[e]
  return out
})");
  EXPECT_EQ(count<attn::SoftmaxOp>(), 1);
  EXPECT_EQ(count<attn::WeightedSumOp>(), 1);
}

TEST_F(Simplification, KeyIsNotTheLastIndex) {
  check(R"(
attention f(q: f32[M, D], k: f32[N, D], v: f32[N, E]) {
  weight[n, m] = softmax[n](sum[d](q[m, d] * k[n, d]))
  out[m, e] = sum[n](weight[n, m] * v[n, e])
  return out, weight
})");
  EXPECT_EQ(count<attn::WeightedSumOp>(), 1);
}

TEST_F(Simplification, TwoSoftmaxes) {
  check(R"(
attention f(q: f32[B, M, D], k: f32[B, N, D], r: f32[B, N, D], v: f32[B, N, E], lam: f32 = 0.5) {
  first[b, m, n] = softmax[n](sum[d](q[b, m, d] * k[b, n, d]))
  second[b, m, n] = softmax[n](sum[d](q[b, m, d] * r[b, n, d]))
  out[b, m, e] = sum[n]((first[b, m, n] - lam * second[b, m, n]) * v[b, n, e])
  return out
})");
  EXPECT_EQ(count<attn::SoftmaxOp>(), 2);
  EXPECT_EQ(count<attn::WeightedSumOp>(), 2);
}

TEST_F(Simplification, LocalWindowWithGaussian) {
  check(R"(
attention f(q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, E], centre: f32[B, M]) {
  weight[b, m, n] = softmax[n](sum[d](q[b, m, d] * k[b, n, d]) where abs(n - 3 * centre[b, m]) <= 2)
  near[b, m, n] = exp(-0.5 * (n - 3 * centre[b, m]) ** 2)
  out[b, m, e] = sum[n](weight[b, m, n] * near[b, m, n] * v[b, n, e])
  return out
})");
  EXPECT_EQ(count<attn::WeightedSumOp>(), 1);
  EXPECT_EQ(count<attn::TensorOp>(), 0);
}

TEST_F(Simplification, TwoNamesForOneSoftmax) {
  check(R"(
attention f(x: f32[M, N], v: f32[N, E]) {
  first[m, n] = softmax[n](x[m, n])
  second[m, n] = softmax[n](x[m, n])
  out[m, e] = sum[n](second[m, n] * v[n, e])
  return first, second, out
})");
  EXPECT_EQ(count<attn::SoftmaxOp>(), 1);
}

TEST_F(Simplification, OneNumberForEachKey) {
  check(R"(
attention f(q: f32[B, M, D], k: f32[B, N, D], y: f32[B, N]) {
  weight[b, m, n] = softmax[n](sum[d](q[b, m, d] * k[b, n, d]))
  out[b, m] = sum[n](weight[b, m, n] * y[b, n])
  return out
})");
}

TEST_F(Simplification, ScaleGoesToTheQuery) {
  check(R"(
attention f(q: f32[B, M, D], k: f32[B, N, D], bias: f32[B, N], v: f32[B, N, E], width: f32 = 0.25) {
  weight[b, m, n] = softmax[n](-(2.0 * sum[d](q[b, m, d] * k[b, n, d]) - bias[b, n]) / 8.0 / width / sqrt(D))
  out[b, m, e] = sum[n](weight[b, m, n] * v[b, n, e])
  return out
})");
  EXPECT_TRUE(mentions("fold scale"));
}

static const char *const functions = R"(
attention f(a: f32[B, M, U], b: f32[B, N, U], c: f32[U], w: f32[U], v: f32[B, N, E]) {
  energy[i, m, n] = sum[u](-w[u] * tanh(a[i, m, u] - (c[u] - b[i, n, u])) / 2.0)
  gate[i, m, n] = sum[u](sigmoid(a[i, m, u] + b[i, n, u]) * w[u])
  power[i, m, n] = sum[u](exp(b[i, n, u] - a[i, m, u]))
  weight[i, m, n] = softmax[n](energy[i, m, n] + gate[i, m, n] - log(1.0 + power[i, m, n]))
  out[i, m, e] = sum[n](weight[i, m, n] * v[i, n, e])
  return out, weight
})";

TEST_F(Simplification, FunctionsOfSums) {
  check(functions);
  for (const char *text : {"separate: tanh", "separate: sigmoid", "separate: exp"})
    EXPECT_TRUE(mentions(text)) << text;
}

TEST_F(Simplification, FunctionsOfSumsOutOfRange) {
  // Beyond the range of the factors, where parts are large and their sum may be small.
  for (double magnitude : {1e-30, 39.0, 41.0, 300.0})
    check(functions, magnitude);
}

static const char *const distances = R"(
attention f(q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, E], width: f32 = 1.5) {
  score[b, m, n] = -0.5 * sum[d]((q[b, m, d] - k[b, n, d]) ** 2) / width ** 2
  weight[b, m, n] = softmax[n](score[b, m, n])
  lse[b, m] = logsumexp[n](score[b, m, n])
  out[b, m, e] = sum[n](weight[b, m, n] * v[b, n, e])
  return out, lse
})";

TEST_F(Simplification, Distances) {
  for (double magnitude : {1e-30, 1.0, 10.0, 20.0, 1e4})
    check(distances, magnitude);
  EXPECT_TRUE(mentions("expand distances"));
  EXPECT_TRUE(mentions("shift invariance"));
}

TEST_F(Simplification, WeightsOfDistancesWithoutSoftmax) {
  check(R"(
attention f(q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, E]) {
  out[b, m, e] = sum[n](exp(-sum[d]((q[b, m, d] - k[b, n, d]) ** 2)) * v[b, n, e])
  return out
})");
  EXPECT_TRUE(mentions("expand distances"));
}

TEST_F(Simplification, CosineOfNormalisedRows) {
  check(R"(
attention f(q: f32[B, M, D], k: f32[B, N, D], v: f32[B, N, E]) {
  score[b, m, n] = sum[d](q[b, m, d] * rsqrt(sum[i](q[b, m, i] ** 2)) * k[b, n, d] * rsqrt(sum[i](k[b, n, i] ** 2)))
  weight[b, m, n] = softmax[n](score[b, m, n] * 10.0)
  out[b, m, e] = sum[n](weight[b, m, n] * v[b, n, e])
  return out
})");
  EXPECT_TRUE(mentions("hoist"));
}

TEST_F(Simplification, ShiftWithSinkOrInfinityStays) {
  check(R"(
attention f(x: f32[M, N], bias: f32[M], v: f32[N, E], sink: f32 = 0.5) {
  weight[m, n] = softmax[n](x[m, n] + f32(m), sink = sink)
  other[m, n] = softmax[n](x[m, n] + bias[m])
  out[m, e] = sum[n]((weight[m, n] + other[m, n]) * v[n, e])
  return out
})");
  EXPECT_FALSE(mentions("shift invariance"));
}

TEST_F(Simplification, ShiftOfMaskedRowsAndLogSumExp) {
  check(R"(
attention f(x: f32[B, M, N], age: i32[M], v: f32[B, N, E], valid: i32[B]) {
  weight[b, m, n] = softmax[n](0.5 * f32(age[m]) - x[b, m, n] where n + 2 < valid[b])
  lse[b, m] = logsumexp[n](0.5 * f32(age[m]) - x[b, m, n] where n + 2 < valid[b])
  out[b, m, e] = sum[n](weight[b, m, n] * v[b, n, e])
  return out, lse
})",
        1e4);
  EXPECT_TRUE(mentions("shift invariance"));
}
