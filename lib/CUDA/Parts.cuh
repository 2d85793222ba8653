//===- Parts.cuh - What parts of the keys leave of a row --------*- C++ -*-===//
//
// A launch with fewer blocks than a device runs at once has more blocks for each tile, which share its keys: each of
// them stores maximum, sum and output, and a second launch merges what they have stored:
//
//   largest = max over parts of maximum
//   sum     = Σ parts 2^(maximum - largest) · sum; output likewise
//   store output / sum, and the log-sum-exp
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_PARTS
#define ATTN_CUDA_PARTS

namespace attn {

/// What outputs are multiplied with: those of a row without keys are 0.
__device__ __forceinline__ float inverse_of(float total) { return total == 0.0f ? 0.0f : 1.0f / total; }

/// That of a row without keys is -inf; `maximum` is in units of log2(e).
template <typename Kernel>
__device__ __forceinline__ void store_log_sum_exp(const typename Kernel::Arguments &arguments,
                                                  const typename Kernel::Block &block,
                                                  const typename Kernel::Position &at, float maximum, float total) {
  Kernel::store_log_sum_exp(arguments, block, at, 0.69314718055994531f * (maximum + log2_approximate(total)),
                            total == 0.0f);
}

/// The floats that a part of the keys leaves of a row: its maximum in units of log2(e), its sum, and its outputs.
template <typename Kernel> constexpr int state_size = 2 + Kernel::value_columns;

/// Where it leaves them; rows are numbered through all combinations.
template <typename Kernel>
__device__ __forceinline__ float *state_of(const typename Kernel::Arguments &arguments, int part, int64 row) {
  int64 rows = Kernel::rows(arguments) * Kernel::combinations(arguments);
  return arguments.parts.states + (part * rows + row) * state_size<Kernel>;
}

/// Of a block that merges: one for each column.
template <typename Kernel> constexpr int merging_threads = (Kernel::value_columns + 31) / 32 * 32;

/// A block has a row: what all parts of the keys have left of it, relative to the largest maximum.
template <typename Kernel> __device__ __forceinline__ void merge(const typename Kernel::Arguments &arguments) {
  constexpr int group = 32; // of parts, of which each lane has one
  const int column = thread_index(), lane = column % 32, number = block_index();
  const int rows_of_all = int(Kernel::rows(arguments)), row = number % rows_of_all;
  const typename Kernel::Block block = Kernel::block(arguments, number / rows_of_all);
  if (row >= Kernel::rows(arguments, block)) // of a group with fewer heads than the others
    return;

  const int parts = arguments.parts.count;
  const float *first_state = state_of<Kernel>(arguments, 0, number);
  const int64 next = state_of<Kernel>(arguments, 1, number) - first_state;
  float largest = -infinity();
#pragma unroll 4
  for (int part = lane; part < parts; part += group)
    largest = fmaxf(largest, first_state[part * next]);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    largest = fmaxf(largest, shuffle_xor(largest, mask));
  float total = 0.0f, output = 0.0f;
  for (int first = 0; first < parts; first += group) {
    const float *state = first_state + smaller(first + lane, parts - 1) * next;
    const float scale = first + lane >= parts || state[0] == -infinity() ? 0.0f : exp2_approximate(state[0] - largest);
    total += first + lane < parts ? state[1] * scale : 0.0f;
    // Many at a time are on their way.
#pragma unroll
    for (int other = 0; other < group; ++other) {
      const float of_other = shuffle_from(scale, other);
      if (first + other < parts && column < Kernel::value_columns)
        output += first_state[(first + other) * next + 2 + column] * of_other;
    }
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
    total += shuffle_xor(total, mask);

  const typename Kernel::Position at = Kernel::position(block, row);
  if (column == 0)
    store_log_sum_exp<Kernel>(arguments, block, at, largest, total);
  if (column < Kernel::value_width(arguments))
    Kernel::output_row(arguments, block, at)[column] = from_float<typename Kernel::Output>(output * inverse_of(total));
}

} // namespace attn

#endif // ATTN_CUDA_PARTS
