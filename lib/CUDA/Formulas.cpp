//===- Formulas.cpp - Names and fields that formulas refer to --------------===//

#include "Formula.h"
#include "attn/Analysis/Dependence.h"

#include "llvm/ADT/DenseSet.h"

#include <fmt/format.h>

using namespace attn;
using namespace attn::cuda;

/// Words that are no names in C++, and macros of the headers that come with it.
static const char *const words[] = {
    "alignas",   "alignof",   "and",         "asm",      "auto",     "bitand",  "bitor",    "bool",     "break",
    "case",      "catch",     "char",        "class",    "compl",    "concept", "const",    "continue", "decltype",
    "default",   "delete",    "do",          "double",   "else",     "enum",    "explicit", "export",   "extern",
    "false",     "float",     "for",         "friend",   "goto",     "if",      "inline",   "int",      "long",
    "mutable",   "namespace", "new",         "noexcept", "not",      "nullptr", "operator", "or",       "private",
    "protected", "public",    "register",    "requires", "return",   "short",   "signed",   "sizeof",   "static",
    "struct",    "switch",    "template",    "this",     "throw",    "true",    "try",      "typedef",  "typeid",
    "typename",  "union",     "unsigned",    "using",    "virtual",  "void",    "volatile", "wchar_t",  "while",
    "xor",       "linux",     "unix",        "NULL",     "INFINITY", "NAN",     "I",        "size",     "parts",
    "query",     "sharers",   "first_sharer"};

std::string Names::unique(llvm::StringRef wanted) {
  if (taken.empty())
    for (const char *word : words)
      taken.insert(word);
  std::string name = wanted.str();
  for (int number = 2; !taken.insert(name).second; ++number)
    name = fmt::format("{}_{}", wanted.str(), number);
  return name;
}

std::string Expression::operand() const {
  int depth = 0;
  for (char letter : text) {
    depth += letter == '(' || letter == '[' || letter == '{'   ? 1
             : letter == ')' || letter == ']' || letter == '}' ? -1
                                                               : 0;
    if (letter == ' ' && depth == 0)
      return "(" + text + ")";
  }
  return text.starts_with("-") ? "(" + text + ")" : text;
}

Formulas::Formulas(Attention &attention) : attention(attention) {
  KernelOp kernel = attention.kernel;
  Names sizeNames;
  for (mlir::StringAttr name : kernel.getSizeNames())
    sizes[name.str()] = sizeNames.unique(name.getValue());
  Names tensorNames;
  for (mlir::Value tensor : attention.tensors())
    tensors[tensor] = tensorNames.unique(tensorName(tensor));
  for (mlir::BlockArgument index : attention.sum.getBody().getArguments())
    if (!attention.isOfRow(index) && index != attention.keyIndex() && index != attention.columnIndex())
      blockIndices[index] = members[int(Level::Block)].names.unique(indexName(index));
  if (attention.sharing)
    sharer = Names().unique(indexName(attention.sharing->index));
}

Level Formulas::levelOf(mlir::Value value) const {
  bool isOfRow = false, isOfKey = false;
  llvm::SmallVector<mlir::Value> todo = {value};
  llvm::DenseSet<mlir::Value> seen;
  while (!todo.empty()) {
    mlir::Value part = todo.pop_back_val();
    if (!seen.insert(part).second || mlir::isa<AttnTensorType>(part.getType()) || attention.isGroup(part))
      continue;
    mlir::Operation *op = part.getDefiningOp();
    if (op && !mlir::isa<ReduceOp>(op)) {
      llvm::append_range(todo, op->getOperands());
      continue;
    }
    mlir::BlockArgument own = attention.indices.lookup(part);
    if (!own) // the product, or a column of one
      return Level::Element;
    isOfKey |= own == attention.keyIndex();
    isOfRow |= attention.isOfRow(own);
  }
  if (isOfKey)
    return isOfRow ? Level::Element : Level::Key;
  return isOfRow ? Level::Row : Level::Block;
}

bool Formulas::isInLine(ReadOp read) const {
  unsigned keys = 0;
  for (auto [value, size] : llvm::zip(read.getSubscripts().drop_back(), read.getTensor().getType().getShape())) {
    bool isKey = attention.indices.lookup(value) == attention.keyIndex();
    if (isKey ? size != attention.sum.getKeySize() : levelOf(value) != Level::Block)
      return false;
    keys += isKey;
  }
  return keys == 1;
}

std::string Formulas::owner(Level level) {
  return level == Level::Block ? "block." : level == Level::Row ? "row." : "place.";
}

std::string Formulas::field(Level level, llvm::StringRef name, const std::string &type, const std::string &value) {
  auto &[names, fields] = members[int(level)];
  for (const Field &field : fields)
    if (field.type == type && field.value == value)
      return owner(level) + field.name;
  fields.push_back({type, names.unique(name), value});
  return owner(level) + fields.back().name;
}

std::string Formulas::index(mlir::Value index) const {
  mlir::BlockArgument own = attention.indices.lookup(index);
  if (own == attention.queryIndex())
    return "at.query";
  if (attention.isOfRow(own))
    return "at." + sharer;
  if (own == attention.keyIndex())
    return "key";
  return "block." + blockIndices.lookup(own);
}

std::string cuda::elementType(mlir::Type type) {
  if (type.isBF16())
    return "bfloat16";
  if (type.isF16())
    return "float16";
  if (type.isF32())
    return "float";
  if (type.isF64())
    return "double";
  if (type.isSignlessInteger(1))
    return "bool";
  bool isUnsigned = type.isUnsignedInteger();
  switch (type.getIntOrFloatBitWidth()) {
  case 8:
    return isUnsigned ? "unsigned char" : "signed char";
  case 32:
    return "int";
  default:
    return "int64";
  }
}
