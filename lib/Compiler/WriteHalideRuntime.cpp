//===- WriteHalideRuntime.cpp - Build tool: Halide's runtime as an object -===//
//
// Building Halide's runtime takes 0.4 s, so it is done once, when attn is built: attn-write-halide-runtime OUTPUT.
//
//===----------------------------------------------------------------------===//

#include "MachineCode.h"
#include "attn/Halide/Lowering.h"

#include "llvm/Support/raw_ostream.h"

using namespace attn;

static llvm::Error write(llvm::StringRef path) {
  llvm::Expected<std::string> bitcode = halideRuntimeBitcode("host", {Device::Cuda, Device::OpenCl});
  if (!bitcode)
    return bitcode.takeError();
  llvm::Expected<std::string> object = emitMachineCode(*bitcode, MachineCodeKind::Object);
  if (!object)
    return object.takeError();
  return llvm::writeToOutput(path, [&](llvm::raw_ostream &os) {
    os << *object;
    return llvm::Error::success();
  });
}

int main(int argc, char **argv) {
  if (argc != 2) {
    llvm::errs() << "usage: attn-write-halide-runtime OUTPUT\n";
    return 1;
  }
  if (llvm::Error error = write(argv[1])) {
    llvm::errs() << "attn-write-halide-runtime: " << llvm::toString(std::move(error)) << '\n';
    return 1;
  }
}
