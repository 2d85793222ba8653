//===- Diagnostics.cpp - Errors that point at the source ------------------===//

#include "Diagnostics.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <set>

using namespace attn::language;
using llvm::StringRef;

/// More errors than this are not read by anybody.
static constexpr size_t maximumPrinted = 100;

StringRef attn::language::findNearest(StringRef name, llvm::ArrayRef<StringRef> candidates) {
  StringRef best;
  unsigned allowed = name.size() <= 2 ? 1 : name.size() <= 5 ? 2 : 3;
  unsigned bestDistance = allowed + 1;
  for (StringRef candidate : candidates) {
    unsigned distance = name.edit_distance(candidate, /*AllowReplacements=*/true, allowed);
    // A one-letter name is near every other one-letter name: only its other case counts.
    if (name.size() == 1 && candidate.size() == 1 && !name.equals_insensitive(candidate))
      continue;
    bool alike = distance < std::max(name.size(), candidate.size()) || name.equals_insensitive(candidate);
    if (distance < bestDistance && alike) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

SourceError &SourceError::suggest(StringRef name, llvm::ArrayRef<StringRef> candidates) {
  StringRef nearest = findNearest(name, candidates);
  return nearest.empty() ? *this : help("did you mean `" + nearest.str() + "`?");
}

SourceError &Diagnostics::error(StringRef where, std::string message) {
  return diagnostics.emplace_back(where, std::move(message));
}

/// The width of UTF-8 text in characters: continuation bytes take no room.
static size_t displayWidth(StringRef text) {
  return llvm::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; });
}

void Diagnostics::printMessage(llvm::raw_ostream &os, StringRef where, StringRef kind, StringRef message) const {
  const llvm::MemoryBuffer *buffer = sources.getMemoryBuffer(sources.getMainFileID());
  const char *begin = buffer->getBufferStart(), *end = buffer->getBufferEnd();
  const char *position = where.data();
  auto [line, column] = sources.getLineAndColumn(llvm::SMLoc::getFromPointer(position), sources.getMainFileID());
  os << buffer->getBufferIdentifier() << ':' << line << ':' << column << ": " << kind << ": " << message << '\n';

  const char *lineStart = position, *lineEnd = position;
  while (lineStart != begin && lineStart[-1] != '\n')
    --lineStart;
  while (lineEnd != end && *lineEnd != '\n' && *lineEnd != '\r')
    ++lineEnd;
  os << "  ";
  for (char byte : StringRef(lineStart, lineEnd - lineStart))
    os << (byte == '\t' || byte == '\0' ? ' ' : byte);
  os << "\n  ";
  os.indent(displayWidth(StringRef(lineStart, position - lineStart))) << '^';
  StringRef underlined(position, std::max<ptrdiff_t>(0, std::min(where.end(), lineEnd) - position));
  size_t width = displayWidth(underlined);
  for (size_t index = 1; index < width; ++index)
    os << '~';
  os << '\n';
}

void Diagnostics::print(llvm::raw_ostream &os) const {
  std::vector<const SourceError *> ordered;
  std::set<std::pair<const char *, StringRef>> seen;
  for (const SourceError &diagnostic : diagnostics)
    if (seen.insert({diagnostic.where.data(), diagnostic.message}).second)
      ordered.push_back(&diagnostic);
  llvm::stable_sort(ordered,
                    [](const SourceError *a, const SourceError *b) { return a->where.data() < b->where.data(); });
  for (const SourceError *diagnostic : llvm::ArrayRef(ordered).take_front(maximumPrinted)) {
    printMessage(os, diagnostic->where, "error", diagnostic->message);
    for (const auto &[place, text] : diagnostic->notes)
      printMessage(os, place, "note", text);
    for (const std::string &text : diagnostic->helps)
      os << "help: " << text << '\n';
  }
  if (ordered.size() > maximumPrinted)
    os << "and " << ordered.size() - maximumPrinted << " more errors\n";
}
