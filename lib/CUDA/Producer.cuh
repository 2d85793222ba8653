//===- Producer.cuh - Tiles that a warpgroup copies for others --*- C++ -*-===//
//
// The last warpgroup of a block copies keys and values, the others compute. Keys and values have barriers of their own
// in each of their two places: `full` says that a tile is there, `empty` that every warp is done with it.
//
//   by tensor maps         its first thread begins each copy, whose bytes the barrier counts
//   by its threads         cp.async, or element by element: each waits for its share of a copy when it has begun the
//                          next one, and says so to the barrier, which is for all of them
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_PRODUCER
#define ATTN_CUDA_PRODUCER

namespace attn {

template <typename Kernel> class Producer {
  using Shared = SharedLayout<Kernel>;
  static constexpr int threads = 128;

public:
  /// Keys and values are apart: in their barriers, and in the order of copies.
  enum Apart { of_keys, of_values };

  /// To be followed by a fence_proxy_async, and a barrier of the block.
  __device__ __forceinline__ Producer(const RowTile<Kernel> &rows, unsigned char *shared)
      : tiles(rows, shared), count(rows.tiles), shared(shared) {
    if constexpr (Kernel::has_maps)
      by_maps = rows.arguments.maps.are_valid;
    if (thread() == 0)
      for (int apart : {of_keys, of_values})
        for (int place = 0; place < 2; ++place) {
          mbarrier_init(shared, Shared::full(place, apart), by_maps ? 1 : threads);
          mbarrier_init(shared, Shared::empty(place, apart), larger(rows.warps_with_rows(), 1));
        }
  }

  __device__ __forceinline__ auto *keys(int number) const { return tiles.keys(number); }
  __device__ __forceinline__ auto *values(int number) const { return tiles.values(number); }

  /// Waits until a tile of keys, or of values, is there.
  __device__ __forceinline__ void wait(Apart apart, int number) const {
    mbarrier_wait(shared, Shared::full(number % 2, apart), number / 2 % 2);
  }
  /// This warp is done with it.
  __device__ __forceinline__ void release(Apart apart, int number) const {
    if (thread_index() % 32 == 0)
      mbarrier_arrive(shared, Shared::empty(number % 2, apart));
  }

  /// Begins the first copies, where no other thread is needed for them: by the one that has made the barriers.
  __device__ __forceinline__ void start() const {
    if constexpr (Kernel::has_maps)
      if (by_maps && count > 0 && thread() == 0) {
        fence_proxy_async();
        begin_keys_by_map(0);
        begin_values_by_map(0);
      }
  }

  /// All other copies, of the warpgroup that does nothing else.
  __device__ __forceinline__ void run() const {
    if constexpr (Kernel::has_maps)
      if (by_maps) {
        if (thread() == 0)
          for (int number = 1; number < count; ++number) {
            begin_keys_by_map(number);
            begin_values_by_map(number);
          }
        return;
      }
    for (int number = 0; number < count; ++number) {
      wait_for_place(of_keys, number);
      tiles.template copy_by_threads<threads, true, false>(number, thread());
      if (number > 0)
        finish<1>(of_values, number - 1);
      wait_for_place(of_values, number);
      tiles.template copy_by_threads<threads, false, true>(number, thread());
      finish<1>(of_keys, number);
    }
    if (count > 0)
      finish<0>(of_values, count - 1);
  }

private:
  static __device__ __forceinline__ int thread() { return thread_index() - 32 * Kernel::warps; }

  __device__ __forceinline__ void wait_for_place(Apart apart, int number) const {
    if (number >= 2)
      mbarrier_wait(shared, Shared::empty(number % 2, apart), (number / 2 - 1) % 2);
  }
  __device__ __forceinline__ void begin_keys_by_map(int number) const {
    const int full = Shared::full(number % 2, of_keys);
    wait_for_place(of_keys, number);
    mbarrier_arrive_expect(shared, full, Shared::key_bytes);
    tiles.copy_keys_by_map(number, full);
  }
  __device__ __forceinline__ void begin_values_by_map(int number) const {
    const int full = Shared::full(number % 2, of_values);
    wait_for_place(of_values, number);
    mbarrier_arrive_expect(shared, full, Shared::value_bytes);
    tiles.copy_values_by_map(number, full);
  }
  /// Of the copies that this thread has begun all but the last `pending` are there.
  template <int pending> __device__ __forceinline__ void finish(Apart apart, int number) const {
    cp_async_wait<pending>();
    fence_proxy_async();
    mbarrier_arrive(shared, Shared::full(number % 2, apart));
  }

  KeyTiles<Kernel> tiles;
  int count;
  unsigned char *shared;
  bool by_maps = false;
};

} // namespace attn

#endif // ATTN_CUDA_PRODUCER
