//===- Copies.cuh - Tiles of keys and values, one after the other -*- C++ -*-===//
//
// For warps that copy and compute in turn. Tiles of keys and values are copied
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

template <typename Kernel> class Copies {
  using Products = typename Kernel::Products;
  using Shared = SharedLayout<Kernel>;

public:
  __device__ __forceinline__ Copies(const RowTile<Kernel> &rows, unsigned char *shared)
      : tiles(rows, shared), shared(shared) {
    if constexpr (Kernel::has_maps) {
      by_maps = rows.arguments.maps.are_valid;
      if (by_maps && thread_index() == 0) {
        for (int place = 0; place < 2; ++place) {
          mbarrier_init(shared, Shared::full(place), 1);
          mbarrier_init(shared, Shared::empty(place), Kernel::warps);
        }
        fence_proxy_async();
      }
    }
  }

  __device__ __forceinline__ auto *keys(int number) const { return tiles.keys(number); }
  __device__ __forceinline__ auto *values(int number) const { return tiles.values(number); }

  /// Begins to copy a tile, the first one or that after one that has been waited for.
  __device__ __forceinline__ void begin(int number) const {
    if constexpr (Kernel::has_maps)
      if (by_maps) {
        if (thread_index() == 0)
          begin_by_maps(number);
        return;
      }
    tiles.template copy_by_threads<Kernel::threads>(number, thread_index());
  }

  /// Waits until a tile is there; with the first one what this block has copied by cp.async, the queries.
  __device__ __forceinline__ void wait(int number) const {
    if (!by_maps || number == 0) {
      cp_async_wait<0>();
      Products::publish();
      block_barrier();
    }
    if constexpr (Kernel::has_maps)
      if (by_maps)
        mbarrier_wait(shared, Shared::full(number % 2), number / 2 % 2);
  }

  /// This warp is done with a tile.
  __device__ __forceinline__ void release(int number) const {
    if constexpr (Kernel::has_maps)
      if (by_maps && thread_index() % 32 == 0)
        mbarrier_arrive(shared, Shared::empty(number % 2));
  }

private:
  __device__ __forceinline__ void begin_by_maps(int number) const {
    const int full = Shared::full(number % 2);
    if (number >= 2)
      mbarrier_wait(shared, Shared::empty(number % 2), (number / 2 - 1) % 2);
    mbarrier_arrive_expect(shared, full, Shared::key_bytes + Shared::value_bytes);
    tiles.copy_keys_by_map(number, full);
    tiles.copy_values_by_map(number, full);
  }

  KeyTiles<Kernel> tiles;
  unsigned char *shared;
  bool by_maps = false;
};

} // namespace attn

#endif // ATTN_CUDA_COPIES
