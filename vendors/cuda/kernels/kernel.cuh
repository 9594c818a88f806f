/// What every kernel file starts from: the macro that defines a kernel, element types, conversions, reductions.
///
/// A kernel has one parameter, a struct that the host side knows too (a header of this folder in plain C):
///   KERNEL(256, thing_f32, struct thing) { ... p ... }             no barriers, no shuffles
///   KERNEL_BLOCK(256, thing_rows_f32, struct thing) { ... }        with them
///   KERNEL_RESIDENT(256, 4, thing_rows_f32, struct thing) { ... }  with them, few enough registers for 4 blocks at once
/// The same files are compiled by the C++ compiler for the emulated driver of the tests, so they keep to what
/// tests/cuda_emulator/emulator.h offers: no inline PTX without a plain twin.
#ifndef DIT_CUDA_KERNEL_CUH
#define DIT_CUDA_KERNEL_CUH

#include <stdint.h>

#include "dit/dtype.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define KERNEL_INLINE static __device__ __forceinline__
#define KERNEL(threads, name, type) extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ type p)
#define KERNEL_BLOCK KERNEL
#define KERNEL_RESIDENT(threads, blocks, name, type) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ type p)
#define SHARED_MEMORY(type, name)                 \
  extern __shared__ uint4 shared_memory_bytes[];  \
  type *name = (type *)(void *)shared_memory_bytes
#define WARP_ALL 0xFFFFFFFFu
#else
#include "emulator.h"
#define KERNEL_INLINE static inline
#define __noinline__ __attribute__((noinline))
#define EMULATED_KERNEL(name, type, barriers)                                                                     \
  static void name##_body(const type &p);                                                                         \
  static void name##_call(const void *parameter) {                                                                \
    name##_body(*(const type *)parameter);                                                                        \
  }                                                                                                               \
  extern "C" __attribute__((visibility("default"))) const emulated_kernel emulated_##name = {sizeof(type),        \
                                                                                              name##_call, barriers}; \
  static void name##_body(const type &p)
#define KERNEL(threads, name, type) EMULATED_KERNEL(name, type, 0)
#define KERNEL_BLOCK(threads, name, type) EMULATED_KERNEL(name, type, 1)
#define KERNEL_RESIDENT(threads, blocks, name, type) EMULATED_KERNEL(name, type, 1)
#define SHARED_MEMORY(type, name) type *name = (type *)emulator_get_shared()
#define WARP_ALL 0xFFFFFFFFu
#endif

// Elements

struct half_bits {
  uint16_t bits;
};
struct bfloat_bits {
  uint16_t bits;
};

