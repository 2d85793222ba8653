//===- Exchange.h - Arrays through DLPack's C exchange ----------*- C++ -*-===//
//
// A library may offer its arrays to C programs by a table of functions (`__dlpack_c_exchange_api__` of their type,
// DLPack 1.2): an array costs tens of nanoseconds instead of a microsecond.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_PYTHON_BINDINGS_EXCHANGE_H
#define ATTN_PYTHON_BINDINGS_EXCHANGE_H

#include "attn/Compiler/Compiler.h"

#include <nanobind/nanobind.h>

namespace attn::python {

/// Runs `kernel` on arrays of one such type, one for each input, and returns a list of its outputs, made by their
/// library. None where that needs more care: other types, numbers, tensors that require gradients or that their library
/// does not give away like that. Throws what Kernel::run does.
nanobind::object runExchanged(const Kernel &kernel, nanobind::tuple arrays);

} // namespace attn::python

#endif // ATTN_PYTHON_BINDINGS_EXCHANGE_H
