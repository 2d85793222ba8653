// RUN: attn-opt %s --attn-inline | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %mask = attn.tensor "mask"(%m: M, %n: N) : i1 {
// CHECK-NEXT:      %c1_i64 = arith.constant 1 : i64
// CHECK-NEXT:      %0 = arith.subi %m, %c1_i64 : i64
// CHECK-NEXT:      %1 = arith.cmpi sle, %n, %0 : i64
// CHECK-NEXT:      attn.yield %1 : i1
attn.kernel @example(%x: !attn.tensor<[M, N], f32>) {
  %last = attn.tensor "last"(%m: M) : i64 {
    %c1 = arith.constant 1 : i64
    %0 = arith.subi %m, %c1 : i64
    attn.yield %0 : i64
  }
  %mask = attn.tensor "mask"(%m: M, %n: N) : i1 {
    %0 = attn.read %last[%m] : !attn.tensor<[M], i64>
    %1 = arith.cmpi sle, %n, %0 : i64
    attn.yield %1 : i1
  }
  attn.return %mask : !attn.tensor<[M, N], i1> as i1
}

// Into a softmax go a score with one element for each weight (dot), a table of key and query alone (relative), and the
// condition's tensors. Projections stay: keys knows no query.
// CHECK-LABEL: attn.kernel @scores(
// CHECK-NEXT:    attn.tensor "keys"
// CHECK-NOT:     attn.tensor "dot"
// CHECK-NOT:     attn.tensor "relative"
// CHECK-NOT:     attn.tensor "near"
// CHECK:         attn.tensor "weight"(%b: B, %m: M, %n: N)
// CHECK-NEXT:      attn.reduce softmax(%j: N) at (%n)
// CHECK-NEXT:        attn.reduce sum(%d: D)
// CHECK:               attn.read %keys[%b, %j, %d]
// CHECK:             attn.reduce sum(%d: D)
// CHECK:           } where {
// CHECK:             math.floor
attn.kernel @scores(%q: !attn.tensor<[B, M, D], f32>, %k: !attn.tensor<[B, N, J], f32>, %w: !attn.tensor<[D, J], f32>,
                    %s: !attn.tensor<[M, D], f32>, %t: !attn.tensor<[N, D], f32>, %limit: !attn.tensor<[M], f32>) {
  %keys = attn.tensor "keys"(%b: B, %n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%j: J) : f32 {
      %1 = attn.read %k[%b, %n, %j] : !attn.tensor<[B, N, J], f32>
      %2 = attn.read %w[%d, %j] : !attn.tensor<[D, J], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %dot = attn.tensor "dot"(%b: B, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%b, %m, %d] : !attn.tensor<[B, M, D], f32>
      %2 = attn.read %keys[%b, %n, %d] : !attn.tensor<[B, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %relative = attn.tensor "relative"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %s[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %t[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %near = attn.tensor "near"(%m: M, %n: N) : i1 {
    %0 = attn.read %limit[%m] : !attn.tensor<[M], f32>
    %1 = math.floor %0 : f32
    %2 = arith.sitofp %n : i64 to f32
    %3 = arith.cmpf olt, %2, %1 : f32
    attn.yield %3 : i1
  }
  %weight = attn.tensor "weight"(%b: B, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %dot[%b, %m, %j] : !attn.tensor<[B, M, N], f32>
      %2 = attn.read %relative[%m, %j] : !attn.tensor<[M, N], f32>
      %3 = arith.addf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = attn.read %near[%m, %j] : !attn.tensor<[M, N], i1>
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[B, M, N], f32> as f32
}

// What may be clamped (a table's subscript), what is rounded when it is stored, and the factors of a chain of matrix
// products stay.
// CHECK-LABEL: attn.kernel @stay(
// CHECK-NEXT:    attn.tensor "twice"
// CHECK:         attn.tensor "picked"
// CHECK-NEXT:      attn.read %at
// CHECK-NEXT:      attn.read %twice
// CHECK:         attn.tensor "rounded"(%n: N) : f16
// CHECK:         attn.tensor "wide"
// CHECK-NEXT:      attn.read %rounded
// CHECK:         attn.tensor "first"
// CHECK:         attn.tensor "second"
attn.kernel @stay(%x: !attn.tensor<[N], f32>, %at: !attn.tensor<[N], i64>, %w: !attn.tensor<[N, N], f32>) {
  %twice = attn.tensor "twice"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    %1 = arith.addf %0, %0 : f32
    attn.yield %1 : f32
  }
  %picked = attn.tensor "picked"(%n: N) : f32 {
    %0 = attn.read %at[%n] : !attn.tensor<[N], i64>
    %1 = attn.read %twice[%0] : !attn.tensor<[N], f32>
    attn.yield %1 : f32
  }
  %rounded = attn.tensor "rounded"(%n: N) : f16 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  %wide = attn.tensor "wide"(%n: N) : f32 {
    %0 = attn.read %rounded[%n] : !attn.tensor<[N], f16>
    attn.yield %0 : f32
  }
  %first = attn.tensor "first"(%i: N, %k: N) : f32 {
    %0 = attn.reduce sum(%j: N) : f32 {
      %1 = attn.read %w[%i, %j] : !attn.tensor<[N, N], f32>
      %2 = attn.read %w[%j, %k] : !attn.tensor<[N, N], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %second = attn.tensor "second"(%i: N, %k: N) : f32 {
    %0 = attn.reduce sum(%j: N) : f32 {
      %1 = attn.read %first[%i, %j] : !attn.tensor<[N, N], f32>
      %2 = attn.read %w[%j, %k] : !attn.tensor<[N, N], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %picked : !attn.tensor<[N], f32> as f32, %wide : !attn.tensor<[N], f32> as f32, %second : !attn.tensor<[N, N], f32> as f32
}

// What one tensor reads, once for each of its elements, is fused with it.
// CHECK-LABEL: attn.kernel @once(
// CHECK-NEXT:    attn.tensor "out"(%m: M) : f32 {
// CHECK-NEXT:      attn.reduce sum
attn.kernel @once(%x: !attn.tensor<[M, N], f32>) {
  %total = attn.tensor "total"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: M) : f32 {
    %0 = attn.read %total[%m] : !attn.tensor<[M], f32>
    %1 = math.sqrt %0 : f32
    attn.yield %1 : f32
  }
  attn.return %out : !attn.tensor<[M], f32> as f32
}

// A term that divides its last index is computed once for an element, not once for each pair that reads it; so are sums
// whose terms have places, each by itself.
// CHECK-LABEL: attn.kernel @divided(
// CHECK:         attn.tensor "turned"(%n: N, %d: D) : f32 {
// CHECK:         attn.tensor "dot"(%m: M, %n: N) : f32 {
// CHECK:           attn.read %turned[%n, %d]
// CHECK:         attn.tensor "second"(%n: N) : f32 {
// CHECK:           attn.reduce sum(%m: M) : f32 {
// CHECK:         attn.tensor "both"(%n: N) : f32 {
// CHECK:           attn.reduce sum(%m: M) : f32 {
// CHECK-NOT:       attn.reduce
// CHECK:           attn.read %second[%n]
attn.kernel @divided(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %c: !attn.tensor<[N, D floordiv 2], f32>, %x: !attn.tensor<[M], f32>) {
  %turned = attn.tensor "turned"(%n: N, %d: D) : f32 {
    %two = arith.constant 2 : i64
    %0 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
    %1 = attn.floordiv %d, %two
    %2 = attn.read %c[%n, %1] : !attn.tensor<[N, D floordiv 2], f32>
    %3 = arith.mulf %0, %2 : f32
    attn.yield %3 : f32
  }
  %dot = attn.tensor "dot"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %turned[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %first = attn.tensor "first"(%n: N) : f32 {
    %c0 = arith.constant 0 : i64
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %x[%m] : !attn.tensor<[M], f32>
      attn.yield %1 : f32
    } where {
      %last = attn.size N - 1
      %1 = arith.minsi %m, %last : i64
      %2 = arith.maxsi %1, %c0 : i64
      %3 = arith.cmpi eq, %2, %n : i64
      attn.yield %3 : i1
    }
    attn.yield %0 : f32
  }
  %second = attn.tensor "second"(%n: N) : f32 {
    %c0 = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %x[%m] : !attn.tensor<[M], f32>
      attn.yield %1 : f32
    } where {
      %last = attn.size N - 1
      %next = arith.addi %m, %c1 : i64
      %1 = arith.minsi %next, %last : i64
      %2 = arith.maxsi %1, %c0 : i64
      %3 = arith.cmpi eq, %2, %n : i64
      attn.yield %3 : i1
    }
    attn.yield %0 : f32
  }
  %both = attn.tensor "both"(%n: N) : f32 {
    %0 = attn.read %first[%n] : !attn.tensor<[N], f32>
    %1 = attn.read %second[%n] : !attn.tensor<[N], f32>
    %2 = arith.addf %0, %1 : f32
    attn.yield %2 : f32
  }
  attn.return %dot : !attn.tensor<[M, N], f32> as f32, %both : !attn.tensor<[N], f32> as f32
}

// A linear layer of pairs is stored, and a matrix product: as a part of the score each head would look at the pairs again.
// The dot product beside it tells the query.
// CHECK-LABEL: attn.kernel @layer(
// CHECK:         attn.tensor "bias"(%h: H, %m: M, %n: N) : f32 {
// CHECK-NOT:     attn.tensor "dot"
// CHECK:         attn.tensor "weight"(%h: H, %m: M, %n: N)
// CHECK-NEXT:      attn.reduce softmax(%j: N) at (%n)
// CHECK-NEXT:        attn.reduce sum(%d: D)
// CHECK:             attn.read %bias[%h, %m, %j]
attn.kernel @layer(%q: !attn.tensor<[H, M, D], f32>, %k: !attn.tensor<[H, N, D], f32>, %pair: !attn.tensor<[M, N, C], f32>, %w: !attn.tensor<[H, C], f32>) {
  %bias = attn.tensor "bias"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%c: C) : f32 {
      %1 = attn.read %w[%h, %c] : !attn.tensor<[H, C], f32>
      %2 = attn.read %pair[%m, %n, %c] : !attn.tensor<[M, N, C], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %dot = attn.tensor "dot"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%h, %m, %d] : !attn.tensor<[H, M, D], f32>
      %2 = attn.read %k[%h, %n, %d] : !attn.tensor<[H, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %dot[%h, %m, %j] : !attn.tensor<[H, M, N], f32>
      %2 = attn.read %bias[%h, %m, %j] : !attn.tensor<[H, M, N], f32>
      %3 = arith.addf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[H, M, N], f32> as f32
}

// Queries that all sequences share are no such weights: there are no pairs yet.
// CHECK-LABEL: attn.kernel @shared(
// CHECK-NEXT:    attn.tensor "weight"
attn.kernel @shared(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[B, N, D], f32>) {
  %dot = attn.tensor "dot"(%b: B, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%b, %n, %d] : !attn.tensor<[B, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%b: B, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %dot[%b, %m, %j] : !attn.tensor<[B, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[B, M, N], f32> as f32
}

// A score that is compared with the greatest of its row is computed once: two loops would round it differently.
// CHECK-LABEL: attn.kernel @compared(
// CHECK-NEXT:    %[[SCORE:.*]] = attn.tensor "score"
// CHECK-NEXT:      attn.reduce sum
// CHECK:         attn.tensor "best"
// CHECK-NEXT:      attn.reduce max(%[[J:.*]]: N)
// CHECK-NEXT:        attn.read %[[SCORE]][%{{.*}}, %[[J]]]
// CHECK:         attn.tensor "weight"
// CHECK-NEXT:      attn.reduce softmax
// CHECK-NEXT:        attn.read %[[SCORE]]
// CHECK:         } where {
// CHECK-NEXT:        attn.read %[[SCORE]]
attn.kernel @compared(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>) {
  %score = attn.tensor "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %best = attn.tensor "best"(%m: M) : f32 {
    %0 = attn.reduce max(%j: N) : f32 {
      %1 = attn.read %score[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %score[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %score[%m, %j] : !attn.tensor<[M, N], f32>
      %2 = attn.read %best[%m] : !attn.tensor<[M], f32>
      %3 = arith.cmpf oge, %1, %2 : f32
      attn.yield %3 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// Sums up to a key have a condition on their last index: a term is stored, not computed for each of them.
// CHECK-LABEL: attn.kernel @up_to_a_key(
// CHECK:         attn.tensor "score"
// CHECK:         attn.tensor "total"
// CHECK:           attn.read %score[%m, %n]
attn.kernel @up_to_a_key(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>) {
  %score = attn.tensor "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    %4 = math.exp %0 : f32
    attn.yield %4 : f32
  }
  %total = attn.tensor "total"(%m: M, %j: N) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %score[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      %1 = arith.cmpi sle, %n, %j : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %total : !attn.tensor<[M, N], f32> as f32
}

// Weights without a softmax, in two statements: neither is stored, for the sum computes them tile by tile.
// CHECK-LABEL: attn.kernel @gated(
// CHECK-NOT:     attn.tensor "score"
// CHECK-NOT:     attn.tensor "weight"
// CHECK:         attn.tensor "out"
// CHECK:           math.exp
attn.kernel @gated(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %score = attn.tensor "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.read %score[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = math.exp %0 : f32
    %2 = arith.mulf %0, %1 : f32
    attn.yield %2 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// Scores that a sum of weights has taken in go into the totals of their rows, too, if nothing else reads them. A total in
// the formula of something else becomes a tensor.
// CHECK-LABEL: attn.kernel @totals(
// CHECK-NOT:     attn.tensor "score"
// CHECK:         %square = attn.tensor "square"(%m: M) : f32 attributes {attn.total} {
// CHECK:           attn.reduce sum(%n: N)
// CHECK:             attn.reduce sum(%d: D)
// CHECK:         %[[TOTAL:.*]] = attn.tensor "length_total"(%m: M) : f32 attributes {attn.total} {
// CHECK:           attn.reduce sum(%n: N)
// CHECK-NEXT:        attn.reduce sum(%d: D)
// CHECK:         attn.tensor "length"
// CHECK-NEXT:      attn.read %[[TOTAL]][%m]
// CHECK:         attn.tensor "out"
// CHECK:           attn.reduce sum(%d: D)
attn.kernel @totals(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %score = attn.tensor "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %square = attn.tensor "square"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %score[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = arith.mulf %1, %1 : f32
      attn.yield %2 : f32
    }
    attn.yield %0 : f32
  }
  %length = attn.tensor "length"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %score[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    %1 = math.sqrt %0 : f32
    attn.yield %1 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %score[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = math.exp %1 : f32
      %3 = attn.read %length[%m] : !attn.tensor<[M], f32>
      %4 = arith.divf %2, %3 : f32
      %5 = attn.read %square[%m] : !attn.tensor<[M], f32>
      %6 = arith.mulf %4, %5 : f32
      %7 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %8 = arith.mulf %6, %7 : f32
      attn.yield %8 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// A function of a plain dot product makes weights of a sum, however it is divided into statements; a function of it and of
// a column does not.
// CHECK-LABEL: attn.kernel @rectified(
// CHECK-NOT:     attn.tensor "score"
// CHECK:         attn.tensor "part"
// CHECK:         attn.tensor "out"
// CHECK:         attn.tensor "energy"
// CHECK:           attn.read %part
attn.kernel @rectified(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %score = attn.tensor "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %part = attn.tensor "part"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %zero = arith.constant 0.0 : f32
      %1 = attn.read %score[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = arith.maximumf %1, %zero : f32
      %3 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %4 = arith.mulf %2, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  %energy = attn.tensor "energy"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %part[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.addf %1, %2 : f32
      %4 = math.tanh %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32, %energy : !attn.tensor<[M, E], f32> as f32
}

// A block of rows of pairs has not all places of a sum whose terms have places: that is computed as a whole.
// CHECK-LABEL: attn.kernel @block_of_rows(
// CHECK:         attn.tensor "shifted"(%h: H, %m: M, %n: N) : f32 {
// CHECK:         attn.tensor "grad_score"
// CHECK-NOT:       attn.reduce
// CHECK:           attn.read %shifted[%h, %m, %n]
attn.kernel @block_of_rows(%x: !attn.tensor<[H, M, N], f32>, %weight: !attn.tensor<[H, M, N], f32>) {
  %shifted = attn.tensor "shifted"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%g: H) : f32 {
      %1 = attn.read %x[%g, %m, %n] : !attn.tensor<[H, M, N], f32>
      attn.yield %1 : f32
    } where {
      %zero = arith.constant 0 : i64
      %one = arith.constant 1 : i64
      %last = attn.size H - 1
      %next = arith.addi %g, %one : i64
      %1 = arith.minsi %next, %last : i64
      %2 = arith.maxsi %1, %zero : i64
      %3 = arith.cmpi eq, %2, %h : i64
      attn.yield %3 : i1
    }
    attn.yield %0 : f32
  }
  %grad_score = attn.tensor "grad_score"(%h: H, %m: M, %n: N) : f32 attributes {attn.pairs} {
    %0 = attn.read %shifted[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
    %1 = attn.read %weight[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
    %2 = arith.mulf %0, %1 : f32
    attn.yield %2 : f32
  }
  %grad_q = attn.tensor "grad_q"(%h: H, %m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %grad_score[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %grad_k = attn.tensor "grad_k"(%h: H, %n: N) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %grad_score[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_q : !attn.tensor<[H, M], f32> as f32, %grad_k : !attn.tensor<[H, N], f32> as f32
}

// A layer of scores is one where no key shows the query, too: the last index before the key may be it, which the weights
// do not have. Scores of keys that have heads and queries that have none are no layer.
// CHECK-LABEL: attn.kernel @heads_of_scores(
// CHECK:         attn.tensor "score"(%h: H, %m: M, %n: N) : f32 {
// CHECK:         attn.tensor "weight"
// CHECK:           attn.reduce softmax
// CHECK-NEXT:        attn.read %score[
// CHECK:         attn.tensor "other"
// CHECK:           attn.reduce softmax
// CHECK-NEXT:        attn.reduce sum(%d: D)
attn.kernel @heads_of_scores(%dot: !attn.tensor<[H, M, N], f32>, %w: !attn.tensor<[H, H], f32>,
                             %q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[H, N, D], f32>) {
  %score = attn.tensor "score"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%g: H) : f32 {
      %1 = attn.read %w[%h, %g] : !attn.tensor<[H, H], f32>
      %2 = attn.read %dot[%g, %m, %n] : !attn.tensor<[H, M, N], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%i: N) at (%n) : f32 {
      %1 = attn.read %score[%h, %m, %i] : !attn.tensor<[H, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %product = attn.tensor "product"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%h, %n, %d] : !attn.tensor<[H, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %other = attn.tensor "other"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%i: N) at (%n) : f32 {
      %1 = attn.read %product[%h, %m, %i] : !attn.tensor<[H, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[H, M, N], f32> as f32, %other : !attn.tensor<[H, M, N], f32> as f32
}

// A row of a query and a key is multiplied for all heads before the softmax; queries and keys are multiplied in it.
// CHECK-LABEL: attn.kernel @edges(
// CHECK:         attn.tensor "weight_pairs"(%h: H, %m: M, %i: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%c: C) : f32 {
// CHECK-NEXT:        attn.read %w[%h, %m, %c]
// CHECK-NEXT:        attn.read %edge[%m, %i, %c]
// CHECK:         attn.tensor "weight"
// CHECK-NEXT:      attn.reduce softmax
// CHECK-NEXT:        attn.reduce sum(%d: D)
// CHECK:             attn.read %weight_pairs[%h, %m, %{{.*}}]
// A device would store it as a whole.
// CHECK-LABEL: attn.kernel @edges_on_a_device(
// CHECK-NOT:     "weight_pairs"
attn.kernel @edges(%q: !attn.tensor<[H, M, D], f32>, %k: !attn.tensor<[H, N, D], f32>,
                   %edge: !attn.tensor<[M, N, C], f32>, %w: !attn.tensor<[H, M, C], f32>) {
  %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%i: N) at (%n) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %4 = attn.read %q[%h, %m, %d] : !attn.tensor<[H, M, D], f32>
        %5 = attn.read %k[%h, %i, %d] : !attn.tensor<[H, N, D], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      %2 = attn.reduce sum(%c: C) : f32 {
        %4 = attn.read %w[%h, %m, %c] : !attn.tensor<[H, M, C], f32>
        %5 = attn.read %edge[%m, %i, %c] : !attn.tensor<[M, N, C], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      %3 = arith.addf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[H, M, N], f32> as f32
}

attn.kernel @edges_on_a_device(%q: !attn.tensor<[H, M, D], f32>, %k: !attn.tensor<[H, N, D], f32>,
                               %edge: !attn.tensor<[M, N, C], f32>, %w: !attn.tensor<[H, M, C], f32>)
    attributes {attn.whole} {
  %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%i: N) at (%n) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %4 = attn.read %q[%h, %m, %d] : !attn.tensor<[H, M, D], f32>
        %5 = attn.read %k[%h, %i, %d] : !attn.tensor<[H, N, D], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      %2 = attn.reduce sum(%c: C) : f32 {
        %4 = attn.read %w[%h, %m, %c] : !attn.tensor<[H, M, C], f32>
        %5 = attn.read %edge[%m, %i, %c] : !attn.tensor<[M, N, C], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      %3 = arith.addf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[H, M, N], f32> as f32
}

// A projection that is divided by a number of sizes is a factor of products: it is stored, not summed again for each
// pair, where keys are read at computed places, too.
// CHECK-LABEL: attn.kernel @blocks
// CHECK: %q = attn.tensor "q"(%m: M, %d: D)
// CHECK-NOT: attn.tensor "score"
// CHECK: attn.read %q[%m, %d]
// CHECK: attn.return
attn.kernel @blocks(%x: !attn.tensor<[M, J], f32>, %wq: !attn.tensor<[D, J], f32>,
                    %k: !attn.tensor<[M, D], f32>, %v: !attn.tensor<[M, D], f32>) {
  %q = attn.tensor "q"(%m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%j: J) : f32 {
      %4 = attn.read %x[%m, %j] : !attn.tensor<[M, J], f32>
      %5 = attn.read %wq[%d, %j] : !attn.tensor<[D, J], f32>
      %6 = arith.mulf %4, %5 : f32
      attn.yield %6 : f32
    }
    %D = attn.size D
    %1 = arith.sitofp %D : i64 to f32
    %2 = math.sqrt %1 : f32
    %3 = arith.divf %0, %2 : f32
    attn.yield %3 : f32
  }
  %score = attn.tensor "score"(%m: M, %n: 64) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %c64_i64 = arith.constant 64 : i64
      %2 = attn.floordiv %m, %c64_i64
      %c64_i64_0 = arith.constant 64 : i64
      %3 = arith.muli %2, %c64_i64_0 : i64
      %4 = arith.addi %3, %n : i64
      %5 = attn.read %k[%4, %d] : !attn.tensor<[M, D], f32>
      %6 = arith.mulf %1, %5 : f32
      attn.yield %6 : f32
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%m: M, %n: 64) : f32 {
    %0 = attn.reduce softmax(%n_0: 64) at (%n) : f32 {
      %1 = attn.read %score[%m, %n_0] : !attn.tensor<[M, 64], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%n: 64) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, 64], f32>
      %c64_i64 = arith.constant 64 : i64
      %2 = attn.floordiv %m, %c64_i64
      %c64_i64_0 = arith.constant 64 : i64
      %3 = arith.muli %2, %c64_i64_0 : i64
      %4 = arith.addi %3, %n : i64
      %5 = attn.read %v[%4, %d] : !attn.tensor<[M, D], f32>
      %6 = arith.mulf %1, %5 : f32
      attn.yield %6 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, D], f32> as f32
}

// Digits of a key whose size is known are inside their dimensions, so the score is no tensor.
// CHECK-LABEL: attn.kernel @windows
// CHECK-NOT: attn.tensor "score"
// CHECK: attn.return
attn.kernel @windows(%q: !attn.tensor<[M, D], f32>,
                     %k: !attn.tensor<[7, 7, D], f32>, %v: !attn.tensor<[7, 7, E], f32>) {
  %score = attn.tensor "score"(%m: M, %i: 7, %j: 7) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%i, %j, %d] : !attn.tensor<[7, 7, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%m: M, %i_j: 49) : f32 {
    %0 = attn.reduce softmax(%i_j_0: 49) at (%i_j) : f32 {
      %1 = attn.size 7
      %2 = attn.floordiv %i_j_0, %1
      %3 = attn.size 7
      %4 = attn.mod %i_j_0, %3
      %5 = attn.read %score[%m, %2, %4] : !attn.tensor<[M, 7, 7], f32>
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%i_j: 49) : f32 {
      %1 = attn.size 7
      %2 = attn.floordiv %i_j, %1
      %3 = attn.size 7
      %4 = attn.mod %i_j, %3
      %5 = attn.read %weight[%m, %i_j] : !attn.tensor<[M, 49], f32>
      %6 = attn.read %v[%2, %4, %e] : !attn.tensor<[7, 7, E], f32>
      %7 = arith.mulf %5, %6 : f32
      attn.yield %7 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// Each row has 64 keys of its own, so its sum is no product of matrices, and would compute the scores again for each
// vector of columns: they stay.
// CHECK-LABEL: attn.kernel @few
// CHECK: attn.tensor "score"(%m: M, %n: 64)
// CHECK: attn.tensor "out"
// CHECK: attn.read %score[%m, %n]
// CHECK: attn.return
attn.kernel @few(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %score = attn.tensor "score"(%m: M, %n: 64) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %c64_i64 = arith.constant 64 : i64
      %2 = attn.floordiv %m, %c64_i64
      %c64_i64_0 = arith.constant 64 : i64
      %3 = arith.muli %2, %c64_i64_0 : i64
      %4 = arith.addi %3, %n : i64
      %5 = attn.read %k[%4, %d] : !attn.tensor<[N, D], f32>
      %6 = arith.mulf %1, %5 : f32
      attn.yield %6 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: 64) : f32 {
      %1 = attn.read %score[%m, %n] : !attn.tensor<[M, 64], f32>
      %2 = math.tanh %1 : f32
      %c64_i64 = arith.constant 64 : i64
      %3 = attn.floordiv %m, %c64_i64
      %c64_i64_0 = arith.constant 64 : i64
      %4 = arith.muli %3, %c64_i64_0 : i64
      %5 = arith.addi %4, %n : i64
      %6 = attn.read %v[%5, %e] : !attn.tensor<[N, E], f32>
      %7 = arith.mulf %2, %6 : f32
      attn.yield %7 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// A root of a size is a number that a loop begins with: a product of two vectors that is divided by it is not stored
// for that.
// CHECK-LABEL: attn.kernel @part
// CHECK-NOT: attn.tensor "part"
// CHECK: attn.return
attn.kernel @part(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %w: !attn.tensor<[M, N], f32>, %at: !attn.tensor<[N], i32>) {
  %part = attn.tensor "part"(%n: N, %d: D) : f32 {
    %c0_i64 = arith.constant 0 : i64
    %0 = attn.read %w[%c0_i64, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %k[%c0_i64, %d] : !attn.tensor<[N, D], f32>
    %2 = arith.mulf %0, %1 : f32
    %D = attn.size D
    %3 = arith.sitofp %D : i64 to f32
    %4 = math.sqrt %3 : f32
    %5 = arith.divf %2, %4 : f32
    attn.yield %5 : f32
  }
  %out = attn.tensor "out"(%a: M, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %part[%n, %d] : !attn.tensor<[N, D], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %at[%n] : !attn.tensor<[N], i32>
      %2 = arith.cmpi eq, %1, %a : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, D], f32> as f32
}

// Where what is summed is stored for each row and column, so are the totals of rows: in the sum they would be computed
// again for each column.
// CHECK-LABEL: attn.kernel @balanced
// CHECK: attn.tensor "row"(%m: M)
// CHECK: attn.tensor "column"(%n: N)
// CHECK: attn.read %row[%m]
// CHECK: attn.return
attn.kernel @balanced(%w: !attn.tensor<[M, N], f32>) {
  %row = attn.tensor "row"(%m: M) : f32 {
    %0 = attn.reduce sum(%j: N) : f32 {
      %1 = attn.read %w[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %column = attn.tensor "column"(%n: N) : f32 {
    %0 = attn.reduce sum(%m: M) : f32 {
      %1 = attn.read %w[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %row[%m] : !attn.tensor<[M], f32>
      %3 = arith.divf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %column : !attn.tensor<[N], f32> as f32
}

// Units of a layer are stored, whatever function they are of it: its weights lack the batch and the row.
// CHECK-LABEL: attn.kernel @units(
// CHECK-NEXT:    %unit = attn.tensor "unit"(%b: B, %t: T, %f: F) : f32 {
// CHECK:           attn.reduce sum(%c: C)
// CHECK:           math.exp
// CHECK:         %out = attn.tensor "out"(%b: B, %t: T, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%f: F) : f32 {
// CHECK-NEXT:        attn.read %unit[%b, %t, %f]
attn.kernel @units(%x: !attn.tensor<[B, T, C], f32>, %w: !attn.tensor<[C, F], f32>, %u: !attn.tensor<[F, E], f32>) {
  %hidden = attn.tensor "hidden"(%b: B, %t: T, %f: F) : f32 {
    %0 = attn.reduce sum(%c: C) : f32 {
      %1 = attn.read %x[%b, %t, %c] : !attn.tensor<[B, T, C], f32>
      %2 = attn.read %w[%c, %f] : !attn.tensor<[C, F], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %unit = attn.tensor "unit"(%b: B, %t: T, %f: F) : f32 {
    %0 = attn.read %hidden[%b, %t, %f] : !attn.tensor<[B, T, F], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %out = attn.tensor "out"(%b: B, %t: T, %e: E) : f32 {
    %0 = attn.reduce sum(%f: F) : f32 {
      %1 = attn.read %unit[%b, %t, %f] : !attn.tensor<[B, T, F], f32>
      %2 = attn.read %u[%f, %e] : !attn.tensor<[F, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[B, T, E], f32> as f32
}

// Dot products of queries and keys, which have the batch in common, are not, though they look like a projection.
// CHECK-LABEL: attn.kernel @dots(
// CHECK-NEXT:    %out = attn.tensor "out"(%b: B, %m: M, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%n: N) : f32 {
// CHECK-NEXT:        attn.reduce sum(%d: D)
attn.kernel @dots(%q: !attn.tensor<[B, M, D], f32>, %k: !attn.tensor<[B, N, D], f32>, %v: !attn.tensor<[B, N, E], f32>) {
  %dot = attn.tensor "dot"(%b: B, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%b, %m, %d] : !attn.tensor<[B, M, D], f32>
      %2 = attn.read %k[%b, %n, %d] : !attn.tensor<[B, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%b: B, %m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %dot[%b, %m, %n] : !attn.tensor<[B, M, N], f32>
      %2 = attn.read %v[%b, %n, %e] : !attn.tensor<[B, N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[B, M, E], f32> as f32
}
