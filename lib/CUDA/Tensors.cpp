//===- Tensors.cpp - The tensors of a launch, and where their rows are ----===//

#include "Members.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace attn;
using namespace attn::cuda;

/// The addresses of rows of queries, keys and values.
static std::string rowFunctions(Formulas &formulas) {
  std::string text;
  auto add = [&](const char *name, const char *type, const char *index, Level level, ReadOp read) {
    FormulaWriter writer(formulas, level, /*hasRow=*/false, /*hasPlace=*/level == Level::Element);
    std::string address = writer.rowAddress(read);
    text += writer.function(
        fmt::format("const {} *{}_row(const Arguments &arguments, const Block &block, {})", type, name, index),
        address);
  };
  add("query", "Query", "const Position &at", Level::Row, formulas.attention.query);
  add("key", "Query", "const KeyPlace &place, int key", Level::Element, formulas.attention.key);
  add("value", "Value", "const KeyPlace &place, int key", Level::Element, formulas.attention.value);
  return text;
}

/// Whether it is equally far from each key to the next one.
static std::string linesOfKeys(const Formulas &formulas) {
  std::string text;
  for (auto [name, read] : {std::pair("keys", formulas.attention.key), {"values", formulas.attention.value}})
    text += fmt::format("  static constexpr bool {}_in_line = {};\n", name, formulas.isInLine(read));
  return text;
}

/// What says where a key is, for all that copy it.
static std::string placeFunctions(const Formulas &formulas) {
  std::string found, ofLane;
  for (const Field &field : formulas.fields(Level::Key)) {
    found += fmt::format("    place.{} = {};\n", field.name, field.value);
    ofLane += fmt::format("{}shuffle_from(place.{}, lane)", ofLane.empty() ? "" : ", ", field.name);
  }
  return fmt::format(
      "  static __device__ __forceinline__ KeyPlace place(const Arguments &arguments, const Block &block, "
      "int key) {{\n    KeyPlace place;\n{}    return place;\n  }}\n"
      "  static __device__ __forceinline__ KeyPlace place_of_lane(const KeyPlace &place, int lane) {{ "
      "return {{{}}}; }}\n",
      found, ofLane);
}

/// The address of a row of the output, and what stores a query's log-sum-exp.
static std::string outputFunctions(const Formulas &formulas) {
  Attention &attention = formulas.attention;
  auto place = [&](mlir::Value output, llvm::ArrayRef<mlir::Value> indices) {
    std::string tensor = formulas.tensor(output), text = tensor + ".data";
    if (indices.empty())
      return text;
    for (auto [dimension, index] : llvm::enumerate(indices))
      text += fmt::format(" + {} * {}.stride[{}]", formulas.index(index), tensor, dimension);
    return text;
  };
  WeightedSumOp sum = attention.sum;
  llvm::SmallVector<mlir::Value> rows(sum.getBody().getArguments().drop_back(2));
  std::string text = fmt::format("  static __device__ __forceinline__ Output *output_row(const Arguments &arguments, "
                                 "const Block &block, const Position &at) {{\n    return {};\n  }}\n",
                                 place(sum.getResult(), rows));
  std::string store;
  if (mlir::Value logSumExp = attention.logSumExp()) {
    llvm::SmallVector<mlir::Value> subscripts(attention.weight.getSubscripts().drop_back());
    store = fmt::format("    *({}) = from_float<{}>(is_empty ? -infinity() : value);\n", place(logSumExp, subscripts),
                        elementType(attention.elementOf(logSumExp)));
  }
  return text + fmt::format("  static __device__ __forceinline__ void store_log_sum_exp(const Arguments &arguments, "
                            "const Block &block, const Position &at, float value, bool is_empty) {{\n{}  }}\n",
                            store);
}

std::string cuda::rowsOfTensors(Formulas &formulas) {
  std::string rows = rowFunctions(formulas); // which says what a place has
  return "\n  // Rows of the tensors.\n" + rows + linesOfKeys(formulas) + placeFunctions(formulas) +
         outputFunctions(formulas);
}

std::string cuda::placesOfKeys(Formulas &formulas, std::vector<CudaTensorMap> &maps) {
  Attention &attention = formulas.attention;
  std::string text;
  for (auto [name, read, width] :
       {std::tuple("key", attention.key, attention.dotSize()), {"value", attention.value, attention.valueSize()}}) {
    FormulaWriter writer(formulas, Level::Element, /*hasRow=*/false);
    std::vector<std::string> place = writer.place(read);
    if (place.empty() || read.getTensor().getType().getShape().back() != width) {
      maps.clear();
      return {};
    }
    maps.push_back({read.getTensor(), unsigned(llvm::find(place, "key") - place.begin()) + 1});
    text +=
        writer.function(fmt::format("Place {}_place(const Arguments &arguments, const Block &block, int key)", name),
                        fmt::format("{{{{{}}}}}", fmt::join(place, ", ")));
  }
  return text;
}

std::string cuda::argumentStruct(const Formulas &formulas, bool hasMaps) {
  Attention &attention = formulas.attention;
  std::string text = "  struct Arguments {\n";
  for (mlir::Value tensor : attention.tensors()) {
    std::string element = elementType(attention.elementOf(tensor)), name = formulas.tensors.lookup(tensor);
    unsigned rank = mlir::cast<AttnTensorType>(tensor.getType()).getRank();
    bool isInput = llvm::is_contained(attention.inputs, tensor);
    text += Attention::isValue(tensor)
                ? fmt::format("    {} {};\n", element, name)
                : fmt::format("    Tensor<{}{}, {}> {};\n", isInput ? "const " : "", element, rank, name);
  }
  std::string sizes;
  for (mlir::StringAttr name : attention.kernel.getSizeNames())
    sizes += (sizes.empty() ? "" : ", ") + formulas.sizes.at(name.str());
  if (!sizes.empty())
    text += "    struct {\n      int " + sizes + ";\n    } size;\n";
  return text + "    Parts parts;\n" + (hasMaps ? "    TensorMaps maps;\n" : "") + "  };\n";
}

int64_t cuda::argumentBytes(Attention &attention, bool hasMaps) {
  int64_t bytes = 0, alignment = 1;
  auto add = [&](int64_t size, int64_t count) {
    bytes = llvm::alignTo(bytes, size) + size * count;
    alignment = std::max(alignment, size);
  };
  for (mlir::Value tensor : attention.tensors())
    if (Attention::isValue(tensor))
      add(llvm::divideCeil(attention.elementOf(tensor).getIntOrFloatBitWidth(), 8), 1);
    else
      add(8, 1 + mlir::cast<AttnTensorType>(tensor.getType()).getRank());
  add(4, attention.kernel.getSizeNames().size());
  add(8, 1); // the parts of keys: where their states go, and how many there are
  add(4, 1);
  if (hasMaps)
    add(64, 5); // two maps of 128 bytes, and whether they are valid
  return llvm::alignTo(bytes, alignment);
}
