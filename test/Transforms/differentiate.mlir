// RUN: attn-opt %s --attn-differentiate --split-input-file -verify-diagnostics | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example_forward(
// CHECK: attn.return %y : !attn.tensor<[N], f32> as f32
// CHECK: attn.kernel @example_backward(%x: !attn.tensor<[N], f32>, %grad_y: !attn.tensor<[N], f32>) {
// CHECK-NEXT: %grad_x = attn.tensor "grad_x"(%n: N) : f32 {
// CHECK: [[X:%.*]] = attn.read %x[%n] : !attn.tensor<[N], f32>
// CHECK: [[EXP:%.*]] = math.exp [[X]] : f32
// CHECK: arith.mulf {{%.*}}, [[EXP]] : f32
// CHECK: attn.return %grad_x : !attn.tensor<[N], f32> as f32
attn.kernel @example(%x: !attn.tensor<[N], f32>) {
  %y = attn.tensor "y"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  attn.return %y : !attn.tensor<[N], f32> as f32
}

// -----

// Weights come from the saved log-sum-exp; what reads them is a sum where the mask holds.
// CHECK-LABEL: attn.kernel @causal_forward(
// CHECK: %weight_logsumexp = attn.tensor "weight_logsumexp"(%m: M) : f32 {
// CHECK-NEXT: attn.reduce logsumexp(
// CHECK: attn.return %weight : !attn.tensor<[M, N], f32> as f32, %weight_logsumexp : !attn.tensor<[M], f32> as f32
// CHECK: attn.kernel @causal_backward(%x: !attn.tensor<[M, N], f32>, %weight_logsumexp: !attn.tensor<[M], f32>, %grad_weight: !attn.tensor<[M, N], f32>) {
// CHECK: attn.tensor "weight"(%m: M, %n: N) : f32 attributes {attn.weights} {
// CHECK: math.exp {{%.*}} fastmath<afn> : f32
// CHECK: arith.select
// CHECK: attn.tensor "grad_weight_dot"(%m: M) : f32 {
// CHECK-NEXT: attn.reduce sum(%n: N)
// CHECK: attn.tensor "grad_x"(%m: M, %n: N) : f32 {
attn.kernel @causal(%x: !attn.tensor<[M, N], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      %1 = arith.cmpi sle, %j, %m : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// -----

// A tensor read at a computed subscript gets a sum over the places that read it.
// CHECK-LABEL: attn.kernel @gather_backward(
// CHECK: attn.tensor "grad_x"(%at: N) : f32 {
// CHECK-NEXT: attn.reduce sum(%m: M) : f32 {
// CHECK: } where {
// CHECK: attn.read %index[%m]
// CHECK: arith.cmpi eq, {{%.*}}, %at : i64
attn.kernel @gather(%x: !attn.tensor<[N], f32>, %index: !attn.tensor<[M], i32>) {
  %y = attn.tensor "y"(%m: M) : f32 {
    %0 = attn.read %index[%m] : !attn.tensor<[M], i32>
    %1 = attn.read %x[%0] : !attn.tensor<[N], f32>
    attn.yield %1 : f32
  }
  attn.return %y : !attn.tensor<[M], f32> as f32
}

// -----

// So does what a group of indices shares, whether or not groups divide them.
// CHECK-LABEL: attn.kernel @groups_backward(
// CHECK: attn.tensor "grad_x"(%at: G) : f32 {
// CHECK-NEXT: attn.reduce sum(%h: H) : f32 {
// CHECK: } where {
// CHECK: [[GROUP:%.*]] = attn.floordiv %h, %c4_i64
// CHECK: arith.minsi [[GROUP]],
// CHECK: arith.cmpi eq, {{%.*}}, %at : i64
attn.kernel @groups(%x: !attn.tensor<[G], f32>, %s: !attn.tensor<[H], f32>) {
  %y = attn.tensor "y"(%h: H) : f32 {
    %c4_i64 = arith.constant 4 : i64
    %0 = attn.floordiv %h, %c4_i64
    %1 = attn.read %x[%0] : !attn.tensor<[G], f32>
    %2 = attn.read %s[%h] : !attn.tensor<[H], f32>
    %3 = arith.mulf %1, %2 : f32
    attn.yield %3 : f32
  }
  attn.return %y : !attn.tensor<[H], f32> as f32
}

// -----

// What is read at the numbers of a group, one after the other, has one place in one group; what is left over has none.
// CHECK-LABEL: attn.kernel @group_sums_backward(
// CHECK: attn.tensor "grad_x"(%at: H) : f32 {
// CHECK-NEXT: [[WIDTH:%.*]] = attn.size H floordiv G
// CHECK-NEXT: [[GROUP:%.*]] = attn.floordiv %at, [[WIDTH]]
// CHECK: attn.read %grad_y[[[GROUP]]]
// CHECK-NOT: attn.reduce
// CHECK: [[END:%.*]] = attn.size G * (H floordiv G)
// CHECK: arith.cmpi slt, %at, [[END]] : i64
// CHECK-NEXT: arith.select
attn.kernel @group_sums(%x: !attn.tensor<[H], f32>, %s: !attn.tensor<[G], f32>) {
  %y = attn.tensor "y"(%g: G) : f32 {
    %0 = attn.reduce sum(%r: H floordiv G) : f32 {
      %width = attn.size H floordiv G
      %first = arith.muli %g, %width : i64
      %at = arith.addi %first, %r : i64
      %1 = attn.read %x[%at] : !attn.tensor<[H], f32>
      attn.yield %1 : f32
    }
    %2 = attn.read %s[%g] : !attn.tensor<[G], f32>
    %3 = arith.addf %0, %2 : f32
    attn.yield %3 : f32
  }
  attn.return %y : !attn.tensor<[G], f32> as f32
}

// -----

// All terms behind the end of a shorter tensor belong to its last element.
// CHECK-LABEL: attn.kernel @shorter_backward(
// CHECK: attn.tensor "grad_x"(%n: D) : f32 {
// CHECK-NEXT: attn.reduce sum(%n_1: N) : f32 {
// CHECK: } where {
// CHECK: arith.minsi %n_1,
// CHECK: arith.cmpi eq, {{%.*}}, %n : i64
attn.kernel @shorter(%x: !attn.tensor<[D], f32>, %s: !attn.tensor<[N], f32>) {
  %y = attn.tensor "y"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[D], f32>
    %1 = attn.read %s[%n] : !attn.tensor<[N], f32>
    %2 = arith.mulf %0, %1 : f32
    attn.yield %2 : f32
  }
  attn.return %y : !attn.tensor<[N], f32> as f32
}

