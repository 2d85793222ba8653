// RUN: attn-opt %s --attn-order --split-input-file | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK:         %weight, %lse = attn.softmax "weight", "lse"(%score)
// CHECK-NEXT:    %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
// CHECK:         %half = attn.tensor "half"(%m: M) : f32 {
// CHECK-NEXT:      %0 = attn.read %lse[%m] : !attn.tensor<[M], f32>
// CHECK:         attn.return
attn.kernel @example(%s: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.read %s[%m, %n] : !attn.tensor<[M, N], f32>
    attn.yield %0 : f32
  }
  %weight, %lse = attn.softmax "weight", "lse"(%score) : !attn.tensor<[M, N], f32>
  %half = attn.tensor "half"(%m: M) : f32 {
    %0 = attn.read %lse[%m] : !attn.tensor<[M], f32>
    %cst = arith.constant 5.000000e-01 : f32
    %1 = arith.mulf %0, %cst : f32
    attn.yield %1 : f32
  }
  %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
    attn.yield %0, %1 : f32, f32
  }
  attn.return %half : !attn.tensor<[M], f32> as f32, %out : !attn.tensor<[M, E], f32> as f32
}

// -----

// What reads a reader comes after it; what reads neither stays.
// CHECK-LABEL: attn.kernel @chain(
// CHECK:         attn.softmax
// CHECK-NEXT:    %twice = attn.tensor "twice"
// CHECK:         %out = attn.weighted_sum "out"
// CHECK:         %a = attn.tensor "a"
// CHECK:         %b = attn.tensor "b"
// CHECK:         attn.return
attn.kernel @chain(%s: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.read %s[%m, %n] : !attn.tensor<[M, N], f32>
    attn.yield %0 : f32
  }
  %weight, %lse = attn.softmax "weight", "lse"(%score) : !attn.tensor<[M, N], f32>
  %a = attn.tensor "a"(%m: M) : f32 {
    %0 = attn.read %lse[%m] : !attn.tensor<[M], f32>
    %1 = arith.negf %0 : f32
    attn.yield %1 : f32
  }
  %twice = attn.tensor "twice"(%n: N, %e: E) : f32 {
    %0 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
    %1 = arith.addf %0, %0 : f32
    attn.yield %1 : f32
  }
  %b = attn.tensor "b"(%m: M) : f32 {
    %0 = attn.read %a[%m] : !attn.tensor<[M], f32>
    %1 = arith.addf %0, %0 : f32
    attn.yield %1 : f32
  }
  %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %twice[%n, %e] : !attn.tensor<[N, E], f32>
    attn.yield %0, %1 : f32, f32
  }
  attn.return %b : !attn.tensor<[M], f32> as f32, %out : !attn.tensor<[M, E], f32> as f32
}

// -----

// A sum that needs a reader stays behind it.
// CHECK-LABEL: attn.kernel @needed(
// CHECK:         attn.softmax
// CHECK-NEXT:    %a = attn.tensor "a"
// CHECK:         %out = attn.weighted_sum "out"
attn.kernel @needed(%s: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.read %s[%m, %n] : !attn.tensor<[M, N], f32>
    attn.yield %0 : f32
  }
  %weight, %lse = attn.softmax "weight", "lse"(%score) : !attn.tensor<[M, N], f32>
  %a = attn.tensor "a"(%m: M) : f32 {
    %0 = attn.read %lse[%m] : !attn.tensor<[M], f32>
    %1 = arith.negf %0 : f32
    attn.yield %1 : f32
  }
  %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %a[%m] : !attn.tensor<[M], f32>
    %2 = arith.mulf %0, %1 : f32
    %3 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
    attn.yield %2, %3 : f32, f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}
