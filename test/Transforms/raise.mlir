// RUN: attn-opt %s --attn-raise --cse --canonicalize | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %weight_score = attn.score "weight_score"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %weight, %logsumexp = attn.softmax "weight", ""(%weight_score) : !attn.tensor<[M, N], f32>
// CHECK-NEXT:    %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
// CHECK-NEXT:      %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
// CHECK-NEXT:      %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
// CHECK-NEXT:      attn.yield %0, %1 : f32, f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %out
attn.kernel @example(%x: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
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

// A log-sum-exp of the same scores, mask and sink shares the softmax, in whichever order they stand.
// CHECK-LABEL: attn.kernel @shared(
// CHECK:         %lse_score = attn.score "lse_score"(%b: B, %m: M, %j: N) : f32
// CHECK:         %lse_mask = attn.mask "lse_mask"(%b: B, %m: M, %j: N) : i1
// CHECK:         %lse_sink = attn.tensor "lse_sink"(%b: B, %m: M) : f32 {
// CHECK-NEXT:      %0 = attn.read %s[%m] : !attn.tensor<[M], f32>
// CHECK:         %weight, %lse = attn.softmax "weight", "lse"(%lse_score where %lse_mask sink %lse_sink)
// CHECK-NEXT:    attn.return %weight : !attn.tensor<[B, M, N], f32> as f32, %lse
attn.kernel @shared(%x: !attn.tensor<[B, M, N], f32>, %valid: !attn.tensor<[B], i32>, %s: !attn.tensor<[M], f32>) {
  %lse = attn.tensor "lse"(%b: B, %m: M) : f32 {
    %sink = attn.read %s[%m] : !attn.tensor<[M], f32>
    %0 = attn.reduce logsumexp(%j: N) sink %sink : f32 {
      %1 = attn.read %x[%b, %m, %j] : !attn.tensor<[B, M, N], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %valid[%b] : !attn.tensor<[B], i32>
      %2 = arith.cmpi slt, %j, %1 : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%b: B, %m: M, %n: N) : f32 {
    %sink = attn.read %s[%m] : !attn.tensor<[M], f32>
    %0 = attn.reduce softmax(%j: N) at (%n) sink %sink : f32 {
      %1 = attn.read %x[%b, %m, %j] : !attn.tensor<[B, M, N], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %valid[%b] : !attn.tensor<[B], i32>
      %2 = arith.cmpi slt, %j, %1 : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[B, M, N], f32> as f32, %lse : !attn.tensor<[B, M], f32> as f32
}

// Another mask is another softmax.
// CHECK-LABEL: attn.kernel @not_shared(
// CHECK:         attn.softmax "weight", ""(%weight_score)
// CHECK:         attn.softmax "", "lse"(%lse_score where %lse_mask)
attn.kernel @not_shared(%x: !attn.tensor<[M, N], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %lse = attn.tensor "lse"(%m: M) : f32 {
    %0 = attn.reduce logsumexp(%j: N) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      %1 = arith.cmpi sle, %j, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[M, N], f32> as f32, %lse : !attn.tensor<[M], f32> as f32
}

// The key is not the last index: readers are permuted, and the tensor stays for its output.
// CHECK-LABEL: attn.kernel @permuted(
// CHECK:         attn.score "weight_score"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.read %x[%n, %m]
// CHECK:         %weight, %logsumexp = attn.softmax "", ""(%weight_score)
// CHECK:         %weight_0 = attn.tensor "weight"(%n: N, %m: M) : f32 {
// CHECK-NEXT:      %0 = attn.read %weight[%m, %n]
// CHECK:         attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
// CHECK-NEXT:      %0 = attn.read %weight[%m, %n]
// CHECK:         attn.return %weight_0
attn.kernel @permuted(%x: !attn.tensor<[N, M], f32>, %v: !attn.tensor<[N, E], f32>) {
  %weight = attn.tensor "weight"(%n: N, %m: M) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%j, %m] : !attn.tensor<[N, M], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%n, %m] : !attn.tensor<[N, M], f32>
      %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[N, M], f32> as f32, %out : !attn.tensor<[M, E], f32> as f32
}

// Factors go where they belong: the head's scale to the weight, the key's scale to the value. Grouped values know the
// head, so the query is the last index that they do not know.
// CHECK-LABEL: attn.kernel @factors(
// CHECK:         attn.weighted_sum "out"(%h: H, %m: M, %e: E) over (%n: N) query 1 : f32 {
// CHECK-DAG:       [[W:%.*]] = attn.read %weight[%h, %m, %n]
// CHECK-DAG:       [[G:%.*]] = attn.read %gain[%h]
// CHECK:           [[WG:%.*]] = arith.mulf [[W]], [[G]]
// CHECK:           [[NEG:%.*]] = arith.negf [[WG]]
// CHECK:           [[V:%.*]] = arith.mulf
// CHECK:           attn.yield [[NEG]], [[V]] : f32, f32
// CHECK-NEXT:    } where {
// CHECK-NEXT:      %0 = arith.cmpi sle, %n, %m : i64
attn.kernel @factors(%x: !attn.tensor<[H, M, N], f32>, %v: !attn.tensor<[G, N, E], i8>, %scale: !attn.tensor<[N], f32>,
                     %gain: !attn.tensor<[H], f32>) {
  %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%h, %m, %j] : !attn.tensor<[H, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%h: H, %m: M, %e: E) : f32 {
    %group = attn.size H floordiv G
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      %2 = attn.read %gain[%h] : !attn.tensor<[H], f32>
      %g = attn.floordiv %h, %group
      %3 = attn.read %v[%g, %n, %e] : !attn.tensor<[G, N, E], i8>
      %4 = arith.sitofp %3 : i64 to f32
      %5 = attn.read %scale[%n] : !attn.tensor<[N], f32>
      %6 = arith.mulf %1, %2 : f32
      %7 = arith.mulf %4, %5 : f32
      %8 = arith.negf %7 : f32
      %9 = arith.mulf %6, %8 : f32
      attn.yield %9 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[H, M, E], f32> as f32
}

// Without a value index the sum gets one of size 1, so that no weights are stored for it.
// CHECK-LABEL: attn.kernel @no_value_index(
// CHECK:         [[SUM:%.*]] = attn.weighted_sum "out_sum"(%m: M, %one: 1) over (%n: N) query 0 : f32 {
// CHECK-NEXT:      [[W:%.*]] = attn.read %weight[%m, %n]
// CHECK-NEXT:      [[Y:%.*]] = attn.read %y[%n]
// CHECK-NEXT:      attn.yield [[W]], [[Y]] : f32, f32
// CHECK:         %out = attn.tensor "out"(%m: M) : f32 {
// CHECK-NEXT:      [[ZERO:%.*]] = arith.constant 0 : i64
// CHECK-NEXT:      [[ELEMENT:%.*]] = attn.read [[SUM]][%m, [[ZERO]]]
// CHECK-NEXT:      attn.yield [[ELEMENT]] : f32
attn.kernel @no_value_index(%x: !attn.tensor<[M, N], f32>, %y: !attn.tensor<[N], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %y[%n] : !attn.tensor<[N], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M], f32> as f32
}

// A matrix product stays a tensor.
// CHECK-LABEL: attn.kernel @product(
// CHECK-NOT:     attn.weighted_sum
// CHECK:         attn.tensor "out"
attn.kernel @product(%x: !attn.tensor<[B, I, K], f32>, %y: !attn.tensor<[B, K, J], f32>) {
  %out = attn.tensor "out"(%b: B, %i: I, %j: J) : f32 {
    %0 = attn.reduce sum(%k: K) : f32 {
      %1 = attn.read %x[%b, %i, %k] : !attn.tensor<[B, I, K], f32>
      %2 = attn.read %y[%b, %k, %j] : !attn.tensor<[B, K, J], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[B, I, J], f32> as f32
}

// Weights that are returned without a mask are in memory: what sums them stays a product of matrices.
// CHECK-LABEL: attn.kernel @returned_weights(
// CHECK:         %weight, %logsumexp = attn.softmax "weight", ""(%weight_score)
// CHECK-NEXT:    %out = attn.tensor "out"(%m: M, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%n: N) : f32 {
// CHECK-NOT:     attn.weighted_sum
// CHECK:         attn.return %out : {{.*}}, %weight :
attn.kernel @returned_weights(%x: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
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
  attn.return %out : !attn.tensor<[M, E], f32> as f32, %weight : !attn.tensor<[M, N], f32> as f32
}

// The value index is the first: a sum that has it last, and a copy.
// CHECK-LABEL: attn.kernel @columns_first(
// CHECK:         [[SUM:%.*]] = attn.weighted_sum "out_sum"(%h: H, %m: M, %e: E) over (%n: N) query 1 : f32 {
// CHECK-NEXT:      %0 = attn.read %weight[%h, %m, %n]
// CHECK-NEXT:      %1 = attn.read %v[%n, %e]
// CHECK-NEXT:      attn.yield %0, %1 : f32, f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %out = attn.tensor "out"(%e: E, %h: H, %m: M) : f32 {
// CHECK-NEXT:      %0 = attn.read [[SUM]][%h, %m, %e]
// CHECK-NEXT:      attn.yield %0 : f32
attn.kernel @columns_first(%x: !attn.tensor<[H, M, N], f32>, %v: !attn.tensor<[N, E], f32>) {
  %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%h, %m, %j] : !attn.tensor<[H, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%e: E, %h: H, %m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[E, H, M], f32> as f32
}

// A sum over heads is of weights of different rows: they are stored.
// CHECK-LABEL: attn.kernel @mixed_heads(
// CHECK:         attn.softmax "weight"
// CHECK-NOT:     attn.weighted_sum
// CHECK:         attn.tensor "mixed"
attn.kernel @mixed_heads(%x: !attn.tensor<[H, M, N], f32>, %mix: !attn.tensor<[H, H], f32>) {
  %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%h, %m, %j] : !attn.tensor<[H, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %mixed = attn.tensor "mixed"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%g: H) : f32 {
      %1 = attn.read %mix[%h, %g] : !attn.tensor<[H, H], f32>
      %2 = attn.read %weight[%g, %m, %n] : !attn.tensor<[H, M, N], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %mixed : !attn.tensor<[H, M, N], f32> as f32
}

// Keys are of a component (c), so the query is a row (m): it has the same keys for all of its values.
// CHECK-LABEL: attn.kernel @components(
// CHECK:         attn.weighted_sum "out"(%m: M, %c: C, %e: E) over (%n: N) query 0 : f32 {
attn.kernel @components(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[C, N, D], f32>,
                        %v: !attn.tensor<[N, E], f32>) {
  %out = attn.tensor "out"(%m: M, %c: C, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %5 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %6 = attn.read %k[%c, %n, %d] : !attn.tensor<[C, N, D], f32>
        %7 = arith.mulf %5, %6 : f32
        attn.yield %7 : f32
      }
      %2 = math.tanh %1 : f32
      %3 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %4 = arith.mulf %2, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, C, E], f32> as f32
}

// A total has no values: its terms are weights of 1.
// CHECK-LABEL: attn.kernel @total(
// CHECK:         %[[SUM:.*]] = attn.weighted_sum "total_sum"(%m: M, %one: 1) over (%n: N) query 0 : f32 {
// CHECK:           %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK:           %[[WEIGHT:.*]] = math.exp
// CHECK:           attn.yield %[[WEIGHT]], %[[ONE]] : f32, f32
// CHECK:         attn.tensor "total"(%m: M)
// CHECK:           attn.read %[[SUM]][%m, %c0_i64]
attn.kernel @total(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>) {
  %total = attn.tensor "total"(%m: M) : f32 attributes {attn.total} {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %4 = arith.mulf %2, %3 : f32
        attn.yield %4 : f32
      }
      %2 = math.exp %1 : f32
      attn.yield %2 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %total : !attn.tensor<[M], f32> as f32
}

// A value depends on the query through a row of a table, which the distance chooses: it has a query all the same.
// CHECK-LABEL: attn.kernel @rows_of_values(
// CHECK:         attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
// Another row of another table for each pair is a value of rows without a query.
// CHECK-LABEL: attn.kernel @rows_of_pairs(
// CHECK:         attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query -1 : f32 {
attn.kernel @rows_of_values(%x: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>, %r: !attn.tensor<[R, E], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.subi %n, %m : i64
      %4 = attn.read %r[%3, %e] : !attn.tensor<[R, E], f32>
      %5 = arith.addf %2, %4 : f32
      %6 = arith.mulf %1, %5 : f32
      attn.yield %6 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

attn.kernel @rows_of_pairs(%x: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>, %r: !attn.tensor<[R, E], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.muli %n, %m : i64
      %4 = attn.read %r[%3, %e] : !attn.tensor<[R, E], f32>
      %5 = arith.addf %2, %4 : f32
      %6 = arith.mulf %1, %5 : f32
      attn.yield %6 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}
