// The passes over the attn dialect, one a file in lib/Transforms. Each example is run by a test in test/Transforms.

#ifndef ATTN_TRANSFORMS_PASSES_TD
#define ATTN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def AttnOutline : Pass<"attn-outline", "::attn::KernelOp"> {
  let summary = "Makes softmaxes and sums over keys tensors of their own";
  let description = [{
    A softmax, a log-sum-exp, or a sum that reads weights becomes an `attn.tensor` where it is only a part of a formula. Other
    sums (the dot products of a score) stay.

    ```mlir
    %y = attn.tensor "y"(%m: M) : f32 {
      %0 = attn.reduce logsumexp(%n: N) : f32 {
        %2 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
        attn.yield %2 : f32
      }
      %1 = arith.negf %0 : f32
      attn.yield %1 : f32
    }
    ```

    becomes

    ```mlir
    %y_logsumexp = attn.tensor "y_logsumexp"(%m: M) : f32 {
      %0 = attn.reduce logsumexp(%n: N) : f32 {
        %1 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
        attn.yield %1 : f32
      }
      attn.yield %0 : f32
    }
    %y = attn.tensor "y"(%m: M) : f32 {
      %0 = attn.read %y_logsumexp[%m] : !attn.tensor<[M], f32>
      %1 = arith.negf %0 : f32
      attn.yield %1 : f32
    }
    ```
  }];
}

def AttnInline : Pass<"attn-inline", "::attn::KernelOp"> {
  let summary = "Substitutes tensors that must not be stored into the formulas that read them";
  let description = [{
    Inlined are tensors that cost nothing to compute, and those that depend on both the key and the query of the
    softmax or the sum that reads them (storing them would take M·N memory). What depends on only one of the two is
    computed once and stays. So does what is read at a subscript that might have to be clamped.

    ```mlir
    %last = attn.tensor "last"(%m: M) : i64 {
      %c1 = arith.constant 1 : i64
      %0 = arith.subi %m, %c1 : i64
      attn.yield %0 : i64
    }
    %mask = attn.tensor "mask"(%m: M, %n: N) : i1 {
      %0 = attn.read %last[%m] : !attn.tensor<[M], i64>
      %1 = arith.cmpi sle, %n, %0 : i64
      attn.yield %1 : i1
    }
    ```

    becomes

    ```mlir
    %mask = attn.tensor "mask"(%m: M, %n: N) : i1 {
      %c1 = arith.constant 1 : i64
      %0 = arith.subi %m, %c1 : i64
      %1 = arith.cmpi sle, %n, %0 : i64
      attn.yield %1 : i1
    }
    ```
  }];
}

def AttnRaise : Pass<"attn-raise", "::attn::KernelOp"> {
  let summary = "Recognises score, mask, softmax and weighted sum";
  let description = [{
    A tensor that is a softmax or a log-sum-exp as a whole becomes `attn.score`, `attn.mask` and `attn.softmax`; a softmax and a
    log-sum-exp of the same scores share one. A sum over keys whose terms split into a weight, which does not
    depend on the last index, and a value, which does not depend on the query, becomes an
    `attn.weighted_sum`. Matrix products stay as they are: their left factor is a tensor in memory, not a weight to compute.

    ```mlir
    %weight = attn.tensor "weight"(%m: M, %n: N) : f32 {
      %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
        %1 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
        attn.yield %1 : f32
      }
      attn.yield %0 : f32
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
    ```

    becomes

    ```mlir
    %weight_score = attn.score "weight_score"(%m: M, %n: N) : f32 {
      %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %0 : f32
    }
    %weight, %logsumexp = attn.softmax "weight", ""(%weight_score) : !attn.tensor<[M, N], f32>
    %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
      %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      attn.yield %0, %1 : f32, f32
    }
    ```
  }];
}

#endif