#ifdef __CUDACC__
KERNEL_INLINE float half_to_float(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
KERNEL_INLINE uint16_t half_from_float(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
KERNEL_INLINE uint16_t bfloat_from_float(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
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
KERNEL_INLINE uint16_t bfloat_from_float(float value) {
  const uint32_t word = __float_as_uint(value), rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
  return (uint16_t)((word & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
}
#endif
KERNEL_INLINE float bfloat_to_float(uint16_t bits) {
  return __uint_as_float((uint32_t)bits << 16);
}

/// The type in which an element is computed with.
template <class T>
struct work_type {
  typedef T type;
};
template <>
struct work_type<half_bits> {
  typedef float type;
};
template <>
struct work_type<bfloat_bits> {
  typedef float type;
};

template <class T>
KERNEL_INLINE T to_work(T value) {
  return value;
}
KERNEL_INLINE float to_work(half_bits value) {
  return half_to_float(value.bits);
}
KERNEL_INLINE float to_work(bfloat_bits value) {
  return bfloat_to_float(value.bits);
}
template <class T>
struct element {
  template <class V>
  static __device__ T from(V value) {
    return (T)value;
  }
};
template <>
struct element<half_bits> {
  static __device__ half_bits from(float value) {
    half_bits result = {half_from_float(value)};
    return result;
  }
};
template <>
struct element<bfloat_bits> {
  static __device__ bfloat_bits from(float value) {
    bfloat_bits result = {bfloat_from_float(value)};
    return result;
  }
};

/// As PyTorch casts: floating numbers become small integers through 64 bits.
template <class T>
struct convert {
  template <class V>
  static __device__ T from(V value) {
    return (T)value;
  }
};
#define CONVERT_SMALL(type)                                \
  template <>                                              \
  struct convert<type> {                                   \
    template <class V>                                     \
    static __device__ type from(V value) {                 \
      return (type)value;                                  \
    }                                                      \
    static __device__ type from(float value) {             \
      return (type)(int64_t)value;                         \
    }                                                      \
    static __device__ type from(double value) {            \
      return (type)(int64_t)value;                         \
    }                                                      \
  };
CONVERT_SMALL(uint8_t)
CONVERT_SMALL(int8_t)
CONVERT_SMALL(int16_t)
CONVERT_SMALL(uint16_t)
CONVERT_SMALL(uint32_t)

/// One element of any dtype as T. `as_bool`: whether it is not 0.
#define LOAD_LIST(X)      \
  X(U8, uint8_t)          \
  X(I8, int8_t)           \
  X(I16, int16_t)         \
  X(I32, int32_t)         \
  X(I64, int64_t)         \
  X(F16, half_bits)       \
  X(F32, float)           \
  X(F64, double)          \
  X(BOOL, uint8_t)        \
  X(BF16, bfloat_bits)    \
  X(U16, uint16_t)        \
  X(U32, uint32_t)        \
  X(U64, uint64_t)
template <class T, class E>
KERNEL_INLINE T load_element(const char *address, bool as_bool) {
  const typename work_type<E>::type value = to_work(*(const E *)(const void *)address);
  return as_bool ? (T)(value != 0) : convert<T>::from(value);
}
template <class E, class T>
KERNEL_INLINE void store_element(char *address, T value, bool as_bool) {
  typedef typename work_type<E>::type W;
  *(E *)(void *)address = element<E>::from(as_bool ? (W)(value != 0) : convert<W>::from(value));
}
/// The dtype that is T in memory; integers and bool by their own functions alone.
template <class T>
struct native {
  static constexpr int dtype = -1;
};
template <>
struct native<float> {
  static constexpr int dtype = DIT_DTYPE_F32;
};
template <>
struct native<double> {
  static constexpr int dtype = DIT_DTYPE_F64;
};
template <>
struct native<int64_t> {
  static constexpr int dtype = DIT_DTYPE_I64;
};
template <>
struct native<int32_t> {
  static constexpr int dtype = DIT_DTYPE_I32;
};
template <>
struct native<uint8_t> {
  static constexpr int dtype = DIT_DTYPE_U8;
};

// Every other combination is a call, so that a kernel is not made of conversions.
template <class T>
static __device__ __noinline__ T load_other(const char *address, int dtype, bool as_bool) {
  switch (dtype) {
#define LOAD_CASE(name, E) \
  case DIT_DTYPE_##name:   \
    return load_element<T, E>(address, as_bool);
    LOAD_LIST(LOAD_CASE)
#undef LOAD_CASE
  }
  return T();
}
template <class T>
static __device__ __noinline__ void store_other(char *address, int dtype, T value) {
  switch (dtype) {
#define STORE_CASE(name, E)                                                     \
  case DIT_DTYPE_##name:                                                        \
    store_element<E>(address, value, DIT_DTYPE_##name == (int)DIT_DTYPE_BOOL);  \
    return;
    LOAD_LIST(STORE_CASE)
#undef STORE_CASE
  }
}

template <class T>
KERNEL_INLINE T load_as(const char *address, int dtype, bool as_bool) {
  if (!as_bool && dtype == native<T>::dtype) {
    return *(const T *)(const void *)address;
  }
  if constexpr (native<T>::dtype == (int)DIT_DTYPE_F32) {
    if (dtype == DIT_DTYPE_BF16) {
      return bfloat_to_float(*(const uint16_t *)(const void *)address);
    }
    if (dtype == DIT_DTYPE_F16) {
      return half_to_float(*(const uint16_t *)(const void *)address);
    }
  }
  return load_other<T>(address, dtype, as_bool);
}
/// To any dtype. A bool is 0 or 1.
template <class T>
KERNEL_INLINE void store_as(char *address, int dtype, T value) {
  if (dtype == native<T>::dtype) {
    *(T *)(void *)address = value;
  } else {
    store_other(address, dtype, value);
  }
}
KERNEL_INLINE void store_as(char *address, int dtype, float value) {
  if (dtype == DIT_DTYPE_F32) {
    *(float *)(void *)address = value;
  } else if (dtype == DIT_DTYPE_BF16) {
    *(uint16_t *)(void *)address = bfloat_from_float(value);
  } else if (dtype == DIT_DTYPE_F16) {
    *(uint16_t *)(void *)address = half_from_float(value);
  } else {
    store_other(address, dtype, value);
  }
}

/// From any dtype to any other: floating numbers through double, integers through 64 bits.
static __device__ void convert_element(char *to, int to_dtype, const char *from, int from_dtype) {
  if (from_dtype == DIT_DTYPE_F16 || from_dtype == DIT_DTYPE_F32 || from_dtype == DIT_DTYPE_F64 ||
      from_dtype == DIT_DTYPE_BF16) {
    store_as(to, to_dtype, load_as<double>(from, from_dtype, false));
  } else if (from_dtype == DIT_DTYPE_U64) {
    store_as(to, to_dtype, load_as<uint64_t>(from, from_dtype, false));
  } else {
    store_as(to, to_dtype, load_as<int64_t>(from, from_dtype, false));
  }
}

/// Bytes of the dtypes that load_as knows.
KERNEL_INLINE int dtype_width(int dtype) {
  return dtype == DIT_DTYPE_F64 || dtype == DIT_DTYPE_I64 || dtype == DIT_DTYPE_U64   ? 8
         : dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_I32 || dtype == DIT_DTYPE_U32 ? 4
         : dtype == DIT_DTYPE_U8 || dtype == DIT_DTYPE_I8 || dtype == DIT_DTYPE_BOOL  ? 1
                                                                                      : 2;
}

template <class T, int N>
struct alignas(sizeof(T) * N) pack {
  T value[N];
};

// Reductions over the threads of a block

template <class T, class Join>
KERNEL_INLINE T warp_reduce(T value, Join join) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes >>= 1) {
    value = join(value, __shfl_xor_sync(WARP_ALL, value, lanes));
  }
  return value;
}
/// Every thread gets the result. blockDim.x is a multiple of 32; `room` has 33 places and may be used again at once.
template <class T, class Join>
KERNEL_INLINE T block_reduce(T value, T identity, T *room, Join join) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  value = warp_reduce(value, join);
  __syncthreads();
  if (lane == 0) {
    room[warp] = value;
  }
  __syncthreads();
  value = warp_reduce(lane < warps ? room[lane] : identity, join);
  return value;
}
struct join_sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
/// NaN wins.
struct join_max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};
struct join_min {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};

#endif
