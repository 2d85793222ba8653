//===- IndexList.h - Regions over index variables ---------------*- C++ -*-===//
//
// What ops with a region over index variables share: `(%i: I, %j: J)`, `where { … }`, and the
// checks of a region's arguments and of what it yields.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_IR_INDEXLIST_H
#define ATTN_LIB_IR_INDEXLIST_H

#include "attn/IR/Attn.h"

namespace attn {

/// Index variables as they are written: block arguments, their names and their sizes.
struct IndexList {
  llvm::SmallVector<mlir::OpAsmParser::Argument> arguments;
  llvm::SmallVector<mlir::Attribute> names;
  llvm::SmallVector<mlir::Attribute> sizes;
};

/// `(%i: I, %j: J)`.
mlir::ParseResult parseIndexList(mlir::OpAsmParser &parser, IndexList &list);
void printIndexList(mlir::OpAsmPrinter &printer, mlir::ValueRange arguments, llvm::ArrayRef<SizeAttr> sizes);

/// `where { … }` after a body, with the body's index arguments. Without it, `region` stays empty.
mlir::ParseResult parseOptionalWhere(mlir::OpAsmParser &parser, mlir::Region &region,
                                     llvm::ArrayRef<mlir::OpAsmParser::Argument> arguments);
void printOptionalWhere(mlir::OpAsmPrinter &printer, mlir::Region &region);

/// Gives the first arguments of `region` the `names` they are printed with.
void nameArguments(mlir::Region &region, mlir::ArrayAttr names, mlir::OpAsmSetValueNameFn setName);

/// The entry block of `region` has `count` arguments, all i64.
mlir::LogicalResult verifyIndexArguments(mlir::Operation *op, mlir::Region &region, size_t count);

/// `region` ends in an attn.yield of values of `types`. `what` is its name in messages.
mlir::LogicalResult verifyYield(mlir::Operation *op, mlir::Region &region, mlir::TypeRange types, llvm::StringRef what);

} // namespace attn

#endif // ATTN_LIB_IR_INDEXLIST_H
