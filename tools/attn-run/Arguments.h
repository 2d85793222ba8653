//===- Arguments.h - The command line of attn-run ---------------*- C++ -*-===//

#ifndef ATTN_TOOLS_ATTNRUN_ARGUMENTS_H
#define ATTN_TOOLS_ATTNRUN_ARGUMENTS_H

#include "Array.h"

#include "attn/Compiler/Compiler.h"

#include <map>
#include <variant>

namespace attn::run {

/// `--random NAME=SHAPE[:LOW..HIGH]`
struct RandomInput {
  std::vector<int64_t> shape;
  std::optional<Range> range;
};

/// `--input NAME=FILE.npy` or `--input NAME=NUMBER`: the text after `=`.
using Input = std::variant<std::string, RandomInput>;

struct Arguments {
  std::string specification; ///< The path of the .attn file.
  CompileOptions options;
  std::map<std::string, Input> inputs;
  std::map<std::string, std::string> outputs; ///< Paths of .npy files by output name.
  std::optional<double> tolerance;
  std::optional<int> threads;
  uint64_t seed = 0;
  bool check = false;
  bool time = false;
  bool help = false;
};

/// Reads the command line, with `--option value` and `--option=value`. Throws Failure.
Arguments parseArguments(const std::vector<std::string> &words);

/// Whole numbers and floats that are nothing but that; nothing where `text` is something else or does not fit.
std::optional<int64_t> parseInteger(const std::string &text);
std::optional<double> parseNumber(const std::string &text);

extern const char *const helpText;

} // namespace attn::run

#endif // ATTN_TOOLS_ATTNRUN_ARGUMENTS_H
