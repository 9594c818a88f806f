/// Reductions of what lies in whole vectors of 16 bytes: rows (the reduced elements follow each other) and columns (the
/// kept ones do). Sum, mean, extremes and the norm of squares, of floating numbers that are folded in float.
///
/// A thread has REDUCE_VECTORS loads in flight before it folds the first: 64 bytes, with 1280 threads of a
/// multiprocessor 80 KB, which hides the latency of device memory also while other blocks join. Every element of a
/// vector has an accumulator of its own, so that additions do not wait for each other. Long sums are split over blocks,
/// about as many as the device holds at once; the last one joins the parts with all its threads, in a fixed order.
#include "reduce.cuh"

#define REDUCE_VECTORS 4

template <class E>
struct vector_of {
  static constexpr int LANES = 16 / sizeof(E);
  typedef pack<E, LANES> type;
};

template <int KIND>
KERNEL_INLINE float fold_one(float total, float x) {
  return KIND == REDUCE_SUM ? total + x : KIND == REDUCE_NORM_2 ? total + x * x : fold<KIND>(total, x, 0.0);
}
template <int KIND>
KERNEL_INLINE float join_two(float a, float b) {
  return KIND == REDUCE_MAX ? join_max()(a, b) : KIND == REDUCE_MIN ? join_min()(a, b) : a + b;
}
template <int KIND>
KERNEL_INLINE float get_nothing() {
  return KIND == REDUCE_MAX ? -INFINITY : KIND == REDUCE_MIN ? INFINITY : 0.0f;
}

/// Without a call, so that kernels keep their registers.
template <int KIND>
KERNEL_INLINE void store_float(const reduce_kernel &p, char *to, float value) {
  if (KIND == REDUCE_NORM_2) {
    value = sqrtf(value);
  } else if (KIND == REDUCE_SUM && p.kind == REDUCE_MEAN) {
    value /= (float)p.count;
  }
  if (p.out_dtype == DIT_DTYPE_F32) {
    *(float *)(void *)to = value;
  } else {
    *(uint16_t *)(void *)to = p.out_dtype == DIT_DTYPE_F16 ? half_from_float(value) : bfloat_from_float(value);
  }
}

/// At most two dimensions are kept; where it is one, its stride is the first, and nothing is left for the second.
KERNEL_INLINE int64_t find_kept(const reduce_kernel &p, uint32_t index, int operand) {
  const uint32_t row = divide_fast(index, p.kept.divisors[0]);
  return (int64_t)(index - row * p.kept.divisors[0].divisor) * p.kept.strides[0][operand] +
         (int64_t)row * p.kept.strides[1][operand];
}

/// The lanes of one output (a power of two), by shuffles, then over the warps. The first lane gets the result.
template <int KIND>
KERNEL_INLINE float join_row(float value, float *room, int lane, int lanes) {
  for (int step = lanes < 32 ? lanes / 2 : 16; step > 0; step /= 2) {
    value = join_two<KIND>(value, __shfl_xor_sync(WARP_ALL, value, step));
  }
  if (lanes > 32) {
    const int warp = threadIdx.x / 32;
    __syncthreads();
    if (lane % 32 == 0) {
      room[warp] = value;
    }
    __syncthreads();
    for (int i = 1; lane == 0 && i < lanes / 32; i++) {
      value = join_two<KIND>(value, room[warp + i]);
    }
  }
  return value;
}

/// `count` vectors, of which this thread has every `step`-th, `bytes` apart.
template <int KIND, class E>
KERNEL_INLINE void fold_vectors(const char *in, int count, int step, int64_t bytes, float *total) {
  const int U = REDUCE_VECTORS;
  for (int first = 0; first < count; first += step * U, in += bytes * U) {
    typename vector_of<E>::type x[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (first + u * step < count) {
        x[u] = *(const typename vector_of<E>::type *)(const void *)(in + u * bytes);
      }
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (first + u * step < count) {
#pragma unroll
        for (int k = 0; k < vector_of<E>::LANES; k++) {
          total[k] = fold_one<KIND>(total[k], to_work(x[u].value[k]));
        }
      }
    }
  }
}

/// Vectors `begin` to `end` of a row, and the elements after the last whole vector.
template <int KIND, class E>
KERNEL_INLINE float fold_row(const reduce_kernel &p, const char *in, int begin, int end, int lane, int lanes) {
  const int LANES = vector_of<E>::LANES;
  float total[LANES];
#pragma unroll
  for (int k = 0; k < LANES; k++) {
    total[k] = get_nothing<KIND>();
  }
  fold_vectors<KIND, E>(in + (int64_t)(begin + lane) * 16, end - begin - lane, lanes, lanes * 16, total);
  for (int64_t rest = p.vectors * LANES + lane; end == p.vectors && rest < p.count; rest += lanes) {
    total[0] = fold_one<KIND>(total[0], to_work(((const E *)(const void *)in)[rest]));
  }
#pragma unroll
  for (int k = 1; k < LANES; k++) {
    total[0] = join_two<KIND>(total[0], total[k]);
  }
  return total[0];
}

