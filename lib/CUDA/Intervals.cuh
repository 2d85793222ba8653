//===- Intervals.cuh - What holds between least and greatest ----*- C++ -*-===//
//
// A formula over numbers of which only the least and the greatest are known: between which its own value is, and
// whether a condition holds for some of them, or for all. What is said may be less than what is true, never more.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_INTERVALS
#define ATTN_CUDA_INTERVALS

namespace attn {

/// least <= number <= greatest. No operation here leaves 64 bits: lib/CUDA/TileSearch.cpp sees to that.
struct Interval {
  int64 least, greatest;
};

__device__ constexpr Interval exactly(int64 value) { return {value, value}; }
__device__ constexpr Interval add(const Interval &a, const Interval &b) {
  return {a.least + b.least, a.greatest + b.greatest};
}
__device__ constexpr Interval subtract(const Interval &a, const Interval &b) {
  return {a.least - b.greatest, a.greatest - b.least};
}
__device__ constexpr Interval multiply(const Interval &a, const Interval &b) {
  const int64 first = a.least * b.least, second = a.least * b.greatest, third = a.greatest * b.least,
              fourth = a.greatest * b.greatest;
  return {smaller(smaller(first, second), smaller(third, fourth)),
          larger(larger(first, second), larger(third, fourth))};
}
/// By a positive number.
__device__ constexpr Interval floor_divide(const Interval &a, int64 divisor) {
  return {floor_divide(a.least, divisor), floor_divide(a.greatest, divisor)};
}
__device__ constexpr Interval smaller_of(const Interval &a, const Interval &b) {
  return {smaller(a.least, b.least), smaller(a.greatest, b.greatest)};
}
__device__ constexpr Interval larger_of(const Interval &a, const Interval &b) {
  return {larger(a.least, b.least), larger(a.greatest, b.greatest)};
}
__device__ constexpr Interval magnitude(const Interval &a) {
  return {larger(larger(a.least, -a.greatest), int64(0)), larger(-a.least, a.greatest)};
}
/// Subscripts, of which those that leave their dimension become the nearest one inside.
__device__ constexpr Interval subscripts(const Interval &a, int last) {
  return {subscript(a.least, last), subscript(a.greatest, last)};
}

/// Whether a condition may hold for some numbers, and whether it must for all.
struct Outcome {
  bool may, must;
};

__device__ constexpr Outcome unknown() { return {true, false}; }
/// Of a truth, which is 0 or 1.
__device__ constexpr Outcome truth(const Interval &a) { return {a.greatest != 0, a.least != 0}; }
__device__ constexpr Outcome negated(const Outcome &a) { return {!a.must, !a.may}; }
__device__ constexpr Outcome both(const Outcome &a, const Outcome &b) {
  return {bool(a.may & b.may), bool(a.must & b.must)};
}
__device__ constexpr Outcome either(const Outcome &a, const Outcome &b) {
  return {bool(a.may | b.may), bool(a.must | b.must)};
}
__device__ constexpr Outcome less(const Interval &a, const Interval &b) {
  return {a.least < b.greatest, a.greatest < b.least};
}
__device__ constexpr Outcome equal(const Interval &a, const Interval &b) {
  return {a.least <= b.greatest && b.least <= a.greatest, a.least == b.greatest && a.greatest == b.least};
}

/// A dimension of a table, and the subscripts there.
struct Axis {
  Interval index;
  int64 stride;
  __device__ int64 count() const { return index.greatest - index.least + 1; }
};

/// Whether truths in memory are `wanted`: those of all combinations of subscripts of rows with subscripts of keys,
/// which a warp looks at together. Of many it looks only for one that is.
template <int axes>
__device__ __forceinline__ Outcome outcome_of_table(const bool *table, const Axis (&rows)[axes], const Axis &keys,
                                                    bool wanted) {
  constexpr int64 most = 1 << 15, few = 1 << 10;
  constexpr int rows_at_once = 8, of_lane = 4;
  int64 count = keys.count();
  for (int axis = 0; axis < axes; ++axis)
    count = count > most ? count : count * rows[axis].count();
  if (count > most)
    return unknown();
  const int width = int(keys.count()), height = int(count) / width, lane = thread_index() % 32;
  auto row_at = [&](int row) {
    const bool *at = table + keys.index.least * keys.stride;
#pragma unroll
    for (int axis = axes - 1; axis >= 0; --axis) {
      const int length = int(rows[axis].count());
      at += (rows[axis].index.least + (axis == 0 ? row : row % length)) * rows[axis].stride;
      row /= length;
    }
    return at;
  };
  // A lane has four keys of a row, in a word where all rows begin at a multiple of 4 bytes.
  unsigned long long places = (unsigned long long)row_at(0);
  for (int axis = 0; axis < axes; ++axis)
    places |= (unsigned long long)(rows[axis].count() > 1 ? rows[axis].stride : 0);
  const bool in_words = places % of_lane == 0 && keys.stride == 1;
  bool some = false, all = true;
  for (int begin = 0; begin < width; begin += 32 * of_lane) {
    const int first = begin + lane * of_lane, inside = smaller(width - first, of_lane);
    for (int row = 0; row < height; row += rows_at_once) {
#pragma unroll
      for (int step = 0; step < rows_at_once; ++step) {
        const bool *at = row_at(smaller(row + step, height - 1)) + first * keys.stride;
        if (in_words && inside == of_lane) {
          const unsigned word = *reinterpret_cast<const unsigned *>(at);
          some |= word != (wanted ? 0 : 0x01010101);
          all &= word == (wanted ? 0x01010101 : 0);
        } else {
          for (int key = 0; key < inside; ++key) {
            const bool is_wanted = at[key * keys.stride] == wanted;
            some |= is_wanted;
            all &= is_wanted;
          }
        }
      }
      if (any_lane(some) && (count > few || any_lane(!all)))
        return unknown();
    }
  }
  return {any_lane(some), !any_lane(!all)};
}

} // namespace attn

#endif // ATTN_CUDA_INTERVALS
