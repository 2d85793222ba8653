//===- TableProducts.cpp - Products with rows that distances choose -------===//
//
//   position[b, h, m, n] = sum[d](k[b, h, n, d] * r[h, min(max(n - m + K, 0), 2 * K - 1), d])
//
// becomes
//
//   position_table[b, h, n, row] = sum[d](k[b, h, n, d] * r[h, row, d])
//   position[b, h, m, n]         = position_table[b, h, n, min(max(n - m + K, 0), 2 * K - 1)]
//
// where gradients are wanted. A product of matrices, and a number for each pair, whose gradient is one as well; rather
// than a product for each pair with a row of its own, three times over: the sum, its gradient by `k` and by `r`. What a
// row is added to before (`q * (k + r[...])`) gets a sum of its own. The same goes for what gradients multiply: those
// of the weights are products with rows where values are added to rows of a table.
//
// The table has at most a row for each distance, M + N of them. A kernel for a few queries would multiply all of it, so
// what has no gradient is left as it is; so is a table whose rows are counted by M or N, of which the products would be
// as many as there are pairs.
//
//===----------------------------------------------------------------------===//

#include "Product.h"
#include "Rewrites.h"
#include "Scores.h"
#include "Slice.h"
#include "Statement.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/Distance.h"
#include "attn/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNTABLEPRODUCTS
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
/// A sum of products, one factor of which is a row of a table.
struct TableProduct {
  ReduceOp sum;
  ReadOp table;
  unsigned dimension = 0; ///< That of its rows.

  Value row() { return table.getSubscripts()[dimension]; }
  SizeAttr rows() { return table.getTensor().getType().getShape()[dimension]; }
  IndexSet indicesBesideRow();
  bool hasRowForDistance();
  bool isOfMatrices();

  static std::optional<TableProduct> of(ReduceOp sum);
};

struct TableProducts : attn::impl::AttnTableProductsBase<TableProducts> {
  void runOnOperation() override;
};
} // namespace

static bool shareNames(SizeAttr a, SizeAttr b) {
  bool found = false;
  a.forEachName([&](StringAttr name) { b.forEachName([&](StringAttr other) { found |= name == other; }); });
  return found;
}

/// What terms depend on, but for the row.
IndexSet TableProduct::indicesBesideRow() {
  IndexSet indices;
  for (const Factor &factor : Product::of(yielded(sum.getBody())).factors)
    if (factor.value != table.getResult())
      indices.insert(factor.indices.begin(), factor.indices.end());
  for (auto [number, subscript] : llvm::enumerate(table.getSubscripts()))
    if (number != dimension)
      indices.insert_range(dependence(subscript));
  return indices;
}

/// Whether the distance of two indices says which row it is, and their sizes do not say how many rows there are.
bool TableProduct::hasRowForDistance() {
  SmallVector<BlockArgument> pair = inOrder(dependence(row()));
  auto counts = [&](BlockArgument index) { return shareNames(rows(), indexSize(index)); };
  return llvm::none_of(pair, counts) && Distance(pair[0], pair[1]).decides(row());
}

/// Whether what the row is multiplied with changes with one of the two indices, and the table with all of the sum.
bool TableProduct::isOfMatrices() {
  IndexSet others = indicesBesideRow();
  auto isInTable = [&](BlockArgument index) { return llvm::is_contained(table.getSubscripts(), index); };
  return llvm::count_if(dependence(row()), [&](BlockArgument index) { return others.contains(index); }) == 1 &&
         llvm::all_of(sum.getBody().getArguments(), isInTable);
}

/// Whether `subscript`, of a term of `sum`, depends on two indices around it.
static bool isOfPair(Value subscript, ReduceOp sum) {
  IndexSet used = dependence(subscript);
  return used.size() == 2 &&
         llvm::none_of(sum.getBody().getArguments(), [&](BlockArgument index) { return used.contains(index); });
}

std::optional<TableProduct> TableProduct::of(ReduceOp sum) {
  if (sum.getKind() != ReduceKind::Sum || !isa<FloatType>(sum.getType()) || sum.isConditional() ||
      hasInnerReduction(sum) || hasReductionAround(sum))
    return std::nullopt;
  TableProduct found{sum, {}};
  unsigned count = 0;
  for (const Factor &factor : Product::of(yielded(sum.getBody())).factors)
    if (auto read = factor.value.getDefiningOp<ReadOp>(); read && !factor.inverse)
      for (auto [dimension, subscript] : llvm::enumerate(read.getSubscripts()))
        if (isOfPair(subscript, sum)) {
          found.table = read;
          found.dimension = dimension;
          ++count;
        }
  bool is = count == 1 && found.table.getResult().hasOneUse() && found.hasRowForDistance() && found.isOfMatrices();
  return is ? std::optional(found) : std::nullopt;
}

