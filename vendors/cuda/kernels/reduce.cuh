/// What the kernels of reductions share: places of elements, what is folded, how parts are joined.
#ifndef DIT_CUDA_REDUCE_CUH
#define DIT_CUDA_REDUCE_CUH

#include "engine/reduce_kinds.h"
#include "pointwise.cuh"
#include "reduce.h"

KERNEL_INLINE int64_t find_place(const reduce_dims &dims, int64_t index, int operand) {
  int64_t offset = 0;
  if (dims.ndim == 1) {
    return index * dims.strides[0][operand];
  }
  for (int dim = 0; dim < dims.ndim; dim++) {
    int64_t place, rest;
    if (dims.is_wide) {
      rest = index / dims.sizes[dim];
      place = index - rest * dims.sizes[dim];
    } else {
      const uint32_t quotient = divide_fast((uint32_t)index, dims.divisors[dim]);
      place = (uint32_t)index - quotient * dims.divisors[dim].divisor;
      rest = quotient;
    }
    offset += place * dims.strides[dim][operand];
    index = rest;
  }
  return offset;
}

/// Elements of the input as the type that is folded.
template <class E, class A>
struct reader {
  static __device__ A load(const char *address, int) { return (A)to_work(*(const E *)(const void *)address); }
};
struct any_element {};
template <class A>
struct reader<any_element, A> {
  static __device__ A load(const char *address, int dtype) { return load_as<A>(address, dtype, false); }
};

template <class A>
KERNEL_INLINE A get_identity(int kind) {
  return kind == REDUCE_PROD || kind == REDUCE_ALL ? (A)1 : (A)0;
}
/// The largest and smallest numbers stand for nothing yet; the first element replaces them.
template <class A>
struct limits;
template <>
struct limits<float> {
  static __device__ float low() { return -INFINITY; }
};
template <>
struct limits<double> {
  static __device__ double low() { return -(double)INFINITY; }
};
template <>
struct limits<int64_t> {
  static __device__ int64_t low() { return (int64_t)((uint64_t)1 << 63); }
};
template <class A>
KERNEL_INLINE A get_start(int kind) {
  switch (kind) {
    case REDUCE_MAX:
      return limits<A>::low();
    case REDUCE_MIN:
      return (A)(-(limits<A>::low() + (sizeof(A) == 8 && (A)0.5 == (A)0 ? 1 : 0)));
    case REDUCE_NORM_MIN:
      return (A)(-(limits<A>::low() + (sizeof(A) == 8 && (A)0.5 == (A)0 ? 1 : 0)));
    default:
      return get_identity<A>(kind);
  }
}
template <class A>
KERNEL_INLINE A absolute(A x) {
  return x < 0 ? -x : x;
}
/// A call: in line it would be most of every kernel.
static __device__ __noinline__ double power(double base, double exponent) {
  return pow(base, exponent);
}
/// One element into a running value.
template <int KIND, class A>
KERNEL_INLINE A fold(A total, A x, double parameter) {
  switch (KIND) {
    case REDUCE_SUM:
      return total + x;
    case REDUCE_PROD:
      return total * x;
    case REDUCE_MAX:
      return x > total || x != x ? x : total;
    case REDUCE_MIN:
      return x < total || x != x ? x : total;
    case REDUCE_ANY:
      return total != 0 || x != 0 ? (A)1 : (A)0;
    case REDUCE_ALL:
      return total != 0 && x != 0 ? (A)1 : (A)0;
    case REDUCE_NANSUM:
      return x != x ? total : total + x;
    case REDUCE_NORM_0:
      return total + (A)(x != 0);
    case REDUCE_NORM_1:
      return total + absolute(x);
    case REDUCE_NORM_2:
      return total + x * x;
    case REDUCE_NORM_P:
      return total + (A)power((double)absolute(x), parameter);
    case REDUCE_NORM_MAX:
      return absolute(x) > total || x != x ? absolute(x) : total;
    default:
      return absolute(x) < total || x != x ? absolute(x) : total;
  }
}
/// Two running values. NaN stays once it is there.
template <class A>
KERNEL_INLINE A join(int kind, A a, A b) {
  switch (kind) {
    case REDUCE_PROD:
      return a * b;
    case REDUCE_MAX:
    case REDUCE_NORM_MAX:
      return a > b || a != a ? a : b;
    case REDUCE_MIN:
    case REDUCE_NORM_MIN:
      return a < b || a != a ? a : b;
    case REDUCE_ANY:
      return a != 0 || b != 0 ? (A)1 : (A)0;
    case REDUCE_ALL:
      return a != 0 && b != 0 ? (A)1 : (A)0;
    default:
      return a + b;
  }
}
template <class A>
KERNEL_INLINE double finish(int kind, A value, int64_t count, double parameter) {
  switch (kind) {
    case REDUCE_MEAN:
      return (double)value / (double)count;
    case REDUCE_NORM_2:
      return sqrt((double)value);
    case REDUCE_NORM_P:
      return power((double)value, 1 / parameter);
    default:
      return (double)value;
  }
}

/// What kinds finish with needs double; the others are stored as they are.
template <class A>
KERNEL_INLINE void store_result(const reduce_kernel &p, char *to, A value) {
  if (p.kind != REDUCE_MEAN && p.kind != REDUCE_NORM_2 && p.kind != REDUCE_NORM_P) {
    store_as(to, p.out_dtype, value);
  } else {
    store_as(to, p.out_dtype, finish(p.kind, value, p.count, p.parameter));
  }
}

/// What another block wrote in this kernel: past the first cache, which does not see it.
template <class A>
KERNEL_INLINE A load_fresh(const A *from) {
#ifdef __CUDACC__
  return __ldcg(from);
#else
  return *from;
#endif
}
/// Is this the last of `splits` blocks that have written their parts? The counter is then 0 again.
KERNEL_INLINE bool is_last_part(uint32_t *ticket, int splits) {
  __shared__ int is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(ticket, 1u) == (unsigned)splits - 1;
    if (is_last) {
      *ticket = 0;
    }
  }
  __syncthreads();
  __threadfence();
  return is_last != 0;
}

#endif
