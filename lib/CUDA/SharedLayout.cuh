//===- SharedLayout.cuh - What a block has in shared memory -----*- C++ -*-===//
//
// A tile of queries, two tiles of keys and two of values, the range of keys of each warp, the tiles of keys that are
// seen, and barriers. The tiles of keys, and those of values, take turns in their two places.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_SHAREDLAYOUT
#define ATTN_CUDA_SHAREDLAYOUT

namespace attn {

/// Where the parts begin, and how much there is, in bytes.
template <typename Kernel> struct SharedLayout {
  using Products = typename Kernel::Products;
  static constexpr int most_seen = 512; ///< Entries for tiles of keys that are seen, and how many there are.
  static constexpr int queries = 0;
  static constexpr int keys = queries + Products::Queries::size * 2;
  static constexpr int key_bytes = Products::Keys::size * 2;
  static constexpr int values = keys + 2 * key_bytes;
  static constexpr int value_bytes = Products::Values::size * 2;
  static constexpr int ranges = values + 2 * value_bytes;
  static constexpr int seen = ranges + Kernel::threads / 32 * int(sizeof(MaskRange));
  static constexpr int barriers = seen + (Kernel::searches_tiles ? (most_seen + 4) * 2 : 0);
  static constexpr int bytes = barriers + 8 * Kernel::barriers;

  /// The barrier that says that a tile is in a place, and that which says that every warp is done with it: of keys and
  /// values alike, or of keys (0) and of values (1) apart.
  static __device__ constexpr int full(int place, int apart = 0) { return barriers + apart * 32 + place * 8; }
  static __device__ constexpr int empty(int place, int apart = 0) { return full(place, apart) + 16; }
};

} // namespace attn

#endif // ATTN_CUDA_SHAREDLAYOUT
