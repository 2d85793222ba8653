// The ops of the attn dialect.

#ifndef ATTN_IR_OPS_TD
#define ATTN_IR_OPS_TD

include "attn/IR/AttnDialect.td"
include "attn/IR/AttnTypes.td"
include "attn/IR/AttnInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"

class Attn_Op<string mnemonic, list<Trait> traits = []> : Op<AttnDialect, mnemonic, traits>;

// ---------------------------------------------------------------------------------------------
// Kernel and return
// ---------------------------------------------------------------------------------------------

def Attn_KernelOp : Attn_Op<"kernel", [
    IsolatedFromAbove, SingleBlock, Symbol,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "one attention: parameters, tensors defined one after the other, outputs";
  let description = [{
    The parameters are the block's arguments; their names are those of the source and of the generated
    interface. A scalar is a tensor of rank 0 and may have a default value. Size names are bound
    by the parameters' shapes.

    ```mlir
    attn.kernel @double(%x: !attn.tensor<[N], f32>, %factor: !attn.tensor<[], f32> = 2.000000e+00 : f32) {
      %y = attn.tensor "y"(%n: N) : f32 {
        %0 = attn.read %x[%n] : !attn.tensor<[N], f32>
        %1 = attn.read %factor[] : !attn.tensor<[], f32>
        %2 = arith.mulf %0, %1 : f32
        attn.yield %2 : f32
      }
      attn.return %y : !attn.tensor<[N], f32> as f32
    }
    ```

    - K1. There is one name and one default (or `unit`) a parameter; the names are distinct.
    - K2. Every parameter is an `!attn.tensor`.
    - K3. Only scalars have defaults, of the parameter's element type.
    - K4. The block ends in `attn.return`.
    - K5. Every size name in the kernel occurs in some parameter's shape.
    - K6. `attn.checks`, where it is given, is a list of `{message, part, whole}`: a string and two sizes. A call is
      an error, with that message, unless `part` is at most `whole`.
    - K7. `attn.bounds`, where it is given, makes this the checking kernel of another one (see the pass
      `attn-check-bounds`): a list of `{statement, tensor, dimension, size}`. Outputs 2i and 2i + 1 are the least and the
      greatest value of the subscript that element i tells: where `statement` reads `tensor`, that of the dimension, which
      has this size.

    `attn.whole`, where it is given, says that each statement is computed as a whole, never for one block of rows after
    the other (see the pass `attn-store-pairs`). `attn.saved` is the number of outputs, the last ones, that the backward
    kernel alone needs (see the pass `attn-differentiate`).
  }];
  let arguments = (ins
    SymbolNameAttr:$sym_name,
    StrArrayAttr:$parameter_names,
    ArrayAttr:$defaults);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::Block::BlockArgListType getParameters() { return getBody().front().getArguments(); }
    ::llvm::StringRef getParameterName(unsigned index) {
      return ::llvm::cast<::mlir::StringAttr>(getParameterNames()[index]).getValue();
    }
    AttnTensorType getParameterType(unsigned index) {
      return ::llvm::cast<AttnTensorType>(getParameters()[index].getType());
    }
    /// The default of a scalar parameter (a FloatAttr or IntegerAttr), or null.
    ::mlir::TypedAttr getDefault(unsigned index) {
      return ::llvm::dyn_cast<::mlir::TypedAttr>(getDefaults()[index]);
    }
    ReturnOp getReturn();
    /// The size names of the parameters' shapes, in order of first occurrence.
    ::llvm::SmallVector<::mlir::StringAttr> getSizeNames();
    /// What a call's sizes must satisfy beyond the shapes: `part` is at most `whole`, or `message` is the error.
    struct Check {
      ::mlir::StringAttr message;
      SizeAttr part, whole;
    };
    /// The attribute `attn.checks`.
    ::llvm::SmallVector<Check> getChecks();
    /// A subscript that depends on data: where `statement` reads `tensor`, that of `dimension`.
    struct Bound {
      ::mlir::StringAttr statement, tensor;
      int64_t dimension;
      SizeAttr size;
    };
    /// The attribute `attn.bounds`: empty unless this is a checking kernel.
    ::llvm::SmallVector<Bound> getBounds();
    bool checksBounds() { return (*this)->hasAttr(boundsName); }
    static constexpr ::llvm::StringRef boundsName = "attn.bounds";
    /// What the name of a checking kernel has after that of its kernel. No kernel of a source has such a name.
    static constexpr ::llvm::StringRef boundsSuffix = ".bounds";
    /// Each statement of such a kernel is computed as a whole, never for one block of rows after the other.
    static constexpr ::llvm::StringRef wholeName = "attn.whole";
    /// How many of the outputs, the last ones, are there for the backward kernel alone.
    static constexpr ::llvm::StringRef savedName = "attn.saved";
    /// The outputs before those.
    ::mlir::ValueRange getOwnOutputs();
    /// What the names of the two kernels have that `attn-differentiate` makes of one.
    static constexpr ::llvm::StringRef forwardSuffix = "_forward", backwardSuffix = "_backward";
  }];
}

