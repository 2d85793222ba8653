//===- Compile.cpp - A source to kernels of this process, or to an object -===//
//
//   parse → interface → simplify → plan and lower → table → machine code → load, or write
//                     ↘ the cache on disk ────────↗     ↘ the cache ↗
//
// A kernel of this process is declared by what comes before the first branch; the rest may wait until it runs, and the
// machine code of each function until a call needs it.
//
//===----------------------------------------------------------------------===//

#include "Header.h"
#include "Jit.h"
#include "Kernel.h"
#include "Object.h"
#include "Program.h"
#include "TuningDatabase.h"
#include "attn/Plan/Settings.h"
#include "attn/Runtime/ThreadPool.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"

#include <fmt/format.h>
#include <future>
#include <mutex>
#include <unordered_map>

using namespace attn;

using Shared = std::shared_ptr<const Kernel::Implementation>;

/// The bytes of a file; none where it cannot be read, which is reported where it is used.
static std::string contentOf(const std::string &path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  return file ? (*file)->getBuffer().str() : "";
}

/// Text that two compilations have in common only if they give the same kernel. Each part is preceded by its length.
static std::string cacheKey(std::string_view source, const CompileOptions &options) {
  std::string key;
  auto add = [&](std::string_view part) { key += fmt::format("{}:{}", part.size(), part); };
  for (std::string_view part : {source, std::string_view(options.kernel), std::string_view(options.target),
                                std::string_view(options.dtype), std::string_view(options.name)})
    add(part);
  for (const auto &[name, value] : options.sizes)
    add(fmt::format("{}={}", name, value));
  add(options.checkBounds ? "checked" : "");
  add(options.countChunks ? "counted" : "");
  add(options.copy ? "copied" : "");
  if (options.gradient) {
    add("gradient");
    for (const std::string &input : *options.gradient)
      add(input);
    add("");
  }
  if (!options.plan) {
    std::string path = TuningDatabase::path();
    add("database");
    add(path.empty() ? "" : contentOf(path));
    return key;
  }
  for (const auto &[name, value] : *options.plan)
    add(fmt::format("{}={}", name, value));
  return key;
}

/// What runs a kernel in this process; only what is wrong with it where its target is not of this machine. What a
/// kernel counts beside its own outputs is added to those of `interface`.
static llvm::Expected<KernelLibraries> loadLibraries(const std::shared_ptr<Program> &program, std::string_view source,
                                                     const CompileOptions &options, KernelInterface &interface,
                                                     const Machine &machine, const std::string &key) {
  KernelLibraries libraries;
  for (bool checking : {false, true}) {
    if (checking && interface.bounds.empty())
      continue;
    auto parts =
        std::make_unique<LibraryParts>(program, std::string(source), options, interface, machine, key, checking);
    if (!machine.runsHere) {
      if (llvm::Error error = parts->lower())
        return error;
      continue;
    }
    llvm::Expected<std::unique_ptr<Library>> library = Library::load(std::move(parts), interface);
    if (!library)
      return library.takeError();
    (checking ? libraries.checking : libraries.kernel) = std::move(*library);
  }
  return libraries;
}

/// The kernel of a source without errors, which loads what runs when it is first asked for that. One that counts chunks
/// does so at once, because its lowering says what its outputs are.
static llvm::Expected<Shared> declareKernel(std::string_view source, CompileOptions options, const std::string &key) {
  auto program = std::make_shared<Program>(source, options);
  if (llvm::Error error = program->parse())
    return error;
  llvm::Expected<KernelOp> only = program->onlyKernel();
  if (!only)
    return only.takeError();
  llvm::Expected<KernelInterface> interface = program->interfaceOf(*only);
  if (!interface)
    return interface.takeError();
  llvm::Expected<Machine> machine = machineForTarget(options.target);
  if (!machine)
    return machine.takeError();
  if (options.plan)
    if (llvm::Error error = checkSettings(*options.plan))
      return error;
  options.kernel = interface->name;
  Kernel::Implementation::Load load = [program, source = std::string(source), options, interface = *interface,
                                       machine = *machine, key]() mutable {
    return loadLibraries(program, source, options, interface, machine, key);
  };
  if (options.countChunks) {
    llvm::Expected<KernelLibraries> libraries = loadLibraries(program, source, options, *interface, *machine, key);
    if (!libraries)
      return libraries.takeError();
    auto loaded = std::make_shared<KernelLibraries>(std::move(*libraries));
    load = [loaded]() -> llvm::Expected<KernelLibraries> { return std::move(*loaded); };
  }
  return std::make_shared<const Kernel::Implementation>(std::string(source), std::move(options), std::move(*interface),
                                                        std::move(load));
}

