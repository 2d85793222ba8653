// RUN: attn-opt %s --attn-chunk-sums --cse --canonicalize | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %out_near = attn.tensor "out_near"(%m: N, %e: E) : f32 {
// CHECK-NEXT:      %c96_i64 = arith.constant 96 : i64
// CHECK-NEXT:      %0 = attn.reduce sum(%n: N) : f32 {
// CHECK-NEXT:        %1 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:          %4 = attn.read %q[%m, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:          %5 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:          %6 = arith.mulf %4, %5 : f32
// CHECK-NEXT:          attn.yield %6 : f32
// CHECK-NEXT:        }
// CHECK-NEXT:        %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
// CHECK-NEXT:        %3 = arith.mulf %1, %2 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        %1 = arith.cmpi sle, %n, %m : i64
// CHECK-NEXT:        %2 = attn.floordiv %m, %c96_i64
// CHECK-NEXT:        %3 = arith.muli %2, %c96_i64 : i64
// CHECK-NEXT:        %4 = arith.cmpi sle, %3, %n : i64
// CHECK-NEXT:        %5 = arith.andi %1, %4 : i1
// CHECK-NEXT:        attn.yield %5 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %out_chunk = attn.tensor "out_chunk"(%chunk: N floordiv 96, %d: D, %e: E) : f32 {
// CHECK-NEXT:      %c96_i64 = arith.constant 96 : i64
// CHECK-NEXT:      %0 = attn.reduce sum(%within: 96) : f32 {
// CHECK-NEXT:        %1 = arith.muli %chunk, %c96_i64 : i64
// CHECK-NEXT:        %2 = arith.addi %1, %within : i64
// CHECK-NEXT:        %3 = attn.read %v[%2, %e] : !attn.tensor<[N, E], f32>
// CHECK-NEXT:        %4 = attn.read %k[%2, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %5 = arith.mulf %3, %4 : f32
// CHECK-NEXT:        attn.yield %5 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %out_state = attn.tensor "out_state"(%chunk: N floordiv 96, %d: D, %e: E) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%earlier: N floordiv 96) : f32 {
// CHECK-NEXT:        %1 = attn.read %out_chunk[%earlier, %d, %e] : !attn.tensor<[N floordiv 96, D, E], f32>
// CHECK-NEXT:        attn.yield %1 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        %1 = arith.cmpi sle, %earlier, %chunk : i64
// CHECK-NEXT:        attn.yield %1 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %out_far = attn.tensor "out_far"(%chunk: N floordiv 96, %within: 96, %e: E) : f32 {
// CHECK-NEXT:      %c96_i64 = arith.constant 96 : i64
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %1 = arith.muli %chunk, %c96_i64 : i64
// CHECK-NEXT:        %2 = arith.addi %1, %c96_i64 : i64
// CHECK-NEXT:        %3 = arith.addi %2, %within : i64
// CHECK-NEXT:        %4 = attn.read %out_state[%chunk, %d, %e] : !attn.tensor<[N floordiv 96, D, E], f32>
// CHECK-NEXT:        %5 = attn.read %q[%3, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %6 = arith.mulf %5, %4 : f32
// CHECK-NEXT:        attn.yield %6 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %out = attn.tensor "out"(%m: N, %e: E) : f32 {
// CHECK-NEXT:      %cst = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:      %c1_i64 = arith.constant 1 : i64
// CHECK-NEXT:      %c96_i64 = arith.constant 96 : i64
// CHECK-NEXT:      %0 = attn.read %out_near[%m, %e] : !attn.tensor<[N, E], f32>
// CHECK-NEXT:      %1 = attn.floordiv %m, %c96_i64
// CHECK-NEXT:      %2 = arith.cmpi sge, %m, %c96_i64 : i64
// CHECK-NEXT:      %3 = arith.subi %1, %c1_i64 : i64
// CHECK-NEXT:      %4 = attn.mod %m, %c96_i64
// CHECK-NEXT:      %5 = attn.read %out_far[%3, %4, %e] : !attn.tensor<[N floordiv 96, 96, E], f32>
// CHECK-NEXT:      %6 = arith.select %2, %5, %cst : f32
// CHECK-NEXT:      %7 = arith.addf %0, %6 : f32
// CHECK-NEXT:      attn.yield %7 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %out : !attn.tensor<[N, E], f32> as f32
attn.kernel @example(%q: !attn.tensor<[N, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %out = attn.tensor "out"(%m: N, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %2 = attn.read %q[%m, %d] : !attn.tensor<[N, D], f32>
        %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %4 = arith.mulf %2, %3 : f32
        attn.yield %4 : f32
      }
      %5 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %6 = arith.mulf %1, %5 : f32
      attn.yield %6 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[N, E], f32> as f32
}

// What a gradient is made of: pairs that are 0 above the diagonal, a sum of two parts. The keys are those from the row on, of
// which the last chunk may have fewer; what only rows have stays outside of the sums.
// CHECK-LABEL: attn.kernel @from_the_row_on(
// CHECK:         attn.tensor "grad_near"(%n: N, %d: D)
// CHECK:           %[[ORDER:.*]] = arith.cmpi sle, %n, %m : i64
// CHECK-NEXT:      %[[CHUNK:.*]] = attn.floordiv %m, %c96_i64
// CHECK-NEXT:      %[[FIRST:.*]] = arith.muli %[[CHUNK]], %c96_i64 : i64
// CHECK-NEXT:      %[[NEAR:.*]] = arith.cmpi sle, %[[FIRST]], %n : i64
// CHECK-NEXT:      arith.andi %[[ORDER]], %[[NEAR]] : i1
// CHECK:         attn.tensor "grad_chunk"(%chunk: N floordiv 96, %d: D)
// CHECK:           %[[KEY:.*]] = arith.cmpi slt, %{{.*}}, %N : i64
// CHECK:           arith.select %[[KEY]]
// CHECK:         attn.tensor "grad_state"(%chunk: N floordiv 96, %d: D)
// CHECK:           arith.cmpi sge, %later, %chunk : i64
// CHECK-NOT:     "grad_far"
// CHECK:         attn.tensor "grad_chunk_1"(%chunk: N floordiv 96, %e: E, %d: D)
// CHECK:         attn.tensor "grad_state_1"(%chunk: N floordiv 96, %e: E, %d: D)
// CHECK:         attn.tensor "grad_far"(%chunk: N floordiv 96, %within: 96, %d: D)
// CHECK-NOT:       attn.read %scale
// CHECK:         attn.tensor "grad"(%n: N, %d: D)
// CHECK:           attn.read %scale[%n]
attn.kernel @from_the_row_on(%g: !attn.tensor<[N, E], f32>, %v: !attn.tensor<[N, E], f32>, %q: !attn.tensor<[N, D], f32>, %a: !attn.tensor<[N], f32>, %scale: !attn.tensor<[N], f32>) {
  %pairs = attn.tensor "pairs"(%m: N, %n: N) : f32 {
    %cst = arith.constant 0.000000e+00 : f32
    %0 = attn.read %a[%m] : !attn.tensor<[N], f32>
    %1 = attn.reduce sum(%e: E) : f32 {
      %5 = attn.read %g[%m, %e] : !attn.tensor<[N, E], f32>
      %6 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %7 = arith.mulf %5, %6 : f32
      attn.yield %7 : f32
    }
    %2 = arith.subf %0, %1 : f32
    %3 = arith.cmpi sle, %n, %m : i64
    %4 = arith.select %3, %2, %cst : f32
    attn.yield %4 : f32
  }
  %grad = attn.tensor "grad"(%n: N, %d: D) : f32 {
    %0 = attn.reduce sum(%m: N) : f32 {
      %1 = attn.read %pairs[%m, %n] : !attn.tensor<[N, N], f32>
      %2 = attn.read %q[%m, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = attn.read %scale[%n] : !attn.tensor<[N], f32>
      %5 = arith.mulf %3, %4 : f32
      attn.yield %5 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad : !attn.tensor<[N, D], f32> as f32
}

// No product of row and key, no order, or few tokens: these stay as they are.
// CHECK-LABEL: attn.kernel @others(
// CHECK-NOT:     _near
// CHECK:         attn.return
attn.kernel @others(%q: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N], f32>, %few: !attn.tensor<[192, D], f32>, %of_few: !attn.tensor<[192], f32>) {
  %squared = attn.tensor "squared"(%m: N) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %4 = attn.read %q[%m, %d] : !attn.tensor<[N, D], f32>
        %5 = attn.read %q[%n, %d] : !attn.tensor<[N, D], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      %2 = arith.mulf %1, %1 : f32
      attn.yield %2 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %window = attn.tensor "window"(%m: N) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %4 = attn.read %q[%m, %d] : !attn.tensor<[N, D], f32>
        %5 = attn.read %q[%n, %d] : !attn.tensor<[N, D], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      attn.yield %1 : f32
    } where {
      %c8 = arith.constant 8 : i64
      %1 = arith.subi %m, %c8 : i64
      %2 = arith.cmpi sle, %1, %n : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  %total = attn.tensor "total"(%m: N) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %v[%n] : !attn.tensor<[N], f32>
      attn.yield %1 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %short = attn.tensor "short"(%m: 192) : f32 {
    %0 = attn.reduce sum(%n: 192) : f32 {
      %1 = attn.reduce sum(%d: D) : f32 {
        %4 = attn.read %few[%m, %d] : !attn.tensor<[192, D], f32>
        %5 = attn.read %few[%n, %d] : !attn.tensor<[192, D], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      attn.yield %1 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %squared : !attn.tensor<[N], f32> as f32, %window : !attn.tensor<[N], f32> as f32, %total : !attn.tensor<[N], f32> as f32, %short : !attn.tensor<[192], f32> as f32
}

// A decay goes along with the keys: to the first row after their chunk, from there to that of another chunk, and to a row.
// CHECK-LABEL: attn.kernel @decayed(
// CHECK:         attn.tensor "out_key_decay"(%h: H, %within: 96)
// CHECK:           arith.subi %c96_i64, %within : i64
// CHECK:           math.powf
// CHECK:         attn.tensor "out_chunk_decay"(%h: H, %distance: N floordiv 96)
// CHECK:           %[[TOKENS:.*]] = arith.muli %distance, %c96_i64 : i64
// CHECK:           math.powf
// CHECK:         attn.tensor "out_chunk"(%h: H, %chunk: N floordiv 96, %d: D)
// CHECK:           attn.read %out_key_decay[%h, %within]
// CHECK:         attn.tensor "out_state"(%h: H, %chunk: N floordiv 96, %d: D)
// CHECK-NEXT:      %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT:      attn.reduce sum(%earlier: N floordiv 96) : f32 {
// CHECK:             attn.read %out_chunk_decay[%h, %{{.*}}]
// CHECK:             arith.cmpi sle, %earlier, %chunk : i64
// CHECK:             arith.select
// CHECK-NOT:       where
// CHECK:         attn.tensor "out_far"(%h: H, %chunk: N floordiv 96, %within: 96)
// CHECK:         attn.tensor "out_row_decay"(%h: H, %within: 96)
// CHECK:         attn.tensor "out"(%h: H, %m: N)
// CHECK:           attn.read %out_row_decay[%h, %{{.*}}]
attn.kernel @decayed(%gamma: !attn.tensor<[H], f32>, %q: !attn.tensor<[H, N, D], f32>, %k: !attn.tensor<[H, N, D], f32>) {
  %out = attn.tensor "out"(%h: H, %m: N) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %gamma[%h] : !attn.tensor<[H], f32>
      %2 = arith.subi %m, %n : i64
      %3 = arith.sitofp %2 : i64 to f32
      %4 = math.powf %1, %3 : f32
      %5 = attn.reduce sum(%d: D) : f32 {
        %7 = attn.read %q[%h, %m, %d] : !attn.tensor<[H, N, D], f32>
        %8 = attn.read %k[%h, %n, %d] : !attn.tensor<[H, N, D], f32>
        %9 = arith.mulf %7, %8 : f32
        attn.yield %9 : f32
      }
      %6 = arith.mulf %4, %5 : f32
      attn.yield %6 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[H, N], f32> as f32
}

// Pairs that are an output are all computed: their sum is no other.
// CHECK-LABEL: attn.kernel @returned(
// CHECK-NOT:     _near
// CHECK:         attn.return
attn.kernel @returned(%q: !attn.tensor<[N, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %pairs = attn.tensor "pairs"(%m: N, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%m, %d] : !attn.tensor<[N, D], f32>
      %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%m: N, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %pairs[%m, %n] : !attn.tensor<[N, N], f32>
      %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    } where {
      %1 = arith.cmpi sle, %n, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[N, E], f32> as f32, %pairs : !attn.tensor<[N, N], f32> as f32
}
