//===- Compile.cpp - From a region to a flat program ----------------------===//

#include "Program.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/Support/FormatVariadic.h"

using namespace attn;
using namespace attn::reference;
using llvm::Error;
using llvm::StringRef;
using mlir::Type;
using mlir::Value;

namespace {

/// The lowest bit: results of i1 arithmetic wrap to it.
Cell lowestBit(Cell value, Cell, Cell, Cell) { return cell(value.integer & 1); }

/// A bool as the op reads it that takes it for a signed number: true is −1.
Cell negated(Cell value, Cell, Cell, Cell) { return cell(-value.integer); }

Cell multiplied(Cell a, Cell b, Cell, Cell) { return cell(a.real * b.real); }

bool readsSigned(mlir::Operation &op) {
  using enum mlir::arith::CmpIPredicate;
  if (auto compare = llvm::dyn_cast<mlir::arith::CmpIOp>(op))
    return llvm::is_contained({slt, sle, sgt, sge}, compare.getPredicate());
  return llvm::isa<mlir::arith::ExtSIOp, mlir::arith::SIToFPOp, mlir::arith::MaxSIOp, mlir::arith::MinSIOp>(op);
}

bool mayOverflowBit(mlir::Operation &op) {
  return llvm::isa<mlir::arith::AddIOp, mlir::arith::SubIOp, mlir::arith::MulIOp, mlir::arith::TruncIOp,
                   mlir::arith::ShLIOp, mlir::arith::MaxSIOp, mlir::arith::MinSIOp>(op);
}

class RegionCompiler {
public:
  RegionCompiler(StringRef name, const Environment &environment) : name(name), environment(environment) {
    newSlot(cell(int64_t{0})); // operands that an instruction does not have
  }

  Error compileOuterScalars(mlir::Operation *definition);
  Error compilePointwise(mlir::Region &body);
  Error compileWeightedSum(WeightedSumOp sum);
  Program take() { return std::move(program); }

private:
  Slot newSlot(Cell initial) {
    program.initialSlots.push_back(initial);
    return program.initialSlots.size() - 1;
  }
  Slot newSlot() { return newSlot(cell(int64_t{0})); }
  Slot slotOf(Value value) const { return slots.at(value); }

  Error error(const llvm::formatv_object_base &text) const {
    return llvm::createStringError(llvm::inconvertibleErrorCode(), llvm::formatv("'{0}' {1}", name, text.str()).str());
  }

  Error compileBody(mlir::Region &region, llvm::ArrayRef<Slot> indices, Block &block);
  Error compileOp(mlir::Operation &op, Block &block);
  Error compileConstant(mlir::arith::ConstantOp op);
  Error compileScalar(mlir::Operation &op, Block &block);
  Error compileRead(ReadOp op, Block &block);
  Error compileReduce(ReduceOp op, Block &block);
  void addReduction(std::unique_ptr<Reduction> reduction, Slot result, Block &block);

