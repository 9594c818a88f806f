/// Norms with statistics per channel (formulas: vendors/host/ops/norm_batch_*.c, norm_group.c): the passes over the
/// big tensors. Statistics in between are in channel_finish.cu.
///
/// A part of a channel belongs to one block: its mean, then the squares around that mean; parts are joined in order, so
/// the same call gives the same bits.
#include "channel.h"

#include "kernel.cuh"

/// Where element `i` of channel `c` lies: i counts samples and area.
KERNEL_INLINE int64_t find_element(const channel_kernel &p, int64_t c, int64_t i) {
  if (p.is_lines) {
    return i * p.channels + c;
  }
  if (p.samples == 1) {
    return c * p.area + i;
  }
  const int64_t sample = i / p.area;
  return (sample * p.channels + c) * p.area + (i - sample * p.area);
}

/// A block's share: in planes all threads work on one channel, in lines a row of 32 threads on neighbouring ones.
struct share {
  int64_t channel, begin, end;
  int step;
  __device__ explicit share(const channel_kernel &p) {
    const int64_t first = (int64_t)blockIdx.y * p.part, last = first + p.part;
    channel = p.is_lines ? (int64_t)blockIdx.x * CHANNEL_KERNEL_COLUMNS + threadIdx.x % CHANNEL_KERNEL_COLUMNS
                         : (int64_t)blockIdx.x;
    step = p.is_lines ? CHANNEL_KERNEL_THREADS / CHANNEL_KERNEL_COLUMNS : CHANNEL_KERNEL_THREADS;
    begin = first + (p.is_lines ? threadIdx.x / CHANNEL_KERNEL_COLUMNS : threadIdx.x);
    end = channel < p.channels ? (last < p.count ? last : p.count) : 0;
  }
};

/// The sum over the threads of a channel.
template <class A>
KERNEL_INLINE A add_threads(const channel_kernel &p, A value, A *room) {
  if (!p.is_lines) {
    return block_reduce(value, (A)0, room, join_sum());
  }
  __syncthreads();
  room[threadIdx.x] = value;
  __syncthreads();
  A total = 0;
  for (int i = threadIdx.x % CHANNEL_KERNEL_COLUMNS; i < CHANNEL_KERNEL_THREADS; i += CHANNEL_KERNEL_COLUMNS) {
    total += room[i];
  }
  return total;
}

template <class A>
KERNEL_INLINE void store_partial(const channel_kernel &p, const share &own, A first, A second) {
  const bool is_leader = p.is_lines ? threadIdx.x < CHANNEL_KERNEL_COLUMNS : threadIdx.x == 0;
  if (is_leader && own.channel < p.channels) {
    A *partials = (A *)p.partials + ((int64_t)blockIdx.y * p.channels + own.channel) * 2;
    partials[0] = first;
    partials[1] = second;
  }
}

template <class E, class A>
KERNEL_INLINE void get_moments(const channel_kernel &p) {
  __shared__ A room[CHANNEL_KERNEL_THREADS];
  const share own(p);
  const E *x = (const E *)(const void *)p.x;
  const int64_t first = (int64_t)blockIdx.y * p.part;
  const int64_t count = (first + p.part < p.count ? first + p.part : p.count) - first;
  A total = 0;
  for (int64_t i = own.begin; i < own.end; i += own.step) {
    total += (A)to_work(x[find_element(p, own.channel, i)]);
  }
  const A mean = add_threads(p, total, room) / (A)count;
  A sum = 0;
  total = 0;
  for (int64_t i = own.begin; i < own.end; i += own.step) {
    const A away = (A)to_work(x[find_element(p, own.channel, i)]) - mean;
    sum += away;
    total += away * away;
  }
  // what the mean was off by
  sum = add_threads(p, sum, room) / (A)count;
  total = add_threads(p, total, room) - sum * sum * (A)count;
  store_partial(p, own, isfinite(mean) ? mean + sum : mean, total < 0 ? (A)0 : total);
}

template <class E, class A>
KERNEL_INLINE void get_dots(const channel_kernel &p) {
  __shared__ A room[CHANNEL_KERNEL_THREADS];
  const share own(p);
  const E *x = (const E *)(const void *)p.x, *g = (const E *)(const void *)p.g;
  A sum = 0, dot = 0, mean = 0;
  if (own.channel < p.channels) {
    mean = load_as<A>(p.mean.data + own.channel / p.width * dtype_width(p.mean.dtype), p.mean.dtype, false);
  }
  for (int64_t i = own.begin; i < own.end; i += own.step) {
    const int64_t at = find_element(p, own.channel, i);
    const A gradient = (A)to_work(g[at]);
    sum += gradient;
    dot += gradient * ((A)to_work(x[at]) - mean);
  }
  sum = add_threads(p, sum, room);
  store_partial(p, own, sum, add_threads(p, dot, room));
}

template <class A>
KERNEL_INLINE A apply_factors(const A *f, A g, A x) {
  return f[0] * g + (f[1] * (x - f[2]) + f[3]);
}

template <class E, class A>
KERNEL_INLINE void apply(const channel_kernel &p) {
  const int LANES = 16 / sizeof(E);
  typedef pack<E, LANES> vector;
  const int64_t step = (int64_t)gridDim.x * blockDim.x, first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  const int64_t total = p.samples * p.channels * p.area;
  const A *factors = (const A *)p.factors;
  if (p.is_vector) {  // planes of whole vectors
    for (int64_t i = first; i < total / LANES; i += step) {
      const A *f = factors + i * LANES / p.area % p.channels * CHANNEL_KERNEL_FACTORS;
      const vector x = ((const vector *)(const void *)p.x)[i];
      vector g = x;
      if (p.has_gradient) {
        g = ((const vector *)(const void *)p.g)[i];
      }
      vector out;
#pragma unroll
      for (int lane = 0; lane < LANES; lane++) {
        const A gradient = p.has_gradient ? (A)to_work(g.value[lane]) : (A)0;
        out.value[lane] = element<E>::from(apply_factors(f, gradient, (A)to_work(x.value[lane])));
      }
      ((vector *)(void *)p.out)[i] = out;
    }
    return;
  }
  for (int64_t i = first; i < total; i += step) {
    const int64_t channel = p.is_lines ? i % p.channels : i / p.area % p.channels;
    const A gradient = p.has_gradient ? (A)to_work(((const E *)(const void *)p.g)[i]) : (A)0;
    const A x = (A)to_work(((const E *)(const void *)p.x)[i]);
    ((E *)(void *)p.out)[i] =
        element<E>::from(apply_factors(factors + channel * CHANNEL_KERNEL_FACTORS, gradient, x));
  }
}

#define CHANNEL_KERNELS(tag, E, A)                                                \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_moments_##tag, channel_kernel) {   \
    get_moments<E, A>(p);                                                         \
  }                                                                               \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_dots_##tag, channel_kernel) {      \
    get_dots<E, A>(p);                                                            \
  }                                                                               \
  KERNEL(CHANNEL_KERNEL_THREADS, channel_apply_##tag, channel_kernel) {           \
    apply<E, A>(p);                                                               \
  }
CHANNEL_KERNELS(f32, float, float)
CHANNEL_KERNELS(f64, double, double)
CHANNEL_KERNELS(f16, half_bits, float)
CHANNEL_KERNELS(bf16, bfloat_bits, float)
