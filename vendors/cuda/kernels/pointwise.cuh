/// Pointwise kernels from the shared expressions (vendors/host/ops/*_expressions.h).
///
/// A kernel file says LOOP_FAMILY and includes the family's expressions; each LOOP becomes kernels with these endings:
///   _v  every operand in its work type, contiguous and aligned: vectors of 16 bytes
///   _h  _b  the same with float16 or bfloat16 in memory and float in the expression
///   _s  any dtypes and strides
#ifndef DIT_CUDA_POINTWISE_CUH
#define DIT_CUDA_POINTWISE_CUH

#include "kernel.cuh"
#include "math.cuh"
#include "pointwise.h"

#define LOOP_SQRT(x) sqrt(x)

/// The number that an expression calls k0 to k3, or that stands for an operand.
template <class T>
KERNEL_INLINE T get_number(const char *numbers, int index) {
  return *(const T *)(const void *)(numbers + 16 * index);
}

KERNEL_INLINE uint32_t divide_fast(uint32_t value, pointwise_divisor by) {
  return (uint32_t)(((uint64_t)__umulhi(value, by.magic) + value) >> by.shift);
}

/// The last entry that begins at or before the block.
KERNEL_INLINE const pointwise_entry *find_entry(const pointwise_entry *list, int count) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (list[middle].first <= blockIdx.x) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return list + low;
}

