//===- ChunkStatements.cpp - The statements of a sum of chunks ------------===//

#include "ChunkStatements.h"
#include "Conjunction.h"
#include "Scores.h"
#include "Slice.h"
#include "Statement.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

namespace {
/// Axes of a tensor that has some of a statement's, others in the place of the row, which begin with the chunk.
struct Layout {
  SmallVector<Axis> axes;
  SmallVector<std::pair<BlockArgument, unsigned>> positions; ///< Of indices of the statement.
  unsigned chunk = 0;                                        ///< The position of the chunk.

  /// Indices of the statement at a place.
  IRMapping at(Indices place) const {
    IRMapping mapping;
    for (auto [index, position] : positions)
      mapping.map(index, place[position]);
    return mapping;
  }
  /// A place where those of the statement are as in `mapping`.
  SmallVector<Value> place(const IRMapping &mapping, ArrayRef<Value> atRow) const {
    SmallVector<Value> result(axes.size());
    llvm::copy(atRow, result.begin() + chunk);
    for (auto [index, position] : positions)
      result[position] = mapping.lookup(index);
    return result;
  }
};

/// Writes the statements of one sum.
class ChunkSum {
public:
  ChunkSum(ReduceOp sum, TensorOp tensor, const CausalSum &causal)
      : sum(sum), tensor(tensor), causal(causal), location(sum.getLoc()), type(sum.getType()), builder(tensor),
        keys(indexSize(causal.row)), chunk(SizeAttr::constant(tensor.getContext(), chunkSize)),
        chunks(SizeAttr::binary(SizeKind::FloorDiv, keys, chunk)) {}

  void write();

private:
  struct State {
    TensorOp total;
    Layout layout;
    IndexSet indices; ///< Of the statement, that it has.
  };

  TensorOp write(StringRef suffix, Statement statement) {
    statement.name = (tensor.getName() + suffix).str();
    return statement.write(tensor->getParentOfType<KernelOp>(), builder, location);
  }
  Layout layout(const IndexSet &indices, ArrayRef<Axis> atRow) const;
  /// What keys of the row's own chunk give to it.
  Value near(OpBuilder &atSum);
  State state(const SeparableTerm &term);
  /// The decays of `term` as a table along one more index. `ends` gives the row and the key for a value of that.
  TensorOp decays(const SeparableTerm &term, StringRef suffix, Axis along,
                  llvm::function_ref<std::pair<Value, Value>(Value, OpBuilder &)> ends);
  /// `value` times an element of such a table.
  Value times(Value value, TensorOp table, const SeparableTerm &term, const IRMapping &mapping, Value along,
              OpBuilder &at);
  /// The indices of the statement that the decays of `term` change with.
  SmallVector<BlockArgument> indicesOfDecays(const SeparableTerm &term) const;
  Value integer(int64_t value, OpBuilder &at) const {
    return arith::ConstantOp::create(at, location, at.getI64IntegerAttr(value));
  }
  /// What keys of other chunks give to the row of the statement.
  Value far(const SeparableTerm &term, OpBuilder &atSum);

  /// Number `within` of chunk `number`, or of the one after it.
  Value position(Value number, Value within, bool ofNext, OpBuilder &at) const;
  /// later // C * C <= earlier
  Value isOfOneChunk(Value earlier, Value later, OpBuilder &at) const;
  /// Whether `condition`, of the sum, is its order.
  bool comparesKeyAndRow(Value condition) const {
    IndexSet indices = dependence(condition);
    return indices.contains(ReduceOp(sum).getWhere().getArgument(0)) &&
           indices.contains(TensorOp(tensor).getBody().getArgument(BlockArgument(causal.row).getArgNumber()));
  }
  Value compare(arith::CmpIPredicate predicate, Value a, Value b, OpBuilder &at) const {
    return arith::CmpIOp::create(at, location, predicate, a, b);
  }

  ReduceOp sum;
  TensorOp tensor;
  const CausalSum &causal;
  Location location;
  Type type;
  OpBuilder builder;
  SizeAttr keys, chunk, chunks; ///< How many there are; whole ones of the chunks.
};
} // namespace

