/// Random fills and dropout: the host library's numbers for the same seed and offset (vendors/host/ops/random.c says
/// which word belongs to which element). A thread makes 16 bytes of the result from one or two counters.
#include "random.h"

#include "kernel.cuh"
#include "math.cuh"
#include "philox.cuh"

// Products and sums that the host does not fuse are not fused here.
#ifdef __CUDACC__
KERNEL_INLINE float place_between(float from, float size, float u) {
  return __fadd_rn(from, __fmul_rn(size, u));
}
KERNEL_INLINE double place_between(double from, double size, double u) {
  return __dadd_rn(from, __dmul_rn(size, u));
}
KERNEL_INLINE void get_turn(float u, float *sine, float *cosine) {
  sincospif(2.0f * u, sine, cosine);
}
KERNEL_INLINE void get_turn(double u, double *sine, double *cosine) {
  sincospi(2.0 * u, sine, cosine);
}
#else
template <class T>
KERNEL_INLINE T place_between(T from, T size, T u) {
  return from + size * u;
}
template <class T>
KERNEL_INLINE void get_turn(T u, T *sine, T *cosine) {
  *sine = (T)sin(6.283185307179586 * (double)u);
  *cosine = (T)cos(6.283185307179586 * (double)u);
}
#endif

/// Elements that a thread makes at once, and the words for them.
template <class E>
struct lot {
  static constexpr int size = 16 / (int)sizeof(E);
  static constexpr int words = sizeof(E) == 8 ? 2 * size : size;
};

template <class E, int N>
KERNEL_INLINE void store_lot(char *out, int64_t first, int64_t numel, const E *values) {
  E *to = (E *)(void *)out + first;
  if (first + N <= numel && (uintptr_t)to % sizeof(pack<E, N>) == 0) {
    pack<E, N> vector;
#pragma unroll
    for (int i = 0; i < N; i++) {
      vector.value[i] = values[i];
    }
    *(pack<E, N> *)(void *)to = vector;
    return;
  }
  for (int i = 0; i < N && first + i < numel; i++) {
    to[i] = values[i];
  }
}

// Uniform

/// What rounding to a half type makes the end of the range becomes its beginning.
template <class E>
KERNEL_INLINE E exclude_end(const random_kernel &p, float value) {
  const E rounded = element<E>::from(value);
  return to_work(rounded) == (float)p.to ? element<E>::from((float)p.from) : rounded;
}
template <class E>
struct make_uniform {
  static __device__ void run(const random_kernel &p, const uint32_t *words, int64_t, E *out) {
#pragma unroll
    for (int i = 0; i < lot<E>::size; i++) {
      const float u = (float)(int32_t)(words[i] >> 8) * 0x1.0p-24f;
      out[i] = exclude_end<E>(p, place_between((float)p.from, (float)(p.to - p.from), u));
    }
  }
};
template <>
struct make_uniform<float> {
  static __device__ void run(const random_kernel &p, const uint32_t *words, int64_t, float *out) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float u = (float)(int32_t)(words[i] >> 8) * 0x1.0p-24f;
      out[i] = place_between((float)p.from, (float)(p.to - p.from), u);
    }
  }
};
template <>
struct make_uniform<double> {
  static __device__ void run(const random_kernel &p, const uint32_t *words, int64_t, double *out) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const uint64_t bits = (uint64_t)words[2 * i] << 32 | words[2 * i + 1];
      out[i] = place_between(p.from, p.to - p.from, (double)(bits >> 11) * 0x1.0p-53);
    }
  }
};

// Normal: Box-Muller, two elements at a time

