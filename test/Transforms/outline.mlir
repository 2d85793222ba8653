// RUN: attn-opt %s --attn-outline | FileCheck %s
// RUN: attn-opt %s --attn-outline=differentiated | FileCheck %s --check-prefix=GRADIENT

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %y_logsumexp = attn.tensor "y_logsumexp"(%m: M) : f32 {
// CHECK-NEXT:      %0 = attn.reduce logsumexp(%n: N) : f32 {
// CHECK-NEXT:        %1 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
// CHECK-NEXT:        attn.yield %1 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %y = attn.tensor "y"(%m: M) : f32 {
// CHECK-NEXT:      %0 = attn.read %y_logsumexp[%m] : !attn.tensor<[M], f32>
// CHECK-NEXT:      %1 = arith.negf %0 : f32
// CHECK-NEXT:      attn.yield %1 : f32
attn.kernel @example(%x: !attn.tensor<[M, N], f32>) {
  %y = attn.tensor "y"(%m: M) : f32 {
    %0 = attn.reduce logsumexp(%n: N) : f32 {
      %2 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %2 : f32
    }
    %1 = arith.negf %0 : f32
    attn.yield %1 : f32
  }
  attn.return %y : !attn.tensor<[M], f32> as f32
}

// A softmax inside a sum is a tensor over the indices it uses, key last, with what it takes from around it (%scale); then
// the sum reads weights and goes too. Its name is free.
// CHECK-LABEL: attn.kernel @nested(
// CHECK-NEXT:    %out_softmax = attn.tensor "out_softmax"(%m: M, %n: N) : f32 {
// CHECK-DAG:       attn.size D
// CHECK-DAG:       arith.sitofp
// CHECK:           attn.reduce softmax(%j: N) at (%n)
// CHECK:         %out_sum_1 = attn.tensor "out_sum_1"(%m: M, %e: E) : f32 {
// CHECK-NEXT:      attn.reduce sum(%n: N)
// CHECK-NEXT:        attn.read %out_softmax[%m, %n]
// CHECK:         %out = attn.tensor "out"(%m: M, %e: E) : f32 {
// CHECK:           attn.read %out_sum_1[%m, %e]
// CHECK-NEXT:      attn.read %out_sum[%e]
attn.kernel @nested(%x: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>, %out_sum: !attn.tensor<[E], f32>,
                    %q: !attn.tensor<[M, D], f32>) {
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %D = attn.size D
    %scale = arith.sitofp %D : i64 to f32
    %0 = attn.reduce sum(%n: N) : f32 {
      %2 = attn.reduce softmax(%j: N) at (%n) : f32 {
        %5 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
        %6 = arith.divf %5, %scale : f32
        attn.yield %6 : f32
      }
      %3 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %4 = arith.mulf %2, %3 : f32
      attn.yield %4 : f32
    }
    %1 = attn.read %out_sum[%e] : !attn.tensor<[E], f32>
    %2 = arith.addf %0, %1 : f32
    attn.yield %2 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// A sum that is rounded when it is stored, or that reads a weight through another tensor.
// CHECK-LABEL: attn.kernel @through(
// CHECK:         attn.tensor "kept"
// CHECK-NEXT:      attn.read %weight[%m, %n]
// CHECK:         attn.tensor "out_sum"(%m: M) : f32
// CHECK:         attn.tensor "out"(%m: M) : f32
attn.kernel @through(%x: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %kept = attn.tensor "kept"(%m: M, %n: N) : f32 {
    %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = arith.mulf %0, %0 : f32
    attn.yield %1 : f32
  }
  %out = attn.tensor "out"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %kept[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %v[%n] : !attn.tensor<[N], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    %1 = arith.negf %0 : f32
    attn.yield %1 : f32
  }
  attn.return %out : !attn.tensor<[M], f32> as f32
}

// A softmax that is stored in a narrower type is computed in its own.
// CHECK-LABEL: attn.kernel @narrow(
// CHECK-NEXT:    attn.tensor "weight_softmax"(%n: N) : f32
// CHECK:         attn.tensor "weight"(%n: N) : f16 {
// CHECK-NEXT:      attn.read %weight_softmax[%n]
attn.kernel @narrow(%x: !attn.tensor<[N], f32>) {
  %weight = attn.tensor "weight"(%n: N) : f16 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%j] : !attn.tensor<[N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[N], f16> as f16
}

// Dot products stay, and so does a softmax over two indices.
// CHECK-LABEL: attn.kernel @stay(
// CHECK-NEXT:    attn.tensor "score"
// CHECK-NEXT:      attn.reduce sum
// CHECK:         attn.tensor "both"
// CHECK-NEXT:      attn.reduce softmax
// CHECK-NOT:     attn.tensor "
// CHECK:         attn.return
attn.kernel @stay(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>) {
  %score = attn.tensor "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    %1 = arith.negf %0 : f32
    attn.yield %1 : f32
  }
  %both = attn.tensor "both"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%i: M, %j: N) at (%m, %n) : f32 {
      %2 = attn.read %score[%i, %j] : !attn.tensor<[M, N], f32>
      attn.yield %2 : f32
    }
    %1 = arith.negf %0 : f32
    attn.yield %1 : f32
  }
  attn.return %both : !attn.tensor<[M, N], f32> as f32
}

