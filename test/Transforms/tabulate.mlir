// RUN: attn-opt %s --attn-tabulate --canonicalize | FileCheck %s

// The example of the pass's documentation.
// CHECK-LABEL: attn.kernel @example(
// CHECK-NEXT:    %score_distance = attn.tensor "score_distance"(%distance: M + N) : f32 {
// CHECK-NEXT:      %0 = attn.size M - 1
// CHECK-NEXT:      %1 = arith.subi %0, %distance : i64
// CHECK-NEXT:      %2 = math.absi %1 : i64
// CHECK-NEXT:      %3 = arith.sitofp %2 : i64 to f32
// CHECK-NEXT:      %4 = math.sqrt %3 : f32
// CHECK-NEXT:      attn.yield %4 : f32
// CHECK-NEXT:    }
// CHECK-NEXT:    %score = attn.score "score"(%m: M, %n: N) : f32 {
// CHECK-NEXT:      %0 = attn.read %q[%m] : !attn.tensor<[M], f32>
// CHECK-NEXT:      %1 = arith.subi %n, %m : i64
// CHECK-NEXT:      %2 = attn.size M - 1
// CHECK-NEXT:      %3 = arith.addi %1, %2 : i64
// CHECK-NEXT:      %4 = attn.read %score_distance[%3] : !attn.tensor<[M + N], f32>
// CHECK-NEXT:      %5 = arith.addf %0, %4 : f32
// CHECK-NEXT:      attn.yield %5 : f32
// CHECK-NEXT:    }
attn.kernel @example(%q: !attn.tensor<[M], f32>, %k: !attn.tensor<[N], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = attn.read %q[%m] : !attn.tensor<[M], f32>
    %1 = arith.subi %m, %n : i64
    %2 = math.absi %1 : i64
    %3 = arith.sitofp %2 : i64 to f32
    %4 = math.sqrt %3 : f32
    %5 = arith.addf %0, %4 : f32
    attn.yield %5 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// Other indices stay indices: of heads, here. The largest part is taken, with what multiplies it.
// CHECK-LABEL: attn.kernel @heads(
// CHECK-NEXT:    %score_distance = attn.tensor "score_distance"(%h: H, %distance: M + N) : f32 {
// CHECK:           math.powf
// CHECK:           arith.mulf
// CHECK:         attn.score "score"(%h: H, %m: M, %n: N)
// CHECK-NOT:       math.powf
// CHECK:           attn.read %score_distance[%h, %{{.*}}] : !attn.tensor<[H, M + N], f32>
attn.kernel @heads(%x: !attn.tensor<[M, N], f32>, %a: !attn.tensor<[H], f32>) {
  %score = attn.score "score"(%h: H, %m: M, %n: N) : f32 {
    %0 = attn.size N - M
    %1 = arith.addi %m, %0 : i64
    %2 = arith.subi %1, %n : i64
    %3 = arith.sitofp %2 : i64 to f32
    %4 = attn.read %a[%h] : !attn.tensor<[H], f32>
    %5 = math.powf %4, %3 : f32
    %6 = arith.mulf %5, %4 : f32
    %7 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %8 = arith.addf %7, %6 : f32
    attn.yield %8 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[H, M, N], f32>
  attn.return %weight : !attn.tensor<[H, M, N], f32> as f32
}

// What multiplies it by an element of each head stays where it is, and all heads read one table.
// CHECK-LABEL: attn.kernel @of_all_heads(
// CHECK-NEXT:    %score_distance = attn.tensor "score_distance"(%distance: M + N) : f32 {
// CHECK:         attn.score "score"(%h: H, %m: M, %n: N)
// CHECK:           attn.read %score_distance[%{{.*}}] : !attn.tensor<[M + N], f32>
// CHECK-NEXT:      attn.read %r[%h]
// CHECK-NEXT:      arith.mulf
attn.kernel @of_all_heads(%r: !attn.tensor<[H], f32>, %x: !attn.tensor<[M, N], f32>) {
  %score = attn.score "score"(%h: H, %m: M, %n: N) : f32 {
    %0 = arith.subi %m, %n : i64
    %1 = arith.sitofp %0 : i64 to f32
    %2 = math.exp %1 : f32
    %3 = attn.read %r[%h] : !attn.tensor<[H], f32>
    %4 = arith.mulf %2, %3 : f32
    %5 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
    %6 = arith.addf %4, %5 : f32
    attn.yield %6 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[H, M, N], f32>
  attn.return %weight : !attn.tensor<[H, M, N], f32> as f32
}

// What calls no function costs no more than a read, and what needs more than the distance has no place in a table.
// CHECK-LABEL: attn.kernel @left(
// CHECK-NOT:     _distance
attn.kernel @left(%a: !attn.tensor<[M], f32>, %x: !attn.tensor<[N], f32>) {
  %score = attn.score "score"(%m: M, %n: N) : f32 {
    %0 = arith.subi %m, %n : i64
    %1 = arith.sitofp %0 : i64 to f32
    %2 = attn.read %a[%m] : !attn.tensor<[M], f32>
    %3 = arith.mulf %1, %2 : f32
    %4 = math.exp %3 : f32
    %5 = arith.addi %m, %n : i64
    %6 = arith.sitofp %5 : i64 to f32
    %7 = math.sqrt %6 : f32
    %8 = arith.addf %4, %7 : f32
    %9 = arith.addf %8, %1 : f32
    attn.yield %9 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[M, N], f32>
  attn.return %weight : !attn.tensor<[M, N], f32> as f32
}

// One query has as many distances as pairs.
// CHECK-LABEL: attn.kernel @one(
// CHECK-NOT:     _distance
attn.kernel @one(%k: !attn.tensor<[N], f32>) {
  %score = attn.score "score"(%m: 1, %n: N) : f32 {
    %0 = arith.subi %m, %n : i64
    %1 = arith.sitofp %0 : i64 to f32
    %2 = math.exp %1 : f32
    attn.yield %2 : f32
  }
  %weight, %logsumexp = attn.softmax "weight", ""(%score) : !attn.tensor<[1, N], f32>
  attn.return %weight : !attn.tensor<[1, N], f32> as f32
}
