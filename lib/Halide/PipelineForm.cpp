//===- PipelineForm.cpp - What pipelines with the same code share ---------===//

#include "PipelineForm.h"

#include <sstream>

using namespace Halide::Internal;
using Halide::Expr;

namespace attn::lowering {

namespace {
class FormWriter : public IRMutator {
public:
  std::string write(const StepLowering &step) {
    text << std::hexfloat;
    for (const Halide::Argument &input : step.inputs) {
      list(input.kind, input.type, static_cast<int>(input.dimensions));
      name(input.name);
    }
    for (const HalideArgument &argument : step.inputArguments)
      list(argument.repeated.value_or(UINT64_MAX));
    for (const DerivedSize &size : step.derivedSizes) {
      name(size.argument.name);
      mutate(size.value);
    }
    for (const Halide::Func &output : step.outputs) {
      reach(output.function());
      for (const Halide::Parameter &buffer : output.function().output_buffers())
        for (int dimension = 0; dimension < buffer.dimensions(); ++dimension)
          expressions({buffer.min_constraint(dimension), buffer.extent_constraint(dimension),
                       buffer.stride_constraint(dimension)});
    }
    for (size_t position = 0; position < reached.size(); ++position) // grows meanwhile
      function(Function(reached[position]));
    std::set<size_t> accumulators;
    for (const std::string &accumulator : step.accumulators)
      accumulators.insert(numbers.at(accumulator));
    for (size_t number : accumulators)
      list(number);
    return text.str();
  }

  Expr mutate(const Expr &value) override {
    if (!value.defined()) {
      list("none");
      return value;
    }
    list(static_cast<int>(value.node_type()), value.type());
    IRMutator::mutate(value);
    return value;
  }

private:
  using IRMutator::visit;

  template <typename... Parts> void list(const Parts &...parts) { ((text << parts << ' '), ...); }

  void expressions(const std::vector<Expr> &values) {
    list(values.size());
    for (const Expr &value : values)
      mutate(value);
  }

  /// Names of loops that were split are those of the variables, with points in between.
  void name(llvm::StringRef whole) {
    llvm::SmallVector<llvm::StringRef> parts;
    whole.split(parts, '.');
    for (llvm::StringRef part : parts)
      text << numbers.try_emplace(part.str(), numbers.size()).first->second << '.';
    text << ' ';
  }

  void reach(const Function &function) {
    if (names.insert(function.name()).second)
      reached.push_back(function.get_contents());
    name(function.name());
  }

  void level(Halide::LoopLevel level) {
    level.lock(); // an unlocked one says nothing
    list(level.is_inlined(), level.is_root(), level.get_stage_index());
    if (level.is_inlined() || level.is_root())
      return;
    name(level.func());
    name(level.var().name());
  }

  void function(const Function &function) {
    if (function.has_extern_definition())
      throw std::logic_error("a pipeline's form does not tell functions of others apart");
    list("\nfunction");
    name(function.name());
    for (const std::string &argument : function.args())
      name(argument);
    stage(function.definition());
    for (const Definition &update : function.updates())
      stage(update);
    const FuncSchedule &schedule = function.schedule();
    level(schedule.compute_level());
    level(schedule.store_level());
    level(schedule.hoist_storage_level());
    list(static_cast<int>(schedule.memory_type()), schedule.memoized(), schedule.async(), schedule.wrappers().size());
    for (const StorageDim &dimension : schedule.storage_dims()) {
      name(dimension.var);
      expressions({dimension.alignment, dimension.bound, dimension.fold_factor});
    }
    for (const Bound &bound : schedule.bounds()) {
      name(bound.var);
      expressions({bound.min, bound.extent, bound.modulus, bound.remainder});
    }
  }

  void stage(const Definition &definition) {
    const StageSchedule &schedule = definition.schedule();
    if (!definition.specializations().empty() || !schedule.prefetches().empty())
      throw std::logic_error("a pipeline's form does not tell special cases and prefetches apart");
    list("\nstage");
    level(schedule.fuse_level().level);
    expressions(definition.args());
    expressions(definition.values());
    mutate(definition.predicate());
    list(schedule.atomic(), schedule.allow_race_conditions(), schedule.override_atomic_associativity_test());
    for (const ReductionVariable &variable : schedule.rvars()) {
      name(variable.var);
      expressions({variable.min, variable.extent});
    }
    for (const Split &split : schedule.splits()) {
      for (const std::string &variable : {split.old_var, split.outer, split.inner})
        name(variable);
      mutate(split.factor);
      list(split.exact, static_cast<int>(split.tail), static_cast<int>(split.split_type));
    }
    for (const Dim &loop : schedule.dims()) {
      name(loop.var);
      list(static_cast<int>(loop.for_type), static_cast<int>(loop.device_api), static_cast<int>(loop.dim_type),
           static_cast<int>(loop.partition_policy));
    }
  }

  Expr visit(const IntImm *op) override {
    list(op->value);
    return op;
  }
  Expr visit(const UIntImm *op) override {
    list(op->value);
    return op;
  }
  Expr visit(const FloatImm *op) override {
    list(op->value);
    return op;
  }
  Expr visit(const StringImm *op) override {
    list(op->value.size(), op->value);
    return op;
  }
  Expr visit(const Variable *op) override {
    bool isOfBuffer = op->param.defined() && op->param.is_buffer(); // its stride in some dimension
    llvm::StringRef whole = op->name, buffer = isOfBuffer ? llvm::StringRef(op->param.name()) : whole;
    name(buffer);
    list(whole.drop_front(buffer.size()).str());
    return op;
  }
  Expr visit(const Let *op) override {
    name(op->name);
    return IRMutator::visit(op);
  }
  Expr visit(const Load *op) override {
    name(op->name);
    return IRMutator::visit(op);
  }
  Expr visit(const Call *op) override {
    list(static_cast<int>(op->call_type), op->value_index, op->args.size());
    if (op->call_type == Call::Halide)
      reach(Function(op->func));
    else
      list(op->name);
    return IRMutator::visit(op);
  }

  std::ostringstream text;
  std::map<std::string, size_t> numbers; ///< Of names.
  std::set<std::string> names;           ///< Of the functions that were reached.
  std::vector<FunctionPtr> reached;
};
} // namespace

std::string pipelineForm(const StepLowering &step) { return FormWriter().write(step); }

} // namespace attn::lowering
