/// target[positions] += other (or *=), and gradients of embedding tables: sums whose order does not change.
///
/// Positions come sorted by the element they name, equal ones in their order. A thread adds up INDEX_KERNEL_CHUNK of
/// them for one element of the rest; a sum that goes over the end of a chunk waits in `partials` until the second
/// kernel joins the pieces, in order. Half types are summed in float and rounded once. No atomics.
#include "index.cuh"

template <class A>
KERNEL_INLINE A join_terms(A a, A b, bool is_multiply) {
  return is_multiply ? (A)(a * b) : (A)(a + b);
}
/// bool: or, and.
struct truth {
  uint8_t value;
};
KERNEL_INLINE truth join_terms(truth a, truth b, bool is_multiply) {
  const truth result = {(uint8_t)(is_multiply ? a.value && b.value : a.value || b.value)};
  return result;
}
template <class A>
struct neutral {
  static __device__ A get(bool is_multiply) {
    return (A)(is_multiply ? 1 : 0);
  }
};
template <>
struct neutral<truth> {
  static __device__ truth get(bool is_multiply) {
    const truth result = {(uint8_t)is_multiply};
    return result;
  }
};
template <class A>
KERNEL_INLINE A scale_sum(A sum, int64_t count) {
  (void)count;
  return sum;
}
KERNEL_INLINE float scale_sum(float sum, int64_t count) {
  return sum * (1.0f / (float)count);
}
KERNEL_INLINE double scale_sum(double sum, int64_t count) {
  return sum * (1.0 / (double)count);
}

/// `sum` of the positions with the key of sorted position `at` goes to their target.
template <class E, class A>
KERNEL_INLINE void store_sum(const index_kernel &p, int64_t at, int64_t rest, A sum, int64_t count) {
  int64_t target, other;
  if ((int64_t)p.keys[at] == p.skipped) {
    return;
  }
  find_position(p, p.places[at], &target, &other);
  find_rest(p, rest, &target, &other);
  E *place = (E *)(void *)(p.target + target);
  *place = element<E>::from(join_terms((A)to_work(*place), p.is_mean ? scale_sum(sum, count) : sum, p.is_multiply));
}

template <class E, class A>
KERNEL_INLINE void sum_chunks(const index_kernel &p) {
  const int64_t chunks = (p.count + INDEX_KERNEL_CHUNK - 1) / INDEX_KERNEL_CHUNK, total = chunks * p.rest;
  const bool is_multiply = p.is_multiply != 0;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t chunk;
    const int64_t rest = split_index(i, p.rest, p.rest_divisor, p.is_wide, &chunk);
    const int64_t begin = chunk * INDEX_KERNEL_CHUNK;
    const int64_t end = begin + INDEX_KERNEL_CHUNK < p.count ? begin + INDEX_KERNEL_CHUNK : p.count;
    int64_t target = 0, other = 0;
    find_rest(p, rest, &target, &other);
    A *partials = (A *)p.partials + chunk * 2 * p.rest + rest;
    bool is_open = begin > 0 && p.keys[begin - 1] == p.keys[begin];  // the first sum began in an earlier chunk
    for (int64_t at = begin; at < end;) {
      const uint32_t key = p.keys[at];
      A sum = neutral<A>::get(is_multiply);
      int64_t next = at;
      for (; next < end && p.keys[next] == key; next++) {
        int64_t place = 0;
        int64_t places[INDEX_KERNEL_DIMS];
        find_places(p.positions, p.places[next], places);
#pragma unroll
        for (int dim = 0; dim < INDEX_KERNEL_DIMS; dim++) {
          place += places[dim] * p.other_strides[dim];
        }
        const E *term = (const E *)(const void *)(p.is_number ? p.number : p.other + other + place);
        sum = join_terms(sum, (A)to_work(*term), is_multiply);
      }
      if (is_open) {
        partials[0] = sum;
      } else if (next == end && end < p.count && p.keys[end] == key) {
        partials[p.rest] = sum;
      } else {
        store_sum<E, A>(p, at, rest, sum, next - at);
      }
      is_open = false;
      at = next;
    }
  }
}

