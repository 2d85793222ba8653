// Attributes and types: size expressions, and tensors whose shape is made of them.

#ifndef ATTN_IR_TYPES_TD
#define ATTN_IR_TYPES_TD

include "attn/IR/AttnDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Attn_SizeKind : I32EnumAttr<"SizeKind", "what a node of a size expression is", [
    I32EnumAttrCase<"Constant", 0, "constant">,
    I32EnumAttrCase<"Name", 1, "name">,
    I32EnumAttrCase<"Add", 2, "+">,
    I32EnumAttrCase<"Sub", 3, "-">,
    I32EnumAttrCase<"Mul", 4, "*">,
    I32EnumAttrCase<"FloorDiv", 5, "floordiv">,
    I32EnumAttrCase<"Mod", 6, "mod">]> {
  let cppNamespace = "::attn";
}

def Attn_ReduceKind : I32EnumAttr<"ReduceKind", "how a reduction combines its elements", [
    I32EnumAttrCase<"Sum", 0, "sum">,
    I32EnumAttrCase<"Max", 1, "max">,
    I32EnumAttrCase<"Min", 2, "min">,
    I32EnumAttrCase<"Softmax", 3, "softmax">,
    I32EnumAttrCase<"LogSumExp", 4, "logsumexp">]> {
  let cppNamespace = "::attn";
}

def Attn_SizeAttr : AttrDef<AttnDialect, "Size"> {
  let mnemonic = "size";
  let summary = "an integer expression over size names";
  let description = [{
    Sizes are named (`B`, `M`), constant, or built with `+ - * floordiv mod`. Expressions are
    simplified where both sides are constant, and otherwise kept as they were written, so
    that messages can show them.

    Example: `#attn.size<H * D>`, `#attn.size<X + Y>`.
  }];
  let parameters = (ins
    "::attn::SizeKind":$kind,
    "int64_t":$value,
    "::mlir::StringAttr":$name,
    "::attn::SizeAttr":$lhs,
    "::attn::SizeAttr":$rhs);
  let skipDefaultBuilders = 1;
  let hasCustomAssemblyFormat = 1;
  
  let extraClassDeclaration = [{
    /// The size with this name, such as `M`.
    static SizeAttr named(::mlir::MLIRContext *context, ::llvm::StringRef name);
    static SizeAttr constant(::mlir::MLIRContext *context, int64_t value);
    /// `lhs op rhs`, folded where both are constant. Floor division and modulo by zero are not folded.
    static SizeAttr binary(SizeKind kind, SizeAttr lhs, SizeAttr rhs);

    /// Reads `H * D` (without the `#attn.size<>` around it).
    static ::mlir::FailureOr<SizeAttr> parseExpression(::mlir::AsmParser &parser);
    void printExpression(::llvm::raw_ostream &os) const;
    /// The expression as text: `H * D`.
    std::string str() const;

    bool isConstant() const { return getKind() == SizeKind::Constant; }
    bool isName() const { return getKind() == SizeKind::Name; }
    /// Calls `visit` on every size name in the expression, left to right, repeats included.
    void forEachName(::llvm::function_ref<void(::mlir::StringAttr)> visit) const;
    /// The value under `values`, or nothing when a name has no value there or a divisor is 0.
    std::optional<int64_t> evaluate(const ::llvm::StringMap<int64_t> &values) const;
    /// The same expression with known names replaced by constants.
    SizeAttr substitute(const ::llvm::StringMap<int64_t> &values) const;
  }];
}

def Attn_TensorType : TypeDef<AttnDialect, "AttnTensor"> {
  let mnemonic = "tensor";
  let summary = "a tensor whose dimensions are size expressions";
  let description = [{
    Rank 0 is a scalar. The element type is how the tensor is stored: `f64 f32 f16 bf16 i64 i32
    i8 ui8 i1`.

    Example: `!attn.tensor<[B, M, H * D], f32>`.
  }];
  let parameters = (ins
    ArrayRefParameter<"::attn::SizeAttr">:$shape,
    "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    unsigned getRank() const { return getShape().size(); }
    /// The type elements have in a region: f32 or f64 for floats, i64 for integers, i1 for bool.
    ::mlir::Type getComputeType() const;
    /// The same tensor without dimension `axis`.
    AttnTensorType dropDimension(unsigned axis) const;
    /// The same shape with another element type.
    AttnTensorType withElement(::mlir::Type element) const;
  }];
}

def Attn_Scalar : AnyTypeOf<[F32, F64, I64, I1], "a region scalar (f32, f64, i64 or i1)">;
def Attn_Float : AnyTypeOf<[F32, F64], "f32 or f64">;

#endif
