// RUN: attn-opt %s --attn-factor-out | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example_backward(
// CHECK-NEXT:    %grad_x = attn.tensor "grad_x"(%t: T, %s: T) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%e: E) : f32 {
// CHECK-NEXT:        %4 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %5 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %6 = arith.mulf %4, %5 : f32
// CHECK-NEXT:        attn.yield %6 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %1 = attn.read %c[%s] : !attn.tensor<[T], f32>
// CHECK-NEXT:      %2 = math.exp %1 : f32
// CHECK-NEXT:      %3 = arith.mulf %0, %2 : f32
// CHECK-NEXT:      attn.yield %3 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %grad_x : !attn.tensor<[T, T], f32> as f32
attn.kernel @example_backward(%grad_out: !attn.tensor<[T, E], f32>, %v: !attn.tensor<[T, E], f32>, %c: !attn.tensor<[T], f32>) {
  %grad_x = attn.tensor "grad_x"(%t: T, %s: T) : f32 {
    %0 = attn.reduce sum(%e: E) : f32 {
      %1 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
      %2 = attn.read %c[%s] : !attn.tensor<[T], f32>
      %3 = math.exp %2 : f32
      %4 = arith.mulf %1, %3 : f32
      %5 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
      %6 = arith.mulf %4, %5 : f32
      attn.yield %6 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_x : !attn.tensor<[T, T], f32> as f32
}

// A condition that is the same for all terms chooses between the sum and 0.
// CHECK-LABEL: attn.kernel @condition_backward(
// CHECK-NEXT:    %grad_x = attn.tensor "grad_x"(%t: T, %s: T) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%e: E) : f32 {
// CHECK-NEXT:        %9 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %10 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %11 = arith.mulf %9, %10 : f32
// CHECK-NEXT:        attn.yield %11 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %1 = arith.negf %0 : f32
// CHECK-NEXT:      %2 = attn.read %c[%t] : !attn.tensor<[T], f32>
// CHECK-NEXT:      %3 = attn.read %c[%s] : !attn.tensor<[T], f32>
// CHECK-NEXT:      %4 = arith.subf %2, %3 : f32
// CHECK-NEXT:      %5 = math.exp %4 : f32
// CHECK-NEXT:      %6 = arith.mulf %1, %5 : f32
// CHECK-NEXT:      %cst = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:      %7 = arith.cmpi sle, %s, %t : i64
// CHECK-NEXT:      %8 = arith.select %7, %6, %cst : f32
// CHECK-NEXT:      attn.yield %8 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %grad_x : !attn.tensor<[T, T], f32> as f32
attn.kernel @condition_backward(%c: !attn.tensor<[T], f32>, %grad_out: !attn.tensor<[T, E], f32>, %v: !attn.tensor<[T, E], f32>) {
  %grad_x = attn.tensor "grad_x"(%t: T, %s: T) : f32 {
    %0 = attn.reduce sum(%e: E) : f32 {
      %1 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
      %2 = attn.read %c[%t] : !attn.tensor<[T], f32>
      %3 = attn.read %c[%s] : !attn.tensor<[T], f32>
      %4 = arith.subf %2, %3 : f32
      %5 = math.exp %4 : f32
      %6 = arith.mulf %1, %5 : f32
      %7 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
      %8 = arith.mulf %6, %7 : f32
      %9 = arith.negf %8 : f32
      attn.yield %9 : f32
    } where {
      %1 = arith.cmpi sle, %s, %t : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %grad_x : !attn.tensor<[T, T], f32> as f32
}

// Terms that choose, or add, are of one product.
// CHECK-LABEL: attn.kernel @choice_backward(
// CHECK-NEXT:    %grad_q = attn.tensor "grad_q"(%m: M, %d: D) : f32 {
// CHECK-NEXT:      %cst = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:      %0 = attn.reduce sum(%e: E) : f32 {
// CHECK-NEXT:        %8 = attn.read %grad_out[%m, %e] : !attn.tensor<[M, E], f32>
// CHECK-NEXT:        %9 = attn.read %state[%d, %e] : !attn.tensor<[D, E], f32>
// CHECK-NEXT:        %10 = arith.mulf %8, %9 : f32
// CHECK-NEXT:        attn.yield %10 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
// CHECK-NEXT:      %cst_0 = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:      %2 = arith.cmpf ogt, %1, %cst_0 : f32
// CHECK-NEXT:      %3 = arith.select %2, %cst_0, %0 : f32
// CHECK-NEXT:      %4 = math.exp %1 : f32
// CHECK-NEXT:      %5 = arith.mulf %3, %4 : f32
// CHECK-NEXT:      %6 = arith.select %2, %0, %cst_0 : f32
// CHECK-NEXT:      %7 = arith.addf %5, %6 : f32
// CHECK-NEXT:      attn.yield %7 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %grad_q : !attn.tensor<[M, D], f32> as f32
attn.kernel @choice_backward(%q: !attn.tensor<[M, D], f32>, %grad_out: !attn.tensor<[M, E], f32>, %state: !attn.tensor<[D, E], f32>) {
  %grad_q = attn.tensor "grad_q"(%m: M, %d: D) : f32 {
    %cst = arith.constant 0.000000e+00 : f32
    %0 = attn.reduce sum(%e: E) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %2 = arith.cmpf ogt, %1, %cst : f32
      %3 = attn.read %grad_out[%m, %e] : !attn.tensor<[M, E], f32>
      %4 = attn.read %state[%d, %e] : !attn.tensor<[D, E], f32>
      %5 = arith.mulf %3, %4 : f32
      %6 = arith.select %2, %cst, %5 : f32
      %7 = math.exp %1 : f32
      %8 = arith.mulf %6, %7 : f32
      %9 = arith.select %2, %5, %cst : f32
      %10 = arith.addf %8, %9 : f32
      attn.yield %10 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_q : !attn.tensor<[M, D], f32> as f32
}

// What is left is the same for a row.
// CHECK-LABEL: attn.kernel @row_backward(
// CHECK-NEXT:    %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%r: R) : f32 {
// CHECK-NEXT:        %3 = attn.read %g[%n, %r] : !attn.tensor<[N, R], f32>
// CHECK-NEXT:        %4 = attn.read %f[%n, %r] : !attn.tensor<[N, R], f32>
// CHECK-NEXT:        %5 = arith.mulf %3, %4 : f32
// CHECK-NEXT:        attn.yield %5 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:      %2 = arith.mulf %0, %1 : f32
// CHECK-NEXT:      attn.yield %2 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %grad_k : !attn.tensor<[N, D], f32> as f32
attn.kernel @row_backward(%g: !attn.tensor<[N, R], f32>, %f: !attn.tensor<[N, R], f32>, %k: !attn.tensor<[N, D], f32>) {
  %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%r: R) : f32 {
      %1 = attn.read %g[%n, %r] : !attn.tensor<[N, R], f32>
      %2 = attn.read %f[%n, %r] : !attn.tensor<[N, R], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_k : !attn.tensor<[N, D], f32> as f32
}

// The terms are of two products.
// CHECK-LABEL: attn.kernel @kept_backward(
// CHECK-NEXT:    %y = attn.tensor "y"(%m: M, %d: D) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%n: N) : f32 {
// CHECK-NEXT:        %1 = attn.read %grad[%m, %n] : !attn.tensor<[M, N], f32>
// CHECK-NEXT:        %2 = attn.read %c[%m] : !attn.tensor<[M], f32>
// CHECK-NEXT:        %3 = math.exp %2 : f32
// CHECK-NEXT:        %4 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %5 = arith.mulf %1, %4 : f32
// CHECK-NEXT:        %6 = arith.mulf %5, %3 : f32
// CHECK-NEXT:        %7 = attn.read %v[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %8 = arith.addf %6, %7 : f32
// CHECK-NEXT:        attn.yield %8 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %y : !attn.tensor<[M, D], f32> as f32
attn.kernel @kept_backward(%grad: !attn.tensor<[M, N], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, D], f32>, %c: !attn.tensor<[M], f32>) {
  %y = attn.tensor "y"(%m: M, %d: D) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %grad[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %c[%m] : !attn.tensor<[M], f32>
      %3 = math.exp %2 : f32
      %4 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %5 = arith.mulf %1, %4 : f32
      %6 = arith.mulf %5, %3 : f32
      %7 = attn.read %v[%n, %d] : !attn.tensor<[N, D], f32>
      %8 = arith.addf %6, %7 : f32
      attn.yield %8 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[M, D], f32> as f32
}

// What a kernel of the source computes is as it is written.
// CHECK-LABEL: attn.kernel @forward(
// CHECK-NEXT:    %x = attn.tensor "x"(%t: T) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%e: E) : f32 {
// CHECK-NEXT:        %1 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %2 = attn.read %c[%t] : !attn.tensor<[T], f32>
// CHECK-NEXT:        %3 = math.exp %2 : f32
// CHECK-NEXT:        %4 = arith.mulf %1, %3 : f32
// CHECK-NEXT:        attn.yield %4 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %x : !attn.tensor<[T], f32> as f32
attn.kernel @forward(%grad_out: !attn.tensor<[T, E], f32>, %c: !attn.tensor<[T], f32>) {
  %x = attn.tensor "x"(%t: T) : f32 {
    %0 = attn.reduce sum(%e: E) : f32 {
      %1 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
      %2 = attn.read %c[%t] : !attn.tensor<[T], f32>
      %3 = math.exp %2 : f32
      %4 = arith.mulf %1, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %x : !attn.tensor<[T], f32> as f32
}

// A factor that each element of the gradient has for itself is multiplied once. The product of a layer is a tensor of its
// own, since what it is multiplied by has it in its gradient, too.
// CHECK-LABEL: attn.kernel @gate_backward(
// CHECK-NEXT:    %grad_gate_product = attn.tensor "grad_gate_product"(%b: B, %t: T, %f: F) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%e: E) : f32 {
// CHECK-NEXT:        %1 = attn.read %grad_out[%b, %t, %e]
// CHECK-NEXT:        %2 = attn.read %w[%f, %e]
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK:         %grad_gate = attn.tensor "grad_gate"(%b: B, %t: T, %f: F) : f32 {
// CHECK-NEXT:      %0 = attn.read %grad_gate_product[%b, %t, %f]
// CHECK-NEXT:      %1 = attn.read %value[%b, %t, %f]
// CHECK-NEXT:      %2 = arith.mulf %0, %1 : f32
// CHECK-NEXT:      attn.yield %2 : f32
attn.kernel @gate_backward(%grad_out: !attn.tensor<[B, T, E], f32>, %w: !attn.tensor<[F, E], f32>, %value: !attn.tensor<[B, T, F], f32>) {
  %grad_gate = attn.tensor "grad_gate"(%b: B, %t: T, %f: F) : f32 {
    %0 = attn.reduce sum(%e: E) : f32 {
      %1 = attn.read %grad_out[%b, %t, %e] : !attn.tensor<[B, T, E], f32>
      %2 = attn.read %w[%f, %e] : !attn.tensor<[F, E], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %value[%b, %t, %f] : !attn.tensor<[B, T, F], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_gate : !attn.tensor<[B, T, F], f32> as f32
}
