//===- TrimChunks.cpp - Loops over the chunks that a mask lets through -----===//

#include "TrimChunks.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

namespace {

/// The condition of all in a loop that outlives a step: the stores that are not of a stage inside the loop.
class FindCondition : public IRVisitor {
  using IRVisitor::visit;

  // Statements alone: no expression stores anything.
  void visit(const ProducerConsumer *op) override {
    hasStage |= op->is_producer;
    if (!op->is_producer)
      op->body.accept(this);
  }

  void visit(const Allocate *op) override {
    ScopedBinding<> bind(inner, op->name);
    op->body.accept(this);
  }

  void visit(const For *op) override {
    ScopedBinding<> bind(inner, op->name);
    op->body.accept(this);
  }

  void visit(const LetStmt *op) override {
    lets.push_back(op);
    op->body.accept(this);
    lets.pop_back();
  }

  void visit(const IfThenElse *op) override {
    Expr condition = op->condition;
    for (const LetStmt *let : llvm::reverse(lets))
      if (expr_uses_var(condition, let->name))
        condition = substitute(let->name, let->value, condition);
    bool isOfLoop = !op->else_case.defined() && !expr_uses_vars(condition, inner);
    ScopedValue<Expr> bind(here, isOfLoop ? here && condition : here);
    op->then_case.accept(this);
    if (op->else_case.defined())
      op->else_case.accept(this);
  }

  void visit(const Store *) override {
    isOne &= !condition.defined() || equal(condition, here);
    condition = here;
  }

  Scope<> inner; ///< What is not known where the loop begins.
  llvm::SmallVector<const LetStmt *> lets;
  Expr here = const_true();

public:
  Expr condition;
  bool isOne = true; ///< All stores have the same.
  bool hasStage = false;
};

class TrimChunks : public IRMutator {
  using IRMutator::visit;

  Stmt visit(const For *op) override {
    Stmt mutated = IRMutator::visit(op);
    op = mutated.as<For>();
    if (op->for_type != ForType::Serial)
      return mutated;
    FindCondition find;
    op->body.accept(&find);
    if (!find.hasStage || !find.isOne || !find.condition.defined())
      return mutated;
    Interval steps = solve_for_outer_interval(find.condition, op->name);
    if (steps.is_everything())
      return mutated;
    Expr end = op->min + op->extent, first = op->min;
    if (steps.has_lower_bound())
      first = max(first, steps.min);
    if (steps.has_upper_bound())
      end = min(end, steps.max + 1);
    std::string name = op->name + ".first";
    Expr firstOne = Variable::make(Int(32), name);
    return LetStmt::make(name, simplify(first),
                         For::make(op->name, firstOne, simplify(max(end - firstOne, 0)), op->for_type,
                                   op->partition_policy, op->device_api, op->body));
  }
};

} // namespace

void trimChunks(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new TrimChunks); }

} // namespace attn::lowering
