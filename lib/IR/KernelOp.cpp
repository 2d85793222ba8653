//===- KernelOp.cpp - The attn.kernel op and its return -------------------===//
//
// Messages cite nothing but what a reader of the IR can see; the numbered constraints
// (K1, R2, …) are those of AttnOps.td, in the order they are checked.
//
//===----------------------------------------------------------------------===//

#include "IndexList.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace attn;

//===----------------------------------------------------------------------===//
// KernelOp
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

/// The last size name in `size` that is not `known`, or null.
static StringAttr findUnknown(SizeAttr size, const llvm::DenseSet<StringAttr> &known) {
  StringAttr unknown;
  size.forEachName([&](StringAttr name) {
    if (!known.contains(name))
      unknown = name;
  });
  return unknown;
}

/// K5 for a size in the attribute `attribute`.
static LogicalResult verifyKnown(KernelOp kernel, SizeAttr size, const llvm::DenseSet<StringAttr> &known,
                                 StringRef attribute) {
  if (StringAttr unknown = findUnknown(size, known))
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

  if (Attribute saved = (*this)->getAttr(savedName)) {
    auto number = dyn_cast<IntegerAttr>(saved);
    int64_t outputs = getReturn().getNumOperands();
    if (!number || number.getInt() < 0 || number.getInt() > outputs)
      return emitOpError() << "attribute '" << savedName << "' must be a number of its " << outputs
                           << " outputs, but is " << saved;
  }

  llvm::DenseSet<StringAttr> known;
  for (StringAttr size : getSizeNames())
    known.insert(size);
  if (failed(verifyChecks(*this, known)) || failed(verifyBounds(*this, known)))
    return failure();
  WalkResult walk = getBody().walk([&](Operation *op) -> WalkResult {
    StringAttr unknown;
    auto check = [&](SizeAttr size) {
      if (StringAttr name = findUnknown(size, known))
        unknown = name;
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

ValueRange KernelOp::getOwnOutputs() {
  ValueRange outputs = getReturn().getOutputs();
  auto saved = (*this)->getAttrOfType<IntegerAttr>(savedName);
  return outputs.drop_back(saved ? saved.getInt() : 0);
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

//===----------------------------------------------------------------------===//
// ReturnOp
//===----------------------------------------------------------------------===//

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
