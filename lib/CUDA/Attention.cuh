//===- Attention.cuh - Attention on tensor cores ----------------*- C++ -*-===//
//
// A block of 4 warps has a tile of rows; a warp has 16 of them, or 32, and all their keys. A row is a query: where
// heads share keys, of one of these heads.
//
//   lower, upper = the keys that the mask lets through for some row of the tile
//   queries -> shared memory
//   maximum, sum, output = lowest float, 0, 0                                     registers
//   for tiles of keys that meet [lower, upper)
//     keys and values of the next tile -> the other half of shared memory        Copies.cuh
//     score  = queries · keys, then the score's formula, -inf where masked        registers
//     weight = 2^(score - maximum); where the maximum moved, output and sum are rescaled
//     output += weight · values                                                   registers
//   store output / sum, and the log-sum-exp; where keys are in parts, maximum, sum and output (Parts.cuh)
//
// What differs between kernels is in a struct `Kernel`: its constants, types, the addresses of rows, and the formulas
// of one element.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_ATTENTION
#define ATTN_CUDA_ATTENTION

namespace attn {

/// What is subtracted from the scores of a row, in units of log2(e): nothing where all of them are masked.
template <typename Kernel>
__device__ __forceinline__ float weight_shift(const typename Kernel::Block &block, float largest) {
  return largest == lowest() ? 0.0f : largest * Kernel::score_scale(block);
}

template <typename Kernel> __device__ __forceinline__ void attention(const typename Kernel::Arguments &arguments) {
  using Query = typename Kernel::Query;
  using Value = typename Kernel::Value;
  using Position = typename Kernel::Position;
  using Row = typename Kernel::Row;
  using Products = typename Kernel::Products;
  using Shared = SharedLayout<Kernel>;
  constexpr int row_tiles = Products::row_tiles;     // of 16 queries, in a warp
  constexpr int key_steps = Products::key_steps;     // fragments of scores side by side
  constexpr int value_steps = Products::value_steps; // fragments of outputs side by side

  // The tile of rows of this block, and its part of the keys. The last queries come first: a causal mask leaves them
  // the most keys.
  const int parts = arguments.parts.count, part = block_index() % parts, number = block_index() / parts;
  const int tiles = int((Kernel::rows(arguments) + Kernel::query_tile - 1) / Kernel::query_tile);
  const int tile_row = (tiles - 1 - number % tiles) * Kernel::query_tile;
  const typename Kernel::Block block = Kernel::block(arguments, number / tiles);
  const int rows = Kernel::rows(arguments, block), keys = Kernel::keys(arguments);
  const int lane = thread_index() % 32;
  const int first_row = tile_row + thread_index() / 32 * row_tiles * 16; // of this warp
  const int first_of_group = tile_row + thread_index() / (32 * Products::warps) * Products::warps * row_tiles * 16;

  unsigned char *shared = shared_memory();
  Query *query_tile = reinterpret_cast<Query *>(shared + Shared::queries);

  // The keys to visit, and those among them for which no mask is evaluated.
  MaskRange range = {{0, keys}, {0, keys}};
  if constexpr (Kernel::has_mask)
    range = range_of_tile<Kernel>(arguments, block, tile_row, reinterpret_cast<MaskRange *>(shared + Shared::ranges));
  const int first_of_all = range.possible.lower / Kernel::key_tile;
  const int last_of_all = (range.possible.upper + Kernel::key_tile - 1) / Kernel::key_tile;
  const int tiles_of_part = (larger(last_of_all - first_of_all, 0) + parts - 1) / parts;
  const int first_tile = first_of_all + part * tiles_of_part;
  const int last_tile = smaller(first_tile + tiles_of_part, last_of_all);

  // Queries, and the first keys and values.
  const Copies<Kernel> copies(arguments, block, shared, first_tile);
  if (first_tile < last_tile) {
    copy_tile<typename Products::Queries, 32 * Kernel::warps>(
        query_tile, [&](int row) { return Kernel::query_row(arguments, block, Kernel::position(block, row)); },
        tile_row, rows, Kernel::dot_width(arguments), Kernel::queries_aligned(arguments));
    cp_async_commit();
    copies.begin(first_tile);
  }

  // What the softmax has seen so far: a lane has two rows of each 16, and of their sums its own columns' share.
  auto position_of = [&](int row_tile, int element) {
    return Kernel::position(block, smaller(first_row + row_tile * 16 + fragment_row(lane, element), rows - 1));
  };
  Row values[row_tiles][2];
  float largest[row_tiles][2], sum[row_tiles][2], output[row_tiles][value_steps][4] = {};
#pragma unroll
  for (int tile = 0; tile < row_tiles; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Position at = position_of(tile, half * 2);
      values[tile][half] = Kernel::row(arguments, block, at);
      largest[tile][half] = Kernel::first_maximum(arguments, block, values[tile][half], at);
      bool has_sink = Kernel::has_sink && part == 0 && largest[tile][half] != lowest();
      sum[tile][half] = has_sink && lane % 4 == 0 ? 1.0f : 0.0f;
    }

  for (int tile = first_tile; tile < last_tile; ++tile) {
    const int first_key = tile * Kernel::key_tile;
    copies.wait(tile);
    if (tile + 1 < last_tile)
      copies.begin(tile + 1);
    if (first_of_group >= rows) { // warps without rows have no more to do
      copies.release(tile);
      continue;
    }

    // Scores: the products of queries and keys.
    float score[row_tiles][key_steps][4] = {};
    Products::add_scores(score, query_tile, copies.keys(tile), first_row - tile_row);

    // Their formula, of each element by itself; a tile that the mask may cut, or with keys beyond the last, is masked.
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
    const bool is_whole = range.certain.lower <= first_key && first_key + Kernel::key_tile <= range.certain.upper;
    if (is_whole)
      for_each_score([&](float dot, const Row &row, const Position &at, int key) {
        return Kernel::score(arguments, block, row, dot, at, key);
      });
    else
      for_each_score([&](float dot, const Row &row, const Position &at, int key) {
        int inside = smaller(key, keys - 1);
        bool kept = key < keys && Kernel::mask(arguments, block, row, dot, at, inside);
        return kept ? Kernel::score(arguments, block, row, dot, at, inside) : -infinity();
      });

    // The maximum of each row: of the lane's columns, then of those of the four lanes that have the row.
    float scale[row_tiles][2];
    bool moved = false;
#pragma unroll
    for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float before = largest[row_tile][half], now = before;
#pragma unroll
        for (int step = 0; step < key_steps; ++step)
          now = fmaxf(now, fmaxf(score[row_tile][step][half * 2], score[row_tile][step][half * 2 + 1]));
        now = fmaxf(now, shuffle_xor(now, 1));
        now = fmaxf(now, shuffle_xor(now, 2));
        largest[row_tile][half] = now;
        scale[row_tile][half] = exp2_approximate((before - now) * Kernel::score_scale(block));
        moved |= now > before;
      }

    // Where it moved in some row of the warp: sums and outputs relative to the new one.
    if (any_lane(moved))
#pragma unroll
      for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          sum[row_tile][half] *= scale[row_tile][half];
#pragma unroll
          for (int step = 0; step < value_steps; ++step) {
            output[row_tile][step][half * 2] *= scale[row_tile][half];
            output[row_tile][step][half * 2 + 1] *= scale[row_tile][half];
          }
        }

