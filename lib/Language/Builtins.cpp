//===- Builtins.cpp - The built-in functions ------------------------------===//

#include "Builtins.h"

#include "llvm/ADT/STLExtras.h"

using namespace attn::language;

static const BuiltinInfo table[] = {
    {"abs", Builtin::Abs, 1, "abs(x)"},
    {"exp", Builtin::Exp, 1, "exp(x)"},
    {"exp2", Builtin::Exp2, 1, "exp2(x)"},
    {"log", Builtin::Log, 1, "log(x)"},
    {"log2", Builtin::Log2, 1, "log2(x)"},
    {"sqrt", Builtin::Sqrt, 1, "sqrt(x)"},
    {"rsqrt", Builtin::Rsqrt, 1, "rsqrt(x)"},
    {"sin", Builtin::Sin, 1, "sin(x)"},
    {"cos", Builtin::Cos, 1, "cos(x)"},
    {"tanh", Builtin::Tanh, 1, "tanh(x)"},
    {"erf", Builtin::Erf, 1, "erf(x)"},
    {"sigmoid", Builtin::Sigmoid, 1, "sigmoid(x)"},
    {"relu", Builtin::Relu, 1, "relu(x)"},
    {"gelu", Builtin::Gelu, 1, "gelu(x)"},
    {"floor", Builtin::Floor, 1, "floor(x)"},
    {"round", Builtin::Round, 1, "round(x)"},
    {"isnan", Builtin::IsNan, 1, "isnan(x)"},
    {"pow", Builtin::Pow, 2, "pow(x, y)"},
    {"min", Builtin::Min, 2, "min(x, y)"},
    {"max", Builtin::Max, 2, "max(x, y)"},
    {"select", Builtin::Select, 3, "select(condition, a, b)"},
    {"dropout", Builtin::Dropout, 3, "dropout(x, p, seed)"},
};

llvm::ArrayRef<BuiltinInfo> attn::language::builtins() { return table; }

const BuiltinInfo *attn::language::findBuiltin(llvm::StringRef name) {
  const auto *found = llvm::find_if(table, [&](const BuiltinInfo &info) { return info.name == name; });
  return found == std::end(table) ? nullptr : found;
}
