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
  std::string blockFunctions();
  std::string structOf(Level level);
  std::string assignments(Level level);

  mlir::Type elementOf(ReadOp read) { return read.getTensor().getType().getElementType(); }
  std::string sizeText(SizeAttr size) { return FormulaWriter(formulas, Level::Block, false).size(size).operand(); }

  Attention &attention;
  Formulas formulas;
  TensorCorePlan plan;
};
} // namespace

/// Blocks are numbered as elements of (other indices…, tiles of queries) in row-major order.
std::string Emission::blockFunctions() {
  WeightedSumOp sum = attention.sum;
  llvm::ArrayRef<SizeAttr> shape = sum.getResult().getType().getShape();
  std::string product, indices;
  for (unsigned position = shape.size() - 1; position-- > 0;) {
    mlir::BlockArgument index = sum.getBody().getArgument(position);
    if (index == attention.queryIndex())
      continue;
    std::string size = sizeText(shape[position]);
    product += " * " + size;
    indices +=
        fmt::format("    block.{0} = number % {1};\n    number /= {1};\n", formulas.blockIndices.lookup(index), size);
  }
  return fmt::format(R"(  // The blocks of a launch, and the threads and the bytes of shared memory of each.
  static __host__ __device__ int64 blocks(const Arguments &arguments) {{
    return int64({0} + query_tile - 1) / query_tile{1};
  }}
  static constexpr int threads = 32 * warps;
  static __host__ __device__ constexpr int shared_bytes() {{ return SharedLayout<{2}_kernel>::bytes; }}
  // Whether this kernel is one for the sizes of a call.
  static __host__ __device__ bool fits(const Arguments &arguments) {{
    return {3} <= dot_columns && {4} <= value_columns;
  }}
  // The last queries come first: a causal mask leaves them the most keys.
  static __device__ Block block(const Arguments &arguments, int number) {{
    Block block;
    int tiles = ({0} + query_tile - 1) / query_tile;
    block.first_query = (tiles - 1 - number % tiles) * query_tile;
    number /= tiles;
{5}{6}    return block;
  }}
)",
                     sizeText(indexSize(attention.queryIndex())), product, attention.kernel.getSymName().str(),
                     sizeText(attention.dotSize()), sizeText(attention.valueSize()), indices,
                     assignments(Level::Block));
}

std::string Emission::structOf(Level level) {
  std::string text = level == Level::Block ? "  struct Block {\n    int first_query;\n" : "  struct Row {\n";
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
  std::string functions = elementFunctions(formulas) + rowsOfTensors(formulas);
  functions += fmt::format("  static __device__ __forceinline__ Row row(const Arguments &arguments, "
                           "const Block &block, int query) {{\n    Row row;\n{}    return row;\n  }}\n",
                           assignments(Level::Row));
  for (auto [part, read] :
       {std::pair("queries", attention.query), std::pair("keys", attention.key), std::pair("values", attention.value)})
    functions += fmt::format("  static __device__ __forceinline__ bool {}_aligned(const Arguments &arguments) {{ "
                             "return is_aligned({}); }}\n",
                             part, formulas.tensor(read.getTensor()));
  for (auto [part, size] :
       {std::pair("queries", indexSize(attention.queryIndex())), std::pair("keys", attention.sum.getKeySize()),
        std::pair("dot_width", attention.dotSize()), std::pair("value_width", attention.valueSize())})
    functions +=
        fmt::format("  static __device__ __forceinline__ int {}(const Arguments &arguments) {{ return {}; }}\n", part,
                    sizeText(size));
  std::string blocks = blockFunctions();
  if (!formulas.problem.empty())
    return llvm::createStringError(formulas.problem);
  int64_t bytes = argumentBytes(kernel);
  if (bytes > CudaKernel::mostArgumentBytes)
    return llvm::createStringError(fmt::format("a launch would be given {} bytes of arguments, but takes at most {}",
                                               bytes, CudaKernel::mostArgumentBytes));
  CudaKernel result;
  result.name = "attn_" + name;
  result.plan = plan;
  result.queries = indexSize(attention.queryIndex());
  for (mlir::BlockArgument index : attention.sum.getBody().getArguments().drop_back(2))
    if (index != attention.queryIndex())
      result.others.push_back(indexSize(index));
  for (auto [size, columns] :
       {std::pair(attention.dotSize(), plan.dotColumns), {attention.valueSize(), plan.valueColumns}})
    if (!size.isConstant())
      result.limits.push_back({size, columns});
  for (ReadOp read : {attention.query, attention.key, attention.value})
    result.rowInputs.push_back(mlir::cast<mlir::BlockArgument>(read.getTensor()).getArgNumber());
  result.rowOutput = attention.output;
  result.text = fmt::format(
      R"(
//===----------------------------------------------------------------------===//
// {0}: {1} queries a block of {2} warps, {3} keys a tile; dot products of {4} columns, values of {5}
//===----------------------------------------------------------------------===//

namespace attn {{

struct {0}_kernel {{
  static constexpr int warps = {2}, query_tile = {1}, key_tile = {3}, dot_columns = {4}, value_columns = {5};
  static constexpr bool has_mask = {6}, has_sink = {7};
  using Query = {8};
  using Value = {9};
  using Output = {10};

{11}{12}{13}{14}{15}}};

static_assert({0}_kernel::shared_bytes() == {17}, "the plan says otherwise");
static_assert(sizeof({0}_kernel::Arguments) == {18}, "the runtime packs them otherwise");

}} // namespace attn

extern "C" __global__ void __launch_bounds__({16}, 1) attn_{0}(
    const __grid_constant__ attn::{0}_kernel::Arguments arguments) {{
  attn::attention<attn::{0}_kernel>(arguments);
}}
)",
      name, plan.queries, plan.warps, plan.keys, plan.dotColumns, plan.valueColumns, attention.mask() ? true : false,
      attention.sink() ? true : false, elementType(elementOf(attention.query)), elementType(elementOf(attention.value)),
      elementType(kernel.getReturn().getOutputType(attention.output).getElementType()), argumentStruct(formulas),
      structOf(Level::Block), structOf(Level::Row), functions, blocks, plan.threads(), plan.sharedBytes(), bytes);
  return result;
}

llvm::Expected<CudaKernel> attn::emitCuda(KernelOp kernel, const Plan &plan) {
  llvm::Expected<Attention> attention = recognise(kernel);
  if (!attention)
    return attention.takeError();
  llvm::Expected<TensorCorePlan> sizes =
      plan.tensorCores.forWidths(attention->dotSize(), attention->valueSize(), attention->readsAtPairs());
  if (!sizes)
    return sizes.takeError();
  return Emission(*attention, *sizes).run();
}
