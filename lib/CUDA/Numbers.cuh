//===- Numbers.cuh - Types and functions of formulas on a GPU ---*- C++ -*-===//
//
// Plain C++, for the device and for the emulator alike.
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_NUMBERS
#define ATTN_CUDA_NUMBERS

namespace attn {

using int64 = long long;

/// Elements as they are stored. to_float and from_float convert them.
struct float16 {
  unsigned short bits;
};
struct bfloat16 {
  unsigned short bits;
};

/// What a thread copies at once: 16 bytes, 8 elements.
struct alignas(16) Segment {
  unsigned words[4];
};

/// A tensor of a call: the stride of each dimension is in elements.
template <typename Element, int rank> struct Tensor {
  Element *data;
  int64 stride[rank];
};
template <typename Element> struct Tensor<Element, 0> {
  Element *data;
};

/// In how many parts a launch visits the keys of each row, and where each leaves its state of the rows, where there are
/// more than one.
struct Parts {
  float *states;
  int count;
};

/// What the driver makes of a tensor (cuTensorMapEncodeTiled), for tensor_copy_5d.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};
/// Of keys and of values; whether both tensors have one.
struct TensorMaps {
  TensorMap keys, values;
  int are_valid;
};
/// Where a row of a tensor is: its coordinates from the last but one on, then 0.
struct Place {
  int index[4];
};

__device__ constexpr float infinity() { return __builtin_bit_cast(float, 0x7f800000); }
/// Below every score, and finite: what the maximum of no scores is.
__device__ constexpr float lowest() { return -3.402823466e38f; }

/// Rounded down; 0 where the divisor is 0.
template <typename Integer> __device__ constexpr Integer floor_divide(Integer a, Integer b) {
  return b == 0 ? Integer(0) : Integer(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));
}
/// The remainder of floor_divide, with the divisor's sign; 0 where the divisor is 0.
template <typename Integer> __device__ constexpr Integer floor_modulo(Integer a, Integer b) {
  return b == 0 ? Integer(0) : Integer(a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : Integer(0)));
}

template <typename Number> __device__ constexpr Number smaller(Number a, Number b) { return b < a ? b : a; }
template <typename Number> __device__ constexpr Number larger(Number a, Number b) { return a < b ? b : a; }

/// NaN if one of the two is.
__device__ constexpr float minimum(float a, float b) { return a < b || a != a ? a : b; }
__device__ constexpr float maximum(float a, float b) { return a > b || a != a ? a : b; }

/// A subscript that leaves its dimension, whose last index is `last`, becomes the nearest one inside.
template <typename Integer> __device__ constexpr int subscript(Integer index, int last) {
  return index < 0 || last < 0 ? 0 : index > last ? last : int(index);
}

/// The first word of Philox4x32-10 at a counter of 128 bits, whose upper 64 are 0.
__device__ inline unsigned philox(unsigned long long key, unsigned long long counter) {
  unsigned words[4] = {unsigned(counter), unsigned(counter >> 32), 0, 0},
           keys[2] = {unsigned(key), unsigned(key >> 32)};
  for (int round = 0; round < 10; ++round) {
    unsigned long long first = 0xD2511F53ull * words[0], second = 0xCD9E8D57ull * words[2];
    unsigned next[4] = {unsigned(second >> 32) ^ words[1] ^ keys[0], unsigned(second),
                        unsigned(first >> 32) ^ words[3] ^ keys[1], unsigned(first)};
    for (int word = 0; word < 4; ++word)
      words[word] = next[word];
    keys[0] += 0x9E3779B9;
    keys[1] += 0xBB67AE85;
  }
  return words[0];
}

/// How many of 2^32 random words drop an element whose probability of that is `probability`.
__device__ inline unsigned long long dropped_words(float probability) {
  double words = ceil(double(probability) * 4294967296.0);
  return words > 0 ? words > 4294967295.0 ? 4294967296ull : (unsigned long long)words : 0;
}
/// `value`, or 0 where the element is dropped. (The same bits as the CPU's.)
__device__ inline float dropout(float value, float scale, unsigned long long dropped, int64 seed, int64 element) {
  return philox(seed, element) < dropped ? 0.0f : value * scale;
}

} // namespace attn

#endif // ATTN_CUDA_NUMBERS
