//===- AttnOps.cpp - The generated code of all ops, and the region ops ----===//
//
// Messages cite nothing but what a reader of the IR can see; the numbered constraints
// (D1, E2, …) are those of AttnOps.td, in the order they are checked.
//
//===----------------------------------------------------------------------===//

#include "IndexList.h"

#include "mlir/IR/Builders.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace attn;

#define GET_OP_CLASSES
#include "attn/IR/AttnOps.cpp.inc"

bool attn::isExponential(ReduceKind kind) { return kind == ReduceKind::Softmax || kind == ReduceKind::LogSumExp; }

bool attn::isExtreme(ReduceKind kind) { return kind == ReduceKind::Max || kind == ReduceKind::Min; }

Value attn::yielded(Region &region, unsigned position) { return region.front().getTerminator()->getOperand(position); }

Region &attn::bodyOf(Value tensor) { return tensor.getDefiningOp<DefinitionOpInterface>().getBody(); }

std::string attn::tensorName(Value tensor) {
  if (auto parameter = dyn_cast<BlockArgument>(tensor))
    return cast<KernelOp>(parameter.getOwner()->getParentOp()).getParameterName(parameter.getArgNumber()).str();
  Operation *op = tensor.getDefiningOp();
  auto softmax = dyn_cast<SoftmaxOp>(op);
  if (!softmax)
    return cast<DefinitionOpInterface>(op).getName().str();
  StringRef name = tensor == softmax.getWeight() ? softmax.getName() : softmax.getLogsumexpName();
  return name.empty() ? "softmax" : name.str();
}

LogicalResult ReadOp::inferReturnTypes(MLIRContext *, std::optional<Location>, ValueRange operands, DictionaryAttr,
                                       OpaqueProperties, RegionRange, SmallVectorImpl<Type> &results) {
  results.push_back(cast<AttnTensorType>(operands.front().getType()).getComputeType());
  return success();
}

LogicalResult ReadOp::verify() {
  unsigned rank = getTensor().getType().getRank();
  if (getSubscripts().size() != rank)
    return emitOpError() << "needs " << rank << " subscripts for " << getTensor().getType() << ", but has "
                         << getSubscripts().size();
  return success();
}

ParseResult SizeOp::parse(OpAsmParser &parser, OperationState &result) {
  FailureOr<SizeAttr> size = SizeAttr::parseExpression(parser);
  if (failed(size) || parser.parseOptionalAttrDict(result.attributes))
    return failure();
  result.addAttribute(getSizeAttrName(result.name), *size);
  result.addTypes(parser.getBuilder().getI64Type());
  return success();
}

void SizeOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  getSize().printExpression(printer.getStream());
  printer.printOptionalAttrDict((*this)->getAttrs(), {getSizeAttrName()});
}

void SizeOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  if (getSize().isName())
    setName(getResult(), getSize().getName().getValue());
}

OpFoldResult SizeOp::fold(FoldAdaptor) {
  if (!getSize().isConstant())
    return {};
  return IntegerAttr::get(getType(), getSize().getValue());
}

/// Folds a division of constants, or by one. `quotient` says which half is wanted.
static OpFoldResult foldDivision(Value lhs, Attribute lhsValue, Attribute rhsValue, bool quotient) {
  auto rhs = dyn_cast_or_null<IntegerAttr>(rhsValue);
  if (!rhs)
    return {};
  Type type = rhs.getType();
  int64_t divisor = rhs.getInt();
  if (divisor == 0 || (divisor == 1 && !quotient))
    return IntegerAttr::get(type, 0);
  if (divisor == 1)
    return lhs;
  auto value = dyn_cast_or_null<IntegerAttr>(lhsValue);
  if (!value || divisor == -1)
    return {};
  int64_t result = llvm::divideFloorSigned(value.getInt(), divisor);
  return IntegerAttr::get(type, quotient ? result : value.getInt() - result * divisor);
}

OpFoldResult FloorDivOp::fold(FoldAdaptor adaptor) {
  return foldDivision(getLhs(), adaptor.getLhs(), adaptor.getRhs(), /*quotient=*/true);
}

OpFoldResult ModOp::fold(FoldAdaptor adaptor) {
  return foldDivision(getLhs(), adaptor.getLhs(), adaptor.getRhs(), /*quotient=*/false);
}

