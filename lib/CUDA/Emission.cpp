//===- Emission.cpp - Attention on tensor cores as CUDA C++ ---------------===//
//
// The struct that lib/CUDA/Attention.cuh is instantiated with, and the kernel.
//
//===----------------------------------------------------------------------===//

#include "attn/CUDA/Emission.h"
#include "Members.h"
#include "attn/Analysis/Dependence.h"

#include <fmt/format.h>

using namespace attn;
using namespace attn::cuda;

namespace {
class Emission {
public:
  Emission(Attention &attention, const TensorCorePlan &plan) : attention(attention), formulas(attention), plan(plan) {}

  llvm::Expected<CudaKernel> run();

private:
  void countRows();
  std::string blockFunctions();
  std::string structOf(Level level);
  std::string assignments(Level level);

  mlir::Type elementOf(ReadOp read) { return read.getTensor().getType().getElementType(); }
  std::string sizeText(SizeAttr size) { return FormulaWriter(formulas, Level::Block, false).size(size).operand(); }

  Attention &attention;
  Formulas formulas;
  TensorCorePlan plan;
  SizeAttr rows;                ///< Of all queries that share keys.
  std::vector<SizeAttr> others; ///< Of the other indices.
};
} // namespace

/// The rows of all queries that share keys, and the combinations of the other indices.
void Emission::countRows() {
  rows = attention.querySize();
  for (mlir::BlockArgument index : attention.sum.getBody().getArguments().drop_back(2))
    if (!attention.isOfRow(index))
      others.push_back(indexSize(index));
  if (!attention.sharing)
    return;
  rows = SizeAttr::binary(SizeKind::Mul, rows, attention.sharing->sharers());
  others.push_back(attention.sharing->groups());
}

/// The rows that share keys are one combination of the other indices, which are numbered in row-major order. Those of
/// one query are side by side.
std::string Emission::blockFunctions() {
  std::string queries = sizeText(attention.querySize());
  std::string count = "int64(" + queries + ")", position = "row", sharing, indices, combinations;
  auto split = [&](const std::string &name, const std::string &size) {
    combinations += (combinations.empty() ? "int64(" : " * ") + size + (combinations.empty() ? ")" : "");
    indices += fmt::format("    {0} = number % {1};\n    number /= {1};\n", name, size);
  };
  if (attention.sharing) {
    sharing = fmt::format(R"(  // How many {} share keys, and how many times there are so many.
  static __host__ __device__ int sharers(const Arguments &arguments) {{ return {}; }}
  static __host__ __device__ int groups(const Arguments &arguments) {{ return {}; }}
)",
                          indexName(attention.sharing->index).str(), sizeText(attention.sharing->sharers()),
                          sizeText(attention.sharing->groups()));
    count += " * sharers(arguments)";
    position += " / block.sharers, block.first_sharer + row % block.sharers";
    split("block.first_sharer", "groups(arguments)");
    indices += fmt::format("    block.first_sharer *= sharers(arguments);\n"
                           "    block.sharers = smaller(sharers(arguments), {} - block.first_sharer);\n",
                           sizeText(indexSize(attention.sharing->index)));
  }
  for (mlir::BlockArgument index : llvm::reverse(attention.sum.getBody().getArguments().drop_back(2)))
    if (!attention.isOfRow(index))
      split("block." + formulas.blockIndices.lookup(index), sizeText(indexSize(index)));
  return sharing +
         fmt::format(
             R"(  // The rows that read the same keys, and how many times there are so many: a block has a tile of them.
  static __host__ __device__ int64 rows(const Arguments &arguments) {{ return {0}; }}
  static __host__ __device__ int64 combinations(const Arguments &arguments) {{ return {1}; }}
    static __host__ __device__ constexpr int shared_bytes() {{ return SharedLayout<{2}_kernel>::bytes; }}
  // Whether this kernel is one for the sizes of a call.
  static __host__ __device__ bool fits(const Arguments &arguments) {{
    return {3} <= dot_columns && {4} <= value_columns{10};
  }}
  static __device__ Block block(const Arguments &arguments, int number) {{
    Block block;
{5}{6}    return block;
  }}
  // The rows of a block's combination, and which query each is.
  static __device__ __forceinline__ int rows(const Arguments &arguments, const Block &block) {{ return {7}{8}; }}
  static __device__ __forceinline__ Position position(const Block &block, int row) {{ return {{{9}}}; }}
)",
             count, combinations.empty() ? "1" : combinations, attention.kernel.getSymName().str(),
             sizeText(attention.dotSize()), sizeText(attention.valueSize()), indices, assignments(Level::Block),
             queries, attention.sharing ? " * block.sharers" : "", position,
             attention.sharing ? " && rows(arguments) <= 1 << 30" : "");
}

