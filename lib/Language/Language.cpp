//===- Language.cpp - From .attn text to the dialect ----------------------===//

#include "attn/Language/Language.h"

#include "KernelEmitter.h"
#include "Lexer.h"
#include "Parser.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace attn;
using namespace attn::language;
using llvm::formatv;
using llvm::StringRef;

static StringRef mainSource(const llvm::SourceMgr &sources) {
  return sources.getMemoryBuffer(sources.getMainFileID())->getBuffer();
}

bool attn::printSyntaxTree(llvm::SourceMgr &sources, llvm::raw_ostream &os, llvm::raw_ostream &errors) {
  Diagnostics diagnostics(sources);
  File file = parse(mainSource(sources), diagnostics);
  diagnostics.print(errors);
  if (diagnostics.hasErrors())
    return false;
  print(file, os);
  return true;
}

/// Kernels are in a name space of their own.
static void checkKernelNames(const File &file, Diagnostics &diagnostics) {
  llvm::DenseMap<StringRef, StringRef> first;
  for (const Kernel &kernel : file.kernels) {
    if (kernel.name.empty())
      continue;
    auto [entry, inserted] = first.insert({kernel.name, kernel.name});
    if (!inserted)
      diagnostics.error(kernel.name, formatv("kernel `{0}` is defined twice", kernel.name))
          .note(entry->second, "first defined here");
  }
}

static std::string quotedList(llvm::ArrayRef<std::string> names) {
  return names.empty() ? "none" : formatv("`{0}`", llvm::join(names, "`, `")).str();
}

/// The kernels that are wanted. Options that fit none of them are errors.
static std::vector<const Kernel *> selectKernels(const File &file, const LanguageOptions &options,
                                                 Diagnostics &diagnostics) {
  std::vector<const Kernel *> selected;
  std::vector<StringRef> names;
  for (const Kernel &kernel : file.kernels) {
    names.push_back(kernel.name);
    if (options.kernel.empty() || kernel.name == options.kernel)
      selected.push_back(&kernel);
  }
  if (selected.empty() && !file.kernels.empty())
    diagnostics
        .error(file.kernels.front().name, formatv("--kernel={0}: the file has no kernel of that name", options.kernel))
        .suggest(options.kernel, names);
  return selected;
}

/// Whether the options can be right of any kernel.
static bool checkOptions(const File &file, const LanguageOptions &options, Diagnostics &diagnostics) {
  if (file.kernels.empty())
    return true;
  bool areRight = true;
  StringRef place = file.kernels.front().name;
  auto fail = [&](const std::string &message) {
    diagnostics.error(place, message);
    areRight = false;
  };
  if (!options.dtype.empty() && !llvm::is_contained({"f32", "bf16", "f16"}, options.dtype))
    fail(formatv("--dtype={0}: the dtype must be f32, bf16 or f16", options.dtype));
  for (const auto &size : options.sizes)
    if (size.second < 0)
      fail(formatv("size `{0}` is set to {1}, but cannot be negative", size.first(), size.second));
    else if (size.second > longestDimension)
      fail(formatv("size `{0}` is set to {1}, but can be at most {2}", size.first(), size.second, longestDimension));
  return areRight;
}

static void checkSetSizes(const Kernel &first, const LanguageOptions &options, llvm::ArrayRef<std::string> known,
                          Diagnostics &diagnostics) {
  std::vector<StringRef> names(known.begin(), known.end());
  for (const auto &size : options.sizes)
    if (!llvm::is_contained(known, size.first()))
      diagnostics
          .error(first.name, formatv("size `{0}` is set to {1}, but there is no such size", size.first(), size.second))
          .suggest(size.first(), names)
          .help(formatv("the sizes are {0}", quotedList(known)));
}

OwningOpRef<ModuleOp> attn::parseSource(llvm::SourceMgr &sources, MLIRContext &context, const LanguageOptions &options,
                                        llvm::raw_ostream &errors) {
  context.loadDialect<AttnDialect, arith::ArithDialect, math::MathDialect>();
  Diagnostics diagnostics(sources);
  File file = parse(mainSource(sources), diagnostics);
  checkKernelNames(file, diagnostics);
  bool areRight = checkOptions(file, options, diagnostics);
  FunctionTable functions(file, diagnostics);
  std::vector<const Kernel *> selected = selectKernels(file, options, diagnostics);
  if (!areRight) // what kernels make of them would be reported once more
    selected.clear();

  OpBuilder builder(&context);
  unsigned main = sources.getMainFileID();
  Location start = FileLineColLoc::get(&context, sources.getMemoryBuffer(main)->getBufferIdentifier(), 1, 1);
  OwningOpRef<ModuleOp> module(ModuleOp::create(start));
  builder.setInsertionPointToEnd(module->getBody());
  std::vector<std::string> knownSizes;
  bool broken = false;
  for (const Kernel *kernel : selected) {
    broken |= kernel->broken;
    if (!kernel->broken)
      emitKernel(*kernel, functions, file, options, builder, sources, diagnostics, knownSizes);
  }
  llvm::sort(knownSizes);
  knownSizes.erase(llvm::unique(knownSizes), knownSizes.end());
  if (!selected.empty() && !broken)
    checkSetSizes(*selected.front(), options, knownSizes, diagnostics);

  diagnostics.print(errors);
  if (diagnostics.hasErrors())
    return {};
  if (failed(verify(*module))) {
    // The verifier's own message has gone to the context's handler.
    errors << "attn: internal error: the front end emitted IR that does not verify\n";
    return {};
  }
  return module;
}
