//===- Nest.cpp - The formula of a stored tensor, as Funcs -----------------===//

#include "Nest.h"
#include "Lanes.h"
#include "Mathematics.h"
#include "Parts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::RVar;
using Halide::Var;

namespace attn::lowering {

Nest::Nest(StepLowering &kernel, llvm::StringRef base, std::vector<Var> vars)
    : func(kernel.uniqueName(base)), vars(std::move(vars)), kernel(kernel), name(base) {}

int Nest::addStage(Stage stage) {
  stages.push_back(std::move(stage));
  return stages.size() - 1;
}

static bool contains(const std::vector<Var> &vars, const Var &var) {
  return llvm::any_of(vars, [&](const Var &other) { return other.same_as(var); });
}

std::vector<Var> Nest::ordered(const std::vector<Var> &found, int consumer) {
  std::vector<Var> result;
  auto take = [&](const std::vector<Var> &order) {
    for (const Var &var : order)
      if (contains(found, var) && !contains(result, var))
        result.push_back(var);
  };
  if (consumer >= 0)
    take(stages[consumer].vars);
  take(vars);
  take(found);
  return result;
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

Expr Nest::reductionBody(ReduceOp op, const Environment &inner, llvm::ArrayRef<IndexBinding> at, int consumer) {
  Environment environment;
  environment.indices = inner.indices;
  llvm::SmallVector<IndexBinding> indices(at);
  for (auto [binding, index] : llvm::zip_equal(indices, op.getBody().getArguments()))
    binding.expr += kernel.values(index).first;
  bindReduction(op, environment, indices);
  StageLowering lowering(*this, environment, consumer);
  Expr term = reductionTerm(op, lowering, !hasFlag(op));
  for (const IndexBinding &binding : at)
    if (binding.loop)
      return atEachStep(op.getKind(), term, *binding.loop);
  return term;
}

Expr Nest::termsInFull(ReduceOp op, const Environment &outer, int consumer) {
  constexpr int64_t most = 4;
  if (isExponential(op.getKind()) || hasFlag(op) || hasInnerReduction(op))
    return {};
  llvm::SmallVector<int64_t> counts;
  int64_t terms = 1;
  for (mlir::BlockArgument index : op.getBody().getArguments()) {
    std::optional<int64_t> count = Halide::Internal::as_const_int(kernel.values(index).count);
    if (!count || *count < 1 || *count > most / terms)
      return {};
    counts.push_back(*count);
    terms *= *count;
  }
  Expr value;
  for (int64_t number = 0; number < terms; ++number) {
    llvm::SmallVector<IndexBinding> at(counts.size());
    int64_t rest = number;
    for (size_t position = counts.size(); position-- > 0; rest /= counts[position])
      at[position].expr = static_cast<int>(rest % counts[position]);
    Expr term = reductionBody(op, outer, at, consumer);
    value = value.defined() ? combine(op.getKind(), value, term) : term;
  }
  return value;
}

Expr Nest::addReduction(ReduceOp op, Environment &outer, int consumer) {
  if (Expr value = termsInFull(op, outer, consumer); value.defined())
    return value;
  // The Func's variables: those of the loops it stands in; a reduction loop around it becomes a variable of its own.
  Environment inner;
  std::vector<Var> found;
  std::vector<std::pair<Var, Expr>> renamed;
  Stage stage;
  stage.consumer = consumer;
  mlir::Value lane;
  for (mlir::Value index : dependence(op.getResult())) {
    const IndexBinding &binding = outer.indices.find(index)->second;
    if (binding.loop) {
      Var var(kernel.uniqueName("r$"));
      inner.indices[index] = {var, {var}, binding.padded, {}};
      renamed.push_back({var, binding.expr});
      found.push_back(var);
      stage.loop = binding.loop;
    } else {
      inner.indices[index] = binding;
      found.insert(found.end(), binding.vars.begin(), binding.vars.end());
    }
  }
  std::vector<Var> stageVars = ordered(found, consumer);
  for (auto &[index, binding] : inner.indices)
    if (!stageVars.empty() && binding.vars.size() == 1 && binding.vars[0].same_as(stageVars[0]))
      lane = index;

  auto actual = [&](const Var &var) -> Expr {
    for (auto &[from, to] : renamed)
      if (from.same_as(var))
        return to;
    return var;
  };
  if (isExponential(op.getKind())) {
    llvm::SmallVector<SizeAttr> sizes(op.getSizes().getAsRange<SizeAttr>());
    RowSoftmax softmax = addSoftmax(name + "_softmax", op.getBody(), op.isConditional() ? &op.getWhere() : nullptr,
                                    op.getSink(), sizes, inner);
    for (Expr &row : softmax.rows)
      row = actual(Var(row.as<Halide::Internal::Variable>()->name));
    if (op.getKind() == ReduceKind::LogSumExp)
      return softmax.logSumExp();
    std::vector<Expr> keys;
    StageLowering lowering(*this, outer, consumer);
    for (auto [at, size] : llvm::zip_equal(op.getAt(), sizes))
      keys.push_back(Halide::clamp(Halide::cast<int32_t>(lowering.expression(at)), 0, lastIndex(kernel, size)));
    return softmax.weight(keys);
  }

  stage.kind = isContiguous(op, lane) ? Stage::Kind::Partial : Stage::Kind::Lanes;
  stage.vars = stageVars;
  std::string base = name + "_" + stringifyReduceKind(op.getKind()).str();
  stage.func = Func(kernel.uniqueName(base));
  Func func = stage.func;
  if (stage.kind == Stage::Kind::Partial)
    addPartial(op, inner, stageVars, std::move(stage));
  else
    addLanes(op, inner, stageVars, std::move(stage));
  std::vector<Expr> call;
  for (const Var &var : stageVars)
    call.push_back(actual(var));
  return func(call);
}

void Nest::addLanes(ReduceOp op, Environment &inner, std::vector<Var> stageVars, Stage stage) {
  Func func = stage.func;
  if (op.getKind() == ReduceKind::Sum && mlir::isa<mlir::FloatType>(op.getType())) {
    llvm::SmallVector<Expr> counts;
    for (mlir::BlockArgument index : op.getBody().getArguments())
      counts.push_back(kernel.values(index).count);
    addSum(
        func, counts, std::move(stage), Expr(), [&](RDom &domain) { runWhereFlagged(op, kernel, domain); },
        [&](llvm::ArrayRef<IndexBinding> at, int self) { return reductionBody(op, inner, at, self); });
    return;
  }
  int self = addStage(std::move(stage));
  Halide::Region ranges;
  for (mlir::BlockArgument index : op.getBody().getArguments())
    ranges.push_back({0, kernel.values(index).count});
  std::reverse(ranges.begin(), ranges.end()); // the last index runs fastest
  RDom domain(ranges);
  runWhereFlagged(op, kernel, domain);
  llvm::SmallVector<IndexBinding> at;
  for (int dimension = domain.dimensions() - 1; dimension >= 0; --dimension)
    at.push_back({domain[dimension], {}, false, domain[dimension]});
  Expr value = reductionBody(op, inner, at, self);
  std::vector<Expr> arguments(stageVars.begin(), stageVars.end());
  func(stageVars) = identity(op.getKind(), value.type());
  func(arguments) = combine(op.getKind(), func(arguments), value);
}

static bool isSumOfFloats(ReduceOp op) {
  return op.getKind() == ReduceKind::Sum && computeType(op.getType()) == Halide::Float(32);
}

/// Whether the consumer of `stage`, whose variables are known, asks for a vector of its elements at a time.
bool Nest::isForVectors(const Stage &stage) {
  bool isOfNest = stage.consumer < 0;
  const std::vector<Var> &wanted = isOfNest ? vars : stages[stage.consumer].vars;
  bool hasLanes = isOfNest ? lanes : stages[stage.consumer].kind == Stage::Kind::Row;
  return hasLanes && !wanted.empty() && !stage.vars.empty() && stage.vars[0].same_as(wanted[0]) && !stage.loop;
}

void Nest::addPartial(ReduceOp op, Environment &inner, std::vector<Var> stageVars, Stage stage) {
  int width = kernel.plan.lanes;
  Func func = stage.func;
  Func partial(kernel.uniqueName(func.name() + "_partial"));
  stage.partial = partial;
  stage.inVectors = isSumOfFloats(op) && isForVectors(stage);
  bool inVectors = stage.inVectors;
  int self = addStage(std::move(stage));
  Var lane("lane$");
  llvm::SmallVector<Expr> sizes;
  for (mlir::BlockArgument index : op.getBody().getArguments())
    sizes.push_back(kernel.values(index).count);
  Expr whole = sizes.back() / width;

  // `last` turns the innermost reduction variable into the last index.
  auto bindings = [&](RDom domain, auto last) {
    llvm::SmallVector<IndexBinding> at;
    for (int dimension = domain.dimensions() - 1; dimension > 0; --dimension)
      at.push_back({domain[dimension], {}, false, domain[dimension]});
    at.push_back({last(domain[0]), {}, false, {}});
    return at;
  };
  auto ranges = [&](Expr innermost) {
    Halide::Region region = {{0, innermost}};
    for (Expr size : llvm::reverse(llvm::ArrayRef(sizes).drop_back()))
      region.push_back({0, size});
    return region;
  };
  std::vector<Var> partialVars = {lane};
  partialVars.insert(partialVars.end(), stageVars.begin(), stageVars.end());
  std::vector<Expr> partialArguments(partialVars.begin(), partialVars.end());
  // Of a long sum of floats, whole blocks of vectors are added by themselves; what is left starts their sum.
  bool isLong = op.getKind() == ReduceKind::Sum && mlir::isa<mlir::FloatType>(op.getType());
  Expr inBlocks = isLong ? whole / blockSize * blockSize : Expr(0);
  // The rest of the last index is one vector, of which some lanes have no term.
  Expr left = sizes.back() % width;
  RDom vectors(ranges(whole - inBlocks)), tail(ranges((left + width - 1) / width));
  runWhereFlagged(op, kernel, vectors);
  runWhereFlagged(op, kernel, tail);
  tail.where(lane < left);
  auto inVector = [&](Expr vector) { return vector * width + lane; };
  Expr value = reductionBody(op, inner, bindings(vectors, [&](RVar r) { return inVector(inBlocks + r); }), self);
  Expr rest = reductionBody(op, inner, bindings(tail, [&](RVar r) { return inVector(whole + r); }), self);
  Func first = isLong ? Func(kernel.uniqueName(func.name() + "_vectors")) : partial;
  first(partialVars) = identity(op.getKind(), value.type());
  first(partialArguments) = combine(op.getKind(), first(partialArguments), value);
  first(partialArguments) = combine(op.getKind(), first(partialArguments), rest);
  if (isLong) {
    Stage firstStage;
    firstStage.kind = Stage::Kind::Lanes;
    firstStage.func = first;
    firstStage.vars = partialVars;
    firstStage.consumer = self;
    firstStage.lanesOfPartial = true;
    addStage(firstStage);
    Stage blocksStage = firstStage;
    sizes.back() = inBlocks;
    addSum(
        partial, sizes, blocksStage, first(partialArguments),
        [&](RDom &domain) { runWhereFlagged(op, kernel, domain); },
        [&](llvm::ArrayRef<IndexBinding> at, int block) {
          llvm::SmallVector<IndexBinding> indices(at);
          indices.back().expr = inVector(indices.back().expr);
          return reductionBody(op, inner, indices, block);
        });
  }

  std::vector<Expr> lanesValues;
  for (int index = 0; index < width; ++index) {
    partialArguments[0] = index;
    lanesValues.push_back(partial(partialArguments));
  }
  func(stageVars) = inVectors ? sumOfLanes(lanesValues) : combineTree(op.getKind(), lanesValues);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// The position of an index whose values should follow one another, if there is one: they share what is read in two
/// dimensions for each value of a later index, and that is no less than what values of that one share.
///
///   sum[n](grad_score[h, m, n] * (k[h, n, d] + relation[m, n, d]))      for m, then h: `relation[m]` stays in a cache
static std::optional<unsigned> sharingIndex(DefinitionOpInterface op) {
  mlir::Block::BlockArgListType rows = op.getBody().getArguments().drop_back();
  auto dimensions = [&](mlir::BlockArgument with, mlir::BlockArgument without) {
    unsigned most = 0;
    op.getBody().walk([&](ReadOp read) {
      IndexSet all = dependence(read.getSubscripts());
      if (!all.contains(with) || all.contains(without))
        return;
      auto isInRow = [&](mlir::Value subscript) {
        return llvm::any_of(dependence(subscript),
                            [&](mlir::BlockArgument index) { return !llvm::is_contained(rows, index); });
      };
      most = std::max<unsigned>(most, llvm::count_if(read.getSubscripts(), isInRow));
    });
    return most;
  };
  for (auto [position, index] : llvm::enumerate(rows))
    for (mlir::BlockArgument later : rows.drop_front(position + 1))
      if (unsigned shared = dimensions(later, index); shared >= 2 && shared >= dimensions(index, later))
        return position;
  return std::nullopt;
}

bool Nest::defineParts(DefinitionOpInterface op) {
  std::vector<PartFormula> parts = partFormulas(kernel, op, [&](Expr last) {
    Environment environment;
    for (auto [index, var] : llvm::zip_equal(op.getBody().getArguments(), llvm::reverse(vars)))
      environment.bind(index, var);
    environment.indices[op.getBody().getArguments().back()] = {last, {}, false, {}};
    return environment;
  });
  if (parts.empty())
    return false;
  Stage stage;
  stage.kind = Stage::Kind::Parts;
  stage.func = Func(kernel.uniqueName(name + "_parts"));
  stage.vars = vars;
  defineByParts(stage.func, parts, llvm::ArrayRef(vars).drop_front(), parts.front().value.type());
  func(vars) =
      convert(stage.func(std::vector<Expr>(vars.begin(), vars.end())), kernel.typeInMemory(op.getDefinedTensor()));
  addStage(std::move(stage));
  return true;
}

void Nest::definePointwise(DefinitionOpInterface op) {
  if (!vars.empty()) {
    constexpr int termsOfTask = 4096;
    Expr count = termsOfTask / Halide::max(kernel.values(op.getBody().getArguments().back()).count, 1);
    op.getBody().walk([&](ReduceOp reduce) {
      for (const Expr &size : reversedSizes(kernel, reduce))
        count /= Halide::max(size, 1);
    });
    rowsOfTask = kernel.derivedSize("task_rows", Halide::min(count, 64), 1);
  }
  if (defineParts(op))
    return;
  Environment environment;
  size_t rank = vars.size();
  if (std::optional<unsigned> position = rank ? sharingIndex(op) : std::nullopt)
    innermostRow = vars[rank - 1 - *position];
  for (auto [index, var] : llvm::zip_equal(op.getBody().getArguments(), llvm::reverse(vars)))
    environment.indices[index] = kernel.storedIndex(index, var);
  Expr value = StageLowering(*this, environment, -1).expression(yielded(op.getBody()));
  value = kernel.withEarlierBlocks(value, op.getDefinedTensor(), {vars.begin(), vars.end()});
  func(vars) = convert(value, kernel.typeInMemory(op.getDefinedTensor()));
}

} // namespace attn::lowering
