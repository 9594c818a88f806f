/// Layer norm and RMS norm over rows, and their gradients (formulas: vendors/host/ops/norm_layer.c).
///
/// A block has one row at a time; where it fits, the row waits in shared memory in the work type, so that device memory
/// is read once. The gradients of weight and bias are sums of columns, in parts that a second kernel joins.
#include "layer.h"

#include "kernel.cuh"
#include "math.cuh"

template <class E, class A>
struct row {
  const E *data;
  A *room;
  bool cached;
  __device__ A get(int64_t i) const {
    return cached ? room[i] : (A)to_work(data[i]);
  }
};

template <class A>
KERNEL_INLINE A get_inverse_root(A x) {
  return (A)1 / sqrt(x);
}

template <class E, class A>
KERNEL_INLINE row<E, A> open_row(const layer_kernel &p, int64_t number, A *room) {
  const row<E, A> x = {(const E *)(const void *)p.input + number * p.length, room, p.is_cached != 0};
  if (p.is_cached) {
    __syncthreads();
    for (int64_t i = threadIdx.x; i < p.length; i += blockDim.x) {
      room[i] = (A)to_work(x.data[i]);
    }
    __syncthreads();
  }
  return x;
}

template <class E, class A>
KERNEL_INLINE void run_forward(const layer_kernel &p) {
  __shared__ A sums[33];
  SHARED_MEMORY(A, room);
  for (int64_t number = blockIdx.x; number < p.rows; number += gridDim.x) {
    const row<E, A> x = open_row<E, A>(p, number, room);
    A mean = 0, total = 0;
    if (!p.is_rms) {
      for (int64_t i = threadIdx.x; i < p.length; i += blockDim.x) {
        total += x.get(i);
      }
      mean = block_reduce(total, (A)0, sums, join_sum()) / (A)p.length;
      total = 0;
    }
    for (int64_t i = threadIdx.x; i < p.length; i += blockDim.x) {
      const A away = x.get(i) - mean;
      total += away * away;
    }
    const A scale = get_inverse_root(block_reduce(total, (A)0, sums, join_sum()) / (A)p.length + (A)p.eps);
    E *out = (E *)(void *)p.out + number * p.length;
    for (int64_t i = threadIdx.x; i < p.length; i += blockDim.x) {
      A y = (x.get(i) - mean) * scale;
      if (p.weight) {
        y *= load_as<A>(p.weight + i * dtype_width(p.weight_dtype), p.weight_dtype, false);
      }
      if (p.bias) {
        y += load_as<A>(p.bias + i * dtype_width(p.bias_dtype), p.bias_dtype, false);
      }
      out[i] = element<E>::from(y);
    }
    if (threadIdx.x == 0 && p.mean) {
      store_as(p.mean + number * dtype_width(p.mean_dtype), p.mean_dtype, mean);
    }
    if (threadIdx.x == 0 && p.scale) {
      store_as(p.scale + number * dtype_width(p.scale_dtype), p.scale_dtype, scale);
    }
  }
}

template <class A>
KERNEL_INLINE A get_saved(const char *data, int dtype, int64_t number) {
  return data ? load_as<A>(data + number * dtype_width(dtype), dtype, false) : (A)0;
}

template <class E, class A>
KERNEL_INLINE void run_backward(const layer_kernel &p) {
  __shared__ A sums[33];
  SHARED_MEMORY(A, room);
  for (int64_t number = blockIdx.x; number < p.rows; number += gridDim.x) {
    const row<E, A> x = open_row<E, A>(p, number, room);
    const E *grad = (const E *)(const void *)p.grad + number * p.length;
    const A mean = p.is_rms ? (A)0 : get_saved<A>(p.mean, p.mean_dtype, number);
    const A scale = get_saved<A>(p.scale, p.scale_dtype, number);
    A first = 0, second = 0;
    for (int64_t i = threadIdx.x; i < p.length; i += blockDim.x) {
      const A h = (A)to_work(grad[i]) * (p.weight ? get_saved<A>(p.weight, p.weight_dtype, i) : (A)1);
      first += h;
      second += h * (x.get(i) - mean) * scale;
    }
    first = p.is_rms ? (A)0 : block_reduce(first, (A)0, sums, join_sum()) / (A)p.length;
    second = block_reduce(second, (A)0, sums, join_sum()) / (A)p.length;
    E *out = (E *)(void *)p.out + number * p.length;
    for (int64_t i = threadIdx.x; i < p.length; i += blockDim.x) {
      const A h = (A)to_work(grad[i]) * (p.weight ? get_saved<A>(p.weight, p.weight_dtype, i) : (A)1);
      out[i] = element<E>::from(scale * (h - first - (x.get(i) - mean) * scale * second));
    }
  }
}

