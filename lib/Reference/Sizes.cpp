//===- Sizes.cpp - Binds size names to the shapes of the arguments --------===//
//
// First every dimension that is a name alone gives that name its value. Then dimensions that are expressions with one
// unknown name, occurring once, are solved for it (H * D = 768 with H = 12 gives D = 64) until nothing new is found.
// At last every dimension is computed and compared, and so are the kernel's checks.
//
//===----------------------------------------------------------------------===//

#include "attn/Reference/Reference.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace attn;
using llvm::Error;
using llvm::Expected;
using llvm::StringRef;

static Error fail(const llvm::formatv_object_base &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text.str());
}

/// `[B, M, D]`
static std::string print(AttnTensorType type) {
  std::vector<std::string> sizes;
  for (SizeAttr size : type.getShape())
    sizes.push_back(size.str());
  return llvm::formatv("[{0}]", llvm::join(sizes, ", "));
}

static std::string print(llvm::ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << '[';
  llvm::interleaveComma(shape, os);
  os << ']';
  return text;
}

namespace {

class SizeBinder {
public:
  SizeBinder(KernelOp kernel, llvm::ArrayRef<std::vector<int64_t>> shapes) : kernel(kernel), shapes(shapes) {}

  Error checkRanks();
  void bindNames();
  Error solveExpressions();
  Error checkDimensions();
  Error checkParts();
  llvm::StringMap<int64_t> take() { return std::move(values); }

private:
  template <typename Visitor> Error forEachDimension(Visitor visit);
  std::string describe(unsigned parameter, unsigned axis);
  Expected<bool> solve(unsigned parameter, unsigned axis, SizeAttr size, int64_t found);
  unsigned countUnknowns(SizeAttr size) const;
  std::string known(SizeAttr size) const;

