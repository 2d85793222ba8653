//===- TensorCorePlan.h - Attention on tensor cores -------------*- C++ -*-===//
//
// Plain, printable data, as Plan.h: read by lib/CUDA. docs/tensor-cores.md has the loop nest.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_PLAN_TENSORCOREPLAN_H
#define ATTN_PLAN_TENSORCOREPLAN_H

#include "attn/IR/Attn.h"

#include "llvm/Support/Error.h"

namespace attn {

struct TensorCorePlan {
  int queries = 0;    ///< Rows of a block: 64 or 128. 0: chosen for the widths.
  int keys = 0;       ///< Of a tile: 32, 64 or 128. 0: chosen for the widths.
  int width = 128;    ///< The most columns of tensors whose width is no constant.
  int warpgroups = 0; ///< Of a block, with 64 queries each and wgmma, for sm_90a alone. 0: warps with mma.
  int producer = 0;   ///< 1: another warpgroup copies for the 2 of `warpgroups`, whose steps overlap.

  int warps = 4;          ///< Of a block that compute; each has queries / warps queries.
  int dotColumns = 128;   ///< Columns of tiles of queries and keys: a multiple of 16; those beyond the tensor's are 0.
  int valueColumns = 128; ///< Columns of tiles of values: likewise; with warpgroups, a multiple of 64.

  int threads() const { return 32 * (warps + 4 * producer); }
  /// In shared memory: for each of two tiles one that says that it is there, one that its place is free; keys and
  /// values are apart where there is a producer.
  int barriers() const { return producer ? 8 : warpgroups ? 4 : 0; }
  /// The shared memory of a block: a tile of queries, two tiles of keys and of values, the range of keys of each
  /// warp, and the barriers.
  int sharedBytes() const;
  /// The floats that a part of the keys leaves of a row: its maximum, its sum and its outputs.
  int stateSize() const { return 2 + valueColumns; }
  /// The plan for tensors of these widths, where `readsPairs` says whether scores or masks read others at their query
  /// or key. Fails where one is wider than 256, shared memory is not enough, or queries are not those of warpgroups.
  llvm::Expected<TensorCorePlan> forWidths(SizeAttr dot, SizeAttr value, bool readsPairs) const;
};

} // namespace attn

#endif // ATTN_PLAN_TENSORCOREPLAN_H
