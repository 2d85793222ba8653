//===- Products.cuh - The products of a tile --------------------*- C++ -*-===//
//
// Scores are queries · keys, outputs are sums of weights · values. Who computes them together, and from what layout in
// shared memory, is one of
//
//   WarpProducts        mma.m16n8k16: a warp by itself, from registers
//   WarpgroupProducts   wgmma.m64nNk16: four warps, from shared memory; weights are in registers
//
// In both a warp has fragments of 16 rows (`row_tiles` of them) and 8 columns, so that what is done with scores and
// outputs between the products is the same.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_PRODUCTS
#define ATTN_CUDA_PRODUCTS

namespace attn {

template <typename Kernel> struct WarpProducts {
  using Query = typename Kernel::Query;
  using Value = typename Kernel::Value;
  using Queries = TileLayout<Kernel::query_tile, Kernel::dot_columns>;
  using Keys = TileLayout<Kernel::key_tile, Kernel::dot_columns>;
  using Values = TileLayout<Kernel::key_tile, Kernel::value_columns>;
  static constexpr int warps = 1; ///< That compute products together.
  static constexpr int row_tiles = Kernel::query_tile / (16 * Kernel::warps);
  static constexpr int key_steps = Kernel::key_tile / 8, value_steps = Kernel::value_columns / 8;

  /// What this thread has copied may be read after the next barrier.
  static __device__ __forceinline__ void publish() {}

  /// Adds the products of the warps' queries, from row `row` of their tile on, and a tile of keys. They are there after
  /// `end_scores`.
  static __device__ __forceinline__ void begin_scores(float (&score)[row_tiles][key_steps][4], const Query *queries,
                                                      const Query *keys, int row) {
    constexpr int steps = Kernel::dot_columns / 16;
    // More would be more addresses at once than registers hold.
    constexpr int unroll = row_tiles > 1 ? 1 : steps > 8 ? 4 : steps;
#pragma unroll(unroll)
    for (int step = 0; step < steps; ++step) {
      unsigned a[row_tiles][4];
#pragma unroll
      for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
        load_rows<Queries>(a[row_tile], queries, row + row_tile * 16, step * 16);
#pragma unroll
      for (int pair = 0; pair < key_steps / 2; ++pair) {
        unsigned b[4];
        load_as_columns<Keys>(b, keys, pair * 16, step * 16);
#pragma unroll
        for (int row_tile = 0; row_tile < row_tiles; ++row_tile) {
          mma_m16n8k16<Query>(score[row_tile][pair * 2], a[row_tile], b[0], b[1]);
          mma_m16n8k16<Query>(score[row_tile][pair * 2 + 1], a[row_tile], b[2], b[3]);
        }
      }
    }
  }

  static __device__ __forceinline__ void end_scores(float (&)[row_tiles][key_steps][4]) {}

  /// Between the first two add_outputs is called, with weights that stay where they are until the last.
  static __device__ __forceinline__ void begin_outputs(float (&)[row_tiles][value_steps][4]) {}
  static __device__ __forceinline__ void commit_outputs() {}
  static __device__ __forceinline__ void end_outputs(float (&)[row_tiles][value_steps][4]) {}

  /// Adds the products of weights, in the fragments of A of 16 keys each, and the values from row `row` of their tile
  /// on.
  template <int steps>
  static __device__ __forceinline__ void add_outputs(float (&output)[row_tiles][value_steps][4],
                                                     unsigned (&weights)[steps][row_tiles][4], const Value *values,
                                                     int row) {
#pragma unroll
    for (int step = 0; step < steps; ++step)
#pragma unroll
      for (int pair = 0; pair < value_steps / 2; ++pair) {
        unsigned b[4];
        load_transposed<Values>(b, values, row + step * 16, pair * 16);
#pragma unroll
        for (int row_tile = 0; row_tile < row_tiles; ++row_tile) {
          mma_m16n8k16<Value>(output[row_tile][pair * 2], weights[step][row_tile], b[0], b[1]);
          mma_m16n8k16<Value>(output[row_tile][pair * 2 + 1], weights[step][row_tile], b[2], b[3]);
        }
      }
  }
};

template <typename Kernel> struct WarpgroupProducts {
  using Query = typename Kernel::Query;
  using Value = typename Kernel::Value;
  using Queries = SwizzledLayout<Kernel::query_tile, Kernel::dot_columns>;
  using Keys = SwizzledLayout<Kernel::key_tile, Kernel::dot_columns>;
  using Values = SwizzledLayout<Kernel::key_tile, Kernel::value_columns>;
  static constexpr int warps = 4;
  static constexpr int row_tiles = 1;
  static_assert(Kernel::query_tile == 16 * Kernel::warps && Kernel::warps % warps == 0, "a warpgroup has 64 rows");
  static constexpr int key_steps = Kernel::key_tile / 8, value_steps = Kernel::value_columns / 8;

  static __device__ __forceinline__ void publish() { fence_proxy_async(); }

  static __device__ __forceinline__ void begin_scores(float (&score)[row_tiles][key_steps][4], const Query *queries,
                                                      const Query *keys, int row) {
    wgmma_fence(score[0]);
#pragma unroll
    for (int column = 0; column < Kernel::dot_columns; column += 16)
      wgmma_m64nNk16<Kernel::key_tile, Query>(score[0], Queries::rows_from(queries, row, column),
                                              Keys::rows_from(keys, 0, column));
    wgmma_commit();
  }
  /// Of what has been begun all is done but the last `pending`.
  template <int pending = 0>
  static __device__ __forceinline__ void end_scores(float (&score)[row_tiles][key_steps][4]) {
    wgmma_wait<pending>(score[0]);
  }

  static __device__ __forceinline__ void begin_outputs(float (&output)[row_tiles][value_steps][4]) {
    wgmma_fence(output[0]);
  }
  static __device__ __forceinline__ void commit_outputs() { wgmma_commit(); }
  static __device__ __forceinline__ void end_outputs(float (&output)[row_tiles][value_steps][4]) {
    wgmma_wait<0>(output[0]);
  }

  /// These products are computed while the next weights are.
  template <int steps>
  static __device__ __forceinline__ void add_outputs(float (&output)[row_tiles][value_steps][4],
                                                     unsigned (&weights)[steps][row_tiles][4], const Value *values,
                                                     int row) {
    wgmma_fence(weights);
#pragma unroll
    for (int step = 0; step < steps; ++step)
      add_columns<0>(output[0], weights[step][0], values, row + step * 16);
  }

private:
  /// Those of columns from `first` on, as many at once as can be.
  template <int first>
  static __device__ __forceinline__ void add_columns(float (&output)[value_steps][4], unsigned (&weights)[4],
                                                     const Value *values, int row) {
    constexpr int rest = Kernel::value_columns - first, columns = rest >= 256 ? 256 : rest >= 128 ? 128 : 64;
    static_assert(rest % 64 == 0, "values have a multiple of 64 columns");
    wgmma_m64nNk16_transposed<columns, Value>(output + first / 8, weights, Values::columns_from(values, row, first));
    if constexpr (rest > columns)
      add_columns<first + columns>(output, weights, values, row);
  }
};

} // namespace attn

#endif // ATTN_CUDA_PRODUCTS
