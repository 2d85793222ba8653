//===- FunctionTable.cpp - The functions of a file ------------------------===//

#include "FunctionTable.h"
#include "Builtins.h"
#include "Lexer.h"

#include "llvm/Support/FormatVariadic.h"

using namespace attn::language;
using llvm::formatv;

FunctionTable::FunctionTable(const File &file, Diagnostics &diagnostics) {
  for (const Function &function : file.functions) {
    if (isSizeName(function.name))
      diagnostics.error(function.name, formatv("a function cannot be called `{0}`: names that begin with an upper-case "
                                               "letter are sizes",
                                               function.name));
    if (findBuiltin(function.name)) {
      diagnostics.error(function.name, formatv("`{0}` is a built-in function", function.name))
          .help("give the function another name");
      continue;
    }
    auto [entry, inserted] = functions.insert({function.name, &function});
    if (!inserted)
      diagnostics.error(function.name, formatv("function `{0}` is defined twice", function.name))
          .note(entry->first, "first defined here");
    for (size_t index = 0; index < function.parameters.size(); ++index) {
      StringRef name = function.parameters[index];
      if (isSizeName(name))
        diagnostics
            .error(name, formatv("a function's parameter cannot be called `{0}`: names that begin with an "
                                 "upper-case letter are sizes",
                                 name))
            .help(formatv("write `{0}`", name.lower()));
      for (size_t other = 0; other < index; ++other)
        if (function.parameters[other] == name)
          diagnostics.error(name, formatv("function `{0}` has two parameters named `{1}`", function.name, name))
              .note(function.parameters[other], "the first is here");
    }
  }
}

const Function *FunctionTable::findAnywhere(StringRef name) const {
  auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

const Function *FunctionTable::find(StringRef name, const char *place) const {
  const Function *function = findAnywhere(name);
  // A function is defined after the end of its line.
  return function && function->name.data() < place ? function : nullptr;
}

std::vector<StringRef> FunctionTable::names() const {
  std::vector<StringRef> names;
  for (const auto &entry : functions)
    names.push_back(entry.first);
  return names;
}
