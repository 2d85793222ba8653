// RUN: attn-opt %s -allow-unregistered-dialect -verify-diagnostics -split-input-file

// One broken thing a chunk; the numbers are those of the constraints in the reference, docs/dialect.md.

// K1
// expected-error @+1 {{has two parameters named 'x'}}
"attn.kernel"() <{sym_name = "k", parameter_names = ["x", "x"], defaults = [unit, unit]}> ({
^bb0(%x: !attn.tensor<[N], f32>, %y: !attn.tensor<[N], f32>):
  %z = attn.tensor "z"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}) : () -> ()

// -----

// K1
// expected-error @+1 {{has 1 parameters, but 2 names and 1 defaults}}
"attn.kernel"() <{sym_name = "k", parameter_names = ["x", "y"], defaults = [unit]}> ({
^bb0(%x: !attn.tensor<[N], f32>):
  %z = attn.tensor "z"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}) : () -> ()

// -----

// K2
// expected-error @+1 {{parameter 'x' must be an !attn.tensor, but is 'f32'}}
attn.kernel @k(%x: f32) {
  %z = attn.tensor "z"() : f32 {
    attn.yield %x : f32
  }
  attn.return %z : !attn.tensor<[], f32> as f32
}

// -----

// K7
// expected-error @+1 {{attribute 'attn.saved' must be a number of its 1 outputs, but is 2}}
attn.kernel @k(%x: !attn.tensor<[N], f32>) attributes {attn.saved = 2} {
  %y = attn.tensor "y"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %y : !attn.tensor<[N], f32> as f32
}

// -----

