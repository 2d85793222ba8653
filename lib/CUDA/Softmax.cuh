//===- Softmax.cuh - Scores, weights and sums of a warp's rows --*- C++ -*-===//
//
// What a warp does with its fragments between the products. A lane has two rows of each 16, the halves of a fragment;
// of a row, it has the columns of its fragments.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_SOFTMAX
#define ATTN_CUDA_SOFTMAX

namespace attn {

template <typename Kernel> class Softmax {
  using Row = typename Kernel::Row;
  using Position = typename Kernel::Position;
  using Products = typename Kernel::Products;
  static constexpr int row_tiles = Products::row_tiles;     // of 16 rows, in a warp
  static constexpr int key_steps = Products::key_steps;     // fragments of scores side by side
  static constexpr int value_steps = Products::value_steps; // fragments of outputs side by side

public:
  /// Rows that have seen nothing yet but the sink, which is the first part's.
  __device__ __forceinline__ explicit Softmax(const RowTile<Kernel> &tile)
      : tile(tile), first_row(tile.first_row + tile.group_row + thread_index() / 32 % Products::warps * row_tiles * 16),
        lane(thread_index() % 32) {
#pragma unroll
    for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Position at = position_of(row_tile, half * 2);
        values[row_tile][half] = Kernel::row(tile.arguments, tile.block, at);
        largest[row_tile][half] = Kernel::first_maximum(tile.arguments, tile.block, values[row_tile][half], at);
        bool has_sink = Kernel::has_sink && tile.part == 0 && largest[row_tile][half] != lowest();
        sum[row_tile][half] = has_sink && lane % 4 == 0 ? 1.0f : 0.0f;
      }
  }

  /// Scores of a tile of keys from their dot products: the formula, of each element by itself. A tile that the mask may
  /// cut, or with keys beyond the last, is masked.
  __device__ __forceinline__ void apply_formula(float (&score)[row_tiles][key_steps][4], int number) const {
    const int first_key = tile.first_key(number);
    auto for_each_score = [&](auto change) {
#pragma unroll
      for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
#pragma unroll
        for (int step = 0; step < key_steps; ++step)
#pragma unroll
          for (int element = 0; element < 4; ++element)
            score[row_tile][step][element] =
                change(score[row_tile][step][element], values[row_tile][element / 2], position_of(row_tile, element),
                       first_key + step * 8 + fragment_column(lane, element));
    };
    if (tile.is_whole(number))
      for_each_score([&](float dot, const Row &row, const Position &at, int key) {
        return Kernel::score(tile.arguments, tile.block, row, dot, at, key);
      });
    else
      for_each_score([&](float dot, const Row &row, const Position &at, int key) {
        // All of it without a branch, which would take registers for both outcomes.
        int inside = smaller(key, tile.keys - 1);
        bool kept = bool(key < tile.keys) & Kernel::mask(tile.arguments, tile.block, row, dot, at, inside);
        float changed = Kernel::score(tile.arguments, tile.block, row, dot, at, inside);
        return kept ? changed : -infinity();
      });
  }

