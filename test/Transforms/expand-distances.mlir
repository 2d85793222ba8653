// RUN: attn-opt %s --attn-expand-distances --cse --canonicalize | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %score_query_norm = attn.tensor "score_query_norm"(%m: M) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
// CHECK-NEXT:        %2 = arith.mulf %1, %1 : f32
// CHECK-NEXT:        attn.yield %2 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %score_key_norm = attn.tensor "score_key_norm"(%n: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %2 = arith.mulf %1, %1 : f32
// CHECK-NEXT:        attn.yield %2 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %score_bounded = attn.tensor "score_bounded"() : i1 {
// CHECK-NEXT:      %cst = arith.constant 1.280000e+02 : f32
// CHECK-NEXT:      %0 = attn.reduce max(%m: M) : f32 {
// CHECK-NEXT:        %5 = attn.read %score_query_norm[%m] : !attn.tensor<[M], f32>
// CHECK-NEXT:        %6 = math.absf %5 : f32
// CHECK-NEXT:        attn.yield %6 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %1 = arith.cmpf ole, %0, %cst : f32
// CHECK-NEXT:      %2 = attn.reduce max(%n: N) : f32 {
// CHECK-NEXT:        %5 = attn.read %score_key_norm[%n] : !attn.tensor<[N], f32>
// CHECK-NEXT:        %6 = math.absf %5 : f32
// CHECK-NEXT:        attn.yield %6 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %3 = arith.cmpf ole, %2, %cst : f32
// CHECK-NEXT:      %4 = arith.andi %1, %3 : i1
// CHECK-NEXT:      attn.yield %4 : i1
// CHECK-NEXT:    }
// CHECK-NEXT:    %score = attn.score "score"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %true = arith.constant true
// CHECK-NEXT:      %cst = arith.constant 2.000000e+00 : f32
// CHECK-NEXT:      %0 = attn.read %score_query_norm[%m] : !attn.tensor<[M], f32>
// CHECK-NEXT:      %1 = attn.read %score_key_norm[%n] : !attn.tensor<[N], f32>
// CHECK-NEXT:      %2 = attn.read %score_bounded[] : !attn.tensor<[], i1>
// CHECK-NEXT:      %3 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %10 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
// CHECK-NEXT:        %11 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %12 = arith.mulf %10, %11 : f32
// CHECK-NEXT:        attn.yield %12 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        attn.yield %2 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      %4 = arith.mulf %3, %cst : f32
// CHECK-NEXT:      %5 = arith.addf %0, %1 : f32
// CHECK-NEXT:      %6 = arith.subf %5, %4 : f32
// CHECK-NEXT:      %7 = arith.xori %2, %true : i1
// CHECK-NEXT:      %8 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %10 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
// CHECK-NEXT:        %11 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %12 = arith.subf %10, %11 : f32
// CHECK-NEXT:        %13 = arith.mulf %12, %12 : f32
// CHECK-NEXT:        attn.yield %13 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        attn.yield %7 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      %9 = arith.select %2, %6, %8 : f32
// CHECK-NEXT:      attn.yield %9 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
// CHECK-NEXT:    attn.return
attn.kernel @example(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.subf %1, %2 : f32
      %4 = arith.mulf %3, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// A root is of the distance as it is written; and so are two coordinates, for which norms save nothing.
// CHECK-LABEL: attn.kernel @written(
// CHECK-NOT:     norm
attn.kernel @written(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %p: !attn.tensor<[M, 2], f32>, %r: !attn.tensor<[N, 2], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.subf %1, %2 : f32
      %4 = arith.mulf %3, %3 : f32
      attn.yield %4 : f32
    }
    %root = math.sqrt %0 : f32
    %5 = attn.reduce sum(%c: 2) : f32 {
      %1 = attn.read %p[%m, %c] : !attn.tensor<[M, 2], f32>
      %2 = attn.read %r[%n, %c] : !attn.tensor<[N, 2], f32>
      %3 = arith.subf %1, %2 : f32
      %4 = arith.mulf %3, %3 : f32
      attn.yield %4 : f32
    }
    %sum = arith.addf %root, %5 : f32
    attn.yield %sum : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// What a distance is multiplied with counts where it is the largest, over the heads here.
// CHECK-LABEL: attn.kernel @widths(
// CHECK:         attn.tensor "score_query_norm"
// CHECK:         attn.tensor "score_bounded"() : i1 {
// CHECK:           attn.reduce max(%h: H) : f32 {
// CHECK:         attn.score "score"
attn.kernel @widths(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %w: !attn.tensor<[H], f32>) {
  %score = attn.score "score"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.subf %1, %2 : f32
      %4 = arith.mulf %3, %3 : f32
      attn.yield %4 : f32
    }
    %5 = attn.read %w[%h] : !attn.tensor<[H], f32>
    %6 = arith.divf %0, %5 : f32
    attn.yield %6 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[H, M, N], f32>
  attn.return %weight : !attn.tensor<[H, M, N], f32> as f32
}