  KernelOp kernel;
  llvm::ArrayRef<std::vector<int64_t>> shapes;
  llvm::StringMap<int64_t> values;
  llvm::StringMap<std::string> origins; ///< Where a name got its value: `q: dimension 2`.
};

template <typename Visitor> Error SizeBinder::forEachDimension(Visitor visit) {
  for (unsigned parameter = 0; parameter < shapes.size(); ++parameter)
    for (auto [axis, size] : llvm::enumerate(kernel.getParameterType(parameter).getShape()))
      if (Error failed = visit(parameter, static_cast<unsigned>(axis), size, shapes[parameter][axis]))
        return failed;
  return Error::success();
}

/// `k: dimension 2 (D)`
std::string SizeBinder::describe(unsigned parameter, unsigned axis) {
  return llvm::formatv("{0}: dimension {1} ({2})", kernel.getParameterName(parameter), axis,
                       kernel.getParameterType(parameter).getShape()[axis].str());
}

Error SizeBinder::checkRanks() {
  if (shapes.size() != kernel.getParameters().size())
    return fail(llvm::formatv("{0}: takes {1} arguments, but {2} were given", kernel.getSymName(),
                              kernel.getParameters().size(), shapes.size()));
  for (unsigned parameter = 0; parameter < shapes.size(); ++parameter) {
    AttnTensorType type = kernel.getParameterType(parameter);
    if (shapes[parameter].size() != type.getRank())
      return fail(llvm::formatv("{0}: has rank {1} {2}, but must have rank {3} {4}", kernel.getParameterName(parameter),
                                shapes[parameter].size(), print(shapes[parameter]), type.getRank(), print(type)));
  }
  return forEachDimension([&](unsigned parameter, unsigned axis, SizeAttr, int64_t found) -> Error {
    if (found < 0)
      return fail(llvm::formatv("{0} is {1}, but must be at least 0", describe(parameter, axis), found));
    return Error::success();
  });
}

void SizeBinder::bindNames() {
  llvm::cantFail(forEachDimension([&](unsigned parameter, unsigned axis, SizeAttr size, int64_t found) -> Error {
    if (size.isName() && values.try_emplace(size.getName(), found).second)
      origins[size.getName()] = llvm::formatv("{0}: dimension {1}", kernel.getParameterName(parameter), axis).str();
    return Error::success();
  }));
}

unsigned SizeBinder::countUnknowns(SizeAttr size) const {
  unsigned count = 0;
  size.forEachName([&](mlir::StringAttr name) { count += !values.contains(name); });
  return count;
}

/// What is known of the names in `size`: ` (H = 12)`.
std::string SizeBinder::known(SizeAttr size) const {
  llvm::SmallVector<std::string> texts;
  size.forEachName([&](mlir::StringAttr name) {
    auto value = values.find(name);
    std::string text = value == values.end() ? "" : llvm::formatv("{0} = {1}", name.getValue(), value->second).str();
    if (!text.empty() && !llvm::is_contained(texts, text))
      texts.push_back(text);
  });
  return texts.empty() ? "" : llvm::formatv(" ({0})", llvm::join(texts, ", ")).str();
}

/// Undoes one operator after the other on the way to the unknown name. Returns whether that was possible.
Expected<bool> SizeBinder::solve(unsigned parameter, unsigned axis, SizeAttr size, int64_t found) {
  SizeAttr whole = size;
  int64_t target = found;
  while (!size.isName()) {
    bool unknownLeft = countUnknowns(size.getLhs()) == 1;
    SizeAttr next = unknownLeft ? size.getLhs() : size.getRhs();
    std::optional<int64_t> other = (unknownLeft ? size.getRhs() : size.getLhs()).evaluate(values);
    if (!other)
      return false;
    bool overflow = false;
    switch (size.getKind()) {
    case SizeKind::Add:
      overflow = llvm::SubOverflow(target, *other, target);
      break;
    case SizeKind::Sub:
      overflow = unknownLeft ? llvm::AddOverflow(target, *other, target) : llvm::SubOverflow(*other, target, target);
      break;
    case SizeKind::Mul:
      if (*other == 0)
        return false;
      if (*other == -1 ? target == INT64_MIN : target % *other != 0)
        return fail(llvm::formatv("{0} is {1}, but must be a multiple of {2}{3}", describe(parameter, axis), found,
                                  *other, known(whole)));
      target /= *other;
      break;
    default: // floor division and modulo lose what would be needed
      return false;
    }
    if (overflow)
      return false;
    size = next;
  }
  if (target < 0)
    return fail(llvm::formatv("{0} is {1}, but must not make {2} negative: {3}{4}", describe(parameter, axis), found,
                              size.str(), target, known(whole)));
  values[size.getName()] = target;
  origins[size.getName()] = describe(parameter, axis);
  return true;
}

Error SizeBinder::solveExpressions() {
  for (bool progress = true; progress;) {
    progress = false;
    Error failed = forEachDimension([&](unsigned parameter, unsigned axis, SizeAttr size, int64_t found) -> Error {
      if (countUnknowns(size) != 1)
        return Error::success();
      Expected<bool> solved = solve(parameter, axis, size, found);
      if (!solved)
        return solved.takeError();
      progress |= *solved;
      return Error::success();
    });
    if (failed)
      return failed;
  }
  return Error::success();
}

Error SizeBinder::checkDimensions() {
  return forEachDimension([&](unsigned parameter, unsigned axis, SizeAttr size, int64_t found) -> Error {
    std::string unknown;
    size.forEachName([&](mlir::StringAttr name) {
      if (!values.contains(name))
        unknown = name.getValue();
    });
    if (!unknown.empty())
      return fail(llvm::formatv("{0} is {1}, from which {2} cannot be told{3}; fix its value at compile time",
                                describe(parameter, axis), found, unknown, known(size)));
    std::optional<int64_t> expected = size.evaluate(values);
    if (!expected)
      return fail(llvm::formatv("{0} is {1}, but must be a number that cannot be computed{2}",
                                describe(parameter, axis), found, known(size)));
    if (*expected == found)
      return Error::success();
    if (size.isName())
      return fail(llvm::formatv("{0} is {1}, but {2} made {3} = {4}", describe(parameter, axis), found,
                                origins[size.getName()], size.str(), *expected));
    return fail(
        llvm::formatv("{0} is {1}, but must be {2}{3}", describe(parameter, axis), found, *expected, known(size)));
  });
}

/// The kernel's own conditions: ranges that must lie within a dimension.
Error SizeBinder::checkParts() {
  for (const KernelOp::Check &check : kernel.getChecks()) {
    std::optional<int64_t> part = check.part.evaluate(values), whole = check.whole.evaluate(values);
    if (!part || !whole)
      return fail(
          llvm::formatv("{0}: {1}: the sizes cannot be computed", kernel.getSymName(), check.message.getValue()));
    if (*part > *whole)
      return fail(llvm::formatv("{0}: {1}: the dimension is {2}, but must be at least {3}", kernel.getSymName(),
                                check.message.getValue(), *whole, *part));
  }
  return Error::success();
}

} // namespace

Expected<llvm::StringMap<int64_t>> attn::bindSizes(KernelOp kernel, llvm::ArrayRef<std::vector<int64_t>> shapes) {
  SizeBinder binder(kernel, shapes);
  if (Error failed = binder.checkRanks())
    return std::move(failed);
  binder.bindNames();
  if (Error failed = binder.solveExpressions())
    return std::move(failed);
  if (Error failed = binder.checkDimensions())
    return std::move(failed);
  if (Error failed = binder.checkParts())
    return std::move(failed);
  return binder.take();
}
