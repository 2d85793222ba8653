// RUN: attn-opt %s --attn-split-sums | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK:         %out_first = attn.tensor "out_first"(%m: M, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%n: N) : f32 {
// CHECK-NEXT:        %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
// CHECK-NEXT:        %2 = attn.read %first[%m, %n] : !attn.tensor<[M, N], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %out_second = attn.tensor "out_second"(%m: M, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%n: N) : f32 {
// CHECK-NEXT:        %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
// CHECK-NEXT:        %2 = attn.read %second[%m, %n] : !attn.tensor<[M, N], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %out = attn.tensor "out"(%m: M, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.read %out_first[%m, %e] : !attn.tensor<[M, E], f32>
// CHECK-NEXT:      %1 = attn.read %out_second[%m, %e] : !attn.tensor<[M, E], f32>
// CHECK-NEXT:      %2 = attn.read %lambda[] : !attn.tensor<[], f32>
// CHECK-NEXT:      %3 = arith.negf %2 : f32
// CHECK-NEXT:      %4 = arith.mulf %1, %3 : f32
// CHECK-NEXT:      %5 = arith.addf %0, %4 : f32
// CHECK-NEXT:      attn.yield %5 : f32
attn.kernel @example(%x: !attn.tensor<[M, N], f32>, %y: !attn.tensor<[M, N], f32>, %lambda: !attn.tensor<[], f32>, %v: !attn.tensor<[N, E], f32>) {
  %first = attn.tensor "first"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %second = attn.tensor "second"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %y[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %first[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %lambda[] : !attn.tensor<[], f32>
      %3 = attn.read %second[%m, %n] : !attn.tensor<[M, N], f32>
      %4 = arith.mulf %2, %3 : f32
      %5 = arith.subf %1, %4 : f32
      %6 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %7 = arith.mulf %5, %6 : f32
      attn.yield %7 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// Weights that were mixed in a statement of their own are taken apart, too, with the sum's condition and a gate of the key
// inside.
// CHECK-LABEL: attn.kernel @mixture(
// CHECK:         %sum_first = attn.tensor "sum_first"(%m: M, %e: E) : f32 {
// CHECK:           attn.reduce sum(%n: N) : f32 {
// CHECK:             attn.read %first[%m, %n]
// CHECK:             attn.read %gate[%n]
// CHECK:           } where {
// CHECK-NEXT:        arith.cmpi sle, %n, %m
// CHECK:         %sum_second = attn.tensor "sum_second"(%m: M, %e: E) : f32 {
// CHECK:             attn.read %second[%m, %n]
// CHECK-NOT:         attn.read %gate
// CHECK:           } where {
// CHECK:         %sum = attn.tensor "sum"(%m: M, %e: E) : f32 {
// CHECK-NEXT:      attn.read %sum_first
// CHECK-NEXT:      attn.read %sum_second
attn.kernel @mixture(%x: !attn.tensor<[M, N], f32>, %y: !attn.tensor<[M, N], f32>, %gate: !attn.tensor<[N], f32>, %v: !attn.tensor<[N, E], f32>) {
  %first = attn.tensor "first"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %second = attn.tensor "second"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %y[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %mixed = attn.tensor "mixed"(%m: M, %n: N) : f32 {
    %0 = attn.read %first[%m, %n] : !attn.tensor<[M, N], f32>
    %1 = attn.read %gate[%n] : !attn.tensor<[N], f32>
    %2 = arith.mulf %0, %1 : f32
    %3 = attn.read %second[%m, %n] : !attn.tensor<[M, N], f32>
    %4 = arith.addf %2, %3 : f32
    attn.yield %4 : f32
  }
  %sum = attn.tensor "sum"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %mixed[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %sum : !attn.tensor<[M, E], f32> as f32
}

// Not a sum of weights: their product. Left as it is.
// CHECK-LABEL: attn.kernel @product(
// CHECK:         attn.tensor "out"
// CHECK-NEXT:      attn.reduce sum(%n: N)
// CHECK-NEXT:        attn.read %first
// CHECK-NEXT:        attn.read %second
attn.kernel @product(%x: !attn.tensor<[M, N], f32>, %y: !attn.tensor<[M, N], f32>, %v: !attn.tensor<[N, E], f32>) {
  %first = attn.tensor "first"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %second = attn.tensor "second"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %y[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %first[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %second[%m, %n] : !attn.tensor<[M, N], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}
