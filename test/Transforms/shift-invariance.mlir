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
// CHECK-NEXT:      %1 = attn.read %age[%m] : !attn.tensor<[M], i32>
// CHECK-NEXT:      %2 = arith.sitofp %1 : i64 to f32
// CHECK-NEXT:      %3 = arith.addf %0, %2 : f32
// CHECK-NEXT:      attn.yield %3 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return
attn.kernel @example(%x: !attn.tensor<[M, N], f32>, %age: !attn.tensor<[M], i32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %age[%m] : !attn.tensor<[M], i32>
    %2 = arith.sitofp %1 : i64 to f32
    %3 = arith.addf %0, %2 : f32
    attn.yield %3 : f32
  }
  %weight, %lse = attn.softmax "weight", "lse"(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32, %lse : !attn.tensor<[M], f32> as f32
}
