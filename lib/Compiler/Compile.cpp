//===- Compile.cpp - A source to kernels of this process, or to an object -===//
//
//   parse → interface → simplify → plan and lower → machine code → load, or write
//                     ↘ the cache on disk ────────────────────────↗
//
// A kernel of this process is declared by what comes before the first branch; the rest may wait until it runs.
//
//===----------------------------------------------------------------------===//

#include "DiskCache.h"
#include "Header.h"
#include "Jit.h"
#include "Kernel.h"
#include "Launch.h"
#include "Library.h"
#include "Object.h"
#include "Program.h"
#include "TuningDatabase.h"
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

/// A program's only kernel, or its checking kernel, in steps.
static llvm::Expected<LoweredProgram> simplifyAndLower(Program &program, const Machine &machine, bool checking) {
  if (llvm::Error error = program.simplify())
    return error;
  KernelOp kernel = program.kernels().front(); // passes may have replaced the kernel
  return program.lower(checking ? program.checkingKernel(kernel) : kernel, machine);
}

/// What a kernel counts beside its own outputs is added to those of `interface`.
static llvm::Expected<std::string> compileToLibrary(Program &program, KernelInterface &interface,
                                                    const Machine &machine, const std::string &function,
                                                    bool checking) {
  llvm::Expected<LoweredProgram> lowered = simplifyAndLower(program, machine, checking);
  if (!lowered)
    return lowered.takeError();
  for (const std::string &sum : lowered->steps.countedSums)
    interface.addOutput(sum + "_chunks", mlir::IntegerType::get(program.getModule().getContext(), 64), 3);
  size_t outputs = checking ? 2 * interface.bounds.size() : interface.outputs.size();
  ProgramInterface described = ProgramInterface::of(*lowered, interface, outputs, function);
  if (llvm::Error error = addLaunch(described, *lowered, interface))
    return error;
  return compileToLibrary(lowered->steps, described, function);
}

/// What runs the kernel or its checking kernel in this process, from the cache on disk where it is there and can be
/// loaded. One that counts is not kept there, because its lowering says what its outputs are.
static llvm::Expected<const attn_program *> loadOrCompile(Program &program, KernelInterface &interface,
                                                          const Machine &machine, std::string key, bool counts,
                                                          bool checking) {
  std::string function = checking ? halideCheckingFunction(interface.name) : halideFunction(interface.name);
  if (checking)
    key += "checking kernel";
  std::optional<DiskCache> cache = counts ? std::nullopt : DiskCache::open();
  if (std::optional<std::string> stored = cache ? cache->find(key) : std::nullopt) {
    llvm::Expected<const attn_program *> loaded = loadProgram(*stored, function + "_program");
    if (loaded)
      return loaded;
    llvm::consumeError(loaded.takeError());
  }
  llvm::Expected<std::string> library = compileToLibrary(program, interface, machine, function, checking);
  if (!library)
    return library.takeError();
  if (cache)
    cache->store(key, *library);
  return loadProgram(*library, function + "_program");
}

/// What runs a kernel in this process, or only what is wrong with it where its target is not of this machine.
static llvm::Expected<KernelPrograms> compilePrograms(Program &program, KernelInterface &interface,
                                                      const Machine &machine, bool counts, const std::string &key) {
  KernelPrograms programs;
  for (bool checking : {false, true}) {
    if (checking && interface.bounds.empty())
      continue;
    if (machine.runsHere) {
      llvm::Expected<const attn_program *> loaded = loadOrCompile(program, interface, machine, key, counts, checking);
      if (!loaded)
        return loaded.takeError();
      (checking ? programs.checking : programs.kernel) = *loaded;
    } else if (llvm::Expected<LoweredProgram> lowered = simplifyAndLower(program, machine, checking); !lowered) {
      return lowered.takeError();
    }
  }
  return programs;
}

/// The kernel of a source without errors, which compiles what runs when it is first asked for that. One that counts
/// chunks does so at once, because its lowering says what its outputs are.
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
  Kernel::Implementation::Compilation compilation;
  if (options.countChunks) {
    llvm::Expected<KernelPrograms> programs = compilePrograms(*program, *interface, *machine, /*counts=*/true, key);
    if (!programs)
      return programs.takeError();
    compilation = [programs = *programs] { return programs; };
  } else {
    compilation = [program, interface = *interface, machine = *machine, key]() mutable {
      return compilePrograms(*program, interface, machine, /*counts=*/false, key);
    };
  }
  options.kernel = interface->name;
  return std::make_shared<const Kernel::Implementation>(std::string(source), std::move(options), std::move(*interface),
                                                        std::move(compilation));
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
    kernel->compiled();
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
