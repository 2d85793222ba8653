//===- PlacedSum.cpp - Sums whose terms each have one place ---------------===//

#include "attn/Analysis/PlacedSum.h"
#include "attn/Analysis/Dependence.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

SmallVector<Value> attn::conjunctsOf(Value condition) {
  SmallVector<Value> conjuncts{condition};
  for (size_t position = 0; position < conjuncts.size();)
    if (auto both = conjuncts[position].getDefiningOp<arith::AndIOp>()) {
      conjuncts[position] = both.getLhs();
      conjuncts.insert(conjuncts.begin() + position + 1, both.getRhs());
    } else {
      ++position;
    }
  return conjuncts;
}

bool attn::isClamped(Value value, SizeAttr size) {
  auto atLeast = value.getDefiningOp<arith::MaxSIOp>();
  auto atMost = atLeast ? atLeast.getLhs().getDefiningOp<arith::MinSIOp>() : arith::MinSIOp();
  if (!atMost || !matchPattern(atLeast.getRhs(), m_Zero()))
    return false;
  SizeAttr last = SizeAttr::binary(SizeKind::Sub, size, SizeAttr::constant(size.getContext(), 1));
  return sizeOf(atMost.getRhs()) == last;
}

bool PlacedSum::isPlace(unsigned position) const {
  return llvm::any_of(places, [&](const auto &place) { return place.first == position; });
}

SmallVector<unsigned> PlacedSum::deciding() const {
  SmallVector<unsigned> positions;
  Block &where = ReduceOp(sum).getWhere().front();
  for (BlockArgument index : where.getArguments())
    if (llvm::any_of(places, [&](const auto &place) { return dependence(place.second).contains(index); }))
      positions.push_back(index.getArgNumber());
  return positions;
}

std::optional<PlacedSum> PlacedSum::of(DefinitionOpInterface op) {
  SmallVector<ReduceOp> sums;
  op->walk([&](ReduceOp reduce) { sums.push_back(reduce); });
  Region &body = op.getBody();
  if (!isa<TensorOp>(op) || sums.size() != 1 || sums.front()->getParentRegion() != &body ||
      !llvm::is_contained({ReduceKind::Sum, ReduceKind::Max}, sums.front().getKind()) ||
      !isa<FloatType>(sums.front().getType()) || !sums.front().isConditional())
    return std::nullopt;
  PlacedSum placed{sums.front(), {}, {}};
  IndexSet indices; // of the statement, that are places
  for (Value condition : conjunctsOf(yielded(placed.sum.getWhere()))) {
    auto compared = condition.getDefiningOp<arith::CmpIOp>();
    bool isPlace = false;
    if (compared && compared.getPredicate() == arith::CmpIPredicate::eq)
      for (auto [index, value] :
           {std::pair(compared.getLhs(), compared.getRhs()), std::pair(compared.getRhs(), compared.getLhs())}) {
        auto place = dyn_cast<BlockArgument>(index);
        isPlace =
            place && place.getParentRegion() == &body && isClamped(value, indexSize(place)) && indices.insert(place);
        if (isPlace) {
          placed.places.push_back({place.getArgNumber(), value});
          break;
        }
      }
    if (!isPlace)
      placed.conditions.push_back(condition);
  }
  // Neither terms nor conditions may depend on the place.
  SmallVector<Value> others(placed.conditions);
  for (const auto &place : placed.places)
    others.push_back(place.second);
  others.push_back(yielded(placed.sum.getBody()));
  IndexSet used = dependence(others);
  bool isFree = llvm::none_of(indices, [&](BlockArgument index) { return used.contains(index); });
  bool isDecided = llvm::all_of(placed.places, [&](const auto &place) {
    return llvm::any_of(dependence(place.second),
                        [&](BlockArgument index) { return index.getParentRegion() == &placed.sum.getWhere(); });
  });
  return !placed.places.empty() && isFree && isDecided ? std::optional(placed) : std::nullopt;
}
