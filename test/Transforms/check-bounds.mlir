// RUN: attn-opt %s --attn-check-bounds --split-input-file -verify-diagnostics | FileCheck %s

// The example of the pass's documentation. The kernel itself stays as it is.
// CHECK-LABEL: attn.kernel @example(
// CHECK: attn.return %y : !attn.tensor<[M], f32> as f32
// CHECK: attn.kernel @example.bounds(%x: !attn.tensor<[N], f32>, %index: !attn.tensor<[M, J], i32>, %count: !attn.tensor<[M], i32>) attributes {attn.bounds = [{dimension = 0 : i64, size = #attn.size<N>, statement = "y", tensor = "x"}]} {
// CHECK-NEXT: %x_0_least = attn.tensor "x_0_least"() : i64 {
// CHECK-NEXT: %0 = attn.reduce min(%m: M, %j: J) : i64 {
// CHECK-NEXT: %1 = attn.read %index[%m, %j] : !attn.tensor<[M, J], i32>
// CHECK-NEXT: %2 = attn.read %count[%m] : !attn.tensor<[M], i32>
// CHECK-NEXT: %3 = arith.cmpi slt, %j, %2 : i64
// CHECK-NEXT: %c0_i64 = arith.constant 0 : i64
// CHECK-NEXT: %4 = arith.select %3, %1, %c0_i64 : i64
// CHECK-NEXT: attn.yield %4 : i64
// CHECK-NEXT: }
// CHECK-NEXT: attn.yield %0 : i64
// CHECK-NEXT: }
// CHECK-NEXT: %x_0_greatest = attn.tensor "x_0_greatest"() : i64 {
// CHECK-NEXT: %0 = attn.reduce max(%m: M, %j: J) : i64 {
// CHECK-NEXT: %1 = attn.read %index[%m, %j] : !attn.tensor<[M, J], i32>
// CHECK-NEXT: %2 = attn.read %count[%m] : !attn.tensor<[M], i32>
// CHECK-NEXT: %3 = arith.cmpi slt, %j, %2 : i64
// CHECK-NEXT: %c-1_i64 = arith.constant -1 : i64
// CHECK-NEXT: %4 = arith.select %3, %1, %c-1_i64 : i64
// CHECK-NEXT: attn.yield %4 : i64
// CHECK-NEXT: }
// CHECK-NEXT: attn.yield %0 : i64
// CHECK-NEXT: }
// CHECK-NEXT: attn.return %x_0_least : !attn.tensor<[], i64> as i64, %x_0_greatest : !attn.tensor<[], i64> as i64
attn.kernel @example(%x: !attn.tensor<[N], f32>, %index: !attn.tensor<[M, J], i32>, %count: !attn.tensor<[M], i32>) {
  %y = attn.tensor "y"(%m: M) : f32 {
    %0 = attn.reduce sum(%j: J) : f32 {
      %1 = attn.read %index[%m, %j] : !attn.tensor<[M, J], i32>
      %2 = attn.read %x[%1] : !attn.tensor<[N], f32>
      attn.yield %2 : f32
    } where {
      %1 = attn.read %count[%m] : !attn.tensor<[M], i32>
      %2 = arith.cmpi slt, %j, %1 : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[M], f32> as f32
}

// -----

// Values are used where their weights are not masked, and a statement where it is read: at k of the softmax and at n of the
// sum. Nothing is used where there are no columns E or rows M.
// CHECK-LABEL: attn.kernel @masked.bounds(
// CHECK-SAME: [{dimension = 0 : i64, size = #attn.size<P>, statement = "far", tensor = "v"}]
// CHECK: attn.reduce min(%n: N)
// CHECK-NEXT: %[[PAGE:.*]] = attn.read %page[%n]
// CHECK-NEXT: %[[LENGTH:.*]] = attn.read %length[]
// CHECK-NEXT: %[[MASK:.*]] = arith.cmpi slt, %n, %[[LENGTH]] : i64
// CHECK-NEXT: attn.size M
// CHECK: %[[ROWS:.*]] = arith.andi %[[MASK]], %
// CHECK-NEXT: attn.size E
// CHECK: %[[ALL:.*]] = arith.andi %[[ROWS]], %
// CHECK: arith.select %[[ALL]], %[[PAGE]], %
// CHECK: attn.reduce max(%n: N)
attn.kernel @masked(%q: !attn.tensor<[M], f32>, %k: !attn.tensor<[N], f32>, %v: !attn.tensor<[P, E], f32>, %page: !attn.tensor<[N], i32>, %length: !attn.tensor<[], i32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%k_0: N) at (%n) : f32 {
      %1 = attn.read %q[%m] : !attn.tensor<[M], f32>
      %2 = attn.read %k[%k_0] : !attn.tensor<[N], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = attn.read %length[] : !attn.tensor<[], i32>
      %2 = arith.cmpi slt, %k_0, %1 : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  %far = attn.tensor "far"(%n: N, %e: E) : f32 {
    %0 = attn.read %page[%n] : !attn.tensor<[N], i32>
    %1 = attn.read %v[%0, %e] : !attn.tensor<[P, E], f32>
    attn.yield %1 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %far[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// -----

// Subscripts of indices and sizes are not checked, nor are tensors that nobody returns.
// CHECK-LABEL: attn.kernel @nothing(
// CHECK-NOT: .bounds
attn.kernel @nothing(%x: !attn.tensor<[N], f32>, %at: !attn.tensor<[N], i32>) {
  %unused = attn.tensor "unused"(%n: N) : f32 {
    %0 = attn.read %at[%n] : !attn.tensor<[N], i32>
    %1 = attn.read %x[%0] : !attn.tensor<[N], f32>
    attn.yield %1 : f32
  }
  %y = attn.tensor "y"(%n: N) : f32 {
    %c1 = arith.constant 1 : i64
    %0 = arith.subi %n, %c1 : i64
    %1 = attn.read %x[%0] : !attn.tensor<[N], f32>
    attn.yield %1 : f32
  }
  attn.return %y : !attn.tensor<[N], f32> as f32
}

// -----

attn.kernel @raised(%x: !attn.tensor<[M, N], f32>) {
  // expected-error @+1 {{attn-check-bounds comes before attn-raise: it needs attn.tensors alone}}
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    attn.yield %0 : f32
  }
  %weight, %lse = attn.softmax "weight", "lse"(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}
