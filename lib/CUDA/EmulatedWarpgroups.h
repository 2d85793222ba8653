//===- EmulatedWarpgroups.h - Products of four warps on a CPU ---*- C++ -*-===//
//
// Part of Emulation.h: wgmma. The 128 lanes of a warpgroup come together to begin a product; then each warp computes
// its 16 rows at once or when it waits for them, as the seed says.
//
// Registers that are added to are NaN from wgmma_fence to wgmma_wait. Errors are registers that no fence has named, or
// that were written after it; shared memory that was written without a fence_proxy_async; descriptors that are not
// those of tiles with a swizzle of 128 bytes; products that nobody waits for.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_EMULATEDWARPGROUPS_H
#define ATTN_CUDA_EMULATEDWARPGROUPS_H

#include <utility>

namespace attn {

namespace emulation {

/// A NaN that no kernel writes.
constexpr unsigned inFlight = 0x7fc0f117;

/// The registers in `all` that have [first, first + count) among them, or an error.
inline Registers &find(std::vector<Registers> &all, const void *first, size_t count, const char *name) {
  for (Registers &each : all)
    if (auto *start = static_cast<const unsigned *>(each.first);
        start <= first && static_cast<const unsigned *>(first) + count <= start + each.bits.size())
      return each;
  Block::current->fail("%s of registers that no wgmma_fence has named", name);
}

inline void hold(std::vector<Registers> &all, const void *first, size_t count) {
  auto *start = static_cast<const unsigned *>(first);
  for (Registers &each : all)
    if (each.first == first) {
      Block &block = *Block::current;
      if (each.group > block.productsOf(block.thread() / 32).done)
        block.fail("thread %d names registers in a wgmma_fence that a product adds to which it has not waited for",
                   block.thread());
      each = {first, {start, start + count}};
      return;
    }
  all.push_back({first, {start, start + count}});
}

/// The 64 bits that say where a matrix is: see "Matrix descriptor format" in the PTX manual's chapter of wgmma.
struct Descriptor {
  size_t start, leading, stride;

  explicit Descriptor(unsigned long long bits, const char *name) {
    start = (bits & 0x3fff) << 4;
    leading = (bits >> 16 & 0x3fff) << 4;
    stride = (bits >> 32 & 0x3fff) << 4;
    unsigned base = bits >> 49 & 7, mode = bits >> 62;
    if (bits & 0x3ff1c000c000c000)
      Block::current->fail("%s: a descriptor has bits that mean nothing", name);
    if (mode != 1)
      Block::current->fail("%s: a descriptor has swizzling mode %u, but only that of 128 bytes, 1, is known here", name,
                           mode);
    if (base != (start >> 7 & 7))
      Block::current->fail("%s: a matrix begins at byte %zu, within an atom, but its descriptor says %u", name, start,
                           base);
  }

  /// Eight elements, which are side by side: of row `row` in atoms one below the other, from byte `column` on in atoms
  /// side by side.
  const unsigned short *at(size_t row, size_t column, const char *name) const {
    size_t address = start + row / 8 * stride + row % 8 * 128 + column / 128 * leading + column % 128;
    return reinterpret_cast<const unsigned short *>(Block::current->seen(name, address ^ (address >> 7 & 7) << 4));
  }
};

/// A lane's part of c += a · b.
struct WarpgroupOperand {
  float *sums;       ///< Where its registers of C are until it waits.
  const unsigned *a; ///< Null where A is in shared memory.
  unsigned long long matrixA, matrixB;
  const char *name;
};

/// Computes 16 rows: from row `first` on of A, where it is in shared memory.
template <int N, typename Element> void multiply(const WarpgroupOperand (&lanes)[32], int first) {
  const char *name = lanes[0].name;
  Descriptor matrixB(lanes[0].matrixB, name);
  bool transposed = lanes[0].a;
  auto number = [](unsigned bits) { return to_float(Element{static_cast<unsigned short>(bits)}); };
  float a[16][16], b[16][N];
  for (int part = 0; part < 2 * N; ++part) { // 8 numbers of a row of B, or of a column
    int row = transposed ? part / (N / 8) : part % 2 * 8, column = transposed ? part % (N / 8) * 8 : part / 2;
    const unsigned short *numbers = transposed ? matrixB.at(row, column * 2, name) : matrixB.at(column, row * 2, name);
    for (int index = 0; index < 8; ++index)
      (transposed ? b[row][column + index] : b[row + index][column]) = number(numbers[index]);
  }
  if (transposed)
    for (int lane = 0; lane < 32; ++lane)
      for (int index = 0; index < 8; ++index)
        a[lane / 4 + index / 2 % 2 * 8][lane % 4 * 2 + index % 2 + index / 4 * 8] =
            number(lanes[lane].a[index / 2] >> index % 2 * 16);
  else
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 16; ++k)
        a[row][k] = number(Descriptor(lanes[0].matrixA, name).at(first + row, k / 8 * 16, name)[k % 8]);
  for (int lane = 0; lane < 32; ++lane)
    for (int index = 0; index < N / 2; ++index) {
      int row = lane / 4 + index / 2 % 2 * 8, column = index / 4 * 8 + lane % 4 * 2 + index % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k)
        sum += a[row][k] * b[k][column];
      lanes[lane].sums[index] += sum;
    }
}

