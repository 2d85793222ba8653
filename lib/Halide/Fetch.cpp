//===- Fetch.cpp - Fetching memory before it is needed ---------------------===//

#include "Fetch.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

static const char fetchName[] = "attn_fetching_ahead";

Expr fetchingAhead(Expr value, Expr later) {
  return Call::make(value.type(), fetchName, {value, later}, Call::PureExtern);
}

/// An index, computed in 64 bits from its variables on: in 32 bits, each place of a row would be widened for itself.
static Expr widened(const Expr &index) {
  if (const auto *sum = index.as<Add>())
    return widened(sum->a) + widened(sum->b);
  if (const auto *difference = index.as<Sub>())
    return widened(difference->a) - widened(difference->b);
  if (const auto *product = index.as<Mul>())
    return widened(product->a) * widened(product->b);
  return cast(Int(64), index);
}

Expr lineAt(const std::string &buffer, const Expr &index, Type type) {
  Expr address = reinterpret(UInt(64), Variable::make(Handle(), buffer)) +
                 cast(UInt(64), widened(index) * type.element_of().bytes());
  // To be read, into the second cache (2), data. Halide's own instruction has no such word: it asks for memory that
  // is used once, in the first cache, which has too few places for what is on its way.
  return Call::make(Int(32), "llvm.prefetch.p0", {reinterpret(Handle(), address), 0, 2, 1}, Call::Extern);
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

/// Names and what they stand for.
using Names = std::map<std::string, Expr>;

/// Writes what names stand for in their place.
class WriteInFull : public IRGraphMutator {
public:
  explicit WriteInFull(const Names &names) : names(names) {}

private:
  using IRGraphMutator::visit;
  Expr visit(const Variable *op) override {
    auto name = names.find(op->name);
    return name == names.end() ? Expr(op) : mutate(name->second);
  }

  const Names &names;
};

/// A buffer, and an index into it.
using Place = std::pair<std::string, Expr>;

/// Whether elements of this type at two places are less than a line of the cache apart.
bool inOneLine(const Expr &a, const Expr &b, Type type) {
  std::optional<int64_t> distance = as_const_int(simplify(a - b));
  return distance && std::abs(*distance) * type.element_of().bytes() < 64;
}

class LowerFetches : public IRMutator {
  using IRMutator::visit;

  void fetch(const Load *op) {
    Expr index = simplify(op->index);
    const auto *ramp = index.as<Ramp>();
    if (!ramp && !op->type.is_scalar())
      return;
    // What an address is computed from may not be there yet; what is computed from that is not loaded.
    auto isPlain = [](const Load *load) { return Loads(load->index).found.empty(); };
    if (!llvm::all_of(Loads(index).found, isPlain))
      return;
    Expr place = ramp ? ramp->base : index;
    if (llvm::any_of(fetched, [&](const Place &other) {
          return other.first == op->name && inOneLine(other.second, place, op->type);
        }))
      return;
    fetched.push_back({op->name, place});
    statements.push_back(Evaluate::make(lineAt(op->name, place, op->type)));
  }

  Expr visit(const Call *op) override {
    if (op->name != fetchName)
      return IRMutator::visit(op);
    WriteInFull inFull(names);
    Expr value = inFull.mutate(substitute_in_all_lets(op->args[0])),
         later = inFull.mutate(substitute_in_all_lets(op->args[1]));
    Loads now(value);
    for (const Load *load : Loads(later).found)
      if (load->param.defined() && !now.contains(load))
        fetch(load);
    return mutate(op->args[0]);
  }

  Expr visit(const Let *op) override {
    names[op->name] = op->value;
    return IRMutator::visit(op);
  }

  /// What a step of a loop has fetched is not fetched again: rows that share keys follow one another.
  Stmt visit(const For *op) override {
    ScopedValue<std::vector<Place>> ofLoop(fetched, {});
    ScopedValue<Names> inLoop(names, {});
    return IRMutator::visit(op);
  }

  Stmt visit(const LetStmt *op) override {
    names[op->name] = op->value;
    return IRMutator::visit(op);
  }

  Stmt visit(const Store *op) override {
    Stmt store = IRMutator::visit(op);
    statements.push_back(store);
    Stmt all = Block::make(statements);
    statements.clear();
    return all;
  }

  std::vector<Stmt> statements; ///< To come before the next store.
  // In this step of the innermost loop: what has been fetched, and the names there are.
  std::vector<Place> fetched;
  Names names;
};
} // namespace

void lowerFetches(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new LowerFetches); }

} // namespace attn::lowering
