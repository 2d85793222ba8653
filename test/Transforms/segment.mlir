// RUN: attn-opt %s --pass-pipeline='builtin.module(attn.kernel(attn-segment))' --split-input-file | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example
// CHECK: %w_largest = attn.tensor "w_largest"(%m: M) : f32 attributes {attn.shift} {
// CHECK-NEXT: attn.reduce max(%e: X) : f32 {
// CHECK: arith.cmpi eq, {{%.*}}, %m : i64
// CHECK: %w_share = attn.tensor "w_share"(%e: X) : f32 {
// CHECK: [[TO:%.*]] = attn.read %to[%e]
// CHECK: [[PLACE:%.*]] = arith.maxsi
// CHECK: attn.read %w_largest[[[PLACE]]]
// CHECK: math.exp
// CHECK: %w_total = attn.tensor "w_total"(%m: M) : f32 {
// CHECK-NEXT: attn.reduce sum(%e: X) : f32 {
// CHECK-NEXT: attn.read %w_share[%e]
// CHECK: %w_own = attn.tensor "w_own"(%e: X) : f32 {
// CHECK: arith.divf
// CHECK-NOT: softmax
// CHECK: %y = attn.tensor "y"(%m: M, %d: D) : f32 {
// CHECK-NEXT: attn.reduce sum(%e: X) : f32 {
// CHECK-NEXT: attn.read %w_own[%e]
// CHECK: } where {
// CHECK-NEXT: [[OWN:%.*]] = attn.read %to[%e]
// CHECK-NEXT: arith.cmpi eq, [[OWN]], %m : i64
attn.kernel @example(%s: !attn.tensor<[X], f32>, %v: !attn.tensor<[X, D], f32>, %to: !attn.tensor<[X], i32>, %z: !attn.tensor<[M], f32>) {
  %w = attn.tensor "w"(%m: M, %e: X) : f32 {
    %0 = attn.reduce softmax(%e_0: X) at (%e) : f32 {
      %1 = attn.read %s[%e_0] : !attn.tensor<[X], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %to[%e_0] : !attn.tensor<[X], i32>
      %2 = arith.cmpi eq, %1, %m : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  %y = attn.tensor "y"(%m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%e: X) : f32 {
      %1 = attn.read %w[%m, %e] : !attn.tensor<[M, X], f32>
      %2 = attn.read %v[%e, %d] : !attn.tensor<[X, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[M, D], f32> as f32
}

// -----

// Scores that change with the query have weights for each pair.
// CHECK-LABEL: attn.kernel @scores
// CHECK: attn.reduce softmax
attn.kernel @scores(%s: !attn.tensor<[M, X], f32>, %to: !attn.tensor<[X], i32>) {
  %w = attn.tensor "w"(%m: M, %e: X) : f32 {
    %0 = attn.reduce softmax(%e_0: X) at (%e) : f32 {
      %1 = attn.read %s[%m, %e_0] : !attn.tensor<[M, X], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %to[%e_0] : !attn.tensor<[X], i32>
      %2 = arith.cmpi eq, %1, %m : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  %y = attn.tensor "y"(%m: M) : f32 {
    %0 = attn.reduce sum(%e: X) : f32 {
      %1 = attn.read %w[%m, %e] : !attn.tensor<[M, X], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[M], f32> as f32
}

// -----

// Weights that are an output, too.
// CHECK-LABEL: attn.kernel @returned
// CHECK: attn.reduce softmax
attn.kernel @returned(%s: !attn.tensor<[X], f32>, %to: !attn.tensor<[X], i32>, %z: !attn.tensor<[M], f32>) {
  %w = attn.tensor "w"(%m: M, %e: X) : f32 {
    %0 = attn.reduce softmax(%e_0: X) at (%e) : f32 {
      %1 = attn.read %s[%e_0] : !attn.tensor<[X], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %to[%e_0] : !attn.tensor<[X], i32>
      %2 = arith.cmpi eq, %1, %m : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %w : !attn.tensor<[M, X], f32> as f32
}
