//===- Evaluate.cpp - Runs a program for every element --------------------===//

#include "Program.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

using namespace attn;
using namespace attn::reference;

static constexpr double infinity = std::numeric_limits<double>::infinity();

SoftmaxRow SoftmaxRow::over(llvm::ArrayRef<double> values, std::optional<double> sink) {
  SoftmaxRow row{-infinity, 0};
  for (double value : values)
    row.maximum = value > row.maximum ? value : row.maximum;
  if (sink && *sink > row.maximum)
    row.maximum = *sink;
  // exp(−inf − −inf) would be NaN: an element −inf has weight 0, whatever the others are.
  auto exponential = [&](double value) { return value == -infinity ? 0 : std::exp(value - row.maximum); };
  for (double value : values)
    row.sum += exponential(value);
  if (sink)
    row.sum += exponential(*sink);
  return row;
}

double SoftmaxRow::weight(double value) const {
  return sum == 0 || value == -infinity ? 0 : std::exp(value - maximum) / sum;
}

double SoftmaxRow::logSumExp() const { return maximum + std::log(sum); }

namespace {

/// The slots of one thread.
class Evaluator {
public:
  explicit Evaluator(const Program &program)
      : program(program), slots(program.initialSlots), memories(program.reductions.size()) {}

  Cell at(llvm::ArrayRef<int64_t> index) {
    for (auto [slot, value] : llvm::zip_equal(program.indices, index))
      slots[slot] = cell(value);
    run(program.block);
    return slots[program.value];
  }

private:
  /// What a reduction gave the last time, and for which captured values.
  struct Memory {
    bool valid = false;
    llvm::SmallVector<int64_t, 4> captured;
    Cell result;
    SoftmaxRow row;
    std::vector<double> values; ///< Scratch: the elements of a row.
  };

  void run(const Block &block);
  Cell read(const Access &access) const;
  Cell reduce(const Reduction &reduction, Memory &memory);
  bool recall(const Reduction &reduction, Memory &memory) const;
  void reduceAll(const Reduction &reduction, Memory &memory);
  std::optional<Cell> element(const Reduction &reduction);
  template <typename Visitor> void forEach(const Reduction &reduction, Visitor visit);

