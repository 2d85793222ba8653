//===- KeyBoundText.cpp - Bounds on keys as the source would write them ---===//

#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/KeyRange.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

static std::string describe(Value value);

/// A value after a minus sign or before a product: sums in parentheses.
static std::string describeFactor(Value value) {
  std::string text = describe(value);
  return text.find(' ') == std::string::npos || text.back() == ']' ? text : "(" + text + ")";
}

/// A value as the source would write it, as far as it is made of names, sizes, reads and arithmetic; else "…".
static std::string describe(Value value) {
  APInt constant;
  if (matchPattern(value, m_ConstantInt(&constant)))
    return std::to_string(constant.getSExtValue());
  if (auto index = dyn_cast<BlockArgument>(value))
    return indexName(index).str();
  Operation *op = value.getDefiningOp();
  if (auto size = dyn_cast<SizeOp>(op))
    return size.getSize().str();
  if (isa<arith::AddIOp>(op))
    return describe(op->getOperand(0)) + " + " + describe(op->getOperand(1));
  if (isa<arith::SubIOp>(op))
    return describe(op->getOperand(0)) + " - " + describeFactor(op->getOperand(1));
  if (isa<FloorDivOp, arith::MulIOp>(op))
    return describeFactor(op->getOperand(0)) + (isa<FloorDivOp>(op) ? " // " : " * ") +
           describeFactor(op->getOperand(1));
  if (isa<arith::MinSIOp, arith::MaxSIOp>(op))
    return (isa<arith::MinSIOp>(op) ? "min(" : "max(") + describe(op->getOperand(0)) + ", " +
           describe(op->getOperand(1)) + ")";
  auto read = dyn_cast<ReadOp>(op);
  if (!read)
    return "…";
  std::string text = tensorName(read.getTensor());
  if (read.getSubscripts().empty())
    return text;
  text += '[';
  for (auto [position, subscript] : llvm::enumerate(read.getSubscripts()))
    text += (position ? ", " : "") + describe(subscript);
  return text + ']';
}

static std::string describeLinear(const KeyBound &bound) {
  std::string text;
  for (auto [value, coefficient] : bound.terms) {
    if (!text.empty() || coefficient < 0)
      text += text.empty() ? "-" : coefficient < 0 ? " - " : " + ";
    if (std::abs(coefficient) != 1)
      text += std::to_string(std::abs(coefficient)) + " * ";
    text += coefficient == 1 ? describe(value) : describeFactor(value);
  }
  if (text.empty())
    return std::to_string(bound.constant);
  if (bound.constant != 0)
    text += (bound.constant < 0 ? " - " : " + ") + std::to_string(std::abs(bound.constant));
  return text;
}

std::string attn::describe(const KeyBound &bound) {
  switch (bound.kind) {
  case KeyBound::Kind::Linear:
    return describeLinear(bound);
  case KeyBound::Kind::Min:
    return "min(" + attn::describe(*bound.lhs) + ", " + attn::describe(*bound.rhs) + ")";
  case KeyBound::Kind::Max:
    return "max(" + attn::describe(*bound.lhs) + ", " + attn::describe(*bound.rhs) + ")";
  case KeyBound::Kind::Guard:
    return "(all or none by a condition)";
  case KeyBound::Kind::Times:
    return "max(" + attn::describe(*bound.lhs) + ", 0) * " + describeFactor(bound.factor);
  case KeyBound::Kind::Quotient: {
    std::string text = attn::describe(*bound.lhs);
    return (text.find(' ') == std::string::npos ? text : "(" + text + ")") + " // " + std::to_string(bound.constant);
  }
  }
  llvm_unreachable("unknown kind of bound");
}
