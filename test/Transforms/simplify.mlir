// RUN: attn-opt %s --attn-simplify | FileCheck %s

// Programs of the language's description, as the front end emits them, through all passes.

// Projections stay (hq, hk), and the energy, which is an output: the score reads it. Its tanh is separated.
// CHECK-LABEL: attn.kernel @additive(
// CHECK-NEXT:    attn.tensor "hq"
// CHECK:         attn.tensor "hk"
// CHECK:         %energy_query_factor = attn.tensor
// CHECK:         %energy_key_factor = attn.tensor
// CHECK:         %energy = attn.tensor "energy"(%b: B, %m: M, %n: N)
// CHECK:         %weight_score = attn.score "weight_score"(%b: B, %m: M, %n: N) : f32 {
// CHECK-NEXT:      attn.read %energy[%b, %m, %n]
// CHECK-NEXT:      attn.yield
// CHECK:         %weight_mask = attn.mask "weight_mask"(%b: B, %m: M, %n: N) : i1 {
// CHECK-NEXT:      attn.read %valid[%b, %m]
// CHECK:         %weight, %logsumexp = attn.softmax "weight", ""(%weight_score where %weight_mask)
// CHECK:         attn.weighted_sum "out"(%b: B, %m: M, %e: E) over (%n: N) query 1 : f32
attn.kernel @additive(%q: !attn.tensor<[B, M, Q], f32>, %k: !attn.tensor<[B, N, K], f32>, %v: !attn.tensor<[B, N, E], f32>,
                      %wq: !attn.tensor<[U, Q], f32>, %wk: !attn.tensor<[U, K], f32>, %bias: !attn.tensor<[U], f32>,
                      %wv: !attn.tensor<[U], f32>, %valid: !attn.tensor<[B, M], i32>) {
  %hq = attn.tensor "hq"(%b: B, %m: M, %u: U) : f32 {
    %0 = attn.reduce sum(%i: Q) : f32 {
      %1 = attn.read %wq[%u, %i] : !attn.tensor<[U, Q], f32>
      %2 = attn.read %q[%b, %m, %i] : !attn.tensor<[B, M, Q], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %hk = attn.tensor "hk"(%b: B, %n: N, %u: U) : f32 {
    %0 = attn.reduce sum(%j: K) : f32 {
      %1 = attn.read %wk[%u, %j] : !attn.tensor<[U, K], f32>
      %2 = attn.read %k[%b, %n, %j] : !attn.tensor<[B, N, K], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    %1 = attn.read %bias[%u] : !attn.tensor<[U], f32>
    %2 = arith.addf %0, %1 : f32
    attn.yield %2 : f32
  }
  %energy = attn.tensor "energy"(%b: B, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%u: U) : f32 {
      %1 = attn.read %wv[%u] : !attn.tensor<[U], f32>
      %2 = attn.read %hq[%b, %m, %u] : !attn.tensor<[B, M, U], f32>
      %3 = attn.read %hk[%b, %n, %u] : !attn.tensor<[B, N, U], f32>
      %4 = arith.addf %2, %3 : f32
      %5 = math.tanh %4 : f32
      %6 = arith.mulf %1, %5 : f32
      attn.yield %6 : f32
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%b: B, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %energy[%b, %m, %j] : !attn.tensor<[B, M, N], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %valid[%b, %m] : !attn.tensor<[B, M], i32>
      %2 = arith.cmpi slt, %j, %1 : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%b: B, %m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%b, %m, %n] : !attn.tensor<[B, M, N], f32>
      %2 = attn.read %v[%b, %n, %e] : !attn.tensor<[B, N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[B, M, E], f32> as f32, %weight : !attn.tensor<[B, M, N], f32> as f32, %energy : !attn.tensor<[B, M, N], f32> as f32
}

// dot, score and mask are inlined; weight and lse share one softmax.
// CHECK-LABEL: attn.kernel @everything(
// CHECK-NEXT:    attn.score "weight_score"(%b: B, %h: H, %m: M, %n: N) : f32
// CHECK:           attn.reduce sum(%d: D)
// CHECK:           math.tanh
// CHECK:         attn.mask "weight_mask"(%b: B, %h: H, %m: M, %n: N) : i1
// CHECK:         attn.tensor "weight_sink"(%b: B, %h: H, %m: M) : f32
// CHECK:         %weight, %lse = attn.softmax "weight", "lse"(%weight_score where %weight_mask sink %weight_sink)
// CHECK-NEXT:    attn.weighted_sum "out"(%b: B, %h: H, %m: M, %e: E) over (%n: N) query 2 : f32
// CHECK-NOT:     attn.tensor "
// CHECK:         attn.return %out : {{.*}} as bf16, %lse
attn.kernel @everything(%q: !attn.tensor<[B, H, M, D], bf16>, %k: !attn.tensor<[B, G, N, D], bf16>,
                        %v: !attn.tensor<[B, G, N, E], bf16>, %slope: !attn.tensor<[H], f32>,
                        %sink: !attn.tensor<[H], f32>, %window: !attn.tensor<[], i32> = 1024 : i32) {
  %dot = attn.tensor "dot"(%b: B, %h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%b, %h, %m, %d] : !attn.tensor<[B, H, M, D], bf16>
      %size = attn.size H floordiv G
      %g = attn.floordiv %h, %size
      %2 = attn.read %k[%b, %g, %n, %d] : !attn.tensor<[B, G, N, D], bf16>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    %1 = attn.size D
    %2 = arith.sitofp %1 : i64 to f32
    %3 = math.sqrt %2 : f32
    %4 = arith.divf %0, %3 : f32
    attn.yield %4 : f32
  }
  %score = attn.tensor "score"(%b: B, %h: H, %m: M, %n: N) : f32 {
    %0 = attn.read %dot[%b, %h, %m, %n] : !attn.tensor<[B, H, M, N], f32>
    %1 = attn.read %slope[%h] : !attn.tensor<[H], f32>
    %2 = arith.subi %n, %m : i64
    %3 = arith.sitofp %2 : i64 to f32
    %4 = arith.mulf %1, %3 : f32
    %5 = arith.addf %0, %4 : f32
    %c = arith.constant 30.0 : f32
    %6 = arith.divf %5, %c : f32
    %7 = math.tanh %6 : f32
    %8 = arith.mulf %c, %7 : f32
    attn.yield %8 : f32
  }
  %mask = attn.tensor "mask"(%m: M, %n: N) : i1 {
    %0 = attn.size N - M
    %1 = arith.addi %m, %0 : i64
    %2 = arith.cmpi sle, %n, %1 : i64
    %3 = arith.subi %1, %n : i64
    %4 = attn.read %window[] : !attn.tensor<[], i32>
    %5 = arith.cmpi slt, %3, %4 : i64
    %6 = arith.andi %2, %5 : i1
    attn.yield %6 : i1
  }
  %weight = attn.tensor "weight"(%b: B, %h: H, %m: M, %n: N) : f32 {
    %s = attn.read %sink[%h] : !attn.tensor<[H], f32>
    %0 = attn.reduce softmax(%j: N) at (%n) sink %s : f32 {
      %1 = attn.read %score[%b, %h, %m, %j] : !attn.tensor<[B, H, M, N], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %mask[%m, %j] : !attn.tensor<[M, N], i1>
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%b: B, %h: H, %m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%b, %h, %m, %n] : !attn.tensor<[B, H, M, N], f32>
      %size = attn.size H floordiv G
      %g = attn.floordiv %h, %size
      %2 = attn.read %v[%b, %g, %n, %e] : !attn.tensor<[B, G, N, E], bf16>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %lse = attn.tensor "lse"(%b: B, %h: H, %m: M) : f32 {
    %s = attn.read %sink[%h] : !attn.tensor<[H], f32>
    %0 = attn.reduce logsumexp(%n: N) sink %s : f32 {
      %1 = attn.read %score[%b, %h, %m, %n] : !attn.tensor<[B, H, M, N], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %mask[%m, %n] : !attn.tensor<[M, N], i1>
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[B, H, M, E], f32> as bf16, %lse : !attn.tensor<[B, H, M], f32> as f32
}

// A score with one query: it is not stored either. There is no query index.
// CHECK-LABEL: attn.kernel @paged(
// CHECK-NEXT:    attn.score "weight_score"(%b: B, %h: H, %n: L * S) : f32
// CHECK:         attn.mask "weight_mask"
// CHECK:         attn.softmax
// CHECK-NEXT:    attn.weighted_sum "out"(%b: B, %h: H, %e: E) over (%n: L * S) query -1 : f32
// CHECK-NOT:     attn.tensor "
// CHECK:         attn.return
attn.kernel @paged(%q: !attn.tensor<[B, H, D], f32>, %k: !attn.tensor<[P, S, G, D], f32>, %v: !attn.tensor<[P, S, G, E], f32>,
                   %page: !attn.tensor<[B, L], i32>, %length: !attn.tensor<[B], i32>) {
  %score = attn.tensor "score"(%b: B, %h: H, %n: L * S) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%b, %h, %d] : !attn.tensor<[B, H, D], f32>
      %S = attn.size S
      %l = attn.floordiv %n, %S
      %p = attn.read %page[%b, %l] : !attn.tensor<[B, L], i32>
      %s = attn.mod %n, %S
      %size = attn.size H floordiv G
      %g = attn.floordiv %h, %size
      %2 = attn.read %k[%p, %s, %g, %d] : !attn.tensor<[P, S, G, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%b: B, %h: H, %n: L * S) : f32 {
    %0 = attn.reduce softmax(%j: L * S) at (%n) : f32 {
      %1 = attn.read %score[%b, %h, %j] : !attn.tensor<[B, H, L * S], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %length[%b] : !attn.tensor<[B], i32>
      %2 = arith.cmpi slt, %j, %1 : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%b: B, %h: H, %e: E) : f32 {
    %0 = attn.reduce sum(%n: L * S) : f32 {
      %1 = attn.read %weight[%b, %h, %n] : !attn.tensor<[B, H, L * S], f32>
      %S = attn.size S
      %l = attn.floordiv %n, %S
      %p = attn.read %page[%b, %l] : !attn.tensor<[B, L], i32>
      %s = attn.mod %n, %S
      %size = attn.size H floordiv G
      %g = attn.floordiv %h, %size
      %2 = attn.read %v[%p, %s, %g, %e] : !attn.tensor<[P, S, G, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[B, H, E], f32> as f32
}

// Projections of queries, keys and values are stored; dropout and head mask join the weight; the output projection reads the context.
// CHECK-LABEL: attn.kernel @mha(
// CHECK-NEXT:    attn.tensor "q"
// CHECK:         attn.tensor "k"
// CHECK:         attn.tensor "v"
// CHECK:         attn.score "weight_score"
// CHECK:         attn.softmax "weight", ""(%weight_score where %weight_mask)
// CHECK-NEXT:    %context = attn.weighted_sum "context"(%b: B, %h: 12, %m: N, %d: D) over (%n: N) query 2 : f32 {
// CHECK:           attn.read %weight[%b, %h, %m, %n]
// CHECK:           attn.dropout
// CHECK:           attn.read %head_mask[%h]
// CHECK:           attn.read %v[%b, %h, %n, %d]
// CHECK:         attn.tensor "y"(%b: B, %m: N, %o: O) : f32 {
// CHECK-NEXT:      attn.reduce sum(%h: 12, %d: D)
attn.kernel @mha(%x: !attn.tensor<[B, N, J], f32>, %wq: !attn.tensor<[12 * D, J], f32>,
                 %wk: !attn.tensor<[12 * D, J], f32>, %wv: !attn.tensor<[12 * D, J], f32>, %wo: !attn.tensor<[O, 12 * D], f32>,
                 %keep: !attn.tensor<[B, N], i1>, %head_mask: !attn.tensor<[12], f32>, %seed: !attn.tensor<[], i64>,
                 %p: !attn.tensor<[], f32>) {
  %q = attn.tensor "q"(%b: B, %h: 12, %m: N, %d: D) : f32 {
    %0 = attn.reduce sum(%j: J) : f32 {
      %1 = attn.read %x[%b, %m, %j] : !attn.tensor<[B, N, J], f32>
      %D = attn.size D
      %2 = arith.muli %h, %D : i64
      %3 = arith.addi %2, %d : i64
      %4 = attn.read %wq[%3, %j] : !attn.tensor<[12 * D, J], f32>
      %5 = arith.mulf %1, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  %k = attn.tensor "k"(%b: B, %h: 12, %n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%j: J) : f32 {
      %1 = attn.read %x[%b, %n, %j] : !attn.tensor<[B, N, J], f32>
      %D = attn.size D
      %2 = arith.muli %h, %D : i64
      %3 = arith.addi %2, %d : i64
      %4 = attn.read %wk[%3, %j] : !attn.tensor<[12 * D, J], f32>
      %5 = arith.mulf %1, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  %v = attn.tensor "v"(%b: B, %h: 12, %n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%j: J) : f32 {
      %1 = attn.read %x[%b, %n, %j] : !attn.tensor<[B, N, J], f32>
      %D = attn.size D
      %2 = arith.muli %h, %D : i64
      %3 = arith.addi %2, %d : i64
      %4 = attn.read %wv[%3, %j] : !attn.tensor<[12 * D, J], f32>
      %5 = arith.mulf %1, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%b: B, %h: 12, %m: N, %n: N) : f32 {
    %0 = attn.reduce softmax(%i: N) at (%n) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %2 = attn.read %q[%b, %h, %m, %d] : !attn.tensor<[B, 12, N, D], f32>
        %3 = attn.read %k[%b, %h, %i, %d] : !attn.tensor<[B, 12, N, D], f32>
        %4 = arith.mulf %2, %3 : f32
        attn.yield %4 : f32
      }
      attn.yield %1 : f32
    } where {
      %1 = attn.read %keep[%b, %i] : !attn.tensor<[B, N], i1>
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %kept = attn.tensor "kept"(%b: B, %h: 12, %m: N, %n: N) : f32 {
    %0 = attn.read %weight[%b, %h, %m, %n] : !attn.tensor<[B, 12, N, N], f32>
    %1 = attn.read %p[] : !attn.tensor<[], f32>
    %2 = attn.read %seed[] : !attn.tensor<[], i64>
    %N = attn.size N
    %3 = arith.muli %m, %N : i64
    %4 = arith.addi %3, %n : i64
    %5 = attn.dropout %0, %1, %2, %4 : f32
    %6 = attn.read %head_mask[%h] : !attn.tensor<[12], f32>
    %7 = arith.mulf %5, %6 : f32
    attn.yield %7 : f32
  }
  %context = attn.tensor "context"(%b: B, %h: 12, %m: N, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %kept[%b, %h, %m, %n] : !attn.tensor<[B, 12, N, N], f32>
      %2 = attn.read %v[%b, %h, %n, %d] : !attn.tensor<[B, 12, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %y = attn.tensor "y"(%b: B, %m: N, %o: O) : f32 {
    %0 = attn.reduce sum(%h: 12, %d: D) : f32 {
      %D = attn.size D
      %1 = arith.muli %h, %D : i64
      %2 = arith.addi %1, %d : i64
      %3 = attn.read %wo[%o, %2] : !attn.tensor<[O, 12 * D], f32>
      %4 = attn.read %context[%b, %h, %m, %d] : !attn.tensor<[B, 12, N, D], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[B, N, O], f32> as f32, %weight : !attn.tensor<[B, 12, N, N], f32> as f32
}

// Weights without a softmax.
// CHECK-LABEL: attn.kernel @sigmoid_attention(
// CHECK-NEXT:    attn.weighted_sum "out"(%b: B, %m: M, %e: E) over (%n: N) query 1 : f32 {
// CHECK:           attn.reduce sum(%d: D)
// CHECK:         } where {
// CHECK-NEXT:      arith.cmpi sle, %n, %m : i64
attn.kernel @sigmoid_attention(%q: !attn.tensor<[B, M, D], f32>, %k: !attn.tensor<[B, N, D], f32>, %v: !attn.tensor<[B, N, E], f32>) {
  %weight = attn.tensor "weight"(%b: B, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%b, %m, %d] : !attn.tensor<[B, M, D], f32>
      %2 = attn.read %k[%b, %n, %d] : !attn.tensor<[B, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    %one = arith.constant 1.0 : f32
    %1 = arith.negf %0 : f32
    %2 = math.exp %1 : f32
    %3 = arith.addf %2, %one : f32
    %4 = arith.divf %one, %3 : f32
    attn.yield %4 : f32
  }
  %out = attn.tensor "out"(%b: B, %m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%b, %m, %n] : !attn.tensor<[B, M, N], f32>
      %2 = attn.read %v[%b, %n, %e] : !attn.tensor<[B, N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[B, M, E], f32> as f32
}

// Differential attention in one statement: both softmaxes and the sum are outlined, and each softmax has a sum.
// CHECK-LABEL: attn.kernel @differential(
// CHECK-NEXT:    attn.score "out_softmax_score"(%m: M, %n: N) : f32
// CHECK:         attn.softmax "out_softmax", ""(%out_softmax_score)
// CHECK:         attn.score "out_softmax_1_score"(%m: M, %n: N) : f32
// CHECK:         attn.softmax "out_softmax_1", ""
// CHECK-NEXT:    %[[FIRST:.*]] = attn.weighted_sum "out_sum_out_softmax"(%m: M, %e: E) over (%n: N) query 0 : f32 {
// CHECK-NEXT:      attn.read %out_softmax[%m, %n]
// CHECK-NEXT:      attn.read %v[%n, %e]
// CHECK:         %[[SECOND:.*]] = attn.weighted_sum "out_sum_out_softmax_1"(%m: M, %e: E) over (%n: N) query 0 : f32 {
// CHECK-NEXT:      attn.read %out_softmax_1[%m, %n]
// CHECK-NEXT:      attn.read %v[%n, %e]
// CHECK:         attn.tensor "out"(%m: M, %e: E) : f32 {
// CHECK:           attn.read %[[FIRST]][%m, %e]
// CHECK:           attn.read %[[SECOND]][%m, %e]
attn.kernel @differential(%x: !attn.tensor<[M, N], f32>, %y: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>,
                          %bias: !attn.tensor<[E], f32>) {
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %2 = attn.reduce softmax(%j: N) at (%n) : f32 {
        %7 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
        attn.yield %7 : f32
      }
      %3 = attn.reduce softmax(%j: N) at (%n) : f32 {
        %7 = attn.read %y[%m, %j] : !attn.tensor<[M, N], f32>
        attn.yield %7 : f32
      }
      %4 = arith.subf %2, %3 : f32
      %5 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %6 = arith.mulf %4, %5 : f32
      attn.yield %6 : f32
    }
    %1 = attn.read %bias[%e] : !attn.tensor<[E], f32>
    %2 = arith.addf %0, %1 : f32
    attn.yield %2 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}