template <class F, class In, class Out, int INPUTS>
struct flat_loop {
  static constexpr int WIDTH = sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out), LANES = 16 / WIDTH;
  typedef pack<In, LANES> in_pack;
  typedef pack<Out, LANES> out_pack;
  typedef typename F::type T;
  typedef typename F::arith A;

  /// A run of its own, or the block's of a list.
  struct place {
    char *data[INPUTS + 1];
    int64_t numel;
    uint32_t block, blocks;
    const pointwise_entry *entry;

    __device__ explicit place(const pointwise_flat &p) : numel(p.numel), block(blockIdx.x), blocks(gridDim.x), entry() {
      if (p.list) {
        entry = find_entry(p.list, p.listed);
        numel = entry->numel;
        block -= entry->first;
        blocks = entry->blocks;
      }
#pragma unroll
      for (int i = 0; i <= INPUTS; i++) {
        data[i] = entry ? entry->data[i] : p.data[i];
      }
    }
    __device__ T get(const pointwise_flat &p, int number) const {
      return entry ? get_number<T>(entry->numbers, number) : get_number<T>(p.numbers, number);
    }
  };
  static __device__ T get_one(const pointwise_flat &p, const place &own, int i) {
    return p.mode[i] == POINTWISE_NUMBER ? own.get(p, p.number[i]) : to_work(*(const In *)(const void *)own.data[i]);
  }
  /// Rows of vectors that need not follow each other, or repeat.
  static __device__ void run_rows(const pointwise_flat &p, const A *k, const T *one) {
    const uint32_t vectors = (uint32_t)(p.numel / LANES);
    for (uint32_t vector = blockIdx.x * blockDim.x + threadIdx.x; vector < vectors; vector += gridDim.x * blockDim.x) {
      uint32_t row = divide_fast(vector, p.row);
      const int64_t place = (int64_t)(vector - row * p.row.divisor) * LANES;
      int64_t offsets[INPUTS + 1] = {};
      for (int dim = 0; dim < p.ndim; dim++) {
        const uint32_t rest = divide_fast(row, p.divisors[dim]), step = row - rest * p.divisors[dim].divisor;
#pragma unroll
        for (int i = 0; i <= INPUTS; i++) {
          offsets[i] += step * p.strides[dim][i];
        }
        row = rest;
      }
      in_pack in[INPUTS];
      T spread[INPUTS];
#pragma unroll
      for (int i = 0; i < INPUTS; i++) {
        const In *from = (const In *)(const void *)(p.data[i + 1] + offsets[i + 1]);
        spread[i] = one[i];
        if (p.mode[i + 1] == POINTWISE_WALK && p.is_spread[i + 1]) {
          spread[i] = to_work(*from);
        } else if (p.mode[i + 1] == POINTWISE_WALK) {
          in[i] = *(const in_pack *)(const void *)(from + place);
        }
      }
      out_pack result;
#pragma unroll
      for (int lane = 0; lane < LANES; lane++) {
        A x[3] = {};
#pragma unroll
        for (int i = 0; i < INPUTS; i++) {
          const bool walks = p.mode[i + 1] == POINTWISE_WALK && !p.is_spread[i + 1];
          x[i] = walks ? (A)to_work(in[i].value[lane]) : (A)spread[i];
        }
        result.value[lane] = element<Out>::from(F::apply(x[0], x[1], x[2], k));
      }
      *(out_pack *)(void *)((Out *)(void *)(p.data[0] + offsets[0]) + place) = result;
    }
  }
  static __device__ void run(const pointwise_flat &p) {
    const int U = POINTWISE_KERNEL_VECTORS;
    const place own(p);
    const A k[4] = {(A)own.get(p, 0), (A)own.get(p, 1), (A)own.get(p, 2), (A)own.get(p, 3)};
    T one[INPUTS];
#pragma unroll
    for (int i = 0; i < INPUTS; i++) {
      one[i] = p.mode[i + 1] == POINTWISE_WALK ? T() : get_one(p, own, i + 1);
    }
    if (p.ndim > 0) {
      run_rows(p, k, one);
      return;
    }
    // a block's vectors lie side by side
    const int64_t vectors = own.numel / LANES, step = blockDim.x, begin = own.block * step * U + threadIdx.x;
    Out *out = (Out *)(void *)own.data[0];
    for (int64_t first = begin; first < vectors; first += own.blocks * step * U) {
      in_pack in[U][INPUTS];
#pragma unroll
      for (int u = 0; u < U; u++) {
#pragma unroll
        for (int i = 0; i < INPUTS; i++) {
          if (first + u * step < vectors && p.mode[i + 1] == POINTWISE_WALK) {
            in[u][i] = ((const in_pack *)(const void *)own.data[i + 1])[first + u * step];
          }
        }
      }
#pragma unroll
      for (int u = 0; u < U; u++) {
        if (first + u * step < vectors) {
          out_pack result;
#pragma unroll
          for (int lane = 0; lane < LANES; lane++) {
            A x[3] = {};
#pragma unroll
            for (int i = 0; i < INPUTS; i++) {
              x[i] = p.mode[i + 1] == POINTWISE_WALK ? (A)to_work(in[u][i].value[lane]) : (A)one[i];
            }
            result.value[lane] = element<Out>::from(F::apply(x[0], x[1], x[2], k));
          }
          ((out_pack *)(void *)out)[first + u * step] = result;
        }
      }
    }
    const int64_t rest = vectors * LANES + (int64_t)own.block * blockDim.x + threadIdx.x;
    if (rest < own.numel) {
      A x[3] = {};
#pragma unroll
      for (int i = 0; i < INPUTS; i++) {
        const In *from = (const In *)(const void *)own.data[i + 1];
        x[i] = (A)(p.mode[i + 1] == POINTWISE_WALK ? to_work(from[rest]) : one[i]);
      }
      out[rest] = element<Out>::from(F::apply(x[0], x[1], x[2], k));
    }
  }
};

template <class T>
KERNEL_INLINE T round_to(T value, int dtype) {
  (void)dtype;
  return value;
}
KERNEL_INLINE float round_to(float value, int dtype) {
  return dtype == DIT_DTYPE_F16 ? half_to_float(half_from_float(value)) : bfloat_to_float(bfloat_from_float(value));
}

/// Byte offsets of element `index` of all operands. P: pointwise_strided, or another with its members.
template <int OPERANDS, class P>
KERNEL_INLINE void find_offsets(const P &p, int64_t index, int64_t *offsets) {
#pragma unroll
  for (int i = 0; i < OPERANDS; i++) {
    offsets[i] = 0;
  }
  for (int dim = 0; dim < p.ndim; dim++) {
    int64_t place, rest;
    if (p.is_wide) {
      rest = index / p.sizes[dim];
      place = index - rest * p.sizes[dim];
    } else {
      const uint32_t quotient = divide_fast((uint32_t)index, p.divisors[dim]);
      place = (uint32_t)index - quotient * p.divisors[dim].divisor;
      rest = quotient;
    }
#pragma unroll
    for (int i = 0; i < OPERANDS; i++) {
      offsets[i] += place * p.strides[dim][i];
    }
    index = rest;
  }
}

