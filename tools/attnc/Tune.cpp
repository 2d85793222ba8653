//===- Tune.cpp - attnc tune ----------------------------------------------===//

#include "Tune.h"

#include <fmt/format.h>
#include <unistd.h>

using namespace attn;

static void showProgress(size_t done, size_t total, const std::string &what) {
  constexpr size_t width = 32;
  size_t filled = width * done / total;
  fmt::print(stderr, "\r[{:#<{}}{:.<{}}] {}/{} {:<24}", "", filled, "", width - filled, done, total, what);
}

static std::string duration(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.3g} µs", seconds * 1e6) : fmt::format("{:.3g} ms", seconds * 1e3);
}

void attn::tuneAndReport(std::string_view source, const CompileOptions &options, TuneOptions tuning,
                         const std::string &database) {
  bool isTerminal = isatty(STDERR_FILENO);
  if (isTerminal)
    tuning.progress = showProgress;
  TuneResult result = tune(source, options, tuning, database);
  if (isTerminal)
    fmt::print(stderr, "\r{:80}\r", "");
  for (size_t index = 0; index < tuning.shapes.size(); ++index)
    fmt::print("{}: chosen {}, tuned {}: {:.2f} times as fast\n", assignmentText(tuning.shapes[index]),
               duration(result.chosen[index]), duration(result.tuned[index]),
               result.chosen[index] / result.tuned[index]);
  fmt::print("settings: {}\n", result.settings.empty() ? "as chosen" : assignmentText(result.settings));
  if (database.empty())
    fmt::print("not stored: name a file with --database or ATTN_TUNING_DB\n");
  else
    fmt::print("stored in {}\n", database);
}
