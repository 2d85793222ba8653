//===- Hints.cpp - What Halide is told of a value, and not told ------------===//

#include "Hints.h"

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

static const char unknownRangeName[] = "attn_of_unknown_range";
static const char withReadsName[] = "attn_with_reads";

Expr ofUnknownRange(Expr value) { return Call::make(value.type(), unknownRangeName, {value}, Call::PureExtern); }

Expr withReads(Expr value, std::vector<Expr> reads) {
  reads.insert(reads.begin(), value);
  return Call::make(value.type(), withReadsName, reads, Call::PureExtern);
}

namespace {
/// The elements of Funcs that an expression reads, and whether it has conditions that Halide finds no bounds of.
class FindReads : public IRGraphVisitor {
public:
  std::vector<Expr> reads;
  bool unbounded = false;

private:
  using IRGraphVisitor::visit;

  void visit(const Call *op) override {
    if (op->call_type == Call::Halide)
      reads.emplace_back(op);
    unbounded |= op->is_intrinsic(Call::unsafe_promise_clamped);
    IRGraphVisitor::visit(op);
  }
  void visit(const LT *op) override { visitComparison(op); }
  void visit(const LE *op) override { visitComparison(op); }
  void visit(const GT *op) override { visitComparison(op); }
  void visit(const GE *op) override { visitComparison(op); }
  void visit(const EQ *op) override { visitComparison(op); }
  void visit(const NE *op) override { visitComparison(op); }

  template <typename Comparison> void visitComparison(const Comparison *op) {
    unbounded |= op->a.type().is_float();
    IRGraphVisitor::visit(op);
  }
};
} // namespace

Expr unconditional(Expr value) {
  FindReads found;
  substitute_in_all_lets(value).accept(&found); // the reads stand outside of what names there are
  return found.unbounded && !found.reads.empty() ? withReads(value, found.reads) : value;
}

namespace {
class LowerHints : public IRMutator {
  using IRMutator::visit;

  Expr visit(const Call *op) override {
    bool isHint = op->name == unknownRangeName || op->name == withReadsName;
    return isHint ? mutate(op->args[0]) : IRMutator::visit(op);
  }
};
} // namespace

void lowerHints(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new LowerHints); }

} // namespace attn::lowering
