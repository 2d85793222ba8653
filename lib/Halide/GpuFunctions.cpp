//===- GpuFunctions.cpp - What devices and their compilers do otherwise ----===//

#include "GpuFunctions.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/bit.h"

using namespace Halide;
using namespace Halide::Internal;

namespace attn::lowering {

namespace {

/// The functions that Mathematics.cpp calls by their names in C, inside kernels: what is the same for all threads is
/// computed by the CPU.
class DeviceNames : public IRMutator {
public:
  explicit DeviceNames(bool isCuda) : isCuda(isCuda) {}

private:
  using IRMutator::visit;

  Stmt visit(const For *op) override {
    ScopedValue<bool> inside(inKernel, inKernel || is_gpu(op->for_type));
    return IRMutator::visit(op);
  }

  Expr visit(const Call *op) override {
    // In OpenCL C they have one name for all types; NVIDIA's libdevice is a part of Halide.
    static const llvm::StringMap<std::pair<const char *, const char *>> names = {
        {"exp2", {"__nv_exp2", "exp2"}}, {"erf", {"__nv_erf", "erf"}},      {"powf", {"__nv_powf", "pow"}},
        {"pow", {"__nv_pow", "pow"}},    {"fmodf", {"__nv_fmodf", "fmod"}}, {"fmod", {"__nv_fmod", "fmod"}},
    };
    Expr mutated = IRMutator::visit(op);
    auto found = names.find(op->name);
    if (!inKernel || op->call_type != Call::PureExtern || found == names.end())
      return mutated;
    return Call::make(op->type, isCuda ? found->second.first : found->second.second, mutated.as<Call>()->args,
                      Call::PureExtern);
  }

  bool isCuda, inKernel = false;
};

/// Halide moves what is the same for all threads out of the kernel, loads included, but where the CPU is the tensors
/// may not be: they are moved back.
class LoadInKernels : public IRMutator {
  using IRMutator::visit;

  class FindLoad : public IRVisitor {
    using IRVisitor::visit;
    void visit(const Load *) override { found = true; }

  public:
    bool found = false;
  };

  Stmt visit(const For *op) override { return is_gpu(op->for_type) ? Stmt(op) : IRMutator::visit(op); }

  Stmt visit(const LetStmt *op) override {
    FindLoad load;
    op->value.accept(&load);
    return load.found ? mutate(substitute(op->name, op->value, op->body)) : IRMutator::visit(op);
  }
};

/// Halide 21 tells LLVM's back end for CUDA that there are no NaN, whatever the instructions say. Then `x < c ? c : x`
/// becomes a maximum, which of a NaN and a number takes the number: the choice of a NaN is made by itself.
class KeepNaN : public IRMutator {
  using IRMutator::visit;

  static bool isOrder(const Expr &condition, Expr &a, Expr &b) {
    if (const auto *call = condition.as<Call>()) {
      if (!call->is_intrinsic({Call::strict_lt, Call::strict_le}))
        return false;
      a = call->args[0], b = call->args[1];
      return true;
    }
    const auto *less = condition.as<LT>();
    const auto *lessEqual = condition.as<LE>();
    if (less)
      a = less->a, b = less->b;
    if (lessEqual)
      a = lessEqual->a, b = lessEqual->b;
    return less || lessEqual;
  }

  Expr visit(const Select *op) override {
    Expr mutated = IRMutator::visit(op), a, b;
    const auto *select = mutated.as<Select>();
    if (!select || !select->type.is_float() || is_const(select->false_value) || !isOrder(select->condition, a, b))
      return mutated;
    bool isExtreme = (equal(select->true_value, a) && equal(select->false_value, b)) ||
                     (equal(select->true_value, b) && equal(select->false_value, a));
    if (!isExtreme)
      return mutated;
    return Select::make(is_nan(select->false_value), select->false_value, mutated);
  }
};

/// Halide 21 writes constants of f64 into OpenCL C as floats: those that are none are written by their bits.
class ExactConstants : public IRMutator {
  using IRMutator::visit;

  Expr visit(const FloatImm *op) override {
    if (op->type.bits() != 64 || op->value == static_cast<float>(op->value))
      return op;
    return Reinterpret::make(op->type, UIntImm::make(UInt(64), llvm::bit_cast<uint64_t>(op->value)));
  }
};

} // namespace

void lowerDeviceFunctions(Pipeline &pipeline, const Target &target) {
  bool isCuda = target.has_feature(Target::CUDA);
  pipeline.add_custom_lowering_pass(new LoadInKernels);
  pipeline.add_custom_lowering_pass(new DeviceNames(isCuda));
  if (isCuda)
    pipeline.add_custom_lowering_pass(new KeepNaN);
  else
    pipeline.add_custom_lowering_pass(new ExactConstants);
}

} // namespace attn::lowering
