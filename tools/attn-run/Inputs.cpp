//===- Inputs.cpp - The arrays that a kernel is run on --------------------===//

#include "Inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

using namespace attn;
using namespace attn::run;

std::string attn::run::describe(const TensorInfo &tensor) {
  std::string shape = tensor.shape.empty() ? "" : fmt::format("[{}]", fmt::join(tensor.shape, ", "));
  return fmt::format("{}: {}{}", tensor.name, tensor.dtype, shape);
}

template <typename Map>
static void checkNames(const std::vector<TensorInfo> &tensors, const Map &given, std::string_view what) {
  std::vector<std::string> names;
  for (const TensorInfo &tensor : tensors)
    names.push_back(tensor.name);
  for (const auto &entry : given)
    if (std::find(names.begin(), names.end(), entry.first) == names.end())
      throw Failure(fmt::format("the kernel has no {} '{}'; it has {}", what, entry.first, fmt::join(names, ", ")));
}

void attn::run::checkOutputNames(const std::vector<TensorInfo> &outputs, const Arguments &arguments) {
  checkNames(outputs, arguments.outputs, "output");
}

/// A scalar from the command line.
static Array makeScalar(const TensorInfo &parameter, const std::string &text) {
  const ElementType &type = ElementType::named(parameter.dtype);
  if (!parameter.shape.empty())
    throw Failure(fmt::format("{} is a tensor and needs a .npy file, but '{}' was given", describe(parameter), text));
  Array scalar(type, {});
  if (type.kind == ElementKind::Bool && (text == "true" || text == "false")) {
    scalar.set(0, static_cast<int64_t>(text == "true"));
    return scalar;
  }
  if (type.kind == ElementKind::Float) {
    if (std::optional<double> value = parseNumber(text)) {
      scalar.set(0, *value);
      return scalar;
    }
  } else if (std::optional<int64_t> value = parseInteger(text)) {
    int64_t most = type.kind == ElementKind::Bool ? 1 : type.name == "u8" ? 255 : INT64_MAX >> (64 - 8 * type.bytes);
    int64_t least = type.name == "u8" || type.kind == ElementKind::Bool ? 0 : -most - 1;
    if (*value >= least && *value <= most) {
      scalar.set(0, *value);
      return scalar;
    }
  }
  throw Failure(fmt::format("{} needs {}, but '{}' was given", describe(parameter),
                            type.kind == ElementKind::Float  ? "a number"
                            : type.kind == ElementKind::Bool ? "true or false"
                                                             : fmt::format("a whole number that fits {}", type.name),
                            text));
}

static Array readInput(const TensorInfo &parameter, const std::string &path) {
  Array array = readNpy(path);
  if (array.type().name != parameter.dtype)
    throw Failure(fmt::format("{}: expected {}, but {} holds {}", parameter.name, parameter.dtype, path,
                              array.type().name == "bf16" ? "u2 (bf16)" : array.type().name));
  return array;
}

static Array makeRandom(const TensorInfo &parameter, const RandomInput &random, int64_t largest, uint64_t seed) {
  Array array(ElementType::named(parameter.dtype), random.shape);
  std::optional<Range> range = random.range;
  if (array.type().kind == ElementKind::Integer) {
    if (!range)
      range = Range{1, static_cast<double>(largest)};
    if (range->low != std::floor(range->low) || range->high != std::floor(range->high))
      throw Failure(fmt::format("--random {}: expected whole numbers for {}, but found {}..{}", parameter.name,
                                parameter.dtype, range->low, range->high));
  }
  fillRandom(array, range, seed);
  return array;
}

std::vector<std::optional<Array>> attn::run::makeInputs(const std::vector<TensorInfo> &parameters,
                                                        const Arguments &arguments) {
  checkNames(parameters, arguments.inputs, "input");
  std::vector<std::optional<Array>> arrays(parameters.size());
  std::string missing;
  int64_t largest = 1;
  for (size_t index = 0; index < parameters.size(); ++index) {
    const TensorInfo &parameter = parameters[index];
    auto given = arguments.inputs.find(parameter.name);
    if (given == arguments.inputs.end()) {
      if (!parameter.defaultValue)
        missing += fmt::format("{}missing input {}; give it with --input or --random", missing.empty() ? "" : "\n",
                               describe(parameter));
      continue;
    }
    if (const auto *random = std::get_if<RandomInput>(&given->second)) {
      for (int64_t extent : random->shape)
        largest = std::max(largest, extent);
      continue;
    }
    const std::string &text = std::get<std::string>(given->second);
    bool isFile = text.size() > 4 && text.ends_with(".npy");
    arrays[index] = isFile ? readInput(parameter, text) : makeScalar(parameter, text);
    for (int64_t extent : arrays[index]->shape())
      largest = std::max(largest, extent);
  }
  if (!missing.empty())
    throw Failure(missing);
  // Each with a seed of its own, so that one array does not depend on which others are random.
  for (size_t index = 0; index < parameters.size(); ++index)
    if (auto given = arguments.inputs.find(parameters[index].name); given != arguments.inputs.end())
      if (const auto *random = std::get_if<RandomInput>(&given->second))
        arrays[index] = makeRandom(parameters[index], *random, largest, arguments.seed * 1000003 + index);
  return arrays;
}
