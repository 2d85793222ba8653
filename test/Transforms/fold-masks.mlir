// RUN: attn-opt %s --attn-fold-masks | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK:           %0 = attn.reduce softmax(%[[J:.*]]: N) at (%n) : f32 {
// CHECK-NEXT:        %[[SCORE:.*]] = attn.read %bias[%m, %[[J]]]
// CHECK-NEXT:        %[[SUM:.*]] = attn.reduce sum(%d: D)
// CHECK-NEXT:          attn.read %k[%[[J]], %d]
// CHECK:             %[[SEEN:.*]] = arith.cmpf ogt, %[[SUM]]
// CHECK-NEXT:        %[[HIDDEN:.*]] = arith.constant 0xFF800000 : f32
// CHECK-NEXT:        %[[FOLDED:.*]] = arith.select %[[SEEN]], %[[SCORE]], %[[HIDDEN]]
// CHECK-NEXT:        attn.yield %[[FOLDED]]
// CHECK-NEXT:      } where {
// CHECK-NEXT:        %[[LEFT:.*]] = arith.cmpi sle, %{{.*}}, %m
// CHECK-NEXT:        attn.yield %[[LEFT]] : i1
// CHECK-NEXT:      }
attn.kernel @example(%bias: !attn.tensor<[M, N], f32>, %k: !attn.tensor<[N, D], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %bias[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      %cst = arith.constant 0.0 : f32
      %1 = attn.reduce sum(%d: D) : f32 {
        %5 = attn.read %k[%j, %d] : !attn.tensor<[N, D], f32>
        attn.yield %5 : f32
      }
      %2 = arith.cmpf ogt, %1, %cst : f32
      %3 = arith.cmpi sle, %j, %m : i64
      %4 = arith.andi %2, %3 : i1
      attn.yield %4 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// A mask that is nothing else is gone; that of a sum, whose terms it leaves out, stays.
// CHECK-LABEL: attn.kernel @whole(
// CHECK:           attn.reduce logsumexp(%n: N)
// CHECK:             arith.select
// CHECK-NEXT:        attn.yield
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield
// CHECK:         attn.tensor "total"
// CHECK:           } where {
// CHECK:             attn.reduce sum(%d: D)
attn.kernel @whole(%bias: !attn.tensor<[M, N], f32>, %k: !attn.tensor<[N, D], f32>) {
  %lse = attn.tensor "lse"(%m: M) : f32 {
    %0 = attn.reduce logsumexp(%n: N) : f32 {
      %1 = attn.read %bias[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      %cst = arith.constant 0.0 : f32
      %1 = attn.reduce sum(%d: D) : f32 {
        %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        attn.yield %3 : f32
      }
      %2 = arith.cmpf ogt, %1, %cst : f32
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  %total = attn.tensor "total"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %bias[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      %cst = arith.constant 0.0 : f32
      %1 = attn.reduce sum(%d: D) : f32 {
        %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        attn.yield %3 : f32
      }
      %2 = arith.cmpf ogt, %1, %cst : f32
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %lse : !attn.tensor<[M], f32> as f32, %total : !attn.tensor<[M], f32> as f32
}