/// Reads the sum from a tensor of the products with all rows, before the graph op that it is in.
static void multiplyTable(TableProduct product) {
  ReduceOp sum = product.sum;
  auto tensor = sum->getParentOfType<TensorOp>();
  SmallVector<BlockArgument> summed(sum.getBody().getArguments());
  SmallVector<BlockArgument> others = inOrder(product.indicesBesideRow());
  llvm::erase_if(others, [&](BlockArgument index) { return llvm::is_contained(summed, index); });

  Statement statement{(tensor.getName() + "_table").str(), llvm::map_to_vector(others, axisOf),
                      llvm::map_to_vector(summed, axisOf), sum.getType(), nullptr};
  statement.axes.push_back({"row", product.rows()});
  statement.term = [&](OpBuilder &builder, Indices indices) {
    IRMapping mapping;
    SmallVector<BlockArgument> all(others);
    llvm::append_range(all, summed);
    SmallVector<Value> places(indices), subscripts;
    Value row = indices[others.size()];
    places.erase(places.begin() + others.size());
    for (auto [index, place] : llvm::zip_equal(all, places))
      mapping.map(index, place);
    for (auto [dimension, subscript] : llvm::enumerate(product.table.getSubscripts()))
      subscripts.push_back(dimension == product.dimension ? row : cloneSlice(subscript, mapping, builder));
    Value element = ReadOp::create(builder, sum.getLoc(), product.table.getTensor(), subscripts);
    mapping.map(product.table.getResult(), element);
    return cloneSlice(yielded(sum.getBody()), mapping, builder);
  };
  OpBuilder builder(tensor);
  TensorOp products = statement.write(tensor->getParentOfType<KernelOp>(), builder, sum.getLoc());

  builder.setInsertionPoint(sum);
  IRMapping same;
  for (BlockArgument index : dependence(product.row()))
    same.map(index, index);
  SmallVector<Value> subscripts(others.begin(), others.end());
  subscripts.push_back(cloneSlice(product.row(), same, builder));
  noteRewrite(tensor, "table products",
              "a row of '" + tensorName(product.table.getTensor()) + "' that a distance chooses is multiplied in '" +
                  tensor.getName() + "'; all are, once, as '" + products.getName() + "'");
  Value element = ReadOp::create(builder, sum.getLoc(), products.getResult(), subscripts);
  sum.getResult().replaceAllUsesWith(element);
  sum.erase();
}

/// Puts the formulas of integers that are statements of their own into the subscripts that read them.
static void inlineRows(KernelOp kernel) {
  SmallVector<ReadOp> reads;
  kernel.walk([&](ReadOp read) {
    auto source = read.getTensor().getDefiningOp<TensorOp>();
    bool isRow = source && read.getType().isInteger(64) && source.getBody().getOps<ReduceOp>().empty() &&
                 isInRange(read) && llvm::all_of(read.getResult().getUsers(), llvm::IsaPred<ReadOp>);
    if (isRow)
      reads.push_back(read);
  });
  for (ReadOp read : reads)
    substituteFormula(read, read.getTensor().getDefiningOp<TensorOp>());
}

/// Whether `value` is an element of a row that a distance may choose.
static bool readsRow(Value value, ReduceOp sum) {
  auto read = value.getDefiningOp<ReadOp>();
  return read && llvm::any_of(read.getSubscripts(), [&](Value subscript) { return isOfPair(subscript, sum); });
}

/// Makes two sums of `sum[d](q[m, d] * (k[n, d] + r[n - m, d]))`, if one is such a product.
static void distribute(ReduceOp sum) {
  if (sum.getKind() != ReduceKind::Sum || sum.isConditional() || !isa<FloatType>(sum.getType()))
    return;
  Product product = Product::of(yielded(sum.getBody()));
  for (const Factor &factor : product.factors) {
    SmallVector<Term> terms = termsOfSum(factor.value), rows;
    llvm::copy_if(terms, std::back_inserter(rows), [&](const Term &term) { return readsRow(term.value, sum); });
    llvm::erase_if(terms, [&](const Term &term) { return readsRow(term.value, sum); });
    if (factor.inverse || terms.empty() || rows.size() != 1)
      continue;
    SmallVector<Factor> others = product.factors;
    llvm::erase_if(others, [&](const Factor &other) { return other.value == factor.value; });
    if (others.size() + 1 != product.factors.size()) // its square
      return;
    OpBuilder builder(sum);
    auto sumOf = [&](ArrayRef<Term> chosen) {
      return sumLike(sum, Value(), builder, [&](OpBuilder &builder, IRMapping &mapping) {
        for (BlockArgument index : dependence(sum.getResult()))
          mapping.map(index, index);
        Value all;
        for (const Term &term : chosen) {
          Value value = cloneSlice(term.value, mapping, builder);
          if (term.negative)
            value = arith::NegFOp::create(builder, sum.getLoc(), value);
          all = all ? arith::AddFOp::create(builder, sum.getLoc(), all, value).getResult() : value;
        }
        Value rest = multiply(others, product.negative, sum.getType(), mapping, builder, sum.getLoc());
        return arith::MulFOp::create(builder, sum.getLoc(), rest, all).getResult();
      });
    };
    auto ofRows = cast<ReduceOp>(sumOf(rows).getDefiningOp());
    if (!TableProduct::of(ofRows)) {
      ofRows.erase();
      return;
    }
    Value all = arith::AddFOp::create(builder, sum.getLoc(), sumOf(terms), ofRows.getResult());
    sum.getResult().replaceAllUsesWith(all);
    sum.erase();
    return;
  }
}

void TableProducts::runOnOperation() {
  inlineRows(getOperation());
  SmallVector<ReduceOp> sums;
  getOperation().walk([&](ReduceOp sum) { sums.push_back(sum); });
  for (ReduceOp sum : sums)
    distribute(sum);
  SmallVector<TableProduct> found;
  for (TensorOp tensor : getOperation().getBody().front().getOps<TensorOp>())
    tensor.getBody().walk([&](ReduceOp sum) {
      if (std::optional<TableProduct> product = TableProduct::of(sum))
        found.push_back(*product);
    });
  for (TableProduct &product : found)
    multiplyTable(product);
}
