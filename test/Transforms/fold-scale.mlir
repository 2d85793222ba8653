// RUN: attn-opt %s --attn-fold-scale --cse --canonicalize | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %score = attn.score "score"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %cst = arith.constant -5.000000e-01 : f32
// CHECK-NEXT:      %0 = attn.read %bias[%n] : !attn.tensor<[N], f32>
// CHECK-NEXT:      %1 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %4 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
// CHECK-NEXT:        %5 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %6 = arith.mulf %4, %cst : f32
// CHECK-NEXT:        %7 = arith.mulf %6, %5 : f32
// CHECK-NEXT:        attn.yield %7 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %2 = arith.mulf %0, %cst : f32
// CHECK-NEXT:      %3 = arith.subf %1, %2 : f32
// CHECK-NEXT:      attn.yield %3 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
// CHECK-NEXT:    attn.return
attn.kernel @example(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %bias: !attn.tensor<[N], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %cst = arith.constant -5.000000e-01 : f32
    %0 = attn.reduce sum(%d: D) : f32 {
      %4 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %5 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %6 = arith.mulf %4, %5 : f32
      attn.yield %6 : f32
    }
    %1 = attn.read %bias[%n] : !attn.tensor<[N], f32>
    %2 = arith.subf %0, %1 : f32
    %3 = arith.mulf %2, %cst : f32
    attn.yield %3 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// Numbers of 16 bits are not scaled.
// CHECK-LABEL: attn.kernel @narrow(
// CHECK:         attn.reduce
// CHECK-NEXT:      %[[Q:.*]] = attn.read %q
// CHECK-NEXT:      %[[K:.*]] = attn.read %k
// CHECK-NEXT:      arith.mulf %[[Q]], %[[K]] : f32
attn.kernel @narrow(%q: !attn.tensor<[M, D], bf16>, %k: !attn.tensor<[N, D], bf16>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %cst = arith.constant 2.500000e-01 : f32
    %0 = attn.reduce sum(%d: D) : f32 {
      %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], bf16>
      %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], bf16>
      %4 = arith.mulf %2, %3 : f32
      attn.yield %4 : f32
    }
    %1 = arith.mulf %0, %cst : f32
    attn.yield %1 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}
