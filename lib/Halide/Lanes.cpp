//===- Lanes.cpp - Sums over lanes of vectors, and some lanes alone ---------===//

#include "Lanes.h"

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

static const char sumName[] = "attn_sum_of_lanes";
static const char readName[] = "attn_read_where";

Expr sumOfLanes(const std::vector<Expr> &values) {
  return Call::make(values[0].type(), sumName, values, Call::PureExtern);
}

Expr readWhere(Expr condition, Expr value) {
  return Call::make(value.type(), readName, {condition, value}, Call::PureExtern);
}

const Call *asReadWhere(const Expr &value) {
  const auto *call = value.as<Call>();
  return call && call->name == readName ? call : nullptr;
}

namespace {
/// Lets loads of vectors read where a condition holds alone.
class ReadWhere : public IRMutator {
public:
  explicit ReadWhere(Expr condition) : condition(std::move(condition)) {}
  bool found = false;

private:
  using IRMutator::visit;
  Expr visit(const Load *op) override {
    if (op->type.lanes() != condition.type().lanes())
      return op;
    found = true;
    return Load::make(op->type, op->name, op->index, op->image, op->param, condition, op->alignment);
  }

  Expr condition;
};

class LowerLanes : public IRMutator {
  using IRMutator::visit;

  /// The sum of each of `vectors`. They are added in twos, half of the lanes of one beside half of those of the other,
  /// until one has sums of all.
  static Expr sumsOfEach(std::vector<Expr> vectors) {
    int lanes = vectors[0].type().lanes(), sums = 1; // of as many vectors each of them has, in turns
    for (; vectors.size() > 1 && sums < lanes; sums *= 2) {
      std::vector<Expr> joined;
      for (size_t index = 0; index < vectors.size(); index += 2)
        joined.push_back(joinedSums(vectors[index], vectors[index + 1], sums));
      vectors = joined;
    }
    for (Expr &vector : vectors)
      for (int width = lanes; width > sums; width /= 2)
        vector = Shuffle::make_slice(vector, 0, 1, width / 2) + Shuffle::make_slice(vector, width / 2, 1, width / 2);
    return vectors.size() == 1 ? vectors[0] : Shuffle::make_concat(vectors);
  }

  /// `first` and `second` have partial sums of `sums` vectors in turns. Those of both in turns, of half as many partial
  /// sums: within 128 bits, processors move numbers of two vectors at once.
  static Expr joinedSums(const Expr &first, const Expr &second, int sums) {
    int lanes = first.type().lanes(), distance = sums == 1 ? 2 : 1;
    std::vector<int> low, high; // lanes of both, of which those of `second` count from `lanes` on
    for (int group = 0; group < lanes / sums; ++group) {
      if (group / distance % 2)
        continue;
      for (int vector : {0, lanes})
        for (int lane = 0; lane < sums; ++lane) {
          low.push_back(vector + group * sums + lane);
          high.push_back(vector + (group + distance) * sums + lane);
        }
    }
    return Shuffle::make({first, second}, low) + Shuffle::make({first, second}, high);
  }

  /// Vectors of as many elements as there are `values`, one for each sum, if all of these are loaded from one place on
  /// without a gap: values[i] from i on in steps of their number.
  static std::vector<Expr> asVectors(const std::vector<Expr> &values) {
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
    std::vector<Expr> vectors;
    for (int sum = 0; sum < first->type.lanes(); ++sum)
      vectors.push_back(Load::make(first->type.with_lanes(count), first->name,
                                   Ramp::make(simplify(base + sum * count), make_one(base.type()), count), first->image,
                                   first->param, const_true(count), ModulusRemainder()));
    return vectors;
  }

  Expr read(const Call *op) {
    Expr condition = op->args[0];
    ReadWhere read(condition);
    Expr value = read.mutate(mutate(op->args[1]));
    if (!read.found)
      throw std::logic_error("nothing is read in the lanes of a condition");
    return select(condition, value, make_zero(value.type()));
  }

  Expr visit(const Call *op) override {
    if (asReadWhere(op))
      return read(op);
    if (op->name != sumName)
      return IRMutator::visit(op);
    std::vector<Expr> values;
    for (const Expr &value : op->args)
      values.push_back(mutate(value));
    if (std::vector<Expr> vectors = asVectors(values); !vectors.empty())
      return common_subexpression_elimination(sumsOfEach(vectors));
    for (size_t width = values.size() / 2; width > 0; width /= 2)
      for (size_t index = 0; index < width; ++index)
        values[index] = values[index] + values[index + width];
    return values[0];
  }
};
} // namespace

void lowerLanes(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new LowerLanes); }

} // namespace attn::lowering
