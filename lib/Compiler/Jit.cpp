//===- Jit.cpp - Kernels in this process ----------------------------------===//
//
//   libc, libm ← Halide's runtime (one for the process) ← a library for each table and each function of a kernel
//
//===----------------------------------------------------------------------===//

#include "Jit.h"

#include "Embedded.h"
#include "attn/Compiler/Threads.h"
#include "attn/Runtime/Runtime.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"

#include <atomic>

using namespace attn;
using namespace llvm::orc;

// Of lib/Runtime: Error.c and Workspace.c.
extern "C" void halide_error(void *context, const char *text);
extern "C" void *halide_malloc(void *context, size_t size);
extern "C" void halide_free(void *context, void *block);
// Cuda.c.
extern "C" void *halide_cuda_get_symbol(void *context, const char *name);
extern "C" int attn_cuda_multiprocessors(void);
extern "C" int attn_cuda_tensor_map(void *map, uint64_t address, const uint64_t *extents, const uint64_t *strides,
                                    const uint32_t *box);
extern "C" int halide_cuda_acquire_context(void *user, void **context, bool create);
extern "C" int halide_cuda_release_context(void *user);
extern "C" int halide_cuda_get_stream(void *user, void *context, void **stream);
// OpenCl.c.
extern "C" void *halide_opencl_get_symbol(void *context, const char *name);
extern "C" int halide_acquire_cl_context(void *user, void **context, void **queue, bool create);
extern "C" int halide_release_cl_context(void *user);

namespace {

/// What all kernels of a process share.
struct Process {
  std::unique_ptr<LLJIT> jit;
  JITDylib *runtime = nullptr;
  std::atomic<int> libraries = 0;

  static llvm::Expected<Process *> create() {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    auto jit = LLJITBuilder().setPlatformSetUp(setUpInactivePlatform).create();
    if (!jit)
      return jit.takeError();
    auto process = std::make_unique<Process>();
    process->jit = std::move(*jit);
    process->runtime = &process->jit->getMainJITDylib();
    // Defined first, so that the weak definitions in Halide's runtime give way to them.
    SymbolMap ours;
    auto define = [&](llvm::StringRef name, auto *function) {
      ours[process->jit->mangleAndIntern(name)] = {ExecutorAddr::fromPtr(function), llvm::JITSymbolFlags::Exported};
    };
    define("attn_uncompiled_argv", &attnUncompiled);
    define("halide_error", &halide_error);
    define("halide_malloc", &halide_malloc);
    define("halide_free", &halide_free);
    define("halide_do_par_for", &attn_share_loop);
    define("halide_cuda_get_symbol", &halide_cuda_get_symbol);
    define("attn_cuda_multiprocessors", &attn_cuda_multiprocessors);
    define("attn_cuda_tensor_map", &attn_cuda_tensor_map);
    define("halide_cuda_acquire_context", &halide_cuda_acquire_context);
    define("halide_cuda_release_context", &halide_cuda_release_context);
    define("halide_cuda_get_stream", &halide_cuda_get_stream);
    define("halide_opencl_get_symbol", &halide_opencl_get_symbol);
    define("halide_acquire_cl_context", &halide_acquire_cl_context);
    define("halide_release_cl_context", &halide_release_cl_context);
    if (llvm::Error error = process->runtime->define(absoluteSymbols(std::move(ours))))
      return error;
    if (llvm::Error error = process->jit->addObjectFile(
            *process->runtime, llvm::MemoryBuffer::getMemBuffer(halideRuntimeObject(), "halide_runtime", false)))
      return error;
    llvm::Expected<ExecutorAddr> initialize = process->jit->lookup("attn_initialize_halide_runtime");
    if (!initialize)
      return initialize.takeError();
    initialize->toPtr<void()>()();
    auto parFor = process->jit->lookup("halide_default_do_par_for");
    if (!parFor)
      return parFor.takeError();
    auto threadCount = process->jit->lookup("halide_get_num_threads");
    if (!threadCount)
      return threadCount.takeError();
    if (!attn_halide_threads.par_for) // no language's runtime has threads
      attn_halide_threads = {parFor->toPtr<attn_halide_par_for>(), threadCount->toPtr<int()>()};
    return process.release();
  }

  /// Never destroyed: Halide's threads run in it.
  static llvm::Expected<Process *> get() {
    static llvm::Expected<Process *> process = create();
    if (process)
      return *process;
    return llvm::createStringError("this process cannot run kernels");
  }
};

} // namespace

int attn::attnUncompiled(void **) { return ATTN_ERROR_KERNEL; }

llvm::Expected<void *> attn::loadObject(const std::string &object, const std::string &symbol) {
  llvm::Expected<Process *> process = Process::get();
  if (!process)
    return process.takeError();
  LLJIT &jit = *(*process)->jit;
  llvm::Expected<JITDylib &> library = jit.createJITDylib("library" + std::to_string((*process)->libraries++));
  if (!library)
    return library.takeError();
  library->addToLinkOrder(*(*process)->runtime);
  if (llvm::Error error = jit.addObjectFile(*library, llvm::MemoryBuffer::getMemBufferCopy(object, symbol)))
    return error;
  llvm::Expected<ExecutorAddr> address = jit.lookup(*library, symbol);
  if (!address)
    return address.takeError();
  return address->toPtr<void *>();
}

/// A function of Halide's runtime in this process.
template <typename Function> static llvm::Expected<Function *> runtimeFunction(llvm::StringRef name) {
  llvm::Expected<Process *> process = Process::get();
  if (!process)
    return process.takeError();
  llvm::Expected<ExecutorAddr> address = (*process)->jit->lookup(name);
  if (!address)
    return address.takeError();
  return address->toPtr<Function *>();
}

llvm::Error attn::setHalideThreads(int threads) {
  auto set = runtimeFunction<int(int)>("halide_set_num_threads");
  if (!set)
    return set.takeError();
  auto get = runtimeFunction<int()>("halide_get_num_threads");
  if (!get)
    return get.takeError();
  (*set)(std::max(threads, 0));
  attn_use_threads(threads > 0 ? (*get)() : 0);
  return llvm::Error::success();
}

void attn::usePool(const attn_halide_pool &pool) { attn_halide_threads = pool; }