Value ChunkSum::position(Value number, Value within, bool ofNext, OpBuilder &at) const {
  Value first = arith::MulIOp::create(at, location, number, integer(chunkSize, at));
  if (ofNext)
    first = arith::AddIOp::create(at, location, first, integer(chunkSize, at));
  return arith::AddIOp::create(at, location, first, within);
}

Value ChunkSum::isOfOneChunk(Value earlier, Value later, OpBuilder &at) const {
  Value number = FloorDivOp::create(at, location, later, integer(chunkSize, at));
  Value first = arith::MulIOp::create(at, location, number, integer(chunkSize, at));
  return compare(arith::CmpIPredicate::sle, first, earlier, at);
}

Layout ChunkSum::layout(const IndexSet &indices, ArrayRef<Axis> atRow) const {
  Layout result;
  for (BlockArgument index : causal.indices()) {
    if (index == causal.row) {
      result.chunk = result.axes.size();
      result.axes.append(atRow.begin(), atRow.end());
    } else if (indices.contains(index)) {
      result.positions.push_back({index, result.axes.size()});
      result.axes.push_back(axisOf(index));
    }
  }
  return result;
}

Value ChunkSum::near(OpBuilder &atSum) {
  SmallVector<BlockArgument> indices = inOrder(dependence(sum.getResult()));
  Statement statement;
  statement.axes = llvm::map_to_vector(indices, axisOf);
  statement.summed = {axisOf(sum.getBody().getArgument(0))};
  statement.type = type;
  statement.term = [&](OpBuilder &at, Indices place) {
    IRMapping mapping;
    mapping.map(SmallVector<Value>(indices.begin(), indices.end()), place.drop_back());
    mapping.map(sum.getBody().getArgument(0), place.back());
    return cloneSlice(yielded(sum.getBody()), mapping, at);
  };
  statement.condition = [&](OpBuilder &at, Indices place) {
    IRMapping mapping;
    for (auto [index, value] : llvm::zip(indices, place))
      mapping.map(causal.indices()[index.getArgNumber()], value);
    for (BlockArgument key : {causal.key, causal.keyOfCondition})
      if (key)
        mapping.map(key, place.back());
    Value row = mapping.lookup(causal.row), key = place.back();
    const SeparableTerm &first = causal.terms.front();
    SmallVector<Value> conditions = {cloneSlice(first.order, mapping, at)};
    conditions.push_back(causal.isReversed ? isOfOneChunk(row, key, at) : isOfOneChunk(key, row, at));
    if (sum.isConditional()) { // what else the sum asks for
      mapping.map(SmallVector<Value>(indices.begin(), indices.end()), place.drop_back());
      mapping.map(sum.getWhere().getArgument(0), key);
      for (Value condition : conjunctsOf(yielded(sum.getWhere())))
        if (!comparesKeyAndRow(condition))
          conditions.push_back(cloneSlice(condition, mapping, at));
    }
    return conjunction(conditions, at);
  };
  TensorOp result = write("_near", statement);
  return ReadOp::create(atSum, location, result.getResult(), SmallVector<Value>(indices.begin(), indices.end()));
}

SmallVector<BlockArgument> ChunkSum::indicesOfDecays(const SeparableTerm &term) const {
  IndexSet indices = dependence(ValueRange(term.decays));
  indices.remove(causal.row);
  indices.remove(causal.key);
  return inOrder(indices);
}

TensorOp ChunkSum::decays(const SeparableTerm &term, StringRef suffix, Axis along,
                          llvm::function_ref<std::pair<Value, Value>(Value, OpBuilder &)> ends) {
  SmallVector<BlockArgument> indices = indicesOfDecays(term);
  Statement statement;
  statement.axes = llvm::map_to_vector(indices, axisOf);
  statement.axes.push_back(along);
  statement.type = type;
  statement.term = [&](OpBuilder &at, Indices place) {
    auto [row, key] = ends(place.back(), at);
    IRMapping mapping;
    mapping.map(SmallVector<Value>(indices.begin(), indices.end()), place.drop_back());
    mapping.map(causal.row, row);
    mapping.map(causal.key, key);
    Value product;
    for (Value decay : term.decays) {
      Value value = cloneSlice(decay, mapping, at);
      product = product ? arith::MulFOp::create(at, location, product, value).getResult() : value;
    }
    return product;
  };
  return write(suffix, statement);
}

