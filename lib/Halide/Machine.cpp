//===- Machine.cpp - What a Halide target says of a processor --------------===//

#include "Implementation.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <thread>
#include <unistd.h>

using namespace attn;
using Halide::Target;

/// What drives the kernels of a target; an error where there is no one such device, or a GPU that we do not compile
/// for.
static llvm::Expected<Device> deviceOf(Target &target) {
  bool isCuda = target.has_feature(Target::CUDA), isOpenCl = target.has_feature(Target::OpenCL);
  if (isCuda && isOpenCl)
    return llvm::createStringError("the target " + target.to_string() + " has two devices: expected cuda or opencl");
  if (!isCuda && !isOpenCl && target.has_gpu_feature())
    return llvm::createStringError("the target " + target.to_string() +
                                   " has a device that kernels are not compiled for: expected cuda or opencl");
  // Long sums are added in f64.
  if (isOpenCl)
    target.set_feature(Target::CLDoubles);
  if (isCuda && !target.features_any_of({Target::CUDACapability70, Target::CUDACapability75, Target::CUDACapability80,
                                         Target::CUDACapability86}))
    return llvm::createStringError("the target " + target.to_string() +
                                   " needs one of cuda_capability_70, cuda_capability_75, cuda_capability_80 and "
                                   "cuda_capability_86");
  return isCuda ? Device::Cuda : isOpenCl ? Device::OpenCl : Device::Cpu;
}

/// Whether kernels are compiled for `target`'s features: instructions, and what they run on. Others of Halide change
/// what is generated (traces, mangled names), or are for other processors; its vectors of unknown length are not used.
static llvm::Error checkFeatures(const Target &target) {
  // clang-format off
  static constexpr Target::Feature known[] = {
      Target::SSE41, Target::AVX, Target::AVX2, Target::AVXVNNI, Target::FMA, Target::FMA4, Target::F16C, Target::AVX512,
      Target::AVX512_KNL, Target::AVX512_Skylake, Target::AVX512_Cannonlake, Target::AVX512_Zen4, Target::AVX512_Zen5,
      Target::AVX512_SapphireRapids, Target::AVX10_1, Target::X86APX,
      Target::NoNEON, Target::ARMDotProd, Target::ARMFp16, Target::ARMv8a, Target::ARMv81a, Target::ARMv82a,
      Target::ARMv83a, Target::ARMv84a, Target::ARMv85a, Target::ARMv86a, Target::ARMv87a, Target::ARMv88a, Target::ARMv89a,
      Target::CUDA, Target::CUDACapability30, Target::CUDACapability32, Target::CUDACapability35,
      Target::CUDACapability50, Target::CUDACapability61, Target::CUDACapability70, Target::CUDACapability75,
      Target::CUDACapability80, Target::CUDACapability86,
      Target::OpenCL, Target::CLDoubles, Target::CLHalf, Target::CLAtomics64};
  // clang-format on
  std::string text = target.to_string();
  for (int number = 0; number < Target::FeatureEnd; ++number) {
    auto feature = static_cast<Target::Feature>(number);
    if (target.has_feature(feature) && !llvm::is_contained(known, feature))
      return llvm::createStringError("the target " + text + " has a feature that kernels are not compiled for: " +
                                     Target::feature_to_name(feature));
  }
  if (target.vector_bits)
    return llvm::createStringError("the target " + text + " says how long vectors are: its instructions say that");
  return llvm::Error::success();
}

/// Takes the architectures out of the name of a target: "x86-64-linux-cuda-sm_80,sm_90a". Code for tensor cores needs
/// instructions of sm_80.
static llvm::Expected<std::vector<CudaArchitecture>> takeArchitectures(std::string &text) {
  std::vector<CudaArchitecture> architectures;
  llvm::SmallVector<llvm::StringRef> words, others;
  llvm::StringRef(text).split(words, '-');
  for (llvm::StringRef word : words) {
    if (!llvm::all_of(llvm::split(word, ','), [](llvm::StringRef name) { return name.starts_with("sm_"); })) {
      others.push_back(word);
      continue;
    }
    for (llvm::StringRef name : llvm::split(word, ',')) {
      CudaArchitecture architecture;
      llvm::StringRef number = name.drop_front(3);
      architecture.isExact = number.consume_back("a");
      if (number.getAsInteger(10, architecture.capability) || architecture.capability < 80)
        return llvm::createStringError("the target " + text +
                                       " has no tensor cores that kernels are compiled for in '" + name +
                                       "': expected sm_80 or later, such as sm_80,sm_90a");
      if (!llvm::is_contained(architectures, architecture))
        architectures.push_back(architecture);
    }
  }
  llvm::sort(architectures, [](const CudaArchitecture &a, const CudaArchitecture &b) {
    return std::pair(a.capability, a.isExact) > std::pair(b.capability, b.isExact);
  });
  text = llvm::join(others, "-");
  return architectures;
}

/// The newest devices that Halide compiles for which have no greater capability than those of `architectures`.
static void setCapability(Target &target, const std::vector<CudaArchitecture> &architectures) {
  if (!target.features_any_of(
          {Target::CUDACapability70, Target::CUDACapability75, Target::CUDACapability80, Target::CUDACapability86}))
    target.set_feature(architectures.back().capability >= 86 ? Target::CUDACapability86 : Target::CUDACapability80);
}