    // Sixteen keys at a time: weights, their sums, and the weights as A of the product with the values, which two
    // fragments of scores side by side are. The outputs are the sums of these products.
    unsigned weights[key_steps / 2][row_tiles][4];
    Products::begin_outputs(output);
#pragma unroll
    for (int step = 0; step < key_steps / 2; ++step) {
#pragma unroll
      for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float shift = weight_shift<Kernel>(block, largest[row_tile][half]);
#pragma unroll
          for (int fragment = 0; fragment < 2; ++fragment) {
            float pair[2];
#pragma unroll
            for (int element = 0; element < 2; ++element) {
              float power =
                  fmaf(score[row_tile][step * 2 + fragment][half * 2 + element], Kernel::score_scale(block), -shift);
              float weight = exp2_approximate(power);
              sum[row_tile][half] += weight;
              int key = smaller(first_key + (step * 2 + fragment) * 8 + fragment_column(lane, element), keys - 1);
              pair[element] = Kernel::weight(arguments, block, values[row_tile][half], weight,
                                             position_of(row_tile, half * 2), key);
            }
            weights[step][row_tile][fragment * 2 + half] = pack<Value>(pair[0], pair[1]);
          }
        }
      Products::add_outputs(output, weights[step], copies.values(tile), step * 16);
    }
    Products::end_outputs(output);
    copies.release(tile);
  }

  // The sum of each row over its four lanes; outputs divided by it, or left to `merge`.
#pragma unroll
  for (int row_tile = 0; row_tile < row_tiles; ++row_tile)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = sum[row_tile][half];
      total += shuffle_xor(total, 1);
      total += shuffle_xor(total, 2);
      int row = first_row + row_tile * 16 + fragment_row(lane, half * 2);
      if (row >= rows)
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
      if (parts > 1) {
        float *state = state_of<Kernel>(arguments, part, number / tiles * Kernel::rows(arguments) + row);
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

} // namespace attn

#endif // ATTN_CUDA_ATTENTION
