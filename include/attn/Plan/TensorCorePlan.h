//===- TensorCorePlan.h - Attention on tensor cores -------------*- C++ -*-===//
//
// Plain, printable data, as Plan.h: read by lib/CUDA. docs/tensor-cores.md has the loop nest.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_PLAN_TENSORCOREPLAN_H
#define ATTN_PLAN_TENSORCOREPLAN_H

#include "attn/IR/Attn.h"
#include "attn/Plan/GpuPlan.h"

#include "llvm/Support/Error.h"

namespace attn {

/// What is made of the product, beside factors of it and the weighted sum: the more, the more registers it takes.
enum class ElementFormulas {
  Comparisons, ///< Of indices and numbers, without divisions, in the mask, and nothing else.
  Arithmetic,  ///< Of scores, masks, sinks, log-sum-exps.
  Reads,       ///< Of tensors at the query or the key.
};

struct TensorCorePlan {
  static constexpr int chosen = -1;

  int queries = 0; ///< Rows of a block: 64 or 128. 0: chosen for the widths.
  int keys = 0;    ///< Of a tile: 32, 64 or 128; with warpgroups also 160 or 192. 0: chosen for the widths.
  int width = 128; ///< The most columns of tensors whose width is no constant.
  /// Of a block, with 64 queries each and wgmma, for sm_90a alone; 0: warps with mma. Chosen: 2 where sm_90a is the
  /// only architecture.
  int warpgroups = chosen;
  /// 1: another warpgroup copies for the 2 of `warpgroups`, whose steps overlap. Chosen: 1 where rows are short enough.
  int producer = chosen;

  bool searchesTiles = false; ///< Whether a block looks for the tiles of keys that its rows see.
  int warps = 4;              ///< Of a block that compute; each has queries / warps queries.
  int dotColumns = 128;   ///< Columns of tiles of queries and keys: a multiple of 16; those beyond the tensor's are 0.
  int valueColumns = 128; ///< Columns of tiles of values: likewise; with warpgroups, a multiple of 64.

  int threads() const { return 32 * (warps + 4 * producer); }
  /// In shared memory: for each of two tiles one that says that it is there, one that its place is free; keys and
  /// values are apart where there is a producer.
  int barriers() const { return producer ? 8 : warpgroups ? 4 : 0; }
  /// The shared memory of a block: a tile of queries, two tiles of keys and of values, the range of keys of each
  /// warp, the tiles that are seen, and the barriers.
  int sharedBytes() const;
  /// Blocks that a multiprocessor of sm_90 runs at once, by their shared memory, and by the registers of a thread.
  int resident() const;
  /// The floats that a part of the keys leaves of a row: its maximum, its sum and its outputs.
  int stateSize() const { return 2 + valueColumns; }
  /// Of a block that merges what parts have left of a row: one for each column.
  int mergingThreads() const { return (valueColumns + 31) / 32 * 32; }
  /// The plan beside this one for calls with at most 16 rows that share keys, steps of decoding among them: blocks of
  /// one warp, of which a multiprocessor runs many. What its parts leave is merged as this one's are.
  TensorCorePlan forFewRows() const;
  /// Chooses warpgroups for a target. Fails where a plan that has some is for another architecture.
  llvm::Error chooseFor(llvm::ArrayRef<CudaArchitecture> architectures);
  /// The plan for tensors of these widths, such formulas, and a mask for which tiles are looked for or not. Fails where
  /// one is wider than 256, shared memory is not enough, or queries are not those of warpgroups.
  llvm::Expected<TensorCorePlan> forWidths(SizeAttr dot, SizeAttr value, ElementFormulas formulas,
                                           bool searchesTiles) const;
};

} // namespace attn

#endif // ATTN_PLAN_TENSORCOREPLAN_H
