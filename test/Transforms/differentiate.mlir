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
// CHECK: math.exp
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
