// RUN: attn-opt %s --attn-shift-invariance --cse --canonicalize | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %score = attn.score "score"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %weight, %lse_shifted = attn.softmax "weight", "lse_shifted"(%score) : !attn.tensor<[M, N], f32>
// CHECK-NEXT:    %lse = attn.tensor "lse"(%m: M) : f32 {
// CHECK-NEXT:      %0 = attn.read %lse_shifted[%m] : !attn.tensor<[M], f32>
// CHECK-NEXT:      %1 = attn.read %bias[%m] : !attn.tensor<[M], f32>
// CHECK-NEXT:      %2 = arith.addf %0, %1 : f32
// CHECK-NEXT:      attn.yield %2 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return
attn.kernel @example(%x: !attn.tensor<[M, N], f32>, %bias: !attn.tensor<[M], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %bias[%m] : !attn.tensor<[M], f32>
    %2 = arith.addf %0, %1 : f32
    attn.yield %2 : f32
  }
  %weight, %lse = attn.softmax "weight", "lse"(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32, %lse : !attn.tensor<[M], f32> as f32
}
