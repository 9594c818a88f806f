/// Convolution as a matrix product whose right operand is never written down (implicit GEMM).
///
///   mode      rows   columns              depth                 a                 b
///   forward   out c  batch, out position  in c, kernel tap      weight            input
///   input     in c   batch, in position   out c, kernel tap     weight            gradient of the result
///   weight    out c  in c, kernel tap     batch, out position   gradient          input
///
/// The position that b is read at is the sum of a part of the column and a part of the depth; the address of a is the sum
/// of a part of the row and a part of the depth. The parts of a tile's columns, and of the next depths, wait in shared
/// memory. While a tile is multiplied, the next one is read into registers. Sums have one order: long ones with few
/// tiles are split into parts, which conv_join adds one after the other.
#ifndef DIT_CUDA_CONV_CUH
#define DIT_CUDA_CONV_CUH

#include "conv.h"

#include "image.cuh"
#include "matrix.cuh"

#define CONV_OUTSIDE (-(1 << 29))  // a part that makes every position be outside

struct conv_column {
  int64_t b, c;
  int z, y, x, pad;
};
struct conv_depth {
  int64_t a, b;
  int z, y, x, is_inside;
};
/// A channel or image, and a position.
struct conv_item {
  int64_t outer;
  int z, y, x;
};

KERNEL_INLINE int64_t divide(int64_t *rest, pointwise_divisor by, bool is_wide) {
  const int64_t value = *rest;
  *rest = is_wide ? value / by.divisor
                  : (int64_t)(((uint64_t)__umulhi((uint32_t)value, by.magic) + (uint32_t)value) >> by.shift);
  return value - *rest * by.divisor;
}
KERNEL_INLINE conv_item split_item(const conv_kernel &p, const pointwise_divisor *by, int64_t i) {
  conv_item item;
  item.x = (int)divide(&i, by[2], p.is_wide);
  item.y = (int)divide(&i, by[1], p.is_wide);
  item.z = (int)divide(&i, by[0], p.is_wide);
  item.outer = i;
  return item;
}

template <int MODE>
KERNEL_INLINE conv_column get_column(const conv_kernel &p, int64_t group, int64_t number) {
  conv_column column = {0, 0, CONV_OUTSIDE, 0, 0, 0};
  if (number >= p.columns) {
    return column;
  }
  const conv_item item = split_item(p, MODE == CONV_KERNEL_WEIGHT ? p.taps : p.positions, number);
  const int64_t in_channel = group * p.in_channels, out_channel = group * p.out_channels;
  if (MODE == CONV_KERNEL_WEIGHT) {
    column.b = (in_channel + item.outer) * p.b.strides[1];
    column.c = item.outer * p.c.strides[1] + get_offset(p.c, item.z, item.y, item.x);
    column.z = item.z * p.dilation[0];
    column.y = item.y * p.dilation[1];
    column.x = item.x * p.dilation[2];
    return column;
  }
  const bool forward = MODE == CONV_KERNEL_FORWARD;
  column.b = item.outer * p.b.strides[0] + (forward ? in_channel : out_channel) * p.b.strides[1];
  column.c = item.outer * p.c.strides[0] + get_offset(p.c, item.z, item.y, item.x);
  column.z = forward ? item.z * p.stride[0] - p.padding[0] : item.z + p.padding[0];
  column.y = forward ? item.y * p.stride[1] - p.padding[1] : item.y + p.padding[1];
  column.x = forward ? item.x * p.stride[2] - p.padding[2] : item.x + p.padding[2];
  return column;
}

template <int MODE>
KERNEL_INLINE conv_depth get_depth(const conv_kernel &p, int64_t number, int64_t end) {
  conv_depth depth = {0, 0, CONV_OUTSIDE, 0, 0, 0};
  if (number >= end) {
    return depth;
  }
  const conv_item item = split_item(p, MODE == CONV_KERNEL_WEIGHT ? p.positions : p.taps, number);
  depth.is_inside = 1;
  if (MODE == CONV_KERNEL_WEIGHT) {
    depth.a = item.outer * p.a.strides[0] + get_offset(p.a, item.z, item.y, item.x);
    depth.b = item.outer * p.b.strides[0];
    depth.z = item.z * p.stride[0] - p.padding[0];
    depth.y = item.y * p.stride[1] - p.padding[1];
    depth.x = item.x * p.stride[2] - p.padding[2];
    return depth;
  }
  const bool forward = MODE == CONV_KERNEL_FORWARD;
  const int sign = forward ? 1 : -1;
  depth.a = item.outer * p.a.strides[forward ? 1 : 0] + get_offset(p.a, item.z, item.y, item.x);
  depth.b = item.outer * p.b.strides[1];
  depth.z = sign * item.z * p.dilation[0];
  depth.y = sign * item.y * p.dilation[1];
  depth.x = sign * item.x * p.dilation[2];
  return depth;
}

