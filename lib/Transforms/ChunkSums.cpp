//===- ChunkSums.cpp - Sums over what comes before, chunk by chunk --------===//
//
//   out[m, e] = sum[n](sum[d](q[m, d] * k[n, d]) * v[n, e] where n <= m)
//
// visits all pairs. As no term is a function of both row and key, all keys of the chunks of C keys before that of the
// row come to one matrix, the state, and only the row's own chunk is visited pair by pair:
//
//   out_near[m, e]     = sum[n](sum[d](q[m, d] * k[n, d]) * v[n, e] where n <= m and m // C * C <= n)
//   out_chunk[c, d, e] = sum[p: C](k[c * C + p, d] * v[c * C + p, e])
//   out_state[c, d, e] = sum[i](out_chunk[i, d, e] where i <= c)                       a running total
//   out_far[c, p, e]   = sum[d](q[(c + 1) * C + p, d] * out_state[c, d, e])
//   out[m, e]          = out_near[m, e] + select(m >= C, out_far[m // C - 1, m % C, e], 0)
//
// These are N · (C / 2 · (D + E) + 2 · D · E) multiply-adds in the place of N² / 2 · (D + E): time grows with N alone.
// It is the chunkwise form of linear attention (Hua et al., "Transformer Quality in Linear Time", 2022; Yang et al.,
// "Gated Linear Attention Transformers with Hardware-Efficient Training", 2024). Gradients have sums of the same kind,
// some of them over the keys from the row on.
//
// All chunks but the last are whole. What is stored has D · E / C numbers for each key, no more than an input where D
// or E is at most C.
//
//===----------------------------------------------------------------------===//

#include "ChunkStatements.h"
#include "Rewrites.h"
#include "attn/Transforms/Passes.h"

using namespace mlir;
using namespace attn;

namespace attn {
#define GEN_PASS_DEF_ATTNCHUNKSUMS
#include "attn/Transforms/Passes.h.inc"
} // namespace attn

namespace {
/// A sum that may be one of chunks.
struct Candidate {
  ReduceOp sum;
  TensorOp tensor;
  CausalSum causal;
};

struct ChunkSums : attn::impl::AttnChunkSumsBase<ChunkSums> {
  void runOnOperation() override;
};
} // namespace

/// Whether nobody reads pairs of `candidate` but sums of chunks: else all pairs are there, and no sum of them costs
/// much.
static bool hasOwnPairs(const Candidate &candidate, ArrayRef<Candidate> all) {
  auto isOfChunks = [&](Operation *user) {
    return llvm::any_of(all, [&](const Candidate &other) {
      return ReduceOp(other.sum)->isAncestor(user) || TensorOp(other.causal.copy)->isAncestor(user) ||
             llvm::any_of(other.causal.pairs, [&](TensorOp pairs) { return pairs->isAncestor(user); });
    });
  };
  return llvm::all_of(candidate.causal.pairs,
                      [&](TensorOp pairs) { return llvm::all_of(pairs->getUsers(), isOfChunks); });
}

void ChunkSums::runOnOperation() {
  std::vector<Candidate> candidates;
  for (TensorOp tensor : llvm::to_vector(getOperation().getBody().front().getOps<TensorOp>()))
    for (ReduceOp sum : tensor.getBody().front().getOps<ReduceOp>())
      if (std::optional<CausalSum> causal = CausalSum::of(sum, tensor))
        candidates.push_back({sum, tensor, *causal});
  std::vector<Candidate> left = candidates;
  for (size_t before = 0; before != left.size();) {
    before = left.size();
    llvm::erase_if(left, [&](const Candidate &candidate) { return !hasOwnPairs(candidate, left); });
  }
  for (const Candidate &each : left) {
    SizeAttr keys = indexSize(each.causal.row);
    if (keys.isConstant() && keys.getValue() <= 2 * chunkSize)
      continue;
    writeChunks(each.sum, each.tensor, each.causal);
    noteRewrite(each.tensor, "chunk sums",
                "of the sum in '" + TensorOp(each.tensor).getName() +
                    "' only pairs of one chunk are visited: the keys of all other chunks come to one matrix, as its "
                    "terms are no function of row and key together");
  }
  for (Candidate &candidate : candidates)
    candidate.causal.copy.erase();
}
