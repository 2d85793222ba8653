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
/// The elements of Funcs that an expression reads.
class FindReads : public IRGraphVisitor {
public:
  std::vector<Expr> reads;

private:
  using IRGraphVisitor::visit;

  void visit(const Call *op) override {
    if (op->call_type == Call::Halide)
      reads.emplace_back(op);
    IRGraphVisitor::visit(op);
  }
};
} // namespace

Expr unconditional(Expr value) {
  FindReads found;
  substitute_in_all_lets(value).accept(&found); // the reads stand outside of what names there are
  return found.reads.empty() ? value : withReads(value, found.reads);
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