/// What the rows add to the addresses of a and c.
template <int MODE>
KERNEL_INLINE int64_t get_row_a(const conv_kernel &p, int64_t group, int64_t row) {
  return MODE == CONV_KERNEL_FORWARD ? (group * p.out_channels + row) * p.a.strides[0]
         : MODE == CONV_KERNEL_INPUT ? group * p.out_channels * p.a.strides[0] + row * p.a.strides[1]
                                     : (group * p.out_channels + row) * p.a.strides[1];
}
template <int MODE>
KERNEL_INLINE int64_t get_row_c(const conv_kernel &p, int64_t group, int64_t row) {
  return MODE == CONV_KERNEL_WEIGHT ? (group * p.out_channels + row) * p.c.strides[0]
                                    : (group * p.rows + row) * p.c.strides[1];
}

/// Positions of the input's gradient lie `stride` apart in the result.
template <class E, int MODE>
KERNEL_INLINE E load_right(const conv_kernel &p, const conv_column &column, const conv_depth &depth) {
  int z = column.z + depth.z, y = column.y + depth.y, x = column.x + depth.x;
  bool inside = z >= 0 && y >= 0 && x >= 0;
  if (MODE == CONV_KERNEL_INPUT) {
    if (p.has_stride && inside) {
      const int rest_z = z % p.stride[0], rest_y = y % p.stride[1], rest_x = x % p.stride[2];
      z /= p.stride[0];
      y /= p.stride[1];
      x /= p.stride[2];
      inside = (rest_z | rest_y | rest_x) == 0;
    }
    inside = inside && z < p.out[0] && y < p.out[1] && x < p.out[2];
  } else {
    inside = inside && z < p.in[0] && y < p.in[1] && x < p.in[2];
  }
  return inside ? *(const E *)(const void *)(p.b.data + column.b + depth.b + get_offset(p.b, z, y, x)) : E();
}

/// Sums in registers, tiles in the work type: 16 x 16 threads with TM / 16 x TN / 16 results each.
template <class E_, int TM_, int TN_>
struct scalar_tiles {
  typedef E_ E;
  typedef typename work_type<E_>::type A;
  static constexpr int TM = TM_, TN = TN_, DEPTH = 16, U = TM_ / 64, V = TN_ / 64;
  struct memory {
    alignas(32) A left[2][16][TM_ + 4];
    alignas(32) A right[2][16][TN_ + 4];
  };
  A sums[U * 4][V * 4];
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < U * 4; i++) {
#pragma unroll
      for (int j = 0; j < V * 4; j++) {
        sums[i][j] = 0;
      }
    }
  }
  static __device__ void put_left(memory &room, int stage, int m, int k, E value) {
    room.left[stage][k][m] = to_work(value);
  }
  static __device__ void put_right(memory &room, int stage, int n, int k, E value) {
    room.right[stage][k][n] = to_work(value);
  }
  __device__ void multiply(const memory &room, int stage) {
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      pack<A, 4> u[U], v[V];
#pragma unroll
      for (int i = 0; i < U; i++) {
        u[i] = *(const pack<A, 4> *)(const void *)&room.left[stage][k][64 * i + 4 * y];
      }
#pragma unroll
      for (int j = 0; j < V; j++) {
        v[j] = *(const pack<A, 4> *)(const void *)&room.right[stage][k][64 * j + 4 * x];
      }
#pragma unroll
      for (int i = 0; i < U * 4; i++) {
#pragma unroll
        for (int j = 0; j < V * 4; j++) {
          sums[i][j] += u[i / 4].value[i % 4] * v[j / 4].value[j % 4];
        }
      }
    }
  }
  template <class F>
  __device__ void each(F use) const {
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < U * 4; i++) {
#pragma unroll
      for (int j = 0; j < V * 4; j++) {
        use(i / 4 * 64 + 4 * y + i % 4, j / 4 * 64 + 4 * x + j % 4, sums[i][j]);
      }
    }
  }
};

/// Half types by matrix instructions: 2 x 4 warps with TM / 2 x TN / 4 results each. Rows of 16 depths lie 8 elements
/// apart, so that the loads of a warp meet every bank once.
template <class E_, int TM_, int TN_>
struct matrix_tiles {
  typedef E_ E;
  typedef float A;
  static constexpr int TM = TM_, TN = TN_, DEPTH = 16, STRIDE = DEPTH + 8, U = TM_ / 32, V = TN_ / 32;
  struct memory {
    alignas(16) E left[2][TM_][STRIDE];
    alignas(16) E right[2][TN_][STRIDE];
  };
  float sums[U][V][4];
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < U * V * 4; i++) {
      sums[i / (V * 4)][i / 4 % V][i % 4] = 0;
    }
  }
  static __device__ void put_left(memory &room, int stage, int m, int k, E value) {
    room.left[stage][m][k] = value;
  }
  static __device__ void put_right(memory &room, int stage, int n, int k, E value) {
    room.right[stage][n][k] = value;
  }
  static __device__ uint32_t get_two(const E *place) {
    return *(const uint32_t *)(const void *)place;
  }
  __device__ void multiply(const memory &room, int stage) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4 * 2;
    const int row = warp / 4 * (TM / 2) + g, column = warp % 4 * (TN / 4) + g;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      uint32_t a[U][4], b[V][2];
