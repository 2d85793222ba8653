//===- SizePrograms.cpp - Size expressions as postfix programs ------------===//

#include "SizePrograms.h"

using namespace attn;
using mlir::StringAttr;

static attn_opcode opcode(SizeKind kind) {
  switch (kind) {
  case SizeKind::Add:
    return ATTN_ADD;
  case SizeKind::Sub:
    return ATTN_SUB;
  case SizeKind::Mul:
    return ATTN_MUL;
  case SizeKind::FloorDiv:
    return ATTN_FLOORDIV;
  case SizeKind::Mod:
    return ATTN_MOD;
  case SizeKind::Constant:
    return ATTN_PUSH_CONSTANT;
  case SizeKind::Name:
    return ATTN_PUSH_SIZE;
  }
  llvm_unreachable("unknown size kind");
}

static void append(SizeAttr size, const SizePositions &positions, std::vector<attn_instruction> &code) {
  if (size.isConstant()) {
    code.push_back({ATTN_PUSH_CONSTANT, size.getValue()});
  } else if (size.isName()) {
    code.push_back({ATTN_PUSH_SIZE, positions.lookup(size.getName().getValue())});
  } else {
    append(size.getLhs(), positions, code);
    append(size.getRhs(), positions, code);
    code.push_back({opcode(size.getKind()), 0});
  }
}

SizeProgram attn::sizeProgram(SizeAttr size, const SizePositions &positions) {
  SizeProgram program{size.str(), {}};
  append(size, positions, program.code);
  return program;
}

static bool contains(SizeAttr size, StringAttr name) {
  bool found = false;
  size.forEachName([&](StringAttr other) { found |= other == name; });
  return found;
}

StringAttr attn::solvableName(SizeAttr size, const SizePositions &positions) {
  StringAttr unknown;
  int count = 0;
  size.forEachName([&](StringAttr name) {
    if (!positions.contains(name.getValue())) {
      unknown = name;
      ++count;
    }
  });
  if (count != 1)
    return {};
  // On the way down to the name there may be no division.
  while (!size.isName()) {
    if (size.getKind() == SizeKind::FloorDiv || size.getKind() == SizeKind::Mod)
      return {};
    size = contains(size.getLhs(), unknown) ? size.getLhs() : size.getRhs();
  }
  return unknown;
}

SizeProgram attn::solutionProgram(SizeAttr size, StringAttr name, const SizePositions &positions) {
  SizeProgram program{size.str(), {{ATTN_PUSH_DIMENSION, 0}}};
  std::vector<attn_instruction> &code = program.code;
  while (!size.isName()) {
    bool left = contains(size.getLhs(), name);
    SizeAttr inner = left ? size.getLhs() : size.getRhs(), other = left ? size.getRhs() : size.getLhs();
    if (size.getKind() == SizeKind::Sub && !left) { // value = other - inner, so inner = other - value
      code.push_back({ATTN_PUSH_CONSTANT, -1});
      code.push_back({ATTN_MUL, 0});
      append(other, positions, code);
      code.push_back({ATTN_ADD, 0});
    } else {
      append(other, positions, code);
      SizeKind kind = size.getKind();
      code.push_back({kind == SizeKind::Add ? ATTN_SUB : kind == SizeKind::Sub ? ATTN_ADD : ATTN_FLOORDIV, 0});
    }
    size = inner;
  }
  return program;
}

int64_t attn::stackDepth(const SizeProgram &program) {
  int64_t depth = 0, deepest = 0;
  for (const attn_instruction &instruction : program.code) {
    depth += instruction.opcode <= ATTN_PUSH_DIMENSION ? 1 : -1;
    deepest = std::max(deepest, depth);
  }
  return deepest;
}
