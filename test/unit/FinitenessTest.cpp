//===- FinitenessTest.cpp - Values that are never infinite or NaN ---------===//

#include "ReferenceFixture.h"

#include "attn/Analysis/Finiteness.h"

namespace {
class Finiteness : public ReferenceFixture {};
} // namespace

TEST_F(Finiteness, WhatParametersHoldMayBeInfinite) {
  parse(R"(
attn.kernel @f(%x: !attn.tensor<[N], f32>, %count: !attn.tensor<[N], i32>) {
  %bounded = attn.tensor "bounded"() : i1 {
    %limit = arith.constant 2.000000e+00 : f32
    %0 = attn.reduce max(%n: N) : f32 {
      %1 = attn.read %x[%n] : !attn.tensor<[N], f32>
      %2 = math.absf %1 : f32
      attn.yield %2 : f32
    }
    %3 = arith.cmpf ole, %0, %limit : f32
    attn.yield %3 : i1
  }
  %t = attn.tensor "t"(%n: N) : f32 {
    %flag = attn.read %bounded[] : !attn.tensor<[], i1>
    %one = arith.constant 1.000000e+00 : f32
    %infinity = arith.constant 0x7F800000 : f32
    %size = attn.size N
    %float = arith.sitofp %size : i64 to f32
    %root = math.sqrt %float : f32
    %x_n = attn.read %x[%n] : !attn.tensor<[N], f32>
    %count_n = attn.read %count[%n] : !attn.tensor<[N], i32>
    %number = arith.sitofp %count_n : i64 to f32
    %whole = arith.mulf %number, %root : f32
    %sum = arith.addf %whole, %one : f32
    %data = arith.addf %sum, %x_n : f32
    %endless = arith.addf %sum, %infinity : f32
    %quotient = arith.divf %one, %root : f32
    %a = arith.addf %data, %endless : f32
    %b = arith.addf %a, %quotient : f32
    %c = arith.select %flag, %b, %one : f32
    attn.yield %c : f32
  }
  attn.return %t : !attn.tensor<[N], f32> as f32
})");
  std::vector<mlir::Operation *> sums, quotients;
  mlir::Value flag;
  module->walk([&](mlir::Operation *op) {
    if (op->getName().getStringRef() == "arith.addf")
      sums.push_back(op);
    if (op->getName().getStringRef() == "arith.divf")
      quotients.push_back(op);
    if (op->getName().getStringRef() == "arith.select")
      flag = op->getOperand(0);
  });
  ASSERT_EQ(sums.size(), 5u);
  attn::TensorSet bounded = attn::finiteWhere(flag);
  EXPECT_EQ(bounded.size(), 1u);
  EXPECT_TRUE(attn::isFinite(sums[0]->getResult(0), {}));       // count · √N + 1
  EXPECT_FALSE(attn::isFinite(sums[1]->getResult(0), {}));      // … + x[n]
  EXPECT_TRUE(attn::isFinite(sums[1]->getResult(0), bounded));  // where all |x| ≤ 2
  EXPECT_FALSE(attn::isFinite(sums[2]->getResult(0), bounded)); // … + ∞
  EXPECT_FALSE(attn::isFinite(quotients[0]->getResult(0), {})); // N may be 0
}