def Attn_ReturnOp : Attn_Op<"return", [Terminator, Pure, HasParent<"KernelOp">]> {
  let summary = "the kernel's outputs, in order, with the type each is stored in";
  let description = [{
    Values are rounded to `output_types` (to nearest, ties to even) when they are stored.

    ```mlir
    attn.return %out : !attn.tensor<[M, E], f32> as bf16, %lse : !attn.tensor<[M], f32> as f32
    ```

    - R1. There is at least one output.
    - R2. There is one output type a tensor.
    - R3. No output is a parameter.
    - R4. No tensor is returned twice.
  }];
  let arguments = (ins Variadic<Attn_TensorType>:$outputs, TypeArrayAttr:$output_types);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The source name of output `index`.
    ::llvm::StringRef getOutputName(unsigned index);
    /// The type of output `index` as it is stored.
    AttnTensorType getOutputType(unsigned index);
  }];
}

// ---------------------------------------------------------------------------------------------
// Graph ops
// ---------------------------------------------------------------------------------------------

class Attn_DefinitionOp<string mnemonic, list<Trait> traits = []> : Attn_Op<mnemonic, !listconcat(traits, [
    RecursiveMemoryEffects, HasParent<"KernelOp">,
    DeclareOpInterfaceMethods<Attn_DefinitionInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames", "getAsmResultNames"]>])>;

// `name(%i: I, %j: J) : element { … }`: score, mask and tensor differ only in what is known about them.
class Attn_PointwiseOp<string mnemonic> : Attn_DefinitionOp<mnemonic, [SingleBlock]> {
  let arguments = (ins StrAttr:$name, StrArrayAttr:$indices);
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Attn_TensorType:$result);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    // Creates the op with an entry block that has one index argument a dimension.
    OpBuilder<(ins "::llvm::StringRef":$name, "::mlir::ArrayAttr":$indices, "::attn::AttnTensorType":$type)>];
}

def Attn_TensorOp : Attn_PointwiseOp<"tensor"> {
  let summary = "a tensor defined by a formula over index variables";
  let description = [{
    The statement `name[i, j] = expr`. Elements are independent of each other.

    ```mlir
    %out = attn.tensor "out"(%i: I, %j: J) : f32 {
      %s = attn.reduce sum(%k: K) : f32 {
        %x0 = attn.read %x[%i, %k] : !attn.tensor<[I, K], f32>
        %y0 = attn.read %y[%k, %j] : !attn.tensor<[K, J], f32>
        %p = arith.mulf %x0, %y0 : f32
        attn.yield %p : f32
      }
      attn.yield %s : f32
    }
    ```

    - P1. There is one index name a dimension.
    - P2. The body has one `i64` argument a dimension.
    - P3. It yields one scalar, of the element type's compute type: `f64` for `f64`, `f32` for other floats, `i64` for
      integers, `i1` for `i1`.

    The attribute `attn.weights` says that these are weights of a sum over the last index, although no softmax makes them:
    they are computed where they are summed. `attn-differentiate` gives it to weights that come from a saved log-sum-exp.
    `attn.pairs` says that the tensor, which has an element for each query and key, is stored for a block of rows at a
    time; `attn-store-pairs` gives it. `attn.total` says that the tensor is a sum of scores over keys, by which weights are
    divided, and raised as one of weights; `attn-inline` gives it. `attn.shift` says that no output changes with the
    tensor, as with the largest score that a softmax subtracts: it has no gradient; `attn-segment` gives it.
  }];
  let extraClassDeclaration = [{
    static constexpr ::llvm::StringRef weightsName = "attn.weights";
    static constexpr ::llvm::StringRef pairsName = "attn.pairs";
    static constexpr ::llvm::StringRef totalName = "attn.total";
    static constexpr ::llvm::StringRef shiftName = "attn.shift";
  }];
}

def Attn_ScoreOp : Attn_PointwiseOp<"score"> {
  let summary = "the scores of an attention, before mask and softmax";
  let description = [{
    An `attn.tensor` of floats that only softmaxes and sums over its last index (the key index) read;
    it is never stored unless it is returned. P1–P3 hold as for `attn.tensor`, and

    - S1. The rank is at least 1 and the elements are floats.

    ```mlir
    %score = attn.score "score"(%m: M, %n: N) : f32 {
      %0 = attn.reduce sum(%d: D) : f32 {
        %1 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
        %2 = attn.read %k[%n, %d] : !attn.tensor<[N, D], f32>
        %3 = arith.mulf %1, %2 : f32
        attn.yield %3 : f32
      }
      attn.yield %0 : f32
    }
    ```
  }];
}

