// RUN: attn-opt %s --attn-state-sums | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %out = attn.tensor "out"(%n: N, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%i: N) : f32 {
// CHECK-NEXT:        %1 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:          %4 = attn.read %q[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:          %5 = attn.read %k[%i, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:          %6 = arith.mulf %4, %5 : f32
// CHECK-NEXT:          attn.yield %6 : f32
// CHECK-NEXT:        }
// CHECK-NEXT:        %2 = attn.read %v[%i, %e] : !attn.tensor<[N, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        %1 = arith.cmpi sle, %i, %n : i64
// CHECK-NEXT:        attn.yield %1 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %out : !attn.tensor<[N, E], f32> as f32
attn.kernel @example(%q: !attn.tensor<[N, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %state = attn.tensor "state"(%n: N, %d: D, %e: E) : f32 {
    %0 = attn.reduce sum(%i: N) : f32 {
      %1 = attn.read %k[%i, %d] : !attn.tensor<[N, D], f32>
      %2 = attn.read %v[%i, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = arith.cmpi sle, %i, %n : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%n: N, %e: E) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%n, %d] : !attn.tensor<[N, D], f32>
      %2 = attn.read %state[%n, %d, %e] : !attn.tensor<[N, D, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[N, E], f32> as f32
}

// A state that is an output, and one that is read beside its own columns, stay.
// CHECK-LABEL: attn.kernel @stored(
// CHECK:         attn.tensor "returned"(
// CHECK:         attn.tensor "of_rows"(
attn.kernel @stored(%q: !attn.tensor<[N, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %returned = attn.tensor "returned"(%n: N, %d: D, %e: E) : f32 {
    %0 = attn.reduce sum(%i: N) : f32 {
      %1 = attn.read %k[%i, %d] : !attn.tensor<[N, D], f32>
      %2 = attn.read %v[%i, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = arith.cmpi sle, %i, %n : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %of_rows = attn.tensor "of_rows"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%i: N) : f32 {
      %1 = attn.read %k[%i, %d] : !attn.tensor<[N, D], f32>
      attn.yield %1 : f32
    } where {
      %1 = arith.cmpi sle, %i, %n : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%n: N, %e: E) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%n, %d] : !attn.tensor<[N, D], f32>
      %2 = attn.read %returned[%n, %d, %e] : !attn.tensor<[N, D, E], f32>
      %3 = attn.read %of_rows[%n, %d] : !attn.tensor<[N, D], f32>
      %4 = arith.mulf %1, %2 : f32
      %5 = arith.mulf %4, %3 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[N, E], f32> as f32, %returned : !attn.tensor<[N, D, E], f32> as f32
}
