//===- StateSums.cpp - Running states become sums over keys ---------------===//
//
//   state[n, d, e] = sum[i](k[i, d] * v[i, e] where i <= n)
//   out[n, e]      = sum[d](q[n, d] * state[n, d, e])
//
// is linear attention as a recurrence: a matrix for each token, which takes far more memory than what it is made of.
// It becomes the same sum in the form that others of keys have, of which attn-chunk-sums keeps a matrix for each chunk
// of tokens:
//
//   out[n, e] = sum[i](sum[d](q[n, d] * k[i, d]) * v[i, e] where i <= n)
//
//===----------------------------------------------------------------------===//

#include "Form.h"
#include "Product.h"
#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
#include "attn/Analysis/Scan.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNSTATESUMS
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
/// The sum over one index of a state, of its elements times other factors.
struct Contraction {
  ReduceOp sum;
  ReadOp read;                   ///< Of the state.
  SmallVector<Factor> others;    ///< What else its terms have.
  SmallVector<Factor> ofIndex;   ///< Of the state's terms: those that change with that index,
  SmallVector<Factor> ofColumns; ///< and those that do not.
  bool negative;

  static std::optional<Contraction> of(ReadOp read, const Scan &scan, TensorOp state);
  /// The sum over keys that takes its place.
  Value write(const Scan &scan, TensorOp state) const;
};
} // namespace

/// Whether each factor of `factors` is the same for all values of `index`.
static bool lack(ArrayRef<Factor> factors, BlockArgument index) {
  return llvm::none_of(factors, [&](const Factor &factor) { return factor.indices.contains(index); });
}

std::optional<Contraction> Contraction::of(ReadOp read, const Scan &scan, TensorOp state) {
  auto sum = dyn_cast<ReduceOp>(read->getParentOp());
  bool isPlain = sum && sum.getKind() == ReduceKind::Sum && sum.getSizes().size() == 1 && !sum.isConditional();
  if (!isPlain || !sum.getBody().getOps<ReduceOp>().empty() || !isa<TensorOp>(sum->getParentOp()))
    return {};
  // The state is read at index variables, each at one dimension.
  BlockArgument index = sum.getBody().getArgument(0), inState;
  llvm::SmallDenseSet<Value> seen;
  for (auto [subscript, own] : llvm::zip(read.getSubscripts(), state.getBody().getArguments())) {
    auto variable = dyn_cast<BlockArgument>(subscript);
    if (!variable || indexSize(variable) != indexSize(own) || !seen.insert(variable).second)
      return {};
    if (variable == index)
      inState = own;
  }
  if (!inState || inState == scan.end)
    return {};
  Product terms = Product::of(yielded(sum.getBody())), ofState = Product::of(yielded(ReduceOp(scan.reduce).getBody()));
  Contraction result{sum, read, {}, {}, {}, terms.negative != ofState.negative};
  bool isFactor = false;
  for (const Factor &factor : terms.factors)
    if (factor.value == read && !factor.inverse && !isFactor)
      isFactor = true;
    else if (anyInSlice(factor.value, [&](Operation *op) { return op == read; }))
      return {};
    else
      result.others.push_back(factor);
  for (const Factor &factor : ofState.factors)
    (factor.indices.contains(inState) ? result.ofIndex : result.ofColumns).push_back(factor);
  // A matrix for each token: it has columns that the vectors it is contracted with do not have.
  bool hasColumns = llvm::any_of(llvm::zip(read.getSubscripts(), state.getBody().getArguments()), [&](auto pair) {
    auto [subscript, own] = pair;
    return own != scan.end && !lack(result.ofColumns, own) && lack(result.ofIndex, own) &&
           lack(result.others, cast<BlockArgument>(subscript));
  });
  bool isProduct = isFactor && !result.others.empty() && !result.ofIndex.empty() && hasColumns;
  return isProduct ? std::optional(result) : std::nullopt;
}

Value Contraction::write(const Scan &scan, TensorOp state) const {
  ReduceOp keys = scan.reduce, own = sum;
  Location location = own.getLoc();
  OpBuilder builder(own);
  IRMapping places;
  for (auto [index, subscript] : llvm::zip(state.getBody().getArguments(), ReadOp(read).getSubscripts()))
    places.map(index, subscript);
  for (BlockArgument index : own->getBlock()->getArguments())
    places.map(index, index);
  BlockArgument key = keys.getBody().getArgument(0), index = own.getBody().getArgument(0);
  auto outer = ReduceOp::create(builder, location, ReduceKind::Sum, keys.getIndices(), {indexSize(key)}, own.getType(),
                                ValueRange(), Value(), /*conditional=*/true);
  IRMapping inCondition = places;
  inCondition.map(keys.getWhere().getArgument(0), outer.getWhere().getArgument(0));
  OpBuilder condition = OpBuilder::atBlockEnd(&outer.getWhere().front());
  YieldOp::create(condition, location, cloneSlice(yielded(keys.getWhere()), inCondition, condition));

  OpBuilder terms = OpBuilder::atBlockEnd(&outer.getBody().front());
  places.map(key, outer.getBody().getArgument(0));
  auto dot = ReduceOp::create(terms, location, ReduceKind::Sum, own.getIndices(), {indexSize(index)}, own.getType(),
                              ValueRange(), Value(), /*conditional=*/false);
  IRMapping inDot = places;
  inDot.map(index, dot.getBody().getArgument(0));
  for (auto [ofState, subscript] : llvm::zip(state.getBody().getArguments(), ReadOp(read).getSubscripts()))
    if (subscript == index)
      inDot.map(ofState, dot.getBody().getArgument(0));
  OpBuilder inside = OpBuilder::atBlockEnd(&dot.getBody().front());
  SmallVector<Factor> factors(others);
  factors.append(ofIndex);
  YieldOp::create(inside, location, multiply(factors, negative, own.getType(), inDot, inside, location));
  Value columns = multiply(ofColumns, false, own.getType(), places, terms, location);
  YieldOp::create(terms, location, arith::MulFOp::create(terms, location, dot.getResult(), columns).getResult());
  return outer;
}

/// Rewrites the sums that read `state`, if it is one that nobody else reads.
static void expand(TensorOp state) {
  std::optional<Scan> scan = Scan::of(state);
  bool isSum = scan && scan->reduce.getKind() == ReduceKind::Sum && isa<FloatType>(scan->reduce.getType()) &&
               state.getResult().getType().getElementType() == scan->reduce.getType();
  if (!isSum || state.getResult().use_empty())
    return;
  std::vector<Contraction> contractions;
  for (Operation *user : state.getResult().getUsers()) {
    auto read = dyn_cast<ReadOp>(user);
    std::optional<Contraction> contraction = read ? Contraction::of(read, *scan, state) : std::nullopt;
    if (!contraction)
      return;
    contractions.push_back(*contraction);
  }
  for (Contraction &contraction : contractions) {
    auto reader = contraction.sum->getParentOfType<TensorOp>();
    noteRewrite(reader, "state sums",
                "the sum over a running state in '" + reader.getName() +
                    "' is a sum over its keys: no matrix is stored for each of them");
    contraction.sum.replaceAllUsesWith(contraction.write(*scan, state));
    contraction.sum.erase();
  }
  state.erase();
}

namespace {
struct StateSums : attn::impl::AttnStateSumsBase<StateSums> {
  void runOnOperation() override {
    for (TensorOp tensor : llvm::to_vector(getOperation().getBody().front().getOps<TensorOp>()))
      expand(tensor);
  }
};
} // namespace
