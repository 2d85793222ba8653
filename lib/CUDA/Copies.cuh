//===- Copies.cuh - Tiles of keys and values, one after the other -*- C++ -*-===//
//
// Two tiles take turns in shared memory. They are copied
//
//   by all threads         cp.async, or element by element: a barrier of the block says that a tile is there, and that
//                          everybody is done with the one before it
//   by tensor maps         cp.async.bulk.tensor, which thread 0 begins: in each place a `full` barrier says that the
//                          tile is there, an `empty` one that every warp is done with it. No warp waits for another
//                          one but thread 0's, before it begins a copy
//
// which the runtime decides: maps are for tensors whose rows begin at multiples of 16 bytes.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_COPIES
#define ATTN_CUDA_COPIES

namespace attn {

/// Where the parts of a block's shared memory begin, and how much it is, in bytes.
template <typename Kernel> struct SharedLayout {
  using Products = typename Kernel::Products;
  static constexpr int queries = 0;
  static constexpr int keys = queries + Products::Queries::size * 2;
  static constexpr int key_bytes = Products::Keys::size * 2;
  static constexpr int values = keys + 2 * key_bytes;
  static constexpr int value_bytes = Products::Values::size * 2;
  static constexpr int ranges = values + 2 * value_bytes;
  static constexpr int barriers = ranges + Kernel::warps * int(sizeof(MaskRange));
  static constexpr int bytes = barriers + 8 * Products::barriers;

  static __device__ constexpr int full(int place) { return barriers + place * 8; }
  static __device__ constexpr int empty(int place) { return barriers + 16 + place * 8; }
};

template <typename Kernel> class Copies {
  using Query = typename Kernel::Query;
  using Value = typename Kernel::Value;
  using Products = typename Kernel::Products;
  using Shared = SharedLayout<Kernel>;

public:
  __device__ __forceinline__ Copies(const typename Kernel::Arguments &arguments, const typename Kernel::Block &block,
                                    unsigned char *shared, int first_tile)
      : arguments(arguments), block(block), shared(shared), first_tile(first_tile) {
    if constexpr (Kernel::has_maps) {
      by_maps = arguments.maps.are_valid;
      if (by_maps && thread_index() == 0) {
        for (int place = 0; place < 2; ++place) {
          mbarrier_init(shared, Shared::full(place), 1);
          mbarrier_init(shared, Shared::empty(place), Kernel::warps);
        }
        fence_proxy_async();
      }
    }
  }

  __device__ __forceinline__ Query *keys(int tile) const {
    return reinterpret_cast<Query *>(shared + Shared::keys + place_of(tile) * Shared::key_bytes);
  }
  __device__ __forceinline__ Value *values(int tile) const {
    return reinterpret_cast<Value *>(shared + Shared::values + place_of(tile) * Shared::value_bytes);
  }

  /// Begins to copy a tile, the first one or that after one that has been waited for.
  __device__ __forceinline__ void begin(int tile) const {
    if constexpr (Kernel::has_maps)
      if (by_maps) {
        if (thread_index() == 0)
          begin_by_maps(tile);
        return;
      }
    const int first = tile * Kernel::key_tile, count = Kernel::keys(arguments);
    // Where a table says where keys are, a lane finds it for one of 32 keys, the others have it from there.
    constexpr int group = Kernel::has_places ? 32 : Kernel::key_tile, threads = 32 * Kernel::warps;
#pragma unroll 1
    for (int begin = 0; begin < Kernel::key_tile; begin += group) {
      const int first_of_group = first + begin;
      const auto of_lane = Kernel::place(arguments, block, smaller(first_of_group + thread_index() % 32, count - 1));
      auto place = [&](int key) { return Kernel::place_of_lane(of_lane, key - first_of_group); };
      copy_tile<typename Products::Keys, threads, group>(
          keys(tile), [&](int key) { return Kernel::key_row(arguments, block, place(key), key); }, first, count,
          Kernel::dot_width(arguments), Kernel::keys_aligned(arguments), begin);
      copy_tile<typename Products::Values, threads, group>(
          values(tile), [&](int key) { return Kernel::value_row(arguments, block, place(key), key); }, first, count,
          Kernel::value_width(arguments), Kernel::values_aligned(arguments), begin);
    }
    cp_async_commit();
  }

  /// Waits until a tile is there; with the first one what this block has copied by cp.async, the queries.
  __device__ __forceinline__ void wait(int tile) const {
    if (!by_maps || tile == first_tile) {
      cp_async_wait<0>();
      Products::publish();
      block_barrier();
    }
    if constexpr (Kernel::has_maps)
      if (by_maps)
        mbarrier_wait(shared, Shared::full(place_of(tile)), round_of(tile) % 2);
  }

  /// This warp is done with a tile.
  __device__ __forceinline__ void release(int tile) const {
    if constexpr (Kernel::has_maps)
      if (by_maps && thread_index() % 32 == 0)
        mbarrier_arrive(shared, Shared::empty(place_of(tile)));
  }

private:
  __device__ __forceinline__ int place_of(int tile) const { return (tile - first_tile) % 2; }
  /// How many tiles have been in its place before.
  __device__ __forceinline__ int round_of(int tile) const { return (tile - first_tile) / 2; }

  __device__ __forceinline__ void begin_by_maps(int tile) const {
    const int first = tile * Kernel::key_tile, full = Shared::full(place_of(tile));
    if (round_of(tile) > 0)
      mbarrier_wait(shared, Shared::empty(place_of(tile)), (round_of(tile) - 1) % 2);
    mbarrier_arrive_expect(shared, full, Shared::key_bytes + Shared::value_bytes);
    copy_blocks<typename Products::Keys>(Shared::keys + place_of(tile) * Shared::key_bytes, arguments.maps.keys,
                                         Kernel::key_place(arguments, block, first), full);
    copy_blocks<typename Products::Values>(Shared::values + place_of(tile) * Shared::value_bytes, arguments.maps.values,
                                           Kernel::value_place(arguments, block, first), full);
  }

  template <typename Layout>
  __device__ __forceinline__ void copy_blocks(int offset, const TensorMap &map, const Place &place, int barrier) const {
#pragma unroll
    for (int column = 0; column < Layout::columns; column += 64)
      tensor_copy_5d(shared, offset + column / 64 * Layout::block, map, column, place, barrier);
  }

  const typename Kernel::Arguments &arguments;
  const typename Kernel::Block &block;
  unsigned char *shared;
  int first_tile;
  bool by_maps = false;
};

} // namespace attn

#endif // ATTN_CUDA_COPIES
