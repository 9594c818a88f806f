/// Layer norm and RMS norm of rows that wait in registers (rows.cuh), and their gradients; float in the registers.
///
/// Mean and variance are two sums over the same registers: exact, and without a second read. The gradients of weight
/// and bias are sums of columns: a thread has a vector of columns, blocks have parts of the rows, a second kernel
/// joins.
#include "layer.h"
#include "rows.cuh"

KERNEL_INLINE float load_float(const char *data, int dtype, int64_t index) {
  if (dtype == DIT_DTYPE_F32) {
    return ((const float *)(const void *)data)[index];
  }
  const uint16_t bits = ((const uint16_t *)(const void *)data)[index];
  return dtype == DIT_DTYPE_F16 ? half_to_float(bits) : bfloat_to_float(bits);
}
KERNEL_INLINE void store_float(char *data, int dtype, int64_t index, float value) {
  if (dtype == DIT_DTYPE_F32) {
    ((float *)(void *)data)[index] = value;
  } else {
    ((uint16_t *)(void *)data)[index] = dtype == DIT_DTYPE_F16 ? half_from_float(value) : bfloat_from_float(value);
  }
}

/// The vector at `index` of weight or bias; `otherwise` where there is none.
template <class E>
KERNEL_INLINE void load_shared_row(const char *data, int index, float otherwise, float *to) {
  if (data) {
    const typename row<E>::vector x = ((const typename row<E>::vector *)(const void *)data)[index];
#pragma unroll
    for (int k = 0; k < row<E>::LANES; k++) {
      to[k] = to_work(x.value[k]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < row<E>::LANES; k++) {
      to[k] = otherwise;
    }
  }
}

#define EACH_VECTOR(u) _Pragma("unroll") for (int u = 0; u < ROW_VECTORS; u++) if (t.lane + u * t.lanes < t.vectors)
#define EACH_LANE(k) _Pragma("unroll") for (int k = 0; k < row<E>::LANES; k++)

template <class E>
KERNEL_INLINE void run_forward(const layer_kernel &p) {
  __shared__ float rooms[2][32];
  const row_place t = find_row(p.lanes, (int)(p.length / row<E>::LANES));
  typename row<E>::vector x[ROW_VECTORS];
  const bool is_there = t.number < p.rows;
  float mean = 0, total = 0;
  if (is_there) {
    load_row<E>(t, p.input, x);
  }
  if (!p.is_rms) {
    EACH_VECTOR(u) {
      EACH_LANE(k) {
        total += to_work(x[u].value[k]);
      }
    }
    mean = join_row(t, total, 0.0f, rooms[0], join_sum()) / (float)p.length;
    total = 0;
  }
  EACH_VECTOR(u) {
    EACH_LANE(k) {
      const float away = to_work(x[u].value[k]) - mean;
      total += away * away;
    }
  }
  total = join_row(t, total, 0.0f, rooms[1], join_sum());
  if (!is_there) {
    return;
  }
  const float scale = 1 / sqrtf(total / (float)p.length + (float)p.eps);
  typename row<E>::vector *out = (typename row<E>::vector *)(void *)p.out + t.number * t.vectors;
  EACH_VECTOR(u) {
    const int index = t.lane + u * t.lanes;
    float weight[row<E>::LANES], bias[row<E>::LANES];
    load_shared_row<E>(p.weight, index, 1, weight);
    load_shared_row<E>(p.bias, index, 0, bias);
    EACH_LANE(k) {
      x[u].value[k] = element<E>::from((to_work(x[u].value[k]) - mean) * scale * weight[k] + bias[k]);
    }
    out[index] = x[u];
  }
  if (t.lane == 0 && p.mean) {
    store_float(p.mean, p.mean_dtype, t.number, mean);
  }
  if (t.lane == 0 && p.scale) {
    store_float(p.scale, p.scale_dtype, t.number, scale);
  }
}

template <class E>
KERNEL_INLINE void run_backward(const layer_kernel &p) {
  __shared__ float rooms[2][32];
  const row_place t = find_row(p.lanes, (int)(p.length / row<E>::LANES));
  typename row<E>::vector x[ROW_VECTORS], grad[ROW_VECTORS];
  const bool is_there = t.number < p.rows;
  float mean = 0, scale = 0, first = 0, second = 0;
  if (is_there) {
    load_row<E>(t, p.input, x);
    load_row<E>(t, p.grad, grad);
    mean = p.is_rms || !p.mean ? 0 : load_float(p.mean, p.mean_dtype, t.number);
    scale = load_float(p.scale, p.scale_dtype, t.number);
  }
  EACH_VECTOR(u) {
    float weight[row<E>::LANES];
    load_shared_row<E>(p.weight, t.lane + u * t.lanes, 1, weight);
    EACH_LANE(k) {
      const float h = to_work(grad[u].value[k]) * weight[k];
      first += h;
      second += h * (to_work(x[u].value[k]) - mean);
    }
  }
  first = p.is_rms ? 0 : join_row(t, first, 0.0f, rooms[0], join_sum()) / (float)p.length;
  second = join_row(t, second * scale, 0.0f, rooms[1], join_sum()) / (float)p.length;
  if (!is_there) {
    return;
  }
  typename row<E>::vector *out = (typename row<E>::vector *)(void *)p.out + t.number * t.vectors;
  EACH_VECTOR(u) {
    const int index = t.lane + u * t.lanes;
    float weight[row<E>::LANES];
    load_shared_row<E>(p.weight, index, 1, weight);
    EACH_LANE(k) {
      const float h = to_work(grad[u].value[k]) * weight[k], z = (to_work(x[u].value[k]) - mean) * scale;
      x[u].value[k] = element<E>::from(scale * (h - first - z * second));
    }
    out[index] = x[u];
  }
}

// Columns of g * z and of g

#define COLUMN_ROWS 2  ///< rows of which a thread reads both operands before it computes

template <class E>
KERNEL_INLINE void run_columns(const layer_kernel &p) {
  const int LANES = row<E>::LANES, WIDE = LAYER_KERNEL_COLUMNS, DEEP = LAYER_KERNEL_THREADS / LAYER_KERNEL_COLUMNS;
  __shared__ float room[2 * LANES * LAYER_KERNEL_THREADS];
  typedef typename row<E>::vector vector;
  const int x = threadIdx.x % WIDE, y = threadIdx.x / WIDE, vectors = (int)(p.length / LANES);
  const int column = blockIdx.x * WIDE + x;
  const int64_t begin = (int64_t)blockIdx.y * p.part, end = begin + p.part < p.rows ? begin + p.part : p.rows;
  float weight[LANES] = {}, bias[LANES] = {};
  for (int64_t number = begin + y; column < vectors && number < end; number += DEEP * COLUMN_ROWS) {
    vector input[COLUMN_ROWS], grad[COLUMN_ROWS];
    float mean[COLUMN_ROWS] = {}, scale[COLUMN_ROWS] = {};
#pragma unroll
    for (int u = 0; u < COLUMN_ROWS; u++) {
      const int64_t row = number + u * DEEP;
      if (row < end) {
        input[u] = load_once((const vector *)(const void *)p.input + row * vectors + column);
        grad[u] = load_once((const vector *)(const void *)p.grad + row * vectors + column);
        mean[u] = p.is_rms || !p.mean ? 0 : load_float(p.mean, p.mean_dtype, row);
        scale[u] = load_float(p.scale, p.scale_dtype, row);
      }
    }
#pragma unroll
    for (int u = 0; u < COLUMN_ROWS; u++) {
      if (number + u * DEEP < end) {
#pragma unroll
        for (int k = 0; k < LANES; k++) {
          const float g = to_work(grad[u].value[k]);
          weight[k] += g * ((to_work(input[u].value[k]) - mean[u]) * scale[u]);
          bias[k] += g;
        }
      }
    }
  }
#pragma unroll
  for (int k = 0; k < LANES; k++) {
    room[k * LAYER_KERNEL_THREADS + threadIdx.x] = weight[k];
    room[(LANES + k) * LAYER_KERNEL_THREADS + threadIdx.x] = bias[k];
  }
  __syncthreads();
  // neighbouring threads have neighbouring columns
  for (int i = threadIdx.x; i < 2 * WIDE * LANES; i += LAYER_KERNEL_THREADS) {
    const int which = i / (WIDE * LANES), place = i % (WIDE * LANES), k = place % LANES;
    const int64_t at = (int64_t)blockIdx.x * WIDE * LANES + place;
    float total = 0;
    for (int deep = 0; deep < DEEP; deep++) {
      total += room[(which * LANES + k) * LAYER_KERNEL_THREADS + deep * WIDE + place / LANES];
    }
    if (at < p.length) {
      ((float *)p.partials)[(blockIdx.y * 2 + which) * p.length + at] = total;
    }
  }
}

/// The parts of 32 columns of weight (y = 0) or bias (y = 1), eight threads for a column.
KERNEL_BLOCK(LAYER_KERNEL_THREADS, layer_vector_join, layer_kernel) {
  __shared__ float room[LAYER_KERNEL_THREADS];
  const int x = threadIdx.x % 32, y = threadIdx.x / 32;
  const int64_t column = (int64_t)blockIdx.x * 32 + x;
  float total = 0;
  for (int split = y; column < p.length && split < p.splits; split += LAYER_KERNEL_THREADS / 32) {
    total += ((const float *)p.partials)[((int64_t)split * 2 + blockIdx.y) * p.length + column];
  }
  room[threadIdx.x] = total;
  __syncthreads();
  char *to = blockIdx.y == 0 ? p.grad_weight : p.grad_bias;
  if (y == 0 && column < p.length && to) {
    for (int k = 1; k < LAYER_KERNEL_THREADS / 32; k++) {
      total += room[k * 32 + x];
    }
    store_float(to, blockIdx.y == 0 ? p.grad_weight_dtype : p.grad_bias_dtype, column, total);
  }
}

#define ROW_KERNELS(tag, E)                                                      \
  KERNEL_BLOCK(ROW_THREADS, layer_row_forward_##tag, layer_kernel) {             \
    run_forward<E>(p);                                                           \
  }                                                                              \
  KERNEL_BLOCK(ROW_THREADS, layer_row_backward_##tag, layer_kernel) {            \
    run_backward<E>(p);                                                          \
  }                                                                              \
  KERNEL_BLOCK(LAYER_KERNEL_THREADS, layer_vector_columns_##tag, layer_kernel) { \
    run_columns<E>(p);                                                           \
  }
ROW_KERNELS(f32, float)
ROW_KERNELS(f16, half_bits)
ROW_KERNELS(bf16, bfloat_bits)
