//===- Parts.cpp - Formulas that differ between parts of a row -------------===//

#include "Parts.h"
#include "Mathematics.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using Halide::cast;
using Halide::Expr;
using Halide::RDom;
using Halide::RVar;

namespace attn::lowering {

static std::optional<int64_t> constantOf(mlir::Value value) {
  std::optional<SizeAttr> size = sizeOf(value);
  return size && size->isConstant() ? std::optional(size->getValue()) : std::nullopt;
}

namespace {
/// The last index of a formula, in `count` parts of the same length and what is left.
struct Parts {
  mlir::BlockArgument index;
  SizeAttr length;
  int count;
  bool isInterleaved; ///< A part has every `count`-th element, rather than `length` in a row.

  /// Whether `value` is the index divided so that the quotient, or the remainder, is the number of the part.
  template <typename Division> bool divides(mlir::Value value) const {
    auto division = value.getDefiningOp<Division>();
    if (!division || division.getLhs() != index)
      return false;
    return isInterleaved ? constantOf(division.getRhs()) == count : sizeOf(division.getRhs()) == length;
  }
  bool isNumber(mlir::Value value) const { return isInterleaved ? divides<ModOp>(value) : divides<FloorDivOp>(value); }
  bool isWithin(mlir::Value value) const { return isInterleaved ? divides<FloorDivOp>(value) : divides<ModOp>(value); }
  /// How many parts further the same place is in a part, at the subscript `value`; none where it is somewhere else.
  std::optional<int64_t> stepOf(mlir::Value value) const {
    mlir::Operation *op = value.getDefiningOp();
    if (!mlir::isa_and_nonnull<mlir::arith::AddIOp, mlir::arith::SubIOp>(op) || op->getOperand(0) != index)
      return std::nullopt;
    int64_t sign = mlir::isa<mlir::arith::AddIOp>(op) ? 1 : -1;
    if (!isInterleaved)
      return sizeOf(op->getOperand(1)) == length ? std::optional(sign) : std::nullopt;
    std::optional<int64_t> by = constantOf(op->getOperand(1));
    return by && std::abs(*by) < count ? std::optional(sign * *by) : std::nullopt;
  }
  /// Element `within` of a part.
  Expr at(Expr number, Expr within, Expr lengthOfPart) const {
    return isInterleaved ? within * count + number : number * lengthOfPart + within;
  }
};

/// The formula in part `number`, at element `within` of it.
class PartRegion : public PlainRegion {
public:
  PartRegion(StepLowering &kernel, Environment &environment, const Parts &parts, int number, Expr within)
      : PlainRegion(kernel, environment), parts(parts), number(number), within(std::move(within)) {}

protected:
  Expr stored(mlir::Value value) override {
    mlir::Operation *op = value.getDefiningOp();
    if (auto read = mlir::dyn_cast<ReadOp>(op))
      return readInPart(read);
    if (auto choice = mlir::dyn_cast<mlir::arith::SelectOp>(op)) {
      std::optional<bool> holds = comparison(choice.getCondition());
      return holds ? expression(*holds ? choice.getTrueValue() : choice.getFalseValue()) : Expr();
    }
    if (std::optional<bool> holds = comparison(value))
      return *holds ? Halide::Internal::const_true() : Halide::Internal::const_false();
    if (parts.isWithin(value))
      return cast<int64_t>(within);
    return parts.isNumber(value) ? Halide::Internal::make_const(Halide::Int(64), number) : Expr();
  }

private:
  /// What a comparison is that the number of the part decides; none if `value` is something else.
  std::optional<bool> comparison(mlir::Value value) const {
    auto compare = value.getDefiningOp<mlir::arith::CmpIOp>();
    if (!compare)
      return std::nullopt;
    using mlir::arith::CmpIPredicate;
    CmpIPredicate predicate = compare.getPredicate();
    std::optional<int64_t> other;
    if (parts.isNumber(compare.getLhs()))
      other = constantOf(compare.getRhs());
    else if (!parts.isInterleaved && compare.getLhs() == parts.index && sizeOf(compare.getRhs()) == parts.length &&
             (predicate == CmpIPredicate::slt || predicate == CmpIPredicate::sge))
      other = 1;
    if (!other)
      return std::nullopt;
    return mlir::arith::applyCmpPredicate(predicate, llvm::APInt(64, number), llvm::APInt(64, *other, true));
  }

  /// The subscript, where it lies within a dimension of this size for certain; undefined elsewhere.
  Expr inside(mlir::Value subscript, SizeAttr size) const {
    if (parts.isWithin(subscript) && size == parts.length)
      return within;
    std::optional<int64_t> step = parts.stepOf(subscript);
    int64_t other = number + step.value_or(parts.count);
    bool isInside = other >= 0 && other < parts.count && size == indexSize(parts.index);
    return isInside ? parts.at(static_cast<int>(other), within, extent(kernel, parts.length)) : Expr();
  }