def Attn_MaskOp : Attn_PointwiseOp<"mask"> {
  let summary = "which scores take part in a softmax";
  let description = [{
    Has the index variables of the score it masks, whether its formula uses them or not. P1–P3 hold as for
    `attn.tensor`, and

    - M1. The elements are `i1`.

    ```mlir
    %mask = attn.mask "mask"(%b: B, %m: M, %n: N) : i1 {
      %c = arith.cmpi sle, %n, %m : i64
      attn.yield %c : i1
    }
    ```
  }];
}

def Attn_SoftmaxOp : Attn_Op<"softmax", [
    Pure, AttrSizedOperandSegments, HasParent<"KernelOp">,
    DeclareOpInterfaceMethods<InferTypeOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "softmax over the key index, and its log-sum-exp";
  let description = [{
    Over the score's last index n, with c the mask (true where there is none) and s the sink:

        logsumexp[…]  = log(Σ_{n: c[…, n]} exp(score[…, n]) + exp(s[…]))
        weight[…, n]  = c[…, n] ? exp(score[…, n] − logsumexp[…]) : 0

    A row in which no element is left has weights 0 and log-sum-exp −inf. `name` is the name of the weight
    tensor, `logsumexp_name` that of the other result; an unused one is empty.

    ```mlir
    %weight, %lse = attn.softmax "weight", "lse"(%score where %mask sink %sink) : !attn.tensor<[B, M, N], f32>
    ```

    - X1. The mask has the score's shape, and elements `i1`.
    - X2. The sink has the score's shape without the key index, and elements of its compute type.
    - X3. The score has rank at least 1 and holds floats.
  }];
  let arguments = (ins
    StrAttr:$name,
    StrAttr:$logsumexp_name,
    Attn_TensorType:$score,
    Optional<Attn_TensorType>:$mask,
    Optional<Attn_TensorType>:$sink);
  let results = (outs Attn_TensorType:$weight, Attn_TensorType:$logsumexp);
  let hasCustomAssemblyFormat = 1;
  let hasCanonicalizeMethod = 1;
  let hasVerifier = 1;
}

def Attn_WeightedSumOp : Attn_DefinitionOp<"weighted_sum"> {
  let summary = "a sum over keys of weights times values";
  let description = [{
    name[i, …] = Σ_n weight(i, …, n) · value(i, …, n), over the n for which the second region (if there
    is one) yields true. The body yields the two factors: the weight does not depend on the value
    index (the last index), the value does not depend on the query index; so both can be made once for a tile. Rows of
    tables that the distance of query and key chooses may be part of the value: a tile has few of them.
    `query` is the position of the query index among the indices, or −1 where there is none.

    ```mlir
    %out = attn.weighted_sum "out"(%b: B, %m: M, %e: E) over (%n: N) query 1 : f32 {
      %w = attn.read %weight[%b, %m, %n] : !attn.tensor<[B, M, N], f32>
      %x = attn.read %v[%b, %n, %e] : !attn.tensor<[B, N, E], f32>
      attn.yield %w, %x : f32, f32
    }
    ```

    - W1. There is one index name a dimension.
    - W2. Both regions have one `i64` argument a dimension and one more, the key index.
    - W3. The body yields two floats of the compute type.
    - W4. The condition yields `i1`.
    - W5. `query` is −1 or the position of an index.
  }];
  let arguments = (ins StrAttr:$name, StrArrayAttr:$indices, StrAttr:$key, Attn_SizeAttr:$key_size,
                       I64Attr:$query);
  let regions = (region SizedRegion<1>:$body, MaxSizedRegion<1>:$where);
  let hasCanonicalizeMethod = 1;
  let results = (outs Attn_TensorType:$result);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
}

// ---------------------------------------------------------------------------------------------
// Region ops
// ---------------------------------------------------------------------------------------------

def Attn_YieldOp : Attn_Op<"yield", [Terminator, Pure]> {
  let summary = "the value of a region";
  let description = [{
    ```mlir
    attn.yield %x : f32
    ```
  }];
  let arguments = (ins Variadic<Attn_Scalar>:$values);
  let assemblyFormat = "attr-dict $values `:` type($values)";
}

def Attn_ReadOp : Attn_Op<"read", [Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "one element of a tensor, widened to its compute type";
  let description = [{
    Subscripts are `i64`; a subscript that leaves its dimension is clamped to it. Narrow floats are widened to
    f32, integers to i64.

    ```mlir
    %0 = attn.read %k[%b, %n, %d] : !attn.tensor<[B, N, D], bf16>   // an f32
    ```

    - D1. There is one subscript a dimension.
  }];
  let arguments = (ins Attn_TensorType:$tensor, Variadic<I64>:$subscripts);
  let results = (outs Attn_Scalar:$result);
  let assemblyFormat = "$tensor `[` $subscripts `]` attr-dict `:` qualified(type($tensor))";
  let hasVerifier = 1;
}

