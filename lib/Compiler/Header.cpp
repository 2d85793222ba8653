//===- Header.cpp - The C declarations of an object's kernels -------------===//

#include "Header.h"

#include "Embedded.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>
#include <set>

using namespace attn;

/// Words that cannot name a function or a parameter in C99 to C23 or C++20, with what GCC and Clang define by default;
/// and what a program's own function is called.
static bool isKeyword(const std::string &name) {
  // clang-format off
  static const std::set<std::string> keywords = {
      "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch",
      "char", "char16_t", "char32_t", "char8_t", "class", "co_await", "co_return", "co_yield", "compl", "concept",
      "const", "const_cast", "consteval", "constexpr", "constinit", "continue", "decltype", "default", "delete", "do",
      "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend",
      "goto", "if", "inline", "int", "linux", "long", "main", "mutable", "namespace", "new", "noexcept", "not",
      "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register",
      "reinterpret_cast", "requires", "restrict", "return", "short", "signed", "sizeof", "static", "static_assert",
      "static_cast", "struct", "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef",
      "typeid", "typename", "typeof", "typeof_unqual", "union", "unix", "unsigned", "using", "virtual", "void",
      "volatile", "wchar_t", "while", "xor", "xor_eq"};
  // clang-format on
  return keywords.count(name) != 0;
}

/// What C calls a tensor: its name, and as many _ after a keyword as no other tensor's name has.
static std::string parameterName(const KernelInterface &kernel, const std::string &name) {
  auto isTaken = [&](const std::string &text) {
    auto hasName = [&](const TensorInterface &tensor) { return tensor.name == text; };
    return llvm::any_of(kernel.inputs, hasName) || llvm::any_of(kernel.outputs, hasName);
  };
  std::string text = name;
  while (isKeyword(text) || (text != name && isTaken(text)))
    text += '_';
  return text;
}

std::string attn::describeType(const TensorInterface &tensor) {
  std::string text = tensor.dtype;
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    text += (i ? ", " : "[") + tensor.shape[i].text;
  return tensor.shape.empty() ? text : text + "]";
}

/// The default of a scalar, to the last digit.
static std::string describeDefault(const TensorInterface &tensor) {
  if (tensor.code == kDLInt || tensor.code == kDLUInt) {
    int unused = 64 - int(tensor.bits);
    int64_t value = int64_t(tensor.defaultBits << unused); // at the top, so that the shift back extends its sign
    return tensor.code == kDLInt ? fmt::to_string(value >> unused) : fmt::to_string(tensor.defaultBits);
  }
  return tensor.dtype == "f64" ? fmt::to_string(*tensor.defaultValue) : fmt::to_string(float(*tensor.defaultValue));
}

static std::string describeTensor(const TensorInterface &tensor, const std::string &name, size_t width, bool output) {
  std::string text = fmt::format(" *   {:<{}}  {}", name, width, describeType(tensor));
  if (tensor.defaultValue)
    text += fmt::format(", or NULL for {}", describeDefault(tensor));
  if (output)
    text += ", written";
  return text + "\n";
}

static std::string declare(const KernelInterface &kernel) {
  size_t width = 0;
  std::string parameters, description;
  for (const auto *tensors : {&kernel.inputs, &kernel.outputs})
    for (const TensorInterface &tensor : *tensors)
      width = std::max(width, parameterName(kernel, tensor.name).size());
  for (const auto *tensors : {&kernel.inputs, &kernel.outputs}) {
    bool output = tensors == &kernel.outputs;
    for (const TensorInterface &tensor : *tensors) {
      std::string name = parameterName(kernel, tensor.name);
      description += describeTensor(tensor, name, width, output);
      parameters += fmt::format("{}{}DLTensor *{}", parameters.empty() ? "" : ", ", output ? "" : "const ", name);
    }
  }
  if (!kernel.bounds.empty())
    description += " *\n * ATTN_ERROR_BOUNDS where a subscript that depends on data is outside its tensor.\n";
  return fmt::format("/* {}\n *\n{} */\nint {}({});\n", kernel.name, description, kernel.name, parameters);
}

/// "ATTN_GENERATED_SCALED_DOT_H" for "scaled_dot.h".
static std::string guard(const std::string &name) {
  std::string text = "ATTN_GENERATED_";
  for (unsigned char letter : name)
    text += std::isalnum(letter) ? char(std::toupper(letter)) : '_';
  return text;
}

llvm::Expected<std::string> attn::writeHeader(llvm::ArrayRef<KernelInterface> kernels, const std::string &name) {
  for (const KernelInterface &kernel : kernels)
    if (isKeyword(kernel.name))
      return llvm::createStringError("a kernel cannot be named '" + kernel.name +
                                     "': it is a keyword of C or C++, or has a meaning there");
  std::string text = fmt::format(
      "/* {0}: written by attnc from an .attn file.\n"
      " *\n"
      " * Tensors are DLPack's, where the kernel runs, with any strides; a unit stride in the last dimension "
      "is the fast path.\n"
      " * A size of one name is the same in all tensors of a call. A kernel returns 0 or a code of enum\n"
      " * attn_error, and attn_last_error() says what was wrong.\n"
      " */\n\n#ifndef {1}\n#define {1}\n\n",
      name, guard(name));
  text += dlpackHeader().str() + "\n" + runtimeHeader().str();
  text += "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n";
  for (const KernelInterface &kernel : kernels)
    text += declare(kernel) + "\n";
  return text + "#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
}