KERNEL_INLINE void get_normal(const uint32_t *words, float *out) {
  const float u = ((float)(words[0] >> 8) + 1.0f) * 0x1.0p-24f, v = (float)(words[1] >> 8) * 0x1.0p-24f;
  const float radius = sqrtf(-2.0f * logf(u));
  float sine, cosine;
  get_turn(v, &sine, &cosine);
  out[0] = radius * cosine;
  out[1] = radius * sine;
}
KERNEL_INLINE void get_normal(const uint32_t *words, double *out) {
  const uint64_t first = (uint64_t)words[0] << 32 | words[1], second = (uint64_t)words[2] << 32 | words[3];
  const double u = ((double)(first >> 11) + 1) * 0x1.0p-53, v = (double)(second >> 11) * 0x1.0p-53;
  const double radius = sqrt(-2.0 * log(u));
  double sine, cosine;
  get_turn(v, &sine, &cosine);
  out[0] = radius * cosine;
  out[1] = radius * sine;
}
template <class E>
struct make_normal {
  static __device__ void run(const random_kernel &p, const uint32_t *words, int64_t first, E *out) {
    typedef typename work_type<E>::type W;
    W normal[lot<E>::size];
#pragma unroll
    for (int i = 0; i < lot<E>::size; i += 2) {
      get_normal(words + i * (lot<E>::words / lot<E>::size), normal + i);
    }
#pragma unroll
    for (int i = 0; i < lot<E>::size; i++) {
      const int64_t at = first + i;
      const bool inside = at < p.numel;
      const W mean = p.a && inside ? load_as<W>(p.a + at * dtype_width(p.a_dtype), p.a_dtype, false) : (W)p.from;
      const W deviation = p.b && inside ? load_as<W>(p.b + at * dtype_width(p.b_dtype), p.b_dtype, false) : (W)p.to;
      out[i] = element<E>::from(mean + deviation * normal[i]);
    }
  }
};

template <class E, class Make>
KERNEL_INLINE void run_fill(const random_kernel &p) {
  constexpr int size = lot<E>::size, counters = lot<E>::words / 4;
  const int64_t lots = (p.numel + size - 1) / size;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < lots; i += (int64_t)gridDim.x * blockDim.x) {
    uint32_t words[lot<E>::words];
    E values[size];
#pragma unroll
    for (int c = 0; c < counters; c++) {
      philox(p.seed, p.offset + (uint64_t)(i * counters + c), words + 4 * c);
    }
    Make::run(p, words, i * size, values);
    store_lot<E, size>(p.out, i * size, p.numel, values);
  }
}

#define FILL_KERNELS(tag, E)                                            \
  KERNEL(RANDOM_KERNEL_THREADS, random_uniform_##tag, random_kernel) {  \
    run_fill<E, make_uniform<E>>(p);                                    \
  }                                                                     \
  KERNEL(RANDOM_KERNEL_THREADS, random_normal_##tag, random_kernel) {   \
    run_fill<E, make_normal<E>>(p);                                     \
  }
FILL_KERNELS(f32, float)
FILL_KERNELS(f64, double)
FILL_KERNELS(f16, half_bits)
FILL_KERNELS(bf16, bfloat_bits)

// Bernoulli and integers: a counter per thread

/// Bits of 0 or 1 in an element of so many bytes.
template <class E>
KERNEL_INLINE void run_bernoulli(const random_kernel &p) {
  const int64_t lots = (p.numel + 3) / 4;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < lots; i += (int64_t)gridDim.x * blockDim.x) {
    uint32_t words[4];
    E values[4];
    philox(p.seed, p.offset + (uint64_t)i, words);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int64_t at = 4 * i + k;
      bool is_one = words[k] < p.limit;
      if (p.a && at < p.numel) {
        const double chance = load_as<double>(p.a + at * dtype_width(p.a_dtype), p.a_dtype, false);
        is_one = (double)words[k] < chance * 4294967296.0;
      }
      values[k] = is_one ? (E)p.one : (E)0;
    }
    store_lot<E, 4>(p.out, 4 * i, p.numel, values);
  }
}
KERNEL(RANDOM_KERNEL_THREADS, random_bernoulli_1, random_kernel) {
  run_bernoulli<uint8_t>(p);
}
KERNEL(RANDOM_KERNEL_THREADS, random_bernoulli_2, random_kernel) {
  run_bernoulli<uint16_t>(p);
}
KERNEL(RANDOM_KERNEL_THREADS, random_bernoulli_4, random_kernel) {
  run_bernoulli<uint32_t>(p);
}
KERNEL(RANDOM_KERNEL_THREADS, random_bernoulli_8, random_kernel) {
  run_bernoulli<uint64_t>(p);
}

