//===- Settings.h - The sizes of plans that may be set ----------*- C++ -*-===//
//
// Each has a name and the values it may have. `attnc --plan NAME=INT` sets one; `attnc tune` measures them.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_PLAN_SETTINGS_H
#define ATTN_PLAN_SETTINGS_H

#include "attn/Plan/Plan.h"

namespace attn {

struct PlanSetting {
  llvm::StringLiteral name;    ///< "tile.chunk"
  llvm::StringLiteral meaning; ///< A few words.
  std::vector<int64_t> values; ///< Those it may have, ascending.
  void (*set)(Plan &plan, int64_t value);
};

/// All settings.
const std::vector<PlanSetting> &planSettings();

/// Why `settings` cannot be those of a plan: an unknown name, or a value that is none of the setting's.
llvm::Error checkSettings(const PlanSettings &settings);

} // namespace attn

#endif // ATTN_PLAN_SETTINGS_H
