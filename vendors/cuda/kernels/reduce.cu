/// Reductions: sum, mean, product, extremes, any, all, norms, over any set of dimensions.
///
/// Threads fold their elements one after another, then join in a tree. An output of many elements is split over blocks;
/// the last block that is done joins the parts, always in the same order.
#include "reduce.h"

#include "engine/reduce_kinds.h"
#include "pointwise.cuh"

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
  static __device__ A load(const char *address, int) {
    return (A)to_work(*(const E *)(const void *)address);
  }
};
struct any_element {};
template <class A>
struct reader<any_element, A> {
  static __device__ A load(const char *address, int dtype) {
    return load_as<A>(address, dtype, false);
  }
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
  static __device__ float low() {
    return -INFINITY;
  }
};
template <>
struct limits<double> {
  static __device__ double low() {
    return -(double)INFINITY;
  }
};
template <>
struct limits<int64_t> {
  static __device__ int64_t low() {
    return (int64_t)((uint64_t)1 << 63);
  }
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

template <int KIND, class E, class A, int LANES>
KERNEL_INLINE A fold_vectors(const reduce_kernel &p, const char *in, int64_t begin, int64_t end, int lane, int lanes) {
  A total = get_start<A>(KIND);
  const int64_t width = sizeof(E), vectors = (end - begin) / LANES;
  const pack<E, LANES> *packs = (const pack<E, LANES> *)(const void *)(in + begin * width);
  for (int64_t i = lane; i < vectors; i += lanes) {
    const pack<E, LANES> x = packs[i];
#pragma unroll
    for (int k = 0; k < LANES; k++) {
      total = fold<KIND>(total, (A)to_work(x.value[k]), p.parameter);
    }
  }
  for (int64_t i = begin + vectors * LANES + lane; i < end; i += lanes) {
    total = fold<KIND>(total, (A)to_work(((const E *)(const void *)in)[i]), p.parameter);
  }
  return total;
}
template <int KIND, class E, class A>
struct vectors_of {
  static __device__ A run(const reduce_kernel &p, const char *in, int64_t begin, int64_t end, int lane, int lanes) {
    return fold_vectors<KIND, E, A, 16 / sizeof(E)>(p, in, begin, end, lane, lanes);
  }
};
template <int KIND, class A>
struct vectors_of<KIND, any_element, A> {
  static __device__ A run(const reduce_kernel &, const char *, int64_t, int64_t, int, int) {
    return A();
  }
};

template <int KIND, class E, class A>
KERNEL_INLINE A fold_all(const reduce_kernel &p, const char *in, int64_t begin, int64_t end, int lane, int lanes) {
  if (p.is_vector) {
    return vectors_of<KIND, E, A>::run(p, in, begin, end, lane, lanes);
  }
  A total = get_start<A>(KIND);
  for (int64_t i = begin + lane; i < end; i += lanes) {
    total = fold<KIND>(total, reader<E, A>::load(in + find_place(p.reduced, i, 0), p.in_dtype), p.parameter);
  }
  return total;
}

template <class E, class A>
KERNEL_INLINE A fold_kind(const reduce_kernel &p, const char *in, int64_t begin, int64_t end, int lane, int lanes) {
  switch (p.kind) {
#define KIND_CASE(kind) \
  case kind:            \
    return fold_all<kind, E, A>(p, in, begin, end, lane, lanes);
    KIND_CASE(REDUCE_PROD)
    KIND_CASE(REDUCE_MAX)
    KIND_CASE(REDUCE_MIN)
    KIND_CASE(REDUCE_ANY)
    KIND_CASE(REDUCE_ALL)
    KIND_CASE(REDUCE_NANSUM)
    KIND_CASE(REDUCE_NORM_0)
    KIND_CASE(REDUCE_NORM_1)
    KIND_CASE(REDUCE_NORM_2)
    KIND_CASE(REDUCE_NORM_P)
    KIND_CASE(REDUCE_NORM_MAX)
    KIND_CASE(REDUCE_NORM_MIN)
#undef KIND_CASE
    default:
      return fold_all<REDUCE_SUM, E, A>(p, in, begin, end, lane, lanes);
  }
}

template <class A>
KERNEL_INLINE void store_result(const reduce_kernel &p, int64_t output, A value) {
  char *to = p.out + find_place(p.kept, output, 1);
  const bool exact = (A)0.5 == (A)0 && p.kind != REDUCE_MEAN && p.kind != REDUCE_NORM_2 && p.kind != REDUCE_NORM_P;
  if (exact) {
    store_as(to, p.out_dtype, value);
  } else {
    store_as(to, p.out_dtype, finish(p.kind, value, p.count, p.parameter));
  }
}

template <class E, class A>
KERNEL_INLINE void run_reduce(const reduce_kernel &p) {
  __shared__ A room[REDUCE_KERNEL_THREADS];
  __shared__ int is_last;
  const int lanes = REDUCE_KERNEL_THREADS / p.columns, thread = threadIdx.x;
  const int column = p.is_column ? thread % p.columns : thread / lanes;
  const int lane = p.is_column ? thread / p.columns : thread % lanes;
  const int place = column * lanes + lane;
  for (int64_t first = (int64_t)blockIdx.x * p.columns; first < p.outputs; first += (int64_t)gridDim.x * p.columns) {
    const int64_t output = first + column, begin = (int64_t)blockIdx.y * p.part;
    const int64_t end = begin + p.part < p.count ? begin + p.part : p.count;
    A total = get_start<A>(p.kind);
    if (output < p.outputs) {
      total = fold_kind<E, A>(p, p.in + find_place(p.kept, output, 0), begin, end, lane, lanes);
    }
    __syncthreads();
    room[place] = total;
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) {
        room[place] = join(p.kind, room[place], room[place + half]);
      }
    }
    __syncthreads();
    if (p.splits == 1) {
      if (lane == 0 && output < p.outputs) {
        store_result(p, output, room[place]);
      }
      continue;
    }
    A *partials = (A *)p.partials;
    if (lane == 0 && output < p.outputs) {
      partials[output * p.splits + blockIdx.y] = room[place];
    }
    __threadfence();
    __syncthreads();
    if (thread == 0) {
      is_last = atomicAdd(&p.tickets[first / p.columns], 1u) == (unsigned)p.splits - 1;
    }
    __syncthreads();
    if (is_last) {
      if (lane == 0 && output < p.outputs) {
        __threadfence();
        A all = get_start<A>(p.kind);
        for (int i = 0; i < p.splits; i++) {
          all = join(p.kind, all, ((volatile A *)partials)[output * p.splits + i]);
        }
        store_result(p, output, all);
      }
      if (thread == 0) {
        p.tickets[first / p.columns] = 0;
      }
    }
  }
}

#define REDUCE_KERNELS(X)           \
  X(reduce_f32, float, float)       \
  X(reduce_f16, half_bits, float)   \
  X(reduce_bf16, bfloat_bits, float) \
  X(reduce_f64, double, double)     \
  X(reduce_i64, int64_t, int64_t)   \
  X(reduce_u8, uint8_t, int64_t)    \
  X(reduce_any_f32, any_element, float) \
  X(reduce_any_f64, any_element, double) \
  X(reduce_any_i64, any_element, int64_t)
#define REDUCE_KERNEL(name, E, A)                              \
  KERNEL_BLOCK(REDUCE_KERNEL_THREADS, name, reduce_kernel) {   \
    run_reduce<E, A>(p);                                       \
  }
REDUCE_KERNELS(REDUCE_KERNEL)
