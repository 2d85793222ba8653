//===- Transposition.cpp - Copies that turn rows into columns ---------------===//

#include "Transposition.h"

#include "Fetch.h"

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

namespace {
/// A store of a vector whose lanes are read from rows: their neighbours in memory belong to the next point of the loop.
struct RowStore {
  const Load *load = nullptr; ///< Null: the store is none.
  int lanes = 0;
  int group = 0; ///< Neighbours of a row that are one lane: 2 of a pair of bf16 numbers.
  Expr starts;   ///< Where the lanes begin.
  Expr along; ///< The loop's variable as the rows have it, perhaps clamped; of a block in which it never is, both ends
              ///< tell.
};

class TransposeCopies : public IRMutator {
  using IRMutator::visit;

  /// The load that `value` is, converts, or takes together in groups.
  static const Load *loadOf(const Expr &value) {
    if (const auto *conversion = value.as<Cast>())
      return loadOf(conversion->value);
    const auto *groups = value.as<Reinterpret>();
    if (groups && groups->value.type().lanes() > groups->type.lanes())
      return groups->value.as<Load>();
    return value.as<Load>();
  }

  /// `value` with this in place of its load, whose groups are taken together.
  static Expr replaceLoad(const Expr &value, const Expr &loaded) {
    const auto *conversion = value.as<Cast>();
    return conversion ? Cast::make(value.type(), replaceLoad(conversion->value, loaded)) : loaded;
  }

  /// A row's neighbours from `start` on, as many as a vector has lanes; groups as one number each.
  static Expr loadRow(const RowStore &row, const Expr &start) {
    int count = row.lanes * row.group;
    const Load *load = row.load;
    Expr numbers =
        Load::make(load->type.with_lanes(count), load->name, Ramp::make(start, make_one(start.type()), count),
                   load->image, load->param, const_true(count), ModulusRemainder());
    return row.group == 1 ? numbers : Reinterpret::make(UInt(load->type.bits() * row.group, row.lanes), numbers);
  }

  static RowStore rowStore(const Store *store, const std::string &loop) {
    const Load *load = loadOf(store->value);
    const auto *where = store->index.as<Ramp>();
    int lanes = store->value.type().lanes();
    bool isVector = where && is_const_one(where->stride) && where->base.type().is_scalar();
    bool isPowerOfTwo = lanes >= 4 && (lanes & (lanes - 1)) == 0;
    if (!load || !isVector || !isPowerOfTwo || load->name == store->name || !is_const_one(load->predicate) ||
        !is_const_one(store->predicate) || !expr_uses_var(load->index, loop) || !expr_uses_var(store->index, loop))
      return {};
    int group = load->type.lanes() / lanes;
    Expr starts = load->index;
    if (group > 1) {
      const auto *turns = starts.as<Shuffle>();
      if (!turns || !turns->is_interleave())
        return {};
      starts = turns->vectors[0];
    }
    if (const auto *ramp = starts.as<Ramp>()) {
      auto stride = as_const_int(ramp->stride);
      bool isFar = !stride || std::abs(*stride) >= lanes;
      bool inRows = isFar && !expr_uses_var(ramp->stride, loop) && isClamped(ramp->base, loop, group);
      return inRows ? RowStore{load, lanes, group, starts, ramp->base} : RowStore{};
    }
    if (const auto *sum = starts.as<Add>())
      for (auto [start, along] : {std::pair{sum->a, sum->b}, std::pair{sum->b, sum->a}}) {
        const auto *broadcast = along.as<Broadcast>();
        if (broadcast && broadcast->value.type().is_scalar() && !expr_uses_var(start, loop) &&
            isClamped(broadcast->value, loop, group))
          return {load, lanes, group, starts, broadcast->value};
      }
    return {};
  }

  /// Whether `value` is the variable `loop` times `step`, plus what does not depend on it, bounded by what does not:
  /// from one point to the next it grows by `step` or less.
  static bool isClamped(const Expr &value, const std::string &loop, int step) {
    if (const auto *variable = value.as<Variable>())
      return step == 1 && variable->name == loop;
    if (const auto *product = value.as<Mul>())
      return is_const(product->b, step) && isClamped(product->a, loop, 1);
    auto ofOne = [&](const Expr &a, const Expr &b) {
      return (isClamped(a, loop, step) && !expr_uses_var(b, loop)) ||
             (isClamped(b, loop, step) && !expr_uses_var(a, loop));
    };
    if (const auto *sum = value.as<Add>())
      return ofOne(sum->a, sum->b);
    if (const auto *least = value.as<Min>())
      return ofOne(least->a, least->b);
    const auto *greatest = value.as<Max>();
    return greatest && ofOne(greatest->a, greatest->b);
  }