  const Program &program;
  std::vector<Cell> slots;
  std::vector<Memory> memories;
};

void Evaluator::run(const Block &block) {
  for (const Instruction &instruction : block) {
    switch (instruction.kind) {
    case Instruction::Kind::Scalar: {
      const Slot *operands = instruction.operands;
      slots[instruction.result] =
          instruction.operation(slots[operands[0]], slots[operands[1]], slots[operands[2]], slots[operands[3]]);
      break;
    }
    case Instruction::Kind::Read:
      slots[instruction.result] = read(program.accesses[instruction.index]);
      break;
    case Instruction::Kind::Reduce:
      slots[instruction.result] = reduce(*program.reductions[instruction.index], memories[instruction.index]);
      break;
    }
  }
}

Cell Evaluator::read(const Access &access) const {
  if (access.empty)
    return cell(int64_t{0});
  int64_t offset = 0;
  for (const Access::Subscript &subscript : access.subscripts)
    offset += std::clamp<int64_t>(slots[subscript.slot].integer, 0, subscript.extent - 1) * subscript.stride;
  return access.cells[offset];
}

/// The value at the current index, or nothing where the condition is false.
std::optional<Cell> Evaluator::element(const Reduction &reduction) {
  if (reduction.condition) {
    run(reduction.where);
    if (!slots[*reduction.condition].integer)
      return std::nullopt;
  }
  run(reduction.body);
  return slots[reduction.value];
}

/// Calls `visit` on the value of each element whose condition is true, the last index fastest.
template <typename Visitor> void Evaluator::forEach(const Reduction &reduction, Visitor visit) {
  size_t rank = reduction.extents.size();
  if (llvm::is_contained(reduction.extents, 0))
    return;
  for (Slot slot : reduction.indices)
    slots[slot] = cell(int64_t{0});
  while (true) {
    if (std::optional<Cell> value = element(reduction))
      visit(*value);
    size_t axis = rank;
    for (; axis > 0; --axis) {
      int64_t &index = slots[reduction.indices[axis - 1]].integer;
      if (++index < reduction.extents[axis - 1])
        break;
      index = 0;
    }
    if (axis == 0)
      return;
  }
}

/// Whether the captured values are still those of the last time; remembers the present ones.
bool Evaluator::recall(const Reduction &reduction, Memory &memory) const {
  bool same = memory.valid;
  memory.captured.resize(reduction.captured.size());
  for (auto [known, slot] : llvm::zip_equal(memory.captured, reduction.captured)) {
    same &= known == slots[slot].integer;
    known = slots[slot].integer;
  }
  memory.valid = true;
  return same;
}

Cell Evaluator::reduce(const Reduction &reduction, Memory &memory) {
  if (!recall(reduction, memory))
    reduceAll(reduction, memory);
  if (reduction.kind != ReduceKind::Softmax)
    return memory.result;
  for (auto [slot, at] : llvm::zip_equal(reduction.indices, reduction.at))
    slots[slot] = slots[at];
  std::optional<Cell> value = element(reduction);
  return cell(value ? memory.row.weight(value->real) : 0.0);
}

void Evaluator::reduceAll(const Reduction &reduction, Memory &memory) {
  bool real = llvm::isa<mlir::FloatType>(reduction.type), logical = reduction.type.isSignlessInteger(1);
  Cell &result = memory.result;
  switch (reduction.kind) {
  case ReduceKind::Sum:
    result = real ? cell(0.0) : cell(int64_t{0});
    if (real)
      return forEach(reduction, [&](Cell value) { result.real += value.real; });
    return forEach(reduction, [&](Cell value) {
      result = cell(static_cast<int64_t>(static_cast<uint64_t>(result.integer) + static_cast<uint64_t>(value.integer)));
    });
  case ReduceKind::Max:
    result = real ? cell(-infinity) : cell(logical ? 0 : std::numeric_limits<int64_t>::min());
    if (real)
      return forEach(reduction, [&](Cell value) {
        if (value.real > result.real || std::isnan(value.real))
          result = std::isnan(result.real) ? result : value;
      });
    return forEach(reduction, [&](Cell value) { result = cell(std::max(result.integer, value.integer)); });
  case ReduceKind::Min:
    result = real ? cell(infinity) : cell(logical ? 1 : std::numeric_limits<int64_t>::max());
    if (real)
      return forEach(reduction, [&](Cell value) {
        if (value.real < result.real || std::isnan(value.real))
          result = std::isnan(result.real) ? result : value;
      });
    return forEach(reduction, [&](Cell value) { result = cell(std::min(result.integer, value.integer)); });
  case ReduceKind::Softmax:
  case ReduceKind::LogSumExp:
    memory.values.clear();
    forEach(reduction, [&](Cell value) { memory.values.push_back(value.real); });
    memory.row =
        SoftmaxRow::over(memory.values, reduction.sink ? std::optional(slots[*reduction.sink].real) : std::nullopt);
    result = cell(memory.row.logSumExp());
  }
}

/// The index of element number `number` of a row-major tensor.
llvm::SmallVector<int64_t> indexOf(int64_t number, llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<int64_t> index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; number /= shape[axis])
    index[axis] = number % shape[axis];
  return index;
}

} // namespace

std::vector<Cell> reference::evaluate(const Program &program, llvm::ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  std::vector<Cell> cells(count);

  // Elements are independent: threads take runs of them until none is left.
  int64_t threads = count < 1024 ? 1 : std::max(1u, std::thread::hardware_concurrency());
  int64_t run = std::max<int64_t>(1, count / (threads * 16));
  std::atomic<int64_t> next = 0;
  auto work = [&] {
    Evaluator evaluator(program);
    for (int64_t first; (first = next.fetch_add(run)) < count;)
      for (int64_t number = first; number < std::min(first + run, count); ++number)
        cells[number] = evaluator.at(indexOf(number, shape));
  };
  std::vector<std::thread> workers;
  for (int64_t thread = 1; thread < threads; ++thread)
    workers.emplace_back(work);
  work();
  for (std::thread &worker : workers)
    worker.join();
  return cells;
}
