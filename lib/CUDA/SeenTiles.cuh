//===- SeenTiles.cuh - Tiles of keys that some row sees ---------*- C++ -*-===//
//
// Where the text of a mask does not say all of it (documents, tables, a sink beside a window), a block looks at its
// tiles of keys before it visits them. A warp has one at a time: the least and the greatest of what the mask compares
// say whether some row may see some of the keys, and whether all rows see all of them.
//
//   least, greatest of the rows' terms                                 each warp by itself, shuffles
//   for tiles in the range of keys
//     least, greatest of the keys' terms                               a warp, a key a lane
//     seen or not, whole or not                                        Intervals.cuh
//   those that are seen, in order                                      the first warp
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_SEENTILES
#define ATTN_CUDA_SEENTILES

namespace attn {

/// Between which numbers the terms of rows, or of keys, are.
template <typename Number, int count> struct Extremes {
  Number least[count], greatest[count];

  /// Of `numbers` positions from `first` on, a lane takes one of 32.
  template <typename TermsAt> __device__ __forceinline__ Extremes(int first, int numbers, TermsAt terms_at) {
#pragma unroll 4
    for (int at = thread_index() % 32; at < (numbers + 31) / 32 * 32; at += 32) {
      Number terms[count];
      terms_at(first + smaller(at, numbers - 1), terms);
      const bool is_first = at < 32;
#pragma unroll
      for (int term = 0; term < count; ++term) {
        least[term] = is_first ? terms[term] : smaller(least[term], terms[term]);
        greatest[term] = is_first ? terms[term] : larger(greatest[term], terms[term]);
      }
    }
    for (int mask = 16; mask > 0; mask /= 2)
#pragma unroll
      for (int term = 0; term < count; ++term) {
        least[term] = smaller(least[term], shuffle_xor(least[term], mask));
        greatest[term] = larger(greatest[term], shuffle_xor(greatest[term], mask));
      }
  }

  __device__ __forceinline__ Interval operator[](int term) const { return {least[term], greatest[term]}; }
};

/// The tiles that are seen of a block's, in shared memory. Where there are more tiles than entries, each entry is for
/// as many tiles, a power of two.
template <typename Kernel> class SeenTiles {
  using Arguments = typename Kernel::Arguments;
  using Block = typename Kernel::Block;
  using Layout = SharedLayout<Kernel>;

public:
  /// Looks at `tiles` tiles from `first_tile` on: all threads of the block. How many are to be visited.
  __device__ __forceinline__ int find(const Arguments &arguments, const Block &block, int first_row, int rows,
                                      const KeyRange &possible, int first_tile, int tiles) {
    while (tiles - 1 >> shift >= Layout::most_seen)
      ++shift;
    using Term = typename Kernel::Term;
    const Extremes<Term, Kernel::row_terms> row(
        first_row, smaller(int(Kernel::query_tile), rows - first_row), [&](int row, Term(&terms)[Kernel::row_terms]) {
          Kernel::terms_of_row(arguments, block, Kernel::position(block, row), terms);
        });
    const int count = (tiles + (1 << shift) - 1) >> shift;
    for (int entry = thread_index() / 32; entry < count; entry += Kernel::threads / 32) {
      const int64 first_key = int64(first_tile + (entry << shift)) * Kernel::key_tile;
      const int64 end_of_keys = first_key + (int64(Kernel::key_tile) << shift);
      const int lower = int(larger(first_key, int64(possible.lower)));
      const int upper = int(smaller(end_of_keys, int64(possible.upper)));
      Outcome outcome = {false, false};
      if (lower < upper) {
        const Extremes<Term, Kernel::key_terms> key(
            lower, upper - lower,
            [&](int key, Term(&terms)[Kernel::key_terms]) { Kernel::terms_of_key(arguments, block, key, terms); });
        outcome = Kernel::outcome(arguments, block, row, key);
      }
      if (thread_index() % 32 == 0)
        entries()[entry] = !outcome.may ? 0 : outcome.must && upper - lower == end_of_keys - first_key ? whole : cut;
    }
    block_barrier();
    if (thread_index() < 32)
      keep_seen(count);
    block_barrier();
    const int seen = entries()[Layout::most_seen];
    const bool has_last = seen > 0 && entries()[seen - 1] >> 1 == count - 1;
    return (seen << shift) - (has_last ? (count << shift) - tiles : 0);
  }

  /// Which tile is the one that is visited as number `number`, and whether all rows see all keys of it.
  __device__ __forceinline__ int tile(int number) const {
    return (entries()[number >> shift] >> 1 << shift) + (number & ((1 << shift) - 1));
  }
  __device__ __forceinline__ bool is_whole(int number) const { return entries()[number >> shift] & 1; }

private:
  enum Kind : unsigned short { cut = 1, whole = 2 };

  /// Moves the entries of what is seen to the front: number of the tiles, times 2, plus 1 where these are whole.
  __device__ __forceinline__ void keep_seen(int count) {
    const int lane = thread_index() % 32;
    int kept = 0;
    for (int begin = 0; begin < count; begin += 32) {
      const int entry = begin + lane, kind = entry < count ? entries()[entry] : 0;
      const unsigned seen = lanes_where(kind != 0);
      if (kind != 0)
        entries()[kept + count_of_ones(seen & ((1u << lane) - 1))] = (unsigned short)(entry << 1 | (kind == whole));
      kept += count_of_ones(seen);
    }
    if (lane == 0)
      entries()[Layout::most_seen] = (unsigned short)kept;
  }

  static __device__ __forceinline__ unsigned short *entries() {
    return reinterpret_cast<unsigned short *>(shared_memory() + Layout::seen);
  }

  int shift = 0;
};

} // namespace attn

#endif // ATTN_CUDA_SEENTILES
