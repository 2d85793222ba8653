//===- Emission.cpp - Attention on tensor cores as CUDA C++ ----------------===//
//
// The struct that lib/CUDA/Attention.cuh is instantiated with, and the kernel.
//
//===----------------------------------------------------------------------===//

#include "attn/CUDA/Emission.h"
#include "Formula.h"
#include "attn/Analysis/Dependence.h"
#include "attn/Analysis/KeyRange.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

#include <fmt/format.h>

using namespace attn;
using namespace attn::cuda;

namespace {
class Emission {
public:
  Emission(Attention &attention, const TensorCorePlan &plan) : attention(attention), formulas(attention), plan(plan) {}

  llvm::Expected<CudaKernel> run();

private:
  /// A member function of Level::Element that has all parameters.
  FormulaWriter elementWriter();
  std::string function(const std::string &head, FormulaWriter &writer, const std::string &value);

  std::string scoreFunctions();
  std::string maskFunctions();
  std::string weightFunction();
  std::string sinkFunction();
  std::string rowFunctions();
  std::string outputFunctions();
  std::string alignments();
  std::string arguments();
  /// What `arguments` takes in memory, by C++'s rules.
  int64_t argumentBytes();
  std::string blockFunctions();
  std::string structOf(Level level);
  std::string assignments(Level level);

  std::string bound(const KeyBound &bound, FormulaWriter &writer);
  std::string tensorOf(ReadOp read) { return formulas.tensor(read.getTensor()); }
  mlir::Type elementOf(ReadOp read) { return read.getTensor().getType().getElementType(); }
  std::string sizeText(SizeAttr size) { return FormulaWriter(formulas, Level::Block, false).size(size).operand(); }

  Attention &attention;
  Formulas formulas;
  TensorCorePlan plan;
};
} // namespace

FormulaWriter Emission::elementWriter() {
  FormulaWriter writer(formulas, Level::Element, /*hasRow=*/true);
  for (ReduceOp dot : attention.dots)
    writer.replace(dot.getResult(), "dot");
  return writer;
}

std::string Emission::function(const std::string &head, FormulaWriter &writer, const std::string &value) {
  return fmt::format("  static __device__ __forceinline__ {} {{\n{}    return {};\n  }}\n", head, writer.statements(),
                     value);
}

//===----------------------------------------------------------------------===//
// Formulas
//===----------------------------------------------------------------------===//

/// Whether `value` is positive whatever the parameters hold: made of constants, sizes and square roots of them.
static bool isPositive(mlir::Value value) {
  mlir::FloatAttr number;
  if (mlir::matchPattern(value, mlir::m_Constant(&number)))
    return number.getValueAsDouble() > 0;
  mlir::Operation *op = value.getDefiningOp();
  if (auto cast = mlir::dyn_cast_or_null<mlir::arith::SIToFPOp>(op)) {
    auto size = cast.getIn().getDefiningOp<SizeOp>();
    return size && size.getSize().isName();
  }
  return mlir::isa_and_nonnull<mlir::arith::MulFOp, mlir::arith::DivFOp, mlir::math::SqrtOp>(op) &&
         llvm::all_of(op->getOperands(), isPositive);
}

static constexpr const char *elementParameters =
    "const Arguments &arguments, const Block &block, const Row &row, float dot, int query, int key";

/// The score in units of log2(e), in which weights are powers of two. Its factors that no query and no key changes are
/// one; where nothing else than that and the product is left, the factor is applied with the maximum instead.
std::string Emission::scoreFunctions() {
  mlir::Value rest = attention.score();
  std::string factor = "1.44269504088896341f";
  bool positive = true, hasFactor = false;
  FormulaWriter block(formulas, Level::Block, /*hasRow=*/false);
  auto isUniform = [&](mlir::Value value) { return formulas.levelOf(value) == Level::Block; };
  while (true) {
    auto product = rest.getDefiningOp<mlir::arith::MulFOp>();
    auto quotient = rest.getDefiningOp<mlir::arith::DivFOp>();
    mlir::Value uniform;
    if (product && isUniform(product.getRhs()) != isUniform(product.getLhs())) {
      uniform = isUniform(product.getRhs()) ? product.getRhs() : product.getLhs();
      rest = isUniform(product.getRhs()) ? product.getLhs() : product.getRhs();
      factor += " * " + block.write(uniform).operand();
    } else if (quotient && isUniform(quotient.getRhs()) && !isUniform(quotient.getLhs())) {
      uniform = quotient.getRhs();
      rest = quotient.getLhs();
      factor += " / " + block.write(uniform).operand();
    } else {
      break;
    }
    hasFactor = true;
    positive &= isPositive(uniform);
  }
  if (hasFactor)
    factor = formulas.field(Level::Block, "scale", "float", factor);
  bool isFolded = rest == attention.dots.front().getResult() && positive && !attention.sink();
  FormulaWriter writer = elementWriter();
  std::string value = isFolded ? "dot" : writer.write(rest).operand() + " * " + factor;
  return "  // What a score is times this, is in units of log2(e).\n"
         "  static __device__ __forceinline__ float score_scale(const Block &block) {\n    return " +
         std::string(isFolded ? factor : "1.0f") + ";\n  }\n" +
         function(fmt::format("float score({})", elementParameters), writer, value);
}

