//===- Lanes.cpp - Sums over the lanes of vectors ---------------------------===//

#include "Lanes.h"

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

static const char sumName[] = "attn_sum_of_lanes";

Expr sumOfLanes(const std::vector<Expr> &values) {
  return Call::make(values[0].type(), sumName, values, Call::PureExtern);
}

namespace {
class LowerSums : public IRMutator {
  using IRMutator::visit;

  /// All elements of `values`, if they are loaded from one place on without a gap: values[i] from i on in steps of
  /// their number.
  static Expr asOneLoad(const std::vector<Expr> &values) {
    int count = static_cast<int>(values.size());
    const auto *first = values[0].as<Load>();
    if (!first || !is_const_one(first->predicate))
      return {};
    const auto *ramp = first->index.as<Ramp>();
    if (ramp ? !is_const(ramp->stride, count) : !first->type.is_scalar())
      return {};
    for (int position = 1; position < count; ++position) {
      const auto *load = values[position].as<Load>();
      if (!load || load->name != first->name || load->type != first->type)
        return {};
      const auto *other = load->index.as<Ramp>();
      Expr distance = other && ramp ? other->base - ramp->base : load->index - first->index;
      if (bool(other) != bool(ramp) || (other && !is_const(other->stride, count)) ||
          !is_const(simplify(distance), position))
        return {};
    }
    Expr base = ramp ? ramp->base : first->index;
    int lanes = count * first->type.lanes();
    return Load::make(first->type.with_lanes(lanes), first->name, Ramp::make(base, make_one(base.type()), lanes),
                      first->image, first->param, const_true(lanes), ModulusRemainder());
  }

  Expr visit(const Call *op) override {
    if (op->name != sumName)
      return IRMutator::visit(op);
    std::vector<Expr> values;
    for (const Expr &value : op->args)
      values.push_back(mutate(value));
    if (Expr all = asOneLoad(values); all.defined())
      return VectorReduce::make(VectorReduce::Add, all, op->type.lanes());
    for (size_t width = values.size() / 2; width > 0; width /= 2)
      for (size_t index = 0; index < width; ++index)
        values[index] = values[index] + values[index + width];
    return values[0];
  }
};
} // namespace

void lowerSumsOfLanes(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new LowerSums); }

} // namespace attn::lowering
