//===- Diagnostics.h - Errors that point at the source ----------*- C++ -*-===//
//
// Errors are collected, put in source order and printed together at the end, so that one run
// reports everything that is wrong in a file:
//
//   spec.attn:3:21: error: unknown name `scores`
//     weight[b, m, n] = softmax[n](scores[b, m, n])
//                                  ^~~~~~
//   help: did you mean `score`?
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_LIB_LANGUAGE_DIAGNOSTICS_H
#define ATTN_LIB_LANGUAGE_DIAGNOSTICS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/SourceMgr.h"

#include <deque>
#include <string>
#include <vector>

namespace attn::language {

/// One error with what explains it. `where` is a piece of the source buffer: its start is the caret, its
/// length the underline.
class SourceError {
public:
  SourceError(llvm::StringRef where, std::string message) : where(where), message(std::move(message)) {}

  /// Adds a `note:` that points at another place.
  SourceError &note(llvm::StringRef place, std::string text) {
    notes.push_back({place, std::move(text)});
    return *this;
  }
  /// Adds a `help:` line: what to write instead.
  SourceError &help(std::string text) {
    helps.push_back(std::move(text));
    return *this;
  }
  /// Adds `help: did you mean …?` where a candidate is near `name`.
  SourceError &suggest(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> candidates);

  llvm::StringRef where;
  std::string message;
  std::vector<std::pair<llvm::StringRef, std::string>> notes;
  std::vector<std::string> helps;
};

class Diagnostics {
public:
  explicit Diagnostics(const llvm::SourceMgr &sources) : sources(sources) {}

  /// Reports an error at `where`. The reference stays valid; a repeated error (same place, same text) is printed once.
  SourceError &error(llvm::StringRef where, std::string message);
  bool hasErrors() const { return !diagnostics.empty(); }
  /// How many errors there are, to see whether a step added one.
  size_t count() const { return diagnostics.size(); }
  /// Prints all errors in source order.
  void print(llvm::raw_ostream &os) const;

private:
  void printMessage(llvm::raw_ostream &os, llvm::StringRef where, llvm::StringRef kind, llvm::StringRef message) const;

  const llvm::SourceMgr &sources;
  std::deque<SourceError> diagnostics;
};

/// The candidate nearest to `name` by edit distance, or nothing where none is near enough to be what was meant.
llvm::StringRef findNearest(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> candidates);

/// The piece of the buffer from the start of `first` to the end of `last`.
inline llvm::StringRef span(llvm::StringRef first, llvm::StringRef last) {
  return llvm::StringRef(first.data(), static_cast<size_t>(last.end() - first.data()));
}

} // namespace attn::language

#endif // ATTN_LIB_LANGUAGE_DIAGNOSTICS_H