  /// Whether `body` does nothing but copy.
  static bool isCopy(const Stmt &body) {
    if (const auto *both = body.as<Block>())
      return isCopy(both->first) && isCopy(both->rest);
    if (const auto *choice = body.as<IfThenElse>())
      return isCopy(choice->then_case) && (!choice->else_case.defined() || isCopy(choice->else_case));
    if (const auto *let = body.as<LetStmt>())
      return isCopy(let->body);
    if (const auto *inner = body.as<For>())
      return inner->for_type == ForType::Serial && isCopy(inner->body);
    const auto *store = body.as<Store>();
    const Load *load = store ? loadOf(store->value) : nullptr;
    return load && load->name != store->name;
  }

  /// Whether the points of `loop` do the same in `body`, a copy, but for where; `lanes` are those of its stores in
  /// rows.
  static bool isUniform(const Stmt &body, const std::string &loop, int &lanes) {
    if (const auto *both = body.as<Block>())
      return isUniform(both->first, loop, lanes) && isUniform(both->rest, loop, lanes);
    if (const auto *choice = body.as<IfThenElse>())
      return !expr_uses_var(choice->condition, loop) && isUniform(choice->then_case, loop, lanes) &&
             (!choice->else_case.defined() || isUniform(choice->else_case, loop, lanes));
    if (const auto *let = body.as<LetStmt>())
      return !expr_uses_var(let->value, loop) && isUniform(let->body, loop, lanes);
    if (const auto *inner = body.as<For>())
      return !expr_uses_var(inner->min, loop) && !expr_uses_var(inner->extent, loop) &&
             isUniform(inner->body, loop, lanes);
    if (RowStore row = rowStore(body.as<Store>(), loop); row.load)
      lanes = row.lanes;
    return true;
  }

  /// Rows to columns: each round takes neighbours from both halves in turn, and log2(lanes) rounds are a transposition.
  static std::vector<Expr> transposed(std::vector<Expr> rows, std::vector<std::pair<std::string, Expr>> &lets) {
    int lanes = static_cast<int>(rows.size());
    std::vector<int> low, high;
    for (int lane = 0; lane < lanes / 2; ++lane) {
      low.insert(low.end(), {lane, lanes + lane});
      high.insert(high.end(), {lanes / 2 + lane, lanes + lanes / 2 + lane});
    }
    auto named = [&](Expr value) {
      lets.push_back({unique_name("transposed"), value});
      return Variable::make(value.type(), lets.back().first);
    };
    for (Expr &row : rows)
      row = named(row);
    for (int round = 1; round < lanes; round *= 2) {
      std::vector<Expr> next;
      for (int pair = 0; pair < lanes / 2; ++pair)
        for (const std::vector<int> &order : {low, high})
          next.push_back(named(Shuffle::make({rows[pair], rows[pair + lanes / 2]}, order)));
      rows = next;
    }
    return rows;
  }

  /// Of rows that lie in memory as far from these as twice their number. A processor does not foresee them, and they
  /// are mostly the next: of the next panel, which has two vectors, or of a tile's vector after the next.
  static std::vector<Stmt> fetchesAhead(const RowStore &row, const Expr &starts) {
    std::vector<Stmt> fetches;
    if (!row.load->param.defined())
      return fetches;
    auto start = [&](int lane) { return Shuffle::make_extract_element(starts, lane); };
    Expr distance = (start(1) - start(0)) * (2 * row.lanes);
    for (int lane = 0; lane < row.lanes; ++lane)
      fetches.push_back(Evaluate::make(lineAt(row.load->name, start(lane) + distance, row.load->type)));
    return fetches;
  }

