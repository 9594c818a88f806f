/// Norms with statistics per channel (channel.cu), floating types that are computed in float: planes and lines by
/// vectors of 16 bytes, several of them in flight for each thread; planes of odd size by elements.
///
/// Squares are summed around a thread's first element, not around the mean, so that x is read once. That element is
/// one of the few hundred that the thread adds, so the sum of squares is never more than some hundred times what it
/// is around their mean, and float keeps four digits in the worst case; means and squares of threads are then joined
/// around the joint mean.
#include "channel.h"
#include "pointwise.cuh"

KERNEL_INLINE float load_mean(const channel_kernel &p, int64_t channel) {
  return load_as<float>(p.mean.data + channel / p.width * dtype_width(p.mean.dtype), p.mean.dtype, false);
}

/// How many vectors of one operand a thread reads before it computes.
template <int LANES>
struct flight {
  static constexpr int COUNT = LANES == 1 ? 8 : 4;
};

// Planes: a block has `part` elements of a channel, in vectors of LANES

/// Vector `v` of channel `c`: v counts those of all samples.
template <int LANES>
KERNEL_INLINE int64_t find_vector(const channel_kernel &p, int64_t c, uint32_t v) {
  const uint32_t sample = divide_fast(v, p.plane);
  return (sample * p.channels + c) * p.plane.divisor + (v - sample * p.plane.divisor);
}

struct plane_share {
  uint32_t begin, end;
  __device__ plane_share(const channel_kernel &p, int lanes) {
    const int64_t first = blockIdx.y * p.part, last = first + p.part < p.count ? first + p.part : p.count;
    begin = (uint32_t)(first / lanes) + threadIdx.x;
    end = (uint32_t)(last / lanes);
  }
};

template <class E, int LANES>
KERNEL_INLINE void get_plane_moments(const channel_kernel &p) {
  const int U = flight<LANES>::COUNT;
  typedef pack<E, LANES> vector;
  __shared__ float room[33], base;
  const plane_share own(p, LANES);
  float pivot = 0, sum[2] = {0, 0}, squares[2] = {0, 0};
  int count = 0;
  for (uint32_t first = own.begin; first < own.end; first += CHANNEL_KERNEL_THREADS * U) {
    vector x[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const uint32_t v = first + u * CHANNEL_KERNEL_THREADS;
      if (v < own.end) {
        x[u] = ((const vector *)(const void *)p.x)[find_vector<LANES>(p, blockIdx.x, v)];
      }
    }
    pivot = first == own.begin ? (float)to_work(x[0].value[0]) : pivot;
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (first + u * CHANNEL_KERNEL_THREADS < own.end) {
        count += LANES;
#pragma unroll
        for (int k = 0; k < LANES; k++) {
          const float away = to_work(x[u].value[k]) - pivot;
          sum[(u + k) % 2] += away;
          squares[(u + k) % 2] += away * away;
        }
      }
    }
  }
  const int64_t first = blockIdx.y * p.part;
  const float n = (float)count, all = (float)((first + p.part < p.count ? first + p.part : p.count) - first);
  const float shift = count > 0 ? (sum[0] + sum[1]) / n : 0, rest = squares[0] + squares[1] - shift * shift * n;
  if (threadIdx.x == 0) {
    base = pivot;
  }
  __syncthreads();
  const float away = pivot + shift - base;
  const float mean = block_reduce(count > 0 ? away * n : 0.0f, 0.0f, room, join_sum()) / all;
  const float around = count > 0 ? (rest > 0 || rest != rest ? rest : 0) + (away - mean) * (away - mean) * n : 0;
  const float total = block_reduce(around, 0.0f, room, join_sum());
  if (threadIdx.x == 0) {
    float *partials = (float *)p.partials + ((int64_t)blockIdx.y * p.channels + blockIdx.x) * 2;
    partials[0] = base + mean;
    partials[1] = total;
  }
}

