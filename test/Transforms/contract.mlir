// RUN: attn-opt %s --attn-contract --cse --canonicalize | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %score = attn.score "score"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.read %temperature[%m] : !attn.tensor<[M], f32>
// CHECK-NEXT:      %1 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
// CHECK-NEXT:        %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %4 = arith.divf %2, %0 : f32
// CHECK-NEXT:        %5 = arith.mulf %4, %3 : f32
// CHECK-NEXT:        attn.yield %5 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %1 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
// CHECK-NEXT:    attn.return
attn.kernel @example(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %temperature: !attn.tensor<[M], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.read %temperature[%m] : !attn.tensor<[M], f32>
    %1 = attn.reduce sum(%d: D) : f32 {
      %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %4 = arith.mulf %2, %3 : f32
      %5 = arith.divf %4, %0 : f32
      attn.yield %5 : f32
    }
    attn.yield %1 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}
