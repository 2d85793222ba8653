//===- Subscripts.cpp - Which elements are read at a place ----------------===//

#include "Subscripts.h"
#include "Slice.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

/// The greatest index of a dimension.
static SizeAttr lastOf(SizeAttr size) {
  return SizeAttr::binary(SizeKind::Sub, size, SizeAttr::constant(size.getContext(), 1));
}

/// Whether `size` is at most `whole`, by its form: a quotient of it, less than it by another size, or one of its terms.
static bool isPart(SizeAttr size, SizeAttr whole) {
  if (size.getKind() == SizeKind::Constant && whole.getKind() == SizeKind::Constant)
    return size.getValue() <= whole.getValue();
  if (whole.getKind() == SizeKind::Add)
    return (size == whole.getLhs() && isNeverNegative(whole.getRhs())) ||
           (size == whole.getRhs() && isNeverNegative(whole.getLhs()));
  bool isLess = size.getKind() == SizeKind::Sub || size.getKind() == SizeKind::FloorDiv;
  return isLess && size.getLhs() == whole && isNeverNegative(size.getRhs());
}

Value attn::clamp(Value subscript, SizeAttr size, OpBuilder &builder, Location location) {
  Value last = SizeOp::create(builder, location, lastOf(size));
  Value least = arith::MinSIOp::create(builder, location, subscript, last);
  Value zero = arith::ConstantOp::create(builder, location, builder.getI64IntegerAttr(0));
  return arith::MaxSIOp::create(builder, location, least, zero);
}

Scatter::Scatter(ReadOp read, ArrayRef<BlockArgument> variables)
    : read(read), variables(variables.begin(), variables.end()) {
  ArrayRef<SizeAttr> shape = read.getTensor().getType().getShape();
  for (auto [subscript, size] : llvm::zip_equal(read.getSubscripts(), shape)) {
    auto index = dyn_cast<BlockArgument>(subscript);
    axes.push_back({index ? indexName(index).str() : "at", size});
  }
  llvm::SmallVector<BlockArgument> clamped;
  // Variables that stand alone come first: they are known from one subscript.
  for (unsigned dimension = 0; dimension < shape.size(); ++dimension)
    if (auto index = dyn_cast<BlockArgument>(read.getSubscripts()[dimension]); index && !known.contains(index)) {
      if (indexSize(index) == shape[dimension]) {
        known[index] = [dimension](OpBuilder &, Indices indices) { return indices[dimension]; };
        continue;
      }
      uncertain.push_back(dimension);
      if (isPart(indexSize(index), shape[dimension])) {
        known[index] = [=, last = lastOf(indexSize(index)), location = read.getLoc()](OpBuilder &builder,
                                                                                      Indices indices) -> Value {
          return arith::MinSIOp::create(builder, location, indices[dimension], SizeOp::create(builder, location, last));
        };
        clamped.push_back(index);
      }
    } else {
      solve(dimension);
    }
  // Where others are visited, these are, too: then each term has one place, which it can be added to where it arises.
  if (!llvm::all_of(this->variables, [&](BlockArgument variable) { return known.contains(variable); })) {
    for (const Pair &pair : partly) {
      clamped.append({pair.outer, pair.inner});
      uncertain.push_back(pair.dimension);
    }
    partly.clear();
    for (BlockArgument index : clamped)
      known.erase(index);
  }
  for (BlockArgument variable : this->variables)
    if (!known.contains(variable)) {
      unsigned position = axes.size() + summed.size();
      known[variable] = [position](OpBuilder &, Indices indices) { return indices[position]; };
      summed.push_back({indexName(variable).str(), indexSize(variable)});
    }
}

void Scatter::solve(unsigned dimension) {
  Value subscript = read.getSubscripts()[dimension];
  bool isSolved = !isa<BlockArgument>(subscript) && (solveDigits(subscript) || solvePair(subscript, dimension));
  if (!isSolved)
    uncertain.push_back(dimension);
}

