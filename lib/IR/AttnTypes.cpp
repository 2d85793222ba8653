//===- AttnTypes.cpp - Size expressions and tensor types ------------------===//

#include "attn/IR/Attn.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace attn;

#define GET_ATTRDEF_CLASSES
#include "attn/IR/AttnAttributes.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "attn/IR/AttnTypes.cpp.inc"

void AttnDialect::registerAttributesAndTypes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "attn/IR/AttnAttributes.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "attn/IR/AttnTypes.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// SizeAttr
//===----------------------------------------------------------------------===//

SizeAttr SizeAttr::named(MLIRContext *context, StringRef name) {
  return Base::get(context, SizeKind::Name, 0, StringAttr::get(context, name), SizeAttr(), SizeAttr());
}

SizeAttr SizeAttr::constant(MLIRContext *context, int64_t value) {
  return Base::get(context, SizeKind::Constant, value, StringAttr(), SizeAttr(), SizeAttr());
}

/// `lhs op rhs`, or nothing where it overflows or divides by zero.
static std::optional<int64_t> compute(SizeKind kind, int64_t lhs, int64_t rhs) {
  int64_t result;
  switch (kind) {
  case SizeKind::Add:
    return llvm::AddOverflow(lhs, rhs, result) ? std::nullopt : std::optional(result);
  case SizeKind::Sub:
    return llvm::SubOverflow(lhs, rhs, result) ? std::nullopt : std::optional(result);
  case SizeKind::Mul:
    return llvm::MulOverflow(lhs, rhs, result) ? std::nullopt : std::optional(result);
  case SizeKind::FloorDiv:
    if (rhs == 0 || (lhs == INT64_MIN && rhs == -1))
      return std::nullopt;
    return llvm::divideFloorSigned(lhs, rhs);
  case SizeKind::Mod:
    if (rhs == 0 || rhs == -1)
      return rhs == 0 ? std::nullopt : std::optional<int64_t>(0);
    return lhs - llvm::divideFloorSigned(lhs, rhs) * rhs;
  case SizeKind::Constant:
  case SizeKind::Name:
    break;
  }
  llvm_unreachable("not an operator");
}

SizeAttr SizeAttr::binary(SizeKind kind, SizeAttr lhs, SizeAttr rhs) {
  MLIRContext *context = lhs.getContext();
  if (lhs.isConstant() && rhs.isConstant())
    if (std::optional<int64_t> value = compute(kind, lhs.getValue(), rhs.getValue()))
      return constant(context, *value);
  return Base::get(context, kind, 0, StringAttr(), lhs, rhs);
}

/// How tightly an operator binds: products before sums.
static int precedence(SizeKind kind) {
  switch (kind) {
  case SizeKind::Add:
  case SizeKind::Sub:
    return 1;
  case SizeKind::Mul:
  case SizeKind::FloorDiv:
  case SizeKind::Mod:
    return 2;
  case SizeKind::Constant:
  case SizeKind::Name:
    return 3;
  }
  llvm_unreachable("unknown size kind");
}

/// Operators as the dialect has them, or as specs do.
enum class Spelling { Dialect, Spec };

static StringRef spell(SizeKind kind, Spelling spelling) {
  if (spelling == Spelling::Spec && kind == SizeKind::FloorDiv)
    return "//";
  if (spelling == Spelling::Spec && kind == SizeKind::Mod)
    return "%";
  return stringifySizeKind(kind);
}

static void print(SizeAttr size, int minimum, Spelling spelling, raw_ostream &os) {
  SizeKind kind = size.getKind();
  if (kind == SizeKind::Constant) {
    os << size.getValue();
    return;
  }
  if (kind == SizeKind::Name) {
    os << size.getName().getValue();
    return;
  }
  int level = precedence(kind);
  if (level < minimum)
    os << '(';
  print(size.getLhs(), level, spelling, os);
  os << ' ' << spell(kind, spelling) << ' ';
  print(size.getRhs(), level + 1, spelling, os);
  if (level < minimum)
    os << ')';
}

void SizeAttr::printExpression(raw_ostream &os) const { ::print(*this, 0, Spelling::Dialect, os); }

std::string SizeAttr::str() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  ::print(*this, 0, Spelling::Spec, os);
  return text;
}

static FailureOr<SizeAttr> parseSum(AsmParser &parser);

static FailureOr<SizeAttr> parseLeaf(AsmParser &parser) {
  int64_t value = 0;
  OptionalParseResult integer = parser.parseOptionalInteger(value);
  if (integer.has_value()) {
    if (failed(*integer))
      return failure();
    return SizeAttr::constant(parser.getContext(), value);
  }
  if (succeeded(parser.parseOptionalLParen())) {
    FailureOr<SizeAttr> inner = parseSum(parser);
    if (failed(inner) || parser.parseRParen())
      return failure();
    return inner;
  }
  StringRef name;
  if (parser.parseOptionalKeyword(&name))
    return parser.emitError(parser.getCurrentLocation(),
                            "expected a size: a name, an integer or an expression of them");
  return SizeAttr::named(parser.getContext(), name);
}