std::string Emission::structOf(Level level) {
  std::string text = fmt::format("  struct {} {{\n", level == Level::Block ? "Block"
                                                     : level == Level::Row ? "Row"
                                                                           : "KeyPlace");
  if (level == Level::Block && attention.sharing)
    text += "    int first_sharer, sharers;\n";
  if (level == Level::Block)
    for (mlir::BlockArgument index : attention.sum.getBody().getArguments())
      if (formulas.blockIndices.contains(index))
        text += fmt::format("    int {};\n", formulas.blockIndices.lookup(index));
  for (const Field &field : formulas.fields(level))
    text += fmt::format("    {}{}{};\n", field.type, field.type.ends_with("*") ? "" : " ", field.name);
  return text + "  };\n";
}

std::string Emission::assignments(Level level) {
  std::string text;
  for (const Field &field : formulas.fields(level))
    text += fmt::format("    {}.{} = {};\n", level == Level::Block ? "block" : "row", field.name, field.value);
  return text;
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

llvm::Expected<CudaKernel> Emission::run() {
  KernelOp kernel = attention.kernel;
  std::string name = kernel.getSymName().str();
  countRows();
  CudaKernel result;
  std::string functions = elementFunctions(formulas) + tileSearch(formulas) + rowsOfTensors(formulas);
  if (plan.warpgroups)
    functions += placesOfKeys(formulas, result.maps);
  bool hasMaps = !result.maps.empty();
  functions += fmt::format("  static __device__ __forceinline__ Row row(const Arguments &arguments, "
                           "const Block &block, const Position &at) {{\n    Row row;\n{}    return row;\n  }}\n",
                           assignments(Level::Row));
  for (auto [part, read] :
       {std::pair("queries", attention.query), std::pair("keys", attention.key), std::pair("values", attention.value)})
    functions += fmt::format("  static __device__ __forceinline__ bool {}_aligned(const Arguments &arguments) {{ "
                             "return is_aligned({}); }}\n",
                             part, formulas.tensor(read.getTensor()));
  for (auto [part, size] : {std::pair("keys", attention.sum.getKeySize()), std::pair("dot_width", attention.dotSize()),
                            std::pair("value_width", attention.valueSize())})
    functions +=
        fmt::format("  static __device__ __forceinline__ int {}(const Arguments &arguments) {{ return {}; }}\n", part,
                    sizeText(size));
  std::string blocks = blockFunctions();
  if (!formulas.problem.empty())
    return llvm::createStringError(formulas.problem);
  int64_t bytes = argumentBytes(attention, hasMaps);
  if (bytes > CudaKernel::mostArgumentBytes)
    return llvm::createStringError(fmt::format("a launch would be given {} bytes of arguments, but takes at most {}",
                                               bytes, CudaKernel::mostArgumentBytes));
  result.name = "attn_" + name;
  result.plan = plan;
  result.rows = rows;
  result.others = others;
  result.keys = attention.sum.getKeySize();
  if (attention.sharing)
    result.sharer = indexName(attention.sharing->index);
  for (auto [size, columns] :
       {std::pair(attention.dotSize(), plan.dotColumns), {attention.valueSize(), plan.valueColumns}})
    if (!size.isConstant())
      result.limits.push_back({size, columns});
  for (mlir::Value tensor : attention.tensors())
    result.tensors.push_back({tensor, !llvm::is_contained(attention.inputs, tensor)});
  result.contiguous = {attention.query.getTensor(), attention.key.getTensor(), attention.value.getTensor(),
                       attention.sum.getResult()};
  for (mlir::Value tensor : attention.inputs)
    if (tensor.getDefiningOp())
      result.statements.push_back(tensorName(tensor));
  const TensorCorePlan few = plan.forFewRows();
  // A block has 64 Ki registers: 168 for each of 384 threads at first. Those that compute have more to keep where tiles
  // are looked for: without that, some spill.
  const int toCopy = plan.searchesTiles ? 56 : 72, toCompute = (3 * 168 - toCopy) / 2;
  std::string registers =
      fmt::format("  static constexpr int registers_to_copy = {}, registers_to_compute = {};\n", toCopy, toCompute);
  result.text = fmt::format(
      R"(
//===----------------------------------------------------------------------===//
// {0}: {1} rows a block of {2} warps{27}, {3} keys a tile; dot products of {4} columns, values of {5}
//===----------------------------------------------------------------------===//

namespace attn {{

struct {0}_kernel {{
  static constexpr int warps = {2}, query_tile = {1}, key_tile = {3}, dot_columns = {4}, value_columns = {5};
  static constexpr int threads = {16}, barriers = {24}; // of a block
{25}  static constexpr bool has_mask = {6}, has_sink = {7}, searches_tiles = {33}, has_places = {23}, has_maps = {22};
  using Query = {8};
  using Value = {9};
  using Output = {10};
  using Products = {21}<{0}_kernel>;

{11}  // Where a row of a tile is.
  struct Position {{
    int query{19};
  }};
{12}{13}{14}{15}}};

static_assert({0}_kernel::shared_bytes() == {17}, "the plan says otherwise");
static_assert(sizeof({0}_kernel::Arguments) == {18}, "the runtime packs them otherwise");
static_assert(state_size<{0}_kernel> == {20}, "the plan says otherwise");

// For at most {28} rows, {29} keys a tile.
struct {0}_few_kernel : {0}_kernel {{
  static constexpr int warps = 1, query_tile = {28}, key_tile = {29}, threads = {30}, barriers = 0;
  static constexpr bool has_maps = false;
  using Products = WarpProducts<{0}_few_kernel>;
  static __host__ __device__ constexpr int shared_bytes() {{ return SharedLayout<{0}_few_kernel>::bytes; }}
}};

static_assert({0}_few_kernel::shared_bytes() == {31}, "the plan says otherwise");

}} // namespace attn

extern "C" __global__ void __launch_bounds__({16}, 1) attn_{0}(
    const __grid_constant__ attn::{0}_kernel::Arguments arguments) {{
  attn::{26}<attn::{0}_kernel>(arguments);
}}

extern "C" __global__ void __launch_bounds__({30}, 1) attn_{0}_few(
    const __grid_constant__ attn::{0}_kernel::Arguments arguments) {{
  attn::attention<attn::{0}_few_kernel>(arguments);
}}

// For launches with parts of keys: what these have left, a row a block.
extern "C" __global__ void __launch_bounds__({32}) attn_{0}_merge(
    const __grid_constant__ attn::{0}_kernel::Arguments arguments) {{
  attn::merge<attn::{0}_kernel>(arguments);
}}
)",
      name, plan.queries, plan.warps, plan.keys, plan.dotColumns, plan.valueColumns, attention.mask() ? true : false,
      attention.sink() ? true : false, elementType(elementOf(attention.query)), elementType(elementOf(attention.value)),
      elementType(attention.elementOf(attention.sum.getResult())), argumentStruct(formulas, hasMaps),
      structOf(Level::Block), structOf(Level::Row) + structOf(Level::Key), functions, blocks, plan.threads(),
      plan.sharedBytes(), bytes, attention.sharing ? ", " + formulas.sharer : "", plan.stateSize(),
      plan.warpgroups ? "WarpgroupProducts" : "WarpProducts", hasMaps, !formulas.fields(Level::Key).empty(),
      plan.barriers(), plan.producer ? registers : std::string(), plan.producer ? "overlapped_attention" : "attention",
      plan.producer ? " and 4 that copy" : "", few.queries, few.keys, few.threads(), few.sharedBytes(),
      plan.mergingThreads(), plan.searchesTiles);
  return result;
}

llvm::Expected<CudaKernel> attn::emitCuda(KernelOp kernel, const Plan &plan) {
  llvm::Expected<Attention> attention = recognise(kernel);
  if (!attention)
    return attention.takeError();
  llvm::Expected<TensorCorePlan> sizes = plan.tensorCores.forWidths(attention->dotSize(), attention->valueSize(),
                                                                    attention->formulas(), searchesTiles(*attention));
  if (!sizes)
    return sizes.takeError();
  return Emission(*attention, *sizes).run();
}
