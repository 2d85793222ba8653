//===- Overlapped.cuh - Products while the softmax is computed --*- C++ -*-===//
//
// The steps of Attention.cuh by warpgroups that do different things: the last one copies (Producer.cuh), and gives its
// registers to two others, which compute. What these do with tile j + 1 of the keys:
//
//   score  = queries · keys of tile j + 1             begun
//   output += weights · values of tile j              begun behind it
//   formula, maximum, weights of tile j + 1           when the first product is done, while the second is computed
//   output is rescaled, weights are packed            when the second is done
//
// And while one of the two computes its weights, the products of the other are computed: they take turns to begin them.
// The overlap of products and softmax, and the turns, are those of FlashAttention-3 (Shah et al., 2024, sections 3.1
// and 3.2).
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_OVERLAPPED
#define ATTN_CUDA_OVERLAPPED

namespace attn {

/// Two warpgroups that begin their products in turn, in a round for each tile but the last: the first one begins.
template <typename Kernel> class Turns {
public:
  __device__ __forceinline__ explicit Turns(const RowTile<Kernel> &tile)
      : group(thread_index() / 128), rounds(tile.warps_with_rows() == Kernel::warps ? tile.tiles - 1 : 0) {}

  __device__ __forceinline__ void wait(int round) const {
    if (round < rounds && (group == 1 || round > 0))
      named_barrier_wait(1 + group, 32 * Kernel::warps);
  }
  __device__ __forceinline__ void pass(int round) const {
    if (round < rounds && (group == 0 || round + 1 < rounds))
      named_barrier_arrive(2 - group, 32 * Kernel::warps);
  }

private:
  int group, rounds;
};

/// The part of the warpgroups that compute.
template <typename Kernel>
__device__ __forceinline__ void consume(const RowTile<Kernel> &tile, const Producer<Kernel> &producer,
                                        const typename Kernel::Query *queries) {
  using Products = typename Kernel::Products;
  using Apart = typename Producer<Kernel>::Apart;
  constexpr int key_steps = Products::key_steps;
  Softmax<Kernel> softmax(tile);
  const Turns<Kernel> turns(tile);
  const int last = tile.tiles - 1;
  float score[1][key_steps][4], output[1][Products::value_steps][4] = {}, scale[1][2];
  unsigned weights[key_steps / 2][1][4];

  auto begin_scores = [&](int number) {
    producer.wait(Apart::of_keys, number);
#pragma unroll
    for (int step = 0; step < key_steps; ++step)
#pragma unroll
      for (int element = 0; element < 4; ++element)
        score[0][step][element] = 0.0f;
    Products::begin_scores(score, queries, producer.keys(number), tile.group_row);
  };
  auto begin_outputs = [&](int number) {
    producer.wait(Apart::of_values, number);
    Products::begin_outputs(output);
    Products::add_outputs(output, weights, producer.values(number), 0);
    Products::commit_outputs();
  };
  // Whether the maximum of a row has moved.
  auto to_weights = [&](int number) {
    softmax.apply_formula(score, number);
    const bool moved = softmax.move_maximum(score, scale);
#pragma unroll
    for (int step = 0; step < key_steps / 2; ++step)
      softmax.to_weights(score, number, step * 2);
    return moved;
  };
  auto pack_weights = [&] {
#pragma unroll
    for (int step = 0; step < key_steps / 2; ++step)
      softmax.pack_weights(score, step * 2, weights[step]);
  };

  if (last >= 0) {
    begin_scores(0);
    Products::end_scores(score);
    producer.release(Apart::of_keys, 0);
    to_weights(0); // there are no outputs yet that would have to be rescaled
    pack_weights();
    for (int number = 0; number < last; ++number) {
      turns.wait(number);
      begin_scores(number + 1);
      begin_outputs(number);
      turns.pass(number);
      Products::template end_scores<1>(score);
      producer.release(Apart::of_keys, number + 1);
      const bool moved = to_weights(number + 1);
      begin_after(softmax.sum_of_rows());
      Products::end_outputs(output);
      producer.release(Apart::of_values, number);
      if (moved)
        softmax.rescale(output, scale);
      pack_weights();
    }
    begin_outputs(last);
    Products::end_outputs(output);
  }
  softmax.store(output);
}

template <typename Kernel>
__device__ __forceinline__ void overlapped_attention(const typename Kernel::Arguments &arguments) {
  using Shared = SharedLayout<Kernel>;
  unsigned char *shared = shared_memory();
  auto *queries = reinterpret_cast<typename Kernel::Query *>(shared + Shared::queries);
  const RowTile<Kernel> tile(arguments, reinterpret_cast<MaskRange *>(shared + Shared::ranges));
  const Producer<Kernel> producer(tile, shared);
  producer.start();
  if (tile.tiles > 0)
    tile.copy_queries(queries);
  cp_async_wait<0>();
  Kernel::Products::publish();
  block_barrier();

  const int warp = thread_index() / 32;
  if (warp >= Kernel::warps) {
    release_registers<Kernel::registers_to_copy>();
    producer.run();
    return;
  }
  claim_registers<Kernel::registers_to_compute>();
  if (warp < tile.warps_with_rows())
    consume(tile, producer, queries);
}

} // namespace attn

#endif // ATTN_CUDA_OVERLAPPED