/// Sums that begin in a chunk and go on in the next ones.
template <class E, class A>
KERNEL_INLINE void join_chunks(const index_kernel &p) {
  const int64_t chunks = (p.count + INDEX_KERNEL_CHUNK - 1) / INDEX_KERNEL_CHUNK, total = (chunks - 1) * p.rest;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t chunk;
    const int64_t rest = split_index(i, p.rest, p.rest_divisor, p.is_wide, &chunk);
    const int64_t begin = chunk * INDEX_KERNEL_CHUNK, end = begin + INDEX_KERNEL_CHUNK;
    const uint32_t key = p.keys[end - 1];
    if (p.keys[end] != key || (begin > 0 && p.keys[begin] == key && p.keys[begin - 1] == key)) {
      continue;
    }
    int64_t at = end - 1;
    while (at > begin && p.keys[at - 1] == key) {
      at--;
    }
    const A *partials = (const A *)p.partials + rest;
    A sum = partials[(chunk * 2 + 1) * p.rest];
    int64_t last = end;
    for (int64_t next = chunk + 1; next < chunks && p.keys[next * INDEX_KERNEL_CHUNK] == key; next++) {
      sum = join_terms(sum, partials[next * 2 * p.rest], p.is_multiply != 0);
      last = (next + 1) * INDEX_KERNEL_CHUNK < p.count ? (next + 1) * INDEX_KERNEL_CHUNK : p.count;
    }
    while (p.keys[last - 1] != key) {
      last--;
    }
    store_sum<E, A>(p, at, rest, sum, last - at);
  }
}

#define INDEX_SUM(tag, E, A)                                      \
  KERNEL(INDEX_KERNEL_THREADS, index_sum_##tag, index_kernel) {   \
    sum_chunks<E, A>(p);                                          \
  }                                                               \
  KERNEL(INDEX_KERNEL_THREADS, index_join_##tag, index_kernel) {  \
    join_chunks<E, A>(p);                                         \
  }
INDEX_SUM(f32, float, float)
INDEX_SUM(f64, double, double)
INDEX_SUM(f16, half_bits, float)
INDEX_SUM(bf16, bfloat_bits, float)
INDEX_SUM(u8, uint8_t, uint8_t)
INDEX_SUM(u16, uint16_t, uint16_t)
INDEX_SUM(u32, uint32_t, uint32_t)
INDEX_SUM(u64, uint64_t, uint64_t)
INDEX_SUM(bool, truth, truth)

// EmbeddingRenorm_

template <class A>
KERNEL_INLINE A get_power(A value, double type) {
  return type == 2 ? value * value : type == 1 ? value : type == 0 ? (A)(value != 0) : (A)pow((double)value, type);
}

/// A block per named row (sorted keys: the first of equal ones works).
template <class E, class A>
KERNEL_INLINE void renorm(const index_renorm &p) {
  __shared__ A room[33];
  for (int64_t i = blockIdx.x; i < p.count; i += gridDim.x) {
    if (i > 0 && p.keys[i - 1] == p.keys[i]) {
      continue;
    }
    char *row = p.table + (int64_t)p.keys[i] * p.row_step;
    const bool is_infinite = p.norm_type > 1e300 || p.norm_type < -1e300;
    const bool is_least = p.norm_type < -1e300;
    A total = is_least ? (A)INFINITY : (A)0;
    for (int64_t k = threadIdx.x; k < p.columns; k += blockDim.x) {
      const A value = (A)fabs((A)to_work(*(const E *)(const void *)(row + k * p.column_step)));
      total = !is_infinite ? total + get_power(value, p.norm_type)
              : is_least   ? join_min()(value, total)
                           : join_max()(value, total);
    }
    A norm = !is_infinite ? block_reduce(total, (A)0, room, join_sum())
             : is_least   ? block_reduce(total, (A)INFINITY, room, join_min())
                          : block_reduce(total, (A)0, room, join_max());
    norm = p.norm_type == 2                                              ? (A)sqrt(norm)
           : p.norm_type == 0 || p.norm_type == 1 || is_infinite ? norm
                                                                         : (A)pow((double)norm, 1 / p.norm_type);
    norm = (A)to_work(element<E>::from(norm));  // PyTorch keeps the norm in the table's dtype
    if (norm > (A)p.max_norm) {
      const A scale = (A)(p.max_norm / ((double)norm + 1e-7));
      for (int64_t k = threadIdx.x; k < p.columns; k += blockDim.x) {
        E *place = (E *)(void *)(row + k * p.column_step);
        *place = element<E>::from((A)to_work(*place) * scale);
      }
    }
    __syncthreads();
  }
}
#define INDEX_RENORM(tag, E, A)                                          \
  KERNEL_BLOCK(INDEX_KERNEL_THREADS, index_renorm_##tag, index_renorm) { \
    renorm<E, A>(p);                                                     \
  }
INDEX_RENORM(f32, float, float)
INDEX_RENORM(f64, double, double)
INDEX_RENORM(f16, half_bits, float)
INDEX_RENORM(bf16, bfloat_bits, float)
