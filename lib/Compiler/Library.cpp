//===- Library.cpp - A kernel for this process ----------------------------===//

#include "Library.h"

#include "Jit.h"

#include <atomic>

using namespace attn;

using Function = int (*)(void **);

// Of lib/Runtime: Error.c.
extern "C" int attn_fail(int code, const char *format, ...);

/// Whether a function is there. Threads that see that it is see its code.
static bool isMade(attn_variant &variant) {
  return std::atomic_ref<Function>(variant.function).load(std::memory_order_acquire) != attnUncompiled;
}

Library::Library(const attn_program &table, std::unique_ptr<LibraryParts> from)
    : attn_program(table), parts(std::move(from)), ownSteps(table.steps, table.steps + table.step_count) {
  for (attn_step &step : ownSteps) {
    const attn_variant *last = step.variants;
    while (last->limit)
      ++last;
    std::vector<attn_variant> &variants = ownVariants.emplace_back(step.variants, last + 1);
    step.variants = variants.data();
    for (attn_variant &variant : variants)
      if (variant.function) {
        numbers[&variant] = functions.size();
        functions.push_back(&variant);
      }
  }
  steps = ownSteps.data();
  prepare = prepareCall;
}

llvm::Expected<std::unique_ptr<Library>> Library::load(std::unique_ptr<LibraryParts> parts,
                                                       KernelInterface &interface) {
  llvm::Expected<std::string> object = parts->table();
  if (!object)
    return object.takeError();
  interface = parts->getInterface();
  llvm::Expected<void *> table = loadObject(*object, LibraryParts::tableSymbol.str());
  if (!table)
    return table.takeError();
  return std::unique_ptr<Library>(new Library(*static_cast<const attn_program *>(*table), std::move(parts)));
}

llvm::Error Library::make(llvm::ArrayRef<unsigned> needed) {
  auto missing = [&] {
    llvm::SmallVector<unsigned> numbers;
    llvm::copy_if(needed, std::back_inserter(numbers), [&](unsigned number) { return !isMade(*functions[number]); });
    return numbers;
  };
  if (missing().empty())
    return llvm::Error::success();
  std::lock_guard<std::mutex> lock(making);
  llvm::SmallVector<unsigned> numbers = missing();
  if (numbers.empty()) // another thread has made them
    return llvm::Error::success();
  llvm::Expected<std::vector<std::string>> objects = parts->functions(numbers);
  if (!objects)
    return objects.takeError();
  for (auto [number, object] : llvm::zip_equal(numbers, *objects)) {
    llvm::Expected<void *> function = loadObject(object, (LibraryParts::functionSymbol + "_argv").str());
    if (!function)
      return function.takeError();
    std::atomic_ref<Function>(functions[number]->function)
        .store(reinterpret_cast<Function>(*function), std::memory_order_release);
  }
  return llvm::Error::success();
}

llvm::Error Library::complete() { return make(llvm::to_vector(llvm::seq<unsigned>(0, functions.size()))); }

int Library::prepareCall(const attn_program *program, const int64_t *replaced, const int64_t *sizes) {
  auto *library = static_cast<Library *>(const_cast<attn_program *>(program));
  llvm::SmallVector<unsigned, 16> needed;
  for (int64_t step = 0; step < program->step_count; ++step) {
    if (replaced && replaced[step])
      continue;
    auto number = library->numbers.find(attn_choose_variant(&program->steps[step], sizes));
    if (number != library->numbers.end())
      needed.push_back(number->second);
  }
  if (llvm::Error error = library->make(needed))
    return attn_fail(cannotCompile, "%s", llvm::toString(std::move(error)).c_str());
  return 0;
}