  Expr readInPart(ReadOp read) {
    for (auto [position, subscript] : llvm::enumerate(read.getSubscripts()))
      if (Expr at = inside(subscript, read.getTensor().getType().getShape()[position]); at.defined())
        environment.subscripts[subscript] = {at, kernel.lastIndex(read.getTensor(), position)};
    return lowerOperation(read).expr;
  }

  const Parts &parts;
  int number;
  Expr within;
};
} // namespace

/// How many parts of `length` there are in `whole`, where that is known.
static std::optional<int64_t> partsIn(SizeAttr whole, SizeAttr length) {
  if (whole.isConstant() && length.isConstant())
    return length.getValue() > 0 ? whole.getValue() / length.getValue() : 0;
  bool isQuotient = length.getKind() == SizeKind::FloorDiv && length.getLhs() == whole && length.getRhs().isConstant();
  return isQuotient ? std::optional(length.getRhs().getValue()) : std::nullopt;
}

/// The parts between which the formula of `op` differs: it divides its last index by a few, or by their length, with
/// which it may compare it.
static std::optional<Parts> findParts(DefinitionOpInterface op) {
  mlir::Block &body = op.getBody().front();
  if (body.getNumArguments() == 0 || !body.getOps<ReduceOp>().empty())
    return std::nullopt;
  mlir::BlockArgument index = body.getArguments().back();
  SizeAttr size = indexSize(index);
  auto areFew = [](std::optional<int64_t> count) { return count && *count > 1 && *count <= 4; };
  for (mlir::Operation &inner : body) {
    if (!mlir::isa<ModOp, FloorDivOp, mlir::arith::CmpIOp>(inner) || inner.getOperand(0) != index)
      continue;
    std::optional<SizeAttr> divisor = sizeOf(inner.getOperand(1));
    if (!divisor)
      continue;
    if (std::optional<int64_t> count = partsIn(size, *divisor); areFew(count))
      return Parts{index, *divisor, static_cast<int>(*count), false};
    std::optional<int64_t> count = constantOf(inner.getOperand(1));
    if (!mlir::isa<mlir::arith::CmpIOp>(inner) && areFew(count))
      return Parts{index, SizeAttr::binary(SizeKind::FloorDiv, size, *divisor), static_cast<int>(*count), true};
  }
  return std::nullopt;
}

std::vector<PartFormula> partFormulas(StepLowering &kernel, DefinitionOpInterface op,
                                      llvm::function_ref<Environment(Expr last)> bind) {
  // A block has some values of an index: what lies beside them is not there.
  std::optional<Parts> parts = kernel.isInBlocks() ? std::nullopt : findParts(op);
  if (!parts)
    return {};
  Expr length = extent(kernel, parts->length), whole = parts->count * length;
  Halide::Type type = computeType(mlir::cast<AttnTensorType>(op.getDefinedTensor().getType()).getElementType());
  std::vector<PartFormula> formulas;
  for (int number = 0; number < parts->count; ++number) {
    RDom within(0, length);
    Expr last = parts->at(number, within.x, length);
    Environment environment = bind(last);
    PartRegion lowering(kernel, environment, *parts, number, within.x);
    formulas.push_back({within, last, cast(type, lowering.expression(yielded(op.getBody())))});
  }
  RDom rest(0, extent(kernel, indexSize(parts->index)) - whole);
  Expr last = whole + rest.x;
  Environment environment = bind(last);
  formulas.push_back({rest, last, cast(type, PlainRegion(kernel, environment).expression(yielded(op.getBody())))});
  return formulas;
}

void defineByParts(Halide::Func func, llvm::ArrayRef<PartFormula> parts, llvm::ArrayRef<Halide::Var> others,
                   Halide::Type type) {
  std::vector<Halide::Var> vars = {Halide::Var("last$")};
  vars.insert(vars.end(), others.begin(), others.end());
  func(vars) = Halide::undef(type);
  std::vector<Expr> element(vars.begin(), vars.end());
  for (const PartFormula &part : parts) {
    element.front() = part.last;
    func(element) = convert(part.value, type);
  }
}

void vectorizeParts(Halide::Func func, int lanes) {
  int updates = func.num_update_definitions();
  for (int number = 0; number < std::max(updates - 1, 1); ++number) {
    Halide::Stage part = func.update(number);
    const Halide::Internal::ReductionVariable &along = part.get_schedule().rvars()[0];
    RVar within(along.var), vector("vector$"), lane("lane$");
    part.split(within, vector, lane, lanes, Halide::TailStrategy::GuardWithIf).vectorize(lane);
    // Whole vectors have a loop without conditions. Halide refuses where there is nothing else.
    auto length = Halide::Internal::as_const_int(Halide::Internal::simplify(along.extent));
    if (!length || (*length > lanes && *length % lanes != 0))
      part.partition(vector, Halide::Partition::Always);
  }
}

} // namespace attn::lowering
