//===- Attention.cuh - Attention on tensor cores ----------------*- C++ -*-===//
//
// A block has a tile of rows; a warp has 16 of them, or 32, and all their keys. A row is a query: where heads share
// keys, of one of these heads.
//
//   lower, upper = the keys that the mask lets through for some row of the tile   RowTile.cuh
//   tiles of keys = those there that some row sees                                SeenTiles.cuh
//   queries -> shared memory
//   maximum, sum, output = lowest float, 0, 0                                     registers
//   for tiles of keys
//     keys and values of the next tile -> the other half of shared memory        Copies.cuh
//     score  = queries · keys                                                     Products.cuh
//     the score's formula, -inf where masked                                      Softmax.cuh
//     maximum of each row; where it moved, output and sum are rescaled
//     weight = 2^(score - maximum)
//     output += weight · values                                                   Products.cuh
//   store output / sum, and the log-sum-exp; where keys are in parts, maximum, sum and output (Parts.cuh)
//
// Overlapped.cuh has another order of the same steps. What differs between kernels is in a struct `Kernel`: its
// constants, types, the addresses of rows, and the formulas of one element.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_ATTENTION
#define ATTN_CUDA_ATTENTION

namespace attn {

/// One step after the other, by all warps alike.
template <typename Kernel> __device__ __forceinline__ void attention(const typename Kernel::Arguments &arguments) {
  using Products = typename Kernel::Products;
  using Shared = SharedLayout<Kernel>;
  constexpr int row_tiles = Products::row_tiles, key_steps = Products::key_steps, value_steps = Products::value_steps;

  unsigned char *shared = shared_memory();
  auto *queries = reinterpret_cast<typename Kernel::Query *>(shared + Shared::queries);
  const RowTile<Kernel> tile(arguments, reinterpret_cast<MaskRange *>(shared + Shared::ranges));
  const Copies<Kernel> copies(tile, shared);
  if (tile.tiles > 0) {
    tile.copy_queries(queries);
    copies.begin(0);
  }

  Softmax<Kernel> softmax(tile);
  const bool has_rows = tile.first_row + tile.group_row < tile.rows;
  float output[row_tiles][value_steps][4] = {};
  for (int number = 0; number < tile.tiles; ++number) {
    copies.wait(number);
    if (number + 1 < tile.tiles)
      copies.begin(number + 1);
    if (!has_rows) { // these warps have no more to do
      copies.release(number);
      continue;
    }

    float score[row_tiles][key_steps][4] = {}, scale[row_tiles][2];
    Products::begin_scores(score, queries, copies.keys(number), tile.group_row);
    Products::end_scores(score);
    softmax.apply_formula(score, number);
    if (softmax.move_maximum(score, scale))
      softmax.rescale(output, scale);

    // Sixteen keys at a time, so that their products are computed while the next weights are.
    unsigned weights[key_steps / 2][1][row_tiles][4];
    Products::begin_outputs(output);
#pragma unroll
    for (int step = 0; step < key_steps / 2; ++step) {
      softmax.to_weights(score, number, step * 2);
      softmax.pack_weights(score, step * 2, weights[step][0]);
      Products::add_outputs(output, weights[step], copies.values(number), step * 16);
    }
    Products::commit_outputs();
    Products::end_outputs(output);
    copies.release(number);
  }
  softmax.store(output);
}

} // namespace attn

#endif // ATTN_CUDA_ATTENTION
