//===- TuningDatabase.h - Plans that were found by measuring ----*- C++ -*-===//
//
// A text file (YAML) with an entry for each kernel on each machine that `attnc tune` has measured:
//
//   - machine:  x86-64-linux-avx-avx2-…
//     kernel:   scaled_dot
//     spec:     9c1185a5c5e9fc54
//     settings:
//       tile.chunk: 512
//     measured:
//       - { shape: B=1 D=64 E=64 H=8 M=2048 N=2048, chosen: 0.0436, tuned: 0.0421 }
//
// `spec` is a hash of the simplified kernel, so that one and the same kernel is found however it is written, and none
// that has changed.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_COMPILER_TUNINGDATABASE_H
#define ATTN_LIB_COMPILER_TUNINGDATABASE_H

#include "attn/Plan/Plan.h"

namespace attn {

/// What a shape took, in seconds.
struct TunedShape {
  std::string shape;
  double chosen = 0; ///< By the plan that is chosen without a database.
  double tuned = 0;  ///< By the settings.
};

struct TuningEntry {
  std::string machine; ///< Machine::target
  std::string kernel;
  std::string spec;
  PlanSettings settings; ///< Those that differ from what is chosen without a database.
  std::vector<TunedShape> measured;
};

class TuningDatabase {
public:
  /// The file that the variable ATTN_TUNING_DB names; empty where it is unset or empty.
  static std::string path();
  /// The entries of a file; none where there is no file. An error names the file, and the line that is wrong.
  static llvm::Expected<TuningDatabase> read(const std::string &path);

  /// The settings for `kernel` on a machine; none where it was not tuned.
  PlanSettings find(llvm::StringRef machine, llvm::StringRef spec) const;
  /// Replaces the entry of the same machine and spec.
  void insert(TuningEntry entry);
  /// Writes the file as a whole or not at all.
  llvm::Error write(const std::string &path) const;

private:
  std::vector<TuningEntry> entries;
};

/// A hash of `kernel` after simplification.
std::string specHash(KernelOp kernel);

} // namespace attn

#endif // ATTN_LIB_COMPILER_TUNINGDATABASE_H
