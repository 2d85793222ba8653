//===- ArgumentChecks.cpp - What the runtime has checked ------------------===//

#include "ArgumentChecks.h"

#include "llvm/ADT/StringSet.h"

namespace attn::lowering {

namespace {
class DropChecks : public Halide::Internal::IRMutator {
public:
  using IRMutator::visit;

  Halide::Internal::Stmt visit(const Halide::Internal::AssertStmt *check) override {
    static const llvm::StringSet<> errors = {
        "halide_error_bad_dimensions",
        "halide_error_bad_type",
        "halide_error_buffer_allocation_too_large",
        "halide_error_buffer_argument_is_null",
        "halide_error_buffer_extents_negative",
        "halide_error_buffer_extents_too_large",
        "halide_error_constraint_violated",
        "halide_error_constraints_make_required_region_smaller",
        "halide_error_device_dirty_with_no_device_support",
        "halide_error_host_is_null",
    };
    const auto *error = check->message.as<Halide::Internal::Call>();
    if (error && errors.contains(error->name))
      return Halide::Internal::Evaluate::make(0);
    return IRMutator::visit(check);
  }
};
} // namespace

void dropArgumentChecks(Halide::Pipeline &pipeline) { pipeline.add_custom_lowering_pass(new DropChecks); }

} // namespace attn::lowering
