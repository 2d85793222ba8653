//===- Fetch.cpp - Fetching memory before it is needed ---------------------===//

#include "Fetch.h"

#include "llvm/ADT/STLExtras.h"

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

static const char fetchName[] = "attn_fetching_ahead";

Expr fetchingAhead(Expr value, Expr later) {
  return Call::make(value.type(), fetchName, {value, later}, Call::PureExtern);
}

namespace {
/// The loads of an expression, but not those that addresses are computed from.
class Loads : public IRVisitor {
public:
  explicit Loads(const Expr &value) { value.accept(this); }
  bool contains(const Load *op) const {
    return llvm::any_of(found, [&](const Load *other) { return equal(Expr(op), Expr(other)); });
  }
  std::vector<const Load *> found;

private:
  using IRVisitor::visit;
  void visit(const Load *op) override { found.push_back(op); }
};

class LowerFetches : public IRMutator {
  using IRMutator::visit;

  void fetch(const Load *op) {
    const auto *ramp = op->index.as<Ramp>();
    if (!ramp && !op->type.is_scalar())
      return;
    Expr first = ramp ? ramp->base : op->index;
    for (const Let *let : llvm::reverse(lets))
      first = Let::make(let->name, let->value, first);
    Expr line = Call::make(op->type.element_of(), Call::prefetch, {Variable::make(Handle(), op->name), first, 1, 1},
                           Call::Intrinsic);
    Expr inFull = substitute_in_all_lets(line);
    for (const LetStmt *let : llvm::reverse(names))
      inFull = substitute(let->name, let->value, inFull);
    inFull = simplify(inFull);
    if (llvm::any_of(fetched, [&](const Expr &other) { return equal(other, inFull); }))
      return;
    fetched.push_back(inFull);
    statements.push_back(Evaluate::make(line));
  }

  Expr visit(const Call *op) override {
    if (op->name != fetchName)
      return IRMutator::visit(op);
    Expr value = substitute_in_all_lets(op->args[0]), later = substitute_in_all_lets(op->args[1]);
    Loads now(value);
    for (const Load *load : Loads(later).found)
      if (!now.contains(load))
        fetch(load);
    return mutate(op->args[0]);
  }

  Expr visit(const Let *op) override {
    lets.push_back(op);
    Expr result = IRMutator::visit(op);
    lets.pop_back();
    return result;
  }

  /// What a step of a loop has fetched is not fetched again: rows that share keys follow one another.
  Stmt visit(const For *op) override {
    ScopedValue<std::vector<Expr>> ofLoop(fetched, {});
    ScopedValue<std::vector<const LetStmt *>> inLoop(names, {});
    return IRMutator::visit(op);
  }

  Stmt visit(const LetStmt *op) override {
    names.push_back(op);
    Stmt result = IRMutator::visit(op);
    names.pop_back();
    return result;
  }

  Stmt visit(const Store *op) override {
    Stmt store = IRMutator::visit(op);
    statements.push_back(store);
    Stmt all = Block::make(statements);
    statements.clear();
    return all;
  }

  std::vector<const Let *> lets;
  std::vector<Stmt> statements; ///< To come before the next store.
  // In this step of the innermost loop: what has been fetched, and the names there are.
  std::vector<Expr> fetched;
  std::vector<const LetStmt *> names;
};
} // namespace

void lowerFetches(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new LowerFetches); }

} // namespace attn::lowering
