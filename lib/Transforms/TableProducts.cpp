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
  SmallVector<Factor> factors; ///< Of its terms.
  ReadOp table;
  unsigned dimension = 0; ///< That of its rows.

  Value row() { return table.getSubscripts()[dimension]; }
  SizeAttr rows() { return table.getTensor().getType().getShape()[dimension]; }
  IndexSet indicesBesideRow();
  bool isOfMatrices();

  static std::optional<TableProduct> of(ReduceOp sum, ArrayRef<Factor> factors);
};

struct TableProducts : attn::impl::AttnTableProductsBase<TableProducts> {
  void runOnOperation() override;
};
} // namespace

/// What terms depend on, but for the row.
IndexSet TableProduct::indicesBesideRow() {
  IndexSet indices;
  for (const Factor &factor : factors)
    if (factor.value != table.getResult())
      indices.insert(factor.indices.begin(), factor.indices.end());
  for (auto [number, subscript] : llvm::enumerate(table.getSubscripts()))
    if (number != dimension)
      indices.insert_range(dependence(subscript));
  return indices;
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

std::optional<TableProduct> TableProduct::of(ReduceOp sum, ArrayRef<Factor> factors) {
  if (sum.getKind() != ReduceKind::Sum || !isa<FloatType>(sum.getType()) || sum.isConditional() ||
      hasInnerReduction(sum) || hasReductionAround(sum))
    return std::nullopt;
  TableProduct found{sum, SmallVector<Factor>(factors), {}};
  unsigned count = 0;
  for (const Factor &factor : factors)
    if (auto read = factor.value.getDefiningOp<ReadOp>(); read && !factor.inverse)
      for (auto [dimension, subscript] : llvm::enumerate(read.getSubscripts()))
        if (isOfPair(subscript, sum)) {
          found.table = read;
          found.dimension = dimension;
          ++count;
        }
  bool is = count == 1 && found.table.getResult().hasOneUse() && choosesFewRows(found.row(), found.rows()) &&
            found.isOfMatrices();
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
    for (auto [index, place] : llvm::zip(others, indices))
      mapping.map(index, place);
    Value row = indices[others.size()];
    for (auto [index, place] : llvm::zip_equal(summed, indices.drop_front(others.size() + 1)))
      mapping.map(index, place);
    SmallVector<Value> subscripts;
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

/// Makes two sums of `sum[d](q[m, d] * (k[n, d] + r[n - m, d]))`, if one is such a product.
static void distributeRow(ReduceOp sum) {
  Product product = Product::of(yielded(sum.getBody()));
  for (auto [position, factor] : llvm::enumerate(product.factors)) {
    Operation *both = factor.value.getDefiningOp();
    if (factor.inverse || !isa_and_nonnull<arith::AddFOp, arith::SubFOp>(both) || !both->hasOneUse())
      continue;
    for (Value part : both->getOperands()) {
      SmallVector<Factor> factors = product.factors;
      factors[position] = {part, false, dependence(part)};
      if (TableProduct::of(sum, factors))
        return distribute(sum, both);
    }
  }
}

void TableProducts::runOnOperation() {
  inlineRows(getOperation());
  SmallVector<ReduceOp> sums;
  getOperation().walk([&](ReduceOp sum) { sums.push_back(sum); });
  for (ReduceOp sum : sums)
    distributeRow(sum);
  SmallVector<TableProduct> found;
  for (TensorOp tensor : getOperation().getBody().front().getOps<TensorOp>())
    tensor.getBody().walk([&](ReduceOp sum) {
      if (auto product = TableProduct::of(sum, Product::of(yielded(sum.getBody())).factors))
        found.push_back(*product);
    });
  for (TableProduct &product : found)
    multiplyTable(product);
}