KERNEL(RANDOM_KERNEL_THREADS, random_integer, random_kernel) {
  const int per = p.is_wide ? 2 : 4, width = dtype_width(p.dtype);
  const int64_t lots = (p.numel + per - 1) / per;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < lots; i += (int64_t)gridDim.x * blockDim.x) {
    uint32_t words[4];
    philox(p.seed, p.offset + (uint64_t)i, words);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int64_t at = i * per + k;
      if (k < per && at < p.numel) {
        const uint64_t bits = (uint64_t)words[2 * k & 3] << 32 | words[(2 * k + 1) & 3];
        const uint64_t step = !p.is_wide ? (uint64_t)words[k] * p.range >> 32 : p.range ? bits % p.range : bits;
        store_as(p.out + at * width, p.dtype, (int64_t)((uint64_t)p.first + step));
      }
    }
  }
}

// Dropout

/// 4 elements of 4 or 8 bytes, 8 of 2: one or two counters.
template <class E>
KERNEL_INLINE void run_dropout(const dropout_kernel &p) {
  typedef typename work_type<E>::type W;
  constexpr int size = sizeof(E) == 2 ? 8 : 4, vector = 16 / (int)sizeof(E);
  const int64_t lots = (p.numel + size - 1) / size;
  const W scale = (W)p.scale;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < lots; i += (int64_t)gridDim.x * blockDim.x) {
    const int64_t first = i * size;
    const E *in = (const E *)(const void *)p.in + first;
    E values[size];
    uint8_t kept[size];
    uint32_t words[size];
    if (first + size <= p.numel && (uintptr_t)in % 16 == 0) {
#pragma unroll
      for (int k = 0; k < size; k += vector) {
        const pack<E, vector> loaded = *(const pack<E, vector> *)(const void *)(in + k);
#pragma unroll
        for (int j = 0; j < vector; j++) {
          values[k + j] = loaded.value[j];
        }
      }
    } else {
      for (int k = 0; k < size; k++) {
        values[k] = first + k < p.numel ? in[k] : E();
      }
    }
#pragma unroll
    for (int c = 0; c < size / 4; c++) {
      philox(p.seed, p.offset + (uint64_t)(i * (size / 4) + c), words + 4 * c);
    }
#pragma unroll
    for (int k = 0; k < size; k++) {
      kept[k] = words[k] < p.limit;
      values[k] = element<E>::from((W)to_work(values[k]) * (W)kept[k] * scale);
    }
#pragma unroll
    for (int k = 0; k < size; k += vector) {
      store_lot<E, vector>(p.out, first + k, p.numel, values + k);
    }
    store_lot<uint8_t, size>(p.mask, first, p.numel, kept);
  }
}
KERNEL(RANDOM_KERNEL_THREADS, dropout_f32, dropout_kernel) {
  run_dropout<float>(p);
}
KERNEL(RANDOM_KERNEL_THREADS, dropout_f64, dropout_kernel) {
  run_dropout<double>(p);
}
KERNEL(RANDOM_KERNEL_THREADS, dropout_f16, dropout_kernel) {
  run_dropout<half_bits>(p);
}
KERNEL(RANDOM_KERNEL_THREADS, dropout_bf16, dropout_kernel) {
  run_dropout<bfloat_bits>(p);
}

template <class W>
KERNEL_INLINE void run_dropout_strided(const dropout_kernel &p) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t rest = i, out = 0, mask = 0, in = 0;
    for (int dim = p.ndim - 1; dim >= 0; dim--) {
      const int64_t place = rest % p.sizes[dim];
      rest /= p.sizes[dim];
      out += place * p.strides[dim][0];
      mask += place * p.strides[dim][1];
      in += place * p.strides[dim][2];
    }
    bool kept = p.mask[mask] != 0;
    if (!p.is_drawn) {
      uint32_t words[4];
      philox(p.seed, p.offset + (uint64_t)i / 4, words);
      const uint32_t word = i % 4 == 0 ? words[0] : i % 4 == 1 ? words[1] : i % 4 == 2 ? words[2] : words[3];
      kept = word < p.limit;
      p.mask[mask] = kept;
    }
    store_as(p.out + out, p.dtype, load_as<W>(p.in + in, p.dtype, false) * (W)kept * (W)p.scale);
  }
}
KERNEL(RANDOM_KERNEL_THREADS, dropout_strided_f32, dropout_kernel) {
  run_dropout_strided<float>(p);
}
KERNEL(RANDOM_KERNEL_THREADS, dropout_strided_f64, dropout_kernel) {
  run_dropout_strided<double>(p);
}
