// The attn dialect: its prose, and the base classes of its attributes, types and ops.

#ifndef ATTN_IR_DIALECT_TD
#define ATTN_IR_DIALECT_TD

include "mlir/IR/OpBase.td"

def AttnDialect : Dialect {
  let name = "attn";
  let cppNamespace = "::attn";
  let summary = "Attention, and the tensor statements around it, in index notation";
  let description = [{
    A kernel is a list of tensors, each defined by a formula over index variables. Two levels
    live in one dialect:

    - **Graph ops** define whole tensors: `attn.tensor` (any formula), and what `--attn-raise`
      recognises among them: `attn.score`, `attn.mask`, `attn.softmax`, `attn.weighted_sum`.
      Their SSA results are tensors of `!attn.tensor` type.
    - **Region ops** compute one element: `attn.read`, `attn.reduce`, `attn.size`, `attn.mod`,
      `attn.dropout`, and the scalar ops of `arith` and `math`. Index variables are block
      arguments of type `i64`.

    Only four types of scalar occur in a region: `f32` and `f64` (all floats are widened to one
    of them when read), `i64` (all integers) and `i1`. The element type of a tensor says how it is stored.
  }];
  let dependentDialects = ["mlir::arith::ArithDialect", "mlir::math::MathDialect"];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasConstantMaterializer = 1;
  let extraClassDeclaration = [{
    void registerAttributesAndTypes();
  }];
}

#endif