/// Columns of g * z and g, `part` rows per block.
template <class E, class A>
KERNEL_INLINE void run_columns(const layer_kernel &p) {
  __shared__ A rooms[2][LAYER_KERNEL_THREADS / LAYER_KERNEL_COLUMNS][LAYER_KERNEL_COLUMNS + 1];
  const int x = threadIdx.x % LAYER_KERNEL_COLUMNS, y = threadIdx.x / LAYER_KERNEL_COLUMNS;
  const int lanes = LAYER_KERNEL_THREADS / LAYER_KERNEL_COLUMNS;
  const int64_t column = (int64_t)blockIdx.x * LAYER_KERNEL_COLUMNS + x, begin = (int64_t)blockIdx.y * p.part;
  const int64_t end = begin + p.part < p.rows ? begin + p.part : p.rows;
  A weight = 0, bias = 0;
  for (int64_t number = begin + y; column < p.length && number < end; number += lanes) {
    const A g = (A)to_work(((const E *)(const void *)p.grad)[number * p.length + column]);
    const A mean = p.is_rms ? (A)0 : get_saved<A>(p.mean, p.mean_dtype, number);
    const A input = (A)to_work(((const E *)(const void *)p.input)[number * p.length + column]);
    weight += g * (input - mean) * get_saved<A>(p.scale, p.scale_dtype, number);
    bias += g;
  }
  rooms[0][y][x] = weight;
  rooms[1][y][x] = bias;
  __syncthreads();
  if (y == 0 && column < p.length) {
    A *partials = (A *)p.partials + (int64_t)blockIdx.y * 2 * p.length;
    for (int which = 0; which < 2; which++) {
      A total = 0;
      for (int k = 0; k < lanes; k++) {
        total += rooms[which][k][x];
      }
      partials[which * p.length + column] = total;
    }
  }
}

template <class A>
KERNEL_INLINE void run_join(const layer_kernel &p) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.length; i += (int64_t)gridDim.x * blockDim.x) {
    A weight = 0, bias = 0;
    for (int split = 0; split < p.splits; split++) {
      const A *partials = (const A *)p.partials + (int64_t)split * 2 * p.length;
      weight += partials[i];
      bias += partials[p.length + i];
    }
    if (p.grad_weight) {
      store_as(p.grad_weight + i * dtype_width(p.grad_weight_dtype), p.grad_weight_dtype, weight);
    }
    if (p.grad_bias) {
      store_as(p.grad_bias + i * dtype_width(p.grad_bias_dtype), p.grad_bias_dtype, bias);
    }
  }
}

#define LAYER_KERNELS(tag, E, A)                                              \
  KERNEL_BLOCK(LAYER_KERNEL_THREADS, layer_forward_##tag, layer_kernel) {     \
    run_forward<E, A>(p);                                                     \
  }                                                                           \
  KERNEL_BLOCK(LAYER_KERNEL_THREADS, layer_backward_##tag, layer_kernel) {    \
    run_backward<E, A>(p);                                                    \
  }                                                                           \
  KERNEL_BLOCK(LAYER_KERNEL_THREADS, layer_columns_##tag, layer_kernel) {     \
    run_columns<E, A>(p);                                                     \
  }
LAYER_KERNELS(f32, float, float)
LAYER_KERNELS(f64, double, double)
LAYER_KERNELS(f16, half_bits, float)
LAYER_KERNELS(bf16, bfloat_bits, float)
KERNEL(LAYER_KERNEL_THREADS, layer_join_f32, layer_kernel) {
  run_join<float>(p);
}
KERNEL(LAYER_KERNEL_THREADS, layer_join_f64, layer_kernel) {
  run_join<double>(p);
}
