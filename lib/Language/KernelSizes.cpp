//===- KernelSizes.cpp - What gives the sizes of a kernel -----------------===//
//
// A size is declared in brackets, set by an option, or follows from the shapes of the parameters.
//
//===----------------------------------------------------------------------===//

#include "KernelSizes.h"
#include "Lexer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace attn;
using namespace attn::language;
using llvm::formatv;

/// Visits the names of sizes in `expression` from left to right.
static void forEachSizeName(const Expression &expression, llvm::function_ref<void(StringRef)> visit) {
  if (const auto *binary = llvm::dyn_cast<BinaryExpression>(&expression)) {
    forEachSizeName(*binary->lhs, visit);
    return forEachSizeName(*binary->rhs, visit);
  }
  if (const auto *name = llvm::dyn_cast<NameExpression>(&expression); name && isSizeName(name->name))
    visit(name->name);
}

/// Visits the names of sizes in the shapes of the kernel's parameters.
static void forEachSizeName(const Kernel &kernel, llvm::function_ref<void(StringRef)> visit) {
  for (const Parameter &parameter : kernel.parameters)
    for (const ExpressionPtr &dimension : parameter.shape)
      forEachSizeName(*dimension, visit);
}

void attn::language::declareSizes(const Kernel &kernel, const LanguageOptions &options, SizeTable &sizes,
                                  Diagnostics &diagnostics) {
  for (const DeclaredSize &size : kernel.sizes) {
    if (sizes.contains(size.name)) {
      diagnostics.error(size.name, formatv("size `{0}` is declared twice", size.name));
      continue;
    }
    auto set = options.sizes.find(size.name);
    std::optional<int64_t> value = set == options.sizes.end() ? size.value : set->second;
    if (!value)
      diagnostics.error(size.name, formatv("size `{0}` has no value", size.name))
          .help(formatv("give it one with --set {0}=16, or a default: [{0} = 16]", size.name));
    sizes.add(size.name, value.value_or(1));
  }
  // Sizes that are set but not declared are those of the parameters' shapes.
  forEachSizeName(kernel, [&](StringRef name) {
    if (auto set = options.sizes.find(name); set != options.sizes.end())
      sizes.add(name, set->second);
  });
}

/// Whether `size`, which has one unknown name, can be solved for it: the name occurs once, and not in a `//`.
static bool isSolvable(SizeAttr size, StringRef unknown) {
  if (size.isConstant() || size.isName())
    return true;
  bool inside = false;
  size.forEachName([&](mlir::StringAttr name) { inside |= name.getValue() == unknown; });
  if (inside && (size.getKind() == SizeKind::FloorDiv || size.getKind() == SizeKind::Mod))
    return false;
  return isSolvable(size.getLhs(), unknown) && isSolvable(size.getRhs(), unknown);
}

/// The names of sizes that follow from `dimensions`, in the order in which they do.
static llvm::SmallVector<StringRef> solve(llvm::ArrayRef<SizeAttr> dimensions) {
  llvm::SmallVector<StringRef> known;
  bool progress = true;
  while (progress) {
    progress = false;
    for (SizeAttr size : dimensions) {
      llvm::SmallVector<StringRef> unknown;
      size.forEachName([&](mlir::StringAttr name) {
        if (!llvm::is_contained(known, name.getValue()))
          unknown.push_back(name.getValue());
      });
      if (unknown.size() == 1 && isSolvable(size, unknown.front())) {
        known.push_back(unknown.front());
        progress = true;
      }
    }
  }
  return known;
}

void attn::language::checkSizesCanBeFound(const Kernel &kernel, llvm::ArrayRef<SizeAttr> dimensions,
                                          const LanguageOptions &options, Diagnostics &diagnostics) {
  llvm::SmallVector<StringRef> known = solve(dimensions);
  for (const DeclaredSize &size : kernel.sizes)
    known.push_back(size.name);
  forEachSizeName(kernel, [&](StringRef name) {
    if (llvm::is_contained(known, name) || options.sizes.count(name))
      return;
    diagnostics.error(name, formatv("size `{0}` cannot be found from the shapes of the parameters", name))
        .help(
            formatv("declare it in brackets after the kernel's name: `attention {0}[{1} = 16](…)`", kernel.name, name));
    known.push_back(name);
  });
}
