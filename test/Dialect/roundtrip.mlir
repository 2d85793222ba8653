// RUN: attn-opt %s | attn-opt | FileCheck %s

// CHECK-LABEL: attn.kernel @attention(
// CHECK-SAME: %q: !attn.tensor<[B, M, D], f32>, %k: !attn.tensor<[B, N, D], f32>, %v: !attn.tensor<[B, N, E], f32>
// CHECK-SAME: %width: !attn.tensor<[], f32> = 1.000000e+00 : f32)
attn.kernel @attention(%q: !attn.tensor<[B, M, D], f32>, %k: !attn.tensor<[B, N, D], f32>, %v: !attn.tensor<[B, N, E], f32>,
                       %width: !attn.tensor<[], f32> = 1.0 : f32) {
  // CHECK: %score = attn.score "score"(%b: B, %m: M, %n: N) : f32 {
  %score = attn.score "score"(%b: B, %m: M, %n: N) : f32 {
    // CHECK: attn.reduce sum(%d: D) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      // CHECK: attn.read %q[%b, %m, %d] : !attn.tensor<[B, M, D], f32>
      %1 = attn.read %q[%b, %m, %d] : !attn.tensor<[B, M, D], f32>
      %2 = attn.read %k[%b, %n, %d] : !attn.tensor<[B, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  // CHECK: attn.mask "mask"
  %mask = attn.mask "mask"(%b: B, %m: M, %n: N) : i1 {
    %past = attn.size N - M
    %0 = arith.addi %m, %past : i64
    %c = arith.cmpi sle, %n, %0 : i64
    attn.yield %c : i1
  }
  // CHECK: %weight, %lse = attn.softmax "weight", "lse"(%score where %mask) : !attn.tensor<[B, M, N], f32>
  %weight, %lse = attn.softmax "weight", "lse"(%score where %mask) : !attn.tensor<[B, M, N], f32>
  // CHECK: %out = attn.weighted_sum "out"(%b: B, %m: M, %e: E) over (%n: N) query 1 : f32 {
  %out = attn.weighted_sum "out"(%b: B, %m: M, %e: E) over (%n: N) query 1 : f32 {
    %0 = attn.read %weight[%b, %m, %n] : !attn.tensor<[B, M, N], f32>
    %1 = attn.read %v[%b, %n, %e] : !attn.tensor<[B, N, E], f32>
    attn.yield %0, %1 : f32, f32
  } where {
    %true = arith.constant true
    attn.yield %true : i1
  }
  // CHECK: attn.return %out : !attn.tensor<[B, M, E], f32> as bf16, %lse : !attn.tensor<[B, M], f32> as f32
  attn.return %out : !attn.tensor<[B, M, E], f32> as bf16, %lse : !attn.tensor<[B, M], f32> as f32
}
