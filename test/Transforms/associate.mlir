// RUN: attn-opt %s --attn-associate | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example_backward(
// CHECK-NEXT:    %grad_c_product = attn.tensor "grad_c_product"(%s: T, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%t: T) : f32 {
// CHECK-NEXT:        %1 = attn.read %pairs[%t, %s] : !attn.tensor<[T, T], f32>
// CHECK-NEXT:        %2 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        %1 = arith.cmpi sle, %s, %t : i64
// CHECK-NEXT:        attn.yield %1 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %grad_c = attn.tensor "grad_c"(%s: T) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%e: E) : f32 {
// CHECK-NEXT:        %1 = attn.read %grad_c_product[%s, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %2 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %grad_c : !attn.tensor<[T], f32> as f32
attn.kernel @example_backward(%pairs: !attn.tensor<[T, T], f32>, %grad_out: !attn.tensor<[T, E], f32>, %v: !attn.tensor<[T, E], f32>) {
  %grad_c = attn.tensor "grad_c"(%s: T) : f32 {
    %0 = attn.reduce sum(%t: T, %e: E) : f32 {
      %1 = attn.read %pairs[%t, %s] : !attn.tensor<[T, T], f32>
      %2 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    } where {
      %1 = arith.cmpi sle, %s, %t : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %grad_c : !attn.tensor<[T], f32> as f32
}

// A factor that is a product of matrices is stored.
// CHECK-LABEL: attn.kernel @factor_backward(
// CHECK-NEXT:    %grad_norm_product = attn.tensor "grad_norm_product"(%n: N, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %1 = attn.read %q[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %2 = attn.read %state[%d, %e] : !attn.tensor<[D, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %grad_norm = attn.tensor "grad_norm"(%n: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%e: E) : f32 {
// CHECK-NEXT:        %1 = attn.read %grad_out[%n, %e] : !attn.tensor<[N, E], f32>
// CHECK-NEXT:        %2 = attn.read %grad_norm_product[%n, %e] : !attn.tensor<[N, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %grad_norm : !attn.tensor<[N], f32> as f32
attn.kernel @factor_backward(%q: !attn.tensor<[N, D], f32>, %state: !attn.tensor<[D, E], f32>, %grad_out: !attn.tensor<[N, E], f32>) {
  %grad_norm = attn.tensor "grad_norm"(%n: N) : f32 {
    %0 = attn.reduce sum(%e: E) : f32 {
      %1 = attn.read %grad_out[%n, %e] : !attn.tensor<[N, E], f32>
      %2 = attn.reduce sum(%d: D) : f32 {
        %4 = attn.read %q[%n, %d] : !attn.tensor<[N, D], f32>
        %5 = attn.read %state[%d, %e] : !attn.tensor<[D, E], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_norm : !attn.tensor<[N], f32> as f32
}

// Each condition is where the index that it depends on is; a sign is outside.
// CHECK-LABEL: attn.kernel @conditions_backward(
// CHECK-NEXT:    %grad_c_product = attn.tensor "grad_c_product"(%s: T, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%t: T) : f32 {
// CHECK-NEXT:        %1 = attn.read %pairs[%t, %s] : !attn.tensor<[T, T], f32>
// CHECK-NEXT:        %2 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        %1 = arith.cmpi sle, %s, %t : i64
// CHECK-NEXT:        attn.yield %1 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %grad_c = attn.tensor "grad_c"(%s: T) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%e: E) : f32 {
// CHECK-NEXT:        %1 = attn.read %grad_c_product[%s, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %2 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %3 = arith.negf %2 : f32
// CHECK-NEXT:        %4 = arith.mulf %1, %3 : f32
// CHECK-NEXT:        attn.yield %4 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        %1 = arith.cmpi ne, %e, %s : i64
// CHECK-NEXT:        attn.yield %1 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %grad_c : !attn.tensor<[T], f32> as f32
attn.kernel @conditions_backward(%pairs: !attn.tensor<[T, T], f32>, %grad_out: !attn.tensor<[T, E], f32>, %v: !attn.tensor<[T, E], f32>) {
  %grad_c = attn.tensor "grad_c"(%s: T) : f32 {
    %0 = attn.reduce sum(%t: T, %e: E) : f32 {
      %1 = attn.read %pairs[%t, %s] : !attn.tensor<[T, T], f32>
      %2 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
      %5 = arith.mulf %3, %4 : f32
      %6 = arith.negf %5 : f32
      attn.yield %6 : f32
    } where {
      %1 = arith.cmpi sle, %s, %t : i64
      %2 = arith.cmpi ne, %e, %s : i64
      %3 = arith.andi %1, %2 : i1
      attn.yield %3 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %grad_c : !attn.tensor<[T], f32> as f32
}

// What a kernel of the source computes is as it is written.
// CHECK-LABEL: attn.kernel @forward(
// CHECK-NEXT:    %grad_c = attn.tensor "grad_c"(%s: T) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%t: T, %e: E) : f32 {
// CHECK-NEXT:        %1 = attn.read %pairs[%t, %s] : !attn.tensor<[T, T], f32>
// CHECK-NEXT:        %2 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        %4 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %5 = arith.mulf %3, %4 : f32
// CHECK-NEXT:        attn.yield %5 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %grad_c : !attn.tensor<[T], f32> as f32
attn.kernel @forward(%pairs: !attn.tensor<[T, T], f32>, %grad_out: !attn.tensor<[T, E], f32>, %v: !attn.tensor<[T, E], f32>) {
  %grad_c = attn.tensor "grad_c"(%s: T) : f32 {
    %0 = attn.reduce sum(%t: T, %e: E) : f32 {
      %1 = attn.read %pairs[%t, %s] : !attn.tensor<[T, T], f32>
      %2 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_c : !attn.tensor<[T], f32> as f32
}

// No input has as many elements as there are queries and keys: nothing is stored.
// CHECK-LABEL: attn.kernel @pairs_backward(
// CHECK-NEXT:    %y = attn.tensor "y"(%m: M) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%n: N) : f32 {
// CHECK-NEXT:        %1 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:          %4 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
// CHECK-NEXT:          %5 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:          %6 = arith.mulf %4, %5 : f32
// CHECK-NEXT:          attn.yield %6 : f32
// CHECK-NEXT:        }
// CHECK-NEXT:        %2 = attn.read %w[%n] : !attn.tensor<[D], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %y : !attn.tensor<[M], f32> as f32
attn.kernel @pairs_backward(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %w: !attn.tensor<[D], f32>) {
  %y = attn.tensor "y"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %4 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %5 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      %2 = attn.read %w[%n] : !attn.tensor<[D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[M], f32> as f32
}

// Without a condition, too.
// CHECK-LABEL: attn.kernel @whole_backward(
// CHECK-NEXT:    %y_product = attn.tensor "y_product"(%t: T, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%u: U) : f32 {
// CHECK-NEXT:        %1 = attn.read %a[%t, %u] : !attn.tensor<[T, U], f32>
// CHECK-NEXT:        %2 = attn.read %b[%u, %e] : !attn.tensor<[U, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %y = attn.tensor "y"(%t: T) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%e: E) : f32 {
// CHECK-NEXT:        %1 = attn.read %y_product[%t, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %2 = attn.read %c[%t, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %y : !attn.tensor<[T], f32> as f32
attn.kernel @whole_backward(%a: !attn.tensor<[T, U], f32>, %b: !attn.tensor<[U, E], f32>, %c: !attn.tensor<[T, E], f32>) {
  %y = attn.tensor "y"(%t: T) : f32 {
    %0 = attn.reduce sum(%u: U, %e: E) : f32 {
      %1 = attn.read %a[%t, %u] : !attn.tensor<[T, U], f32>
      %2 = attn.read %b[%u, %e] : !attn.tensor<[U, E], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %c[%t, %e] : !attn.tensor<[T, E], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[T], f32> as f32
}

// What is the same for all terms of a sum inside another goes out of it, where the rest is a product of matrices: %g has the
// shape of an input.
// CHECK-LABEL: attn.kernel @inside_backward(
// CHECK:         %y_product = attn.tensor "y_product"(%t: T, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%u: T) : f32 {
// CHECK-NEXT:        %1 = attn.read %b[%u, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %2 = attn.read %a[%t, %u] : !attn.tensor<[T, T], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        %1 = arith.cmpi slt, %u, %t : i64
// CHECK:         %y = attn.tensor "y"(%t: T) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%e: E) : f32 {
// CHECK-NEXT:        %1 = attn.read %y_product[%t, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %2 = attn.read %g[%t, %e] : !attn.tensor<[T, E], f32>
// CHECK-NEXT:        %3 = arith.negf %2 : f32
// CHECK-NEXT:        %4 = arith.mulf %1, %3 : f32
// CHECK-NEXT:        attn.yield %4 : f32
attn.kernel @inside_backward(%a: !attn.tensor<[T, T], f32>, %b: !attn.tensor<[T, E], f32>) {
  %g = attn.tensor "g"(%t: T, %e: E) : f32 {
    %0 = attn.read %b[%t, %e] : !attn.tensor<[T, E], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  %y = attn.tensor "y"(%t: T) : f32 {
    %0 = attn.reduce sum(%e: E) : f32 {
      %1 = attn.reduce sum(%u: T) : f32 {
        %2 = attn.read %g[%t, %e] : !attn.tensor<[T, E], f32>
        %3 = arith.negf %2 : f32
        %4 = attn.read %b[%u, %e] : !attn.tensor<[T, E], f32>
        %5 = arith.mulf %3, %4 : f32
        %6 = attn.read %a[%t, %u] : !attn.tensor<[T, T], f32>
        %7 = arith.mulf %5, %6 : f32
        attn.yield %7 : f32
      } where {
        %2 = arith.cmpi slt, %u, %t : i64
        attn.yield %2 : i1
      }
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[T], f32> as f32
}
