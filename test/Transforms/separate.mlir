// RUN: attn-opt %s --attn-separate --cse --canonicalize | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %energy_query_factor = attn.tensor "energy_query_factor"(%m: M, %u: U) : f32 {
// CHECK-NEXT:      %cst = arith.constant -8.700000e+01 : f32
// CHECK-NEXT:      %cst_0 = arith.constant 8.700000e+01 : f32
// CHECK-NEXT:      %cst_1 = arith.constant 2.000000e+00 : f32
// CHECK-NEXT:      %0 = attn.read %a[%m, %u] : !attn.tensor<[M, U], f32>
// CHECK-NEXT:      %1 = arith.mulf %0, %cst_1 : f32
// CHECK-NEXT:      %2 = arith.minimumf %1, %cst_0 : f32
// CHECK-NEXT:      %3 = arith.maximumf %2, %cst : f32
// CHECK-NEXT:      %4 = math.exp %3 : f32
// CHECK-NEXT:      attn.yield %4 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %energy_key_factor = attn.tensor "energy_key_factor"(%n: N, %u: U) : f32 {
// CHECK-NEXT:      %cst = arith.constant -8.700000e+01 : f32
// CHECK-NEXT:      %cst_0 = arith.constant 8.700000e+01 : f32
// CHECK-NEXT:      %cst_1 = arith.constant 2.000000e+00 : f32
// CHECK-NEXT:      %0 = attn.read %b[%n, %u] : !attn.tensor<[N, U], f32>
// CHECK-NEXT:      %1 = arith.mulf %0, %cst_1 : f32
// CHECK-NEXT:      %2 = arith.minimumf %1, %cst_0 : f32
// CHECK-NEXT:      %3 = arith.maximumf %2, %cst : f32
// CHECK-NEXT:      %4 = math.exp %3 : f32
// CHECK-NEXT:      attn.yield %4 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %energy_bounded = attn.tensor "energy_bounded"() : i1 {
// CHECK-NEXT:      %cst = arith.constant 9.25378162E+29 : f32
// CHECK-NEXT:      %cst_0 = arith.constant 1.81890292E-38 : f32
// CHECK-NEXT:      %cst_1 = arith.constant 1.08063929E-30 : f32
// CHECK-NEXT:      %cst_2 = arith.constant 5.49781941E+37 : f32
// CHECK-NEXT:      %c1_i64 = arith.constant 1 : i64
// CHECK-NEXT:      %M = attn.size M
// CHECK-NEXT:      %0 = arith.cmpi sgt, %M, %c1_i64 : i64
// CHECK-NEXT:      %N = attn.size N
// CHECK-NEXT:      %1 = arith.cmpi sgt, %N, %c1_i64 : i64
// CHECK-NEXT:      %2 = arith.andi %0, %1 : i1
// CHECK-NEXT:      %3 = attn.reduce max(%m: M, %u: U) : f32 {
// CHECK-NEXT:        %23 = attn.read %energy_query_factor[%m, %u] : !attn.tensor<[M, U], f32>
// CHECK-NEXT:        attn.yield %23 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        attn.yield %2 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      %4 = arith.cmpf olt, %3, %cst_2 : f32
// CHECK-NEXT:      %5 = attn.reduce min(%n: N, %u: U) : f32 {
// CHECK-NEXT:        %23 = attn.read %energy_key_factor[%n, %u] : !attn.tensor<[N, U], f32>
// CHECK-NEXT:        attn.yield %23 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        attn.yield %2 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      %6 = arith.cmpf ogt, %5, %cst_1 : f32
// CHECK-NEXT:      %7 = arith.ori %4, %6 : i1
// CHECK-NEXT:      %8 = attn.reduce max(%n: N, %u: U) : f32 {
// CHECK-NEXT:        %23 = attn.read %energy_key_factor[%n, %u] : !attn.tensor<[N, U], f32>
// CHECK-NEXT:        attn.yield %23 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        attn.yield %2 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      %9 = arith.cmpf olt, %8, %cst_2 : f32
// CHECK-NEXT:      %10 = attn.reduce min(%m: M, %u: U) : f32 {
// CHECK-NEXT:        %23 = attn.read %energy_query_factor[%m, %u] : !attn.tensor<[M, U], f32>
// CHECK-NEXT:        attn.yield %23 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        attn.yield %2 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      %11 = arith.cmpf ogt, %10, %cst_1 : f32
// CHECK-NEXT:      %12 = arith.ori %9, %11 : i1
// CHECK-NEXT:      %13 = arith.andi %7, %12 : i1
// CHECK-NEXT:      %14 = arith.cmpf ogt, %10, %cst_0 : f32
// CHECK-NEXT:      %15 = arith.cmpf olt, %8, %cst : f32
// CHECK-NEXT:      %16 = arith.ori %14, %15 : i1
// CHECK-NEXT:      %17 = arith.cmpf ogt, %5, %cst_0 : f32
// CHECK-NEXT:      %18 = arith.cmpf olt, %3, %cst : f32
// CHECK-NEXT:      %19 = arith.ori %17, %18 : i1
// CHECK-NEXT:      %20 = arith.andi %16, %19 : i1
// CHECK-NEXT:      %21 = arith.andi %13, %20 : i1
// CHECK-NEXT:      %22 = arith.andi %2, %21 : i1
// CHECK-NEXT:      attn.yield %22 : i1
// CHECK-NEXT:    }
// CHECK-NEXT:    %energy_total = attn.tensor "energy_total"() : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%u: U) : f32 {
// CHECK-NEXT:        %1 = attn.read %w[%u] : !attn.tensor<[U], f32>
// CHECK-NEXT:        attn.yield %1 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %energy = attn.score "energy"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %cst = arith.constant 2.000000e+00 : f32
// CHECK-NEXT:      %true = arith.constant true
// CHECK-NEXT:      %cst_0 = arith.constant 5.54062248E+34 : f32
// CHECK-NEXT:      %cst_1 = arith.constant 1.000000e+00 : f32
// CHECK-NEXT:      %0 = attn.read %energy_bounded[] : !attn.tensor<[], i1>
// CHECK-NEXT:      %1 = attn.reduce sum(%u: U) : f32 {
// CHECK-NEXT:        %8 = attn.read %energy_query_factor[%m, %u] : !attn.tensor<[M, U], f32>
// CHECK-NEXT:        %9 = attn.read %energy_key_factor[%n, %u] : !attn.tensor<[N, U], f32>
// CHECK-NEXT:        %10 = arith.mulf %8, %9 : f32
// CHECK-NEXT:        %11 = arith.addf %10, %cst_1 : f32
// CHECK-NEXT:        %12 = arith.cmpf ogt, %11, %cst_0 : f32
// CHECK-NEXT:        %13 = arith.select %12, %cst_0, %11 : f32
// CHECK-NEXT:        %14 = attn.read %w[%u] : !attn.tensor<[U], f32>
// CHECK-NEXT:        %15 = arith.divf %14, %13 fastmath<arcp> : f32
// CHECK-NEXT:        attn.yield %15 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        attn.yield %0 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      %2 = arith.xori %0, %true : i1
// CHECK-NEXT:      %3 = attn.read %energy_total[] : !attn.tensor<[], f32>
// CHECK-NEXT:      %4 = arith.mulf %1, %cst : f32
// CHECK-NEXT:      %5 = arith.subf %3, %4 : f32
// CHECK-NEXT:      %6 = attn.reduce sum(%u: U) : f32 {
// CHECK-NEXT:        %8 = attn.read %w[%u] : !attn.tensor<[U], f32>
// CHECK-NEXT:        %9 = attn.read %a[%m, %u] : !attn.tensor<[M, U], f32>
// CHECK-NEXT:        %10 = attn.read %b[%n, %u] : !attn.tensor<[N, U], f32>
// CHECK-NEXT:        %11 = arith.addf %9, %10 : f32
// CHECK-NEXT:        %12 = math.tanh %11 : f32
// CHECK-NEXT:        %13 = arith.mulf %8, %12 : f32
// CHECK-NEXT:        attn.yield %13 : f32
// CHECK-NEXT:      } where {
// CHECK-NEXT:        attn.yield %2 : i1
// CHECK-NEXT:      }
// CHECK-NEXT:      %7 = arith.select %0, %5, %6 : f32
// CHECK-NEXT:      attn.yield %7 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %weight, %logsumexp = attn.softmax "weight", ""(%energy) : !attn.tensor<[M, N], f32>
// CHECK-NEXT:    attn.return %weight : !attn.tensor<[M, N], f32> as f32
attn.kernel @example(%a: !attn.tensor<[M, U], f32>, %b: !attn.tensor<[N, U], f32>, %w: !attn.tensor<[U], f32>) {
  %energy = attn.score "energy"(%m: M, %n: N) : f32 {
    %0 = attn.reduce sum(%u: U) : f32 {
      %1 = attn.read %w[%u] : !attn.tensor<[U], f32>
      %2 = attn.read %a[%m, %u] : !attn.tensor<[M, U], f32>
      %3 = attn.read %b[%n, %u] : !attn.tensor<[N, U], f32>
      %4 = arith.addf %2, %3 : f32
      %5 = math.tanh %4 : f32
      %6 = arith.mulf %1, %5 : f32
      attn.yield %6 : f32
    }
    attn.yield %0 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%energy) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// A sum over pairs that are stored, as gradients have them: the call is replaced wherever it is. Lanes are the sum's last
// index, so that the factors have it last.
// CHECK-LABEL: attn.kernel @in_terms(
// CHECK:         attn.tensor "grad_q_query_factor"(%m: M, %u: U)
// CHECK:         attn.tensor "grad_q_key_factor"(%n: N, %u: U)
// CHECK:         attn.tensor "grad_q_bounded"()
// CHECK:         attn.tensor "grad_q"(%m: M, %u: U)
// CHECK:           %[[FLAG:.*]] = attn.read %grad_q_bounded[]
// CHECK:           %[[SEPARATED:.*]] = attn.reduce sum(%n: N) : f32 {
// CHECK-NEXT:        %{{.*}} = attn.read %grad_q_query_factor[%m, %u]
// CHECK-NEXT:        %{{.*}} = attn.read %grad_q_key_factor[%n, %u]
// CHECK:             %[[QUOTIENT:.*]] = arith.divf {{.*}} fastmath<arcp>
// CHECK-NEXT:        %[[TANH:.*]] = arith.subf {{.*}}, %[[QUOTIENT]]
// CHECK:             arith.mulf %[[TANH]], %[[TANH]]
// CHECK:           } where {
// CHECK-NEXT:        attn.yield %[[FLAG]]
// CHECK:           math.tanh
attn.kernel @in_terms(%x: !attn.tensor<[M, N], f32>, %a: !attn.tensor<[M, U], f32>, %b: !attn.tensor<[N, U], f32>) {
  %grad_score = attn.tensor "grad_score"(%m: M, %n: N) : f32 attributes {attn.pairs} {
    %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    attn.yield %0 : f32
  }
  %grad_q = attn.tensor "grad_q"(%m: M, %u: U) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %cst = arith.constant 1.0 : f32
      %1 = attn.read %grad_score[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %a[%m, %u] : !attn.tensor<[M, U], f32>
      %3 = attn.read %b[%n, %u] : !attn.tensor<[N, U], f32>
      %4 = arith.addf %2, %3 : f32
      %5 = math.tanh %4 : f32
      %6 = arith.mulf %5, %5 : f32
      %7 = arith.subf %cst, %6 : f32
      %8 = arith.mulf %1, %7 : f32
      attn.yield %8 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %grad_q : !attn.tensor<[M, U], f32> as f32
}
