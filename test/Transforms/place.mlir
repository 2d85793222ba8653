// RUN: attn-opt %s --pass-pipeline='builtin.module(attn.kernel(attn-place))' --split-input-file | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example
// CHECK: } where {
// CHECK-NEXT: [[ID:%.*]] = attn.read %id[%n]
// CHECK-NEXT: [[LAST:%.*]] = attn.size T - 1
// CHECK-NEXT: [[MOST:%.*]] = arith.minsi [[ID]], [[LAST]] : i64
// CHECK: [[PLACE:%.*]] = arith.maxsi [[MOST]], {{%.*}} : i64
// CHECK-NEXT: [[IS:%.*]] = arith.cmpi eq, [[PLACE]], %t : i64
// CHECK: arith.cmpi sge, [[ID]]
// CHECK-NEXT: arith.cmpi slt, [[ID]]
attn.kernel @example(%x: !attn.tensor<[N], f32>, %id: !attn.tensor<[N], i32>, %z: !attn.tensor<[T], f32>) {
  %y = attn.tensor "y"(%t: T) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %x[%n] : !attn.tensor<[N], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %id[%n] : !attn.tensor<[N], i32>
      %2 = arith.cmpi eq, %1, %t : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[T], f32> as f32
}

// -----

// The one term of a sum; what else is asked for stays.
// CHECK-LABEL: attn.kernel @term
// CHECK-NOT: attn.reduce
// CHECK: [[ID:%.*]] = attn.read %id[%n]
// CHECK: [[X:%.*]] = attn.read %x[{{%.*}}]
// CHECK: arith.select {{%.*}}, [[X]], {{%.*}} : f32
attn.kernel @term(%x: !attn.tensor<[T], f32>, %id: !attn.tensor<[N], i32>) {
  %y = attn.tensor "y"(%n: N) : f32 {
    %0 = attn.reduce sum(%t: T) : f32 {
      %1 = attn.read %x[%t] : !attn.tensor<[T], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %id[%n] : !attn.tensor<[N], i32>
      %2 = arith.cmpi eq, %t, %1 : i64
      %3 = arith.cmpi sle, %t, %n : i64
      %4 = arith.andi %2, %3 : i1
      attn.yield %4 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[N], f32> as f32
}

// -----

// Terms that depend on the place, a largest number, numbers that are no data: as they are.
// CHECK-LABEL: attn.kernel @others
// CHECK-NOT: arith.minsi
// CHECK-COUNT-3: attn.reduce
attn.kernel @others(%x: !attn.tensor<[N, T], f32>, %id: !attn.tensor<[N], i32>) {
  %a = attn.tensor "a"(%t: T) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %x[%n, %t] : !attn.tensor<[N, T], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %id[%n] : !attn.tensor<[N], i32>
      %2 = arith.cmpi eq, %1, %t : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  %b = attn.tensor "b"(%t: T) : f32 {
    %0 = attn.reduce max(%n: N) : f32 {
      %c0 = arith.constant 0 : i64
      %1 = attn.read %x[%n, %c0] : !attn.tensor<[N, T], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %id[%n] : !attn.tensor<[N], i32>
      %2 = arith.cmpi eq, %1, %t : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  %c = attn.tensor "c"(%t: T) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %c0 = arith.constant 0 : i64
      %1 = attn.read %x[%n, %c0] : !attn.tensor<[N, T], f32>
      attn.yield %1 : f32
    } where {
      %c2 = arith.constant 2 : i64
      %1 = arith.muli %n, %c2 : i64
      %2 = arith.cmpi eq, %1, %t : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %a : !attn.tensor<[T], f32> as f32, %b : !attn.tensor<[T], f32> as f32, %c : !attn.tensor<[T], f32> as f32
}

// -----

// Weights of a softmax are computed where they are summed.
// CHECK-LABEL: attn.kernel @weights
// CHECK-COUNT-2: attn.reduce
attn.kernel @weights(%x: !attn.tensor<[M, N], f32>, %id: !attn.tensor<[M], i32>) {
  %w = attn.tensor "w"(%m: M, %n: N) : f32 {
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %y = attn.tensor "y"(%m: M) : f32 {
    %0 = attn.reduce sum(%n: N) : f32 {
      %1 = attn.read %w[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %id[%m] : !attn.tensor<[M], i32>
      %2 = arith.cmpi eq, %1, %n : i64
      attn.yield %2 : i1
    }
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[M], f32> as f32
}
