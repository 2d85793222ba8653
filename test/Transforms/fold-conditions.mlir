// RUN: attn-opt %s --pass-pipeline='builtin.module(attn.kernel(attn-fold-conditions))' --split-input-file | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example
// CHECK: attn.reduce sum(%n: N) : f32 {
// CHECK-NOT: arith.select
// CHECK: attn.yield [[X:%.*]] : f32
// CHECK-NEXT: } where {
// CHECK-NEXT: arith.cmpi sle, %n, %m : i64
attn.kernel @example(%x: !attn.tensor<[M, N], f32>) {
  %y = attn.tensor "y"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %cst = arith.constant 0.000000e+00 : f32
      %1 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = arith.cmpi sle, %n, %m : i64
      %3 = arith.select %2, %1, %cst : f32
      attn.yield %3 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[M], f32> as f32
}

// -----

// A part of the condition is enough; another condition is not.
// CHECK-LABEL: attn.kernel @part
// CHECK-COUNT-1: arith.select
// CHECK-NOT: arith.select
attn.kernel @part(%x: !attn.tensor<[M, N], f32>) {
  %y = attn.tensor "y"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %cst = arith.constant 0.000000e+00 : f32
      %1 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = arith.cmpi sle, %n, %m : i64
      %3 = arith.select %2, %1, %cst : f32
      %4 = arith.cmpi slt, %n, %m : i64
      %5 = arith.select %4, %3, %cst : f32
      attn.yield %5 : f32
    } where {
      %c1 = arith.constant 1 : i64
      %1 = arith.cmpi sle, %n, %m : i64
      %2 = arith.cmpi sge, %n, %c1 : i64
      %3 = arith.andi %1, %2 : i1
      attn.yield %3 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[M], f32> as f32
}