/// Those of a group that are not computed, in order.
inline void computeAll(std::vector<Product> &group) {
  for (Product &product : group)
    if (std::function<void()> compute = std::exchange(product.compute, nullptr))
      compute();
}

/// Begins a product.
template <int N, typename Element>
void begin(const char *name, float (*c)[4], const unsigned *a, unsigned long long matrixA, unsigned long long matrixB) {
  Block &block = *Block::current;
  Registers &held = find(block.fiber().sums, c, N / 2, name);
  const Products &products = block.productsOf(block.thread() / 32);
  held.group = products.done + products.groups.size();
  size_t offset = *c - static_cast<const float *>(held.first);
  if (a) {
    const Registers &weights = find(block.fiber().weights, a, 4, name);
    if (memcmp(weights.bits.data() + (a - static_cast<const unsigned *>(weights.first)), a, 16) != 0)
      block.fail("%s of registers that were written after their wgmma_fence", name);
  }
  WarpgroupOperand operand = {reinterpret_cast<float *>(held.bits.data()) + offset, a, matrixA, matrixB, name};
  block.together<WarpgroupOperand, 128>(name, operand, [](WarpgroupOperand **lanes) {
    Block &block = *Block::current;
    for (int lane = 0; lane < 128; ++lane)
      if (lanes[lane]->matrixA != lanes[0]->matrixA || lanes[lane]->matrixB != lanes[0]->matrixB)
        block.fail("%s: lanes of a warpgroup have different descriptors", lanes[0]->name);
    for (int warp = 0; warp < 4; ++warp) {
      std::vector<WarpgroupOperand> own;
      for (int lane = 0; lane < 32; ++lane)
        own.push_back(*lanes[warp * 32 + lane]);
      auto compute = [own, warp] {
        multiply<N, Element>(*reinterpret_cast<const WarpgroupOperand(*)[32]>(own.data()), warp * 16);
      };
      Products &products = block.productsOf(block.thread() / 128 * 4 + warp);
      Descriptor matrix(lanes[0]->matrixB, lanes[0]->name);
      size_t first = matrix.start / 128 * 128;
      size_t size = lanes[0]->a ? (N - 1) / 64 * matrix.leading + 2 * matrix.stride : N / 8 * matrix.stride;
      products.groups.back().push_back({compute, first, first + size});
      if (block.isAtOnce())
        for (std::vector<Product> &group : products.groups)
          computeAll(group);
    }
  });
}

} // namespace emulation

inline void fence_proxy_async() { Block::current->publish(); }

/// Threads do one thing after the other here.
inline void begin_after(float) {}

template <int fragments> void wgmma_fence(float (&c)[fragments][4]) {
  emulation::hold(Block::current->fiber().sums, c, fragments * 4);
  for (auto &fragment : c)
    for (float &element : fragment)
      memcpy(&element, &emulation::inFlight, 4);
}
template <int fragments> void wgmma_fence(unsigned (&a)[fragments][1][4]) {
  emulation::hold(Block::current->fiber().weights, a, fragments * 4);
}

template <int N, typename Element> void wgmma_m64nNk16(float (*c)[4], unsigned long long a, unsigned long long b) {
  emulation::begin<N, Element>("wgmma_m64nNk16", c, nullptr, a, b);
}
template <int N, typename Element>
void wgmma_m64nNk16_transposed(float (*c)[4], const unsigned (&a)[4], unsigned long long b) {
  emulation::begin<N, Element>("wgmma_m64nNk16_transposed", c, a, 0, b);
}

inline void wgmma_commit() {
  bool none = false;
  Block::current->together<bool>("wgmma_commit", none, [](bool **) {
    Block::current->productsOf(Block::current->thread() / 32).groups.emplace_back();
  });
}

template <int pending, int fragments> void wgmma_wait(float (&c)[fragments][4]) {
  Block &block = *Block::current;
  bool none = false;
  block.together<bool>("wgmma_wait", none, [](bool **) {
    emulation::Products &products = Block::current->productsOf(Block::current->thread() / 32);
    for (; products.groups.size() > pending + 1; ++products.done) {
      emulation::computeAll(products.groups.front());
      products.groups.erase(products.groups.begin());
    }
  });
  emulation::Registers &held = emulation::find(block.fiber().sums, c, fragments * 4, "wgmma_wait");
  if (held.group > block.productsOf(block.thread() / 32).done)
    block.fail("thread %d takes registers that a product adds to which it has not waited for", block.thread());
  for (auto &fragment : c)
    for (float &element : fragment)
      if (memcmp(&element, &emulation::inFlight, 4) != 0)
        block.fail("thread %d writes registers that a product adds to before it waits", block.thread());
  memcpy(c, held.bits.data(), sizeof c);
  block.fiber().sums.erase(block.fiber().sums.begin() + (&held - block.fiber().sums.data()));
  if (pending == 0)
    block.fiber().weights.clear();
}

} // namespace attn

#endif // ATTN_CUDA_EMULATEDWARPGROUPS_H
