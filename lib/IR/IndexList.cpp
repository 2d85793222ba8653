//===- IndexList.cpp - Regions over index variables -----------------------===//

#include "IndexList.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace attn;

ParseResult attn::parseIndexList(OpAsmParser &parser, IndexList &list) {
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&]() -> ParseResult {
    OpAsmParser::Argument argument;
    if (parser.parseArgument(argument) || parser.parseColon())
      return failure();
    FailureOr<SizeAttr> size = SizeAttr::parseExpression(parser);
    if (failed(size))
      return failure();
    argument.type = parser.getBuilder().getI64Type();
    list.arguments.push_back(argument);
    list.names.push_back(parser.getBuilder().getStringAttr(argument.ssaName.name.drop_front()));
    list.sizes.push_back(*size);
    return success();
  });
}

void attn::printIndexList(OpAsmPrinter &printer, ValueRange arguments, ArrayRef<SizeAttr> sizes) {
  printer << '(';
  llvm::interleaveComma(llvm::zip_equal(arguments, sizes), printer, [&](auto pair) {
    printer << std::get<0>(pair) << ": ";
    std::get<1>(pair).printExpression(printer.getStream());
  });
  printer << ')';
}

ParseResult attn::parseOptionalWhere(OpAsmParser &parser, Region &region, ArrayRef<OpAsmParser::Argument> arguments) {
  if (failed(parser.parseOptionalKeyword("where")))
    return success();
  return parser.parseRegion(region, arguments);
}

void attn::printOptionalWhere(OpAsmPrinter &printer, Region &region) {
  if (region.empty())
    return;
  printer << " where ";
  printer.printRegion(region, /*printEntryBlockArgs=*/false);
}

void attn::nameArguments(Region &region, ArrayAttr names, OpAsmSetValueNameFn setName) {
  if (region.empty())
    return;
  for (auto [argument, name] : llvm::zip(region.getArguments(), names.getAsRange<StringAttr>()))
    setName(argument, name.getValue());
}

LogicalResult attn::verifyIndexArguments(Operation *op, Region &region, size_t count) {
  if (region.getNumArguments() != count)
    return op->emitOpError() << "needs " << count << " index arguments, but its region has "
                             << region.getNumArguments();
  for (BlockArgument argument : region.getArguments())
    if (!argument.getType().isSignlessInteger(64))
      return op->emitOpError() << "index argument " << argument.getArgNumber() << " must be i64, but is "
                               << argument.getType();
  return success();
}

LogicalResult attn::verifyYield(Operation *op, Region &region, TypeRange types, StringRef what) {
  auto yield = dyn_cast_or_null<YieldOp>(region.front().empty() ? nullptr : &region.front().back());
  if (!yield)
    return op->emitOpError() << what << " must end in attn.yield";
  if (yield.getValues().getTypes() != types)
    return yield.emitOpError() << "of " << what << " must yield (" << types << "), but yields ("
                               << yield.getValues().getTypes() << ")";
  return success();
}