void ReduceOp::build(OpBuilder &builder, OperationState &state, ReduceKind kind, ArrayAttr indices,
                     ArrayRef<SizeAttr> sizes, Type type, ValueRange at, Value sink, bool conditional) {
  SmallVector<Attribute> attributes(sizes.begin(), sizes.end());
  state.addAttribute(getKindAttrName(state.name), ReduceKindAttr::get(builder.getContext(), kind));
  state.addAttribute(getIndicesAttrName(state.name), indices);
  state.addAttribute(getSizesAttrName(state.name), builder.getArrayAttr(attributes));
  state.addOperands(at);
  if (sink)
    state.addOperands(sink);
  state.getOrAddProperties<Properties>().operandSegmentSizes = {static_cast<int>(at.size()), sink ? 1 : 0};
  state.addTypes(type);
  for (bool present : {true, conditional}) {
    Region *region = state.addRegion();
    if (!present)
      continue;
    Block &block = region->emplaceBlock();
    for (size_t index = 0; index < sizes.size(); ++index)
      block.addArgument(builder.getI64Type(), state.location);
  }
}

ParseResult ReduceOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  IndexList list;
  SmallVector<OpAsmParser::UnresolvedOperand> at;
  OpAsmParser::UnresolvedOperand sink;
  StringRef keyword;
  Type type;
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseKeyword(&keyword))
    return failure();
  std::optional<ReduceKind> kind = symbolizeReduceKind(keyword);
  if (!kind)
    return parser.emitError(location) << "expected sum, max, min, softmax or logsumexp, but found '" << keyword << "'";
  if (parseIndexList(parser, list))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("at")) && parser.parseOperandList(at, AsmParser::Delimiter::Paren))
    return failure();
  bool sunk = succeeded(parser.parseOptionalKeyword("sink"));
  if ((sunk && parser.parseOperand(sink)) || parser.parseColonType(type) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      parser.parseRegion(*result.addRegion(), list.arguments) ||
      parseOptionalWhere(parser, *result.addRegion(), list.arguments) ||
      parser.resolveOperands(at, builder.getI64Type(), result.operands) ||
      (sunk && parser.resolveOperand(sink, type, result.operands)))
    return failure();
  result.addAttribute(getKindAttrName(result.name), ReduceKindAttr::get(builder.getContext(), *kind));
  result.addAttribute(getIndicesAttrName(result.name), builder.getArrayAttr(list.names));
  result.addAttribute(getSizesAttrName(result.name), builder.getArrayAttr(list.sizes));
  result.getOrAddProperties<Properties>().operandSegmentSizes = {static_cast<int>(at.size()), sunk};
  result.addTypes(type);
  return success();
}

void ReduceOp::print(OpAsmPrinter &printer) {
  printer << ' ' << stringifyReduceKind(getKind());
  SmallVector<SizeAttr> sizes(getSizes().getAsRange<SizeAttr>());
  printIndexList(printer, getBody().getArguments(), sizes);
  if (!getAt().empty())
    printer << " at (" << getAt() << ')';
  if (getSink())
    printer << " sink " << getSink();
  printer << " : " << getType();
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {getKindAttrName(), getIndicesAttrName(),
                                                                 getSizesAttrName(), getOperandSegmentSizesAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
  printOptionalWhere(printer, getWhere());
}

LogicalResult ReduceOp::verifyRegions() {
  size_t count = getSizes().size();
  if (getIndices().size() != count)
    return emitOpError() << "has " << getIndices().size() << " index names for " << count << " sizes";
  if (!llvm::all_of(getSizes(), llvm::IsaPred<SizeAttr>))
    return emitOpError() << "sizes must be #attn.size attributes";
  if (failed(verifyIndexArguments(*this, getBody(), count)) ||
      failed(verifyYield(*this, getBody(), getType(), "the body")))
    return failure();
  if (isConditional() && (failed(verifyIndexArguments(*this, getWhere(), count)) ||
                          failed(verifyYield(*this, getWhere(), IntegerType::get(getContext(), 1), "the condition"))))
    return failure();
  if (getType().isInteger(1))
    return emitOpError() << "of kind " << stringifyReduceKind(getKind()) << " cannot be " << getType();
  bool softmax = getKind() == ReduceKind::Softmax;
  if (getAt().size() != (softmax ? count : 0))
    return emitOpError() << "of kind " << stringifyReduceKind(getKind()) << " needs " << (softmax ? count : 0)
                         << " 'at' operands, but has " << getAt().size();
  bool exponential = isExponential(getKind());
  if (exponential && !isa<FloatType>(getType()))
    return emitOpError() << "of kind " << stringifyReduceKind(getKind()) << " must be a float, but is " << getType();
  if (getSink() && !exponential)
    return emitOpError() << "of kind " << stringifyReduceKind(getKind()) << " cannot have a sink";
  return success();
}

void ReduceOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  nameArguments(region, getIndices(), setName);
}
