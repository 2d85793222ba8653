// RUN: attn-opt %s --attn-hoist --cse --canonicalize | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %score_key = attn.tensor "score_key"(%n: N, %d: D) : f32 {
// CHECK-NEXT:      %0 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:      %1 = math.exp %0 : f32
// CHECK-NEXT:      attn.yield %1 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %score = attn.score "score"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
// CHECK-NEXT:        %2 = attn.read %score_key[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
// CHECK-NEXT:    attn.return
attn.kernel @example(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = math.exp %2 : f32
      %4 = arith.mulf %1, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}
