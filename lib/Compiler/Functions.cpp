//===- Functions.cpp - The functions of a kernel, compiled in threads ------===//

#include "Functions.h"

#include "llvm/Support/ThreadPool.h"

#include <map>

using namespace attn;

/// The numbers of functions, those that take longest first: the last step is mostly the attention itself, and its first
/// variant that for few queries.
static std::vector<unsigned> longestFirst(const LoweredKernel &kernel, llvm::ArrayRef<unsigned> numbers) {
  std::vector<unsigned> order;
  unsigned end = functionsOf(kernel).size();
  for (const LoweredStep &step : llvm::reverse(kernel.steps)) {
    unsigned first = end - step.variants.size();
    llvm::copy_if(numbers, std::back_inserter(order), [&](unsigned number) { return first <= number && number < end; });
    end = first;
  }
  return order;
}

/// Bitcode and what is made of it are tasks of their own, so that threads have as much to do where functions are few.
llvm::Expected<std::vector<std::string>>
attn::compileFunctions(const LoweredKernel &kernel, llvm::ArrayRef<unsigned> numbers,
                       llvm::function_ref<std::string(const HalideFunction &)> nameOf,
                       llvm::function_ref<llvm::Expected<std::string>(llvm::StringRef bitcode)> then) {
  const std::vector<const HalideFunction *> functions = functionsOf(kernel);
  std::map<std::string, unsigned> firstWithCode;
  llvm::SmallVector<unsigned> compiled;
  for (unsigned number : numbers)
    if (firstWithCode.try_emplace(functions[number]->code(), number).second)
      compiled.push_back(number);
  std::vector<std::optional<llvm::Expected<std::string>>> results(functions.size());
  auto lower = [&](unsigned number) {
    results[number].emplace(functions[number]->bitcode(nameOf(*functions[number])));
  };
  auto finish = [&](unsigned number) {
    if (llvm::Expected<std::string> &result = *results[number]; result && then)
      result = then(*result);
  };
  if (compiled.size() == 1) {
    lower(compiled.front());
    finish(compiled.front());
  } else {
    llvm::DefaultThreadPool threads(llvm::hardware_concurrency());
    for (unsigned number : longestFirst(kernel, compiled))
      threads.async([&, number] {
        lower(number);
        threads.async([&, number] { finish(number); });
      });
    threads.wait();
  }
  llvm::Error error = llvm::Error::success();
  for (unsigned number : compiled) {
    llvm::Expected<std::string> &result = *results[number];
    if (result)
      continue;
    if (error)
      llvm::consumeError(result.takeError());
    else
      error = result.takeError();
  }
  if (error)
    return error;
  std::vector<std::string> all;
  for (unsigned number : numbers)
    all.push_back(**results[firstWithCode.at(functions[number]->code())]);
  return all;
}
