// RUN: attn-opt %s --attn-sum-weights --split-input-file | FileCheck %s

// A log-sum-exp that no sum has at hand gets a sum of its weights.
// CHECK-LABEL: attn.kernel @alone
// CHECK: %{{.*}}, %lse = attn.softmax "", "lse"
// CHECK: %lse_sum = attn.weighted_sum "lse_sum"(%b: B, %m: M, %one: 1) over (%n: N) query 1 : f32 {
// CHECK:   %[[weight:.*]] = attn.read %{{.*}}[%b, %m, %n]
// CHECK:   %[[one:.*]] = arith.constant 1.0
// CHECK:   attn.yield %[[weight]], %[[one]]
// CHECK: attn.return %lse
attn.kernel @alone(%q: !attn.tensor<[B, M, D], f32>, %k: !attn.tensor<[B, N, D], f32>) {
  %score = attn.score "score"(%b: B, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%b, %m, %d] : !attn.tensor<[B, M, D], f32>
      %2 = attn.read %k[%b, %n, %d] : !attn.tensor<[B, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %weight, %lse = attn.softmax "", "lse"(%score) : !attn.tensor<[B, M, N], f32>
  attn.return %lse : !attn.tensor<[B, M], f32> as f32
}

// -----

// One that a sum has at hand gets none, and neither does one whose scores have no query.
// CHECK-LABEL: attn.kernel @others
// CHECK-NOT: _sum"
// CHECK: attn.return
attn.kernel @others(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>, %s: !attn.tensor<[M, N], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %weight, %lse = attn.softmax "weight", "lse"(%score) : !attn.tensor<[M, N], f32>
  %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
    attn.yield %0, %1 : f32, f32
  }
  %given = attn.score "given"(%m: M, %n: N) : f32 {
    %0 = attn.read %s[%m, %n] : !attn.tensor<[M, N], f32>
    attn.yield %0 : f32
  }
  %share, %total = attn.softmax "", "total"(%given) : !attn.tensor<[M, N], f32>
  attn.return %out : !attn.tensor<[M, E], f32> as f32, %lse : !attn.tensor<[M], f32> as f32, %total : !attn.tensor<[M], f32> as f32
}