/// i // C and i % C, of two dimensions whose sizes have the product that i ranges over
bool Scatter::solveDigits(Value subscript) {
  Operation *op = subscript.getDefiningOp();
  auto index = isa_and_nonnull<FloorDivOp, ModOp>(op) ? dyn_cast<BlockArgument>(op->getOperand(0)) : BlockArgument();
  std::optional<SizeAttr> width = index ? sizeOf(op->getOperand(1)) : std::nullopt;
  if (!width || known.contains(index))
    return index && llvm::is_contained(fromDigits, index);
  auto dimensionOf = [&](auto isDigit) {
    auto found = llvm::find_if(read.getSubscripts(), [&](Value other) {
      Operation *digit = other.getDefiningOp();
      return isDigit(digit) && digit->getOperand(0) == index && sizeOf(digit->getOperand(1)) == width;
    });
    return found - read.getSubscripts().begin();
  };
  size_t high = dimensionOf(llvm::IsaAndPresentPred<FloorDivOp>), low = dimensionOf(llvm::IsaAndPresentPred<ModOp>);
  ArrayRef<SizeAttr> shape = read.getTensor().getType().getShape();
  if (high == shape.size() || low == shape.size() || shape[low] != *width ||
      indexSize(index) != SizeAttr::binary(SizeKind::Mul, shape[high], *width))
    return false;
  known[index] = [=, width = *width, location = read.getLoc()](OpBuilder &builder, Indices indices) -> Value {
    Value first = arith::MulIOp::create(builder, location, indices[high], SizeOp::create(builder, location, width));
    return arith::AddIOp::create(builder, location, first, indices[low]);
  };
  fromDigits.push_back(index);
  return true;
}

/// i * C + d, where d ranges over C and the dimension is their product, or at least that: i ranges over its quotient by
/// C, or C is its quotient by what i ranges over
bool Scatter::solvePair(Value subscript, unsigned dimension) {
  auto sum = subscript.getDefiningOp<arith::AddIOp>();
  if (!sum)
    return false;
  for (auto [high, low] : {std::pair(sum.getLhs(), sum.getRhs()), std::pair(sum.getRhs(), sum.getLhs())}) {
    auto product = high.getDefiningOp<arith::MulIOp>();
    auto inner = dyn_cast<BlockArgument>(low);
    if (!product || !inner || known.contains(inner))
      continue;
    for (auto [factor, widthOf] :
         {std::pair(product.getLhs(), product.getRhs()), std::pair(product.getRhs(), product.getLhs())}) {
      auto outer = dyn_cast<BlockArgument>(factor);
      std::optional<SizeAttr> width = sizeOf(widthOf);
      if (!outer || outer == inner || known.contains(outer) || !width || *width != indexSize(inner))
        continue;
      SizeAttr size = read.getTensor().getType().getShape()[dimension], count = indexSize(outer);
      bool isProduct = size == SizeAttr::binary(SizeKind::Mul, count, *width) ||
                       size == SizeAttr::binary(SizeKind::Mul, *width, count);
      if (!isProduct && count != SizeAttr::binary(SizeKind::FloorDiv, size, *width) &&
          *width != SizeAttr::binary(SizeKind::FloorDiv, size, count))
        continue;
      if (!isProduct)
        partly.push_back({dimension, outer, inner});
      Location location = read.getLoc();
      known[outer] = [=, width = *width](OpBuilder &builder, Indices indices) -> Value {
        return FloorDivOp::create(builder, location, indices[dimension], SizeOp::create(builder, location, width));
      };
      known[inner] = [=, width = *width](OpBuilder &builder, Indices indices) -> Value {
        return ModOp::create(builder, location, indices[dimension], SizeOp::create(builder, location, width));
      };
      return true;
    }
  }
  return false;
}

SmallVector<Value> Scatter::sources(OpBuilder &builder, Indices indices) const {
  return llvm::map_to_vector(variables, [&](BlockArgument variable) { return known.at(variable)(builder, indices); });
}

IRMapping Scatter::mapping(OpBuilder &builder, Indices indices) const {
  IRMapping mapping;
  for (auto [variable, source] : llvm::zip_equal(variables, sources(builder, indices)))
    mapping.map(variable, source);
  return mapping;
}

Value Scatter::condition(OpBuilder &builder, Indices indices) {
  Location location = read.getLoc();
  IRMapping mapping = this->mapping(builder, indices);
  Value all;
  auto require = [&](arith::CmpIPredicate predicate, Value a, Value b) {
    Value holds = arith::CmpIOp::create(builder, location, predicate, a, b);
    all = all ? arith::AndIOp::create(builder, location, all, holds).getResult() : holds;
  };
  for (unsigned dimension : uncertain) {
    Value subscript = cloneSlice(read.getSubscripts()[dimension], mapping, builder);
    Value clamped = clamp(subscript, axes[dimension].size, builder, location);
    require(arith::CmpIPredicate::eq, clamped, indices[dimension]);
  }
  for (const Pair &pair : partly) {
    SizeAttr end = SizeAttr::binary(SizeKind::Mul, indexSize(pair.outer), indexSize(pair.inner));
    require(arith::CmpIPredicate::slt, indices[pair.dimension], SizeOp::create(builder, location, end));
  }
  return all;
}
