//===- KeyTiles.cuh - How keys come to shared memory ------------*- C++ -*-===//
//
// The tiles of keys and values that a block visits, in their two places: by cp.async, element by element, or by tensor
// maps.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_KEYTILES
#define ATTN_CUDA_KEYTILES

namespace attn {

/// The tiles of keys and values, and how they come to their places. A tile is number `number` of those that the block
/// visits.
template <typename Kernel> class KeyTiles {
  using Products = typename Kernel::Products;
  using Shared = SharedLayout<Kernel>;

public:
  __device__ __forceinline__ KeyTiles(const RowTile<Kernel> &rows, unsigned char *shared)
      : rows(rows), shared(shared) {}

  __device__ __forceinline__ typename Kernel::Query *keys(int number) const {
    return reinterpret_cast<typename Kernel::Query *>(shared + key_offset(number));
  }
  __device__ __forceinline__ typename Kernel::Value *values(int number) const {
    return reinterpret_cast<typename Kernel::Value *>(shared + value_offset(number));
  }

  /// Copies that `threads` threads begin by cp.async, or make element by element; this one is `thread` of them.
  template <int threads, bool with_keys = true, bool with_values = true>
  __device__ __forceinline__ void copy_by_threads(int number, int thread) const {
    const auto &arguments = rows.arguments;
    const auto &block = rows.block;
    const int first = rows.first_key(number), count = rows.keys;
    // Where a table says where keys are, a lane finds it for one of 32 keys, the others have it from there.
    constexpr int group = Kernel::has_places ? 32 : Kernel::key_tile;
#pragma unroll 1
    for (int begin = 0; begin < Kernel::key_tile; begin += group) {
      const int first_of_group = first + begin;
      const auto of_lane = Kernel::place(arguments, block, smaller(first_of_group + thread % 32, count - 1));
      auto place = [&](int key) { return Kernel::place_of_lane(of_lane, key - first_of_group); };
      if constexpr (with_keys)
        copy_tile<typename Products::Keys, threads, Kernel::keys_in_line, group>(
            keys(number), [&](int key) { return Kernel::key_row(arguments, block, place(key), key); }, first, count,
            Kernel::dot_width(arguments), Kernel::keys_aligned(arguments), thread, begin);
      if constexpr (with_values)
        copy_tile<typename Products::Values, threads, Kernel::values_in_line, group>(
            values(number), [&](int key) { return Kernel::value_row(arguments, block, place(key), key); }, first, count,
            Kernel::value_width(arguments), Kernel::values_aligned(arguments), thread, begin);
    }
    cp_async_commit();
  }

  /// Copies by tensor maps, which one thread begins; their bytes count for the barrier at byte `barrier`.
  __device__ __forceinline__ void copy_keys_by_map(int number, int barrier) const {
    copy_blocks<typename Products::Keys>(key_offset(number), rows.arguments.maps.keys,
                                         Kernel::key_place(rows.arguments, rows.block, rows.first_key(number)),
                                         barrier);
  }
  __device__ __forceinline__ void copy_values_by_map(int number, int barrier) const {
    copy_blocks<typename Products::Values>(value_offset(number), rows.arguments.maps.values,
                                           Kernel::value_place(rows.arguments, rows.block, rows.first_key(number)),
                                           barrier);
  }

private:
  __device__ __forceinline__ int key_offset(int number) const { return Shared::keys + number % 2 * Shared::key_bytes; }
  __device__ __forceinline__ int value_offset(int number) const {
    return Shared::values + number % 2 * Shared::value_bytes;
  }

  template <typename Layout>
  __device__ __forceinline__ void copy_blocks(int offset, const TensorMap &map, const Place &place, int barrier) const {
#pragma unroll
    for (int column = 0; column < Layout::columns; column += 64)
      tensor_copy_5d(shared, offset + column / 64 * Layout::block, map, column, place, barrier);
  }

  const RowTile<Kernel> &rows;
  unsigned char *shared;
};

} // namespace attn

#endif // ATTN_CUDA_KEYTILES
