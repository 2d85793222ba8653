//===- Formula.cpp - Formulas of regions as C++ expressions ---------------===//

#include "Formula.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

#include <fmt/format.h>

using namespace attn;
using namespace attn::cuda;

/// The C++ type of a value.
static std::string typeOfValue(mlir::Type type, IntegerRange range) {
  if (type.isSignlessInteger(1))
    return "bool";
  return type.isInteger() ? typeOf(range) : "float";
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// How often each value below `value` is used.
void FormulaWriter::count(mlir::Value value) {
  if (uses[value]++ || known.contains(value))
    return;
  if (mlir::Operation *op = value.getDefiningOp(); op && !mlir::isa<ReduceOp>(op))
    for (mlir::Value operand : op->getOperands())
      if (!mlir::isa<AttnTensorType>(operand.getType()))
        count(operand);
}

/// Whether a value of level `own` is a field here, rather than part of an expression.
bool FormulaWriter::canBeField(Level own) const { return own == Level::Block || (own == Level::Row && hasRow); }

/// Of a place there are elements of tables, and divisions by what is not known.
bool FormulaWriter::canBeField(Level own, mlir::Operation *op) const {
  if (own != Level::Key)
    return canBeField(own);
  bool isDivision = mlir::isa<FloorDivOp, ModOp>(op);
  std::optional<SizeAttr> divisor = isDivision ? sizeOf(op->getOperand(1)) : std::nullopt;
  return hasPlace && (mlir::isa<ReadOp>(op) || (isDivision && !(divisor && divisor->isConstant())));
}

/// Whether an operation takes so little time that it may as well be repeated.
static bool isCheap(mlir::Operation *op) {
  return mlir::isa<mlir::arith::ConstantOp, mlir::arith::AddIOp, mlir::arith::SubIOp, mlir::arith::MulIOp,
                   mlir::arith::CmpIOp, SizeOp>(op) ||
         (mlir::isa<ReadOp>(op) && op->getNumOperands() == 1);
}

Expression FormulaWriter::write(mlir::Value value) {
  if (auto found = known.find(value); found != known.end())
    return found->second;
  if (formulas.attention.indices.contains(value))
    return {formulas.index(value), {0, longestDimension - 1}};
  mlir::Operation *op = value.getDefiningOp();
  if (!op)
    return {"0", {}};
  if (!uses.contains(value))
    count(value);
  Level own = formulas.levelOf(value);
  auto read = mlir::dyn_cast<ReadOp>(op);
  // A value that changes less often than this function is called is a field; so are values of the fields' own level
  // that are used twice.
  bool isField = canBeField(own, op) && !isCheap(op) && (own < level || uses[value] > 1);
  Expression result;
  if (isField && own < level) {
    FormulaWriter writer(formulas, own, own == Level::Row, own == Level::Key);
    result = writer.write(value);
  } else {
    result = define(op);
  }
  std::string type = typeOfValue(value.getType(), result.range);
  if (isField) {
    std::string name = read ? tensorName(read.getTensor()) : "value";
    bool isWritten =
        result.text.starts_with(Formulas::owner(own)) && result.text.find_first_of(" ([") == std::string::npos;
    if (!isWritten)
      result.text = formulas.field(own, name, type, result.text);
  } else if (uses[value] > 1 && !isCheap(op) && (level == Level::Row || level == Level::Element)) {
    std::string name = fmt::format("value_{}", locals++);
    text += fmt::format("    const {} {} = {};\n", type, name, result.text);
    result.text = name;
  }
  known[value] = result;
  return result;
}

Expression FormulaWriter::unsupported(mlir::Operation *op) {
  if (formulas.problem.empty())
    formulas.problem = "operation '" + op->getName().getStringRef().str() + "' on " +
                       (op->getResult(0).getType().isF64() ? "f64" : "these types");
  return {"0", {}};
}

Expression FormulaWriter::define(mlir::Operation *op) {
  mlir::Type type = op->getResult(0).getType();
  if (type.isF64() || llvm::any_of(op->getOperandTypes(), [](mlir::Type operand) { return operand.isF64(); }))
    return unsupported(op);
  if (auto read = mlir::dyn_cast<ReadOp>(op))
    return element(read);
  if (type.isInteger() && !type.isSignlessInteger(1))
    return defineInteger(op);
  return defineFloat(op);
}

std::string FormulaWriter::function(const std::string &head, const std::string &value) const {
  return fmt::format("  static __device__ __forceinline__ {} {{\n{}    return {};\n  }}\n", head, text, value);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

Expression FormulaWriter::size(SizeAttr size) {
  auto both = [&](auto combine) { return combine(this->size(size.getLhs()), this->size(size.getRhs())); };
  switch (size.getKind()) {
  case SizeKind::Constant:
    return integer(size.getValue());
  case SizeKind::Name:
    return {formulas.sizeName(size.getName().getValue()), {0, longestDimension}};
  case SizeKind::Add:
    return both(add);
  case SizeKind::Sub:
    return both(subtract);
  case SizeKind::Mul:
    return both(multiply);
  case SizeKind::FloorDiv:
    return both(floorDivide);
  case SizeKind::Mod:
    return both(floorModulo);
  }
  llvm_unreachable("unknown size kind");
}

std::string FormulaWriter::subscript(mlir::Value value, SizeAttr size) {
  Expression index = write(value);
  if (isInRange(value, size))
    return index.operand();
  return fmt::format("subscript({}, {})", index.text, subtract(this->size(size), integer(1)).text);
}

/// Where the element is that the first `dimensions` subscripts say: what only the block or only the row changes is
/// added once.
std::string FormulaWriter::address(ReadOp read, size_t dimensions) {
  std::string tensor = formulas.tensor(read.getTensor()), base = tensor + ".data";
  llvm::ArrayRef<SizeAttr> shape = read.getTensor().getType().getShape();
  std::string name = tensorName(read.getTensor());
  std::string type = "const " + elementType(read.getTensor().getType().getElementType()) + " *";
  for (Level part : {Level::Block, Level::Row, Level::Key, Level::Element}) {
    std::string offset;
    bool isField = canBeField(part) && part < level;
    FormulaWriter writer(formulas, part, part == Level::Row);
    for (size_t dimension = 0; dimension < dimensions; ++dimension) {
      mlir::Value at = read.getSubscripts()[dimension];
      if (formulas.levelOf(at) == part)
        offset += fmt::format(" + {} * {}.stride[{}]",
                              isField ? writer.subscript(at, shape[dimension]) : subscript(at, shape[dimension]),
                              tensor, dimension);
    }
    if (offset.empty())
      continue;
    base += offset;
    if (isField)
      base = formulas.field(part, name, type, base);
  }
  return base;
}

std::vector<std::string> FormulaWriter::place(ReadOp read) {
  constexpr size_t mostSubscripts = 5;
  Attention &attention = formulas.attention;
  llvm::ArrayRef<SizeAttr> shape = read.getTensor().getType().getShape();
  if (shape.size() > mostSubscripts || !formulas.isInLine(read))
    return {};
  std::vector<std::string> place;
  for (auto [value, size] : llvm::reverse(llvm::zip(read.getSubscripts().drop_back(), shape.drop_back()))) {
    bool isKey = attention.indices.lookup(value) == attention.keyIndex();
    place.push_back(isKey ? "key" : fmt::format("int({})", subscript(value, size)));
  }
  return place;
}

std::string FormulaWriter::rowAddress(ReadOp read) { return address(read, read.getSubscripts().size() - 1); }

Expression FormulaWriter::element(ReadOp read) {
  mlir::Type type = read.getTensor().getType().getElementType();
  unsigned rank = read.getSubscripts().size();
  std::string element;
  if (Attention::isValue(read.getTensor())) {
    element = formulas.tensor(read.getTensor());
  } else {
    std::string place = address(read, rank);
    element = place.find(' ') == std::string::npos ? "*" + place : "*(" + place + ")";
  }
  if (type.isBF16() || type.isF16())
    return {fmt::format("to_float({})", element), {}};
  if (type.isF32() || type.isSignlessInteger(1))
    return {element, {}};
  if (!type.isInteger())
    return unsupported(read);
  unsigned bits = type.getIntOrFloatBitWidth();
  if (bits == 64)
    return {element, {}};
  IntegerRange range = type.isUnsignedInteger()
                           ? IntegerRange{0, (int64_t(1) << bits) - 1}
                           : IntegerRange{-(int64_t(1) << (bits - 1)), (int64_t(1) << (bits - 1)) - 1};
  return {bits < 32 ? fmt::format("int({})", element) : element, range};
}

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

/// The same for all that share keys: that of the first.
Expression FormulaWriter::group(FloorDivOp op) {
  return floorDivide({"block.first_sharer", {0, longestDimension - 1}}, write(op.getRhs()));
}

Expression FormulaWriter::defineInteger(mlir::Operation *op) {
  using namespace mlir;
  auto operand = [&](unsigned index) { return write(op->getOperand(index)); };
  auto wrapped = [](const std::string &text, unsigned bits) -> Expression {
    const char *type = bits == 8 ? "signed char" : "int";
    IntegerRange range = {-(int64_t(1) << (bits - 1)), (int64_t(1) << (bits - 1)) - 1};
    return {bits == 8 ? fmt::format("int({}({}))", type, text) : fmt::format("{}({})", type, text), range};
  };
  return llvm::TypeSwitch<Operation *, Expression>(op)
      .Case([&](arith::ConstantOp constant) { return integer(cast<IntegerAttr>(constant.getValue()).getInt()); })
      .Case([&](SizeOp size) { return this->size(size.getSize()); })
      .Case([&](arith::AddIOp) { return add(operand(0), operand(1)); })
      .Case([&](arith::SubIOp) { return subtract(operand(0), operand(1)); })
      .Case([&](arith::MulIOp) { return multiply(operand(0), operand(1)); })
      .Case([&](FloorDivOp quotient) {
        if (formulas.attention.isGroup(quotient))
          return group(quotient);
        return floorDivide(operand(0), operand(1));
      })
      .Case([&](ModOp) { return floorModulo(operand(0), operand(1)); })
      .Case([&](arith::MaxSIOp) { return extremum(operand(0), operand(1), true); })
      .Case([&](arith::MinSIOp) { return extremum(operand(0), operand(1), false); })
      .Case([&](arith::SelectOp) -> Expression {
        Expression a = operand(1), b = operand(2);
        IntegerRange range = {std::min(a.range.low, b.range.low), std::max(a.range.high, b.range.high)};
        return {fmt::format("{} ? {} : {}", operand(0).operand(), a.operand(), b.operand()), range};
      })
      .Case([&](arith::ExtUIOp widen) -> Expression {
        if (widen.getIn().getType().isSignlessInteger(1))
          return {fmt::format("{} ? 1 : 0", operand(0).operand()), {0, 1}};
        if (widen.getIn().getType().isInteger(8))
          return {fmt::format("int((unsigned char)({}))", operand(0).text), {0, 255}};
        return unsupported(op);
      })
      .Case([&](arith::ExtSIOp) { return operand(0); })
      .Case([&](arith::TruncIOp narrow) {
        unsigned bits = narrow.getType().getIntOrFloatBitWidth();
        return bits == 8 || bits == 32 ? wrapped(operand(0).text, bits) : unsupported(op);
      })
      .Case([&](arith::FPToSIOp) -> Expression {
        unsigned bits = op->getResult(0).getType().getIntOrFloatBitWidth();
        std::string whole = fmt::format("int64({})", operand(0).text);
        if (bits == 64)
          return {whole, {}};
        return bits == 8 || bits == 32 ? wrapped(whole, bits) : unsupported(op);
      })
      .Case([&](math::AbsIOp) -> Expression {
        Expression a = operand(0);
        return extremum(a, subtract(integer(0), a), true);
      })
      .Default([&](Operation *) { return unsupported(op); });
}
