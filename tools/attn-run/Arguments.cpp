//===- Arguments.cpp - The command line of attn-run -----------------------===//

#include "Arguments.h"

#include <fmt/format.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <functional>

using namespace attn::run;

const char *const attn::run::helpText =
    R"(Compiles a kernel of a .attn file, runs it on arrays, and prints, stores, checks or times what it gives.

usage: attn-run SPEC.attn --input NAME=VALUE... [OPTION...]

inputs (every parameter without a default needs one; element types must be the kernel's)
  --input NAME=FILE.npy       an array: little-endian f8 f4 f2 i8 i4 i1 u1 b1, or u2 for bf16
  --input NAME=NUMBER         a scalar
  --random NAME=SHAPE         random numbers, as in --random q=2x8x128x64: floats from the normal distribution,
                              bools fair, integers from 1 to the largest dimension of all inputs
  --random NAME=SHAPE:LOW..HIGH
                              uniform numbers, both bounds included, as in --random valid=4:1..9
  --seed N                    of the random numbers (0)

outputs (without --output, --check and --time they are printed)
  --output NAME=FILE.npy      stores an output; bf16 is stored as u2
  --check                     compares each output with the reference interpreter; exit status 1 when the worst error,
                              relative to the largest number of its row (the last dimension), exceeds the tolerance
  --tolerance X               instead of 1e-12 for f64, 1e-5 for f32 (2e-6 that a good kernel reaches, times 5 for long
                              sums), 2^-9 for f16, 2^-6 for bf16 (two units in the last place), 0 for integers
  --time                      runs for half a second, at least 3 times, and prints the median
  --threads N                 threads to run on; 0, the default, is one a core

compilation
  --kernel NAME               of a file with more than one
  --set NAME=INT              fixes a size at compile time
  --dtype f32|bf16|f16        instead of the source's own
  --plan NAME=INT             a size of the plan instead of the one that is chosen; attnc --plan=help lists them
  --check-bounds              data-dependent subscripts out of bounds are errors
  --count-chunks              one more output NAME_chunks for each tiled sum NAME: the chunks of keys visited, those of
                              them on which the mask was evaluated, and all there are; not with --check

  --help                      this text
)";

std::optional<int64_t> attn::run::parseInteger(const std::string &text) {
  char *end = nullptr;
  errno = 0;
  long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || std::isspace(static_cast<unsigned char>(text.front())) || *end || errno)
    return std::nullopt;
  return value;
}

std::optional<double> attn::run::parseNumber(const std::string &text) {
  char *end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  if (text.empty() || std::isspace(static_cast<unsigned char>(text.front())) || *end)
    return std::nullopt;
  return value;
}

