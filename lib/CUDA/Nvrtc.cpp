//===- Nvrtc.cpp - CUDA C++ to machine code -------------------------------===//

#include "attn/CUDA/Nvrtc.h"
#include "attn/Runtime/Signature.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

using namespace attn;

//===----------------------------------------------------------------------===//
// The library
//===----------------------------------------------------------------------===//

namespace {

using Handle = struct Program *;

/// The functions of nvrtc.h; each returns 0 or an error.
struct Nvrtc {
  const char *(*getErrorString)(int error);
  int (*version)(int *major, int *minor);
  int (*getNumSupportedArchs)(int *count);
  int (*getSupportedArchs)(int *capabilities);
  int (*createProgram)(Handle *program, const char *text, const char *name, int headers, const char *const *contents,
                       const char *const *names);
  int (*destroyProgram)(Handle *program);
  int (*compileProgram)(Handle program, int count, const char *const *options);
  int (*getProgramLogSize)(Handle program, size_t *bytes);
  int (*getProgramLog)(Handle program, char *text);
  int (*getCubinSize)(Handle program, size_t *bytes);
  int (*getCubin)(Handle program, char *data);
  int (*getPtxSize)(Handle program, size_t *bytes);
  int (*getPtx)(Handle program, char *text);

  static llvm::Expected<Nvrtc> load();
};

} // namespace

/// NVRTC finds a second library by its name alone, so that it must be there already.
static void *openWithBuiltins(const std::string &path) {
  std::error_code error;
  if (llvm::StringRef folder = llvm::sys::path::parent_path(path); !folder.empty())
    for (llvm::sys::fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error))
      if (llvm::sys::path::filename(file->path()).starts_with("libnvrtc-builtins.so"))
        dlopen(file->path().c_str(), RTLD_NOW);
  return dlopen(path.c_str(), RTLD_NOW);
}

static llvm::Expected<void *> openNvrtc() {
  if (const char *path = std::getenv("ATTN_NVRTC"); path && *path) {
    if (void *library = openWithBuiltins(path))
      return library;
    return llvm::createStringError(fmt::format("the variable ATTN_NVRTC names no library that can be loaded, which "
                                               "kernels for tensor cores need to be compiled: {}",
                                               dlerror()));
  }
  for (const char *folder : {"", "/usr/local/cuda/lib64/"})
    for (const char *name : {"libnvrtc.so.13", "libnvrtc.so.12"})
      if (void *library = openWithBuiltins(std::string(folder) + name))
        return library;
  return llvm::createStringError("kernels for tensor cores are compiled by NVRTC, but libnvrtc.so.13 cannot be loaded: "
                                 "pip install nvidia-cuda-nvrtc, and let the variable ATTN_NVRTC name its "
                                 "libnvrtc.so.13");
}

llvm::Expected<Nvrtc> Nvrtc::load() {
  llvm::Expected<void *> library = openNvrtc();
  if (!library)
    return library.takeError();
  Nvrtc nvrtc;
  std::string missing;
  auto find = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(*library, name));
    if (!function && missing.empty())
      missing = name;
  };
  find(nvrtc.getErrorString, "nvrtcGetErrorString");
  find(nvrtc.version, "nvrtcVersion");
  find(nvrtc.getNumSupportedArchs, "nvrtcGetNumSupportedArchs");
  find(nvrtc.getSupportedArchs, "nvrtcGetSupportedArchs");
  find(nvrtc.createProgram, "nvrtcCreateProgram");
  find(nvrtc.destroyProgram, "nvrtcDestroyProgram");
  find(nvrtc.compileProgram, "nvrtcCompileProgram");
  find(nvrtc.getProgramLogSize, "nvrtcGetProgramLogSize");
  find(nvrtc.getProgramLog, "nvrtcGetProgramLog");
  find(nvrtc.getCubinSize, "nvrtcGetCUBINSize");
  find(nvrtc.getCubin, "nvrtcGetCUBIN");
  find(nvrtc.getPtxSize, "nvrtcGetPTXSize");
  find(nvrtc.getPtx, "nvrtcGetPTX");
  if (missing.empty())
    return nvrtc;
  return llvm::createStringError("NVRTC has no function " + missing + ": expected version 12 or later");
}

//===----------------------------------------------------------------------===//
// Compilation
//===----------------------------------------------------------------------===//

