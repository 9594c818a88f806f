/// Reductions: sum, mean, product, extremes, any, all, norms, over any set of dimensions; any dtypes and strides.
///
/// Threads fold their elements one after another, then join in a tree. An output of many elements is split over blocks;
/// the last block that is done joins the parts, always in the same order. The common kinds of what
/// lies in whole vectors take the kernels of reduce_vector.cu instead.
#include "reduce.cuh"

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
  static __device__ A run(const reduce_kernel &, const char *, int64_t, int64_t, int, int) { return A(); }
};

template <int KIND, class E, class A>
KERNEL_INLINE A fold_all(const reduce_kernel &p, const char *in, int64_t begin, int64_t end, int lane, int lanes) {
  if constexpr (KIND == REDUCE_SUM || KIND == REDUCE_MAX || KIND == REDUCE_MIN || KIND == REDUCE_ANY ||
                KIND == REDUCE_ALL) {
    if (p.is_vector) {
      return vectors_of<KIND, E, A>::run(p, in, begin, end, lane, lanes);
    }
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

/// The lanes of a column together; the first one gets the result.
template <class A>
KERNEL_INLINE A join_lanes(int kind, A value, A *room, int place, int lane, int lanes) {
  __syncthreads();
  room[place] = value;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) {
      room[place] = join(kind, room[place], room[place + half]);
    }
  }
  return room[place];
}

template <class E, class A>
KERNEL_INLINE void run_reduce(const reduce_kernel &p) {
  __shared__ A room[REDUCE_KERNEL_THREADS];
  const int lanes = REDUCE_KERNEL_THREADS / p.columns, thread = threadIdx.x;
  const int column = p.is_column ? thread % p.columns : thread / lanes;
  const int lane = p.is_column ? thread / p.columns : thread % lanes;
  const int place = column * lanes + lane;
  for (int64_t first = (int64_t)blockIdx.x * p.columns; first < p.outputs; first += (int64_t)gridDim.x * p.columns) {
    const int64_t output = first + column, begin = (int64_t)blockIdx.y * p.part;
    const int64_t end = begin + p.part < p.count ? begin + p.part : p.count;
    const bool is_there = output < p.outputs;
    A total = get_start<A>(p.kind);
    if (is_there) {
      total = fold_kind<E, A>(p, p.in + find_place(p.kept, output, 0), begin, end, lane, lanes);
    }
    total = join_lanes(p.kind, total, room, place, lane, lanes);
    if (p.splits > 1) {
      A *partials = (A *)p.partials + output * p.splits;
      if (lane == 0 && is_there) {
        partials[blockIdx.y] = total;
      }
      if (!is_last_part(&p.tickets[first / p.columns], p.splits)) {
        continue;
      }
      total = get_start<A>(p.kind);
      for (int i = lane; is_there && i < p.splits; i += lanes) {
        total = join(p.kind, total, load_fresh(&partials[i]));
      }
      total = join_lanes(p.kind, total, room, place, lane, lanes);
    }
    if (lane == 0 && is_there) {
      store_result(p, p.out + find_place(p.kept, output, 1), total);
    }
  }
}

#define REDUCE_KERNELS(X)                \
  X(reduce_f32, float, float)            \
  X(reduce_f16, half_bits, float)        \
  X(reduce_bf16, bfloat_bits, float)     \
  X(reduce_f64, double, double)          \
  X(reduce_i64, int64_t, int64_t)        \
  X(reduce_u8, uint8_t, int64_t)         \
  X(reduce_any_f32, any_element, float)  \
  X(reduce_any_f64, any_element, double) \
  X(reduce_any_i64, any_element, int64_t)
#define REDUCE_KERNEL(name, E, A)                            \
  KERNEL_BLOCK(REDUCE_KERNEL_THREADS, name, reduce_kernel) { \
    run_reduce<E, A>(p);                                     \
  }
REDUCE_KERNELS(REDUCE_KERNEL)