namespace {

/// Splits `NAME=VALUE`.
std::pair<std::string, std::string> splitAssignment(const std::string &option, const std::string &text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Failure(fmt::format("{}: expected NAME=VALUE, but found '{}'", option, text));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

/// `2x8x64` or `4:1..9`
RandomInput parseRandom(const std::string &name, const std::string &text) {
  RandomInput random;
  size_t colon = text.find(':');
  std::string shape = text.substr(0, colon);
  for (size_t start = 0; start <= shape.size();) {
    size_t end = std::min(shape.find('x', start), shape.size());
    std::optional<int64_t> extent = parseInteger(shape.substr(start, end - start));
    if (!extent || *extent < 0)
      throw Failure(fmt::format("--random {}: expected a shape such as 2x8x64, but found '{}'", name, shape));
    random.shape.push_back(*extent);
    start = end + 1;
  }
  if (colon == std::string::npos)
    return random;
  std::string range = text.substr(colon + 1);
  size_t dots = range.find("..");
  if (dots != std::string::npos) {
    std::optional<double> low = parseNumber(range.substr(0, dots)), high = parseNumber(range.substr(dots + 2));
    if (low && high && *low <= *high && *low >= -0x1p53 && *high <= 0x1p53)
      random.range = Range{*low, *high};
  }
  if (!random.range)
    throw Failure(fmt::format("--random {}: expected a range LOW..HIGH, but found '{}'", name, range));
  return random;
}

int64_t parseCount(const std::string &option, const std::string &text, int64_t most) {
  std::optional<int64_t> value = parseInteger(text);
  if (!value || *value < 0 || *value > most)
    throw Failure(fmt::format("{}: expected a whole number from 0 to {}, but found '{}'", option, most, text));
  return *value;
}

template <typename Map>
void insertOnce(Map &map, const std::string &option, const std::string &name, typename Map::mapped_type value) {
  if (!map.emplace(name, std::move(value)).second)
    throw Failure(fmt::format("{}: '{}' is given twice", option, name));
}

} // namespace

Arguments attn::run::parseArguments(const std::vector<std::string> &words) {
  Arguments arguments;
  const std::map<std::string, bool *> flags = {{"--check", &arguments.check},
                                               {"--time", &arguments.time},
                                               {"--help", &arguments.help},
                                               {"--check-bounds", &arguments.options.checkBounds},
                                               {"--count-chunks", &arguments.options.countChunks}};
  using Setter = std::function<void(const std::string &option, const std::string &value)>;
  const std::map<std::string, Setter> options = {
      {"--input",
       [&](const std::string &option, const std::string &value) {
         auto [name, text] = splitAssignment(option, value);
         insertOnce(arguments.inputs, option, name, text);
       }},
      {"--random",
       [&](const std::string &option, const std::string &value) {
         auto [name, text] = splitAssignment(option, value);
         insertOnce(arguments.inputs, option, name, parseRandom(name, text));
       }},
      {"--output",
       [&](const std::string &option, const std::string &value) {
         auto [name, text] = splitAssignment(option, value);
         insertOnce(arguments.outputs, option, name, text);
       }},
      {"--set",
       [&](const std::string &option, const std::string &value) {
         auto [name, text] = splitAssignment(option, value);
         std::optional<int64_t> size = parseInteger(text);
         if (!size || *size < 0)
           throw Failure(fmt::format("--set {}: expected a whole number of at least 0, but found '{}'", name, text));
         insertOnce(arguments.options.sizes, option, name, *size);
       }},
      {"--plan",
       [&](const std::string &option, const std::string &value) {
         auto [name, text] = splitAssignment(option, value);
         std::optional<int64_t> size = parseInteger(text);
         if (!size)
           throw Failure(fmt::format("--plan {}: expected a whole number, but found '{}'", name, text));
         if (!arguments.options.plan)
           arguments.options.plan.emplace();
         insertOnce(*arguments.options.plan, option, name, *size);
       }},
      {"--tolerance",
       [&](const std::string &option, const std::string &value) {
         arguments.tolerance = parseNumber(value);
         if (!arguments.tolerance || !(*arguments.tolerance >= 0))
           throw Failure(fmt::format("{}: expected a number of at least 0, but found '{}'", option, value));
       }},
      {"--threads",
       [&](const std::string &option, const std::string &value) {
         arguments.threads = static_cast<int>(parseCount(option, value, 4096));
       }},
      {"--seed",
       [&](const std::string &option, const std::string &value) {
         arguments.seed = static_cast<uint64_t>(parseCount(option, value, INT64_MAX));
       }},
      {"--kernel", [&](const std::string &, const std::string &value) { arguments.options.kernel = value; }},
      {"--dtype",
       [&](const std::string &option, const std::string &value) {
         if (value != "f32" && value != "bf16" && value != "f16")
           throw Failure(fmt::format("{}: expected f32, bf16 or f16, but found '{}'", option, value));
         arguments.options.dtype = value;
       }},
  };

  for (size_t index = 0; index < words.size(); ++index) {
    const std::string &word = words[index];
    if (word.empty() || word.front() != '-') {
      if (!arguments.specification.empty())
        throw Failure(fmt::format("expected one .attn file, but found '{}' after '{}'", word, arguments.specification));
      arguments.specification = word;
      continue;
    }
    size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    if (auto flag = flags.find(name); flag != flags.end() && equals == std::string::npos) {
      *flag->second = true;
      continue;
    }
    auto option = options.find(name);
    if (option == options.end())
      throw Failure(fmt::format("unknown option '{}'; see attn-run --help", word));
    if (equals == std::string::npos && index + 1 == words.size())
      throw Failure(fmt::format("{} needs a value", name));
    option->second(name, equals == std::string::npos ? words[++index] : word.substr(equals + 1));
  }
  if (arguments.check && arguments.options.countChunks)
    throw Failure("--check compares with the reference, which counts no chunks: leave it or --count-chunks out");
  if (arguments.specification.empty() && !arguments.help)
    throw Failure("expected a .attn file; see attn-run --help");
  arguments.options.name = arguments.specification;
  return arguments;
}