std::string Emission::bound(const KeyBound &bound, FormulaWriter &writer) {
  auto both = [&](const char *name) {
    return fmt::format("{}({}, {})", name, this->bound(*bound.lhs, writer), this->bound(*bound.rhs, writer));
  };
  switch (bound.kind) {
  case KeyBound::Kind::Linear: {
    std::string sum = fmt::format("int64({})", bound.constant);
    for (auto [term, coefficient] : bound.terms) {
      std::string value = writer.write(term).operand();
      int64_t size = std::abs(coefficient);
      sum += coefficient < 0 ? " - " : " + ";
      sum += size == 1 ? value : fmt::format("int64({}) * {}", size, value);
    }
    return sum;
  }
  case KeyBound::Kind::Min:
    return both("smaller");
  case KeyBound::Kind::Max:
    return both("larger");
  case KeyBound::Kind::Guard:
    return fmt::format("int64({} ? keys : 0)", writer.write(bound.condition).operand());
  }
  llvm_unreachable("unknown kind of bound");
}

std::string Emission::maskFunctions() {
  std::string text;
  mlir::Value mask = attention.mask();
  FormulaWriter writer = elementWriter();
  std::string value = mask ? writer.write(mask).text : "true";
  text += function(fmt::format("bool mask({})", elementParameters), writer, value);
  if (!mask)
    return text;
  MaskRange range = maskRange(mask, mask.getParentRegion()->getArguments().back());
  FormulaWriter bounds(formulas, Level::Row, /*hasRow=*/false);
  std::string assignments;
  auto assign = [&](const char *member, const std::shared_ptr<const KeyBound> &limit) {
    if (limit)
      assignments += fmt::format("    range.{} = subscript({}, keys);\n", member, bound(*limit, bounds));
  };
  assign("possible.lower", range.possible.lower);
  assign("possible.upper", range.possible.upper);
  assign("certain.lower", range.certain.lower);
  assign("certain.upper", range.certain.upper);
  text += fmt::format("  // Keys outside of `possible` are masked, those inside of `certain` are not.\n"
                      "  static __device__ MaskRange mask_range(const Arguments &arguments, const Block &block, "
                      "int query, int keys) {{\n{}"
                      "    MaskRange range = {{{{0, keys}}, {{0, keys}}}};\n{}    return range;\n  }}\n",
                      bounds.statements(), assignments);
  return text;
}

std::string Emission::weightFunction() {
  FormulaWriter writer(formulas, Level::Element, /*hasRow=*/true);
  WeightedSumOp sum = attention.sum;
  writer.replace(attention.weight.getResult(), "weight");
  std::string value = writer.write(sum.getBody().front().getTerminator()->getOperand(0)).text;
  if (!sum.getWhere().empty())
    value = fmt::format("{} ? {} : 0.0f", writer.write(sum.getWhere().front().getTerminator()->getOperand(0)).operand(),
                        value);
  return function("float weight(const Arguments &arguments, const Block &block, const Row &row, float weight, "
                  "int query, int key)",
                  writer, value);
}

