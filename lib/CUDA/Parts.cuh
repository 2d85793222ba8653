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

/// A warp has a row: what all parts of the keys have left of it, relative to the largest maximum.
template <typename Kernel> __device__ __forceinline__ void merge(const typename Kernel::Arguments &arguments) {
  constexpr int steps = (Kernel::value_columns + 31) / 32; // columns of a lane
  const int lane = thread_index() % 32, number = (block_index() * Kernel::threads + thread_index()) / 32;
  const int rows_of_all = int(Kernel::rows(arguments)), row = number % rows_of_all;
  if (number >= rows_of_all * Kernel::combinations(arguments))
    return;
  const typename Kernel::Block block = Kernel::block(arguments, number / rows_of_all);
  if (row >= Kernel::rows(arguments, block)) // of a group with fewer heads than the others
    return;

  const int parts = arguments.parts.count;
  float largest = -infinity();
  for (int part = 0; part < parts; ++part)
    largest = fmaxf(largest, state_of<Kernel>(arguments, part, number)[0]);
  float total = 0.0f, output[steps] = {};
  for (int part = 0; part < parts; ++part) {
    const float *state = state_of<Kernel>(arguments, part, number);
    float scale = state[0] == -infinity() ? 0.0f : exp2_approximate(state[0] - largest);
    total += state[1] * scale;
#pragma unroll
    for (int step = 0; step < steps; ++step)
      if (int column = step * 32 + lane; column < Kernel::value_columns)
        output[step] += state[2 + column] * scale;
  }

  const typename Kernel::Position at = Kernel::position(block, row);
  if (lane == 0)
    store_log_sum_exp<Kernel>(arguments, block, at, largest, total);
  typename Kernel::Output *target = Kernel::output_row(arguments, block, at);
  float inverse = inverse_of(total);
#pragma unroll
  for (int step = 0; step < steps; ++step)
    if (int column = step * 32 + lane; column < Kernel::value_width(arguments))
      target[column] = from_float<typename Kernel::Output>(output[step] * inverse);
}

} // namespace attn

#endif // ATTN_CUDA_PARTS