llvm::SmallVector<llvm::StringRef> attn::splitTargets(llvm::StringRef targets) {
  llvm::SmallVector<llvm::StringRef> found;
  for (llvm::StringRef part : llvm::split(targets, ','))
    if (part.starts_with("sm_") && !found.empty())
      found.back() = llvm::StringRef(found.back().begin(), part.end() - found.back().begin());
    else
      found.push_back(part);
  return found;
}

/// Whether a process of this machine can run code for `target`.
static bool canRunHere(const Target &target) {
  Target host = Halide::get_host_target();
  if (target.os != host.os || target.arch != host.arch || target.bits != host.bits)
    return false;
  for (Target::Feature feature :
       {Target::SSE41, Target::AVX, Target::F16C, Target::FMA, Target::AVX2, Target::AVX512, Target::AVX512_KNL,
        Target::AVX512_Skylake, Target::AVX512_Cannonlake, Target::AVX512_SapphireRapids, Target::AVX512_Zen4,
        Target::AVX512_Zen5, Target::AVXVNNI, Target::AVX10_1, Target::ARMDotProd, Target::ARMFp16})
    if (target.has_feature(feature) && !host.has_feature(feature))
      return false;
  return true;
}

/// `target` with the features that others imply, as Halide has them for a host: x86-64-linux-avx512_skylake has AVX2 and
/// 32 registers, too.
static Target withImplied(Target target) {
  auto imply = [&](Target::Feature given, std::initializer_list<Target::Feature> others) {
    for (Target::Feature other : others)
      if (target.has_feature(given))
        target.set_feature(other);
  };
  imply(Target::AVX512_SapphireRapids, {Target::AVX512_Cannonlake});
  imply(Target::AVX512_Zen5, {Target::AVX512_Zen4});
  imply(Target::AVX512_Zen4, {Target::AVX512_Cannonlake});
  imply(Target::AVX512_Cannonlake, {Target::AVX512_Skylake});
  imply(Target::AVX512_Skylake, {Target::AVX512});
  imply(Target::AVX512_KNL, {Target::AVX512});
  imply(Target::AVX512, {Target::AVX2});
  imply(Target::AVX2, {Target::AVX, Target::F16C, Target::FMA});
  imply(Target::AVX, {Target::SSE41});
  return target;
}

static llvm::Expected<Machine> describeMachine(llvm::StringRef given) {
  Target target;
  std::string text = given.str();
  llvm::Expected<std::vector<CudaArchitecture>> architectures = takeArchitectures(text);
  if (!architectures)
    return architectures.takeError();
  if (text == "host") {
    target = Halide::get_host_target();
  } else if (text == "opencl") {
    target = Halide::get_host_target().with_feature(Target::OpenCL);
  } else if (text == "cuda") {
    target = Halide::get_host_target().with_feature(Target::CUDA);
    if (architectures->empty())
      target.set_feature(Target::CUDACapability80);
  } else {
    if (!Target::validate_target_string(text))
      return llvm::createStringError("unknown target '" + given +
                                     "': expected host, cuda, opencl or a Halide target such as x86-64-linux-avx2-fma");
    target = Target(text);
    // MachineCode.cpp has LLVM's back ends for these.
    if (target.arch != Target::X86 && (target.arch != Target::ARM || target.bits != 64))
      return llvm::createStringError("kernels are not compiled for the processor of the target " + given +
                                     ": expected x86 or 64-bit ARM");
  }
  if (!architectures->empty() && !target.has_feature(Target::CUDA))
    return llvm::createStringError("the target " + given + " has " + architectures->front().name() +
                                   ", but not cuda: expected a target such as x86-64-linux-cuda-sm_80");
  if (!architectures->empty())
    setCapability(target, *architectures);
  llvm::Expected<Device> device = deviceOf(target);
  if (!device)
    return device.takeError();
  if (llvm::Error error = checkFeatures(target))
    return error;
  target = withImplied(target);
  Machine machine;
  machine.device = *device;
  machine.runsHere = text == "host" || canRunHere(target);
  machine.target = target.to_string();
  machine.tensorCores = std::move(*architectures);
  machine.vectorBytes = target.natural_vector_size<uint8_t>();
  bool many = target.arch == Target::ARM ? target.bits == 64 : target.has_feature(Target::AVX512);
  machine.vectorRegisters = many ? 32 : 16;
  // Intel's have the instruction as well, but a product of pairs takes more than four times as long as a multiply-add.
  machine.bf16Pairs = target.has_feature(Target::AVX512_Zen4) || target.has_feature(Target::AVX512_Zen5);
  machine.maskedLoads = target.has_feature(Target::AVX512_Skylake);
  // Zen 4 computes 512 bits in two halves.
  machine.multiplyAdds = target.has_feature(Target::AVX512_Zen4) && !target.has_feature(Target::AVX512_Zen5) ? 1 : 2;
  if (text == "host") {
    machine.cores = std::thread::hardware_concurrency();
    const int levels[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    for (auto [bytes, level] : llvm::zip_equal(machine.cacheBytes, levels))
      bytes = std::max(sysconf(level), 0L);
  }
  return machine;
}

llvm::Expected<Machine> attn::machineForTarget(llvm::StringRef given) {
  lowering::silenceHalide();
  try {
    return describeMachine(given);
  } catch (const Halide::Error &error) {
    return llvm::createStringError("the target " + given + " is none of Halide's: " + error.what());
  }
}