template <class E, int LANES>
KERNEL_INLINE void get_plane_dots(const channel_kernel &p) {
  const int U = flight<LANES>::COUNT;
  typedef pack<E, LANES> vector;
  __shared__ float room[33];
  const plane_share own(p, LANES);
  const float mean = load_mean(p, blockIdx.x);
  float sum = 0, dot = 0;
  for (uint32_t first = own.begin; first < own.end; first += CHANNEL_KERNEL_THREADS * U) {
    vector x[U], g[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const uint32_t v = first + u * CHANNEL_KERNEL_THREADS;
      if (v < own.end) {
        const int64_t at = find_vector<LANES>(p, blockIdx.x, v);
        x[u] = ((const vector *)(const void *)p.x)[at];
        g[u] = ((const vector *)(const void *)p.g)[at];
      }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (first + u * CHANNEL_KERNEL_THREADS < own.end) {
#pragma unroll
        for (int k = 0; k < LANES; k++) {
          const float gradient = to_work(g[u].value[k]);
          sum += gradient;
          dot += gradient * (to_work(x[u].value[k]) - mean);
        }
      }
    }
  }
  sum = block_reduce(sum, 0.0f, room, join_sum());
  dot = block_reduce(dot, 0.0f, room, join_sum());
  if (threadIdx.x == 0) {
    float *partials = (float *)p.partials + ((int64_t)blockIdx.y * p.channels + blockIdx.x) * 2;
    partials[0] = sum;
    partials[1] = dot;
  }
}

KERNEL_INLINE float apply_factors(const float *f, float g, float x) {
  return f[0] * g + (f[1] * (x - f[2]) + f[3]);
}

/// Vectors in the order of memory; planes of samples and channels follow each other.
template <class E, int LANES>
KERNEL_INLINE void apply_planes(const channel_kernel &p) {
  const int U = flight<LANES>::COUNT / 2;
  typedef pack<E, LANES> vector;
  const uint32_t vectors = (uint32_t)(p.samples * p.channels) * p.plane.divisor, begin = blockIdx.x * blockDim.x * U;
  vector x[U], g[U];
#pragma unroll
  for (int u = 0; u < U; u++) {
    const uint32_t v = begin + u * blockDim.x + threadIdx.x;
    if (v < vectors) {
      x[u] = ((const vector *)(const void *)p.x)[v];
      if (p.has_gradient) {
        g[u] = ((const vector *)(const void *)p.g)[v];
      }
    }
  }
#pragma unroll
  for (int u = 0; u < U; u++) {
    const uint32_t v = begin + u * blockDim.x + threadIdx.x;
    if (v < vectors) {
      const uint32_t plane = divide_fast(v, p.plane), channel = plane - divide_fast(plane, p.over) * p.over.divisor;
      const pack<float, 4> f = ((const pack<float, 4> *)p.factors)[channel];
#pragma unroll
      for (int k = 0; k < LANES; k++) {
        const float gradient = p.has_gradient ? (float)to_work(g[u].value[k]) : 0;
        x[u].value[k] = element<E>::from(apply_factors(f.value, gradient, to_work(x[u].value[k])));
      }
      ((vector *)(void *)p.out)[v] = x[u];
    }
  }
}

// Lines: a thread has a vector of channels and, in a block of `wide` such threads, every 256 / wide-th row

template <class E>
struct line_share {
  static constexpr int LANES = 16 / sizeof(E);
  typedef pack<E, LANES> vector;
  int x, y, deep, column, columns;
  int64_t begin, end;
  __device__ explicit line_share(const channel_kernel &p) {
    x = threadIdx.x & (p.wide - 1);
    y = threadIdx.x / p.wide;
    deep = CHANNEL_KERNEL_THREADS / p.wide;
    columns = (int)(p.channels / LANES);
    column = blockIdx.x * p.wide + x;
    begin = blockIdx.y * p.part;
    end = column < columns ? (begin + p.part < p.count ? begin + p.part : p.count) : 0;
  }
};

