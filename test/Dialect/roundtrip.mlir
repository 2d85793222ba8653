// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --mlir-print-op-generic | attn-opt | FileCheck %s

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

// CHECK-LABEL: attn.kernel @region_ops(
// CHECK-SAME: %table: !attn.tensor<[(X + Y) * 2, N floordiv 4, N mod 3 - (X - 1)], ui8>
attn.kernel @region_ops(%x: !attn.tensor<[X, Y, N], bf16>, %table: !attn.tensor<[(X + Y) * 2, N floordiv 4, N mod 3 - (X - 1)], ui8>,
                        %seed: !attn.tensor<[], i64> = 7 : i64, %s: !attn.tensor<[], f64>) {
  // CHECK: %chosen = attn.tensor "chosen"(%i: X, %j: Y) : i64 {
  // CHECK-NEXT: attn.floordiv %i, %j
  // CHECK-NEXT: attn.mod %i, %j
  // CHECK-NEXT: attn.read %table[%0, %1, %i] : !attn.tensor<[(X + Y) * 2, N floordiv 4, N mod 3 - (X - 1)], ui8>
  %chosen = attn.tensor "chosen"(%i: X, %j: Y) : i64 {
    %0 = attn.floordiv %i, %j
    %1 = attn.mod %i, %j
    %2 = attn.read %table[%0, %1, %i] : !attn.tensor<[(X + Y) * 2, N floordiv 4, N mod 3 - (X - 1)], ui8>
    attn.yield %2 : i64
  }
  // CHECK: %total = attn.tensor "total"() : f32 {
  %total = attn.tensor "total"() : f32 {
    // CHECK: attn.reduce sum(%{{.*}}: X, %{{.*}}: Y) : f32 {
    %0 = attn.reduce sum(%i: X, %j: Y) : f32 {
      // CHECK: attn.reduce logsumexp(%n: N) sink %{{.*}} : f32 {
      %c = arith.constant 2.0 : f32
      %1 = attn.reduce logsumexp(%n: N) sink %c : f32 {
        %3 = attn.read %x[%i, %j, %n] : !attn.tensor<[X, Y, N], bf16>
        attn.yield %3 : f32
      } where {
        // CHECK: } where {
        %3 = arith.cmpi slt, %n, %i : i64
        attn.yield %3 : i1
      }
      // CHECK: attn.reduce softmax(%n: N) at (%{{.*}}) : f32 {
      %2 = attn.reduce softmax(%n: N) at (%i) : f32 {
        %3 = attn.read %x[%i, %j, %n] : !attn.tensor<[X, Y, N], bf16>
        attn.yield %3 : f32
      }
      // CHECK: attn.dropout
      %r = attn.read %seed[] : !attn.tensor<[], i64>
      %4 = attn.dropout %1, %2, %r, %i : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  // CHECK: %least = attn.tensor "least"(%i: 3) : i64 {
  %least = attn.tensor "least"(%i: 3) : i64 {
    // CHECK: attn.reduce min(%n: N) : i64 {
    %0 = attn.reduce min(%n: N) : i64 {
      attn.yield %n : i64
    }
    // CHECK: attn.reduce max(%n: N) : i64 {
    %1 = attn.reduce max(%n: N) : i64 {
      attn.yield %n : i64
    }
    // CHECK: attn.size X + Y * 2
    %2 = attn.size X + Y * 2
    %3 = arith.addi %0, %1 : i64
    %4 = arith.addi %3, %2 : i64
    attn.yield %4 : i64
  }
  attn.return %chosen : !attn.tensor<[X, Y], i64> as ui8, %total : !attn.tensor<[], f32> as f64, %least : !attn.tensor<[3], i64> as i32
}

// A softmax with a sink; no query index.
// CHECK-LABEL: attn.kernel @sink(
attn.kernel @sink(%x: !attn.tensor<[N], f32>, %v: !attn.tensor<[N, E], f32>, %s: !attn.tensor<[], f32>) {
  // CHECK: attn.softmax "weight", ""(%x sink %s) : !attn.tensor<[N], f32>
  %weight, %lse = attn.softmax "weight", ""(%x sink %s) : !attn.tensor<[N], f32>
  // CHECK: attn.weighted_sum "out"(%e: E) over (%n: N) query -1 : f32 {
  %out = attn.weighted_sum "out"(%e: E) over (%n: N) query -1 : f32 {
    %0 = attn.read %weight[%n] : !attn.tensor<[N], f32>
    %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
    attn.yield %0, %1 : f32, f32
  }
  attn.return %out : !attn.tensor<[E], f32> as f16
}
