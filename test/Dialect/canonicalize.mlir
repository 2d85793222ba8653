// RUN: attn-opt %s --canonicalize | FileCheck %s

// Sizes of constants are constants, divisions of constants and by one fold, and constants stay in the formula.
// CHECK-LABEL: attn.kernel @integers(
// CHECK-NEXT:    attn.tensor "a"(%n: N) : i64 {
// CHECK-NEXT:      %c-4_i64 = arith.constant -4 : i64
// CHECK-NEXT:      attn.yield %c-4_i64 : i64
// CHECK:         attn.tensor "b"(%n: N) : i64 {
// CHECK-NEXT:      %c1_i64 = arith.constant 1 : i64
// CHECK-NEXT:      attn.yield %c1_i64 : i64
// CHECK:         attn.tensor "c"(%n: N) : i64 {
// CHECK-NEXT:      attn.yield %n : i64
// CHECK:         attn.tensor "d"(%n: N) : i64 {
// CHECK-NEXT:      %c0_i64 = arith.constant 0 : i64
// CHECK-NEXT:      attn.yield %c0_i64 : i64
// CHECK:         attn.tensor "e"(%n: N) : i64 {
// CHECK-NEXT:      %c12_i64 = arith.constant 12 : i64
// CHECK-NEXT:      attn.yield %c12_i64 : i64
attn.kernel @integers(%x: !attn.tensor<[N], f32>) {
  %a = attn.tensor "a"(%n: N) : i64 {
    %0 = arith.constant -7 : i64
    %1 = arith.constant 2 : i64
    %2 = attn.floordiv %0, %1
    attn.yield %2 : i64
  }
  %b = attn.tensor "b"(%n: N) : i64 {
    %0 = arith.constant -7 : i64
    %1 = arith.constant 2 : i64
    %2 = attn.mod %0, %1
    attn.yield %2 : i64
  }
  %c = attn.tensor "c"(%n: N) : i64 {
    %0 = arith.constant 1 : i64
    %1 = attn.floordiv %n, %0
    attn.yield %1 : i64
  }
  %d = attn.tensor "d"(%n: N) : i64 {
    %0 = arith.constant 0 : i64
    %1 = attn.mod %n, %0
    %2 = arith.constant 1 : i64
    %3 = attn.mod %1, %2
    attn.yield %3 : i64
  }
  %e = attn.tensor "e"(%n: N) : i64 {
    %0 = attn.size 4 * 3
    attn.yield %0 : i64
  }
  attn.return %a : !attn.tensor<[N], i64> as i64, %b : !attn.tensor<[N], i64> as i64, %c : !attn.tensor<[N], i64> as i64,
    %d : !attn.tensor<[N], i64> as i64, %e : !attn.tensor<[N], i64> as i64
}

// Conditions that are always true go; a tensor that nobody reads goes.
// CHECK-LABEL: attn.kernel @conditions(
// CHECK-NOT:     attn.mask
// CHECK-NOT:     "unread"
// CHECK:         attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
// CHECK:         attn.weighted_sum
// CHECK-NOT:     where
// CHECK:         attn.tensor "total"
// CHECK-NOT:     where
// CHECK:         attn.return
attn.kernel @conditions(%x: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    attn.yield %0 : f32
  }
  %mask = attn.mask "mask"(%m: M, %n: N) : i1 {
    %0 = arith.cmpi sle, %n, %n : i64
    attn.yield %0 : i1
  }
  %weight, %lse = attn.softmax "weight", "lse"(%score where %mask) : !attn.tensor<[M, N], f32>
  %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
    attn.yield %0, %1 : f32, f32
  } where {
    %true = arith.constant true
    attn.yield %true : i1
  }
  %unread = attn.tensor "unread"(%m: M) : f32 {
    %0 = attn.read %lse[%m] : !attn.tensor<[M], f32>
    attn.yield %0 : f32
  }
  %total = attn.tensor "total"(%m: M) : f32 {
    %0 = attn.reduce max(%n: N) : f32 {
      %1 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      %true = arith.constant true
      attn.yield %true : i1
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32, %total : !attn.tensor<[M], f32> as f32
}