// -----

// Weights without a softmax: the sum inside of them is a tensor of its own, and what their derivative needs of them is read.
// CHECK-LABEL: attn.kernel @sigmoid_backward(
// CHECK: %weight_dot = attn.tensor "weight_dot"(%m: M, %n: N) : f32 {
// CHECK-NEXT: attn.reduce sum(%d: D)
// CHECK: %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
// CHECK: attn.read %weight_dot[%m, %n]
// CHECK: %grad_weight_dot = attn.tensor "grad_weight_dot"(%m: M, %n: N) : f32 {
// CHECK-NEXT: attn.read %grad_weight[%m, %n]
// CHECK-NEXT: [[WEIGHT:%.*]] = attn.read %weight[%m, %n]
// CHECK-NEXT: arith.constant
// CHECK-NEXT: arith.subf [[WEIGHT]]
// CHECK-NOT: math.exp
// CHECK: attn.return
attn.kernel @sigmoid(%q: !attn.tensor<[M, D], f32>, %k: !attn.tensor<[N, D], f32>, %v: !attn.tensor<[N, E], f32>) {
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %one = arith.constant 1.0 : f32
    %0 = attn.reduce sum(%d: D) : f32 {
      %5 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      %6 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %7 = arith.mulf %5, %6 : f32
      attn.yield %7 : f32
    }
    %1 = arith.negf %0 : f32
    %2 = math.exp %1 : f32
    %3 = arith.addf %2, %one : f32
    %4 = arith.divf %one, %3 : f32
    attn.yield %4 : f32
  }
  %out = attn.tensor "out"(%m: M, %e: E) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      %3 = arith.mulf %1, %2 : f32
      attn.yield %3 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[M, E], f32> as f32
}

// -----

// A score that is read at a constant is part of the softmax: its gradient has an element for each query and key, not for
// each of several heads as well.
// CHECK-LABEL: attn.kernel @second_head_backward(
// CHECK: %weight_score = attn.tensor "weight_score"(%m: M, %n: N) : f32 {
// CHECK: [[ONE:%.*]] = arith.constant 1 : i64
// CHECK: attn.read %q[[[ONE]], %m]
// CHECK-NOT: attn.tensor "grad_score"
// CHECK: attn.return
attn.kernel @second_head(%q: !attn.tensor<[2, M], f32>, %k: !attn.tensor<[2, N], f32>) {
  %score = attn.tensor "score"(%i: 2, %m: M, %n: N) : f32 {
    %0 = attn.read %q[%i, %m] : !attn.tensor<[2, M], f32>
    %1 = attn.read %k[%i, %n] : !attn.tensor<[2, N], f32>
    %2 = arith.mulf %0, %1 : f32
    attn.yield %2 : f32
  }
  %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
    %one = arith.constant 1 : i64
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %score[%one, %m, %j] : !attn.tensor<[2, M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// -----

attn.kernel @part(%x: !attn.tensor<[M, N], f32>) {
  %y = attn.tensor "y"(%m: M) : f32 {
    %c0 = arith.constant 0 : i64
    // expected-error @below {{has no gradient: only a softmax that is a tensor of its own has}}
    %0 = attn.reduce softmax(%j: N) at (%c0) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    %1 = math.exp %0 : f32
    attn.yield %1 : f32
  }
  attn.return %y : !attn.tensor<[M], f32> as f32
}

// -----

// What a choice leaves out adds 0, whatever its derivative: the choice comes after the product.
// CHECK-LABEL: attn.kernel @root_backward(
// CHECK:         [[CHOSEN:%.*]] = arith.cmpf ogt
// CHECK:         [[SLOPE:%.*]] = arith.divf
// CHECK:         arith.select [[CHOSEN]], [[SLOPE]],
attn.kernel @root(%x: !attn.tensor<[N], f32>) {
  %y = attn.tensor "y"(%n: N) : f32 {
    %zero = arith.constant 0.0 : f32
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    %1 = math.sqrt %0 : f32
    %2 = arith.cmpf ogt, %0, %zero : f32
    %3 = arith.select %2, %1, %zero : f32
    attn.yield %3 : f32
  }
  attn.return %y : !attn.tensor<[N], f32> as f32
}
