//===- Unmask.cpp - Accumulators of which some lanes are used --------------===//

#include "Unmask.h"

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

namespace {
class Unmask : public IRMutator {
public:
  explicit Unmask(std::set<std::string> names) : names(std::move(names)) {}

private:
  using IRMutator::visit;

  /// Whether `index` is a vector of elements that the buffer `name` has, whatever the mask.
  bool isInside(const std::string &name, const Expr &index) const {
    const int *size = sizes.find(name);
    const auto *ramp = index.as<Ramp>();
    return size && ramp && is_const_zero(ramp->base) && is_const_one(ramp->stride) && ramp->lanes <= *size;
  }

  Stmt visit(const Allocate *op) override {
    if (!names.count(op->name))
      return IRMutator::visit(op);
    ScopedBinding<int> bind(sizes, op->name, op->constant_allocation_size());
    return IRMutator::visit(op);
  }

  Expr visit(const Load *op) override {
    if (is_const_one(op->predicate) || !isInside(op->name, op->index))
      return IRMutator::visit(op);
    return Load::make(op->type, op->name, op->index, op->image, op->param, const_true(op->type.lanes()), op->alignment);
  }

  Stmt visit(const Store *op) override {
    if (is_const_one(op->predicate) || !isInside(op->name, op->index))
      return IRMutator::visit(op);
    Expr value = mutate(op->value);
    int lanes = value.type().lanes();
    Expr before =
        Load::make(value.type(), op->name, op->index, Buffer<>(), op->param, const_true(lanes), op->alignment);
    return Store::make(op->name, select(mutate(op->predicate), value, before), op->index, op->param, const_true(lanes),
                       op->alignment);
  }

  std::set<std::string> names;
  Scope<int> sizes;
};
} // namespace

void unmask(Pipeline &pipeline, std::set<std::string> names) {
  pipeline.add_custom_lowering_pass(new Unmask(std::move(names)));
}

} // namespace attn::lowering