template <class T>
KERNEL_INLINE T as_signed(T value) {
  return value;
}
KERNEL_INLINE int8_t as_signed(uint8_t value) {
  return (int8_t)value;
}
KERNEL_INLINE int16_t as_signed(uint16_t value) {
  return (int16_t)value;
}
KERNEL_INLINE int32_t as_signed(uint32_t value) {
  return (int32_t)value;
}
KERNEL_INLINE int64_t as_signed(uint64_t value) {
  return (int64_t)value;
}

template <class F, int INPUTS>
KERNEL_INLINE void run_strided(const pointwise_strided &p) {
  typedef typename F::type T;
  typedef typename F::arith A;
  const A k[4] = {(A)get_number<T>(p.numbers, 0), (A)get_number<T>(p.numbers, 1), (A)get_number<T>(p.numbers, 2),
                  (A)get_number<T>(p.numbers, 3)};
  for (int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; index < p.numel;
       index += (int64_t)gridDim.x * blockDim.x) {
    int64_t offsets[INPUTS + 1];
    find_offsets<INPUTS + 1>(p, index, offsets);
    A x[3] = {};
#pragma unroll
    for (int i = 0; i < INPUTS; i++) {
      T value;
      if (p.mode[i + 1] == POINTWISE_NUMBER) {
        value = get_number<T>(p.numbers, p.number[i + 1]);
      } else {
        value = load_as<T>(p.data[i + 1] + offsets[i + 1], p.dtype[i + 1], p.as_bool[i + 1]);
        value = p.rounded && p.dtype[i + 1] != p.rounded ? round_to(value, p.rounded) : value;
      }
      x[i] = (A)value;
    }
    typename F::result result = F::apply(x[0], x[1], x[2], k);
    result = p.rounded && p.dtype[0] != p.rounded ? round_to(result, p.rounded) : result;
    if (p.is_signed) {
      store_as(p.data[0] + offsets[0], p.dtype[0], as_signed(result));
    } else {
      store_as(p.data[0] + offsets[0], p.dtype[0], result);
    }
  }
}

// where: operand 1 is the condition. A number or one element for all is left to the strided kernel.

template <class T>
KERNEL_INLINE void run_where_flat(const pointwise_flat &p) {
  const uint8_t *condition = (const uint8_t *)p.data[1];
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    const bool first = condition[p.mode[1] == POINTWISE_ONE ? 0 : i] != 0;
    const int chosen = first ? 2 : 3;
    ((T *)(void *)p.data[0])[i] = ((const T *)(const void *)p.data[chosen])[p.mode[chosen] == POINTWISE_ONE ? 0 : i];
  }
}

template <class T>
KERNEL_INLINE void run_where_strided(const pointwise_strided &p) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t offsets[4];
    find_offsets<4>(p, i, offsets);
    const int chosen = *(const uint8_t *)(p.data[1] + offsets[1]) ? 2 : 3, dtype = p.dtype[chosen];
    const char *from = p.data[chosen] + offsets[chosen];
    char *to = p.data[0] + offsets[0];
    if (dtype == p.dtype[0]) {
      *(T *)(void *)to = *(const T *)(const void *)from;
    } else {
      convert_element(to, p.dtype[0], from, dtype);
    }
  }
}

/// The functions of math.cuh.
struct full_math {};