static FailureOr<SizeAttr> parseProduct(AsmParser &parser) {
  FailureOr<SizeAttr> lhs = parseLeaf(parser);
  while (succeeded(lhs)) {
    SizeKind kind;
    if (succeeded(parser.parseOptionalStar()))
      kind = SizeKind::Mul;
    else if (succeeded(parser.parseOptionalKeyword("floordiv")))
      kind = SizeKind::FloorDiv;
    else if (succeeded(parser.parseOptionalKeyword("mod")))
      kind = SizeKind::Mod;
    else
      break;
    FailureOr<SizeAttr> rhs = parseLeaf(parser);
    if (failed(rhs))
      return failure();
    lhs = SizeAttr::binary(kind, *lhs, *rhs);
  }
  return lhs;
}

static FailureOr<SizeAttr> parseSum(AsmParser &parser) {
  FailureOr<SizeAttr> lhs = parseProduct(parser);
  while (succeeded(lhs)) {
    SizeKind kind;
    if (succeeded(parser.parseOptionalPlus()))
      kind = SizeKind::Add;
    else if (succeeded(parser.parseOptionalMinus()))
      kind = SizeKind::Sub;
    else
      break;
    FailureOr<SizeAttr> rhs = parseProduct(parser);
    if (failed(rhs))
      return failure();
    lhs = SizeAttr::binary(kind, *lhs, *rhs);
  }
  return lhs;
}

FailureOr<SizeAttr> SizeAttr::parseExpression(AsmParser &parser) { return parseSum(parser); }

Attribute SizeAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<SizeAttr> size = parseExpression(parser);
  if (failed(size) || parser.parseGreater())
    return {};
  return *size;
}

void SizeAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printExpression(printer.getStream());
  printer << '>';
}

void SizeAttr::forEachName(llvm::function_ref<void(StringAttr)> visit) const {
  if (isName())
    return visit(getName());
  if (isConstant())
    return;
  getLhs().forEachName(visit);
  getRhs().forEachName(visit);
}

std::optional<int64_t> SizeAttr::evaluate(const llvm::StringMap<int64_t> &values) const {
  if (isConstant())
    return getValue();
  if (isName()) {
    auto found = values.find(getName().getValue());
    return found == values.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<int64_t> lhs = getLhs().evaluate(values), rhs = getRhs().evaluate(values);
  if (!lhs || !rhs)
    return std::nullopt;
  return compute(getKind(), *lhs, *rhs);
}

SizeAttr SizeAttr::substitute(const llvm::StringMap<int64_t> &values) const {
  if (isConstant())
    return *this;
  if (isName()) {
    auto found = values.find(getName().getValue());
    return found == values.end() ? *this : constant(getContext(), found->second);
  }
  return binary(getKind(), getLhs().substitute(values), getRhs().substitute(values));
}

//===----------------------------------------------------------------------===//
// AttnTensorType
//===----------------------------------------------------------------------===//

LogicalResult AttnTensorType::verify(llvm::function_ref<InFlightDiagnostic()> emitError, ArrayRef<SizeAttr> shape,
                                     Type element) {
  for (SizeAttr size : shape)
    if (size.isConstant() && size.getValue() < 0)
      return emitError() << "dimension " << size.getValue() << " is negative";
  if (element.isF64() || element.isF32() || element.isF16() || element.isBF16() || element.isSignlessInteger(64) ||
      element.isSignlessInteger(32) || element.isSignlessInteger(8) || element.isUnsignedInteger(8) ||
      element.isSignlessInteger(1))
    return success();
  return emitError() << "element type must be one of f64, f32, f16, bf16, i64, i32, i8, ui8, i1, but is " << element;
}

Type AttnTensorType::getComputeType() const {
  Type element = getElementType();
  if (element.isF64() || element.isSignlessInteger(1))
    return element;
  if (isa<FloatType>(element))
    return Float32Type::get(getContext());
  return IntegerType::get(getContext(), 64);
}

AttnTensorType AttnTensorType::dropDimension(unsigned axis) const {
  SmallVector<SizeAttr> shape(getShape());
  shape.erase(shape.begin() + axis);
  return get(getContext(), shape, getElementType());
}

AttnTensorType AttnTensorType::withElement(Type element) const { return get(getContext(), getShape(), element); }

Type AttnTensorType::parse(AsmParser &parser) {
  SmallVector<SizeAttr> shape;
  Type element;
  auto parseDimension = [&]() -> ParseResult {
    FailureOr<SizeAttr> size = SizeAttr::parseExpression(parser);
    if (failed(size))
      return failure();
    shape.push_back(*size);
    return success();
  };
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseDimension) ||
      parser.parseComma() || parser.parseType(element) || parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(location); }, parser.getContext(), ArrayRef(shape), element);
}

void AttnTensorType::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getShape(), printer, [&](SizeAttr size) { size.printExpression(printer.getStream()); });
  printer << "], " << getElementType() << '>';
}
