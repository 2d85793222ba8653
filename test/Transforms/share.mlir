// RUN: attn-opt %s --attn-share --cse --canonicalize --split-input-file | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %a = attn.tensor "a"(%n: N) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%d: D) : f32 {
// CHECK-NEXT:        %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
// CHECK-NEXT:        attn.yield %1 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %c = attn.tensor "c"(%n: N) : f32 {
// CHECK-NEXT:      %0 = attn.read %a[%n] : !attn.tensor<[N], f32>
// CHECK-NEXT:      %1 = arith.mulf %0, %0 : f32
// CHECK-NEXT:      attn.yield %1 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return
attn.kernel @example(%k: !attn.tensor<[N, D], f32>) {
  %a = attn.tensor "a"(%n: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %b = attn.tensor "b"(%j: N) : f32 {
    %0 = attn.reduce sum(%d: D) : f32 {
      %1 = attn.read %k[%j, %d] : !attn.tensor<[N, D], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %c = attn.tensor "c"(%n: N) : f32 {
    %0 = attn.read %a[%n] : !attn.tensor<[N], f32>
    %1 = attn.read %b[%n] : !attn.tensor<[N], f32>
    %2 = arith.mulf %0, %1 : f32
    attn.yield %2 : f32
  }
  attn.return %c : !attn.tensor<[N], f32> as f32
}

// -----

// Two outputs stay two.
// CHECK-LABEL: attn.kernel @outputs(
// CHECK:         %b = attn.tensor "b"(%i: N) : f32 {
// CHECK-NEXT:      %0 = attn.read %a[%i] : !attn.tensor<[N], f32>
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    attn.return %a : !attn.tensor<[N], f32> as f32, %b : !attn.tensor<[N], f32> as f32
attn.kernel @outputs(%x: !attn.tensor<[N], f32>) {
  %a = attn.tensor "a"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    %1 = arith.mulf %0, %0 : f32
    attn.yield %1 : f32
  }
  %b = attn.tensor "b"(%i: N) : f32 {
    %0 = attn.read %x[%i] : !attn.tensor<[N], f32>
    %1 = arith.mulf %0, %0 : f32
    attn.yield %1 : f32
  }
  attn.return %a : !attn.tensor<[N], f32> as f32, %b : !attn.tensor<[N], f32> as f32
}
