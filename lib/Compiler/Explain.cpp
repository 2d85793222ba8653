//===- Explain.cpp - What the passes did, in words ------------------------===//

#include "Program.h"

#include "attn/Analysis/Cost.h"
#include "attn/Transforms/Passes.h"

#include <fmt/format.h>

using namespace attn;

static std::string costText(KernelOp kernel) {
  Cost cost = costOf(kernel);
  return fmt::format("    flops  {}\n    calls  {}\n    bytes  {}\n", cost.flops.str(), cost.calls.str(),
                     cost.bytes.str());
}

static llvm::Expected<std::string> explanation(std::string_view source, const CompileOptions &options) {
  Program program(source, options);
  if (llvm::Error error = program.parse())
    return error;
  llvm::StringMap<std::string> before;
  for (KernelOp kernel : program.kernels())
    before[kernel.getSymName()] = costText(kernel);
  std::vector<Rewrite> rewrites;
  collectRewrites(*program.getModule().getContext(), rewrites);
  if (llvm::Error error = program.simplify())
    return error;
  std::string text;
  for (KernelOp kernel : program.kernels()) {
    llvm::StringRef name = kernel.getSymName();
    text += fmt::format("{}{}\n  as written\n{}", text.empty() ? "" : "\n", name.str(), before[name]);
    for (const Rewrite &rewrite : rewrites)
      if (rewrite.kernel == name)
        text += fmt::format("  {}: {}\n", rewrite.name, rewrite.text);
    text += fmt::format("  as compiled\n{}", costText(kernel));
  }
  return text;
}

std::string attn::explain(std::string_view source, const CompileOptions &options) {
  llvm::Expected<std::string> text = explanation(source, options);
  if (!text)
    throw CompileError(llvm::toString(text.takeError()));
  return std::move(*text);
}
