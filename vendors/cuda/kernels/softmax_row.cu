/// Softmax, its logarithm and their gradients over packed rows of whole vectors; float in the registers.
///
/// Rows of up to 64 KB wait in registers (rows.cuh) and are read once; what was raised to a power of e stays there too.
/// Longer rows (the vocabulary of a language model) have a block of 1024 threads and wait in shared memory; the maximum
/// and the sum are found together, so that also a row that does not fit is read only twice; they may begin anywhere.
/// Minus infinity adds nothing; a row of nothing else is NaN, as is one with NaN or infinity in it.
#include "rows.cuh"
#include "softmax.h"

struct larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// What is rounded to a half type needs no last digits.
template <class O>
KERNEL_INLINE float exp_for(float x) {
#ifdef __CUDACC__
  if (sizeof(O) == 2) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504088896340736f));
    return y;
  }
#endif
  return expf(x);
}

#define EACH_VECTOR(u) _Pragma("unroll") for (int u = 0; u < ROW_VECTORS; u++) if (t.lane + u * t.lanes < t.vectors)
#define EACH_LANE(k) _Pragma("unroll") for (int k = 0; k < row<E>::LANES; k++)

/// Results beside inputs of another width: as many elements as an input vector has.
template <class E, class O>
struct result_of {
  typedef pack<O, row<E>::LANES> vector;
};

template <class E, class O>
KERNEL_INLINE void run_row(const softmax_kernel &p) {
  __shared__ float rooms[2][32];
  const int LANES = row<E>::LANES;
  const row_place t = find_row(p.lanes, (int)(p.length / LANES));
  const bool is_there = t.number < p.lines.numel;
  float e[ROW_VECTORS][LANES], largest = -INFINITY, sum = 0;
  {
    typename row<E>::vector x[ROW_VECTORS];
    if (is_there) {
      load_row<E>(t, p.lines.data[1], x);
    }
    EACH_VECTOR(u) {
      EACH_LANE(k) {
        e[u][k] = to_work(x[u].value[k]);
        largest = fmaxf(largest, e[u][k]);
      }
    }
  }
  largest = join_row(t, largest, -INFINITY, rooms[0], larger());
  EACH_VECTOR(u) {
    EACH_LANE(k) {
      const float power = exp_for<O>(e[u][k] - largest);
      sum += power;
      e[u][k] = p.is_log ? e[u][k] : power;
    }
  }
  sum = join_row(t, sum, 0.0f, rooms[1], join_sum());
  if (!is_there) {
    return;
  }
  const float shift = p.is_log ? largest + logf(sum) : 1 / sum;
  typename result_of<E, O>::vector *out = (typename result_of<E, O>::vector *)(void *)p.lines.data[0];
  EACH_VECTOR(u) {
    typename result_of<E, O>::vector y;
    EACH_LANE(k) {
      y.value[k] = element<O>::from(p.is_log ? e[u][k] - shift : e[u][k] * shift);
    }
    out[t.number * t.vectors + t.lane + u * t.lanes] = y;
  }
}

template <class E>
KERNEL_INLINE void run_row_gradient(const softmax_kernel &p) {
  __shared__ float room[32];
  const row_place t = find_row(p.lanes, (int)(p.length / row<E>::LANES));
  const bool is_there = t.number < p.lines.numel;
  typename row<E>::vector y[ROW_VECTORS], grad[ROW_VECTORS];
  float sum = 0;
  if (is_there) {
    load_row<E>(t, p.lines.data[1], y);
    load_row<E>(t, p.lines.data[2], grad);
  }
  EACH_VECTOR(u) {
    EACH_LANE(k) {
      sum += to_work(grad[u].value[k]) * (p.is_log ? 1.0f : to_work(y[u].value[k]));
    }
  }
  sum = join_row(t, sum, 0.0f, room, join_sum());
  if (!is_there) {
    return;
  }
  typename row<E>::vector *out = (typename row<E>::vector *)(void *)p.lines.data[0];
  EACH_VECTOR(u) {
    EACH_LANE(k) {
      const float g = to_work(grad[u].value[k]), x = to_work(y[u].value[k]);
      y[u].value[k] = element<E>::from(p.is_log ? g - exp_for<E>(x) * sum : (g - sum) * x);
    }
    out[t.number * t.vectors + t.lane + u * t.lanes] = y[u];
  }
}

