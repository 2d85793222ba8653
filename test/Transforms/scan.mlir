// RUN: attn-opt %s --attn-scan --canonicalize | FileCheck %s
// RUN: attn-opt %s --attn-scan=differentiated=true --canonicalize | FileCheck %s --check-prefix=GRAD

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %w_scan = attn.tensor "w_scan"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%j: N) : f32 {
// CHECK-NEXT:        %1 = attn.read %z[%m, %j] : !attn.tensor<[M, N], f32>
// CHECK-NEXT:        %2 = math.exp %1 : f32
// CHECK-NEXT:        attn.yield %2 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        %1 = arith.cmpi slt, %n, %j : i64
// CHECK-NEXT:        attn.yield %1 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %w = attn.tensor "w"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.read %w_scan[%m, %n] : !attn.tensor<[M, N], f32>
// CHECK-NEXT:      %1 = math.tanh %0 : f32
// CHECK-NEXT:      attn.yield %1 : f32
// CHECK-NEXT:    }
attn.kernel @example(%z: !attn.tensor<[M, N], f32>) {
  %w = attn.tensor "w"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%j: N) : f32 {
      %2 = attn.read %z[%m, %j] : !attn.tensor<[M, N], f32>
      %3 = math.exp %2 : f32
      attn.yield %3 : f32
    } where {
      %2 = arith.cmpi slt, %n, %j : i64
      attn.yield %2 : i1
    }
    %1 = math.tanh %0 : f32
    attn.yield %1 : f32
  }
  attn.return %w : !attn.tensor<[M, N], f32> as f32
}

// Of two ends the inner one; what else is asked for stays a condition of the terms, which are a tensor before gradients.
// CHECK-LABEL: attn.kernel @range(
// CHECK:         %w_sum = attn.tensor "w_sum"(%m: M, %j: N) : f32 {
// CHECK-NEXT:      attn.reduce sum(%d: D)
// CHECK:         %w_scan = attn.tensor "w_scan"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      attn.reduce sum(%j: N)
// CHECK-NEXT:        %[[DOT:.*]] = attn.read %w_sum[%m, %j]
// CHECK-NEXT:        math.exp %[[DOT]]
// CHECK:           where {
// CHECK-NEXT:        arith.cmpi sle, %j, %m
// CHECK-NEXT:        arith.cmpi sge, %j, %n
// GRAD-LABEL: attn.kernel @range(
// GRAD:         %w_term = attn.tensor "w_term"(%m: M, %j: N) : f32 {
// GRAD:           arith.cmpi sle, %j, %m
// GRAD:           math.exp
// GRAD-NEXT:      arith.select
// GRAD:         %w_scan = attn.tensor "w_scan"(%m: M, %n: N) : f32 {
// GRAD-NEXT:      attn.reduce sum(%j: N)
// GRAD-NEXT:        attn.read %w_term[%m, %j]
// GRAD:           where {
// GRAD-NEXT:        arith.cmpi sge, %j, %n
// GRAD-NEXT:        attn.yield
attn.kernel @range(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>) {
  %w = attn.tensor "w"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%j: N) : f32 {
      %2 = attn.reduce sum(%d: D) : f32 {
        %4 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %5 = attn.read %k[%j, %d] : !attn.tensor<[N, D], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      %3 = math.exp %2 : f32
      attn.yield %3 : f32
    } where {
      %2 = arith.cmpi sle, %j, %m : i64
      %3 = arith.cmpi sge, %j, %n : i64
      %4 = arith.andi %2, %3 : i1
      attn.yield %4 : i1
    }
    %1 = math.tanh %0 : f32
    attn.yield %1 : f32
  }
  attn.return %w : !attn.tensor<[M, N], f32> as f32
}

// Terms that change with the end, and totals with more indices than what they are for, stay.
// CHECK-LABEL: attn.kernel @stay(
// CHECK-NOT:     _scan
// CHECK:         attn.return
attn.kernel @stay(%z: !attn.tensor<[M, N], f32>, %x: !attn.tensor<[N, D], f32>) {
  %changed = attn.tensor "changed"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%j: N) : f32 {
      %2 = attn.read %z[%m, %j] : !attn.tensor<[M, N], f32>
      %3 = attn.read %z[%m, %n] : !attn.tensor<[M, N], f32>
      %4 = arith.mulf %2, %3 : f32
      attn.yield %4 : f32
    } where {
      %2 = arith.cmpi sle, %j, %n : i64
      attn.yield %2 : i1
    }
    %1 = math.tanh %0 : f32
    attn.yield %1 : f32
  }
  %large = attn.tensor "large"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.reduce sum(%j: N) : f32 {
        %2 = attn.read %z[%m, %j] : !attn.tensor<[M, N], f32>
        %3 = attn.read %x[%j, %d] : !attn.tensor<[N, D], f32>
        %4 = arith.mulf %2, %3 : f32
        attn.yield %4 : f32
      } where {
        %2 = arith.cmpi sle, %j, %n : i64
        attn.yield %2 : i1
      }
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %changed : !attn.tensor<[M, N], f32> as f32, %large : !attn.tensor<[M, N], f32> as f32
}
