// RUN: attn-opt %s --attn-store-pairs | FileCheck %s

// Attention's gradients as attn-differentiate makes them, but for the batch. The weights are read by a sum and by the
// gradient of the scores, that by two sums: both are stored. The score and the gradient of the weights, which one statement reads,
// become part of it. Sums have no condition: what they read is 0 without it. The scale, which no index of a sum changes,
// is multiplied outside.
// CHECK-LABEL: attn.kernel @example(
// CHECK:         %weight = attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.pairs, attn.weights} {
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D)
// CHECK:           %3 = math.exp %2 : f32
// CHECK:           arith.select %4, %3, %cst
// CHECK:         %grad_v = attn.tensor "grad_v"(%n: N, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%m: M) : f32 {
// CHECK-NEXT:        %1 = attn.read %weight[%m, %n]
// CHECK-NEXT:        %2 = attn.read %grad_out[%m, %e]
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK:         %grad_score = attn.tensor "grad_score"(%m: M, %n: N) : f32 attributes {attn.pairs} {
// CHECK:           attn.reduce sum(%e: E)
// CHECK:           %4 = arith.mulf %0, %3 : f32
// CHECK-NEXT:      %5 = attn.read %weight_mask[%m, %n]
// CHECK-NEXT:      %cst = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:      %6 = arith.select %5, %4, %cst : f32
// CHECK:         %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%m: M) : f32 {
// CHECK-NEXT:        %3 = attn.read %grad_score[%m, %n]
// CHECK-NEXT:        %4 = attn.read %q[%m, %d]
// CHECK-NEXT:        %5 = arith.mulf %3, %4 : f32
// CHECK-NEXT:        attn.yield %5 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %1 = attn.read %scale[]
// CHECK-NEXT:      %2 = arith.mulf %0, %1 : f32
// CHECK-NEXT:      attn.yield %2 : f32
attn.kernel @example(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>, %scale: !attn.tensor<[], f32> = unit, %lse: !attn.tensor<[M], f32>, %dot: !attn.tensor<[M], f32>, %grad_out: !attn.tensor<[M, E], f32>) {
  %score = attn.tensor "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %weight_mask = attn.tensor "weight_mask"(%m: M, %n: N) : i1 {
    %0 = arith.cmpi sle, %n, %m : i64
    attn.yield %0 : i1
  }
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.weights} {
    %0 = attn.read %score[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %lse[%m] : !attn.tensor<[M], f32>
    %2 = arith.subf %0, %1 : f32
    %3 = math.exp %2 : f32
    %4 = attn.read %weight_mask[%m, %n] : !attn.tensor<[M, N], i1>
    %cst = arith.constant 0.0 : f32
    %5 = arith.select %4, %3, %cst : f32
    attn.yield %5 : f32
  }
  %grad_v = attn.tensor "grad_v"(%n: N, %e: E) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %grad_out[%m, %e] : !attn.tensor<[M, E], f32>
      %2 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = attn.read %weight_mask[%m, %n] : !attn.tensor<[M, N], i1>
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %grad_weight = attn.tensor "grad_weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%e: E) : f32 {
      %1 = attn.read %grad_out[%m, %e] : !attn.tensor<[M, E], f32>
      %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_score = attn.tensor "grad_score"(%m: M, %n: N) : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %grad_weight[%m, %n] : !attn.tensor<[M, N], f32>
    %2 = attn.read %dot[%m] : !attn.tensor<[M], f32>
    %3 = arith.subf %1, %2 : f32
    %4 = arith.mulf %0, %3 : f32
    attn.yield %4 : f32
  }
  %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %grad_score[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %scale[] : !attn.tensor<[], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    } where {
      %1 = attn.read %weight_mask[%m, %n] : !attn.tensor<[M, N], i1>
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %grad_q = attn.tensor "grad_q"(%m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %grad_score[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_q : !attn.tensor<[M, D], f32> as f32, %grad_k : !attn.tensor<[N, D], f32> as f32, %grad_v : !attn.tensor<[N, E], f32> as f32
}

// The gradient of a term of the score is that of the score: all sums read the one.
// CHECK-LABEL: attn.kernel @copies(
// CHECK:         "grad_score"(%m: M, %n: N) : f32 attributes {attn.pairs}
// CHECK-NOT:     attn.pairs
// CHECK:         %grad_k = attn.tensor
// CHECK:           attn.read %grad_score[%m, %n]
// CHECK:         %grad_q = attn.tensor
// CHECK:           attn.read %grad_score[%m, %n]
attn.kernel @copies(%x: !attn.tensor<[M, N], f32>, %q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %far: !attn.tensor<[M], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.weights} {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %grad_score = attn.tensor "grad_score"(%m: M, %n: N) : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.reduce sum(%d: D) : f32 {
      %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %4 = arith.mulf %2, %3 : f32
      attn.yield %4 : f32
    }
    %5 = arith.mulf %0, %1 : f32
    attn.yield %5 : f32
  }
  %grad_slope = attn.tensor "grad_slope"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %grad_score[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %far[%m] : !attn.tensor<[M], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_dot = attn.tensor "grad_dot"(%m: M, %n: N) : f32 {
    %0 = attn.read %grad_score[%m, %n] : !attn.tensor<[M, N], f32>
    attn.yield %0 : f32
  }
  %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %grad_dot[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_q = attn.tensor "grad_q"(%m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %grad_dot[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_q : !attn.tensor<[M, D], f32> as f32, %grad_k : !attn.tensor<[N, D], f32> as f32, %grad_slope : !attn.tensor<[M], f32> as f32
}

// What is computed as a whole is left as it is.
// CHECK-LABEL: attn.kernel @whole(
// CHECK-NOT:     attn.pairs
attn.kernel @whole(%x: !attn.tensor<[M, N], f32>, %q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %far: !attn.tensor<[M], f32>) attributes {attn.whole} {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.weights} {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %grad_score = attn.tensor "grad_score"(%m: M, %n: N) : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.reduce sum(%d: D) : f32 {
      %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %4 = arith.mulf %2, %3 : f32
      attn.yield %4 : f32
    }
    %5 = arith.mulf %0, %1 : f32
    attn.yield %5 : f32
  }
  %grad_slope = attn.tensor "grad_slope"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %grad_score[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %far[%m] : !attn.tensor<[M], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_dot = attn.tensor "grad_dot"(%m: M, %n: N) : f32 {
    %0 = attn.read %grad_score[%m, %n] : !attn.tensor<[M, N], f32>
    attn.yield %0 : f32
  }
  %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %grad_dot[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_q = attn.tensor "grad_q"(%m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %grad_dot[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_q : !attn.tensor<[M, D], f32> as f32, %grad_k : !attn.tensor<[N, D], f32> as f32, %grad_slope : !attn.tensor<[M], f32> as f32
}

// One sum alone reads the weights: they belong into it.
// CHECK-LABEL: attn.kernel @one_sum(
// CHECK-NOT:     attn.pairs
attn.kernel @one_sum(%x: !attn.tensor<[M, N], f32>, %grad_out: !attn.tensor<[M, E], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.weights} {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %grad_v = attn.tensor "grad_v"(%n: N, %e: E) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %grad_out[%m, %e] : !attn.tensor<[M, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_v : !attn.tensor<[N, E], f32> as f32
}

// A term that is not 0 where the pairs are must be added up for all keys: nothing is changed.
// CHECK-LABEL: attn.kernel @not_a_multiple(
// CHECK-NOT:     attn.pairs
attn.kernel @not_a_multiple(%x: !attn.tensor<[M, N], f32>, %q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.weights} {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %grad_q = attn.tensor "grad_q"(%m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.addf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_q : !attn.tensor<[M, D], f32> as f32, %grad_k : !attn.tensor<[N, D], f32> as f32
}

// What is used in a sum's terms and multiplied outside is computed in both places.
// CHECK-LABEL: attn.kernel @both_places(
// CHECK:         %grad_k = attn.tensor
// CHECK:           attn.reduce sum
// CHECK:             math.sqrt
// CHECK:           }
// CHECK:           math.sqrt
attn.kernel @both_places(%x: !attn.tensor<[M, N], f32>, %q: !attn.tensor<[M, D], f32>, %s: !attn.tensor<[], f32> = unit) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.weights} {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %sum = attn.tensor "sum"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %s[] : !attn.tensor<[], f32>
      %3 = math.sqrt %2 : f32
      %4 = arith.mulf %1, %3 : f32
      %5 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %6 = arith.addf %5, %3 : f32
      %7 = arith.mulf %4, %6 : f32
      attn.yield %7 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %sum : !attn.tensor<[M], f32> as f32, %grad_k : !attn.tensor<[N, D], f32> as f32
}

// A derivative that both sums have as a factor is stored in the place of the gradient that it multiplies.
// CHECK-LABEL: attn.kernel @factor(
// CHECK:         attn.tensor "weight"{{.*}} {attn.pairs, attn.weights}
// CHECK:         %grad_k_pairs = attn.tensor "grad_k_pairs"(%m: M, %n: N) : f32 attributes {attn.pairs} {
// CHECK:           math.tanh
// CHECK:         %grad_k = attn.tensor
// CHECK:           attn.read %grad_k_pairs[%m, %n]
// CHECK:         %grad_q = attn.tensor
// CHECK:           attn.read %grad_k_pairs[%m, %n]
attn.kernel @factor(%x: !attn.tensor<[M, N], f32>, %q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.weights} {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %sum = attn.tensor "sum"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      %3 = math.tanh %2 : f32
      %4 = arith.mulf %1, %3 : f32
      %5 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %6 = arith.mulf %4, %5 : f32
      attn.yield %6 : f32
    }
    attn.yield %0 : f32
  }
  %grad_q = attn.tensor "grad_q"(%m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      %3 = math.tanh %2 : f32
      %4 = arith.mulf %1, %3 : f32
      %5 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %6 = arith.mulf %4, %5 : f32
      attn.yield %6 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %sum : !attn.tensor<[M], f32> as f32, %grad_q : !attn.tensor<[M, D], f32> as f32, %grad_k : !attn.tensor<[N, D], f32> as f32
}

// Weights without a softmax, and a sum with a condition. It is the mask of what is stored: of the gradients, which are
// multiples of a sum that had it, and of the weights, of which nobody needs more.
// CHECK-LABEL: attn.kernel @unnormalised(
// CHECK:         %[[MASK:.*]] = attn.tensor "{{.*}}_mask"(%m: M, %n: N) : i1 {
// CHECK-NEXT:      arith.cmpi sle, %n, %m
// CHECK:         %weight = attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.pairs} {
// CHECK:           math.exp
// CHECK:           attn.read %[[MASK]][%m, %n]
// CHECK:           arith.select
// CHECK:         %grad_v = attn.tensor "grad_v"(%n: N, %e: E) : f32 {
// CHECK-NEXT:      attn.reduce sum(%m: M)
// CHECK-NEXT:        attn.read %weight[%m, %n]
// CHECK-NOT:       where
// CHECK:         %grad_x = attn.tensor "grad_x"(%m: M, %n: N) : f32 attributes {attn.pairs} {
// CHECK-NEXT:      attn.read %weight[%m, %n]
// CHECK-NEXT:      attn.reduce sum(%e: E)
// CHECK-NOT:       where
// CHECK:           attn.read %[[MASK]][%m, %n]
// CHECK:           arith.select
// CHECK-NOT:       arith.select
// CHECK:         attn.tensor "grad_k"
attn.kernel @unnormalised(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %x: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>, %grad_out: !attn.tensor<[M, E], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %grad_v = attn.tensor "grad_v"(%n: N, %e: E) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %grad_out[%m, %e] : !attn.tensor<[M, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %grad_weight = attn.tensor "grad_weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%e: E) : f32 {
      %1 = attn.read %grad_out[%m, %e] : !attn.tensor<[M, E], f32>
      %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %grad_x = attn.tensor "grad_x"(%m: M, %n: N) : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %grad_weight[%m, %n] : !attn.tensor<[M, N], f32>
    %2 = arith.mulf %0, %1 : f32
    attn.yield %2 : f32
  }
  %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %grad_x[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_q = attn.tensor "grad_q"(%m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %grad_x[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_v : !attn.tensor<[N, E], f32> as f32, %grad_k : !attn.tensor<[N, D], f32> as f32, %grad_q : !attn.tensor<[M, D], f32> as f32
}

// The gradient of a projection is summed both ways, too, but it is sums of products alone: it stays.
// CHECK-LABEL: attn.kernel @projection(
// CHECK-NOT:     attn.pairs
attn.kernel @projection(%x: !attn.tensor<[M, D], f32>, %w: !attn.tensor<[N, D], f32>, %y: !attn.tensor<[M, E], f32>, %u: !attn.tensor<[N, E], f32>) {
  %grad_h = attn.tensor "grad_h"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%e: E) : f32 {
      %1 = attn.read %y[%m, %e] : !attn.tensor<[M, E], f32>
      %2 = attn.read %u[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_w = attn.tensor "grad_w"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %grad_h[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %x[%m, %d] : !attn.tensor<[M, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_x = attn.tensor "grad_x"(%m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %grad_h[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %w[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_w : !attn.tensor<[N, D], f32> as f32, %grad_x : !attn.tensor<[M, D], f32> as f32
}

// Heads share keys, in groups: what the gradient of the keys is for each head, and its sum over the heads of a group, are
// one sum over pairs.
// CHECK-LABEL: attn.kernel @shared_heads(
// CHECK-NOT:     grad_k_part
// CHECK:         %grad_k = attn.tensor "grad_k"(%at: G, %n: N, %d: D) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%h: H, %m: M) : f32 {
// CHECK-NEXT:        %1 = attn.read %weight[%h, %m, %n]
// CHECK-NEXT:        %2 = attn.read %q[%h, %m, %d]
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      } where {
// CHECK:             attn.floordiv %h, %c4_i64
// CHECK:             arith.cmpi eq, {{%.*}}, %at : i64
// CHECK:           }
// CHECK-NEXT:      attn.yield %0 : f32
attn.kernel @shared_heads(%x: !attn.tensor<[H, M, N], f32>, %q: !attn.tensor<[H, M, D], f32>, %k: !attn.tensor<[G, N, D], f32>) {
  %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 attributes {attn.weights} {
    %0 = attn.read %x[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %sum = attn.tensor "sum"(%h: H, %m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %part = attn.tensor "grad_k_part"(%h: H, %n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %weight[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      %2 = attn.read %q[%h, %m, %d] : !attn.tensor<[H, M, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_k = attn.tensor "grad_k"(%at: G, %n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%h: H) : f32 {
      %1 = attn.read %part[%h, %n, %d] : !attn.tensor<[H, N, D], f32>
      attn.yield %1 : f32
    } where {
      %c4 = arith.constant 4 : i64
      %1 = attn.floordiv %h, %c4
      %2 = attn.size G - 1
      %3 = arith.minsi %1, %2 : i64
      %c0 = arith.constant 0 : i64
      %4 = arith.maxsi %3, %c0 : i64
      %5 = arith.cmpi eq, %4, %at : i64
      attn.yield %5 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %sum : !attn.tensor<[H, M], f32> as f32, %grad_k : !attn.tensor<[G, N, D], f32> as f32
}

// Sums with the same condition of pairs, with or times a number of their row: the pairs are 0 elsewhere, and no sum has
// a condition.
// CHECK-LABEL: attn.kernel @scaled_backward(
// CHECK:         %dot = attn.tensor "dot"(%m: M, %n: M) : f32 attributes {attn.pairs} {
// CHECK:           arith.select
// CHECK:         %first = attn.tensor "first"(%m: M, %e: E) : f32 {
// CHECK-NOT:       where
// CHECK-NOT:       arith.select
// CHECK:         %second = attn.tensor "second"(%n: M, %e: E) : f32 {
// CHECK-NOT:       where
// CHECK:         %third = attn.tensor "third"(%n: M, %d: D) : f32 {
// CHECK-NOT:       where
// CHECK:         attn.return
attn.kernel @scaled_backward(%k: !attn.tensor<[M, D], f32>, %v: !attn.tensor<[M, E], f32>, %beta: !attn.tensor<[M], f32>) {
  %dot = attn.tensor "dot"(%m: M, %n: M) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %k[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[M, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %first = attn.tensor "first"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: M) : f32 {
      %1 = attn.read %beta[%m] : !attn.tensor<[M], f32>
      %2 = attn.read %dot[%m, %n] : !attn.tensor<[M, M], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %beta[%n] : !attn.tensor<[M], f32>
      %5 = arith.mulf %3, %4 : f32
      %6 = attn.read %v[%n, %e] : !attn.tensor<[M, E], f32>
      %7 = arith.mulf %5, %6 : f32
      attn.yield %7 : f32
    } where {
      %1 = arith.cmpi slt, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %second = attn.tensor "second"(%n: M, %e: E) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %dot[%m, %n] : !attn.tensor<[M, M], f32>
      %2 = attn.read %v[%m, %e] : !attn.tensor<[M, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = arith.cmpi slt, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %third = attn.tensor "third"(%n: M, %d: D) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %dot[%m, %n] : !attn.tensor<[M, M], f32>
      %2 = attn.read %k[%m, %d] : !attn.tensor<[M, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = arith.cmpi slt, %n, %m : i64
      attn.yield %1 : i1
    }
    %1 = attn.read %beta[%n] : !attn.tensor<[M], f32>
    %2 = arith.mulf %1, %0 : f32
    attn.yield %2 : f32
  }
  attn.return %first : !attn.tensor<[M, E], f32> as f32, %second : !attn.tensor<[M, E], f32> as f32, %third : !attn.tensor<[M, D], f32> as f32
}

// A row of a table gets rows of other tensors, times the numbers of the pairs whose distance chooses it: the numbers are
// added up first.
// CHECK-LABEL: attn.kernel @rows_backward(
// CHECK:         %weight = attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.pairs, attn.weights} {
// CHECK:         %grad_r_table = attn.tensor "grad_r_table"(%m: M, %at: R) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%n: N) : f32 {
// CHECK-NEXT:        %1 = attn.read %weight[%m, %n]
// CHECK-NEXT:        attn.yield %1 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        arith.subi %n, %m : i64
// CHECK:         %grad_r = attn.tensor "grad_r"(%at: R, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%m: M) : f32 {
// CHECK-NEXT:        %1 = attn.read %grad_r_table[%m, %at] : !attn.tensor<[M, R], f32>
// CHECK-NEXT:        %2 = attn.read %grad_out[%m, %e] : !attn.tensor<[M, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
attn.kernel @rows_backward(%s: !attn.tensor<[M, N], f32>, %grad_out: !attn.tensor<[M, E], f32>, %r: !attn.tensor<[R, E], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.weights} {
    %0 = attn.read %s[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %grad_v = attn.tensor "grad_v"(%n: N, %e: E) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %grad_out[%m, %e] : !attn.tensor<[M, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_r = attn.tensor "grad_r"(%at: R, %e: E) : f32 {
    %0 = attn.reduce sum(%m: M, %n: N) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %grad_out[%m, %e] : !attn.tensor<[M, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = arith.subi %n, %m : i64
      %2 = attn.size R - 1
      %3 = arith.minsi %1, %2 : i64
      %c0 = arith.constant 0 : i64
      %4 = arith.maxsi %3, %c0 : i64
      %5 = arith.cmpi eq, %4, %at : i64
      attn.yield %5 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %grad_v : !attn.tensor<[N, E], f32> as f32, %grad_r : !attn.tensor<[R, E], f32> as f32
}

// A total that weights are divided by, and what is summed of its gradient before there are pairs, come before the blocks,
// with scores of their own.
// CHECK-LABEL: attn.kernel @total(
// CHECK-NEXT:    %total = attn.tensor "total"(%h: H, %m: M) : f32 attributes {attn.total} {
// CHECK-NEXT:      %0 = attn.reduce sum(%n: N) : f32 {
// CHECK-NEXT:        %1 = attn.reduce sum(%d: D) : f32 {
// CHECK:             math.absf %1
// CHECK:         %dot = attn.tensor "dot"
// CHECK:         %grad_s = attn.tensor "grad_s"(%h: H, %m: M, %n: N) : f32 attributes {attn.pairs} {
// CHECK-NEXT:      attn.reduce sum(%d: D)
// CHECK:           attn.read %dot[%h, %m]
// CHECK:         %grad_q = attn.tensor "grad_q"
// CHECK:           attn.read %grad_s[%h, %m, %n]
attn.kernel @total(%q: !attn.tensor<[H, M, D], f32>, %k: !attn.tensor<[H, N, D], f32>, %grad_out: !attn.tensor<[H, M, D], f32>) {
  %s = attn.tensor "s"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%h, %m, %d] : !attn.tensor<[H, M, D], f32>
      %2 = attn.read %k[%h, %n, %d] : !attn.tensor<[H, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %total = attn.tensor "total"(%h: H, %m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %s[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      %2 = math.absf %1 : f32
      attn.yield %2 : f32
    }
    attn.yield %0 : f32
  }
  %dot = attn.tensor "dot"(%h: H, %m: M) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %grad_out[%h, %m, %d] : !attn.tensor<[H, M, D], f32>
      %2 = attn.read %total[%h, %m] : !attn.tensor<[H, M], f32>
      %3 = arith.divf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_s = attn.tensor "grad_s"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.read %s[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
    %1 = attn.read %dot[%h, %m] : !attn.tensor<[H, M], f32>
    %2 = math.exp %0 : f32
    %3 = arith.mulf %2, %1 : f32
    attn.yield %3 : f32
  }
  %grad_q = attn.tensor "grad_q"(%h: H, %m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %grad_s[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      %2 = attn.read %k[%h, %n, %d] : !attn.tensor<[H, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %grad_k = attn.tensor "grad_k"(%h: H, %n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %grad_s[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      %2 = attn.read %q[%h, %m, %d] : !attn.tensor<[H, M, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_q : !attn.tensor<[H, M, D], f32> as f32, %grad_k : !attn.tensor<[H, N, D], f32> as f32
}