  StringRef name;
  const Environment &environment;
  Program program;
  llvm::DenseMap<Value, Slot> slots;
};

/// Passes such as canonicalization move constants to the top of the kernel: brings what the definition uses back in.
Error RegionCompiler::compileOuterScalars(mlir::Operation *definition) {
  Error failed = Error::success();
  definition->walk([&](mlir::Operation *op) -> mlir::WalkResult {
    for (Value operand : op->getOperands()) {
      mlir::Operation *outer = operand.getDefiningOp();
      if (!outer || outer->getBlock() != definition->getBlock() || slots.contains(operand) ||
          llvm::isa<AttnTensorType>(operand.getType()))
        continue;
      failed = llvm::joinErrors(std::move(failed), compileOuterScalars(outer));
      if (!failed)
        failed = llvm::joinErrors(std::move(failed), compileOp(*outer, program.block));
      if (failed)
        return mlir::WalkResult::interrupt();
    }
    return mlir::WalkResult::advance();
  });
  return failed;
}

Error RegionCompiler::compilePointwise(mlir::Region &body) {
  for (unsigned index = 0; index < body.getNumArguments(); ++index)
    program.indices.push_back(newSlot());
  if (Error failed = compileBody(body, program.indices, program.block))
    return failed;
  program.value = slotOf(body.front().back().getOperand(0));
  return Error::success();
}

Error RegionCompiler::compileWeightedSum(WeightedSumOp sum) {
  for (unsigned index = 0; index + 1 < sum.getBody().getNumArguments(); ++index)
    program.indices.push_back(newSlot());
  llvm::Expected<int64_t> extent = environment.extent(sum.getKeySize());
  if (!extent)
    return extent.takeError();
  auto reduction = std::make_unique<Reduction>();
  reduction->kind = ReduceKind::Sum;
  reduction->type = sum.getResult().getType().getComputeType();
  reduction->extents = {*extent};
  reduction->indices = {newSlot()};
  reduction->captured.assign(program.indices.begin(), program.indices.end());
  llvm::SmallVector<Slot> indices(program.indices.begin(), program.indices.end());
  indices.push_back(reduction->indices.front());
  if (Error failed = compileBody(sum.getBody(), indices, reduction->body))
    return failed;
  mlir::Operation &factors = sum.getBody().front().back();
  reduction->value = newSlot();
  reduction->body.push_back({Instruction::Kind::Scalar,
                             reduction->value,
                             multiplied,
                             {slotOf(factors.getOperand(0)), slotOf(factors.getOperand(1))}});
  if (!sum.getWhere().empty()) {
    if (Error failed = compileBody(sum.getWhere(), indices, reduction->where))
      return failed;
    reduction->condition = slotOf(sum.getWhere().front().back().getOperand(0));
  }
  program.value = newSlot();
  addReduction(std::move(reduction), program.value, program.block);
  return Error::success();
}

Error RegionCompiler::compileBody(mlir::Region &region, llvm::ArrayRef<Slot> indices, Block &block) {
  for (auto [argument, slot] : llvm::zip_equal(region.getArguments(), indices))
    slots[argument] = slot;
  for (mlir::Operation &op : region.front().without_terminator())
    if (Error failed = compileOp(op, block))
      return failed;
  return Error::success();
}

Error RegionCompiler::compileOp(mlir::Operation &op, Block &block) {
  // Narrow scalars come from conversions such as i8(x) alone, which widen them again at once.
  bool narrows = llvm::isa<mlir::arith::TruncFOp, mlir::arith::TruncIOp>(op);
  for (Type type : op.getResultTypes())
    if (!type.isF32() && !type.isF64() && !type.isSignlessInteger(64) && !type.isSignlessInteger(1) && !narrows)
      return error(llvm::formatv("computes a scalar of type {0} with {1}; only f32, f64, i64 and i1 are known", type,
                                 op.getName().getStringRef()));
  if (auto constant = llvm::dyn_cast<mlir::arith::ConstantOp>(op))
    return compileConstant(constant);
  if (auto size = llvm::dyn_cast<SizeOp>(op)) {
    llvm::Expected<int64_t> value = environment.evaluate(size.getSize());
    if (!value)
      return value.takeError();
    slots[size] = newSlot(cell(*value));
    return Error::success();
  }
  if (auto read = llvm::dyn_cast<ReadOp>(op))
    return compileRead(read, block);
  if (auto reduce = llvm::dyn_cast<ReduceOp>(op))
    return compileReduce(reduce, block);
  return compileScalar(op, block);
}

Error RegionCompiler::compileConstant(mlir::arith::ConstantOp op) {
  if (auto real = llvm::dyn_cast<mlir::FloatAttr>(op.getValue()))
    slots[op] = newSlot(cell(real.getValueAsDouble()));
  else if (op.getType().isSignlessInteger(1))
    slots[op] = newSlot(cell(static_cast<int64_t>(llvm::cast<mlir::BoolAttr>(op.getValue()).getValue())));
  else
    slots[op] = newSlot(cell(llvm::cast<mlir::IntegerAttr>(op.getValue()).getInt()));
  return Error::success();
}

Error RegionCompiler::compileScalar(mlir::Operation &op, Block &block) {
  Operation operation = findOperation(&op);
  if (!operation || op.getNumOperands() > 4 || op.getNumResults() != 1)
    return error(
        llvm::formatv("uses the op {0}, which the reference interpreter does not know", op.getName().getStringRef()));
  Instruction instruction{Instruction::Kind::Scalar, newSlot(), operation};
  for (auto [index, operand] : llvm::enumerate(op.getOperands())) {
    Slot slot = slotOf(operand);
    if (operand.getType().isSignlessInteger(1) && readsSigned(op)) {
      Instruction negation{Instruction::Kind::Scalar, newSlot(), negated, {slot}};
      block.push_back(negation);
      slot = negation.result;
    }
    instruction.operands[index] = slot;
  }
  block.push_back(instruction);
  if (op.getResult(0).getType().isSignlessInteger(1) && mayOverflowBit(op))
    block.push_back({Instruction::Kind::Scalar, instruction.result, lowestBit, {instruction.result}});
  slots[op.getResult(0)] = instruction.result;
  return Error::success();
}

Error RegionCompiler::compileRead(ReadOp op, Block &block) {
  const Tensor *tensor = environment.tensors.lookup(op.getTensor());
  Access access{tensor->cells.data(), tensor->cells.empty(), {}};
  int64_t stride = 1;
  for (size_t axis = tensor->shape.size(); axis-- > 0; stride *= tensor->shape[axis])
    access.subscripts.push_back({slotOf(op.getSubscripts()[axis]), tensor->shape[axis], stride});
  Instruction instruction{Instruction::Kind::Read, newSlot()};
  instruction.index = program.accesses.size();
  program.accesses.push_back(std::move(access));
  block.push_back(instruction);
  slots[op] = instruction.result;
  return Error::success();
}

Error RegionCompiler::compileReduce(ReduceOp op, Block &block) {
  auto reduction = std::make_unique<Reduction>();
  reduction->kind = op.getKind();
  reduction->type = op.getType();
  for (SizeAttr size : op.getSizes().getAsRange<SizeAttr>()) {
    llvm::Expected<int64_t> extent = environment.extent(size);
    if (!extent)
      return extent.takeError();
    reduction->extents.push_back(*extent);
    reduction->indices.push_back(newSlot());
  }
  if (op.isConditional()) {
    if (Error failed = compileBody(op.getWhere(), reduction->indices, reduction->where))
      return failed;
    reduction->condition = slotOf(op.getWhere().front().back().getOperand(0));
  }
  if (Error failed = compileBody(op.getBody(), reduction->indices, reduction->body))
    return failed;
  reduction->value = slotOf(op.getBody().front().back().getOperand(0));
  for (Value at : op.getAt())
    reduction->at.push_back(slotOf(at));
  if (op.getSink()) {
    reduction->sink = slotOf(op.getSink());
    reduction->captured.push_back(*reduction->sink);
  }
  llvm::SetVector<Value> captured;
  mlir::getUsedValuesDefinedAbove(op->getRegions(), captured);
  for (Value value : captured)
    if (!llvm::isa<AttnTensorType>(value.getType()))
      reduction->captured.push_back(slotOf(value));
  Slot result = newSlot();
  slots[op] = result;
  addReduction(std::move(reduction), result, block);
  return Error::success();
}

void RegionCompiler::addReduction(std::unique_ptr<Reduction> reduction, Slot result, Block &block) {
  Instruction instruction{Instruction::Kind::Reduce, result};
  instruction.index = program.reductions.size();
  program.reductions.push_back(std::move(reduction));
  block.push_back(instruction);
}

} // namespace

llvm::Expected<Program> reference::compileDefinition(DefinitionOpInterface definition, const Environment &environment) {
  RegionCompiler compiler(definition.getName(), environment);
  if (Error failed = compiler.compileOuterScalars(definition))
    return std::move(failed);
  auto sum = llvm::dyn_cast<WeightedSumOp>(definition.getOperation());
  if (Error failed = sum ? compiler.compileWeightedSum(sum) : compiler.compilePointwise(definition.getBody()))
    return std::move(failed);
  return compiler.take();
}
