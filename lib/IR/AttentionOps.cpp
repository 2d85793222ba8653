//===- AttentionOps.cpp - Tensors, scores, masks, softmaxes, sums ---------===//
//
// The ops that a kernel's block is made of: each defines a tensor. Messages cite nothing but
// what a reader of the IR can see; the numbered constraints (P1, X2, …) are those of AttnOps.td.
//
//===----------------------------------------------------------------------===//

#include "IndexList.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace attn;

//===----------------------------------------------------------------------===//
// TensorOp, ScoreOp, MaskOp
//===----------------------------------------------------------------------===//

template <typename Op>
static void buildPointwise(OpBuilder &builder, OperationState &state, StringRef name, ArrayAttr indices,
                           AttnTensorType type) {
  state.addAttribute(Op::getNameAttrName(state.name), builder.getStringAttr(name));
  state.addAttribute(Op::getIndicesAttrName(state.name), indices);
  state.addTypes(type);
  Block &block = state.addRegion()->emplaceBlock();
  for (size_t index = 0; index < type.getRank(); ++index)
    block.addArgument(builder.getI64Type(), state.location);
}

template <typename Op> static ParseResult parsePointwise(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  IndexList list;
  Type element;
  if (parser.parseAttribute(name, Op::getNameAttrName(result.name), result.attributes) ||
      parseIndexList(parser, list) || parser.parseColonType(element) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      parser.parseRegion(*result.addRegion(), list.arguments))
    return failure();
  result.addAttribute(Op::getIndicesAttrName(result.name), parser.getBuilder().getArrayAttr(list.names));
  SmallVector<SizeAttr> shape(llvm::map_range(list.sizes, [](Attribute size) { return cast<SizeAttr>(size); }));
  auto type = AttnTensorType::getChecked([&] { return parser.emitError(parser.getNameLoc()); }, parser.getContext(),
                                         ArrayRef(shape), element);
  if (!type)
    return failure();
  result.addTypes(type);
  return success();
}

template <typename Op> static void printPointwise(Op op, OpAsmPrinter &printer) {
  printer << ' ' << op.getNameAttr();
  printIndexList(printer, op.getBody().getArguments(), op.getResult().getType().getShape());
  printer << " : " << op.getResult().getType().getElementType();
  printer.printOptionalAttrDictWithKeyword(op->getAttrs(), {op.getNameAttrName(), op.getIndicesAttrName()});
  printer << ' ';
  printer.printRegion(op.getBody(), /*printEntryBlockArgs=*/false);
}

template <typename Op> static LogicalResult verifyPointwise(Op op) {
  AttnTensorType type = op.getResult().getType();
  if (op.getIndices().size() != type.getRank())
    return op.emitOpError() << "has " << op.getIndices().size() << " index names for rank " << type.getRank();
  if (failed(verifyIndexArguments(op, op.getBody(), type.getRank())))
    return failure();
  return verifyYield(op, op.getBody(), type.getComputeType(), "the body");
}

#define ATTN_POINTWISE_OP(Op)                                                                                          \
  void Op::build(OpBuilder &builder, OperationState &state, StringRef name, ArrayAttr indices, AttnTensorType type) {  \
    buildPointwise<Op>(builder, state, name, indices, type);                                                           \
  }                                                                                                                    \
  ParseResult Op::parse(OpAsmParser &parser, OperationState &result) { return parsePointwise<Op>(parser, result); }    \
  void Op::print(OpAsmPrinter &printer) { printPointwise(*this, printer); }                                            \
  void Op::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {                                     \
    nameArguments(region, getIndices(), setName);                                                                      \
  }                                                                                                                    \
  void Op::getAsmResultNames(OpAsmSetValueNameFn setName) { setName(getResult(), getName()); }

ATTN_POINTWISE_OP(TensorOp)
ATTN_POINTWISE_OP(ScoreOp)
ATTN_POINTWISE_OP(MaskOp)
#undef ATTN_POINTWISE_OP

