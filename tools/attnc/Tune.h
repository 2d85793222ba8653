//===- Tune.h - attnc tune --------------------------------------*- C++ -*-===//

#ifndef ATTN_TOOLS_ATTNC_TUNE_H
#define ATTN_TOOLS_ATTNC_TUNE_H

#include "attn/Compiler/Tune.h"

namespace attn {

/// attn::tune with a bar of its progress where the standard error is a terminal, and prints what it found.
void tuneAndReport(std::string_view source, const CompileOptions &options, TuneOptions tuning,
                   const std::string &database);

} // namespace attn

#endif // ATTN_TOOLS_ATTNC_TUNE_H