/// Fails where NVRTC does not know one of the architectures.
static llvm::Error checkArchitectures(const Nvrtc &nvrtc, const std::vector<CudaArchitecture> &architectures) {
  int count = 0, major = 0, minor = 0;
  nvrtc.getNumSupportedArchs(&count);
  std::vector<int> capabilities(count);
  nvrtc.getSupportedArchs(capabilities.data());
  nvrtc.version(&major, &minor);
  for (const CudaArchitecture &architecture : architectures)
    if (!llvm::is_contained(capabilities, int(architecture.capability)))
      return llvm::createStringError(fmt::format("NVRTC {}.{} does not compile for {}: it does for sm_{}", major, minor,
                                                 architecture.name(), fmt::join(capabilities, ", sm_")));
  return llvm::Error::success();
}

static llvm::Expected<Nvrtc> loadFor(const std::vector<CudaArchitecture> &architectures) {
  llvm::Expected<Nvrtc> nvrtc = Nvrtc::load();
  if (nvrtc)
    if (llvm::Error error = checkArchitectures(*nvrtc, architectures))
      return error;
  return nvrtc;
}

/// What two functions of NVRTC give: the size first.
template <typename Size, typename Data> static std::string fetch(Handle program, Size size, Data data) {
  size_t bytes = 0;
  if (size(program, &bytes))
    return "";
  std::string text(bytes, '\0');
  return data(program, text.data()) ? "" : text;
}

/// `architecture` is one of a machine, or virtual: compute_80.
static llvm::Expected<std::string> compile(const Nvrtc &nvrtc, const std::string &text, const std::string &name,
                                           const std::string &architecture) {
  Handle program = nullptr;
  std::string option = "--gpu-architecture=" + architecture;
  // Lambdas are the device's.
  const char *options[] = {option.c_str(), "--device-as-default-execution-space", "--std=c++17"};
  int error = nvrtc.createProgram(&program, text.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr);
  if (!error)
    error = nvrtc.compileProgram(program, std::size(options), options);
  bool isVirtual = llvm::StringRef(architecture).starts_with("compute_");
  std::string code, log;
  if (!error)
    code =
        isVirtual ? fetch(program, nvrtc.getPtxSize, nvrtc.getPtx) : fetch(program, nvrtc.getCubinSize, nvrtc.getCubin);
  else if (program)
    log = fetch(program, nvrtc.getProgramLogSize, nvrtc.getProgramLog);
  if (program)
    nvrtc.destroyProgram(&program);
  if (!code.empty())
    return code;
  log.erase(log.find_last_not_of(std::string("\n\0", 2)) + 1);
  return llvm::createStringError(fmt::format("NVRTC cannot compile {} for {}: {}{}{}", name, architecture,
                                             error ? nvrtc.getErrorString(error) : "it gave no code",
                                             log.empty() ? "" : "\n", log));
}

llvm::Expected<std::vector<CudaImage>> attn::compileCuda(const std::string &text, const std::string &name,
                                                         const std::vector<CudaArchitecture> &architectures,
                                                         bool forLater) {
  llvm::Expected<Nvrtc> nvrtc = loadFor(architectures);
  if (!nvrtc)
    return nvrtc.takeError();
  std::vector<CudaImage> images;
  unsigned newest = 0;
  for (const CudaArchitecture &architecture : architectures) {
    llvm::Expected<std::string> code = compile(*nvrtc, text, name, architecture.name());
    if (!code)
      return code.takeError();
    images.push_back(
        {architecture.capability, architecture.isExact ? ATTN_IMAGE_EXACT_CUBIN : ATTN_IMAGE_CUBIN, std::move(*code)});
    newest = std::max(newest, architecture.capability);
  }
  if (!forLater)
    return images;
  llvm::Expected<std::string> code = compile(*nvrtc, text, name, "compute_" + std::to_string(newest));
  if (!code)
    return code.takeError();
  images.push_back({newest, ATTN_IMAGE_PTX, std::move(*code)});
  return images;
}

llvm::Expected<std::string> attn::ptxOfCuda(const std::string &text, const std::string &name,
                                            const CudaArchitecture &architecture) {
  llvm::Expected<Nvrtc> nvrtc = loadFor({architecture});
  if (!nvrtc)
    return nvrtc.takeError();
  llvm::Expected<std::string> ptx = compile(*nvrtc, text, name, "compute_" + architecture.name().substr(3)); // sm_90a
  if (ptx)
    ptx->erase(ptx->find_last_not_of('\0') + 1);
  return ptx;
}