#define LOOP_JOIN_(a, b, c) a##_##b##c
#define LOOP_JOIN(a, b, c) LOOP_JOIN_(a, b, c)
#define LOOP_KERNEL(name, ending, type) KERNEL(POINTWISE_KERNEL_THREADS, LOOP_JOIN(LOOP_FAMILY, name, ending), type)
#define LOOP_FUNCTOR(name, base, result_, type_, arith_, expression)                                  \
  struct op_##name : base {                                                                                  \
    typedef result_ result;                                                                           \
    typedef type_ type;                                                                               \
    typedef arith_ arith;                                                                             \
    static __device__ result apply(arith x, arith y, arith z, const arith *k) {                       \
      const arith k0 = k[0], k1 = k[1], k2 = k[2], k3 = k[3];                                         \
      (void)x, (void)y, (void)z, (void)k0, (void)k1, (void)k2, (void)k3;                              \
      return (result)(expression);                                                                    \
    }                                                                                                 \
  };

/// Kernels for half types in memory exist where the expression works in float.
template <class F, class Half, int INPUTS, class T, class R>
struct half_loop {
  static __device__ void run(const pointwise_flat &) {}
};
template <class F, class Half, int INPUTS>
struct half_loop<F, Half, INPUTS, float, float> : flat_loop<F, Half, Half, INPUTS> {};
template <class F, class Half, int INPUTS>
struct half_loop<F, Half, INPUTS, float, uint8_t> : flat_loop<F, Half, uint8_t, INPUTS> {};

#define LOOP_KERNELS(name, inputs, result, type, arith, expression)                       \
  LOOP_FUNCTOR(name, full_math, result, type, arith, expression)                          \
  LOOP_KERNEL(name, _v, pointwise_flat) {                                                 \
    flat_loop<op_##name, type, result, inputs>::run(p);                                   \
  }                                                                                       \
  LOOP_KERNEL(name, _s, pointwise_strided) {                                              \
    run_strided<op_##name, inputs>(p);                                                    \
  }                                                                                       \
  LOOP_HALF_##type(name, inputs, result, arith, expression)
#define LOOP_HALF_float(name, inputs, result, arith, expression)             \
  LOOP_FUNCTOR(half_##name, half_math, result, float, arith, expression)     \
  LOOP_KERNEL(name, _h, pointwise_flat) {                                    \
    half_loop<op_half_##name, half_bits, inputs, float, result>::run(p);          \
  }                                                                          \
  LOOP_KERNEL(name, _b, pointwise_flat) {                                    \
    half_loop<op_half_##name, bfloat_bits, inputs, float, result>::run(p);        \
  }
#define LOOP_HALF_double(name, inputs, result, arith, expression)
#define LOOP_HALF_uint8_t(name, inputs, result, arith, expression)
#define LOOP_HALF_int8_t(name, inputs, result, arith, expression)
#define LOOP_HALF_int16_t(name, inputs, result, arith, expression)
#define LOOP_HALF_int32_t(name, inputs, result, arith, expression)
#define LOOP_HALF_int64_t(name, inputs, result, arith, expression)
#define LOOP_HALF_uint16_t(name, inputs, result, arith, expression)
#define LOOP_HALF_uint32_t(name, inputs, result, arith, expression)
#define LOOP_HALF_uint64_t(name, inputs, result, arith, expression)

#define LOOP_1(name, result, type, arith, expression) LOOP_KERNELS(name, 1, result, type, arith, expression)
#define LOOP_2(name, result, type, arith, expression) LOOP_KERNELS(name, 2, result, type, arith, expression)
#define LOOP_3(name, result, type, arith, expression) LOOP_KERNELS(name, 3, result, type, arith, expression)
#define LOOP_WHERE(width, type)                              \
  LOOP_KERNEL(where_##width, _v, pointwise_flat) {           \
    run_where_flat<type>(p);                                 \
  }                                                          \
  LOOP_KERNEL(where_##width, _s, pointwise_strided) {        \
    run_where_strided<type>(p);                              \
  }
#define LOOP_PLAIN_1 LOOP_1
#define LOOP_PLAIN_2 LOOP_2
#define LOOP_PLAIN_3 LOOP_3
// _h and _b serve them
#define LOOP_HALF_1(name, expression)
#define LOOP_BF16_1(name, expression)
#define LOOP_BF16_2(name, expression)
#define LOOP_BF16_3(name, expression)
#define LOOP_BF16_PICK_2(name, expression)

#include "engine/loop_lists.h"

#endif