  /// Moves the maximum of each row to that of these scores, and its sum with it. Outputs are to be multiplied by
  /// `scale` if this is true, which it is for all lanes of the warp or none.
  __device__ __forceinline__ bool move_maximum(const float (&score)[row_tiles][key_steps][4],
                                               float (&scale)[row_tiles][2]) {
    bool moved = false;
#pragma unroll
    for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Of the lane's columns, then of those of the four lanes that have the row.
        float before = largest[row_tile][half], now = before;
#pragma unroll
        for (int step = 0; step < key_steps; ++step)
          now = fmaxf(now, fmaxf(score[row_tile][step][half * 2], score[row_tile][step][half * 2 + 1]));
        now = fmaxf(now, shuffle_xor(now, 1));
        now = fmaxf(now, shuffle_xor(now, 2));
        largest[row_tile][half] = now;
        scale[row_tile][half] = exp2_approximate((before - now) * Kernel::score_scale(tile.block));
        sum[row_tile][half] *= scale[row_tile][half];
        moved |= now > before;
      }
    return any_lane(moved);
  }

  static __device__ __forceinline__ void rescale(float (&output)[row_tiles][value_steps][4],
                                                 const float (&scale)[row_tiles][2]) {
#pragma unroll
    for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int step = 0; step < value_steps; ++step) {
          output[row_tile][step][half * 2] *= scale[row_tile][half];
          output[row_tile][step][half * 2 + 1] *= scale[row_tile][half];
        }
  }

  /// Weights in place of the scores of 16 keys, those of fragments `first` and `first + 1`, which are added to the
  /// sums.
  __device__ __forceinline__ void to_weights(float (&score)[row_tiles][key_steps][4], int number, int first) {
#pragma unroll
    for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // What is subtracted, in units of log2(e): nothing where all scores of the row are masked.
        const float scale = Kernel::score_scale(tile.block);
        const float shift = largest[row_tile][half] == lowest() ? 0.0f : largest[row_tile][half] * scale;
#pragma unroll
        for (int fragment = first; fragment < first + 2; ++fragment)
#pragma unroll
          for (int element = half * 2; element < half * 2 + 2; ++element) {
            float &each = score[row_tile][fragment][element];
            float weight = exp2_approximate(fmaf(each, scale, -shift));
            sum[row_tile][half] += weight;
            int key = smaller(tile.first_key(number) + fragment * 8 + fragment_column(lane, element), tile.keys - 1);
            each = Kernel::weight(tile.arguments, tile.block, values[row_tile][half], weight,
                                  position_of(row_tile, element), key);
          }
      }
  }

  /// Of all weights so far, of the lane's rows: a number that is known when they are.
  __device__ __forceinline__ float sum_of_rows() const {
    float total = 0.0f;
#pragma unroll
    for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
      total += sum[row_tile][0] + sum[row_tile][1];
    return total;
  }

  /// The same weights as A of a product with values, which two fragments of scores side by side are.
  static __device__ __forceinline__ void pack_weights(const float (&score)[row_tiles][key_steps][4], int first,
                                                      unsigned (&weights)[row_tiles][4]) {
#pragma unroll
    for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int fragment = 0; fragment < 2; ++fragment) {
          const float (&pair)[4] = score[row_tile][first + fragment];
          weights[row_tile][fragment * 2 + half] = pack<typename Kernel::Value>(pair[half * 2], pair[half * 2 + 1]);
        }
  }

  /// Stores outputs divided by the sums, and the log-sum-exp; where keys are in parts, what `merge` takes.
  __device__ __forceinline__ void store(const float (&output)[row_tiles][value_steps][4]) const {
    const auto &arguments = tile.arguments;
    const auto &block = tile.block;
#pragma unroll
    for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // The sum of each row is that of its four lanes'.
        float total = sum[row_tile][half];
        total += shuffle_xor(total, 1);
        total += shuffle_xor(total, 2);
        int row = first_row + row_tile * 16 + fragment_row(lane, half * 2);
        if (row >= tile.rows)
          continue;
        float maximum =
            largest[row_tile][half] == lowest() ? -infinity() : largest[row_tile][half] * Kernel::score_scale(block);
        auto store_columns = [&](auto *target, float factor, int width) {
          bool pairs_aligned = (unsigned long long)target % (2 * sizeof(*target)) == 0;
#pragma unroll
          for (int step = 0; step < value_steps; ++step) {
            int column = step * 8 + fragment_column(lane, 0);
            store_pair(target + column, output[row_tile][step][half * 2] * factor,
                       output[row_tile][step][half * 2 + 1] * factor, width - column, pairs_aligned);
          }
        };
        if (tile.parts > 1) {
          float *state = state_of<Kernel>(arguments, tile.part, tile.combination * Kernel::rows(arguments) + row);
          if (lane % 4 == 0) {
            state[0] = maximum;
            state[1] = total;
          }
          store_columns(state + 2, 1.0f, Kernel::value_columns);
          continue;
        }
        const Position at = Kernel::position(block, row);
        if (lane % 4 == 0)
          store_log_sum_exp<Kernel>(arguments, block, at, maximum, total);
        store_columns(Kernel::output_row(arguments, block, at), inverse_of(total), Kernel::value_width(arguments));
      }
  }

private:
  __device__ __forceinline__ Position position_of(int row_tile, int element) const {
    int row = first_row + row_tile * 16 + fragment_row(lane, element);
    return Kernel::position(tile.block, smaller(row, tile.rows - 1));
  }

  const RowTile<Kernel> &tile;
  int first_row, lane;
  Row values[row_tiles][2];
  float largest[row_tiles][2], sum[row_tiles][2];
};

} // namespace attn

#endif // ATTN_CUDA_SOFTMAX