// A sum that is the same for each row would be computed again for each of them; that of a row is computed once a row as
// it is, and what reads nothing for each of its elements would be larger than what it is made of.
// CHECK-LABEL: attn.kernel @columns(
// CHECK-NEXT:    %y_sum = attn.tensor "y_sum"(%n: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%i: M) : f32 {
// CHECK-NEXT:        %1 = attn.read %x[%i, %n] : !attn.tensor<[M, N], f32>
// CHECK-NEXT:        attn.yield %1 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %y = attn.tensor "y"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.read %x[%m, %n]
// CHECK-NEXT:      %1 = attn.read %y_sum[%n]
// CHECK-NEXT:      %2 = attn.reduce sum(%j: N) : f32 {
// CHECK:           %3 = arith.divf %0, %1 : f32
// CHECK:         %z = attn.tensor "z"(%h: H, %m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D) : f32 {
attn.kernel @columns(%x: !attn.tensor<[M, N], f32>, %a: !attn.tensor<[M, D], f32>, %b: !attn.tensor<[N, D], f32>, %c: !attn.tensor<[H], f32>) {
  %y = attn.tensor "y"(%m: M, %n: N) : f32 {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.reduce sum(%i: M) : f32 {
      %5 = attn.read %x[%i, %n] : !attn.tensor<[M, N], f32>
      attn.yield %5 : f32
    }
    %2 = attn.reduce sum(%j: N) : f32 {
      %5 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %5 : f32
    }
    %3 = arith.divf %0, %1 : f32
    %4 = arith.divf %3, %2 : f32
    attn.yield %4 : f32
  }
  %z = attn.tensor "z"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %3 = attn.read %a[%m, %d] : !attn.tensor<[M, D], f32>
      %4 = attn.read %b[%n, %d] : !attn.tensor<[N, D], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    %1 = attn.read %c[%h] : !attn.tensor<[H], f32>
    %2 = arith.mulf %0, %1 : f32
    attn.yield %2 : f32
  }
  attn.return %y : !attn.tensor<[M, N], f32> as f32, %z : !attn.tensor<[H, M, N], f32> as f32
}