def Attn_SizeOp : Attn_Op<"size", [Pure, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "a size as a number";
  let description = [{
    ```mlir
    %D = attn.size D
    %past = attn.size N - M
    ```
  }];
  let arguments = (ins Attn_SizeAttr:$size);
  let results = (outs I64:$result);
  let hasCustomAssemblyFormat = 1;
  let hasFolder = 1;
}

def Attn_FloorDivOp : Attn_Op<"floordiv", [Pure, SameOperandsAndResultType]> {
  let summary = "integer division that rounds down; by zero it gives zero";
  let description = [{
    ```mlir
    %group = attn.floordiv %h, %size   // −7 by 2 is −4
    ```
  }];
  let arguments = (ins I64:$lhs, I64:$rhs);
  let results = (outs I64:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict";
  let hasFolder = 1;
}

def Attn_ModOp : Attn_Op<"mod", [Pure, SameOperandsAndResultType]> {
  let summary = "the remainder of `attn.floordiv`: it has the divisor's sign; by zero it gives zero";
  let description = [{
    ```mlir
    %slot = attn.mod %n, %size         // −7 by 2 leaves 1
    ```
  }];
  let arguments = (ins I64:$lhs, I64:$rhs);
  let results = (outs I64:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict";
  let hasFolder = 1;
}

def Attn_ReduceOp : Attn_Op<"reduce", [RecursiveMemoryEffects,
    AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "sum, max, min, softmax or logsumexp over index variables";
  let description = [{
    The body (and the condition, where there is one) has one `i64` argument for each index variable. An element whose
    condition is false is skipped: its body is not evaluated.

    | kind | value | nothing left |
    |---|---|---|
    | sum | Σ x | 0 |
    | max, min | the largest, smallest x (NaN if any is) | −inf, +inf (integers: the type's own) |
    | logsumexp | log(Σ exp(x) + exp(sink)) | −inf |
    | softmax | exp(x(at) − logsumexp), 0 where the condition at `at` is false | 0 |

    ```mlir
    %0 = attn.reduce sum(%d: D) : f32 {
      %2 = attn.read %q[%m, %d] : !attn.tensor<[M, D], f32>
      attn.yield %2 : f32
    }
    %1 = attn.reduce softmax(%j: N) at (%n) sink %s : f32 {
      %3 = attn.read %x[%m, %j] : !attn.tensor<[M, N], f32>
      attn.yield %3 : f32
    } where {
      %4 = arith.cmpi sle, %j, %m : i64
      attn.yield %4 : i1
    }
    ```

    - E1. There is one index name, one `#attn.size` and, in each region, one `i64` argument for each index variable.
    - E2. The body yields the result type, the condition `i1`.
    - E3. `at` has one operand an index variable for softmax and none for other kinds.
    - E4. Only softmax and logsumexp take a sink; they need floats.
    - E5. The result is a number, not `i1`.
  }];
  let arguments = (ins
    Attn_ReduceKind:$kind,
    StrArrayAttr:$indices,
    ArrayAttr:$sizes,
    Variadic<I64>:$at,
    Optional<Attn_Float>:$sink);
  let regions = (region SizedRegion<1>:$body, MaxSizedRegion<1>:$where);
  let hasCanonicalizeMethod = 1;
  let results = (outs Attn_Scalar:$result);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    // Creates the op with an entry block in the body, and in the condition if `conditional`.
    OpBuilder<(ins "::attn::ReduceKind":$kind, "::mlir::ArrayAttr":$indices,
                   "::llvm::ArrayRef<::attn::SizeAttr>":$sizes, "::mlir::Type":$type,
                   "::mlir::ValueRange":$at, "::mlir::Value":$sink, "bool":$conditional)>];
  let extraClassDeclaration = [{
    SizeAttr getSize(unsigned index) { return ::llvm::cast<SizeAttr>(getSizes()[index]); }
    bool isConditional() { return !getWhere().empty(); }
  }];
}

def Attn_DropoutOp : Attn_Op<"dropout", [Pure, AllTypesMatch<["value", "probability", "result"]>]> {
  let summary = "0 with probability p, otherwise x / (1 − p)";
  let description = [{
    The random bit is a function (Philox4x32-10) of the seed and of the element's row-major number in its statement's tensor.

    ```mlir
    %y = attn.dropout %x, %p, %seed, %element : f32
    ```
  }];
  let arguments = (ins Attn_Float:$value, Attn_Float:$probability, I64:$seed, I64:$element);
  let results = (outs Attn_Float:$result);
  let assemblyFormat = "$value `,` $probability `,` $seed `,` $element attr-dict `:` type($value)";
}

#endif