// Long rows

#define LONG_STEP (SOFTMAX_KERNEL_LONG * ROW_VECTORS)

/// A row that need not begin at a vector, nor end with one: single elements before and after its whole vectors, of
/// which a thread has at most one.
struct long_row {
  int64_t head, extra;  ///< elements before the vectors; this thread's single one, or -1
  int vectors;
  __device__ long_row(const void *data, int64_t length, int width) {
    const int lanes = 16 / width, place = (int)threadIdx.x - 32;
    head = (int)(-(uintptr_t)data % 16) / width;
    vectors = (int)((length - head) / lanes);
    const int64_t rest = head + (int64_t)vectors * lanes;
    extra = place < 0 ? (threadIdx.x < head ? (int64_t)threadIdx.x : -1) : (rest + place < length ? rest + place : -1);
  }
};

/// A thread's vectors from `first` on, every 1024th: how many there are.
KERNEL_INLINE int count_vectors(int first, int vectors) {
  return first >= vectors ? 0 : (vectors - first + SOFTMAX_KERNEL_LONG - 1) / SOFTMAX_KERNEL_LONG;
}

template <class E, class O>
KERNEL_INLINE void run_long(const softmax_kernel &p) {
  __shared__ float rooms[2][33];
  typedef typename row<E>::vector vector;
  typedef typename result_of<E, O>::vector result;
  SHARED_MEMORY(vector, cache);
  for (int64_t number = blockIdx.x; number < p.lines.numel; number += gridDim.x) {
    const E *from = (const E *)(const void *)p.lines.data[1] + number * p.length;
    O *to = (O *)(void *)p.lines.data[0] + number * p.length;
    const long_row line(from, p.length, sizeof(E));
    const vector *in = (const vector *)(const void *)(from + line.head);
    const float single = line.extra >= 0 ? (float)to_work(from[line.extra]) : -INFINITY;
    float largest = fmaxf(single, -INFINITY), sum = exp_for<O>(single - (largest == -INFINITY ? 0 : largest));
    for (int first = threadIdx.x; first < line.vectors; first += LONG_STEP) {
      const int count = count_vectors(first, line.vectors);
      vector x[ROW_VECTORS];
      float most = largest;
#pragma unroll
      for (int u = 0; u < ROW_VECTORS; u++) {
        if (u < count) {
          x[u] = in[first + u * SOFTMAX_KERNEL_LONG];
        }
      }
#pragma unroll
      for (int u = 0; u < ROW_VECTORS; u++) {
        EACH_LANE(k) {
          most = u < count ? fmaxf(most, to_work(x[u].value[k])) : most;
        }
      }
      // nothing but minus infinity so far: there is nothing to add
      const float base = most == -INFINITY ? 0 : most;
      sum *= exp_for<O>(largest - base);
      largest = most;
#pragma unroll
      for (int u = 0; u < ROW_VECTORS; u++) {
        if (u < count) {
          EACH_LANE(k) {
            sum += exp_for<O>(to_work(x[u].value[k]) - base);
          }
          if (p.is_cached) {
            cache[first + u * SOFTMAX_KERNEL_LONG] = x[u];
          }
        }
      }
    }
    const float all = block_reduce(largest, -INFINITY, rooms[0], larger());
    sum = block_reduce(largest == -INFINITY ? sum : sum * exp_for<O>(largest - all), 0.0f, rooms[1], join_sum());
    const float shift = p.is_log ? all + logf(sum) : 1 / sum;
    result *out = (result *)(void *)(to + line.head);
#pragma unroll 2
    for (int i = threadIdx.x; i < line.vectors; i += SOFTMAX_KERNEL_LONG) {
      const vector x = p.is_cached ? cache[i] : in[i];
      result y;
      EACH_LANE(k) {
        const float v = to_work(x.value[k]);
        y.value[k] = element<O>::from(p.is_log ? v - shift : exp_for<O>(v - all) * shift);
      }
      out[i] = y;
    }
    if (line.extra >= 0) {
      to[line.extra] = element<O>::from(p.is_log ? single - shift : exp_for<O>(single - all) * shift);
    }
  }
}

