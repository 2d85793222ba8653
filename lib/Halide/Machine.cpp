//===- Machine.cpp - What a Halide target says of a processor --------------===//

#include "attn/Halide/Lowering.h"

#include "Halide.h"
#include "llvm/ADT/STLExtras.h"

#include <thread>
#include <unistd.h>

using namespace attn;
using Halide::Target;

llvm::Expected<Machine> attn::machineForTarget(llvm::StringRef text) {
  Target target;
  if (text == "host") {
    target = Halide::get_host_target();
  } else {
    if (!Target::validate_target_string(text.str()))
      return llvm::createStringError("unknown target '" + text +
                                     "': expected host or a Halide target such as x86-64-linux-avx2-fma");
    target = Target(text.str());
  }
  Machine machine;
  machine.target = target.to_string();
  machine.vectorBytes = target.natural_vector_size<uint8_t>();
  bool many = target.arch == Target::ARM ? target.bits == 64 : target.has_feature(Target::AVX512);
  machine.vectorRegisters = many ? 32 : 16;
  machine.bf16Pairs = target.has_feature(Target::AVX512_Zen4) || target.has_feature(Target::AVX512_Zen5) ||
                      target.has_feature(Target::AVX512_SapphireRapids);
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