#pragma unroll
      for (int i = 0; i < U; i++) {
        const E *upper = &room.left[stage][row + 16 * i][k + t], *lower = upper + 8 * STRIDE;
        a[i][0] = get_two(upper);
        a[i][1] = get_two(lower);
        a[i][2] = get_two(upper + 8);
        a[i][3] = get_two(lower + 8);
      }
#pragma unroll
      for (int j = 0; j < V; j++) {
        const E *place = &room.right[stage][column + 8 * j][k + t];
        b[j][0] = get_two(place);
        b[j][1] = get_two(place + 8);
      }
#pragma unroll
      for (int i = 0; i < U; i++) {
#pragma unroll
        for (int j = 0; j < V; j++) {
          multiply_matrices(E(), sums[i][j], a[i], b[j]);
        }
      }
    }
  }
  template <class F>
  __device__ void each(F use) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp / 4 * (TM / 2) + lane / 4, column = warp % 4 * (TN / 4) + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < U; i++) {
#pragma unroll
      for (int j = 0; j < V; j++) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
          use(row + 16 * i + k / 2 * 8, column + 8 * j + k % 2, sums[i][j][k]);
        }
      }
    }
  }
};

/// The next tiles in registers.
template <class Tiles, int MODE>
struct conv_loader {
  typedef typename Tiles::E E;
  static constexpr int DEPTH = Tiles::DEPTH, LEFT = Tiles::TM * DEPTH / CONV_KERNEL_THREADS,
                       RIGHT = Tiles::TN * DEPTH / CONV_KERNEL_THREADS;
  E left[LEFT], right[RIGHT];
  // neighbouring threads read along the depth, or along neighbouring positions
  static __device__ int get_left_depth(int i) {
    return i % DEPTH;
  }
  static __device__ int get_right_depth(int i) {
    return MODE == CONV_KERNEL_WEIGHT ? i % DEPTH : i / Tiles::TN;
  }
  static __device__ int get_right_column(int i) {
    return MODE == CONV_KERNEL_WEIGHT ? i / DEPTH : i % Tiles::TN;
  }
  __device__ void load(const conv_kernel &p, int64_t group, int64_t row, const conv_column *columns,
                       const conv_depth *depths) {
#pragma unroll
    for (int j = 0; j < LEFT; j++) {
      const int i = j * CONV_KERNEL_THREADS + threadIdx.x;
      const conv_depth &depth = depths[get_left_depth(i)];
      const int64_t m = row + i / DEPTH;
      left[j] = depth.is_inside && m < p.rows
                    ? *(const E *)(const void *)(p.a.data + get_row_a<MODE>(p, group, m) + depth.a)
                    : E();
    }
#pragma unroll
    for (int j = 0; j < RIGHT; j++) {
      const int i = j * CONV_KERNEL_THREADS + threadIdx.x;
      right[j] = load_right<E, MODE>(p, columns[get_right_column(i)], depths[get_right_depth(i)]);
    }
  }
  __device__ void put(typename Tiles::memory &room, int stage) const {
#pragma unroll
    for (int j = 0; j < LEFT; j++) {
      const int i = j * CONV_KERNEL_THREADS + threadIdx.x;
      Tiles::put_left(room, stage, i / DEPTH, get_left_depth(i), left[j]);
    }
#pragma unroll
    for (int j = 0; j < RIGHT; j++) {
      const int i = j * CONV_KERNEL_THREADS + threadIdx.x;
      Tiles::put_right(room, stage, get_right_column(i), get_right_depth(i), right[j]);
    }
  }
};