  /// `store` at the points `loop`, `loop` + 1, … of a block.
  static Stmt storeBlock(const Store *store, const RowStore &row, const std::string &loop) {
    std::vector<std::pair<std::string, Expr>> lets;
    lets.push_back({unique_name("rows"), row.starts});
    Expr starts = Variable::make(row.starts.type(), lets[0].first);
    std::vector<Expr> rows;
    for (int lane = 0; lane < row.lanes; ++lane)
      rows.push_back(loadRow(row, Shuffle::make_extract_element(starts, lane)));
    std::vector<Expr> columns = transposed(std::move(rows), lets);
    std::vector<Stmt> stores = fetchesAhead(row, starts);
    Expr variable = Variable::make(Int(32), loop);
    for (int point = 0; point < row.lanes; ++point) {
      Expr value = replaceLoad(store->value, columns[point]);
      stores.push_back(Store::make(store->name, value, substitute(loop, variable + point, store->index), store->param,
                                   const_true(row.lanes), ModulusRemainder()));
    }
    Stmt result = Block::make(stores);
    for (auto let = lets.rbegin(); let != lets.rend(); ++let)
      result = LetStmt::make(let->first, let->second, result);
    return result;
  }

  /// `body` at all points of a block that begins at `loop`.
  static Stmt block(const Stmt &body, const std::string &loop, int lanes) {
    if (const auto *both = body.as<Block>())
      return Block::make(block(both->first, loop, lanes), block(both->rest, loop, lanes));
    if (const auto *choice = body.as<IfThenElse>())
      return IfThenElse::make(choice->condition, block(choice->then_case, loop, lanes),
                              choice->else_case.defined() ? block(choice->else_case, loop, lanes) : Stmt());
    if (const auto *let = body.as<LetStmt>())
      return LetStmt::make(let->name, let->value, block(let->body, loop, lanes));
    if (const auto *store = body.as<Store>())
      if (RowStore row = rowStore(store, loop); row.load && row.lanes == lanes) {
        Expr last = substitute(loop, Variable::make(Int(32), loop) + (lanes - 1), row.along);
        return IfThenElse::make(last - row.along == (lanes - 1) * row.group, storeBlock(store, row, loop),
                                pointByPoint(body, loop, lanes));
      }
    if (const auto *inner = body.as<For>())
      return For::make(inner->name, inner->min, inner->extent, inner->for_type, inner->partition_policy,
                       inner->device_api, block(inner->body, loop, lanes));
    return pointByPoint(body, loop, lanes);
  }

  static Stmt pointByPoint(const Stmt &body, const std::string &loop, int lanes) {
    std::string within = unique_name("point");
    Expr point = Variable::make(Int(32), loop) + Variable::make(Int(32), within);
    return For::make(within, 0, lanes, ForType::Serial, Partition::Never, DeviceAPI::None,
                     substitute(loop, point, body));
  }

  /// `body` without names for what depends on `loop`: where they stand, their values show how.
  static Stmt withoutLets(const Stmt &body, const std::string &loop) {
    class Inline : public IRMutator {
      using IRMutator::visit;
      Stmt visit(const LetStmt *let) override {
        return expr_uses_var(let->value, loop) ? mutate(substitute(let->name, let->value, let->body))
                                               : IRMutator::visit(let);
      }

    public:
      std::string loop;
    } mutator;
    mutator.loop = loop;
    return mutator.mutate(body);
  }

  Stmt visit(const For *op) override {
    if (op->for_type != ForType::Serial || !isCopy(op->body))
      return IRMutator::visit(op);
    Stmt body = withoutLets(op->body, op->name);
    int lanes = 0;
    if (!isUniform(body, op->name, lanes) || !lanes)
      return IRMutator::visit(op);
    std::string blocks = unique_name(op->name + "_blocks");
    Expr first = op->min + Variable::make(Int(32), blocks) * lanes, count = op->extent / lanes;
    Stmt blocked = For::make(blocks, 0, count, ForType::Serial, Partition::Never, DeviceAPI::None,
                             LetStmt::make(op->name, first, block(body, op->name, lanes)));
    Stmt rest = For::make(op->name, op->min + count * lanes, op->extent % lanes, ForType::Serial, Partition::Never,
                          op->device_api, op->body);
    return Block::make(blocked, rest);
  }
};
} // namespace

void transposeCopies(Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new TransposeCopies); }

} // namespace attn::lowering
