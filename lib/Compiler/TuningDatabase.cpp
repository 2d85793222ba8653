//===- TuningDatabase.cpp - Plans that were found by measuring -------------===//

#include "TuningDatabase.h"

#include "attn/Plan/Settings.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/YAMLTraits.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <fmt/format.h>

using namespace attn;

LLVM_YAML_IS_SEQUENCE_VECTOR(TuningEntry)
LLVM_YAML_IS_FLOW_SEQUENCE_VECTOR(TunedShape)

namespace llvm::yaml {

template <> struct MappingTraits<TunedShape> {
  static void mapping(IO &io, TunedShape &shape) {
    io.mapRequired("shape", shape.shape);
    io.mapRequired("chosen", shape.chosen);
    io.mapRequired("tuned", shape.tuned);
  }
  static const bool flow = true;
};

template <> struct CustomMappingTraits<PlanSettings> {
  static void inputOne(IO &io, StringRef name, PlanSettings &settings) {
    io.mapRequired(name.str().c_str(), settings[name.str()]);
  }
  static void output(IO &io, PlanSettings &settings) {
    for (auto &[name, value] : settings)
      io.mapRequired(name.c_str(), value);
  }
};

template <> struct MappingTraits<TuningEntry> {
  static void mapping(IO &io, TuningEntry &entry) {
    io.mapRequired("machine", entry.machine);
    io.mapRequired("kernel", entry.kernel);
    io.mapRequired("spec", entry.spec);
    io.mapRequired("settings", entry.settings);
    io.mapRequired("measured", entry.measured);
  }
  static std::string validate(IO &, TuningEntry &entry) {
    llvm::Error error = checkSettings(entry.settings);
    return error ? llvm::toString(std::move(error)) : "";
  }
};

} // namespace llvm::yaml

std::string TuningDatabase::path() {
  const char *variable = std::getenv("ATTN_TUNING_DB");
  return variable ? variable : "";
}

llvm::Expected<TuningDatabase> TuningDatabase::read(const std::string &path) {
  TuningDatabase database;
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!file && file.getError() == std::errc::no_such_file_or_directory)
    return database;
  if (!file)
    return llvm::createStringError("cannot read the tuning database " + path + ": " + file.getError().message());
  std::string message;
  auto report = [](const llvm::SMDiagnostic &diagnostic, void *text) {
    *static_cast<std::string *>(text) = fmt::format("{}: {}", diagnostic.getLineNo(), diagnostic.getMessage().str());
  };
  llvm::yaml::Input input((*file)->getBuffer(), nullptr, report, &message);
  input >> database.entries;
  if (input.error())
    return llvm::createStringError("the tuning database " + path + " cannot be read: line " + message);
  return database;
}

PlanSettings TuningDatabase::find(llvm::StringRef machine, llvm::StringRef spec) const {
  for (const TuningEntry &entry : entries)
    if (entry.machine == machine && entry.spec == spec)
      return entry.settings;
  return {};
}

void TuningDatabase::insert(TuningEntry entry) {
  llvm::erase_if(entries,
                 [&](const TuningEntry &other) { return other.machine == entry.machine && other.spec == entry.spec; });
  entries.push_back(std::move(entry));
}

llvm::Error TuningDatabase::write(const std::string &path) const {
  return llvm::writeToOutput(path, [&](llvm::raw_ostream &os) {
    llvm::yaml::Output output(os, nullptr, /*WrapColumn=*/110);
    std::vector<TuningEntry> copy = entries; // it is mapped in both directions, so not const
    output << copy;
    return llvm::Error::success();
  });
}

std::string attn::specHash(KernelOp kernel) {
  std::string text;
  llvm::raw_string_ostream os(text);
  kernel.print(os);
  return fmt::format("{:016x}", llvm::xxh3_64bits(text));
}