// expected-error @+1 {{attribute 'attn.bounds' must be a list of one element for two of 1 outputs, but is []}}
attn.kernel @k(%x: !attn.tensor<[N], f32>) attributes {attn.bounds = []} {
  %z = attn.tensor "z"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// K7
// expected-error @+1 {{must have elements {statement = "...", tensor = "...", dimension = ..., size = #attn.size<...>}, but has {dimension = 0 : i64, size = #attn.size<N>, tensor = "x"}}}
attn.kernel @k(%x: !attn.tensor<[N], f32>) attributes {attn.bounds = [{tensor = "x", dimension = 0, size = #attn.size<N>}]} {
  %z = attn.tensor "z"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  %y = attn.tensor "y"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32, %y : !attn.tensor<[N], f32> as f32
}

// -----

// K5
// expected-error @+1 {{uses the size "K" in 'attn.bounds', which no parameter's shape gives}}
attn.kernel @k(%x: !attn.tensor<[N], f32>) attributes {attn.bounds = [{statement = "z", tensor = "x", dimension = 0, size = #attn.size<K>}]} {
  %z = attn.tensor "z"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  %y = attn.tensor "y"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32, %y : !attn.tensor<[N], f32> as f32
}

// -----

// K3
// expected-error @+1 {{parameter 'x' is not a scalar and cannot have a default}}
attn.kernel @k(%x: !attn.tensor<[N], f32> = 1.0 : f32) {
  %z = attn.tensor "z"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// K5
// expected-error @+1 {{uses the size "K" in 'attn.checks', which no parameter's shape gives}}
attn.kernel @k(%x: !attn.tensor<[N], f32>) attributes {attn.checks = [{message = "m", part = #attn.size<K>, whole = #attn.size<N>}]} {
  %z = attn.tensor "z"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// K6
// expected-error @+1 {{attribute 'attn.checks' must be a list, but is 3 : i64}}
attn.kernel @k(%x: !attn.tensor<[N], f32>) attributes {attn.checks = 3} {
  %z = attn.tensor "z"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// K6
// expected-error @+1 {{must have elements {message = "...", part = #attn.size<...>, whole = #attn.size<...>}, but has {message = "m", part = 4 : i64, whole = #attn.size<N>}}}
attn.kernel @k(%x: !attn.tensor<[N], f32>) attributes {attn.checks = [{message = "m", part = 4, whole = #attn.size<N>}]} {
  %z = attn.tensor "z"(%n: N) : f32 {
    %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// K3
// expected-error @+1 {{default of 'x' must be 'f32', but is 'i32'}}
attn.kernel @k(%x: !attn.tensor<[], f32> = 1 : i32) {
  %z = attn.tensor "z"() : f32 {
    %0 = attn.read %x[] : !attn.tensor<[], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[], f32> as f32
}

// -----

// K4
// expected-error @+1 {{must end in attn.return}}
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  "test.end"() : () -> ()
}

// -----

// K5
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  // expected-error @+1 {{uses the size "M", which no parameter's shape gives}}
  %z = attn.tensor "z"(%m: M) : f32 {
    %0 = attn.read %x[%m] : !attn.tensor<[N], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[M], f32> as f32
}

// -----

// K5
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : i64 {
    // expected-error @+1 {{uses the size "M", which no parameter's shape gives}}
    %0 = attn.size M + 1
    attn.yield %0 : i64
  }
  attn.return %z : !attn.tensor<[N], i64> as i64
}

// -----

// K5
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : i64 {
    // expected-error @+1 {{uses the size "M", which no parameter's shape gives}}
    %0 = attn.reduce sum(%m: M) : i64 {
      attn.yield %m : i64
    }
    attn.yield %0 : i64
  }
  attn.return %z : !attn.tensor<[N], i64> as i64
}

// -----

// R1
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  // expected-error @+1 {{needs at least one output}}
  "attn.return"() <{output_types = []}> : () -> ()
}

// -----

// R2
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : i64 {
    attn.yield %n : i64
  }
  // expected-error @+1 {{has 1 outputs, but 2 types}}
  "attn.return"(%z) <{output_types = [i64, i64]}> : (!attn.tensor<[N], i64>) -> ()
}

// -----

// R3
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  // expected-error @+1 {{output 0 is a parameter}}
  attn.return %x : !attn.tensor<[N], f32> as f32
}

// -----

// R4
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : i64 {
    attn.yield %n : i64
  }
  // expected-error @+1 {{output 1 is returned twice}}
  attn.return %z : !attn.tensor<[N], i64> as i64, %z : !attn.tensor<[N], i64> as i32
}

// -----

// P1
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  // expected-error @+1 {{has 2 index names for rank 1}}
  %z = "attn.tensor"() <{name = "z", indices = ["n", "m"]}> ({
  ^bb0(%n: i64):
    attn.yield %n : i64
  }) : () -> !attn.tensor<[N], i64>
  attn.return %z : !attn.tensor<[N], i64> as i64
}

// -----

// P2
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  // expected-error @+1 {{needs 1 index arguments, but its region has 2}}
  %z = "attn.tensor"() <{name = "z", indices = ["n"]}> ({
  ^bb0(%n: i64, %m: i64):
    attn.yield %n : i64
  }) : () -> !attn.tensor<[N], i64>
  attn.return %z : !attn.tensor<[N], i64> as i64
}

// -----

// P2
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  // expected-error @+1 {{index argument 0 must be i64, but is 'f32'}}
  %z = "attn.tensor"() <{name = "z", indices = ["n"]}> ({
  ^bb0(%n: f32):
    attn.yield %n : f32
  }) : () -> !attn.tensor<[N], f32>
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// P3
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : bf16 {
    // expected-error @+1 {{of the body must yield ('f32'), but yields ('i64')}}
    attn.yield %n : i64
  }
  attn.return %z : !attn.tensor<[N], bf16> as bf16
}

// -----

// P3
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  // expected-error @+1 {{the body must end in attn.yield}}
  %z = attn.tensor "z"(%n: N) : f32 {
    "test.end"() : () -> ()
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// S1
attn.kernel @k(%x: !attn.tensor<[], f32>) {
  // expected-error @+1 {{needs a key index}}
  %z = attn.score "z"() : f32 {
    %0 = attn.read %x[] : !attn.tensor<[], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[], f32> as f32
}

// -----

// S1
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  // expected-error @+1 {{must hold floats, but holds 'i64'}}
  %z = attn.score "z"(%n: N) : i64 {
    attn.yield %n : i64
  }
  attn.return %z : !attn.tensor<[N], i64> as i64
}

// -----

// M1
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  // expected-error @+1 {{must hold i1, but holds 'i64'}}
  %z = attn.mask "z"(%n: N) : i64 {
    attn.yield %n : i64
  }
  attn.return %z : !attn.tensor<[N], i64> as i64
}

// -----

// X1
attn.kernel @k(%x: !attn.tensor<[M, N], f32>, %c: !attn.tensor<[N, M], i1>) {
  // expected-error @+1 {{mask must be '!attn.tensor<[M, N], i1>', but is '!attn.tensor<[N, M], i1>'}}
  %w, %l = "attn.softmax"(%x, %c) <{name = "w", logsumexp_name = "", operandSegmentSizes = array<i32: 1, 1, 0>}>
    : (!attn.tensor<[M, N], f32>, !attn.tensor<[N, M], i1>) -> (!attn.tensor<[M, N], f32>, !attn.tensor<[M], f32>)
  attn.return %w : !attn.tensor<[M, N], f32> as f32
}

// -----

// X2
attn.kernel @k(%x: !attn.tensor<[M, N], f32>, %s: !attn.tensor<[N], f32>) {
  // expected-error @+1 {{sink must be '!attn.tensor<[M], f32>', but is '!attn.tensor<[N], f32>'}}
  %w, %l = "attn.softmax"(%x, %s) <{name = "w", logsumexp_name = "", operandSegmentSizes = array<i32: 1, 0, 1>}>
    : (!attn.tensor<[M, N], f32>, !attn.tensor<[N], f32>) -> (!attn.tensor<[M, N], f32>, !attn.tensor<[M], f32>)
  attn.return %w : !attn.tensor<[M, N], f32> as f32
}

// -----

// X3
attn.kernel @k(%x: !attn.tensor<[], f32>) {
  // expected-error @+1 {{a softmax needs a score with a key index}}
  %w, %l = attn.softmax "w", ""(%x) : !attn.tensor<[], f32>
  attn.return %w : !attn.tensor<[], f32> as f32
}

// -----

// X3
attn.kernel @k(%x: !attn.tensor<[N], i32>) {
  // expected-error @+1 {{score must hold floats, but holds 'i32'}}
  %w, %l = attn.softmax "w", ""(%x) : !attn.tensor<[N], i32>
  attn.return %w : !attn.tensor<[N], i64> as i64
}

// -----

// W1
attn.kernel @k(%x: !attn.tensor<[N, E], f32>) {
  // expected-error @+1 {{has 2 index names for rank 1}}
  %z = "attn.weighted_sum"() <{name = "z", indices = ["e", "f"], key = "n", key_size = #attn.size<N>, query = -1 : i64}> ({
  ^bb0(%e: i64, %n: i64):
    %0 = attn.read %x[%n, %e] : !attn.tensor<[N, E], f32>
    attn.yield %0, %0 : f32, f32
  }, {}) : () -> !attn.tensor<[E], f32>
  attn.return %z : !attn.tensor<[E], f32> as f32
}

// -----

// W2
attn.kernel @k(%x: !attn.tensor<[N, E], f32>) {
  // expected-error @+1 {{needs 2 index arguments, but its region has 1}}
  %z = "attn.weighted_sum"() <{name = "z", indices = ["e"], key = "n", key_size = #attn.size<N>, query = -1 : i64}> ({
  ^bb0(%e: i64):
    %0 = attn.read %x[%e, %e] : !attn.tensor<[N, E], f32>
    attn.yield %0, %0 : f32, f32
  }, {}) : () -> !attn.tensor<[E], f32>
  attn.return %z : !attn.tensor<[E], f32> as f32
}

// -----

// W2
attn.kernel @k(%x: !attn.tensor<[N, E], f32>) {
  // expected-error @+1 {{a weighted sum runs over one key index}}
  %z = attn.weighted_sum "z"(%e: E) over (%n: N, %m: N) query -1 : f32 {
    %0 = attn.read %x[%n, %e] : !attn.tensor<[N, E], f32>
    attn.yield %0, %0 : f32, f32
  }
  attn.return %z : !attn.tensor<[E], f32> as f32
}

// -----

// W3
attn.kernel @k(%x: !attn.tensor<[N, E], f32>) {
  %z = attn.weighted_sum "z"(%e: E) over (%n: N) query -1 : f32 {
    %0 = attn.read %x[%n, %e] : !attn.tensor<[N, E], f32>
    // expected-error @+1 {{of the body must yield ('f32', 'f32'), but yields ('f32')}}
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[E], f32> as f32
}

// -----

// W3
attn.kernel @k(%x: !attn.tensor<[N, E], f32>) {
  // expected-error @+1 {{must hold floats, but holds 'i64'}}
  %z = attn.weighted_sum "z"(%e: E) over (%n: N) query -1 : i64 {
    attn.yield %n, %e : i64, i64
  }
  attn.return %z : !attn.tensor<[E], i64> as i64
}

// -----

// W4
attn.kernel @k(%x: !attn.tensor<[N, E], f32>) {
  %z = attn.weighted_sum "z"(%e: E) over (%n: N) query -1 : f32 {
    %0 = attn.read %x[%n, %e] : !attn.tensor<[N, E], f32>
    attn.yield %0, %0 : f32, f32
  } where {
    // expected-error @+1 {{of the condition must yield ('i1'), but yields ('i64')}}
    attn.yield %n : i64
  }
  attn.return %z : !attn.tensor<[E], f32> as f32
}

// -----

// W5
attn.kernel @k(%x: !attn.tensor<[N, E], f32>) {
  // expected-error @+1 {{query index must be -1 or a position below 1, but is 1}}
  %z = attn.weighted_sum "z"(%e: E) over (%n: N) query 1 : f32 {
    %0 = attn.read %x[%n, %e] : !attn.tensor<[N, E], f32>
    attn.yield %0, %0 : f32, f32
  }
  attn.return %z : !attn.tensor<[E], f32> as f32
}

// -----

// D1
attn.kernel @k(%x: !attn.tensor<[N, E], f32>) {
  %z = attn.tensor "z"(%n: N) : f32 {
    // expected-error @+1 {{needs 2 subscripts for '!attn.tensor<[N, E], f32>', but has 1}}
    %0 = attn.read %x[%n] : !attn.tensor<[N, E], f32>
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// E1
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : i64 {
    // expected-error @+1 {{has 2 index names for 1 sizes}}
    %0 = "attn.reduce"() <{kind = 0 : i32, indices = ["i", "j"], sizes = [#attn.size<N>], operandSegmentSizes = array<i32: 0, 0>}> ({
    ^bb0(%i: i64):
      attn.yield %i : i64
    }, {}) : () -> i64
    attn.yield %0 : i64
  }
  attn.return %z : !attn.tensor<[N], i64> as i64
}

// -----

// E1
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : i64 {
    // expected-error @+1 {{sizes must be #attn.size attributes}}
    %0 = "attn.reduce"() <{kind = 0 : i32, indices = ["i"], sizes = [4 : i64], operandSegmentSizes = array<i32: 0, 0>}> ({
    ^bb0(%i: i64):
      attn.yield %i : i64
    }, {}) : () -> i64
    attn.yield %0 : i64
  }
  attn.return %z : !attn.tensor<[N], i64> as i64
}

// -----

// E1
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : i64 {
    // expected-error @+1 {{needs 1 index arguments, but its region has 0}}
    %0 = "attn.reduce"() <{kind = 0 : i32, indices = ["i"], sizes = [#attn.size<N>], operandSegmentSizes = array<i32: 0, 0>}> ({
      attn.yield %n : i64
    }, {}) : () -> i64
    attn.yield %0 : i64
  }
  attn.return %z : !attn.tensor<[N], i64> as i64
}

// -----

// E2
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : f32 {
    %0 = attn.reduce sum(%i: N) : f32 {
      // expected-error @+1 {{of the body must yield ('f32'), but yields ('i64')}}
      attn.yield %i : i64
    }
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// E2
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : i64 {
    %0 = attn.reduce sum(%i: N) : i64 {
      attn.yield %i : i64
    } where {
      // expected-error @+1 {{of the condition must yield ('i1'), but yields ('i64')}}
      attn.yield %i : i64
    }
    attn.yield %0 : i64
  }
  attn.return %z : !attn.tensor<[N], i64> as i64
}

// -----

// E3
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : f32 {
    // expected-error @+1 {{of kind softmax needs 1 'at' operands, but has 0}}
    %0 = attn.reduce softmax(%i: N) : f32 {
      %1 = attn.read %x[%i] : !attn.tensor<[N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// E3
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : f32 {
    // expected-error @+1 {{of kind sum needs 0 'at' operands, but has 1}}
    %0 = attn.reduce sum(%i: N) at (%n) : f32 {
      %1 = attn.read %x[%i] : !attn.tensor<[N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// E4
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"() : i64 {
    // expected-error @+1 {{of kind logsumexp must be a float, but is 'i64'}}
    %0 = attn.reduce logsumexp(%i: N) : i64 {
      attn.yield %i : i64
    }
    attn.yield %0 : i64
  }
  attn.return %z : !attn.tensor<[], i64> as i64
}

// -----

// E4
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : f32 {
    %s = attn.read %x[%n] : !attn.tensor<[N], f32>
    // expected-error @+1 {{of kind max cannot have a sink}}
    %0 = attn.reduce max(%i: N) sink %s : f32 {
      %1 = attn.read %x[%i] : !attn.tensor<[N], f32>
      attn.yield %1 : f32
    }
    attn.yield %0 : f32
  }
  attn.return %z : !attn.tensor<[N], f32> as f32
}

// -----

// E5
attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"() : i1 {
    // expected-error @+1 {{of kind sum cannot be 'i1'}}
    %0 = attn.reduce sum(%i: N) : i1 {
      %c = arith.cmpi eq, %i, %i : i64
      attn.yield %c : i1
    }
    attn.yield %0 : i1
  }
  attn.return %z : !attn.tensor<[], i1> as i1
}

// -----

attn.kernel @k(%x: !attn.tensor<[N], f32>) {
  %z = attn.tensor "z"(%n: N) : f32 {
    // expected-error @+1 {{expected sum, max, min, softmax or logsumexp, but found 'product'}}
    %0 = attn.reduce product(%i: N) : f32 {
    }
  }
}

// -----

// expected-error @+1 {{dimension -1 is negative}}
attn.kernel @k(%x: !attn.tensor<[-1], f32>) {
}

// -----

// expected-error @+1 {{element type must be one of f64, f32, f16, bf16, i64, i32, i8, ui8, i1, but is 'i16'}}
attn.kernel @k(%x: !attn.tensor<[N], i16>) {
}

// -----

// expected-error @+1 {{expected a size: a name, an integer or an expression of them}}
attn.kernel @k(%x: !attn.tensor<["N"], f32>) {
}
