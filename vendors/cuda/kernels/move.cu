/// cat, stack and split of packed tensors in one pass, tril and triu, the gradient of unfold.
#include "move.h"
#include "pointwise.cuh"

struct wide {
  uint64_t part[2];
};

/// Where unit `i` of the whole lies in its part.
template <class T>
KERNEL_INLINE T *find_unit(const join_kernel &p, int64_t i) {
  const int64_t row = p.is_wide ? i / p.units : (int64_t)divide_fast((uint32_t)i, p.divisor);
  const int64_t column = i - row * p.units;
  int part = 0;
  while (column >= p.begin[part + 1]) {
    part++;
  }
  return (T *)(void *)p.data[part] + row * (p.begin[part + 1] - p.begin[part]) + (column - p.begin[part]);
}

/// A block has JOIN_KERNEL_UNITS vectors of the whole for each of its threads: all are read before one is written.
template <class T>
KERNEL_INLINE void join(const join_kernel &p) {
  const int U = JOIN_KERNEL_UNITS;
  const int64_t block = (int64_t)MOVE_KERNEL_THREADS * U;
  for (int64_t first = blockIdx.x * block + threadIdx.x; first < p.total; first += gridDim.x * block) {
    T value[U], *at[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int64_t i = first + u * MOVE_KERNEL_THREADS;
      if (i < p.total) {
        at[u] = find_unit<T>(p, i);
        value[u] = p.is_split ? ((const T *)(const void *)p.whole)[i] : *at[u];
      }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int64_t i = first + u * MOVE_KERNEL_THREADS;
      if (i < p.total) {
        *(p.is_split ? at[u] : (T *)(void *)p.whole + i) = value[u];
      }
    }
  }
}

/// A thread per element of the result; in place only zeros are written.
template <class T>
KERNEL_INLINE void cut_triangle(const triangle_kernel &p) {
  const int64_t matrix = p.rows * p.columns, total = p.walk.numel * matrix;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
    const int64_t number = i / matrix, rest = i - number * matrix, row = rest / p.columns,
                  column = rest - row * p.columns;
    const bool is_kept = p.is_upper ? column - row >= p.diagonal : column - row <= p.diagonal;
    int64_t offsets[2];
    if (is_kept && p.is_in_place) {
      continue;
    }
    find_offsets<2>(p.walk, number, offsets);
    T value = T();
    if (is_kept) {
      value = *(const T *)(const void *)(p.walk.data[1] + offsets[1] + row * p.row_step[1] + column * p.step[1]);
    }
    *(T *)(void *)(p.walk.data[0] + offsets[0] + row * p.row_step[0] + column * p.step[0]) = value;
  }
}
#define MOVE_WIDTH(width, T)                                       \
  KERNEL(MOVE_KERNEL_THREADS, join_##width, join_kernel) {         \
    join<T>(p);                                                    \
  }                                                                \
  KERNEL(MOVE_KERNEL_THREADS, triangle_##width, triangle_kernel) { \
    cut_triangle<T>(p);                                            \
  }
MOVE_WIDTH(1, uint8_t)
MOVE_WIDTH(2, uint16_t)
MOVE_WIDTH(4, uint32_t)
MOVE_WIDTH(8, uint64_t)
MOVE_WIDTH(16, wide)

/// A thread per element of grad_input: the windows that show it, in order.
template <class E, class A, bool IS_BOOL>
KERNEL_INLINE void sum_windows(const unfold_kernel &p) {
  const int64_t total = p.walk.numel * p.length;
  for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < total; k += (int64_t)gridDim.x * blockDim.x) {
    const int64_t number = k / p.length, i = k - number * p.length;
    const int64_t first = i < p.size ? 0 : (i - p.size) / p.step + 1;
    const int64_t last = i / p.step < p.windows - 1 ? i / p.step : p.windows - 1;
    int64_t offsets[2];
    find_offsets<2>(p.walk, number, offsets);
    const char *grad = p.walk.data[1] + offsets[1];
    A sum = 0;
    for (int64_t j = first; j <= last && p.size > 0; j++) {
      const A term =
          (A)to_work(*(const E *)(const void *)(grad + j * p.window_step + (i - j * p.step) * p.element_step));
      sum = IS_BOOL ? (A)(sum != 0 || term != 0) : (A)(sum + term);
    }
    *(E *)(void *)(p.walk.data[0] + offsets[0] + i * p.out_step) = element<E>::from(sum);
  }
}
#define UNFOLD(tag, E, A, is_bool)                               \
  KERNEL(MOVE_KERNEL_THREADS, unfold_sum_##tag, unfold_kernel) { \
    sum_windows<E, A, is_bool>(p);                               \
  }
UNFOLD(f32, float, float, false)
UNFOLD(f64, double, double, false)
UNFOLD(f16, half_bits, float, false)
UNFOLD(bf16, bfloat_bits, float, false)
UNFOLD(u8, uint8_t, uint8_t, false)
UNFOLD(u16, uint16_t, uint16_t, false)
UNFOLD(u32, uint32_t, uint32_t, false)
UNFOLD(u64, uint64_t, uint64_t, false)
UNFOLD(bool, uint8_t, uint8_t, true)