template <class E>
KERNEL_INLINE float get_slope(const softmax_kernel &p, E result, E gradient, float sum) {
  const float y = to_work(result), g = to_work(gradient);
  return p.is_log ? g - exp_for<E>(y) * sum : (g - sum) * y;
}

template <class E>
KERNEL_INLINE void run_long_gradient(const softmax_kernel &p) {
  __shared__ float room[33];
  typedef typename row<E>::vector vector;
  SHARED_MEMORY(vector, cache);
  for (int64_t number = blockIdx.x; number < p.lines.numel; number += gridDim.x) {
    const E *result = (const E *)(const void *)p.lines.data[1] + number * p.length;
    const E *gradient = (const E *)(const void *)p.lines.data[2] + number * p.length;
    E *to = (E *)(void *)p.lines.data[0] + number * p.length;
    const long_row line(result, p.length, sizeof(E));
    const vector *out = (const vector *)(const void *)(result + line.head);
    const vector *grad = (const vector *)(const void *)(gradient + line.head);
    float sum = 0;
    if (line.extra >= 0) {
      sum = to_work(gradient[line.extra]) * (p.is_log ? 1.0f : to_work(result[line.extra]));
    }
    for (int first = threadIdx.x; first < line.vectors; first += LONG_STEP) {
      const int count = count_vectors(first, line.vectors);
      vector y[ROW_VECTORS], g[ROW_VECTORS];
#pragma unroll
      for (int u = 0; u < ROW_VECTORS; u++) {
        if (u < count) {
          g[u] = grad[first + u * SOFTMAX_KERNEL_LONG];
          if (!p.is_log) {
            y[u] = out[first + u * SOFTMAX_KERNEL_LONG];
          }
        }
      }
#pragma unroll
      for (int u = 0; u < ROW_VECTORS; u++) {
        if (u < count) {
          EACH_LANE(k) {
            sum += to_work(g[u].value[k]) * (p.is_log ? 1.0f : to_work(y[u].value[k]));
          }
          if (p.is_cached) {
            cache[first + u * SOFTMAX_KERNEL_LONG] = g[u];
          }
        }
      }
    }
    sum = block_reduce(sum, 0.0f, room, join_sum());
#pragma unroll 4
    for (int i = threadIdx.x; i < line.vectors; i += SOFTMAX_KERNEL_LONG) {
      const vector y = out[i], g = p.is_cached ? cache[i] : grad[i];
      vector slope;
      EACH_LANE(k) {
        slope.value[k] = element<E>::from(get_slope<E>(p, y.value[k], g.value[k], sum));
      }
      ((vector *)(void *)(to + line.head))[i] = slope;
    }
    if (line.extra >= 0) {
      to[line.extra] = element<E>::from(get_slope<E>(p, result[line.extra], gradient[line.extra], sum));
    }
  }
}

#define FORWARD(tag, E, O)                                                \
  KERNEL_BLOCK(ROW_THREADS, softmax_row_##tag, softmax_kernel) {          \
    run_row<E, O>(p);                                                     \
  }                                                                       \
  KERNEL_BLOCK(SOFTMAX_KERNEL_LONG, softmax_long_##tag, softmax_kernel) { \
    run_long<E, O>(p);                                                    \
  }
FORWARD(f32, float, float)
FORWARD(f16, half_bits, half_bits)
FORWARD(bf16, bfloat_bits, bfloat_bits)
FORWARD(f16_f32, half_bits, float)
FORWARD(bf16_f32, bfloat_bits, float)
#define GRADIENT(tag, E)                                                           \
  KERNEL_BLOCK(ROW_THREADS, softmax_row_gradient_##tag, softmax_kernel) {          \
    run_row_gradient<E>(p);                                                        \
  }                                                                                \
  KERNEL_BLOCK(SOFTMAX_KERNEL_LONG, softmax_long_gradient_##tag, softmax_kernel) { \
    run_long_gradient<E>(p);                                                       \
  }
GRADIENT(f32, float)
GRADIENT(f16, half_bits)
GRADIENT(bf16, bfloat_bits)
