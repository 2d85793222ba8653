// RUN: attn-opt %s --attn-fold-scale --cse --canonicalize | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %score = attn.score "score"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %cst = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:      %0 = attn.read %width[] : !attn.tensor<[], f32>
// CHECK-NEXT:      %1 = arith.divf %cst, %0 : f32
// CHECK-NEXT:      %2 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %3 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
// CHECK-NEXT:        %4 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %5 = arith.mulf %3, %1 : f32
// CHECK-NEXT:        %6 = arith.mulf %5, %4 : f32
// CHECK-NEXT:        attn.yield %6 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %2 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
// CHECK-NEXT:    attn.return
attn.kernel @example(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %width: !attn.tensor<[], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %3 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %4 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    %1 = attn.read %width[] : !attn.tensor<[], f32>
    %2 = arith.divf %0, %1 : f32
    attn.yield %2 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}
