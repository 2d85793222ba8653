//===- Reference.h - The oracle: kernels in double, plain loops -*- C++ -*-===//
//
// Runs any `attn.kernel`, raised or not, in double precision from plain loops. It shares no
// code with the lowering, so agreement means something.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_REFERENCE_REFERENCE_H
#define ATTN_REFERENCE_REFERENCE_H

#include "attn/IR/Attn.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace attn {

/// A dense row-major tensor of doubles: integers and bools are held exactly as doubles up to 2^53.
struct ReferenceTensor {
  std::vector<int64_t> shape;
  std::vector<double> values;

  int64_t elementCount() const;
};

/// Runs `kernel`. `inputs` has one tensor a parameter, in order; a scalar has an empty shape and one value (the
/// caller passes defaults explicitly). Returns the outputs in order, unrounded unless the output is an
/// integer or bool. Shapes that do not fit the kernel's are an error that names the parameter.
llvm::Expected<std::vector<ReferenceTensor>> runReference(KernelOp kernel, llvm::ArrayRef<ReferenceTensor> inputs);

/// Binds the size names of `kernel` from the shapes of its parameters, solving dimensions that are expressions for
/// their one unknown size. An error names the parameter, the dimension, what was expected and what was found.
llvm::Expected<llvm::StringMap<int64_t>> bindSizes(KernelOp kernel, llvm::ArrayRef<std::vector<int64_t>> shapes);

} // namespace attn

#endif // ATTN_REFERENCE_REFERENCE_H
