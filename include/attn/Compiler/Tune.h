//===- Tune.h - Finds a kernel's best plan by measuring ---------*- C++ -*-===//
//
// The plan that is chosen without measuring follows from a model of the machine (attn/Plan/Prediction.h). `tune`
// measures plans that differ from it in one size after the other. What it finds is stored in a text file; where the
// variable ATTN_TUNING_DB names that file, kernels are compiled with what is stored for them.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_COMPILER_TUNE_H
#define ATTN_COMPILER_TUNE_H

#include "attn/Compiler/Compiler.h"

#include <functional>

namespace attn {

/// Values of all sizes of a kernel by name, and of those scalar parameters that have no default.
using TuneShape = std::map<std::string, int64_t>;

/// "B=1 M=64": a shape, or settings.
ATTN_EXPORT std::string assignmentText(const std::map<std::string, int64_t> &values);

struct TuneOptions {
  /// At least one. The best plan is the one with the least geometric mean of their times.
  std::vector<TuneShape> shapes = {};
  /// The threads of setNumThreads.
  int threads = 0;
  /// Called before each measurement with how many are done and how many there are at most, and what is measured.
  std::function<void(size_t done, size_t total, const std::string &what)> progress = {};
};

struct TuneResult {
  /// Sizes of the best plan that differ from the plan that is chosen without measuring: see CompileOptions::plan.
  std::map<std::string, int64_t> settings;
  /// Seconds of a call for each of TuneOptions::shapes, with the chosen and with the best plan.
  std::vector<double> chosen, tuned;
};

/// Measures plans for a kernel of `source` on this machine, on random inputs: floats are normal, integers from 1 to the
/// shape's largest size. Takes a minute or so. Stores the result in the file `database`, in place of what is there for
/// this kernel and machine; an empty `database` stores nothing. Throws CompileError, RunError, and
/// std::invalid_argument where a shape does not fit the kernel.
ATTN_EXPORT TuneResult tune(std::string_view source, const CompileOptions &options, const TuneOptions &tuning,
                            const std::string &database);

} // namespace attn

#endif // ATTN_COMPILER_TUNE_H
