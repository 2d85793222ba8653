//===- AttnOps.cpp - Parsing, printing, verifying and folding of ops ------===//
//
// Messages cite nothing but what a reader of the IR can see; the numbered constraints
// (K1, P2, …) are those of AttnOps.td, in the order they are checked.
//
//===----------------------------------------------------------------------===//

#include "attn/IR/Attn.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace attn;

#define GET_OP_CLASSES
#include "attn/IR/AttnOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Index lists: `(%i: I, %j: J)`
//===----------------------------------------------------------------------===//

namespace {
/// Index variables as they are written: block arguments, their names and their sizes.
struct IndexList {
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<Attribute> names;
  SmallVector<Attribute> sizes;
};
} // namespace

static ParseResult parseIndexList(OpAsmParser &parser, IndexList &list) {
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

static void printIndexList(OpAsmPrinter &printer, ValueRange arguments, ArrayRef<SizeAttr> sizes) {
  printer << '(';
  llvm::interleaveComma(llvm::zip_equal(arguments, sizes), printer, [&](auto pair) {
    printer << std::get<0>(pair) << ": ";
    std::get<1>(pair).printExpression(printer.getStream());
  });
  printer << ')';
}

static void nameArguments(Region &region, ArrayAttr names, OpAsmSetValueNameFn setName) {
  if (region.empty())
    return;
  for (auto [argument, name] : llvm::zip(region.getArguments(), names.getAsRange<StringAttr>()))
    setName(argument, name.getValue());
}

/// The entry block of `region` has `count` arguments, all i64.
static LogicalResult verifyIndexArguments(Operation *op, Region &region, size_t count) {
  if (region.getNumArguments() != count)
    return op->emitOpError() << "needs " << count << " index arguments, but its region has "
                             << region.getNumArguments();
  for (BlockArgument argument : region.getArguments())
    if (!argument.getType().isSignlessInteger(64))
      return op->emitOpError() << "index argument " << argument.getArgNumber() << " must be i64, but is "
                               << argument.getType();
  return success();
}

/// `region` ends in an attn.yield of values of `types`.
static LogicalResult verifyYield(Operation *op, Region &region, TypeRange types, StringRef what) {
  auto yield = dyn_cast_or_null<YieldOp>(region.front().empty() ? nullptr : &region.front().back());
  if (!yield)
    return op->emitOpError() << what << " must end in attn.yield";
  if (yield.getValues().getTypes() != types)
    return yield.emitOpError() << "of " << what << " must yield (" << types << "), but yields ("
                               << yield.getValues().getTypes() << ")";
  return success();
}

//===----------------------------------------------------------------------===//
// KernelOp and ReturnOp
//===----------------------------------------------------------------------===//

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr symbol;
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<Attribute> names, defaults;
  auto parseParameter = [&]() -> ParseResult {
    OpAsmParser::Argument argument;
    if (parser.parseArgument(argument, /*allowType=*/true))
      return failure();
    Attribute value = builder.getUnitAttr();
    if (succeeded(parser.parseOptionalEqual()) && parser.parseAttribute(value))
      return failure();
    names.push_back(builder.getStringAttr(argument.ssaName.name.drop_front()));
    defaults.push_back(value);
    arguments.push_back(argument);
    return success();
  };
  if (parser.parseSymbolName(symbol, getSymNameAttrName(result.name), result.attributes) ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseParameter) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  result.addAttribute(getParameterNamesAttrName(result.name), builder.getArrayAttr(names));
  result.addAttribute(getDefaultsAttrName(result.name), builder.getArrayAttr(defaults));
  return parser.parseRegion(*result.addRegion(), arguments);
}

void KernelOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << '(';
  llvm::interleaveComma(llvm::enumerate(getParameters()), printer, [&](auto parameter) {
    printer.printRegionArgument(parameter.value());
    if (TypedAttr value = getDefault(parameter.index()))
      printer << " = " << value;
  });
  printer << ')';
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                           {getSymNameAttrName(), getParameterNamesAttrName(), getDefaultsAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

static constexpr StringRef checksName = "attn.checks";

/// K5 for a size in the attribute `attribute`.
static LogicalResult verifyKnown(KernelOp kernel, SizeAttr size, const llvm::DenseSet<StringAttr> &known,
                                 StringRef attribute) {
  StringAttr unknown;
  size.forEachName([&](StringAttr name) {
    if (!known.contains(name))
      unknown = name;
  });
  if (unknown)
    return kernel.emitOpError() << "uses the size " << unknown << " in '" << attribute
                                << "', which no parameter's shape gives";
  return success();
}

/// K6, and K5 for the sizes of checks.
static LogicalResult verifyChecks(KernelOp kernel, const llvm::DenseSet<StringAttr> &known) {
  Attribute checks = kernel->getAttr(checksName);
  if (!checks)
    return success();
  auto list = dyn_cast<ArrayAttr>(checks);
  if (!list)
    return kernel.emitOpError() << "attribute '" << checksName << "' must be a list, but is " << checks;
  for (Attribute element : list) {
    auto check = dyn_cast<DictionaryAttr>(element);
    if (!check || check.size() != 3 || !check.getAs<StringAttr>("message") || !check.getAs<SizeAttr>("part") ||
        !check.getAs<SizeAttr>("whole"))
      return kernel.emitOpError() << "attribute '" << checksName
                                  << "' must have elements {message = \"...\", part = #attn.size<...>, whole = "
                                     "#attn.size<...>}, but has "
                                  << element;
  }
  for (KernelOp::Check check : kernel.getChecks())
    for (SizeAttr size : {check.part, check.whole})
      if (failed(verifyKnown(kernel, size, known, checksName)))
        return failure();
  return success();
}

/// K7, and K5 for the sizes of bounds.
static LogicalResult verifyBounds(KernelOp kernel, const llvm::DenseSet<StringAttr> &known) {
  Attribute bounds = kernel->getAttr(KernelOp::boundsName);
  if (!bounds)
    return success();
  auto list = dyn_cast<ArrayAttr>(bounds);
  size_t outputs = kernel.getReturn().getOutputs().size();
  if (!list || list.size() * 2 != outputs)
    return kernel.emitOpError() << "attribute '" << KernelOp::boundsName
                                << "' must be a list of one element for two of " << outputs << " outputs, but is "
                                << bounds;
  for (Attribute element : list) {
    auto bound = dyn_cast<DictionaryAttr>(element);
    if (!bound || bound.size() != 4 || !bound.getAs<StringAttr>("statement") || !bound.getAs<StringAttr>("tensor") ||
        !bound.getAs<IntegerAttr>("dimension") || !bound.getAs<SizeAttr>("size"))
      return kernel.emitOpError() << "attribute '" << KernelOp::boundsName
                                  << "' must have elements {statement = \"...\", tensor = \"...\", dimension = ..., "
                                     "size = #attn.size<...>}, but has "
                                  << element;
  }
  for (KernelOp::Bound bound : kernel.getBounds())
    if (failed(verifyKnown(kernel, bound.size, known, KernelOp::boundsName)))
      return failure();
  return success();
}

LogicalResult KernelOp::verifyRegions() {
  Block &block = getBody().front();
  size_t count = block.getNumArguments();
  if (getParameterNames().size() != count || getDefaults().size() != count)
    return emitOpError() << "has " << count << " parameters, but " << getParameterNames().size() << " names and "
                         << getDefaults().size() << " defaults";
  llvm::DenseSet<StringRef> names;
  for (size_t index = 0; index < count; ++index) {
    StringRef name = getParameterName(index);
    if (!names.insert(name).second)
      return emitOpError() << "has two parameters named '" << name << "'";
    auto type = dyn_cast<AttnTensorType>(block.getArgument(index).getType());
    if (!type)
      return emitOpError() << "parameter '" << name << "' must be an !attn.tensor, but is "
                           << block.getArgument(index).getType();
    TypedAttr value = getDefault(index);
    if (value && type.getRank() != 0)
      return emitOpError() << "parameter '" << name << "' is not a scalar and cannot have a default";
    if (value && value.getType() != type.getElementType())
      return emitOpError() << "default of '" << name << "' must be " << type.getElementType() << ", but is "
                           << value.getType();
  }
  if (block.empty() || !isa<ReturnOp>(block.back()))
    return emitOpError() << "must end in attn.return";

  llvm::DenseSet<StringAttr> known;
  for (StringAttr size : getSizeNames())
    known.insert(size);
  if (failed(verifyChecks(*this, known)) || failed(verifyBounds(*this, known)))
    return failure();
  WalkResult walk = getBody().walk([&](Operation *op) -> WalkResult {
    StringAttr unknown;
    auto check = [&](SizeAttr size) {
      size.forEachName([&](StringAttr name) {
        if (!known.contains(name))
          unknown = name;
      });
    };
    for (Value value : op->getResults())
      if (auto type = dyn_cast<AttnTensorType>(value.getType()))
        llvm::for_each(type.getShape(), check);
    if (auto size = dyn_cast<SizeOp>(op))
      check(size.getSize());
    if (auto reduce = dyn_cast<ReduceOp>(op))
      llvm::for_each(reduce.getSizes().getAsRange<SizeAttr>(), check);
    if (auto sum = dyn_cast<WeightedSumOp>(op))
      check(sum.getKeySize());
    if (unknown)
      return op->emitOpError() << "uses the size " << unknown << ", which no parameter's shape gives";
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

void KernelOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  nameArguments(region, getParameterNames(), setName);
}

ReturnOp KernelOp::getReturn() { return cast<ReturnOp>(getBody().front().back()); }

SmallVector<StringAttr> KernelOp::getSizeNames() {
  SmallVector<StringAttr> names;
  for (BlockArgument parameter : getParameters())
    for (SizeAttr size : cast<AttnTensorType>(parameter.getType()).getShape())
      size.forEachName([&](StringAttr name) {
        if (!llvm::is_contained(names, name))
          names.push_back(name);
      });
  return names;
}

SmallVector<KernelOp::Check> KernelOp::getChecks() {
  SmallVector<Check> checks;
  if (auto list = (*this)->getAttrOfType<ArrayAttr>(checksName))
    for (auto check : list.getAsRange<DictionaryAttr>())
      checks.push_back(
          {check.getAs<StringAttr>("message"), check.getAs<SizeAttr>("part"), check.getAs<SizeAttr>("whole")});
  return checks;
}

SmallVector<KernelOp::Bound> KernelOp::getBounds() {
  SmallVector<Bound> bounds;
  if (auto list = (*this)->getAttrOfType<ArrayAttr>(boundsName))
    for (auto bound : list.getAsRange<DictionaryAttr>())
      bounds.push_back({bound.getAs<StringAttr>("statement"), bound.getAs<StringAttr>("tensor"),
                        bound.getAs<IntegerAttr>("dimension").getInt(), bound.getAs<SizeAttr>("size")});
  return bounds;
}

ParseResult ReturnOp::parse(OpAsmParser &parser, OperationState &result) {
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  SmallVector<Attribute> types;
  SmallVector<Type> operandTypes;
  auto parseOutput = [&]() -> ParseResult {
    Type type;
    AttnTensorType tensor;
    if (parser.parseOperand(operands.emplace_back()) || parser.parseColon() || parser.parseType(tensor) ||
        parser.parseKeyword("as") || parser.parseType(type))
      return failure();
    operandTypes.push_back(tensor);
    types.push_back(TypeAttr::get(type));
    return success();
  };
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(parseOutput) || parser.parseOptionalAttrDict(result.attributes) ||
      parser.resolveOperands(operands, operandTypes, location, result.operands))
    return failure();
  result.addAttribute(getOutputTypesAttrName(result.name), parser.getBuilder().getArrayAttr(types));
  return success();
}

void ReturnOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  llvm::interleaveComma(llvm::zip(getOutputs(), getOutputTypes().getAsValueRange<TypeAttr>()), printer, [&](auto pair) {
    auto [value, type] = pair;
    printer << value << " : " << value.getType() << " as " << type;
  });
  printer.printOptionalAttrDict((*this)->getAttrs(), {getOutputTypesAttrName()});
}

LogicalResult ReturnOp::verify() {
  if (getOutputs().empty())
    return emitOpError() << "needs at least one output";
  if (getOutputs().size() != getOutputTypes().size())
    return emitOpError() << "has " << getOutputs().size() << " outputs, but " << getOutputTypes().size() << " types";
  llvm::DenseSet<Value> seen;
  for (auto [index, value] : llvm::enumerate(getOutputs())) {
    if (isa<BlockArgument>(value))
      return emitOpError() << "output " << index << " is a parameter";
    if (!seen.insert(value).second)
      return emitOpError() << "output " << index << " is returned twice";
  }
  return success();
}

StringRef ReturnOp::getOutputName(unsigned index) {
  auto result = cast<OpResult>(getOutputs()[index]);
  if (auto definition = dyn_cast<DefinitionOpInterface>(result.getOwner()))
    return definition.getName();
  auto softmax = cast<SoftmaxOp>(result.getOwner());
  return result == softmax.getWeight() ? softmax.getName() : softmax.getLogsumexpName();
}

AttnTensorType ReturnOp::getOutputType(unsigned index) {
  return cast<AttnTensorType>(getOutputs()[index].getType())
      .withElement(cast<TypeAttr>(getOutputTypes()[index]).getValue());
}

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

/// `where { … }` after a body, with the body's index arguments.
static ParseResult parseOptionalWhere(OpAsmParser &parser, Region &region, ArrayRef<OpAsmParser::Argument> arguments) {
  if (failed(parser.parseOptionalKeyword("where")))
    return success();
  return parser.parseRegion(region, arguments);
}

static void printOptionalWhere(OpAsmPrinter &printer, Region &region) {
  if (region.empty())
    return;
  printer << " where ";
  printer.printRegion(region, /*printEntryBlockArgs=*/false);
}

ParseResult WeightedSumOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  IndexList list, key;
  Type element;
  int64_t query;
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

//===----------------------------------------------------------------------===//
// Region ops
//===----------------------------------------------------------------------===//

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
  bool exponential = softmax || getKind() == ReduceKind::LogSumExp;
  if (exponential && !isa<FloatType>(getType()))
    return emitOpError() << "of kind " << stringifyReduceKind(getKind()) << " must be a float, but is " << getType();
  if (getSink() && !exponential)
    return emitOpError() << "of kind " << stringifyReduceKind(getKind()) << " cannot have a sink";
  return success();
}

void ReduceOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  nameArguments(region, getIndices(), setName);
}
