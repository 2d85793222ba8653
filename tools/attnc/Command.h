//===- Command.h - attnc, for whoever has a command line --------*- C++ -*-===//

#ifndef ATTN_TOOLS_ATTNC_COMMAND_H
#define ATTN_TOOLS_ATTNC_COMMAND_H

namespace attn {

/// Does what the command line says; `arguments` ends with a null pointer. Returns the exit status. The process ends
/// here after `--help` and `--version`, and where an option is wrong. A process can call it once.
int attnc(int count, char **arguments);

} // namespace attn

#endif // ATTN_TOOLS_ATTNC_COMMAND_H
