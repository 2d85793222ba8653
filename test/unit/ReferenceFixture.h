//===- ReferenceFixture.h - Kernels from text for the tests -----*- C++ -*-===//

#ifndef ATTN_TEST_UNIT_REFERENCEFIXTURE_H
#define ATTN_TEST_UNIT_REFERENCEFIXTURE_H

#include "attn/Reference/Reference.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

#include <limits>

class ReferenceFixture : public testing::Test {
protected:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  ReferenceFixture() { context.loadDialect<attn::AttnDialect, mlir::arith::ArithDialect, mlir::math::MathDialect>(); }

  /// The first kernel of `text`.
  attn::KernelOp parse(llvm::StringRef text) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module) {
      ADD_FAILURE() << "the kernel does not parse";
      std::abort();
    }
    return *module->getOps<attn::KernelOp>().begin();
  }

  std::vector<attn::ReferenceTensor> runAll(llvm::StringRef text, llvm::ArrayRef<attn::ReferenceTensor> inputs) {
    llvm::Expected<std::vector<attn::ReferenceTensor>> outputs = attn::runReference(parse(text), inputs);
    if (outputs)
      return *outputs;
    ADD_FAILURE() << llvm::toString(outputs.takeError());
    return std::vector<attn::ReferenceTensor>(8);
  }

  /// The values of the first output.
  std::vector<double> run(llvm::StringRef text, llvm::ArrayRef<attn::ReferenceTensor> inputs) {
    return runAll(text, inputs).front().values;
  }

  std::string errorOf(llvm::StringRef text, llvm::ArrayRef<attn::ReferenceTensor> inputs) {
    llvm::Expected<std::vector<attn::ReferenceTensor>> outputs = attn::runReference(parse(text), inputs);
    return outputs ? "no error" : llvm::toString(outputs.takeError());
  }

  /// `count` numbers between −1 and 1, the same in every run.
  static std::vector<double> numbers(int64_t count, double seed = 1) {
    std::vector<double> result;
    for (int64_t i = 0; i < count; ++i)
      result.push_back(std::sin(seed * 12.9898 + static_cast<double>(i) * 78.233));
    return result;
  }

  static void expectNear(llvm::ArrayRef<double> found, llvm::ArrayRef<double> expected, double tolerance = 1e-12) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (expected[i] == found[i])
        continue; // infinities
      EXPECT_NEAR(found[i], expected[i], tolerance) << "at " << i;
    }
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

#endif // ATTN_TEST_UNIT_REFERENCEFIXTURE_H
