//===- attnc.cpp - The compiler driver ------------------------------------===//

#include "attn/Language/Language.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"

namespace cl = llvm::cl;

static cl::OptionCategory category("attnc options");
static cl::opt<std::string> inputPath(cl::Positional, cl::desc("SPEC.attn"), cl::Required, cl::cat(category));
static cl::opt<std::string> outputPath("o", cl::desc("Where to write"), cl::value_desc("PATH"), cl::init("-"),
                                       cl::cat(category));
static cl::opt<std::string> kernelName("kernel", cl::desc("Only this kernel of the file"), cl::value_desc("NAME"),
                                       cl::cat(category));
static cl::list<std::string> sizes("set", cl::desc("Fix a size at compile time"), cl::value_desc("NAME=INT"),
                                   cl::cat(category));
static cl::opt<std::string> dtype("dtype", cl::desc("Dtype of the tensors: f32, bf16 or f16"), cl::cat(category));
static cl::opt<std::string> stage("emit", cl::desc("Stage to print: ast, attn"), cl::init("attn"), cl::cat(category));

/// Reads `--set NAME=INT`.
static bool readSizes(attn::LanguageOptions &options) {
  for (llvm::StringRef text : sizes) {
    auto [name, value] = text.split('=');
    int64_t number;
    if (name.empty() || value.getAsInteger(10, number)) {
      llvm::errs() << "attnc: --set " << text << ": expected NAME=INTEGER\n";
      return false;
    }
    options.sizes[name] = number;
  }
  return true;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "attnc: a compiler for attention\n");

  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(inputPath);
  if (std::error_code error = buffer.getError()) {
    llvm::errs() << "attnc: cannot read " << inputPath << ": " << error.message() << '\n';
    return 1;
  }
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(*buffer), llvm::SMLoc());

  attn::LanguageOptions options;
  options.kernel = kernelName;
  options.dtype = dtype;
  if (!readSizes(options))
    return 1;
  if (stage != "ast" && stage != "attn") {
    llvm::errs() << "attnc: --emit=" << stage << ": the stages are ast, attn\n";
    return 1;
  }

  std::error_code error;
  llvm::ToolOutputFile output(outputPath, error, llvm::sys::fs::OF_Text);
  if (error) {
    llvm::errs() << "attnc: cannot write " << outputPath << ": " << error.message() << '\n';
    return 1;
  }
  if (stage == "ast") {
    if (!attn::printSyntaxTree(sources, output.os(), llvm::errs()))
      return 1;
  } else {
    mlir::MLIRContext context;
    mlir::OwningOpRef<mlir::ModuleOp> module = attn::parseSource(sources, context, options, llvm::errs());
    if (!module)
      return 1;
    module->print(output.os());
    output.os() << '\n';
  }
  output.keep();
  return 0;
}