namespace {
/// The kernels of this process that are, or are to be, compiled.
class KernelCache {
public:
  /// Declares the kernel where it is not there. Threads that ask for the same one at once wait for one of them.
  Shared get(const std::string &key, std::string_view source, const CompileOptions &options) {
    std::promise<Shared> promise;
    {
      std::unique_lock<std::mutex> lock(mutex);
      auto [entry, isNew] = kernels.try_emplace(key);
      if (!isNew) {
        std::shared_future<Shared> result = entry->second;
        lock.unlock();
        return result.get();
      }
      entry->second = promise.get_future().share();
    }
    llvm::Expected<Shared> declared = declareKernel(source, options, key);
    if (declared) {
      promise.set_value(*declared);
      return *declared;
    }
    CompileError error(llvm::toString(declared.takeError()));
    promise.set_exception(std::make_exception_ptr(error));
    drop(key);
    throw error;
  }

  /// What failed is tried again when it is asked for again.
  void drop(const std::string &key) {
    std::lock_guard<std::mutex> lock(mutex);
    kernels.erase(key);
  }

private:
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_future<Shared>> kernels;
};
} // namespace

static KernelCache &kernelCache() {
  static KernelCache cache;
  return cache;
}

Kernel attn::compileLazily(std::string_view source, const CompileOptions &options) {
  return Kernel(kernelCache().get(cacheKey(source, options), source, options));
}

Kernel attn::compile(std::string_view source, const CompileOptions &options) {
  std::string key = cacheKey(source, options);
  Shared kernel = kernelCache().get(key, source, options);
  try {
    kernel->complete();
  } catch (const CompileError &) {
    kernelCache().drop(key);
    throw;
  }
  return Kernel(std::move(kernel));
}

static llvm::Expected<ObjectFile> compileObject(std::string_view source, const CompileOptions &options,
                                                const std::string &headerName, bool runtime) {
  Program program(source, options);
  if (llvm::Error error = program.parse())
    return error;
  std::vector<KernelInterface> interfaces;
  for (KernelOp kernel : program.kernels()) {
    llvm::Expected<KernelInterface> interface = program.interfaceOf(kernel);
    if (!interface)
      return interface.takeError();
    interfaces.push_back(std::move(*interface));
  }
  llvm::Expected<std::string> header = writeHeader(interfaces, headerName);
  if (!header)
    return llvm::createStringError(options.name + ": error: " + llvm::toString(header.takeError()));
  if (llvm::Error error = program.simplify())
    return error;
  llvm::Expected<std::vector<Machine>> machines = machinesForTargets(options.target);
  if (!machines)
    return machines.takeError();
  ObjectFile file{"", std::move(*header), {}};
  ObjectBuilder builder(*machines, runtime);
  for (auto [kernel, interface] : llvm::zip_equal(program.kernels(), interfaces)) {
    std::vector<LoweredProgram> lowered, checking;
    for (const Machine &machine : *machines) {
      llvm::Expected<LoweredProgram> forMachine = program.lower(kernel, machine);
      if (!forMachine)
        return forMachine.takeError();
      lowered.push_back(std::move(*forMachine));
      if (interface.bounds.empty())
        continue;
      llvm::Expected<LoweredProgram> check = program.lower(program.checkingKernel(kernel), machine);
      if (!check)
        return check.takeError();
      checking.push_back(std::move(*check));
    }
    if (llvm::Error error = builder.add(lowered, checking, interface, options.target))
      return error;
    file.kernels.push_back(interface.name);
  }
  llvm::Expected<std::string> object = builder.finish();
  if (!object)
    return object.takeError();
  file.object = std::move(*object);
  return file;
}

ObjectFile attn::compileToObject(std::string_view source, const CompileOptions &options, const std::string &headerName,
                                 bool runtime) {
  llvm::Expected<ObjectFile> file = compileObject(source, options, headerName, runtime);
  if (!file)
    throw CompileError(llvm::toString(file.takeError()));
  return std::move(*file);
}

void attn::setNumThreads(int threads) {
  if (llvm::Error error = setHalideThreads(threads))
    throw std::runtime_error(llvm::toString(std::move(error)));
}

void attn::setThreadPool(attn_parallel_for parallelFor, void *pool) { attn_use_thread_pool(parallelFor, pool); }