Value ChunkSum::times(Value value, TensorOp table, const SeparableTerm &term, const IRMapping &mapping, Value along,
                      OpBuilder &at) {
  SmallVector<Value> element;
  for (BlockArgument index : indicesOfDecays(term))
    element.push_back(mapping.lookup(index));
  element.push_back(along);
  return arith::MulFOp::create(at, location, value,
                               ReadOp::create(at, location, table.getResult(), element).getResult());
}

ChunkSum::State ChunkSum::state(const SeparableTerm &term) {
  State state;
  SmallVector<Factor> factors(term.keyFactors);
  factors.append(term.keyFactorsOfDot);
  for (const Factor &factor : factors)
    state.indices.insert_range(factor.indices);
  state.indices.insert_range(dependence(ValueRange(term.keyConditions)));
  state.indices.insert_range(indicesOfDecays(term));
  SmallVector<Axis> atRow = {{"chunk", chunks}};
  if (term.dot)
    atRow.push_back(axisOf(term.dotIndex()));
  state.layout = layout(state.indices, atRow);
  unsigned chunkAt = state.layout.chunk;

  // Decays from a key to the first row after its chunk, or before it, and from one chunk to another.
  TensorOp ofKeys, ofChunks;
  if (!term.decays.empty()) {
    ofKeys = decays(term, "_key_decay", {"within", chunk}, [&](Value within, OpBuilder &at) {
      return std::pair(integer(causal.isReversed ? 0 : chunkSize, at), within);
    });
    ofChunks = decays(term, "_chunk_decay", {"distance", chunks}, [&](Value distance, OpBuilder &at) {
      Value keys = arith::MulIOp::create(at, location, distance, integer(chunkSize, at)), none = integer(0, at);
      return causal.isReversed ? std::pair(none, keys) : std::pair(keys, none);
    });
  }

  Statement ofChunk;
  ofChunk.axes = state.layout.axes;
  ofChunk.summed = {{"within", chunk}};
  ofChunk.type = type;
  ofChunk.term = [&](OpBuilder &at, Indices place) {
    IRMapping mapping = state.layout.at(place);
    Value key = position(place[chunkAt], place.back(), causal.isReversed, at);
    for (BlockArgument index : {causal.key, causal.keyOfCondition})
      if (index)
        mapping.map(index, key);
    if (term.dot)
      mapping.map(term.dotIndex(), place[chunkAt + 1]);
    Value product = multiply(factors, false, type, mapping, at, location);
    if (ofKeys)
      product = times(product, ofKeys, term, mapping, place.back(), at);
    SmallVector<Value> conditions;
    if (causal.isReversed) // the last chunk may have fewer
      conditions.push_back(compare(arith::CmpIPredicate::slt, key, SizeOp::create(at, location, keys), at));
    for (Value condition : term.keyConditions)
      conditions.push_back(cloneSlice(condition, mapping, at));
    if (conditions.empty())
      return product;
    Value zero = floatConstant(0, type, at, location);
    return arith::SelectOp::create(at, location, conjunction(conditions, at), product, zero).getResult();
  };
  TensorOp part = write("_chunk", ofChunk);

  // A running total; with decays it is a product of matrices.
  Statement total;
  total.axes = state.layout.axes;
  total.summed = {{causal.isReversed ? "later" : "earlier", chunks}};
  total.type = type;
  auto isAdded = [&](OpBuilder &at, Indices place) {
    auto predicate = causal.isReversed ? arith::CmpIPredicate::sge : arith::CmpIPredicate::sle;
    return compare(predicate, place.back(), place[chunkAt], at);
  };
  total.term = [&](OpBuilder &at, Indices place) -> Value {
    SmallVector<Value> element(place.drop_back());
    element[chunkAt] = place.back();
    Value ofOne = ReadOp::create(at, location, part.getResult(), element);
    if (!ofChunks)
      return ofOne;
    Value first = place[chunkAt], second = place.back();
    if (causal.isReversed)
      std::swap(first, second);
    Value distance = arith::SubIOp::create(at, location, first, second);
    Value decayed = times(ofOne, ofChunks, term, state.layout.at(place), distance, at);
    Value zero = floatConstant(0, type, at, location);
    return arith::SelectOp::create(at, location, isAdded(at, place), decayed, zero);
  };
  if (!ofChunks)
    total.condition = isAdded;
  state.total = write("_state", total);
  return state;
}

