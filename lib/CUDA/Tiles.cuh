//===- Tiles.cuh - Tiles in shared memory and in registers ------*- C++ -*-===//
//
// A tile in shared memory has `columns` elements a row, a multiple of 16, in segments of 16 bytes. The segments of a
// row are in another order in each of eight rows, so that the eight rows that ldmatrix reads of one column of segments
// are in different banks:
//
//   64 columns and more   segment s of row r is at s ^ (r % 8)             a row is 128 bytes or a multiple
//   32 columns            at s ^ (r / 2 % 4)                               two rows are 128 bytes
//   16 columns            at s ^ (r / 4 % 2)                               four rows are 128 bytes
//
//===----------------------------------------------------------------------===//

#ifndef ATTN_CUDA_TILES
#define ATTN_CUDA_TILES

namespace attn {

/// A matrix for wgmma, at byte `offset` after `shared`, in atoms of 8 rows of 128 bytes, which are swizzled: `stride`
/// is from an atom to the next one below, `leading` to the next one beside.
__device__ __forceinline__ unsigned long long matrix_descriptor(const void *shared, int offset, int leading,
                                                                int stride) {
  constexpr unsigned long long swizzle_of_128_bytes = 1;
  return (unsigned long long)(shared_address(shared, offset) >> 4 & 0x3fff) | (unsigned long long)(leading >> 4) << 16 |
         (unsigned long long)(stride >> 4) << 32 | swizzle_of_128_bytes << 62;
}

/// What is added to a descriptor for a matrix so many bytes on: less to keep in registers than both descriptors are.
__device__ constexpr unsigned long long descriptor_offset(int bytes) { return bytes >> 4; }

template <int tile_rows, int tile_columns> struct TileLayout {
  static_assert(tile_columns % 16 == 0, "a tile has a multiple of 16 columns");
  static constexpr int rows = tile_rows, columns = tile_columns;
  static constexpr int pitch = columns == 16 ? 16 : columns <= 32 ? 32 : (columns + 63) / 64 * 64; ///< Elements.
  static constexpr int size = rows * pitch;                                                        ///< Elements.
  static constexpr int segments = pitch / 8;
  static constexpr int line = segments >= 8 ? 1 : 8 / segments; ///< Rows in 128 bytes.

  /// Where a segment is, in bytes.
  static __device__ constexpr int offset(int row, int segment) {
    constexpr int turn = segments >= 8 ? 7 : segments - 1;
    return row * (pitch * 2) + ((segment & ~turn) | ((segment ^ row / line) & turn)) * 16;
  }
};

/// What wgmma reads: blocks of 64 columns, one after the other, in which a row is 128 bytes, and segment s of row r is
/// at s ^ (r % 8). Eight rows of a block are an atom, at a multiple of 1024 bytes.
template <int tile_rows, int tile_columns> struct SwizzledLayout {
  static constexpr int rows = tile_rows, columns = tile_columns;
  static_assert(rows % 8 == 0 && columns % 16 == 0, "a tile has whole atoms, and a multiple of 16 columns");
  static constexpr int block = rows * 128, atom = 1024;          ///< Bytes.
  static constexpr int size = rows * ((columns + 63) / 64 * 64); ///< Elements.

  static __device__ constexpr int offset(int row, int segment) {
    return segment / 8 * block + row * 128 + (segment % 8 ^ row % 8) * 16;
  }

  /// Of the matrix from that row and column on which has 16 columns: A, or B with its columns one below the other.
  static __device__ __forceinline__ unsigned long long rows_from(const void *tile, int row, int column) {
    return matrix_descriptor(tile, row * 128, 0, atom) + descriptor_offset(column / 64 * block + column % 64 * 2);
  }
  /// Of the matrix from that row and column, which begins a block, on which has 16 rows: B row by row.
  static __device__ __forceinline__ unsigned long long columns_from(const void *tile, int row, int column) {
    return matrix_descriptor(tile, 0, block, atom) + descriptor_offset(column / 64 * block + row * 128);
  }
};

/// The row and the column of a lane's number `element` (0 to 3) in a 16 x 8 fragment of C.
__device__ constexpr int fragment_row(int lane, int element) { return lane / 4 + element / 2 * 8; }
__device__ constexpr int fragment_column(int lane, int element) { return lane % 4 * 2 + element % 2; }

/// Whether every row of `tensor` begins at a multiple of 16 bytes.
template <typename Element, int rank> __device__ bool is_aligned(const Tensor<Element, rank> &tensor) {
  unsigned long long all = (unsigned long long)tensor.data / sizeof(Element);
  for (int dimension = 0; dimension + 1 < rank; ++dimension)
    all |= (unsigned long long)tensor.stride[dimension];
  return all % (16 / sizeof(Element)) == 0;
}

/// Begins to copy `count_of_rows` rows of a tile, those from `begin` on: `threads` threads, of which this is `thread`.
/// Its first row is row `first` of a tensor, whose rows `row_at` gives the addresses of: `rows` rows, at least one, of
/// `width` columns; the tile has 0 beyond. `in_line`: from a row to the next one it is equally far everywhere.
template <typename Layout, int threads, bool in_line = false, int count_of_rows = Layout::rows, typename Element,
          typename RowAt>
__device__ __forceinline__ void copy_tile(Element *tile, RowAt row_at, int first, int rows, int width, bool aligned,
                                          int thread, int begin = 0) {
  constexpr int segments = Layout::columns / 8, items = count_of_rows * segments;
  // A thread's segments, one after the other: where each comes from and goes to, and how many of its elements are
  // inside.
  auto copy_segment = [&](int step, auto copy) {
    const unsigned item = unsigned(thread) + unsigned(step * threads);
    if (items % threads != 0 && item >= items)
      return;
    // Threads that have whole rows between them stay in their column.
    const bool in_column = threads % segments == 0;
    const int row =
        begin + int(in_column ? unsigned(thread) / segments + step * (threads / segments) : item / segments);
    const int segment = int((in_column ? unsigned(thread) : item) % segments), column = segment * 8;
    const Element *source = row_at(smaller(first + row, rows - 1));
    copy(column < width ? source + column : source, Layout::offset(row, segment),
         first + row < rows ? larger(0, smaller(8, width - column)) : 0);
  };
  constexpr int steps = (items + threads - 1) / threads;
  if constexpr (in_line && threads % segments == 0 && items % threads == 0)
    if (aligned && first + begin + count_of_rows <= rows && Layout::columns <= width) {
      constexpr int rows_of_step = threads / segments;
      const int row = begin + int(unsigned(thread) / segments), segment = int(unsigned(thread) % segments);
      const Element *source = row_at(first + row) + segment * 8;
      const int64 next = row_at(first + row + rows_of_step) - row_at(first + row);
#pragma unroll 2
      for (int step = 0; step < steps; ++step, source += next)
        cp_async(tile, Layout::offset(row + step * rows_of_step, segment), source, 16);
      return;
    }
  if (aligned) {
#pragma unroll 2
    for (int step = 0; step < steps; ++step)
      copy_segment(step, [&](const Element *source, int target, int count) {
        cp_async(tile, target, source, count * int(sizeof(Element)));
      });
    return;
  }
#pragma unroll 1
  for (int step = 0; step < steps; ++step)
    copy_segment(step, [&](const Element *source, int target, int count) {
      Segment segment = {};
#pragma unroll
      for (int element = 0; element < 8; ++element)
        if (element < count)
          segment.words[element / 2] |= unsigned(source[element].bits) << element % 2 * 16;
      store_shared(tile, target, segment);
    });
}

/// A of rows [row, row + 16) and columns [column, column + 16) of a tile.
template <typename Layout, typename Element>
__device__ __forceinline__ void load_rows(unsigned (&a)[4], const Element *tile, int row, int column) {
  int lane = thread_index() % 32;
  ldmatrix_x4(a, tile, Layout::offset(row + lane % 16, column / 8 | lane / 16));
}

/// B of two products, whose columns are rows [row, row + 8) and [row + 8, row + 16) of a tile, and whose rows are its
/// columns [column, column + 16): b[0], b[1] and b[2], b[3].
template <typename Layout, typename Element>
__device__ __forceinline__ void load_as_columns(unsigned (&b)[4], const Element *tile, int row, int column) {
  int lane = thread_index() % 32;
  ldmatrix_x4(b, tile, Layout::offset(row + (lane / 16 * 8 | lane % 8), column / 8 | lane / 8 % 2));
}

/// B of two products, of rows [row, row + 16) of a tile and of columns [column, column + 8) and [column + 8,
/// column + 16).
template <typename Layout, typename Element>
__device__ __forceinline__ void load_transposed(unsigned (&b)[4], const Element *tile, int row, int column) {
  int lane = thread_index() % 32;
  ldmatrix_x4_transposed(b, tile, Layout::offset(row + lane % 16, column / 8 | lane / 16));
}

/// Two numbers that are side by side in a row, of which `count` are inside; at once where the pair is aligned.
template <typename Element>
__device__ __forceinline__ void store_pair(Element *target, float first, float second, int count, bool aligned) {
  if constexpr (sizeof(Element) == 2)
    if (aligned && count >= 2) {
      *reinterpret_cast<unsigned *>(target) = pack<Element>(first, second);
      return;
    }
  if (count >= 1)
    target[0] = from_float<Element>(first);
  if (count >= 2)
    target[1] = from_float<Element>(second);
}

} // namespace attn

#endif // ATTN_CUDA_TILES
