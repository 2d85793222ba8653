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
  static int64_t sizeOf(llvm::StringRef name) {
    return llvm::StringSwitch<int64_t>(name).Case("B", 2).Case("G", 2).Case("S", 2).Case("H", 4).Case("N", 5).Default(
        3);
  }

  /// Numbers for every parameter: integers from 0 to 4, bools mostly true, scalars their default.
  static std::vector<ReferenceTensor> inputsOf(KernelOp kernel) {
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
  void check(std::unique_ptr<llvm::MemoryBuffer> source) {
    llvm::SourceMgr sources;
    sources.AddNewSourceBuffer(std::move(source), llvm::SMLoc());
    std::string errors;
    llvm::raw_string_ostream stream(errors);
    module = attn::parseSource(sources, context, {}, stream);
    ASSERT_TRUE(module) << errors;
    auto run = [&] {
      std::vector<std::vector<ReferenceTensor>> results;
      for (KernelOp kernel : module->getOps<KernelOp>()) {
        llvm::Expected<std::vector<ReferenceTensor>> outputs = attn::runReference(kernel, inputsOf(kernel));
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
        expectNear(after[kernel][output].values, before[kernel][output].values, 1e-9);
      }
    }
  }

  void check(llvm::StringRef source) { check(llvm::MemoryBuffer::getMemBufferCopy(source, "test.attn")); }

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
    check(std::move(*buffer));
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
  EXPECT_EQ(count<attn::WeightedSumOp>(), 1);
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
