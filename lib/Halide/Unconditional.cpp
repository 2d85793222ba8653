//===- Unconditional.cpp - Stages that no condition skips ------------------===//

#include "Unconditional.h"

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

static const char name[] = "attn_unconditional";

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

class LowerUnconditional : public IRMutator {
  using IRMutator::visit;

  Expr visit(const Call *op) override { return op->name == name ? mutate(op->args[0]) : IRMutator::visit(op); }
};
} // namespace

Expr unconditional(Expr value) {
  FindReads found;
  substitute_in_all_lets(value).accept(&found); // the reads stand outside of what names there are
  if (found.reads.empty())
    return value;
  found.reads.insert(found.reads.begin(), value);
  return Call::make(value.type(), name, found.reads, Call::PureExtern);
}

void lowerUnconditional(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new LowerUnconditional); }

} // namespace attn::lowering
