//===- PassNumbers.cpp - What stages read of a pass of a loop --------------===//

#include "PassNumbers.h"
#include "Hints.h"

#include "llvm/ADT/STLExtras.h"

#include <set>
#include <stdexcept>

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

/// Of the Funcs that are computed in a loop Halide computes those first whose names come first. This comes before all
/// letters.
static constexpr char firstInOrder = '@';

PassNumbers::PassNumbers(const std::string &name, const std::vector<Var> &variables, const std::vector<Expr> &values)
    : func(firstInOrder + name) {
  std::vector<Expr> numbers;
  for (const Expr &value : values)
    numbers.push_back(ofUnknownRange(value));
  func(variables) = Tuple(numbers);
}

/// Of its memory, by the name that Halide gives it.
Expr PassNumbers::operator[](size_t position) const {
  std::string name = func.outputs() > 1 ? func.name() + "." + std::to_string(position) : func.name();
  return Load::make(Int(32), name, 0, {}, {}, const_true(), {});
}

Expr PassNumbers::before(const std::vector<Expr> &at, const Expr &value) const {
  if (!func.defined())
    return value;
  std::vector<Expr> reads;
  for (int position = 0; position < func.outputs(); ++position)
    reads.push_back(func.outputs() > 1 ? Expr(func(at)[position]) : Expr(func(at)));
  return withReads(value, reads);
}

void PassNumbers::computeAt(const LoopLevel &level) {
  if (!func.defined())
    return;
  func.compute_at(level);
  for (const Var &variable : func.args())
    func.bound_extent(variable, 1);
}

namespace {
class CheckPassNumbers : public IRMutator {
  using IRMutator::visit;

  Stmt visit(const Allocate *op) override {
    allocated.push_back(op->name);
    Stmt result = IRMutator::visit(op);
    allocated.pop_back();
    return result;
  }

  Stmt visit(const ProducerConsumer *op) override {
    Stmt result = IRMutator::visit(op);
    if (op->is_producer)
      produced.insert(op->name);
    return result;
  }

  Expr visit(const Load *op) override {
    if (op->name.front() == firstInOrder && !isKept(op->name))
      throw std::logic_error(op->name + " is read where it is not kept");
    return IRMutator::visit(op);
  }

  bool isKept(const std::string &name) const {
    return llvm::is_contained(allocated, name) && produced.count(name.substr(0, name.find('.')));
  }

  std::vector<std::string> allocated; ///< Here.
  std::set<std::string> produced;     ///< Before.
};
} // namespace

void checkPassNumbers(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new CheckPassNumbers); }

} // namespace attn::lowering
