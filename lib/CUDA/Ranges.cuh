//===- Ranges.cuh - The keys that a tile of rows visits ---------*- C++ -*-===//
//
// What the mask says of each row, joined.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_RANGES
#define ATTN_CUDA_RANGES

namespace attn {

/// Keys lower <= key < upper.
struct KeyRange {
  int lower, upper;
};

/// The keys that the mask may let through (`possible`), and those that it lets through for certain.
struct MaskRange {
  KeyRange possible, certain;
};

/// A sum that 64 bits may not hold, exactly as far as bounds of keys need it: data may be the largest integer, for "no
/// limit". The halves of its numbers are summed by themselves.
struct WideSum {
  int64 low, high;
  __device__ WideSum plus(int64 value, int64 coefficient) const {
    return {low + (value & 0xffffffff) * coefficient, high + (value >> 32) * coefficient};
  }
  /// −1 for what is below 0, and 2⁶⁰ for what is above any number of keys, or a multiple of it.
  __device__ int64 limited() const {
    int64 carried = high + (low >> 32);
    return carried < 0 ? -1 : carried >= int64(1) << 28 ? int64(1) << 60 : (carried << 32) + (low & 0xffffffff);
  }
};

/// What holds for all rows of the tile: the hull of what is possible, the intersection of what is certain.
template <typename Kernel>
__device__ __forceinline__ MaskRange range_of_tile(const typename Kernel::Arguments &arguments,
                                                   const typename Kernel::Block &block, int tile_row,
                                                   MaskRange *ranges) {
  int row = smaller(tile_row + thread_index() % Kernel::query_tile, Kernel::rows(arguments, block) - 1);
  MaskRange range = Kernel::mask_range(arguments, block, Kernel::position(block, row), Kernel::keys(arguments));
  auto join = [&range](const MaskRange &other) {
    range.possible.lower = smaller(range.possible.lower, other.possible.lower);
    range.possible.upper = larger(range.possible.upper, other.possible.upper);
    range.certain.lower = larger(range.certain.lower, other.certain.lower);
    range.certain.upper = smaller(range.certain.upper, other.certain.upper);
  };
  for (int mask = 16; mask > 0; mask /= 2)
    join({{shuffle_xor(range.possible.lower, mask), shuffle_xor(range.possible.upper, mask)},
          {shuffle_xor(range.certain.lower, mask), shuffle_xor(range.certain.upper, mask)}});
  if (thread_index() % 32 == 0)
    ranges[thread_index() / 32] = range;
  block_barrier();
  for (int warp = 0; warp < Kernel::threads / 32; ++warp)
    join(ranges[warp]);
  return range;
}

} // namespace attn

#endif // ATTN_CUDA_RANGES