template <class E>
KERNEL_INLINE void get_line_moments(const channel_kernel &p) {
  const int LANES = line_share<E>::LANES, U = 4, SIZE = CHANNEL_KERNEL_THREADS;
  typedef typename line_share<E>::vector vector;
  __shared__ float means[LANES * SIZE], rests[LANES * SIZE];
  const line_share<E> own(p);
  float pivot[LANES] = {}, sum[LANES] = {}, squares[LANES] = {};
  int count = 0;
  const vector *from = (const vector *)(const void *)p.x + own.column;
  for (int64_t row = own.begin + own.y; row < own.end; row += own.deep * U) {
    vector x[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (row + u * own.deep < own.end) {
        x[u] = from[(row + u * own.deep) * own.columns];
      }
    }
    if (count == 0) {
#pragma unroll
      for (int k = 0; k < LANES; k++) {
        pivot[k] = to_work(x[0].value[k]);
      }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (row + u * own.deep < own.end) {
        count++;
#pragma unroll
        for (int k = 0; k < LANES; k++) {
          const float away = to_work(x[u].value[k]) - pivot[k];
          sum[k] += away;
          squares[k] += away * away;
        }
      }
    }
  }
#pragma unroll
  for (int k = 0; k < LANES; k++) {
    const float shift = count > 0 ? sum[k] / (float)count : 0, rest = squares[k] - shift * sum[k];
    means[k * SIZE + threadIdx.x] = pivot[k] + shift;
    rests[k * SIZE + threadIdx.x] = rest > 0 || rest != rest ? rest : 0;
  }
  __syncthreads();
  const int rows = (int)((own.begin + p.part < p.count ? own.begin + p.part : p.count) - own.begin);
  for (int i = threadIdx.x; i < p.wide * LANES; i += SIZE) {
    const int at = i % LANES * SIZE + i / LANES;
    const int64_t channel = (int64_t)blockIdx.x * p.wide * LANES + i;
    const float base = means[at];
    float mean = 0, total = 0;
    for (int y = 0; y < own.deep && y < rows; y++) {
      mean += (means[at + y * p.wide] - base) * (float)((rows - y + own.deep - 1) / own.deep);
    }
    mean /= (float)rows;
    for (int y = 0; y < own.deep && y < rows; y++) {
      const float away = means[at + y * p.wide] - base - mean;
      total += rests[at + y * p.wide] + away * away * (float)((rows - y + own.deep - 1) / own.deep);
    }
    if (channel < p.channels) {
      float *partials = (float *)p.partials + (blockIdx.y * p.channels + channel) * 2;
      partials[0] = base + mean;
      partials[1] = total;
    }
  }
}

template <class E>
KERNEL_INLINE void get_line_dots(const channel_kernel &p) {
  const int LANES = line_share<E>::LANES, U = 2, SIZE = CHANNEL_KERNEL_THREADS;
  typedef typename line_share<E>::vector vector;
  __shared__ float sums[LANES * SIZE], dots[LANES * SIZE];
  const line_share<E> own(p);
  float mean[LANES], sum[LANES] = {}, dot[LANES] = {};
#pragma unroll
  for (int k = 0; k < LANES; k++) {
    mean[k] = own.column < own.columns ? load_mean(p, (int64_t)own.column * LANES + k) : 0;
  }
  for (int64_t row = own.begin + own.y; row < own.end; row += own.deep * U) {
    vector x[U], g[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int64_t at = (row + u * own.deep) * own.columns + own.column;
      if (row + u * own.deep < own.end) {
        x[u] = ((const vector *)(const void *)p.x)[at];
        g[u] = ((const vector *)(const void *)p.g)[at];
      }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (row + u * own.deep < own.end) {
#pragma unroll
        for (int k = 0; k < LANES; k++) {
          const float gradient = to_work(g[u].value[k]);
          sum[k] += gradient;
          dot[k] += gradient * (to_work(x[u].value[k]) - mean[k]);
        }
      }
    }
  }
#pragma unroll
  for (int k = 0; k < LANES; k++) {
    sums[k * SIZE + threadIdx.x] = sum[k];
    dots[k * SIZE + threadIdx.x] = dot[k];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.wide * LANES; i += SIZE) {
    const int at = i % LANES * SIZE + i / LANES;
    const int64_t channel = (int64_t)blockIdx.x * p.wide * LANES + i;
    float first = 0, second = 0;
    for (int y = 0; y < own.deep; y++) {
      first += sums[at + y * p.wide];
      second += dots[at + y * p.wide];
    }
    if (channel < p.channels) {
      float *partials = (float *)p.partials + (blockIdx.y * p.channels + channel) * 2;
      partials[0] = first;
      partials[1] = second;
    }
  }
}

