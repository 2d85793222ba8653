//===- RowTile.cuh - The rows of a block, and its keys ----------*- C++ -*-===//
//
// A block has a tile of rows and a part of the keys that the mask lets through for some of them.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_ROWTILE
#define ATTN_CUDA_ROWTILE

namespace attn {

template <typename Kernel> struct RowTile {
  using Products = typename Kernel::Products;
  static constexpr int rows_of_group = Products::warps * Products::row_tiles * 16;

  const typename Kernel::Arguments &arguments;
  int part, parts; ///< Of the keys.
  int combination; ///< Of the other indices.
  int first_row;
  int group_row; ///< From there, the first one of the warps that compute products together, of which this is one.
  typename Kernel::Block block;
  int rows, keys; ///< Of the combination, in all.
  MaskRange range;
  int first_tile;         ///< Of keys.
  int tiles;              ///< That are visited: numbers 0 to tiles - 1.
  SeenTiles<Kernel> seen; ///< Which of those from the first one on, where not all are.

  /// The last rows come first: a causal mask leaves them the most keys. `ranges` is memory for the block's.
  __device__ __forceinline__ RowTile(const typename Kernel::Arguments &arguments, MaskRange *ranges)
      : arguments(arguments), parts(arguments.parts.count) {
    part = block_index() % parts;
    const int number = block_index() / parts;
    const int row_tiles = int((Kernel::rows(arguments) + Kernel::query_tile - 1) / Kernel::query_tile);
    combination = number / row_tiles;
    first_row = (row_tiles - 1 - number % row_tiles) * Kernel::query_tile;
    group_row = thread_index() / (32 * Products::warps) * rows_of_group;
    if constexpr (Products::warps > 1) // so that the compiler knows that descriptors are the same for a warp
      group_row = shuffle_from(group_row, 0);
    block = Kernel::block(arguments, combination);
    rows = Kernel::rows(arguments, block);
    keys = Kernel::keys(arguments);

    range = {{0, keys}, {0, keys}};
    if constexpr (Kernel::has_mask)
      range = range_of_tile<Kernel>(arguments, block, first_row, ranges);
    const int first_of_all = range.possible.lower / Kernel::key_tile;
    const int last_of_all = (range.possible.upper + Kernel::key_tile - 1) / Kernel::key_tile;
    const int tiles_of_part = (larger(last_of_all - first_of_all, 0) + parts - 1) / parts;
    first_tile = first_of_all + part * tiles_of_part;
    // The last group of heads may have fewer rows than others: none in some tiles.
    tiles = first_row < rows ? larger(smaller(tiles_of_part, last_of_all - first_tile), 0) : 0;
    if constexpr (Kernel::searches_tiles)
      if (tiles > 0)
        tiles = seen.find(arguments, block, first_row, rows, range.possible, first_tile, tiles);
  }

  /// Of a tile of keys.
  __device__ __forceinline__ int first_key(int number) const {
    if constexpr (Kernel::searches_tiles)
      number = seen.tile(number);
    return (first_tile + number) * Kernel::key_tile;
  }
  /// Whether no mask is to be evaluated in it, and all its keys are there.
  __device__ __forceinline__ bool is_whole(int number) const {
    if constexpr (Kernel::searches_tiles)
      if (seen.is_whole(number))
        return true;
    return range.certain.lower <= first_key(number) && first_key(number) + Kernel::key_tile <= range.certain.upper;
  }

  /// The warps of the groups that have rows.
  __device__ __forceinline__ int warps_with_rows() const {
    return smaller((rows - first_row + rows_of_group - 1) / rows_of_group * Products::warps, Kernel::warps);
  }

  /// Begins to copy the queries to shared memory: all threads of the block.
  __device__ __forceinline__ void copy_queries(typename Kernel::Query *tile) const {
    copy_tile<typename Products::Queries, Kernel::threads>(
        tile, [&](int row) { return Kernel::query_row(arguments, block, Kernel::position(block, row)); }, first_row,
        rows, Kernel::dot_width(arguments), Kernel::queries_aligned(arguments), thread_index());
    cp_async_commit();
  }
};

} // namespace attn

#endif // ATTN_CUDA_ROWTILE
