//===- Occupancy.cpp - What kernels take of a GPU --------------------------===//

#include "Occupancy.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Regex.h"
#include <fmt/format.h>

using namespace attn;

namespace {

/// What the blocks on a multiprocessor share (CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability").
struct Multiprocessor {
  llvm::StringRef capability;
  int64_t threads, blocks;
  int64_t sharedBytes, sharedUnit; ///< All that blocks can have; a block has a multiple of the unit.
  int64_t reservedBytes;           ///< Of a block, for the system.
};

constexpr int64_t registers = 65536, registerUnit = 256, warp = 32;

const Multiprocessor multiprocessors[] = {
    {"70", 2048, 32, 96 << 10, 256, 0},
    {"75", 1024, 16, 64 << 10, 256, 0},
    {"80", 2048, 32, 164 << 10, 128, 1 << 10},
    {"86", 1536, 16, 100 << 10, 128, 1 << 10},
};

struct Launch {
  std::string kernel;
  int64_t threads = 0, sharedBytes = 0;
};

} // namespace

/// The lines that stand before the PTX.
static std::vector<Launch> launchesOf(llvm::StringRef ptx) {
  std::vector<Launch> launches;
  llvm::Regex line("^// launch ([^:]+): ([0-9]+) threads a block, ([0-9]+) bytes of shared memory$");
  llvm::SmallVector<llvm::StringRef> parts;
  for (llvm::StringRef rest = ptx; line.match(rest.split('\n').first, &parts); rest = rest.split('\n').second) {
    Launch &launch = launches.emplace_back();
    launch.kernel = parts[1].str();
    parts[2].getAsInteger(10, launch.threads);
    parts[3].getAsInteger(10, launch.sharedBytes);
  }
  return launches;
}

/// What ptxas says as it assembles `ptx`; nothing where it is not installed, or fails.
static std::string assemble(llvm::StringRef ptx, llvm::StringRef capability) {
  llvm::ErrorOr<std::string> program = llvm::sys::findProgramByName("ptxas");
  llvm::SmallString<128> source, object, report;
  if (!program || llvm::sys::fs::createTemporaryFile("attn", "ptx", source) ||
      llvm::sys::fs::createTemporaryFile("attn", "cubin", object) ||
      llvm::sys::fs::createTemporaryFile("attn", "txt", report))
    return "";
  llvm::FileRemover removeSource(source), removeObject(object), removeReport(report);
  std::error_code code;
  llvm::raw_fd_ostream os(source, code);
  os << ptx;
  os.close();
  std::string architecture = ("-arch=sm_" + capability).str();
  llvm::StringRef arguments[] = {*program, "-v", architecture, source, "-o", object};
  std::optional<llvm::StringRef> streams[] = {llvm::StringRef(""), llvm::StringRef(""), llvm::StringRef(report)};
  if (code || llvm::sys::ExecuteAndWait(*program, arguments, std::nullopt, streams))
    return "";
  auto buffer = llvm::MemoryBuffer::getFile(report);
  return buffer ? (*buffer)->getBuffer().str() : "";
}

/// Registers of a thread, by the kernels' names.
static llvm::StringMap<int64_t> registersOf(llvm::StringRef report) {
  llvm::StringMap<int64_t> found;
  llvm::Regex entry("Compiling entry function '([^']+)'"), used("Used ([0-9]+) registers");
  llvm::SmallVector<llvm::StringRef> lines, parts;
  std::string kernel;
  report.split(lines, '\n');
  for (llvm::StringRef line : lines) {
    if (entry.match(line, &parts))
      kernel = parts[1].str();
    else if (used.match(line, &parts))
      parts[1].getAsInteger(10, found[kernel]);
  }
  return found;
}

/// How many blocks a multiprocessor holds, and what there would have to be more of. `perThread` is 0 where it is not
/// known.
static std::pair<int64_t, llvm::StringRef> residentBlocks(const Multiprocessor &on, const Launch &launch,
                                                          int64_t perThread) {
  int64_t warps = llvm::divideCeil(launch.threads, warp);
  int64_t shared = llvm::alignTo(launch.sharedBytes + on.reservedBytes, on.sharedUnit);
  std::pair<int64_t, llvm::StringRef> fewest = {on.blocks, "blocks"};
  auto atMost = [&](int64_t blocks, llvm::StringRef what) {
    if (blocks < fewest.first)
      fewest = {blocks, what};
  };
  atMost(on.threads / (warps * warp), "threads");
  if (shared)
    atMost(on.sharedBytes / shared, "shared memory");
  // The registers are divided between four schedulers, a warp has them of one.
  if (perThread)
    atMost(registers / 4 / llvm::alignTo(perThread * warp, registerUnit) * 4 / warps, "registers");
  return fewest;
}

void attn::printOccupancy(llvm::raw_ostream &os, llvm::StringRef step, llvm::StringRef ptx, llvm::StringRef target) {
  llvm::StringRef capability = target.split("cuda_capability_").second.take_while(llvm::isDigit);
  const auto *on =
      llvm::find_if(multiprocessors, [&](const Multiprocessor &each) { return each.capability == capability; });
  if (on == std::end(multiprocessors))
    return;
  llvm::StringMap<int64_t> used = registersOf(assemble(ptx, capability));
  for (const Launch &launch : launchesOf(ptx)) {
    int64_t perThread = used.lookup(launch.kernel);
    auto [blocks, limit] = residentBlocks(*on, launch, perThread);
    os << fmt::format("step {}: {} threads a block, {} bytes of shared memory, {}; sm_{} holds {}{} block{} a "
                      "multiprocessor, {}% of its threads, for its {}\n",
                      step.str(), launch.threads, launch.sharedBytes,
                      perThread ? fmt::format("{} registers a thread", perThread)
                                : "registers as ptxas says, which is not in PATH",
                      capability.str(), perThread ? "" : "at most ", blocks, blocks == 1 ? "" : "s",
                      100 * blocks * launch.threads / on->threads, limit.str());
  }
}