/// The factors of a thread's channels stay in its registers.
template <class E, bool GRADIENT>
KERNEL_INLINE void apply_lines(const channel_kernel &p) {
  const int LANES = line_share<E>::LANES, U = 2;
  typedef typename line_share<E>::vector vector;
  const line_share<E> own(p);
  pack<float, 4> f[LANES];
  if (own.column >= own.columns) {
    return;
  }
#pragma unroll
  for (int k = 0; k < LANES; k++) {
    f[k] = ((const pack<float, 4> *)p.factors)[(int64_t)own.column * LANES + k];
  }
  for (int64_t row = own.begin + own.y; row < own.end; row += own.deep * U) {
    vector x[U], g[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int64_t at = (row + u * own.deep) * own.columns + own.column;
      if (row + u * own.deep < own.end) {
        x[u] = ((const vector *)(const void *)p.x)[at];
        if (GRADIENT) {
          g[u] = ((const vector *)(const void *)p.g)[at];
        }
      }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (row + u * own.deep < own.end) {
#pragma unroll
        for (int k = 0; k < LANES; k++) {
          const float gradient = GRADIENT ? (float)to_work(g[u].value[k]) : 0;
          x[u].value[k] = element<E>::from(apply_factors(f[k].value, gradient, to_work(x[u].value[k])));
        }
        ((vector *)(void *)p.out)[(row + u * own.deep) * own.columns + own.column] = x[u];
      }
    }
  }
}

#define PLANE_KERNELS(tag, E, LANES)                                                  \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_plane_moments_##tag, channel_kernel) { \
    get_plane_moments<E, LANES>(p);                                                   \
  }                                                                                   \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_plane_dots_##tag, channel_kernel) {    \
    get_plane_dots<E, LANES>(p);                                                      \
  }                                                                                   \
  KERNEL(CHANNEL_KERNEL_THREADS, channel_plane_apply_##tag, channel_kernel) {         \
    apply_planes<E, LANES>(p);                                                        \
  }
#define LINE_KERNELS(tag, E)                                                         \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_line_moments_##tag, channel_kernel) { \
    get_line_moments<E>(p);                                                          \
  }                                                                                  \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_line_dots_##tag, channel_kernel) {    \
    get_line_dots<E>(p);                                                             \
  }                                                                                  \
  KERNEL(CHANNEL_KERNEL_THREADS, channel_line_apply_##tag, channel_kernel) {         \
    if (p.has_gradient) {                                                            \
      apply_lines<E, true>(p);                                                       \
    } else {                                                                         \
      apply_lines<E, false>(p);                                                      \
    }                                                                                \
  }
#define VECTOR_KERNELS(tag, E)                   \
  PLANE_KERNELS(tag##_vector, E, 16 / sizeof(E)) \
  PLANE_KERNELS(tag##_single, E, 1)              \
  LINE_KERNELS(tag, E)
VECTOR_KERNELS(f32, float)
VECTOR_KERNELS(f16, half_bits)
VECTOR_KERNELS(bf16, bfloat_bits)
