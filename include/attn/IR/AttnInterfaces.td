// What the graph ops have in common.

#ifndef ATTN_IR_INTERFACES_TD
#define ATTN_IR_INTERFACES_TD

include "mlir/IR/OpBase.td"

def Attn_DefinitionInterface : OpInterface<"DefinitionOpInterface"> {
  let cppNamespace = "::attn";
  let description = [{
    An op that defines a tensor element by element: `name[i, j, …] = body(i, j, …)`. The first block
    of its first region takes one `i64` argument for each dimension of the result.
  }];
  let methods = [
    InterfaceMethod<"The tensor's name in the source.", "::llvm::StringRef", "getName">,
    InterfaceMethod<"Names of the index variables, one a dimension.", "::mlir::ArrayAttr", "getIndices">,
    InterfaceMethod<"The region that computes one element.", "::mlir::Region &", "getBody">,
    InterfaceMethod<"The tensor that is defined.", "::mlir::Value", "getDefinedTensor", (ins), [{
      return $_op->getResult(0);
    }]>
  ];
}

#endif
