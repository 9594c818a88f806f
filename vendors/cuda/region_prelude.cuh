/// What stands in front of a region's kernel (region_source.c): types, conversions, functions, folds. Text that NVRTC
/// compiles, without any header; behind it stand the host engine's region_lists.h and region_ops.h. The tests compile it
/// with the C++ compiler (tests/cuda_emulator/nvrtc.c), so that there is no PTX without a plain twin.
#ifdef __CUDACC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define REGION_INFINITY __int_as_float(0x7F800000)
#else
#define REGION_INFINITY INFINITY
#endif
#define KERNEL_INLINE static __device__ __forceinline__
#define INT64_LEAST ((int64_t)0x8000000000000000ull)
#define INT64_MOST ((int64_t)0x7FFFFFFFFFFFFFFFull)

// Elements

#ifdef __CUDACC__
KERNEL_INLINE float half_to_float(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
KERNEL_INLINE uint16_t half_from_float(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
KERNEL_INLINE float half_to_float(uint16_t half) {
  const uint32_t word = (uint32_t)half << 16, sign = word & 0x80000000u, twice = word + word;
  const float normal = __uint_as_float((twice >> 4) + (0xE0u << 23)) * 0x1.0p-112f;
  const float subnormal = __uint_as_float((twice >> 17) | (126u << 23)) - 0.5f;
  return __uint_as_float(sign | (twice < (1u << 27) ? __float_as_uint(subnormal) : __float_as_uint(normal)));
}
KERNEL_INLINE uint16_t half_from_float(float value) {
  const uint32_t word = __float_as_uint(value), twice = word + word, sign = word & 0x80000000u;
  float base = (__uint_as_float(word & 0x7FFFFFFFu) * 0x1.0p+112f) * 0x1.0p-110f;
  uint32_t bias = twice & 0xFF000000u;
  bias = bias < 0x71000000u ? 0x71000000u : bias;
  base = __uint_as_float((bias >> 1) + 0x07800000u) + base;
  const uint32_t bits = __float_as_uint(base), magnitude = ((bits >> 13) & 0x7C00u) + (bits & 0x0FFFu);
  return (uint16_t)((sign >> 16) | (twice > 0xFF000000u ? 0x7E00u : magnitude));
}
#endif
KERNEL_INLINE float bfloat_to_float(uint16_t bits) {
  return __uint_as_float((uint32_t)bits << 16);
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
KERNEL_INLINE uint16_t bfloat_from_float(float value) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
KERNEL_INLINE uint16_t bfloat_from_float(float value) {
  const uint32_t word = __float_as_uint(value), rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
  return (uint16_t)((word & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
}
#endif

union number {
  double real;
  int64_t integer;
};

/// Neighbours in memory that are moved at once.
template <class T, int N>
struct alignas(sizeof(T) * N) pack {
  T value[N];
};
template <int N, class T>
KERNEL_INLINE void load_pack(pack<T, N> &to, const T *from) {
  to = *(const pack<T, N> *)(const void *)from;
}
template <int N, class T>
KERNEL_INLINE void store_pack(T *to, const pack<T, N> &from) {
  *(pack<T, N> *)(void *)to = from;
}

// What the operations' expressions name, in CUDA's own versions

#define MATH_PAIR(name, single)               \
  KERNEL_INLINE float name##_f32(float x) {   \
    return single(x);                         \
  }                                           \
  KERNEL_INLINE double name##_f64(double x) { \
    return name(x);                           \
  }
MATH_PAIR(exp, expf)
MATH_PAIR(tanh, tanhf)
MATH_PAIR(log, logf)
MATH_PAIR(log2, log2f)
MATH_PAIR(log10, log10f)
MATH_PAIR(log1p, log1pf)
MATH_PAIR(expm1, expm1f)
MATH_PAIR(erf, erff)
KERNEL_INLINE float pow_f32(float x, float y) {
  return powf(x, y);
}
KERNEL_INLINE float sigmoid_f32(float x) {
  return 1.0f / (1.0f + expf(-x));
}
KERNEL_INLINE double sigmoid_f64(double x) {
  return 1.0 / (1.0 + exp(-x));
}
KERNEL_INLINE float cdf_f32(float x) {
  return 0.5f * erfcf(-0.70710678118654752440f * x);
}
KERNEL_INLINE float op_SIN_f32(float x) {
  return sinf(x);
}
KERNEL_INLINE float op_COS_f32(float x) {
  return cosf(x);
}

// Folds

struct fold_sum {
  template <class A>
  static __device__ __forceinline__ A join(A a, A x) {
    return a + x;
  }
};
struct fold_max {
  template <class A>
  static __device__ __forceinline__ A join(A a, A x) {
    return ((x > a) | (x != x)) ? x : a;
  }
};
struct fold_min {
  template <class A>
  static __device__ __forceinline__ A join(A a, A x) {
    return ((x < a) | (x != x)) ? x : a;
  }
};

/// Over the T threads that share a row: a warp, or the whole block. All of them get the result.
template <int T, class F, class A>
KERNEL_INLINE A fold_row(A a) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    a = F::join(a, (A)__shfl_xor_sync(0xFFFFFFFFu, a, lanes));
  }
  if (T > 32) {
    __shared__ A room[T / 32];
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
      room[threadIdx.x / 32] = a;
    }
    __syncthreads();
    a = room[0];
    for (int i = 1; i < T / 32; i++) {
      a = F::join(a, room[i]);
    }
  }
  return a;
}
/// Over the L warps of a block, lane by lane. The first warp gets the result.
template <int L, class F, class A>
KERNEL_INLINE A fold_column(A a) {
  __shared__ A room[L * 32];
  __syncthreads();
  room[threadIdx.x] = a;
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int i = 1; i < L; i++) {
      a = F::join(a, room[i * 32 + threadIdx.x]);
    }
  }
  return a;
}