std::string Emission::sinkFunction() {
  FormulaWriter writer(formulas, Level::Row, /*hasRow=*/true);
  mlir::Value sink = attention.sink();
  std::string value = sink ? writer.write(sink).operand() + " * 1.44269504088896341f" : "lowest()";
  return function("float first_maximum(const Arguments &arguments, const Block &block, const Row &row, int query)",
                  writer, value);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// The addresses of rows of queries, keys and values, and whether they are multiples of 16 bytes.
std::string Emission::rowFunctions() {
  std::string text;
  auto add = [&](const char *name, const char *type, const char *index, Level level, ReadOp read) {
    FormulaWriter writer(formulas, level, /*hasRow=*/false);
    std::string address = writer.rowAddress(read);
    text += function(
        fmt::format("const {} *{}_row(const Arguments &arguments, const Block &block, int {})", type, name, index),
        writer, address);
  };
  add("query", "Query", "query", Level::Row, attention.query);
  add("key", "Query", "key", Level::Element, attention.key);
  add("value", "Value", "key", Level::Element, attention.value);
  return text;
}

/// Where element `position` of the sum's rows goes: what indexes the output's dimensions but the last `left`.
std::string Emission::outputFunctions() {
  ReturnOp outputs = attention.kernel.getReturn();
  auto place = [&](unsigned output, llvm::ArrayRef<mlir::Value> indices) {
    std::string tensor = "arguments." + formulas.output(output), text = tensor + ".data";
    if (indices.empty())
      return text;
    for (auto [dimension, index] : llvm::enumerate(indices))
      text += fmt::format(" + {} * {}.stride[{}]", formulas.index(index), tensor, dimension);
    return text;
  };
  WeightedSumOp sum = attention.sum;
  llvm::SmallVector<mlir::Value> rows(sum.getBody().getArguments().drop_back(2));
  std::string text = fmt::format("  static __device__ __forceinline__ Output *output_row(const Arguments &arguments, "
                                 "const Block &block, int query) {{\n    return {};\n  }}\n",
                                 place(attention.output, rows));
  std::string store;
  if (attention.logSumExp) {
    llvm::SmallVector<mlir::Value> subscripts(attention.weight.getSubscripts().drop_back());
    std::string type = elementType(outputs.getOutputType(*attention.logSumExp).getElementType());
    store = fmt::format("    *({}) = from_float<{}>(is_empty ? -infinity() : value);\n",
                        place(*attention.logSumExp, subscripts), type);
  }
  return text + fmt::format("  static __device__ __forceinline__ void store_log_sum_exp(const Arguments &arguments, "
                            "const Block &block, int query, float value, bool is_empty) {{\n{}  }}\n",
                            store);
}

/// What a launch is given: the tensors, as far as they are used, and the sizes.
std::string Emission::arguments() {
  KernelOp kernel = attention.kernel;
  std::string text = "  struct Arguments {\n";
  for (auto [number, parameter] : llvm::enumerate(kernel.getParameters())) {
    auto type = mlir::cast<AttnTensorType>(parameter.getType());
    std::string element = elementType(type.getElementType()), name = formulas.parameters[number];
    text += type.getRank() == 0 ? fmt::format("    {} {};\n", element, name)
                                : fmt::format("    Tensor<const {}, {}> {};\n", element, type.getRank(), name);
  }
  ReturnOp outputs = kernel.getReturn();
  for (unsigned number = 0; number < outputs.getOutputs().size(); ++number) {
    AttnTensorType type = outputs.getOutputType(number);
    text += fmt::format("    Tensor<{}, {}> {};\n", elementType(type.getElementType()), type.getRank(),
                        formulas.output(number));
  }
  std::string sizes;
  for (mlir::StringAttr name : kernel.getSizeNames())
    sizes += (sizes.empty() ? "" : ", ") + formulas.sizes.at(name.str());
  if (!sizes.empty())
    text += "    struct {\n      int " + sizes + ";\n    } size;\n";
  return text + "  };\n";
}

int64_t Emission::argumentBytes() {
  KernelOp kernel = attention.kernel;
  int64_t bytes = 0, alignment = 1;
  auto add = [&](int64_t size, int64_t count) {
    bytes = llvm::alignTo(bytes, size) + size * count;
    alignment = std::max(alignment, size);
  };
  auto addTensor = [&](AttnTensorType type) { add(8, 1 + type.getRank()); };
  for (mlir::Value parameter : kernel.getParameters()) {
    auto type = mlir::cast<AttnTensorType>(parameter.getType());
    if (type.getRank() == 0)
      add(llvm::divideCeil(type.getElementType().getIntOrFloatBitWidth(), 8), 1);
    else
      addTensor(type);
  }
  for (unsigned number = 0; number < kernel.getReturn().getOutputs().size(); ++number)
    addTensor(kernel.getReturn().getOutputType(number));
  add(4, kernel.getSizeNames().size());
  return llvm::alignTo(bytes, alignment);
}

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
  std::string functions = "\n  // The formulas of an element.\n" + scoreFunctions() + maskFunctions() +
                          weightFunction() + sinkFunction() + "\n  // Rows of the tensors.\n" + rowFunctions() +
                          outputFunctions();
  functions += fmt::format("  static __device__ __forceinline__ Row row(const Arguments &arguments, "
                           "const Block &block, int query) {{\n    Row row;\n{}    return row;\n  }}\n",
                           assignments(Level::Row));
  for (auto [part, read] :
       {std::pair("queries", attention.query), std::pair("keys", attention.key), std::pair("values", attention.value)})
    functions += fmt::format("  static __device__ __forceinline__ bool {}_aligned(const Arguments &arguments) {{ "
                             "return is_aligned({}); }}\n",
                             part, tensorOf(read));
  for (auto [part, size] :
       {std::pair("queries", indexSize(attention.queryIndex())), std::pair("keys", attention.sum.getKeySize()),
        std::pair("dot_width", attention.dotSize()), std::pair("value_width", attention.valueSize())})
    functions +=
        fmt::format("  static __device__ __forceinline__ int {}(const Arguments &arguments) {{ return {}; }}\n", part,
                    sizeText(size));
  std::string blocks = blockFunctions();
  if (!formulas.problem.empty())
    return llvm::createStringError(formulas.problem);
  int64_t bytes = argumentBytes();
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
      elementType(kernel.getReturn().getOutputType(attention.output).getElementType()), arguments(),
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