Value ChunkSum::far(const SeparableTerm &term, OpBuilder &atSum) {
  State state = this->state(term);
  TensorOp source = state.total;
  Layout layout = state.layout;
  if (term.dot) {
    IndexSet indices = state.indices;
    for (const Factor &factor : term.rowFactorsOfDot)
      indices.insert_range(factor.indices);
    layout = this->layout(indices, {{"chunk", chunks}, {"within", chunk}});
    Statement ofRows;
    ofRows.axes = layout.axes;
    ofRows.summed = {axisOf(term.dotIndex())};
    ofRows.type = type;
    ofRows.term = [&](OpBuilder &at, Indices place) -> Value {
      IRMapping mapping = layout.at(place);
      Value number = place[layout.chunk];
      mapping.map(causal.row, position(number, place[layout.chunk + 1], !causal.isReversed, at));
      mapping.map(term.dotIndex(), place.back());
      SmallVector<Value> element = state.layout.place(mapping, {number, place.back()});
      Value ofState = ReadOp::create(at, location, state.total.getResult(), element);
      if (term.rowFactorsOfDot.empty())
        return ofState;
      Value ofRow = multiply(term.rowFactorsOfDot, false, type, mapping, at, location);
      return arith::MulFOp::create(at, location, ofRow, ofState);
    };
    source = write("_far", ofRows);
  }

  IRMapping mapping;
  mapping.map(causal.indices(), tensor.getBody().getArguments());
  Value row = mapping.lookup(causal.row), own = FloorDivOp::create(atSum, location, row, integer(chunkSize, atSum));
  SmallVector<Value> conditions;
  Value chunkOfState = own;
  if (causal.isReversed) {
    conditions.push_back(compare(arith::CmpIPredicate::slt, own, SizeOp::create(atSum, location, chunks), atSum));
  } else {
    conditions.push_back(compare(arith::CmpIPredicate::sge, row, integer(chunkSize, atSum), atSum));
    chunkOfState = arith::SubIOp::create(atSum, location, own, integer(1, atSum));
  }
  for (Value condition : term.rowConditions)
    conditions.push_back(cloneSlice(condition, mapping, atSum));
  SmallVector<Value> atRow = {chunkOfState};
  Value within = ModOp::create(atSum, location, row, integer(chunkSize, atSum));
  if (term.dot)
    atRow.push_back(within);
  Value value = ReadOp::create(atSum, location, source.getResult(), layout.place(mapping, atRow));
  if (!term.rowFactors.empty())
    value =
        arith::MulFOp::create(atSum, location, value, multiply(term.rowFactors, false, type, mapping, atSum, location));
  if (!term.decays.empty()) { // from there to the row
    TensorOp ofRow = decays(term, "_row_decay", {"within", chunk}, [&](Value within, OpBuilder &at) {
      return std::pair(within, integer(causal.isReversed ? chunkSize : 0, at));
    });
    value = times(value, ofRow, term, mapping, within, atSum);
  }
  if (term.negative)
    value = arith::NegFOp::create(atSum, location, value);
  Value zero = floatConstant(0, type, atSum, location);
  return arith::SelectOp::create(atSum, location, conjunction(conditions, atSum), value, zero);
}

void ChunkSum::write() {
  OpBuilder atSum(sum);
  Value total = near(atSum);
  for (const SeparableTerm &term : causal.terms)
    total = arith::AddFOp::create(atSum, location, total, far(term, atSum));
  sum.replaceAllUsesWith(total);
  sum.erase();
}

void attn::writeChunks(ReduceOp sum, TensorOp tensor, const CausalSum &causal) {
  ChunkSum(sum, tensor, causal).write();
}
