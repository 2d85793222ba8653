// RUN: attn-opt %s --attn-table-products | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %position_table = attn.tensor "position_table"(%n: N, %row: R) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %1 = attn.read %r[%row, %d] : !attn.tensor<[R, D], f32>
// CHECK-NEXT:        %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        %3 = arith.mulf %2, %1 : f32
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %position = attn.tensor "position"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = arith.subi %n, %m : i64
// CHECK-NEXT:      %1 = attn.read %position_table[%n, %0] : !attn.tensor<[N, R], f32>
// CHECK-NEXT:      attn.yield %1 : f32
// CHECK-NEXT:    }
attn.kernel @example(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %r: !attn.tensor<[R, D], f32>) {
  %position = attn.tensor "position"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %2 = arith.subi %n, %m : i64
      %3 = attn.read %r[%2, %d] : !attn.tensor<[R, D], f32>
      %4 = arith.mulf %1, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %position : !attn.tensor<[M, N], f32> as f32
}

// Heads of the table, and a row that a statement says. What is multiplied with the query's row and with the key's, and
// a table with as many rows as there are distances, are left as they were.
// CHECK-LABEL: attn.kernel @others(
// CHECK:         attn.tensor "clipped_table"(%h: H, %m: M, %row: R) : f32
// CHECK:           attn.read %r[%h, %row, %d]
// CHECK:         attn.tensor "clipped"(%h: H, %m: M, %n: N)
// CHECK:           attn.read %clipped_table[%h, %m, %{{[0-9]+}}]
// CHECK-NOT:     _table"
attn.kernel @others(%q: !attn.tensor<[H, M, D], f32>, %k: !attn.tensor<[H, N, D], f32>, %r: !attn.tensor<[H, R, D], f32>,
                    %all: !attn.tensor<[M + N, D], f32>) {
  %step = attn.tensor "step"(%m: M, %n: N) : i64 {
    %0 = arith.subi %n, %m : i64
    attn.yield %0 : i64
  }
  %clipped = attn.tensor "clipped"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%h, %m, %d] : !attn.tensor<[H, M, D], f32>
      %2 = attn.read %step[%m, %n] : !attn.tensor<[M, N], i64>
      %3 = attn.read %r[%h, %2, %d] : !attn.tensor<[H, R, D], f32>
      %4 = arith.mulf %1, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  %both = attn.tensor "both"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %q[%h, %m, %d] : !attn.tensor<[H, M, D], f32>
      %2 = attn.read %k[%h, %n, %d] : !attn.tensor<[H, N, D], f32>
      %3 = arith.mulf %1, %2 : f32
      %4 = arith.subi %n, %m : i64
      %5 = attn.read %r[%h, %4, %d] : !attn.tensor<[H, R, D], f32>
      %6 = arith.mulf %3, %5 : f32
      attn.yield %6 : f32
    }
    attn.yield %0 : f32
  }
  %whole = attn.tensor "whole"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %k[%h, %n, %d] : !attn.tensor<[H, N, D], f32>
      %2 = arith.subi %n, %m : i64
      %3 = attn.read %all[%2, %d] : !attn.tensor<[M + N, D], f32>
      %4 = arith.mulf %1, %3 : f32
      attn.yield %4 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %clipped : !attn.tensor<[H, M, N], f32> as f32, %both : !attn.tensor<[H, M, N], f32> as f32,
              %whole : !attn.tensor<[H, M, N], f32> as f32
}