template <int KIND, class E>
KERNEL_INLINE void run_rows(const reduce_kernel &p, float *room) {
  const int lanes = REDUCE_KERNEL_THREADS / p.columns;
  const int lane = threadIdx.x & (lanes - 1), column = threadIdx.x / lanes;
  const int begin = (int)(blockIdx.y * p.part), vectors = (int)p.vectors;
  const int end = vectors - begin < (int)p.part ? vectors : begin + (int)p.part;
  for (int first = blockIdx.x * p.columns; first < (int)p.outputs; first += gridDim.x * p.columns) {
    const int output = first + column;
    const bool is_there = output < (int)p.outputs;
    float total = get_nothing<KIND>();
    if (is_there) {
      total = fold_row<KIND, E>(p, p.in + find_kept(p, output, 0), begin, end, lane, lanes);
    }
    total = join_row<KIND>(total, room, lane, lanes);
    if (p.splits > 1) {
      float *partials = (float *)p.partials + (int64_t)output * p.splits;
      if (lane == 0) {
        partials[blockIdx.y] = total;
      }
      if (!is_last_part(&p.tickets[blockIdx.x], p.splits)) {
        continue;
      }
      total = get_nothing<KIND>();
      for (int i = lane; i < p.splits; i += lanes) {
        total = join_two<KIND>(total, load_fresh(&partials[i]));
      }
      total = join_row<KIND>(total, room, lane, lanes);
    }
    if (lane == 0 && is_there) {
      store_float<KIND>(p, p.out + find_kept(p, output, 1), total);
    }
  }
}

// Columns: a thread has a vector of outputs; `depth` threads have the same one

/// Over the threads of one vector, in a tree; the first of them gets the result.
template <int KIND, int LANES>
KERNEL_INLINE void join_columns(float *total, float *room, int width) {
  const int thread = threadIdx.x;
  __syncthreads();
#pragma unroll
  for (int k = 0; k < LANES; k++) {
    room[k * REDUCE_KERNEL_THREADS + thread] = total[k];
  }
  for (int half = REDUCE_KERNEL_THREADS / 2; half >= width; half /= 2) {
    __syncthreads();
    if (thread < half) {
#pragma unroll
      for (int k = 0; k < LANES; k++) {
        total[k] = join_two<KIND>(total[k], room[k * REDUCE_KERNEL_THREADS + thread + half]);
        room[k * REDUCE_KERNEL_THREADS + thread] = total[k];
      }
    }
  }
}

template <int KIND, class E>
KERNEL_INLINE void run_columns(const reduce_kernel &p, float *room) {
  const int LANES = vector_of<E>::LANES, depth = REDUCE_KERNEL_THREADS / p.columns;
  const int x = threadIdx.x & (p.columns - 1), y = threadIdx.x / p.columns;
  const int begin = (int)(blockIdx.y * p.part) + y, rows = (int)p.count - begin;
  const int count = (int)p.part - y < rows ? (int)p.part - y : rows;
  for (int first = blockIdx.x * p.columns; first < (int)p.vectors; first += gridDim.x * p.columns) {
    const int vector = first + x;
    const bool is_there = vector < (int)p.vectors;
    float total[LANES];
#pragma unroll
    for (int k = 0; k < LANES; k++) {
      total[k] = get_nothing<KIND>();
    }
    if (is_there) {
      fold_vectors<KIND, E>(p.in + find_kept(p, vector, 0) + begin * p.step, count, depth, depth * p.step, total);
    }
    join_columns<KIND, LANES>(total, room, p.columns);
    if (p.splits > 1) {
      float *partials = (float *)p.partials + (int64_t)vector * LANES;
#pragma unroll
      for (int k = 0; k < LANES; k++) {
        if (y == 0 && is_there) {
          partials[blockIdx.y * p.outputs + k] = total[k];
        }
        total[k] = get_nothing<KIND>();
      }
      if (!is_last_part(&p.tickets[blockIdx.x], p.splits)) {
        continue;
      }
      for (int split = y; is_there && split < p.splits; split += depth) {
#pragma unroll
        for (int k = 0; k < LANES; k++) {
          total[k] = join_two<KIND>(total[k], load_fresh(&partials[split * p.outputs + k]));
        }
      }
      join_columns<KIND, LANES>(total, room, p.columns);
    }
    if (y == 0 && is_there) {
      char *to = p.out + find_kept(p, vector, 1);
#pragma unroll
      for (int k = 0; k < LANES; k++) {
        store_float<KIND>(p, to + k * p.out_step, total[k]);
      }
    }
  }
}

/// The kinds that engine/reduce.c sends here.
#define SWITCH_KIND(shape)                    \
  switch (p.kind) {                           \
    case REDUCE_MAX:                          \
      run_##shape<REDUCE_MAX, E>(p, room);    \
      return;                                 \
    case REDUCE_MIN:                          \
      run_##shape<REDUCE_MIN, E>(p, room);    \
      return;                                 \
    case REDUCE_NORM_2:                       \
      run_##shape<REDUCE_NORM_2, E>(p, room); \
      return;                                 \
    default:                                  \
      run_##shape<REDUCE_SUM, E>(p, room);    \
  }
template <class E>
KERNEL_INLINE void switch_rows(const reduce_kernel &p) {
  __shared__ float room[REDUCE_KERNEL_THREADS / 32];
  SWITCH_KIND(rows)
}
template <class E>
KERNEL_INLINE void switch_columns(const reduce_kernel &p) {
  __shared__ float room[vector_of<E>::LANES * REDUCE_KERNEL_THREADS];
  SWITCH_KIND(columns)
}

#define VECTOR_KERNELS(tag, E)                                                                          \
  KERNEL_RESIDENT(REDUCE_KERNEL_THREADS, REDUCE_KERNEL_RESIDENT, reduce_rows_##tag, reduce_kernel) {    \
    switch_rows<E>(p);                                                                                  \
  }                                                                                                     \
  KERNEL_RESIDENT(REDUCE_KERNEL_THREADS, REDUCE_KERNEL_RESIDENT, reduce_columns_##tag, reduce_kernel) { \
    switch_columns<E>(p);                                                                               \
  }
VECTOR_KERNELS(f32, float)
VECTOR_KERNELS(f16, half_bits)
VECTOR_KERNELS(bf16, bfloat_bits)
