// RUN: attn-opt %s --attn-hoist --cse --canonicalize | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %score_key = attn.tensor "score_key"(%n: N, %d: D) : f32 {
// CHECK-NEXT:      %0 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:      %1 = math.exp %0 : f32
// CHECK-NEXT:      attn.yield %1 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %score = attn.score "score"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
// CHECK-NEXT:        %2 = attn.read %score_key[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
// CHECK-NEXT:    attn.return
attn.kernel @example(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = math.exp %2 : f32
      %4 = arith.mulf %1, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// Features of keys, which the state reads for each column of the values, are computed once, be they cheap or not. Those
// of one number for each element are not stored.
// CHECK-LABEL: attn.kernel @linear(
// CHECK-NEXT:    %state_feature = attn.tensor "state_feature"(%n: N, %d: D) : f32 {
// CHECK-NEXT:      %0 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:      %1 = math.exp %0 : f32
// CHECK-NEXT:      attn.yield %1 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %state = attn.tensor "state"(%d: D, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%n: N) : f32 {
// CHECK-NEXT:        %1 = attn.read %state_feature[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
// CHECK:         %total = attn.tensor "total"
// CHECK-NEXT:      attn.reduce sum
// CHECK-NEXT:        attn.read %k
// CHECK-NEXT:        math.exp
// CHECK:         %cheap_feature = attn.tensor "cheap_feature"(%n: N, %d: D)
// CHECK-NEXT:      attn.read %k
// CHECK-NEXT:      math.absf
// CHECK:         %cheap = attn.tensor "cheap"
// CHECK-NEXT:      attn.reduce sum
// CHECK-NEXT:        attn.read %cheap_feature
// CHECK-NEXT:        attn.read %v
attn.kernel @linear(%k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %state = attn.tensor "state"(%d: D, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %2 = math.exp %1 : f32
      %3 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %4 = arith.mulf %2, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  %total = attn.tensor "total"(%d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %2 = math.exp %1 : f32
      attn.yield %2 : f32
    }
    attn.yield %0 : f32
  }
  %cheap = attn.tensor "cheap"(%d: D, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %2 = math.absf %1 : f32
      %3 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %4 = arith.mulf %2, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %state : !attn.tensor<[D, E], f32> as f32, %total : !attn.tensor<[D], f32> as f32, %cheap : !attn.tensor<[D, E], f32> as f32
}

// A row that is normalised before a projection is divided once for all columns of that. The tensor it is read from
// becomes part of it, as nobody else reads that.
// CHECK-LABEL: attn.kernel @normalised(
// CHECK:         %out_feature = attn.tensor "out_feature"(%n: N, %d: D) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%c: D) : f32 {
// CHECK:           %1 = attn.read %norm[%n] : !attn.tensor<[N], f32>
// CHECK-NEXT:      %2 = arith.divf %0, %1 : f32
// CHECK-NEXT:      attn.yield %2 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %out = attn.tensor "out"(%n: N, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %1 = attn.read %out_feature[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %2 = attn.read %w[%d, %e] : !attn.tensor<[D, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
attn.kernel @normalised(%x: !attn.tensor<[N, D], f32>, %norm: !attn.tensor<[N], f32>, %u: !attn.tensor<[D, D], f32>, %w: !attn.tensor<[D, E], f32>) {
  %y = attn.tensor "y"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%c: D) : f32 {
      %1 = attn.read %x[%n, %c] : !attn.tensor<[N, D], f32>
      %2 = attn.read %u[%c, %d] : !attn.tensor<[D, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%n: N, %e: E) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %y[%n, %d] : !attn.tensor<[N, D], f32>
      %2 = attn.read %norm[%n] : !attn.tensor<[N], f32>
      %3 = arith.divf %1, %2 : f32
      %4 = attn.read %w[%d, %e] : !attn.tensor<[D, E], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[N, E], f32> as f32
}

// A sum whose terms have places stays the sole one of its statement: beside another it would visit each term at each
// place.
// CHECK-LABEL: attn.kernel @segments(
// CHECK-NEXT:    %z = attn.tensor "z"(%t: T, %d: D) : f32 {
// CHECK:         %out_feature = attn.tensor "out_feature"(%t: T, %d: D) : f32 {
// CHECK:           %0 = attn.reduce sum(%n: N) : f32 {
// CHECK:           %1 = attn.read %z[%t, %d] : !attn.tensor<[T, D], f32>
// CHECK-NEXT:      %2 = arith.mulf %0, %1 : f32
// CHECK-NEXT:      attn.yield %2 : f32
attn.kernel @segments(%x: !attn.tensor<[N, D], f32>, %id: !attn.tensor<[N], i32>, %u: !attn.tensor<[T, C], f32>, %k: !attn.tensor<[C, D], f32>, %w: !attn.tensor<[D, E], f32>) {
  %y = attn.tensor "y"(%t: T, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %x[%n, %d] : !attn.tensor<[N, D], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %id[%n] : !attn.tensor<[N], i32>
      %c0 = arith.constant 0 : i64
      %2 = attn.size T - 1
      %3 = arith.minsi %1, %2 : i64
      %4 = arith.maxsi %3, %c0 : i64
      %5 = arith.cmpi eq, %4, %t : i64
      attn.yield %5 : i1
    }
    attn.yield %0 : f32
  }
  %z = attn.tensor "z"(%t: T, %d: D) : f32 {
    %0 = attn.reduce sum(%c: C) : f32 {
      %1 = attn.read %u[%t, %c] : !attn.tensor<[T, C], f32>
      %2 = attn.read %k[%c, %d] : !attn.tensor<[C, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%t: T, %e: E) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %y[%t, %d] : !attn.tensor<[T, D], f32>
      %2 = attn.read %z[%t, %d] : !attn.tensor<[T, D], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %w[%d, %e] : !attn.tensor<[D, E], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[T, E], f32> as f32
}

// Nothing is stored that is larger than all that is there.
// CHECK-LABEL: attn.kernel @larger(
// CHECK-NOT:     feature
// CHECK:         attn.return
attn.kernel @larger(%far: !attn.tensor<[M], f32>, %at: !attn.tensor<[N], f32>, %v: !attn.tensor<[N, E], f32>) {
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %far[%m] : !attn.tensor<[M], f32>
      %2 = attn.read %at[%n] : !attn.tensor<[N], f32>
      %3 = arith.subf %1, %2 : f32
      %4 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// The gradient of a layer with several parts is put together once, as it is as large as the layer.
// CHECK-LABEL: attn.kernel @parts(
// CHECK:         %grad_x_feature = attn.tensor "grad_x_feature"(%b: B, %t: T, %j: 2, %d: D) : f32 {
// CHECK:           arith.select
// CHECK:           arith.addf
// CHECK:         %grad_x = attn.tensor "grad_x"(%b: B, %t: T, %c: C) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%j: 2, %d: D) : f32 {
// CHECK-NEXT:        %1 = attn.read %grad_x_feature[%b, %t, %j, %d]
attn.kernel @parts(%layer: !attn.tensor<[B, T, 2, D], f32>, %first: !attn.tensor<[B, T, D], f32>, %second: !attn.tensor<[B, T, D], f32>, %w: !attn.tensor<[C, 2, D], f32>) {
  %grad_x = attn.tensor "grad_x"(%b: B, %t: T, %c: C) : f32 {
    %0 = attn.reduce sum(%j: 2, %d: D) : f32 {
      %cst = arith.constant 0.0 : f32
      %zero = arith.constant 0 : i64
      %1 = arith.cmpi eq, %j, %zero : i64
      %2 = attn.read %first[%b, %t, %d] : !attn.tensor<[B, T, D], f32>
      %3 = arith.select %1, %2, %cst : f32
      %4 = attn.read %second[%b, %t, %d] : !attn.tensor<[B, T, D], f32>
      %5 = arith.select %1, %cst, %4 : f32
      %6 = arith.addf %3, %5 : f32
      %7 = attn.read %w[%c, %j, %d] : !attn.tensor<[C, 2, D], f32>
      %8 = arith.mulf %6, %7 : f32
      attn.yield %8 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_x : !attn.tensor<[B, T, C], f32> as f32
}

// A reduction that is the same for a row of a matrix product is computed once; where there is no product, a row has it once.
// CHECK-LABEL: attn.kernel @rows(
// CHECK-NEXT:    %feature_row = attn.tensor "feature_row"(%n: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce max(%d: D) : f32 {
// CHECK-NEXT:        %1 = attn.read %x[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        attn.yield %1 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %feature = attn.tensor "feature"(%n: N, %r: R) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %3 = attn.read %x[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %4 = attn.read %w[%d, %r] : !attn.tensor<[D, R], f32>
// CHECK-NEXT:        %5 = arith.mulf %3, %4 : f32
// CHECK-NEXT:        attn.yield %5 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %1 = attn.read %feature_row[%n] : !attn.tensor<[N], f32>
// CHECK-NEXT:      %2 = arith.subf %0, %1 : f32
// CHECK-NEXT:      attn.yield %2 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %normed = attn.tensor "normed"(%n: N, %d: D) : f32 {
// CHECK-NEXT:      %0 = attn.read %x[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:      %1 = attn.reduce max(%c: D) : f32 {
// CHECK-NEXT:        %3 = attn.read %x[%n, %c] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %2 = arith.subf %0, %1 : f32
// CHECK-NEXT:      attn.yield %2 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %feature : !attn.tensor<[N, R], f32> as f32, %normed : !attn.tensor<[N, D], f32> as f32
attn.kernel @rows(%x: !attn.tensor<[N, D], f32>, %w: !attn.tensor<[D, R], f32>) {
  %feature = attn.tensor "feature"(%n: N, %r: R) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %3 = attn.read %x[%n, %d] : !attn.tensor<[N, D], f32>
      %4 = attn.read %w[%d, %r] : !attn.tensor<[D, R], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    %1 = attn.reduce max(%d: D) : f32 {
      %3 = attn.read %x[%n, %d] : !attn.tensor<[N, D], f32>
      attn.yield %3 : f32
    }
    %2 = arith.subf %0, %1 : f32
    attn.yield %2 : f32
  }
  %normed = attn.tensor "normed"(%n: N, %d: D) : f32 {
    %0 = attn.read %x[%n, %d] : !attn.tensor<[N, D], f32>
    %1 = attn.reduce max(%c: D) : f32 {
      %3 = attn.read %x[%n, %c] : !attn.tensor<[N, D], f32>
      attn.yield %3 : f32
    }
    %2 = arith.subf %0, %1 : f32
    attn.yield %2 : f32
  }
  attn.return %feature : !attn.tensor<[N, R], f32> as f32, %normed : !attn.tensor<[N, D], f32> as f32
}

// A reduction that is the same for all terms of another one is computed once, not once for each term.
// CHECK-LABEL: attn.kernel @terms
// CHECK: attn.tensor "total_row"(%m: M)
// CHECK: attn.tensor "total"(%m: M)
// CHECK: attn.reduce sum(%n: N)
// CHECK-NOT: attn.reduce
// CHECK: attn.read %total_row[%m]
// CHECK: attn.return
attn.kernel @terms(%s: !attn.tensor<[M, N], f32>) {
  %total = attn.tensor "total"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %s[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.reduce sum(%j: N) : f32 {
        %5 = attn.read %s[%m, %j] : !attn.tensor<[M, N], f32>
        %6 = arith.mulf %5, %5 : f32
        attn.yield %6 : f32
      }
      %3 = math.sqrt %2 : f32
      %4 = arith.divf %1, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %total : !attn.tensor<[M], f32> as f32
}
