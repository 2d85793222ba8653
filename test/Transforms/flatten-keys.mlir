// RUN: attn-opt %s --attn-flatten-keys | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK:         %weight = attn.tensor "weight"(%i: I, %x_y: X * Y) : f32 {
// CHECK-NEXT:      %0 = attn.reduce softmax(%x_y_0: X * Y) at (%x_y) : f32 {
// CHECK-NEXT:        %Y = attn.size Y
// CHECK-NEXT:        %1 = attn.floordiv %x_y_0, %Y
// CHECK-NEXT:        %Y_1 = attn.size Y
// CHECK-NEXT:        %2 = attn.mod %x_y_0, %Y_1
// CHECK-NEXT:        %3 = attn.read %score[%i, %1, %2] : !attn.tensor<[I, X, Y], f32>
// CHECK-NEXT:        attn.yield %3 : f32
// CHECK-NEXT:      }
// CHECK-NEXT:      attn.yield %0 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %out = attn.tensor "out"(%i: I) : f32 {
// CHECK-NEXT:      %0 = attn.reduce sum(%x_y: X * Y) : f32 {
// CHECK-NEXT:        %Y = attn.size Y
// CHECK-NEXT:        %1 = attn.floordiv %x_y, %Y
// CHECK-NEXT:        %Y_0 = attn.size Y
// CHECK-NEXT:        %2 = attn.mod %x_y, %Y_0
// CHECK-NEXT:        %3 = attn.read %weight[%i, %x_y] : !attn.tensor<[I, X * Y], f32>
// CHECK-NEXT:        attn.yield %3 : f32
attn.kernel @example(%score: !attn.tensor<[I, X, Y], f32>) {
  %weight = attn.tensor "weight"(%i: I, %x: X, %y: Y) : f32 {
    %0 = attn.reduce softmax(%u: X, %w: Y) at (%x, %y) : f32 {
      %1 = attn.read %score[%i, %u, %w] : !attn.tensor<[I, X, Y], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%i: I) : f32 {
    %0 = attn.reduce sum(%x: X, %y: Y) : f32 {
      %1 = attn.read %weight[%i, %x, %y] : !attn.tensor<[I, X, Y], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[I], f32> as f32
}

// Three keys, a mask and a sink. Each digit is a quotient by the sizes below it and a remainder by its own.
// CHECK-LABEL: attn.kernel @three(
// CHECK:         attn.tensor "weight"(%i: I, %x_y_z: X * (Y * 4)) : f32 {
// CHECK:           attn.read %sink[%i]
// CHECK-NEXT:      attn.reduce softmax(%x_y_z_0: X * (Y * 4)) at (%x_y_z) sink
// CHECK:             %[[BELOW:.*]] = attn.size Y * 4
// CHECK-NEXT:        %[[X:.*]] = attn.floordiv %x_y_z_0, %[[BELOW]]
// CHECK:             %[[MIDDLE:.*]] = attn.floordiv %x_y_z_0
// CHECK:             %[[Y:.*]] = attn.mod %[[MIDDLE]]
// CHECK:             %[[Z:.*]] = attn.mod %x_y_z_0
// CHECK-NEXT:        attn.read %score[%[[X]], %[[Y]], %[[Z]]]
// CHECK:           } where {
// CHECK:             arith.cmpi sle, %{{.*}}, %i
attn.kernel @three(%score: !attn.tensor<[X, Y, 4], f32>, %sink: !attn.tensor<[I], f32>) {
  %weight = attn.tensor "weight"(%i: I, %x: X, %y: Y, %z: 4) : f32 {
    %s = attn.read %sink[%i] : !attn.tensor<[I], f32>
    %0 = attn.reduce softmax(%u: X, %v: Y, %w: 4) at (%x, %y, %z) sink %s : f32 {
      %1 = attn.read %score[%u, %v, %w] : !attn.tensor<[X, Y, 4], f32>
      attn.yield %1 : f32
    } where {
      %1 = arith.cmpi sle, %u, %i : i64
      attn.yield %1 : i1
    }
    attn.yield %0 : f32
  }
  %out = attn.tensor "out"(%i: I) : f32 {
    %0 = attn.reduce sum(%x: X, %y: Y, %z: 4) : f32 {
      %1 = attn.read %weight[%i, %x, %y, %z] : !attn.tensor<[I, X, Y, 4], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %out : !attn.tensor<[I], f32> as f32
}

// A sum over one of the keys, or weights that are returned, need them apart.
// CHECK-LABEL: attn.kernel @apart(
// CHECK:         attn.tensor "weight"(%x: X, %y: Y)
// CHECK:         attn.tensor "seen"(%x: X, %y: Y)
attn.kernel @apart(%score: !attn.tensor<[X, Y], f32>) {
  %weight = attn.tensor "weight"(%x: X, %y: Y) : f32 {
    %0 = attn.reduce softmax(%u: X, %w: Y) at (%x, %y) : f32 {
      %1 = attn.read %score[%u, %w] : !attn.tensor<[X, Y], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %columns = attn.tensor "columns"(%y: Y) : f32 {
    %0 = attn.reduce sum(%x: X) : f32 {
      %1 = attn.read %weight[%x, %y] : !attn.tensor<[X, Y], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %seen = attn.tensor "seen"(%x: X, %y: Y) : f32 {
    %0 = attn.reduce softmax(%u: X, %w: Y) at (%x, %y) : f32 {
      %1 = attn.read %score[%u, %w] : !attn.tensor<[X, Y], f32>
      %2 = arith.negf %1 : f32
      attn.yield %2 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %columns : !attn.tensor<[Y], f32> as f32, %seen : !attn.tensor<[X, Y], f32> as f32
}

// Two sizes that may be negative, which is empty, could have a product that is not.
// CHECK-LABEL: attn.kernel @differences(
// CHECK:         attn.tensor "weight"(%x: X - Y, %y: X - Y)
attn.kernel @differences(%score: !attn.tensor<[X, Y], f32>) {
  %weight = attn.tensor "weight"(%x: X - Y, %y: X - Y) : f32 {
    %0 = attn.reduce softmax(%u: X - Y, %w: X - Y) at (%x, %y) : f32 {
      %1 = attn.read %score[%u, %w] : !attn.tensor<[X, Y], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  %total = attn.tensor "total"() : f32 {
    %0 = attn.reduce sum(%x: X - Y, %y: X - Y) : f32 {
      %1 = attn.read %weight[%x, %y] : !attn.tensor<[X - Y, X - Y], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %total : !attn.tensor<[], f32> as f32
}
