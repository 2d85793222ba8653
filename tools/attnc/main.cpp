//===- main.cpp - The program attnc ---------------------------------------===//

#include "Command.h"

int main(int argc, char **argv) { return attn::attnc(argc, argv); }
