//===- Pairs.cpp - Products of bf16 numbers, two at a time ------------------===//

#include "Pairs.h"
#include "Lanes.h"

#include <map>

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

static const char joinName[] = "attn_pair_of_bits";
static const char roundName[] = "attn_round_to_pair";
static const char productName[] = "attn_product_of_pairs";

/// The bits of a number that was read from a bf16 tensor, in all lanes or in some; undefined for others.
static Expr bitsInMemory(const Expr &value) {
  if (const Call *some = asReadWhere(value)) {
    Expr bits = bitsInMemory(some->args[1]);
    return bits.defined() ? readWhere(some->args[0], bits) : Expr();
  }
  const auto *widened = value.as<Cast>();
  return widened && widened->value.type().is_bfloat() ? reinterpret<uint16_t>(widened->value) : Expr();
}

Expr pairOf(Expr first, Expr second) {
  Expr low = bitsInMemory(first), high = bitsInMemory(second);
  if (low.defined() && high.defined())
    return Call::make(UInt(32), joinName, {low, high}, Call::PureExtern);
  return Call::make(UInt(32), roundName, {first, second}, Call::PureExtern);
}

Expr productOfPairs(Expr a, Expr b) { return Call::make(Float(32), productName, {a, b}, Call::PureExtern); }

namespace {
class LowerPairs : public IRMutator {
  using IRMutator::visit;

  static Expr asNumbers(const Expr &pairs) { return Reinterpret::make(BFloat(16, 2 * pairs.type().lanes()), pairs); }

  /// The numbers in memory that `bits` reinterprets, if that is what it does.
  static const Load *asLoad(const Expr &bits) {
    const auto *numbers = bits.as<Reinterpret>();
    const Load *load = numbers ? numbers->value.as<Load>() : nullptr;
    return load && is_const_one(load->predicate) ? load : nullptr;
  }

  /// The part of a vector whose bits `bits` are, if it is one.
  const Shuffle *asSlice(const Expr &bits) const {
    const auto *numbers = bits.as<Reinterpret>();
    Expr value = numbers ? numbers->value : Expr();
    for (const Variable *name; value.defined() && (name = value.as<Variable>());) {
      auto found = definitions.find(name->name);
      value = found == definitions.end() ? Expr() : found->second;
    }
    const auto *shuffle = value.as<Shuffle>();
    return shuffle && shuffle->is_slice() && shuffle->vectors.size() == 1 ? shuffle : nullptr;
  }

  /// The vector that has `first` and `second` in turns, if there is one: neighbours that Halide has loaded together.
  Expr inTurns(const Expr &first, const Expr &second) const {
    const Shuffle *even = asSlice(first), *odd = asSlice(second);
    if (!even || !odd || even->slice_begin() != 0 || odd->slice_begin() != 1 || even->slice_stride() != 2 ||
        odd->slice_stride() != 2 || !equal(even->vectors[0], odd->vectors[0]) ||
        even->vectors[0].type().lanes() != 2 * first.type().lanes())
      return {};
    return even->vectors[0];
  }

  /// Neighbours are loaded together. (LLVM would see that, but forget what Halide says of the buffer: that its loads
  /// have nothing to do with the accumulators, which may stay in registers.)
  Expr join(const Expr &first, const Expr &second) const {
    if (Expr both = inTurns(first, second); both.defined())
      return Reinterpret::make(UInt(32, first.type().lanes()), both);
    const Load *low = asLoad(first), *high = asLoad(second);
    if (low && high && low->name == high->name && is_const_one(simplify(high->index - low->index))) {
      int lanes = low->type.lanes();
      Expr indices = lanes == 1 ? Ramp::make(low->index, make_one(low->index.type()), 2)
                                : Shuffle::make_interleave({low->index, high->index});
      Expr numbers = Load::make(low->type.with_lanes(2 * lanes), low->name, indices, low->image, low->param,
                                const_true(2 * lanes), ModulusRemainder());
      return Reinterpret::make(UInt(32, lanes), numbers);
    }
    if (int lanes = first.type().lanes(); lanes > 1)
      return Reinterpret::make(UInt(32, lanes), Shuffle::make_interleave({first, second}));
    return cast(UInt(32), first) | (cast(UInt(32), second) << 16);
  }

  static Expr round(const Expr &first, const Expr &second) {
    int lanes = first.type().lanes();
    Expr both = Shuffle::make_concat({first, second});
    Expr rounded = Call::make(UInt(16, 2 * lanes), "vcvtne2ps2bf16", {both}, Call::PureExtern);
    std::vector<int> order;
    for (int lane = 0; lane < lanes; ++lane)
      order.insert(order.end(), {lane, lanes + lane});
    return Reinterpret::make(UInt(32, lanes), Shuffle::make({rounded}, order));
  }

  static const Call *asProduct(const Expr &value) {
    const auto *call = value.as<Call>();
    return call && call->name == productName ? call : nullptr;
  }

  Expr addProduct(const Expr &sum, const Call *product) {
    Expr a = asNumbers(mutate(product->args[0])), b = asNumbers(mutate(product->args[1]));
    return Call::make(product->type, "dot_product", {sum, a, b}, Call::PureExtern);
  }

  Expr visit(const Let *op) override {
    definitions[op->name] = op->value;
    return IRMutator::visit(op);
  }

  Stmt visit(const LetStmt *op) override {
    definitions[op->name] = op->value;
    return IRMutator::visit(op);
  }

  Expr visit(const Call *op) override {
    if (op->name == joinName)
      return join(mutate(op->args[0]), mutate(op->args[1]));
    if (op->name == roundName)
      return round(mutate(op->args[0]), mutate(op->args[1]));
    if (op->name == productName)
      return addProduct(make_zero(op->type), op);
    if (op->is_intrinsic(Call::strict_add))
      for (int position : {0, 1})
        if (const Call *product = asProduct(op->args[position]))
          return addProduct(mutate(op->args[1 - position]), product);
    return IRMutator::visit(op);
  }

  std::map<std::string, Expr> definitions; ///< Of the names so far; none is used twice.
};
} // namespace

void lowerPairs(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new LowerPairs); }

} // namespace attn::lowering