// A sum of scores times values is the sum of a weighted sum, whatever is done with it (%g): a factor has a dot product, and
// the last index does not change it.
// CHECK-LABEL: attn.kernel @gate(
// CHECK-NEXT:    %out_sum = attn.tensor "out_sum"(%m: M, %e: E) : f32 {
// CHECK-NEXT:      attn.reduce sum(%n: N)
// CHECK-NEXT:        attn.reduce sum(%d: D)
// CHECK:         %out = attn.tensor "out"(%m: M, %e: E) : f32 {
// CHECK:           attn.read %out_sum[%m, %e]
//
// Where gradients come next, the dot product is a tensor, too: it is the same for every e.
// GRADIENT-LABEL: attn.kernel @gate(
// GRADIENT-NEXT:    %out_sum_sum = attn.tensor "out_sum_sum"(%m: M, %n: N) : f32 {
// GRADIENT-NEXT:      attn.reduce sum(%d: D)
// GRADIENT:         %out_sum = attn.tensor "out_sum"(%m: M, %e: E) : f32 {
// GRADIENT-NEXT:      attn.reduce sum(%n: N)
// GRADIENT-NEXT:        attn.read %out_sum_sum[%m, %n]
attn.kernel @gate(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>,
                  %g: !attn.tensor<[M, E], f32>) {
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %3 = attn.reduce sum(%d: D) : f32 {
        %6 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %7 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %8 = arith.mulf %6, %7 : f32
        attn.yield %8 : f32
      }
      %4 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    %1 = attn.read %g[%m, %e] : !attn.tensor<[M, E], f32>
    %2 = arith.mulf %0, %1 : f32
    attn.yield %2 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// So is all of a pair's weight: what else changes with both (%decay). The scale of a key (%c) is none of it.
// GRADIENT-LABEL: attn.kernel @decay(
// GRADIENT:         %out_weight = attn.tensor "out_weight"(%m: M, %n: N) : f32 {
// GRADIENT:           attn.read %out_sum[%m, %n]
// GRADIENT:           attn.read %decay[%m, %n]
// GRADIENT:         %out = attn.tensor "out"(%m: M, %e: E) : f32 {
// GRADIENT-NEXT:      attn.reduce sum(%n: N)
// GRADIENT:             attn.read %out_weight[%m, %n]
// GRADIENT:             attn.read %c[%n]
// GRADIENT:             attn.read %v[%n, %e]
attn.kernel @decay(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>,
                   %decay: !attn.tensor<[M, N], f32>, %c: !attn.tensor<[N], f32>) {
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %8 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %9 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %10 = arith.mulf %8, %9 : f32
        attn.yield %10 : f32
      }
      %2 = attn.read %decay[%m, %n] : !attn.tensor<[M, N], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %c[%n] : !attn.tensor<[N], f32>
      %5 = arith.mulf %3, %4 : f32
      %6 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %7 = arith.mulf %5, %6 : f32
      attn.yield %7 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// And a sum over the heads of a pair, which one matrix product computes for all heads; %q and %k make a score here.
// CHECK-LABEL: attn.kernel @mixed_heads(
// CHECK:         %weight_sum = attn.tensor "weight_sum"(%h: H, %m: M, %n: N) : f32 {
// CHECK-NEXT:      attn.reduce sum(%g: H)
// CHECK:         %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 {
// CHECK-NEXT:      attn.read %weight_sum[%h, %m, %n]
// CHECK-NEXT:      attn.reduce sum(%d: D)
attn.kernel @mixed_heads(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %x: !attn.tensor<[H, M, D], f32>,
                         %w: !attn.tensor<[H, H], f32>) {
  %dot = attn.tensor "dot"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %x[%h, %m, %d] : !attn.tensor<[H, M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %weight = attn.tensor "weight"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%g: H) : f32 {
      %3 = attn.read %w[%h, %g] : !attn.tensor<[H, H], f32>
      %4 = attn.read %dot[%g, %m, %n] : !attn.tensor<[H, M, N], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    %1 = attn.reduce sum(%d: D) : f32 {
      %3 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %4 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    %2 = arith.addf %0, %1 : f32
    attn.yield %2 : f32
  }
  attn.return %weight : !attn.tensor<[H, M, N], f32> as f32
}

// So does a sum in a sink: plans read a number of each row there.
// CHECK-LABEL: attn.kernel @sink(
// CHECK:         %weight_sum = attn.tensor "weight_sum"(%m: M) : f32 {
// CHECK:         %weight = attn.tensor "weight"
// CHECK-NEXT:      [[SINK:%.*]] = attn.read %weight_sum[%m]
// CHECK-NEXT:      attn.reduce softmax(%i: N) at (%n) sink [[SINK]]
attn.kernel @sink(%x: !attn.tensor<[M, N], f32>, %s: !attn.tensor<[M, D], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %2 = attn.read %s[%m, %d] : !attn.tensor<[M, D], f32>
      attn.yield %2 : f32
    }
    %1 = attn.reduce softmax(%i: N) at (%n) sink %0 : f32 {
      %2 = attn.read %x[%m, %i] : !attn.tensor<[M, N], f32>
      attn.yield %2 : f32
    }
    attn.yield %1 : f32
  }
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// For gradients, a sum that is the same for some index of the formula around it, also where it reads a part of a matrix
// from some column on.
// GRADIENT-LABEL: attn.kernel @part(
// GRADIENT:         attn.tensor "layer_sum"(%u: U, %m: M)
// GRADIENT:           attn.read %w[%u, %{{[0-9]+}}]
// GRADIENT:         attn.tensor "layer"(%b: B, %u: U, %m: M)
// GRADIENT:           attn.read %layer_sum[%u, %m]
attn.kernel @part(%s: !attn.tensor<[B, M], f32>, %a: !attn.tensor<[H, M], f32>, %w: !attn.tensor<[U, 2 * H], f32>) {
  %layer = attn.tensor "layer"(%b: B, %u: U, %m: M) : f32 {
    %0 = attn.reduce sum(%h: H) : f32 {
      %size = attn.size H
      %3 = arith.addi %size, %h : i64
      %4 = attn.read %w[%u, %3] : !attn.tensor<[U, 2 * H], f32>
      %5 = attn.read %a[%h, %m] : !attn.tensor<[H, M], f32>
      %6 = arith.mulf %4, %5 : f32
      attn.yield %6 : f32
    }
    %1 = attn.read %s[%b, %m] : !attn.tensor<[B, M], f32>
    %2 = arith.addf %0, %1 : f32
    attn.yield %2 : f32
  }
  attn.return %layer : !attn.tensor<[B, U, M], f32> as f32
}

// A hidden layer, a row of a batch times a matrix inside of a function in another sum, but not the products of queries
// and keys, which are as many as there are pairs.
// CHECK-LABEL: attn.kernel @hidden(
// CHECK:         attn.tensor "score_sum"(%b: B, %t: T, %u: U)
// CHECK:         attn.tensor "score"(%b: B, %t: T)
// CHECK:           attn.read %score_sum[%b, %t, %u]
// CHECK:         attn.tensor "total"(%b: B, %t: T)
// CHECK-NOT:       attn.read %total
// CHECK:           attn.reduce sum(%d: D)
attn.kernel @hidden(%x: !attn.tensor<[B, T, D], f32>, %k: !attn.tensor<[B, U, D], f32>, %w: !attn.tensor<[U, D], f32>) {
  %score = attn.tensor "score"(%b: B, %t: T) : f32 {
    %0 = attn.reduce sum(%u: U) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %3 = attn.read %w[%u, %d] : !attn.tensor<[U, D], f32>
        %4 = attn.read %x[%b, %t, %d] : !attn.tensor<[B, T, D], f32>
        %5 = arith.mulf %3, %4 : f32
        attn.yield %5 : f32
      }
      %2 = math.tanh %1 : f32
      attn.yield %2 : f32
    }
    attn.yield %0 : f32
  }
  %total = attn.tensor "total"(%b: B, %t: T) : f32 {
    %0 = attn.reduce sum(%u: U) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %3 = attn.read %k[%b, %u, %d] : !attn.tensor<[B, U, D], f32>
        %4 = attn.read %x[%b, %t, %d] : !attn.tensor<[B, T, D], f32>
        %5 = arith.mulf %3, %4 : f32
        attn.yield %5 : f32
      }
      %2 = math.tanh %1 : f32
      attn.yield %2 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %score : !attn.tensor<[B, T], f32> as f32, %total : !attn.tensor<[B, T], f32> as f32
}