template <class Tiles, int MODE>
KERNEL_INLINE void run_conv(const conv_kernel &p) {
  typedef typename Tiles::E E;
  typedef typename Tiles::A A;
  constexpr int DEPTH = Tiles::DEPTH;
  __shared__ typename Tiles::memory room;
  __shared__ conv_column columns[Tiles::TN];
  __shared__ conv_depth depths[2][DEPTH];
  const int64_t row = (int64_t)blockIdx.y * Tiles::TM, first = (int64_t)blockIdx.x * Tiles::TN;
  const int thread = threadIdx.x;
  for (int64_t number = blockIdx.z; number < (int64_t)p.groups * p.splits; number += gridDim.z) {
    const int64_t group = number % p.groups, split = number / p.groups, begin = split * p.part;
    const int64_t end = begin + p.part < p.depth ? begin + p.part : p.depth;
    const int steps = (int)((end - begin + DEPTH - 1) / DEPTH);
    conv_loader<Tiles, MODE> loader;
    Tiles tiles;
    tiles.clear();
    __syncthreads();
    if (thread < Tiles::TN) {
      columns[thread] = get_column<MODE>(p, group, first + thread);
    }
    if (thread < 2 * DEPTH) {
      depths[thread / DEPTH][thread % DEPTH] = get_depth<MODE>(p, begin + thread, end);
    }
    __syncthreads();
    loader.load(p, group, row, columns, depths[0]);
    loader.put(room, 0);
    __syncthreads();
    for (int step = 0; step < steps; step++) {
      const bool more = step + 1 < steps;
      if (more) {
        loader.load(p, group, row, columns, depths[(step + 1) % 2]);
      }
      tiles.multiply(room, step % 2);
      if (more) {
        loader.put(room, (step + 1) % 2);
      }
      if (thread < DEPTH) {  // the table of this step was read before the last barrier
        depths[step % 2][thread] = get_depth<MODE>(p, begin + (int64_t)(step + 2) * DEPTH + thread, end);
      }
      __syncthreads();
    }
    tiles.each([&](int m, int n, A value) {
      if (row + m >= p.rows || first + n >= p.columns) {
        return;
      }
      if (p.splits > 1) {
        ((A *)p.partials)[(number * p.rows + row + m) * p.columns + first + n] = value;
        return;
      }
      if (p.bias) {
        value += (A)to_work(((const E *)(const void *)p.bias)[group * p.rows + row + m]);
      }
      *(E *)(void *)(p.c.data + get_row_c<MODE>(p, group, row + m) + columns[n].c) = element<E>::from(value);
    });
  }
}

/// The parts of split sums, in their order.
template <class E, int MODE>
KERNEL_INLINE void join_parts(const conv_kernel &p, int64_t i) {
  typedef typename work_type<E>::type A;
  const int64_t column = i % p.columns, row = i / p.columns % p.rows, group = i / p.columns / p.rows;
  const int64_t count = p.groups * p.rows * p.columns;
  A sum = p.bias ? (A)to_work(((const E *)(const void *)p.bias)[group * p.rows + row]) : (A)0;
  for (int split = 0; split < p.splits; split++) {
    sum += ((const A *)p.partials)[split * count + i];
  }
  char *place = p.c.data + get_row_c<MODE>(p, group, row) + get_column<MODE>(p, group, column).c;
  *(E *)(void *)place = element<E>::from(sum);
}
template <class E>
KERNEL_INLINE void run_join(const conv_kernel &p) {
  const int64_t count = p.groups * p.rows * p.columns;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
    if (p.mode == CONV_KERNEL_FORWARD) {
      join_parts<E, CONV_KERNEL_FORWARD>(p, i);
    } else if (p.mode == CONV_KERNEL_INPUT) {
      join_parts<E, CONV_KERNEL_INPUT>(p, i);
    } else {
      join_parts<E, CONV_KERNEL_WEIGHT>(p, i);
    }
  }
}

// Blocks per multiprocessor: as many as the registers of their sums leave room for.
#define CONV_BLOCKS_small 2
#define CONV_BLOCKS_large 1
#ifdef __CUDACC__
#define CONV_KERNEL(name, blocks) \
  extern "C" __global__ void __launch_bounds__(CONV_KERNEL_THREADS, blocks) name(const __grid_constant__ conv_kernel p)
#else
#define CONV_KERNEL(name, blocks) KERNEL_BLOCK(CONV_KERNEL_THREADS, name, conv_kernel)
#endif
#define CONV_KERNELS(tag, size, Tiles)                            \
  CONV_KERNEL(conv_forward_##size##_##tag, CONV_BLOCKS_##size) {  \
    run_conv<Tiles, CONV_KERNEL_FORWARD>(p);                      \
  }                                                               \
  CONV_KERNEL(conv_input_##size##_##tag, CONV_BLOCKS_##size) {    \
    run_conv<Tiles, CONV_KERNEL_INPUT>(p);                        \
  }                                                               \
  CONV_KERNEL(conv_weight_##size##_##tag, CONV_BLOCKS_##size) {   \
    run_conv<Tiles, CONV_KERNEL_WEIGHT>(p);                       \
  }
#define CONV_JOIN(tag, E)                                          \
  KERNEL(CONV_KERNEL_THREADS, conv_join_##tag, conv_kernel) {      \
    run_join<E>(p);                                                \
  }

#endif
