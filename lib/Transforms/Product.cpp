//===- Product.cpp - The factors of a product, the terms of a sum ---------===//

#include "Product.h"
#include "Scores.h"
#include "Slice.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

/// A product of products that are each used twice has more factors than it is useful to know.
static constexpr size_t mostFactors = 64;

static void collectFactors(Value value, bool inverse, Product &product) {
  Operation *op = product.factors.size() < mostFactors ? value.getDefiningOp() : nullptr;
  if (isa_and_nonnull<arith::MulFOp>(op)) {
    collectFactors(op->getOperand(0), inverse, product);
    collectFactors(op->getOperand(1), inverse, product);
  } else if (isa_and_nonnull<arith::DivFOp>(op)) {
    collectFactors(op->getOperand(0), inverse, product);
    collectFactors(op->getOperand(1), !inverse, product);
  } else if (isa_and_nonnull<arith::NegFOp>(op)) {
    collectFactors(op->getOperand(0), inverse, product);
    product.negative = !product.negative;
  } else {
    product.factors.push_back({value, inverse, dependence(value)});
  }
}

Product Product::of(Value value) {
  Product product;
  collectFactors(value, false, product);
  return product;
}

bool Factor::changesWith(Block::BlockArgListType others) const {
  return llvm::any_of(others, [&](BlockArgument index) { return indices.contains(index); });
}

bool attn::isReadByAll(ReadOp read, const IndexSet &indices) {
  return read.getSubscripts().size() == indices.size() &&
         llvm::all_of(indices, [&](Value index) { return llvm::is_contained(read.getSubscripts(), index); });
}

static void collectTerms(Value value, bool negative, SmallVectorImpl<Term> &terms) {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<arith::AddFOp, arith::SubFOp>(op)) {
    collectTerms(op->getOperand(0), negative, terms);
    collectTerms(op->getOperand(1), negative != isa<arith::SubFOp>(op), terms);
  } else if (isa_and_nonnull<arith::NegFOp>(op)) {
    collectTerms(op->getOperand(0), !negative, terms);
  } else {
    terms.push_back({value, negative});
  }
}

SmallVector<Term> attn::termsOfSum(Value value, bool negative) {
  SmallVector<Term> terms;
  collectTerms(value, negative, terms);
  return terms;
}

Value attn::multiply(ArrayRef<Factor> factors, bool negative, Type type, IRMapping &mapping, OpBuilder &builder,
                     Location location) {
  Value product;
  for (bool inverse : {false, true})
    for (const Factor &factor : factors) {
      if (factor.inverse != inverse)
        continue;
      Value value = cloneSlice(factor.value, mapping, builder);
      if (!product && inverse)
        product = floatConstant(1, type, builder, location);
      if (!product)
        product = value;
      else if (inverse)
        product = arith::DivFOp::create(builder, location, product, value);
      else
        product = arith::MulFOp::create(builder, location, product, value);
    }
  if (!product)
    product = floatConstant(1, type, builder, location);
  return negative ? arith::NegFOp::create(builder, location, product) : product;
}
