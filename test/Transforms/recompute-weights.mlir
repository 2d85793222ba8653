// RUN: attn-opt %s --attn-recompute-weights | FileCheck %s

// The example of the pass's documentation, and a quotient around the sum.
// CHECK-LABEL: attn.kernel @average(
// CHECK:         %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 {
// CHECK-NEXT:      attn.reduce softmax
// CHECK:         %weight_logsumexp = attn.tensor "weight_logsumexp"(%h: H, %m: M) : f32 {
// CHECK-NEXT:      %0 = attn.reduce logsumexp(%j: N) : f32 {
// CHECK-NEXT:        %1 = attn.read %s[%h, %m, %j] : !attn.tensor<[H, M, N], f32>
// CHECK:         %weight_again = attn.tensor "weight_again"(%h: H, %m: M, %n: N) : f32 attributes {attn.pairs} {
// CHECK-NEXT:      %0 = attn.read %s[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
// CHECK-NEXT:      %1 = attn.read %weight_logsumexp[%h, %m] : !attn.tensor<[H, M], f32>
// CHECK:           math.exp
// CHECK:         %weight_again_total = attn.tensor "weight_again_total"(%h: H, %m: M) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%n: N) : f32 {
// CHECK-NEXT:        attn.read %weight_again[%h, %m, %n]
// CHECK:         %average = attn.tensor "average"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%h: H) : f32 {
// CHECK-NEXT:        %[[TOTAL:.*]] = attn.read %weight_again_total[%h, %m] : !attn.tensor<[H, M], f32>
// CHECK-NEXT:        %[[WEIGHT:.*]] = attn.read %weight_again[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
// CHECK:             %[[SHARE:.*]] = arith.divf %[[WEIGHT]], %{{.*}} : f32
// CHECK-NEXT:        attn.yield %[[SHARE]] : f32
// CHECK-NEXT:      }
// CHECK:           arith.divf
attn.kernel @average(%s: !attn.tensor<[H, M, N], f32>, %v: !attn.tensor<[H, N, E], f32>) {
  %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %s[%h, %m, %j] : !attn.tensor<[H, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%h: H, %m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      %2 = attn.read %v[%h, %n, %e] : !attn.tensor<[H, N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %average_sum = attn.tensor "average_sum"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%h: H) : f32 {
      %1 = attn.read %weight[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %average = attn.tensor "average"(%m: M, %n: N) : f32 {
    %0 = attn.read %average_sum[%m, %n] : !attn.tensor<[M, N], f32>
    %H = attn.size H
    %1 = arith.sitofp %H : i64 to f32
    %2 = arith.divf %0, %1 : f32
    attn.yield %2 : f32
  }
  attn.return %out : !attn.tensor<[H, M, E], f32> as f32, %average : !attn.tensor<[M, N], f32> as f32
}

// A mask leaves out the keys of a block, and weights may have their key first.
// CHECK-LABEL: attn.kernel @masked(
// CHECK:         %weight_again = attn.tensor "weight_again"(%m: M, %n: N) : f32 attributes {attn.pairs} {
// CHECK:           arith.cmpi sle, %n, %m : i64
// CHECK:           arith.select
// CHECK:         %heavy = attn.tensor "heavy"(%n: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%m: M) : f32 {
// CHECK-NEXT:        attn.read %weight_again_total[%m] : !attn.tensor<[M], f32>
// CHECK-NEXT:        attn.read %weight_again[%m, %n] : !attn.tensor<[M, N], f32>
attn.kernel @masked(%s: !attn.tensor<[M, N], f32>) {
  %weight = attn.tensor "weight"(%n: N, %m: M) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %s[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      %1 = arith.cmpi sle, %j, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %heavy = attn.tensor "heavy"(%n: N) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %weight[%n, %m] : !attn.tensor<[N, M], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %heavy : !attn.tensor<[N], f32> as f32
}

// Weights that are returned are stored: nothing is computed again.
// CHECK-LABEL: attn.kernel @returned(
// CHECK-NOT:     attn.pairs
// CHECK:         attn.return
attn.kernel @returned(%s: !attn.tensor<[M, N], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %s[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %heavy = attn.tensor "heavy"(%n: N) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[M, N], f32> as f32, %heavy : !attn.tensor<[N], f32> as f32
}
