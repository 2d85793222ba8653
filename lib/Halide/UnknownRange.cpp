//===- UnknownRange.cpp - Numbers whose range is promised ------------------===//

#include "UnknownRange.h"

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

static const char name[] = "attn_of_unknown_range";

Expr ofUnknownRange(Expr value) { return Call::make(value.type(), name, {value}, Call::PureExtern); }

namespace {
class LowerUnknownRanges : public IRMutator {
  using IRMutator::visit;

  Expr visit(const Call *op) override { return op->name == name ? mutate(op->args[0]) : IRMutator::visit(op); }
};
} // namespace

void lowerUnknownRanges(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new LowerUnknownRanges); }

} // namespace attn::lowering