LogicalResult TensorOp::verifyRegions() { return verifyPointwise(*this); }

LogicalResult ScoreOp::verifyRegions() {
  AttnTensorType type = getResult().getType();
  if (type.getRank() == 0)
    return emitOpError() << "needs a key index";
  if (!isa<FloatType>(type.getElementType()))
    return emitOpError() << "must hold floats, but holds " << type.getElementType();
  return verifyPointwise(*this);
}

LogicalResult MaskOp::verifyRegions() {
  AttnTensorType type = getResult().getType();
  if (!type.getElementType().isSignlessInteger(1))
    return emitOpError() << "must hold i1, but holds " << type.getElementType();
  return verifyPointwise(*this);
}

//===----------------------------------------------------------------------===//
// SoftmaxOp
//===----------------------------------------------------------------------===//

LogicalResult SoftmaxOp::inferReturnTypes(MLIRContext *, std::optional<Location> location, ValueRange operands,
                                          DictionaryAttr, OpaqueProperties, RegionRange,
                                          SmallVectorImpl<Type> &results) {
  auto score = cast<AttnTensorType>(operands.front().getType());
  if (score.getRank() == 0)
    return emitOptionalError(location, "a softmax needs a score with a key index");
  AttnTensorType weight = score.withElement(score.getComputeType());
  results.push_back(weight);
  results.push_back(weight.dropDimension(score.getRank() - 1));
  return success();
}

ParseResult SoftmaxOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name, logsumexp;
  OpAsmParser::UnresolvedOperand score, mask, sink;
  AttnTensorType type;
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseAttribute(name, getNameAttrName(result.name), result.attributes) || parser.parseComma() ||
      parser.parseAttribute(logsumexp, getLogsumexpNameAttrName(result.name), result.attributes) ||
      parser.parseLParen() || parser.parseOperand(score))
    return failure();
  bool masked = succeeded(parser.parseOptionalKeyword("where"));
  if (masked && parser.parseOperand(mask))
    return failure();
  bool sunk = succeeded(parser.parseOptionalKeyword("sink"));
  if (sunk && parser.parseOperand(sink))
    return failure();
  if (parser.parseRParen() || parser.parseOptionalAttrDict(result.attributes) || parser.parseColon() ||
      parser.parseType(type) || parser.resolveOperand(score, type, result.operands))
    return failure();
  if (type.getRank() == 0)
    return parser.emitError(location, "a softmax needs a score with a key index");
  AttnTensorType weight = type.withElement(type.getComputeType());
  AttnTensorType row = weight.dropDimension(type.getRank() - 1);
  if (masked && parser.resolveOperand(mask, type.withElement(parser.getBuilder().getI1Type()), result.operands))
    return failure();
  if (sunk && parser.resolveOperand(sink, row, result.operands))
    return failure();
  result.getOrAddProperties<Properties>().operandSegmentSizes = {1, masked, sunk};
  result.addTypes({weight, row});
  return success();
}

void SoftmaxOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getNameAttr() << ", " << getLogsumexpNameAttr() << '(' << getScore();
  if (getMask())
    printer << " where " << getMask();
  if (getSink())
    printer << " sink " << getSink();
  printer << ')';
  printer.printOptionalAttrDict((*this)->getAttrs(),
                                {getNameAttrName(), getLogsumexpNameAttrName(), getOperandSegmentSizesAttrName()});
  printer << " : " << getScore().getType();
}

LogicalResult SoftmaxOp::verify() {
  AttnTensorType score = getScore().getType();
  if (!isa<FloatType>(score.getElementType()))
    return emitOpError() << "score must hold floats, but holds " << score.getElementType();
  if (getMask() && getMask().getType() != score.withElement(IntegerType::get(getContext(), 1)))
    return emitOpError() << "mask must be " << score.withElement(IntegerType::get(getContext(), 1)) << ", but is "
                         << getMask().getType();
  if (getSink() && getSink().getType() != getLogsumexp().getType())
    return emitOpError() << "sink must be " << getLogsumexp().getType() << ", but is " << getSink().getType();
  return success();
}

void SoftmaxOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getWeight(), getName().empty() ? "weight" : getName());
  setName(getLogsumexp(), getLogsumexpName().empty() ? "logsumexp" : getLogsumexpName());
}

//===----------------------------------------------------------------------===//
// WeightedSumOp
//===----------------------------------------------------------------------===//

ParseResult WeightedSumOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  IndexList list, key;
  Type element;
  int64_t query = -1;
  SMLoc location = parser.getCurrentLocation();
  Builder &builder = parser.getBuilder();
  if (parser.parseAttribute(name, getNameAttrName(result.name), result.attributes) || parseIndexList(parser, list) ||
      parser.parseKeyword("over") || parseIndexList(parser, key) || parser.parseKeyword("query") ||
      parser.parseInteger(query) || parser.parseColonType(element) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  if (key.names.size() != 1)
    return parser.emitError(location, "a weighted sum runs over one key index");
  SmallVector<OpAsmParser::Argument> arguments(list.arguments);
  arguments.append(key.arguments);
  if (parser.parseRegion(*result.addRegion(), arguments) || parseOptionalWhere(parser, *result.addRegion(), arguments))
    return failure();
  result.addAttribute(getIndicesAttrName(result.name), builder.getArrayAttr(list.names));
  result.addAttribute(getKeyAttrName(result.name), key.names.front());
  result.addAttribute(getKeySizeAttrName(result.name), key.sizes.front());
  result.addAttribute(getQueryAttrName(result.name), builder.getI64IntegerAttr(query));
  SmallVector<SizeAttr> shape(llvm::map_range(list.sizes, [](Attribute size) { return cast<SizeAttr>(size); }));
  auto type = AttnTensorType::getChecked([&] { return parser.emitError(location); }, parser.getContext(),
                                         ArrayRef(shape), element);
  if (!type)
    return failure();
  result.addTypes(type);
  return success();
}

void WeightedSumOp::print(OpAsmPrinter &printer) {
  AttnTensorType type = getResult().getType();
  printer << ' ' << getNameAttr();
  printIndexList(printer, getBody().getArguments().drop_back(), type.getShape());
  printer << " over ";
  printIndexList(printer, getBody().getArguments().take_back(), getKeySize());
  printer << " query " << static_cast<int64_t>(getQuery()) << " : " << type.getElementType();
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {getNameAttrName(), getIndicesAttrName(), getKeyAttrName(), getKeySizeAttrName(), getQueryAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
  printOptionalWhere(printer, getWhere());
}

LogicalResult WeightedSumOp::verifyRegions() {
  AttnTensorType type = getResult().getType();
  size_t rank = type.getRank();
  if (getIndices().size() != rank)
    return emitOpError() << "has " << getIndices().size() << " index names for rank " << rank;
  Type element = type.getComputeType();
  if (!isa<FloatType>(element))
    return emitOpError() << "must hold floats, but holds " << type.getElementType();
  if (failed(verifyIndexArguments(*this, getBody(), rank + 1)) ||
      failed(verifyYield(*this, getBody(), {element, element}, "the body")))
    return failure();
  if (!getWhere().empty() &&
      (failed(verifyIndexArguments(*this, getWhere(), rank + 1)) ||
       failed(verifyYield(*this, getWhere(), IntegerType::get(getContext(), 1), "the condition"))))
    return failure();
  if (int64_t query = getQuery(); query < -1 || query >= static_cast<int64_t>(rank))
    return emitOpError() << "query index must be -1 or a position below " << rank << ", but is " << query;
  return success();
}

void WeightedSumOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  nameArguments(region, getIndices(), setName);
  if (!region.empty() && region.getNumArguments() > 0)
    setName(region.getArguments().back(), getKey());
}

void WeightedSumOp::getAsmResultNames(OpAsmSetValueNameFn setName) { setName(getResult(), getName()); }
