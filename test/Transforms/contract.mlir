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

// Keys and a table's rows are two products.
// CHECK-LABEL: attn.kernel @table(
// CHECK:         %[[KEYS:.*]] = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:      attn.read %q[%m, %d]
// CHECK-NEXT:      attn.read %k[%n, %d]
// CHECK-NEXT:      arith.mulf
// CHECK:         %[[ROWS:.*]] = attn.reduce sum(%d: D) : f32 {
// CHECK:           attn.read %table[%{{[0-9]+}}, %d]
// CHECK-NEXT:      arith.mulf
// CHECK:         arith.addf %[[KEYS]], %[[ROWS]]
attn.kernel @table(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %table: !attn.tensor<[T, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = attn.size M
      %4 = arith.subi %n, %m : i64
      %5 = arith.addi %4, %3 : i64
      %6 = attn.read %table[%5, %d] : !attn.tensor<[T, D], f32>
      %7 = arith.addf %2, %6 : f32
      %8 = arith.mulf %1, %7 : f32
      attn.yield %8 : f32
    }
    attn.yield %0 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
    attn.yield %0, %1 : f32, f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// Not where each row is computed by itself.
// CHECK-LABEL: attn.kernel @alone(
// CHECK:         attn.reduce sum(%d: D) : f32 {
// CHECK-NOT:     attn.reduce
// CHECK:         attn.weighted_sum
attn.kernel @alone(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %table: !attn.tensor<[T, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = attn.size M
      %4 = arith.subi %n, %m : i64
      %5 = arith.addi %4, %3 : i64
      %6 = attn.read %table[%5, %d] : !attn.tensor<[T, D], f32>
      %7 = arith.addf %2, %6 : f32
      %8 = arith.mulf %1, %7 : f32
      attn.yield %8 : f32
    }
    attn.yield %0 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query -1 : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
    %2 = attn.read %table[%m, %e] : !attn.tensor<[T, D], f32>
    %3 = arith.addf %1, %2 : f32
    attn.yield %0, %3 : f32, f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}
