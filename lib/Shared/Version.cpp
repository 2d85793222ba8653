//===- Version.cpp - The version of libattn.so ----------------------------===//

/// "0.1.0": for those who load the library by hand.
extern "C" const char *attn_version() { return ATTN_VERSION; }
