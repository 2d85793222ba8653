// The passes over the attn dialect, one a file in lib/Transforms. Each example is run by a test in test/Transforms.

#ifndef ATTN_TRANSFORMS_PASSES_TD
#define ATTN_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

def AttnCheckBounds : Pass<"attn-check-bounds", "::mlir::ModuleOp"> {
  let summary = "Adds kernels that find subscripts outside their tensors";
  let description = [{
    Each kernel with subscripts that depend on data gets a *checking kernel*, named after it with the suffix `.bounds`. It has the same
    parameters and, for each such subscript, two outputs: its least and its greatest value where the kernel's outputs use it. Not
    used is what a `where` or the mask of a softmax leaves out, what a weight that is masked is multiplied by, and the side of a
    `select`, `and` or `or` that does not matter; 0 and −1, which are outside no dimension, stand for it.

    The pass comes first: it needs the front end's `attn.tensor`s. From there on the new kernel is one like all others. A backward
    kernel gets none: it reads at the subscripts of the forward kernel, which was checked when it was called.

    ```mlir
    %y = attn.tensor "y"(%m: M) : f32 {
      %0 = attn.reduce sum(%j: J) : f32 {
        %1 = attn.read %index[%m, %j] : !attn.tensor<[M, J], i32>
        %2 = attn.read %x[%1] : !attn.tensor<[N], f32>
        attn.yield %2 : f32
      } where {
        %1 = attn.read %count[%m] : !attn.tensor<[M], i32>
        %2 = arith.cmpi slt, %j, %1 : i64
        attn.yield %2 : i1
      }
      attn.yield %0 : f32
    }
    ```

    gets a kernel that returns

    ```mlir
    %x_0_least = attn.tensor "x_0_least"() : i64 {
      %0 = attn.reduce min(%m: M, %j: J) : i64 {
        %1 = attn.read %index[%m, %j] : !attn.tensor<[M, J], i32>
        %2 = attn.read %count[%m] : !attn.tensor<[M], i32>
        %3 = arith.cmpi slt, %j, %2 : i64
        %c0_i64 = arith.constant 0 : i64
        %4 = arith.select %3, %1, %c0_i64 : i64
        attn.yield %4 : i64
      }
      attn.yield %0 : i64
    }
    %x_0_greatest = attn.tensor "x_0_greatest"() : i64 {
      %0 = attn.reduce max(%m: M, %j: J) : i64 {
        %1 = attn.read %index[%m, %j] : !attn.tensor<[M, J], i32>
        %2 = attn.read %count[%m] : !attn.tensor<[M], i32>
        %3 = arith.cmpi slt, %j, %2 : i64
        %c-1_i64 = arith.constant -1 : i64
        %4 = arith.select %3, %1, %c-1_i64 : i64
        attn.yield %4 : i64
      }
      attn.yield %0 : i64
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def AttnDifferentiate : Pass<"attn-differentiate", "::mlir::ModuleOp"> {
  let summary = "Makes a forward and a backward kernel of each kernel";
  let description = [{
    The *forward kernel* has the suffix `_forward` and returns, after the kernel's outputs, what the backward kernel needs: the
    log-sum-exp of each softmax, and some sums of weights. The *backward kernel*, `_backward`, has the parameters of the kernel,
    then what was saved (under the name that the forward kernel returns it by), then `grad_NAME` for each floating-point
    output. It returns `grad_NAME` for each of `inputs`, in the parameter's dtype.

    The backward kernel is like all others: the gradient of a tensor is the sum of what its readers contribute, weights are
    computed again from scores and log-sum-exp, and what has an element for each query and key is summed where it is
    computed. A weight's exponential has `fastmath<afn>`: its operand is never positive, and lowerings take the one that
    they have for softmaxes. Integers and conditions have no gradients; a tensor that is read at computed subscripts gets
    a sum over the places that read it. The pass comes after attn-outline: each softmax must be a tensor of its own.

    ```mlir
    %y = attn.tensor "y"(%n: N) : f32 {
      %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
      %1 = math.exp %0 : f32
      attn.yield %1 : f32
    }
    ```

    gets a backward kernel with

    ```mlir
    %grad_x = attn.tensor "grad_x"(%n: N) : f32 {
      %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
      %1 = math.exp %0 : f32
      %2 = attn.read %grad_y[%n] : !attn.tensor<[N], f32>
      %3 = arith.mulf %2, %1 : f32
      attn.yield %3 : f32
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
  let options = [ListOption<"inputs", "inputs", "std::string",
                            "Parameters to differentiate by; all floating-point ones where there are none">];
}

def AttnFlattenKeys : Pass<"attn-flatten-keys", "::attn::KernelOp"> {
  let summary = "Makes a softmax over several indices one over a single index";
  let description = [{
    A softmax over several indices, as over the places of an image, whose weights nothing but sums over all of these indices
    reads, gets one index that counts them all: it is one attention then, with the plans of one.

    ```mlir
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
    ```

    becomes

    ```mlir
    %weight = attn.tensor "weight"(%i: I, %x_y: X * Y) : f32 {
      %0 = attn.reduce softmax(%x_y_0: X * Y) at (%x_y) : f32 {
        %Y = attn.size Y
        %1 = attn.floordiv %x_y_0, %Y
        %Y_1 = attn.size Y
        %2 = attn.mod %x_y_0, %Y_1
        %3 = attn.read %score[%i, %1, %2] : !attn.tensor<[I, X, Y], f32>
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    %out = attn.tensor "out"(%i: I) : f32 {
      %0 = attn.reduce sum(%x_y: X * Y) : f32 {
        %Y = attn.size Y
        %1 = attn.floordiv %x_y, %Y
        %Y_0 = attn.size Y
        %2 = attn.mod %x_y, %Y_0
        %3 = attn.read %weight[%i, %x_y] : !attn.tensor<[I, X * Y], f32>
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    ```
  }];
}

def AttnOrder : Pass<"attn-order", "::attn::KernelOp"> {
  let summary = "Puts weighted sums before what reads the log-sum-exp of their weights";
  let description = [{
    What computes a weighted sum has the log-sum-exp of its weights at hand, and stores it where somebody reads it later. A statement that
    needs it before would have all scores computed a second time; `--attn-shift-invariance` makes such statements. A sum that depends on
    one stays behind it.

    ```mlir
    %weight, %lse = attn.softmax "weight", "lse"(%score) : !attn.tensor<[M, N], f32>
    %half = attn.tensor "half"(%m: M) : f32 {
      %0 = attn.read %lse[%m] : !attn.tensor<[M], f32>
      %cst = arith.constant 5.000000e-01 : f32
      %1 = arith.mulf %0, %cst : f32
      attn.yield %1 : f32
    }
    %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
      %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      attn.yield %0, %1 : f32, f32
    }
    ```

    becomes

    ```mlir
    %weight, %lse = attn.softmax "weight", "lse"(%score) : !attn.tensor<[M, N], f32>
    %out = attn.weighted_sum "out"(%m: M, %e: E) over (%n: N) query 0 : f32 {
      %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
      attn.yield %0, %1 : f32, f32
    }
    %half = attn.tensor "half"(%m: M) : f32 {
      %0 = attn.read %lse[%m] : !attn.tensor<[M], f32>
      %cst = arith.constant 5.000000e-01 : f32
      %1 = arith.mulf %0, %cst : f32
      attn.yield %1 : f32
    }
    ```
  }];
}

def AttnSumWeights : Pass<"attn-sum-weights", "::attn::KernelOp"> {
  let summary = "Gives a log-sum-exp that no weighted sum has at hand a sum of its weights";
  let description = [{
    What computes a weighted sum has the log-sum-exp of its weights at hand, from scores of a whole tile of queries. One that is read
    where nothing sums its weights gets a sum of them, which nobody reads. It runs last: to other passes such a sum has no use.

    ```mlir
    %weight, %lse = attn.softmax "", "lse"(%score) : !attn.tensor<[M, N], f32>
    %half = attn.tensor "half"(%m: M) : f32 {
      %0 = attn.read %lse[%m] : !attn.tensor<[M], f32>
      %cst = arith.constant 5.000000e-01 : f32
      %1 = arith.mulf %0, %cst : f32
      attn.yield %1 : f32
    }
    ```

    becomes

    ```mlir
    %weight, %lse = attn.softmax "", "lse"(%score) : !attn.tensor<[M, N], f32>
    %lse_sum = attn.weighted_sum "lse_sum"(%m: M, %one: 1) over (%n: N) query 0 : f32 {
      %0 = attn.read %weight[%m, %n] : !attn.tensor<[M, N], f32>
      %cst = arith.constant 1.000000e+00 : f32
      attn.yield %0, %cst : f32, f32
    }
    %half = attn.tensor "half"(%m: M) : f32 {
      %0 = attn.read %lse[%m] : !attn.tensor<[M], f32>
      %cst = arith.constant 5.000000e-01 : f32
      %1 = arith.mulf %0, %cst : f32
      attn.yield %1 : f32
    }
    ```
  }];
}

def AttnOutline : Pass<"attn-outline", "::attn::KernelOp"> {
  let summary = "Makes softmaxes and sums over keys tensors of their own";
  let description = [{
    A softmax, a log-sum-exp, or a sum that reads weights becomes an `attn.tensor` where it is only a part of a formula. So does a
    sum over keys whose terms have a factor that is a reduction (weights without a softmax), and a
    reduction that would be computed again for each element of an index further out, such as the sum of a column by which all of
    its elements are divided, where it reads a tensor of as many elements; and a sum over heads of what each of them has for a pair
    (`sum[g](before[h, g] * dot[g, m, n])`), which attn-inline decides about as about a statement; and a row of a batch times a
    matrix inside of a function in another sum, the hidden layer of `sum[u](w2[u] * tanh(sum[d](w1[u, d] * x[b, t, d])))`. Other
    sums (the dot products of a score) stay.

    Where the kernel is to be `differentiated`, so does every reduction that is the same for some index of the formula around it: the
    dot product in `sum[n](sum[d](q[m, d] * k[n, d]) * v[n, e])` is, for e. Its gradient is a sum over that index. And so does all
    of such a weight that changes with key and query, as in `sum[n](sum[d](…) * exp(a[m] - a[n]) * v[n, e])`.

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
  let options = [Option<"differentiated", "differentiated", "bool", "false", "Whether gradients of the kernel come next">];
}

def AttnStateSums : Pass<"attn-state-sums", "::attn::KernelOp"> {
  let summary = "Makes sums over a running state sums over keys";
  let description = [{
    A running total of matrices, one for each token, that is read by sums over one of its indices alone, with a factor for each
    element of that, is no tensor: these become sums over the keys it is made of. They are what linear attention is without
    a state, and attn-chunk-sums makes them linear in time.

    ```mlir
    %state = attn.tensor "state"(%n: N, %d: D, %e: E) : f32 {
      %0 = attn.reduce sum(%i: N) : f32 {
        %1 = attn.read %k[%i, %d] : !attn.tensor<[N, D], f32>
        %2 = attn.read %v[%i, %e] : !attn.tensor<[N, E], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      } where {
        %1 = arith.cmpi sle, %i, %n : i64
        attn.yield %1 : i1
      }
      attn.yield %0 : f32
    }
    %out = attn.tensor "out"(%n: N, %e: E) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = attn.read %q[%n, %d] : !attn.tensor<[N, D], f32>
        %2 = attn.read %state[%n, %d, %e] : !attn.tensor<[N, D, E], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    ```

    becomes

    ```mlir
    %out = attn.tensor "out"(%n: N, %e: E) : f32 {
      %0 = attn.reduce sum(%i: N) : f32 {
        %1 = attn.reduce sum(%d: D) : f32 {
          %4 = attn.read %q[%n, %d] : !attn.tensor<[N, D], f32>
          %5 = attn.read %k[%i, %d] : !attn.tensor<[N, D], f32>
          %6 = arith.mulf %4, %5 : f32
          attn.yield %6 : f32
        }
        %2 = attn.read %v[%i, %e] : !attn.tensor<[N, E], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      } where {
        %1 = arith.cmpi sle, %i, %n : i64
        attn.yield %1 : i1
      }
      attn.yield %0 : f32
    }
    ```
  }];
}

def AttnScan : Pass<"attn-scan", "::attn::KernelOp"> {
  let summary = "Makes reductions of the terms up to an index tensors of their own";
  let description = [{
    `sum[j](term[m, j] where n < j)` has one term more for each n: as a part of a score it is computed from the start for every pair, as a
    tensor it is a running total (`attn/Analysis/Scan.h`). So it becomes an `attn.tensor`, and so do reductions inside its terms,
    the dot products of scores, which are needed for each j once. It stays where it has more indices than the formula that it stands in:
    a tensor of it would be larger than what is computed.

    Where the kernel is to be `differentiated`, its terms become a tensor as well, which are 0 where a condition leaves them out: their gradient
    is a scan in the other direction, and the chain rule goes on from there once for each term.

    ```mlir
    %w = attn.tensor "w"(%m: M, %n: N) : f32 {
      %0 = attn.reduce sum(%j: N) : f32 {
        %2 = attn.read %z[%m, %j] : !attn.tensor<[M, N], f32>
        %3 = math.exp %2 : f32
        attn.yield %3 : f32
      } where {
        %2 = arith.cmpi slt, %n, %j : i64
        attn.yield %2 : i1
      }
      %1 = math.tanh %0 : f32
      attn.yield %1 : f32
    }
    ```

    becomes

    ```mlir
    %w_scan = attn.tensor "w_scan"(%m: M, %n: N) : f32 {
      %0 = attn.reduce sum(%j: N) : f32 {
        %1 = attn.read %z[%m, %j] : !attn.tensor<[M, N], f32>
        %2 = math.exp %1 : f32
        attn.yield %2 : f32
      } where {
        %1 = arith.cmpi slt, %n, %j : i64
        attn.yield %1 : i1
      }
      attn.yield %0 : f32
    }
    %w = attn.tensor "w"(%m: M, %n: N) : f32 {
      %0 = attn.read %w_scan[%m, %n] : !attn.tensor<[M, N], f32>
      %1 = math.tanh %0 : f32
      attn.yield %1 : f32
    }
    ```
  }];
  let options = [Option<"differentiated", "differentiated", "bool", "false", "Whether gradients of the kernel come next">];
}

def AttnSplitSums : Pass<"attn-split-sums", "::attn::KernelOp"> {
  let summary = "Makes a sum of the weights of several softmaxes several sums";
  let description = [{
    A sum of one softmax's weights is computed with them, one tile of keys after the other. Where the terms of a sum add or
    subtract weights of several softmaxes, each gets a sum of its own, and the statement adds those. What no key changes is
    multiplied outside. The pass comes after attn-outline: softmaxes and sums are tensors of their own.

    ```mlir
    %out = attn.tensor "out"(%m: M, %e: E) : f32 {
      %0 = attn.reduce sum(%n: N) : f32 {
        %1 = attn.read %first[%m, %n] : !attn.tensor<[M, N], f32>
        %2 = attn.read %lambda[] : !attn.tensor<[], f32>
        %3 = attn.read %second[%m, %n] : !attn.tensor<[M, N], f32>
        %4 = arith.mulf %2, %3 : f32
        %5 = arith.subf %1, %4 : f32
        %6 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
        %7 = arith.mulf %5, %6 : f32
        attn.yield %7 : f32
      }
      attn.yield %0 : f32
    }
    ```

    becomes

    ```mlir
    %out_first = attn.tensor "out_first"(%m: M, %e: E) : f32 {
      %0 = attn.reduce sum(%n: N) : f32 {
        %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
        %2 = attn.read %first[%m, %n] : !attn.tensor<[M, N], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    %out_second = attn.tensor "out_second"(%m: M, %e: E) : f32 {
      %0 = attn.reduce sum(%n: N) : f32 {
        %1 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
        %2 = attn.read %second[%m, %n] : !attn.tensor<[M, N], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    %out = attn.tensor "out"(%m: M, %e: E) : f32 {
      %0 = attn.read %out_first[%m, %e] : !attn.tensor<[M, E], f32>
      %1 = attn.read %out_second[%m, %e] : !attn.tensor<[M, E], f32>
      %2 = attn.read %lambda[] : !attn.tensor<[], f32>
      %3 = arith.negf %2 : f32
      %4 = arith.mulf %1, %3 : f32
      %5 = arith.addf %0, %4 : f32
      attn.yield %5 : f32
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def AttnChunkSums : Pass<"attn-chunk-sums", "::attn::KernelOp"> {
  let summary = "Makes sums over what comes before a row linear in time";
  let description = [{
    A sum over keys up to the row's position (or before it, or from it on), whose terms are products of what the row has and
    what the key has, or sums over one index of such products, visits the pairs of chunks of 96 tokens alone. The keys of each
    whole chunk come to a matrix, and those of all chunks before the row's to a running total of these, which the row is multiplied
    by: time grows with the number of tokens and not with its square. Pairs that are tensors of their own count as their
    formulas, and sums in the terms may be of up to three such products, as those of gradients are.

    Terms may have a factor `γ^(m - n)` or `e^(a * (m - n))`: that of a key and a row is the one from the key to the end of its
    chunk, times those from there to the row's chunk and to the row, which are tables. Where one of them overflows, so does the
    whole.

    No such sum is one of a softmax's weights, or of any other function of a score. Pairs that something else reads, or that
    are returned, are all computed: sums of them stay as they are. Sums of at most 192 tokens stay as they are,
    where their number is a constant.

    ```mlir
    %out = attn.tensor "out"(%m: N, %e: E) : f32 {
      %0 = attn.reduce sum(%n: N) : f32 {
        %1 = attn.reduce sum(%d: D) : f32 {
          %2 = attn.read %q[%m, %d] : !attn.tensor<[N, D], f32>
          %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
          %4 = arith.mulf %2, %3 : f32
          attn.yield %4 : f32
        }
        %5 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
        %6 = arith.mulf %1, %5 : f32
        attn.yield %6 : f32
      } where {
        %1 = arith.cmpi sle, %n, %m : i64
        attn.yield %1 : i1
      }
      attn.yield %0 : f32
    }
    ```

    becomes

    ```mlir
    %out_near = attn.tensor "out_near"(%m: N, %e: E) : f32 {
      %c96_i64 = arith.constant 96 : i64
      %0 = attn.reduce sum(%n: N) : f32 {
        %1 = attn.reduce sum(%d: D) : f32 {
          %4 = attn.read %q[%m, %d] : !attn.tensor<[N, D], f32>
          %5 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
          %6 = arith.mulf %4, %5 : f32
          attn.yield %6 : f32
        }
        %2 = attn.read %v[%n, %e] : !attn.tensor<[N, E], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      } where {
        %1 = arith.cmpi sle, %n, %m : i64
        %2 = attn.floordiv %m, %c96_i64
        %3 = arith.muli %2, %c96_i64 : i64
        %4 = arith.cmpi sle, %3, %n : i64
        %5 = arith.andi %1, %4 : i1
        attn.yield %5 : i1
      }
      attn.yield %0 : f32
    }
    %out_chunk = attn.tensor "out_chunk"(%chunk: N floordiv 96, %d: D, %e: E) : f32 {
      %c96_i64 = arith.constant 96 : i64
      %0 = attn.reduce sum(%within: 96) : f32 {
        %1 = arith.muli %chunk, %c96_i64 : i64
        %2 = arith.addi %1, %within : i64
        %3 = attn.read %v[%2, %e] : !attn.tensor<[N, E], f32>
        %4 = attn.read %k[%2, %d] : !attn.tensor<[N, D], f32>
        %5 = arith.mulf %3, %4 : f32
        attn.yield %5 : f32
      }
      attn.yield %0 : f32
    }
    %out_state = attn.tensor "out_state"(%chunk: N floordiv 96, %d: D, %e: E) : f32 {
      %0 = attn.reduce sum(%earlier: N floordiv 96) : f32 {
        %1 = attn.read %out_chunk[%earlier, %d, %e] : !attn.tensor<[N floordiv 96, D, E], f32>
        attn.yield %1 : f32
      } where {
        %1 = arith.cmpi sle, %earlier, %chunk : i64
        attn.yield %1 : i1
      }
      attn.yield %0 : f32
    }
    %out_far = attn.tensor "out_far"(%chunk: N floordiv 96, %within: 96, %e: E) : f32 {
      %c96_i64 = arith.constant 96 : i64
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = arith.muli %chunk, %c96_i64 : i64
        %2 = arith.addi %1, %c96_i64 : i64
        %3 = arith.addi %2, %within : i64
        %4 = attn.read %out_state[%chunk, %d, %e] : !attn.tensor<[N floordiv 96, D, E], f32>
        %5 = attn.read %q[%3, %d] : !attn.tensor<[N, D], f32>
        %6 = arith.mulf %5, %4 : f32
        attn.yield %6 : f32
      }
      attn.yield %0 : f32
    }
    %out = attn.tensor "out"(%m: N, %e: E) : f32 {
      %cst = arith.constant 0.000000e+00 : f32
      %c1_i64 = arith.constant 1 : i64
      %c96_i64 = arith.constant 96 : i64
      %0 = attn.read %out_near[%m, %e] : !attn.tensor<[N, E], f32>
      %1 = attn.floordiv %m, %c96_i64
      %2 = arith.cmpi sge, %m, %c96_i64 : i64
      %3 = arith.subi %1, %c1_i64 : i64
      %4 = attn.mod %m, %c96_i64
      %5 = attn.read %out_far[%3, %4, %e] : !attn.tensor<[N floordiv 96, 96, E], f32>
      %6 = arith.select %2, %5, %cst : f32
      %7 = arith.addf %0, %6 : f32
      attn.yield %7 : f32
    }
    ```
  }];
}

def AttnStorePairs : Pass<"attn-store-pairs", "::attn::KernelOp"> {
  let summary = "Decides which pairs of query and key are stored, for a block of rows at a time";
  let description = [{
    In the backward kernels of `attn-differentiate` several sums read weights and gradients of scores, which have an element
    for each query and key. Such a tensor gets the attribute `attn.pairs` if two statements would compute it otherwise: it is
    stored for some rows, what reads it is computed as far as these rows go, and then come the next rows. Pairs that one
    statement reads become part of it; what is other pairs under a second name is read there. Kernels that are `attn.whole`
    are left as they are.

    The sums become products of matrices: a factor that is read from pairs, then others; what does not change with the
    sum's indices is multiplied outside. Stored pairs are 0 where their mask is false, so sums need no condition.

    Pairs are found from the weights of a softmax, and from tensors that sums over their keys and sums over their rows read,
    as without one. Conditions of such sums become masks first. Where weights are divided by a total of their row, a statement
    that has no block stands between sums over pairs and pairs that are made of it: those sums come before the blocks, with scores
    of their own. A running total (`attn-scan`) of scores along keys is one of the
    pairs, and so are those scores: they are stored in forward kernels, too, where no softmax asks for a whole row of them before.

    A sum over pairs that another sum adds up elsewhere, as the gradient of keys that heads share (`h // 4` is `at`) or of a
    table of biases (`n - m + far` is `at`), becomes one with it: nothing is stored for each head or pair. Where it adds up rows for
    the few places that a distance chooses, the gradient of a table of relative positions, the numbers of pairs that a row is
    multiplied with are added up first (`grad_r_table`), and what is left is a product of matrices.

    ```mlir
    %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
      %0 = attn.reduce sum(%m: M) : f32 {
        %1 = attn.read %grad_score[%m, %n] : !attn.tensor<[M, N], f32>
        %2 = attn.read %scale[] : !attn.tensor<[], f32>
        %3 = arith.mulf %1, %2 : f32
        %4 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %5 = arith.mulf %3, %4 : f32
        attn.yield %5 : f32
      } where {
        %1 = attn.read %weight_mask[%m, %n] : !attn.tensor<[M, N], i1>
        attn.yield %1 : i1
      }
      attn.yield %0 : f32
    }
    ```

    becomes

    ```mlir
    %grad_k = attn.tensor "grad_k"(%n: N, %d: D) : f32 {
      %0 = attn.reduce sum(%m: M) : f32 {
        %3 = attn.read %grad_score[%m, %n] : !attn.tensor<[M, N], f32>
        %4 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %5 = arith.mulf %3, %4 : f32
        attn.yield %5 : f32
      }
      %1 = attn.read %scale[] : !attn.tensor<[], f32>
      %2 = arith.mulf %0, %1 : f32
      attn.yield %2 : f32
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def AttnInline : Pass<"attn-inline", "::attn::KernelOp"> {
  let summary = "Substitutes tensors that must not be stored into the formulas that read them";
  let description = [{
    Inlined are tensors that cost nothing to compute, and those that depend on both the key and the query of the softmax
    or the sum that reads them (storing them would take M·N memory), unless they are a linear layer of pairs that are there, an input
    or scores of several heads (`sum[c](w[h, c] * pair[m, n, c])`): those are a matrix product. So is a sum over
    rows that a query and a key have together (`sum[c](q[h, m, c] * edge[m, n, c])`), which becomes a tensor of its own wherever it is
    written, unless the kernel is `attn.whole`. Functions of layers with a batch (`exp(sum[c](x[b, t, c] * w[c, f]))`) stay, too: weights
    lack the batch and the row, where query and key have the batch in common. Scores that a sum takes in so are computed again for totals that weights are divided by (`sum[n](exp(score[m, n]))`), which become tensors with the attribute
    `attn.total`, where nothing else reads them. What depends on only one of the two is computed once and stays. So do
    scores whose rows have values of their own that are stored (`sum[m](a[m, n] / total[m])`), and
    what is read at a subscript that might have to be clamped, terms of a sum that divide their last index (a rotated key
    reads its other half), a sum whose terms have places, where it would not be the only one of its statement, and
    tensors some of whose elements are compared with each other (a score with the greatest of its row), which would be
    rounded differently if they were computed twice.

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

def AttnFoldConditions : Pass<"attn-fold-conditions", "::attn::KernelOp"> {
  let summary = "Drops choices that a reduction's condition has made";
  let description = [{
    In a reduction with a condition, a `select` on that condition, or on a part of it, is its first value.

    ```mlir
    %y = attn.tensor "y"(%m: M) : f32 {
      %0 = attn.reduce sum(%n: N) : f32 {
        %cst = arith.constant 0.000000e+00 : f32
        %1 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
        %2 = arith.cmpi sle, %n, %m : i64
        %3 = arith.select %2, %1, %cst : f32
        attn.yield %3 : f32
      } where {
        %1 = arith.cmpi sle, %n, %m : i64
        attn.yield %1 : i1
      }
      attn.yield %0 : f32
    }
    ```

    becomes

    ```mlir
    %y = attn.tensor "y"(%m: M) : f32 {
      %0 = attn.reduce sum(%n: N) : f32 {
        %1 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
        attn.yield %1 : f32
      } where {
        %1 = arith.cmpi sle, %n, %m : i64
        attn.yield %1 : i1
      }
      attn.yield %0 : f32
    }
    ```
  }];
}

def AttnFoldMasks : Pass<"attn-fold-masks", "::attn::KernelOp"> {
  let summary = "Makes what sums decide of a mask a part of the score";
  let description = [{
    A key whose score is -inf is masked. So a part of a softmax's mask that is made of sums (most often of the score itself) becomes a
    choice of -inf in the score, whose sums are computed for tiles of queries and keys. The rest of the mask stays: it bounds the keys.

    ```mlir
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %bias[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %1 : f32
    } where {
      %cst = arith.constant 0.0 : f32
      %1 = attn.reduce sum(%d: D) : f32 {
        %4 = attn.read %k[%j, %d] : !attn.tensor<[N, D], f32>
        attn.yield %4 : f32
      }
      %2 = arith.cmpf ogt, %1, %cst : f32
      %3 = arith.cmpi sle, %j, %m : i64
      %4 = arith.andi %2, %3 : i1
      attn.yield %4 : i1
    }
    ```

    becomes

    ```mlir
    %0 = attn.reduce softmax(%j: N) at (%n) : f32 {
      %1 = attn.read %bias[%m, %j] : !attn.tensor<[M, N], f32>
      %2 = attn.reduce sum(%d: D) : f32 {
        %5 = attn.read %k[%j, %d] : !attn.tensor<[N, D], f32>
        attn.yield %5 : f32
      }
      %cst = arith.constant 0.000000e+00 : f32
      %3 = arith.cmpf ogt, %2, %cst : f32
      %cst_0 = arith.constant 0xFF800000 : f32
      %4 = arith.select %3, %1, %cst_0 : f32
      attn.yield %4 : f32
    } where {
      %1 = arith.cmpi sle, %j, %m : i64
      attn.yield %1 : i1
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def AttnRecomputeWeights : Pass<"attn-recompute-weights", "::attn::KernelOp"> {
  let summary = "Computes weights a second time where they are summed over heads or queries";
  let description = [{
    A sum that reads the weights of a softmax at its own key, each term of another row (the average of the heads, or what a key gets
    from all queries), would compute a row's scores again for each of its elements. The weights that it reads become a tensor of
    pairs (`attn.pairs`): computed again from the log-sum-exp of their rows, which is at hand where values are weighted, and stored
    for a block of rows at a time. They are divided by what those of a row add up to, 1 but for the roundings of the log-sum-exp and
    of scores that are computed in another order. So is a formula around the sum, where it is a multiple of it. Only sums that are returned are
    computed so: what is stored for another statement may be cut into parts, which blocks are not. Weights that are returned are
    stored anyway; kernels that are `attn.whole`, scores that are stored (layers over heads), and sums that blocks of rows do not
    suffice for, are left as they are. The pass runs where scores hold their whole formula.

    ```mlir
    %average = attn.tensor "average"(%m: M, %n: N) : f32 {
      %0 = attn.reduce sum(%h: H) : f32 {
        %1 = attn.read %weight[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
        attn.yield %1 : f32
      }
      attn.yield %0 : f32
    }
    ```

    becomes

    ```mlir
    %weight_logsumexp = attn.tensor "weight_logsumexp"(%h: H, %m: M) : f32 {
      %0 = attn.reduce logsumexp(%j: N) : f32 {
        %1 = attn.read %s[%h, %m, %j] : !attn.tensor<[H, M, N], f32>
        attn.yield %1 : f32
      }
      attn.yield %0 : f32
    }
    %weight_again = attn.tensor "weight_again"(%h: H, %m: M, %n: N) : f32 attributes {attn.pairs} {
      %0 = attn.read %s[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
      %1 = attn.read %weight_logsumexp[%h, %m] : !attn.tensor<[H, M], f32>
      %cst = arith.constant 0xFF800000 : f32
      %2 = arith.cmpf oeq, %1, %cst : f32
      %cst_0 = arith.constant 0x7F800000 : f32
      %3 = arith.select %2, %cst_0, %1 : f32
      %4 = arith.subf %0, %3 : f32
      %5 = math.exp %4 fastmath<afn> : f32
      attn.yield %5 : f32
    }
    %weight_again_total = attn.tensor "weight_again_total"(%h: H, %m: M) : f32 {
      %0 = attn.reduce sum(%n: N) : f32 {
        %1 = attn.read %weight_again[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
        attn.yield %1 : f32
      }
      attn.yield %0 : f32
    }
    %average = attn.tensor "average"(%m: M, %n: N) : f32 {
      %0 = attn.reduce sum(%h: H) : f32 {
        %1 = attn.read %weight_again_total[%h, %m] : !attn.tensor<[H, M], f32>
        %2 = attn.read %weight_again[%h, %m, %n] : !attn.tensor<[H, M, N], f32>
        %cst = arith.constant 5.000000e-01 : f32
        %3 = arith.maximumf %1, %cst : f32
        %4 = arith.divf %2, %3 : f32
        attn.yield %4 : f32
      }
      attn.yield %0 : f32
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def AttnPlace : Pass<"attn-place", "::attn::KernelOp"> {
  let summary = "Visits terms where numbers say that they are";
  let description = [{
    A sum whose terms are asked for at the place that a number says, one that is read, visits every term at every place.
    Where the number is clamped, and conditions say that it was inside, plans visit each term once, and add it where it
    belongs:

    ```mlir
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
    ```

    becomes

    ```mlir
    %y = attn.tensor "y"(%t: T) : f32 {
      %0 = attn.reduce sum(%n: N) : f32 {
        %1 = attn.read %x[%n] : !attn.tensor<[N], f32>
        attn.yield %1 : f32
      } where {
        %1 = attn.read %id[%n] : !attn.tensor<[N], i32>
        %2 = attn.size T - 1
        %3 = arith.minsi %1, %2 : i64
        %c0_i64 = arith.constant 0 : i64
        %4 = arith.maxsi %3, %c0_i64 : i64
        %5 = arith.cmpi eq, %4, %t : i64
        %c0_i64_0 = arith.constant 0 : i64
        %T = attn.size T
        %6 = arith.cmpi sge, %1, %c0_i64_0 : i64
        %7 = arith.cmpi slt, %1, %T : i64
        %8 = arith.andi %5, %6 : i1
        %9 = arith.andi %8, %7 : i1
        attn.yield %9 : i1
      }
      attn.yield %0 : f32
    }
    ```

    Of a sum over one index that is equal to a number, as the gradients of such sums are, one term is left:

    ```mlir
    %0 = attn.reduce sum(%t: T) : f32 {
      %1 = attn.read %x[%t] : !attn.tensor<[T], f32>
      attn.yield %1 : f32
    } where {
      %1 = attn.read %id[%n] : !attn.tensor<[N], i32>
      %2 = arith.cmpi eq, %1, %t : i64
      attn.yield %2 : i1
    }
    ```

    is `x` at the clamped number, or 0 where that is outside. Not where that would read the weights of a softmax.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def AttnRaise : Pass<"attn-raise", "::attn::KernelOp"> {
  let summary = "Recognises score, mask, softmax and weighted sum";
  let description = [{
    A tensor that is a softmax or a log-sum-exp as a whole becomes `attn.score`, `attn.mask` and `attn.softmax`; a softmax and a
    log-sum-exp of the same scores share one. A sum over keys whose terms split into a weight, which does not
    depend on the last index, and a value, which does not depend on the query but through rows of tables that the distance of
    query and key chooses, becomes an `attn.weighted_sum`. Where the value depends on another index than the last (`out[e, m]`), a weighted sum that has it
    last is computed and copied. Matrix products stay as they are: their left factor is a tensor in memory, not a weight to
    compute. So do sums of weights that are returned and have no mask, which are in memory anyway, and sums over another
    index than the key (over heads): each of their terms is of a row of its own, and the weights are stored.

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

def AttnAssociate : Pass<"attn-associate", "::attn::KernelOp"> {
  let summary = "Makes two products of matrices of the product of three in a gradient";
  let description = [{
    A sum over several indices visits all their combinations, one after the other. Where the factors that change with one
    of them are two matrices, their product becomes a tensor, and the sum one over the other indices; so does a factor
    that is a sum itself, without what is the same for all of its terms. The tensor has no more elements than another
    factor, which is an input or has the shape of one. Only backward kernels are changed: a factor that is infinite gives
    NaN where no term is left.

    ```mlir
    %grad_c = attn.tensor "grad_c"(%s: T) : f32 {
      %0 = attn.reduce sum(%t: T, %e: E) : f32 {
        %1 = attn.read %pairs[%t, %s] : !attn.tensor<[T, T], f32>
        %2 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
        %3 = arith.mulf %1, %2 : f32
        %4 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
        %5 = arith.mulf %3, %4 : f32
        attn.yield %5 : f32
      } where {
        %1 = arith.cmpi sle, %s, %t : i64
        attn.yield %1 : i1
      }
      attn.yield %0 : f32
    }
    ```

    becomes

    ```mlir
    %grad_c_product = attn.tensor "grad_c_product"(%s: T, %e: E) : f32 {
      %0 = attn.reduce sum(%t: T) : f32 {
        %1 = attn.read %pairs[%t, %s] : !attn.tensor<[T, T], f32>
        %2 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      } where {
        %1 = arith.cmpi sle, %s, %t : i64
        attn.yield %1 : i1
      }
      attn.yield %0 : f32
    }
    %grad_c = attn.tensor "grad_c"(%s: T) : f32 {
      %0 = attn.reduce sum(%e: E) : f32 {
        %1 = attn.read %grad_c_product[%s, %e] : !attn.tensor<[T, E], f32>
        %2 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    ```
  }];
}

def AttnFactorOut : Pass<"attn-factor-out", "::attn::KernelOp"> {
  let summary = "Multiplies a gradient's sum by what is the same for all its terms";
  let description = [{
    Where the terms of a sum are a multiple of one product, by factors and choices that are the same for all of them, the product
    alone is summed, and the factors and choices stand around the sum; so does its condition where that is the same for all terms.
    That is done for choices, for functions of an index, for factors that each element has for itself, and where the product does
    not change with one of the statement's indices. The product of a layer, whose weights lack the batch, becomes a tensor of its
    own, as several gradients may have it in common. Only backward kernels are changed: a factor that is infinite gives NaN where the sum is 0.

    ```mlir
    %grad_x = attn.tensor "grad_x"(%t: T, %s: T) : f32 {
      %0 = attn.reduce sum(%e: E) : f32 {
        %1 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
        %2 = attn.read %c[%s] : !attn.tensor<[T], f32>
        %3 = math.exp %2 : f32
        %4 = arith.mulf %1, %3 : f32
        %5 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      attn.yield %0 : f32
    }
    ```

    becomes

    ```mlir
    %grad_x = attn.tensor "grad_x"(%t: T, %s: T) : f32 {
      %0 = attn.reduce sum(%e: E) : f32 {
        %4 = attn.read %grad_out[%t, %e] : !attn.tensor<[T, E], f32>
        %5 = attn.read %v[%s, %e] : !attn.tensor<[T, E], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      %1 = attn.read %c[%s] : !attn.tensor<[T], f32>
      %2 = math.exp %1 : f32
      %3 = arith.mulf %0, %2 : f32
      attn.yield %3 : f32
    }
    ```
  }];
}

def AttnContract : Pass<"attn-contract", "::attn::KernelOp"> {
  let summary = "Makes dot products of sums of products";
  let description = [{
    In a sum of products, what does not depend on the key comes first: the lowering computes it once for a query, and a pair
    costs one multiply-add a term. Factors stay inside the sum, so that an infinite one, or a sum over nothing, gives what
    it gave.

    A product with a sum of what a key has and of a row of a table that query and key have together (`k[n, d] + table[n - m +
    far, d]`) becomes two sums: each is a product of matrices for many pairs at once.

    ```mlir
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %0 = attn.read %temperature[%m] : !attn.tensor<[M], f32>
      %1 = attn.reduce sum(%d: D) : f32 {
        %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %4 = arith.mulf %2, %3 : f32
        %5 = arith.divf %4, %0 : f32
        attn.yield %5 : f32
      }
      attn.yield %1 : f32
    }
    ```

    becomes

    ```mlir
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %0 = attn.read %temperature[%m] : !attn.tensor<[M], f32>
      %1 = attn.reduce sum(%d: D) : f32 {
        %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %3 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %4 = arith.divf %2, %0 : f32
        %5 = arith.mulf %4, %3 : f32
        attn.yield %5 : f32
      }
      attn.yield %1 : f32
    }
    ```
  }];
}

def AttnFoldScale : Pass<"attn-fold-scale", "::attn::KernelOp"> {
  let summary = "Multiplies the scale of a score into the queries";
  let description = [{
    A factor of a score that does not depend on the key goes inside the dot product, beside the part of it that does not
    depend on the key either; the lowering computes that product once for a query. It is pushed through sums, differences and
    choices on the way. Only factors that are finite whatever the parameters hold are moved, for ∞ · Σ is not Σ ∞, and
    division by a constant whose reciprocal is exact. What is read from a tensor of bf16 or f16 stays as it is: its products with
    another are exact.

    ```mlir
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %cst = arith.constant -5.000000e-01 : f32
      %0 = attn.reduce sum(%d: D) : f32 {
        %4 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %5 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %6 = arith.mulf %4, %5 : f32
        attn.yield %6 : f32
      }
      %1 = attn.read %bias[%n] : !attn.tensor<[N], f32>
      %2 = arith.subf %0, %1 : f32
      %3 = arith.mulf %2, %cst : f32
      attn.yield %3 : f32
    }
    ```

    becomes

    ```mlir
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %cst = arith.constant -5.000000e-01 : f32
      %0 = attn.read %bias[%n] : !attn.tensor<[N], f32>
      %1 = attn.reduce sum(%d: D) : f32 {
        %4 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %5 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %6 = arith.mulf %4, %cst : f32
        %7 = arith.mulf %6, %5 : f32
        attn.yield %7 : f32
      }
      %2 = arith.mulf %0, %cst : f32
      %3 = arith.subf %1, %2 : f32
      attn.yield %3 : f32
    }
    ```
  }];
}

def AttnExpandDistances : Pass<"attn-expand-distances", "::attn::KernelOp"> {
  let summary = "Turns squared distances in a score into dot products and norms";
  let description = [{
    Σ(q − k)² = Σq² + Σk² − 2 Σ q·k, with the norms computed once. The expansion cancels where norms are large and the distance is
    small, so it is used only where scale · norm ≤ 128 for all norms, the scale being what the distance is multiplied
    by (the largest, where heads or queries have one each): then the error of a score is below 3e-5. No other formula of q·k could
    do: two large vectors may lie side by side. Otherwise the distance is summed as it was written, which takes half as long again.
    One flag decides for a call; the sum that is ruled out is not computed. Distances that a score is another function of (a
    root, which would be of a number below 0 where two points are the same) stay, and so do those of up to three coordinates.

    ```mlir
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %3 = arith.subf %1, %2 : f32
        %4 = arith.mulf %3, %3 : f32
        attn.yield %4 : f32
      }
      attn.yield %0 : f32
    }
    ```

    becomes

    ```mlir
    %score_query_norm = attn.tensor "score_query_norm"(%m: M) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %2 = arith.mulf %1, %1 : f32
        attn.yield %2 : f32
      }
      attn.yield %0 : f32
    }
    %score_key_norm = attn.tensor "score_key_norm"(%n: N) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %2 = arith.mulf %1, %1 : f32
        attn.yield %2 : f32
      }
      attn.yield %0 : f32
    }
    %score_bounded = attn.tensor "score_bounded"() : i1 {
      %cst = arith.constant 1.280000e+02 : f32
      %0 = attn.reduce max(%m: M) : f32 {
        %5 = attn.read %score_query_norm[%m] : !attn.tensor<[M], f32>
        %6 = math.absf %5 : f32
        attn.yield %6 : f32
      }
      %1 = arith.cmpf ole, %0, %cst : f32
      %2 = attn.reduce max(%n: N) : f32 {
        %5 = attn.read %score_key_norm[%n] : !attn.tensor<[N], f32>
        %6 = math.absf %5 : f32
        attn.yield %6 : f32
      }
      %3 = arith.cmpf ole, %2, %cst : f32
      %4 = arith.andi %1, %3 : i1
      attn.yield %4 : i1
    }
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %true = arith.constant true
      %cst = arith.constant 2.000000e+00 : f32
      %0 = attn.read %score_query_norm[%m] : !attn.tensor<[M], f32>
      %1 = attn.read %score_key_norm[%n] : !attn.tensor<[N], f32>
      %2 = attn.read %score_bounded[] : !attn.tensor<[], i1>
      %3 = attn.reduce sum(%d: D) : f32 {
        %10 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %11 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %12 = arith.mulf %10, %11 : f32
        attn.yield %12 : f32
      } where {
        attn.yield %2 : i1
      }
      %4 = arith.mulf %3, %cst : f32
      %5 = arith.addf %0, %1 : f32
      %6 = arith.subf %5, %4 : f32
      %7 = arith.xori %2, %true : i1
      %8 = attn.reduce sum(%d: D) : f32 {
        %10 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %11 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %12 = arith.subf %10, %11 : f32
        %13 = arith.mulf %12, %12 : f32
        attn.yield %13 : f32
      } where {
        attn.yield %7 : i1
      }
      %9 = arith.select %2, %6, %8 : f32
      attn.yield %9 : f32
    }
    ```
  }];
}

def AttnHoist : Pass<"attn-hoist", "::attn::KernelOp"> {
  let summary = "Computes once what does not depend on both query and key";
  let description = [{
    A part of a score, a weight or a value that depends on the key and not on the query, and costs more than a read (a reduction,
    a division or a function), becomes a tensor. What depends on the query alone is computed once for a query by the lowering; it
    becomes a tensor only where it is a reduction within a reduction. So do all factors of a matrix product that its columns have
    in common, where they are more than an element, and something of their size is there already: features of attention in linear
    time, and normalised rows; a factor of the columns that calls functions and that some index of the product does not change; and a
    reduction that is the same in a row of a matrix product, or for all terms of another reduction.

    ```mlir
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %3 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %4 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %5 = math.exp %4 : f32
        %6 = arith.mulf %3, %5 : f32
        attn.yield %6 : f32
      }
      attn.yield %0 : f32
    }
    ```

    becomes

    ```mlir
    %score_key = attn.tensor "score_key"(%n: N, %d: D) : f32 {
      %0 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
      %1 = math.exp %0 : f32
      attn.yield %1 : f32
    }
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %2 = attn.read %score_key[%n, %d] : !attn.tensor<[N, D], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    ```
  }];
}

def AttnTableProducts : Pass<"attn-table-products", "::attn::KernelOp"> {
  let summary = "Multiplies all rows of a table that distances choose from, once";
  let description = [{
    A sum of products with the row of a table that the distance of two indices chooses, as clipped relative positions do, is read from
    a tensor of the products with all rows. That is a product of matrices, and what it adds to gradients are two more. What a row is
    added to before it is multiplied (`q * (k + r[...])`) gets a sum of its own. The pass runs before attn-differentiate and on what
    that makes alone: a kernel for a few queries would multiply all rows for the few that it reads. A table whose rows are counted by
    the sizes of the two indices is left as it is.

    ```mlir
    %position = attn.tensor "position"(%m: M, %n: N) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %2 = arith.subi %n, %m : i64
        %3 = attn.read %r[%2, %d] : !attn.tensor<[R, D], f32>
        %4 = arith.mulf %1, %3 : f32
        attn.yield %4 : f32
      }
      attn.yield %0 : f32
    }
    ```

    becomes

    ```mlir
    %position_table = attn.tensor "position_table"(%n: N, %row: R) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = attn.read %r[%row, %d] : !attn.tensor<[R, D], f32>
        %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %3 = arith.mulf %2, %1 : f32
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    %position = attn.tensor "position"(%m: M, %n: N) : f32 {
      %0 = arith.subi %n, %m : i64
      %1 = attn.read %position_table[%n, %0] : !attn.tensor<[N, R], f32>
      attn.yield %1 : f32
    }
    ```
  }];
}

def AttnTabulate : Pass<"attn-tabulate", "::attn::KernelOp"> {
  let summary = "Computes once for a distance what no more than the distance decides";
  let description = [{
    A part of a score or a weight that depends on a query index and the key by their difference alone, and is a reduction or calls a
    function, becomes a tensor with an element for each distance. Powers and logarithms of relative positions, and sums of their
    cosines, cost a read then. One query, where that is known, has as many distances as pairs, and is left as it is; so are
    kernels for GPUs, whose threads call functions as quickly as they read tables.

    ```mlir
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %0 = attn.read %q[%m] : !attn.tensor<[M], f32>
      %1 = arith.subi %m, %n : i64
      %2 = math.absi %1 : i64
      %3 = arith.sitofp %2 : i64 to f32
      %4 = math.sqrt %3 : f32
      %5 = arith.addf %0, %4 : f32
      attn.yield %5 : f32
    }
    ```

    becomes

    ```mlir
    %score_distance = attn.tensor "score_distance"(%distance: M + N) : f32 {
      %0 = attn.size M - 1
      %1 = arith.subi %0, %distance : i64
      %2 = math.absi %1 : i64
      %3 = arith.sitofp %2 : i64 to f32
      %4 = math.sqrt %3 : f32
      attn.yield %4 : f32
    }
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %0 = attn.read %q[%m] : !attn.tensor<[M], f32>
      %1 = arith.subi %n, %m : i64
      %2 = attn.size M - 1
      %3 = arith.addi %1, %2 : i64
      %4 = attn.read %score_distance[%3] : !attn.tensor<[M + N], f32>
      %5 = arith.addf %0, %4 : f32
      attn.yield %5 : f32
    }
    ```
  }];
}

def AttnSegment : Pass<"attn-segment", "::attn::KernelOp"> {
  let summary = "Gives keys that each have one query one weight";
  let description = [{
    Where a number says which query a key has, as the node that an edge leads to, a softmax over the keys of each query has
    a weight for every pair, of which one for each key is not 0. It becomes four tensors: the largest score of each
    query, the exponential of each key, their sum for each query, and the weight of each key.

    ```mlir
    %w = attn.tensor "w"(%m: M, %e: X) : f32 {
      %0 = attn.reduce softmax(%e_0: X) at (%e) : f32 {
        %1 = attn.read %s[%e_0] : !attn.tensor<[X], f32>
        attn.yield %1 : f32
      } where {
        %1 = attn.read %to[%e_0] : !attn.tensor<[X], i32>
        %2 = arith.cmpi eq, %1, %m : i64
        attn.yield %2 : i1
      }
      attn.yield %0 : f32
    }
    %y = attn.tensor "y"(%m: M, %d: D) : f32 {
      %0 = attn.reduce sum(%e: X) : f32 {
        %1 = attn.read %w[%m, %e] : !attn.tensor<[M, X], f32>
        %2 = attn.read %v[%e, %d] : !attn.tensor<[X, D], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    ```

    becomes `w_largest[m]`, `w_share[e]`, `w_total[m]`, `w_own[e]` and

    ```mlir
    %y = attn.tensor "y"(%m: M, %d: D) : f32 {
      %0 = attn.reduce sum(%e: X) : f32 {
        %1 = attn.read %w_own[%e] : !attn.tensor<[X], f32>
        %2 = attn.read %v[%e, %d] : !attn.tensor<[X, D], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      } where {
        %1 = attn.read %to[%e] : !attn.tensor<[X], i32>
        %2 = arith.cmpi eq, %1, %m : i64
        attn.yield %2 : i1
      }
      attn.yield %0 : f32
    }
    ```

    whose terms have one place each (attn-place). Only where neither the score nor what else the mask says changes with
    the query, and all who read weights add them up over the keys. The largest score has no gradient.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def AttnSeparate : Pass<"attn-separate", "::attn::KernelOp"> {
  let summary = "Makes functions of a query part plus a key part from exponentials of each";
  let description = [{
    In a sum, tanh(a + b) becomes 1 − 2 / (1 + p) with p = e^2a · e^2b, sigmoid(a + b) becomes 1 / (1 + p) with
    p = e^−a · e^−b, and exp(a + b) becomes e^a · e^b, where a and b each lack an index that the other has: their exponentials
    become tensors that are computed once. Each pair then costs a multiply-add and a division in the place of a function call.

    Exponents are clamped to ±87, and 1 + p to e^80: nothing overflows or becomes 0 · ∞, and tanh and sigmoid
    come out right to 1e-6 unless one exponent is beyond 87 and the other beyond −69. exp wants both exponents within ±87, and a tanh
    in a tensor that is stored wants parts that are not small, so that its error is small in proportion. Nor does one row alone pay for
    factors. One flag decides for a call: where it is false, nobody reads them (`attn/Analysis/UnreadCalls.h`), and the function is called as
    it was written, but that a sigmoid in a score has p = e^−(a + b). The sum that is ruled out is not computed.
    `arcp` allows a refined estimate of the reciprocal. In a sum over pairs that are stored (`attn-store-pairs`), as gradients have them, a
    tanh or sigmoid is replaced wherever it is in the terms, as in 1 − tanh(a + b)².

    ```mlir
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
    ```

    becomes

    ```mlir
    %energy_query_factor = attn.tensor "energy_query_factor"(%m: M, %u: U) : f32 {
      %cst = arith.constant -8.700000e+01 : f32
      %cst_0 = arith.constant 8.700000e+01 : f32
      %cst_1 = arith.constant 2.000000e+00 : f32
      %0 = attn.read %a[%m, %u] : !attn.tensor<[M, U], f32>
      %1 = arith.mulf %0, %cst_1 : f32
      %2 = arith.minimumf %1, %cst_0 : f32
      %3 = arith.maximumf %2, %cst : f32
      %4 = math.exp %3 : f32
      attn.yield %4 : f32
    }
    %energy_key_factor = attn.tensor "energy_key_factor"(%n: N, %u: U) : f32 {
      %cst = arith.constant -8.700000e+01 : f32
      %cst_0 = arith.constant 8.700000e+01 : f32
      %cst_1 = arith.constant 2.000000e+00 : f32
      %0 = attn.read %b[%n, %u] : !attn.tensor<[N, U], f32>
      %1 = arith.mulf %0, %cst_1 : f32
      %2 = arith.minimumf %1, %cst_0 : f32
      %3 = arith.maximumf %2, %cst : f32
      %4 = math.exp %3 : f32
      attn.yield %4 : f32
    }
    %energy_bounded = attn.tensor "energy_bounded"() : i1 {
      %cst = arith.constant 9.25378162E+29 : f32
      %cst_0 = arith.constant 1.81890292E-38 : f32
      %cst_1 = arith.constant 1.08063929E-30 : f32
      %cst_2 = arith.constant 5.49781941E+37 : f32
      %c1_i64 = arith.constant 1 : i64
      %M = attn.size M
      %0 = arith.cmpi sgt, %M, %c1_i64 : i64
      %N = attn.size N
      %1 = arith.cmpi sgt, %N, %c1_i64 : i64
      %2 = arith.andi %0, %1 : i1
      %3 = attn.reduce max(%m: M, %u: U) : f32 {
        %23 = attn.read %energy_query_factor[%m, %u] : !attn.tensor<[M, U], f32>
        attn.yield %23 : f32
      } where {
        attn.yield %2 : i1
      }
      %4 = arith.cmpf olt, %3, %cst_2 : f32
      %5 = attn.reduce min(%n: N, %u: U) : f32 {
        %23 = attn.read %energy_key_factor[%n, %u] : !attn.tensor<[N, U], f32>
        attn.yield %23 : f32
      } where {
        attn.yield %2 : i1
      }
      %6 = arith.cmpf ogt, %5, %cst_1 : f32
      %7 = arith.ori %4, %6 : i1
      %8 = attn.reduce max(%n: N, %u: U) : f32 {
        %23 = attn.read %energy_key_factor[%n, %u] : !attn.tensor<[N, U], f32>
        attn.yield %23 : f32
      } where {
        attn.yield %2 : i1
      }
      %9 = arith.cmpf olt, %8, %cst_2 : f32
      %10 = attn.reduce min(%m: M, %u: U) : f32 {
        %23 = attn.read %energy_query_factor[%m, %u] : !attn.tensor<[M, U], f32>
        attn.yield %23 : f32
      } where {
        attn.yield %2 : i1
      }
      %11 = arith.cmpf ogt, %10, %cst_1 : f32
      %12 = arith.ori %9, %11 : i1
      %13 = arith.andi %7, %12 : i1
      %14 = arith.cmpf ogt, %10, %cst_0 : f32
      %15 = arith.cmpf olt, %8, %cst : f32
      %16 = arith.ori %14, %15 : i1
      %17 = arith.cmpf ogt, %5, %cst_0 : f32
      %18 = arith.cmpf olt, %3, %cst : f32
      %19 = arith.ori %17, %18 : i1
      %20 = arith.andi %16, %19 : i1
      %21 = arith.andi %13, %20 : i1
      %22 = arith.andi %2, %21 : i1
      attn.yield %22 : i1
    }
    %energy_total = attn.tensor "energy_total"() : f32 {
      %0 = attn.reduce sum(%u: U) : f32 {
        %1 = attn.read %w[%u] : !attn.tensor<[U], f32>
        attn.yield %1 : f32
      }
      attn.yield %0 : f32
    }
    %energy = attn.score "energy"(%m: M, %n: N) : f32 {
      %cst = arith.constant 2.000000e+00 : f32
      %true = arith.constant true
      %cst_0 = arith.constant 5.54062248E+34 : f32
      %cst_1 = arith.constant 1.000000e+00 : f32
      %0 = attn.read %energy_bounded[] : !attn.tensor<[], i1>
      %1 = attn.reduce sum(%u: U) : f32 {
        %8 = attn.read %energy_query_factor[%m, %u] : !attn.tensor<[M, U], f32>
        %9 = attn.read %energy_key_factor[%n, %u] : !attn.tensor<[N, U], f32>
        %10 = arith.mulf %8, %9 : f32
        %11 = arith.addf %10, %cst_1 : f32
        %12 = arith.cmpf ogt, %11, %cst_0 : f32
        %13 = arith.select %12, %cst_0, %11 : f32
        %14 = attn.read %w[%u] : !attn.tensor<[U], f32>
        %15 = arith.divf %14, %13 fastmath<arcp> : f32
        attn.yield %15 : f32
      } where {
        attn.yield %0 : i1
      }
      %2 = arith.xori %0, %true : i1
      %3 = attn.read %energy_total[] : !attn.tensor<[], f32>
      %4 = arith.mulf %1, %cst : f32
      %5 = arith.subf %3, %4 : f32
      %6 = attn.reduce sum(%u: U) : f32 {
        %8 = attn.read %w[%u] : !attn.tensor<[U], f32>
        %9 = attn.read %a[%m, %u] : !attn.tensor<[M, U], f32>
        %10 = attn.read %b[%n, %u] : !attn.tensor<[N, U], f32>
        %11 = arith.addf %9, %10 : f32
        %12 = math.tanh %11 : f32
        %13 = arith.mulf %8, %12 : f32
        attn.yield %13 : f32
      } where {
        attn.yield %2 : i1
      }
      %7 = arith.select %0, %5, %6 : f32
      attn.yield %7 : f32
    }
    ```
  }];
}

def AttnShare : Pass<"attn-share", "::attn::KernelOp"> {
  let summary = "Makes one of tensors that have the same formula";
  let description = [{
    Whatever their names and those of their indices, one is computed (the names of indices that are summed over count). Inside a formula `--cse` shares what is written twice, and `--canonicalize` drops tensors
    that nobody reads; both run between the passes of `--attn-simplify`.

    ```mlir
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
    ```

    becomes

    ```mlir
    %a = attn.tensor "a"(%n: N) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        attn.yield %1 : f32
      }
      attn.yield %0 : f32
    }
    %c = attn.tensor "c"(%n: N) : f32 {
      %0 = attn.read %a[%n] : !attn.tensor<[N], f32>
      %1 = arith.mulf %0, %0 : f32
      attn.yield %1 : f32
    }
    ```
  }];
}

def AttnShiftInvariance : Pass<"attn-shift-invariance", "::attn::KernelOp"> {
  let summary = "Drops the terms of a score that are the same for all keys";
  let description = [{
    A softmax does not change when a number is added to all its scores; its log-sum-exp, where somebody reads it, gets the number
    added back. Scores that anything but softmaxes reads, and those of a softmax with a sink, stay. Only terms that are finite whatever
    the parameters hold are dropped: integers, sizes, constants, and the norms of expanded distances. A term of −∞ masks
    its row, so a parameter of floats stays.

    ```mlir
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      %1 = attn.read %age[%m] : !attn.tensor<[M], i32>
      %2 = arith.sitofp %1 : i64 to f32
      %3 = arith.addf %0, %2 : f32
      attn.yield %3 : f32
    }
    %weight, %lse = attn.softmax "weight", "lse"(%score) : !attn.tensor<[M, N], f32>
    ```

    becomes

    ```mlir
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %0 = attn.read %x[%m, %n] : !attn.tensor<[M, N], f32>
      attn.yield %0 : f32
    }
    %weight, %lse_shifted = attn.softmax "weight", "lse_shifted"(%score) : !attn.tensor<[M, N], f32>
    %lse = attn.tensor "lse"(%m: M) : f32 {
      %0 = attn.read %lse_shifted[%m] : !attn.tensor<[M], f32>
      %1 = attn.read %age[%m] : !attn.tensor<[M], i32>
      %2 = arith.sitofp %1 : i64 to f32
      %3 = arith.addf %0, %2 : f32
      attn.yield %3 : f32
    }
    ```
  }];
}

#endif
