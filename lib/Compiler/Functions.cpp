//===- Functions.cpp - The functions of a kernel, compiled in threads ------===//

#include "Functions.h"

#include "llvm/Support/ThreadPool.h"

using namespace attn;

/// Bitcode and what is made of it are tasks of their own, so that threads have as much to do where functions are few.
llvm::Expected<std::vector<std::string>>
attn::compileFunctions(const LoweredKernel &kernel, const std::string &prefix,
                       llvm::function_ref<llvm::Expected<std::string>(llvm::StringRef bitcode)> then) {
  std::vector<const HalideFunction *> functions = functionsOf(kernel);
  std::vector<std::optional<llvm::Expected<std::string>>> results(functions.size());
  auto lower = [&](size_t index) {
    results[index].emplace(functions[index]->bitcode(prefix + "_" + functions[index]->name()));
  };
  auto finish = [&](size_t index) {
    if (llvm::Expected<std::string> &result = *results[index]; result && then)
      result = then(*result);
  };
  if (functions.size() == 1) {
    lower(0);
    finish(0);
  } else {
    // The last step is mostly the attention itself, and its first variant that for few queries: they take longest.
    llvm::DefaultThreadPool threads(llvm::hardware_concurrency());
    size_t end = functions.size();
    for (const LoweredStep &step : llvm::reverse(kernel.steps)) {
      end -= step.variants.size();
      for (size_t index = end; index < end + step.variants.size(); ++index)
        threads.async([&, index] {
          lower(index);
          threads.async([&, index] { finish(index); });
        });
    }
    threads.wait();
  }
  std::vector<std::string> compiled;
  llvm::Error error = llvm::Error::success();
  for (std::optional<llvm::Expected<std::string>> &result : results) {
    if (*result)
      compiled.push_back(std::move(**result));
    else if (error)
      llvm::consumeError(result->takeError());
    else
      error = result->takeError();
  }
  if (error)
    return error;
  return compiled;
}
