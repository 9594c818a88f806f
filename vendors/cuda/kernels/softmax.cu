/// Softmax and its logarithm along one dimension, and their gradients.
///
/// A block has 256 / columns threads for each of `columns` lines. The forward reads a line twice: once for maximum and
/// sum together, once to write. Minus infinity adds nothing; a line of nothing else is NaN, as in PyTorch.
#include "softmax.h"

#include "pointwise.cuh"

KERNEL_INLINE float exp_of(float x) {
  return expf(x);
}
KERNEL_INLINE double exp_of(double x) {
  return exp(x);
}
KERNEL_INLINE float log_of(float x) {
  return logf(x);
}
KERNEL_INLINE double log_of(double x) {
  return log(x);
}

template <class A>
struct running {
  A largest, sum;
};
template <class A>
KERNEL_INLINE A get_factor(A from, A to) {
  return from == to ? (A)1 : exp_of(from - to);
}
template <class A>
KERNEL_INLINE running<A> join_running(running<A> a, running<A> b) {
  running<A> result;
  result.largest = a.largest > b.largest ? a.largest : b.largest;
  result.sum = a.sum * get_factor(a.largest, result.largest) + b.sum * get_factor(b.largest, result.largest);
  return result;
}

struct place {
  int lane, lanes, slot, column;
};
KERNEL_INLINE place find_thread(const softmax_kernel &p) {
  place t;
  t.lanes = SOFTMAX_KERNEL_THREADS / p.columns;
  t.column = p.is_column ? threadIdx.x % p.columns : threadIdx.x / t.lanes;
  t.lane = p.is_column ? threadIdx.x / p.columns : threadIdx.x % t.lanes;
  t.slot = t.column * t.lanes + t.lane;
  return t;
}

template <class E, class O, class A>
KERNEL_INLINE void run_forward(const softmax_kernel &p) {
  __shared__ running<A> room[SOFTMAX_KERNEL_THREADS];
  const place t = find_thread(p);
  for (int64_t first = (int64_t)blockIdx.x * p.columns; first < p.lines.numel;
       first += (int64_t)gridDim.x * p.columns) {
    int64_t offsets[2] = {0, 0};
    const bool active = first + t.column < p.lines.numel;
    if (active) {
      find_offsets<2>(p.lines, first + t.column, offsets);
    }
    const char *in = p.lines.data[1] + offsets[1];
    running<A> own = {-(A)INFINITY, (A)0};
    for (int64_t i = t.lane; active && i < p.length; i += t.lanes) {
      const A x = (A)to_work(*(const E *)(const void *)(in + i * p.steps[1]));
      if (x != -(A)INFINITY) {
        const A largest = x > own.largest ? x : own.largest;
        own.sum = own.sum * get_factor(own.largest, largest) + exp_of(x - largest);
        own.largest = largest;
      }
    }
    __syncthreads();
    room[t.slot] = own;
    for (int half = t.lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (t.lane < half) {
        room[t.slot] = join_running(room[t.slot], room[t.slot + half]);
      }
    }
    __syncthreads();
    const running<A> all = room[t.column * t.lanes];
    const A shift = p.is_log ? log_of(all.sum) : (A)1 / all.sum;
    for (int64_t i = t.lane; active && i < p.length; i += t.lanes) {
      const A x = (A)to_work(*(const E *)(const void *)(in + i * p.steps[1])) - all.largest;
      *(O *)(void *)(p.lines.data[0] + offsets[0] + i * p.steps[0]) =
          element<O>::from(p.is_log ? x - shift : exp_of(x) * shift);
    }
  }
}

template <class E, class A>
KERNEL_INLINE void run_gradient(const softmax_kernel &p) {
  __shared__ A room[SOFTMAX_KERNEL_THREADS];
  const place t = find_thread(p);
  for (int64_t first = (int64_t)blockIdx.x * p.columns; first < p.lines.numel;
       first += (int64_t)gridDim.x * p.columns) {
    int64_t offsets[3] = {0, 0, 0};
    const bool active = first + t.column < p.lines.numel;
    if (active) {
      find_offsets<3>(p.lines, first + t.column, offsets);
    }
    const char *out = p.lines.data[1] + offsets[1], *grad = p.lines.data[2] + offsets[2];
    A total = 0;
    for (int64_t i = t.lane; active && i < p.length; i += t.lanes) {
      const A g = (A)to_work(*(const E *)(const void *)(grad + i * p.steps[2]));
      total += p.is_log ? g : g * (A)to_work(*(const E *)(const void *)(out + i * p.steps[1]));
    }
    __syncthreads();
    room[t.slot] = total;
    for (int half = t.lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (t.lane < half) {
        room[t.slot] += room[t.slot + half];
      }
    }
    __syncthreads();
    const A sum = room[t.column * t.lanes];
    for (int64_t i = t.lane; active && i < p.length; i += t.lanes) {
      const A g = (A)to_work(*(const E *)(const void *)(grad + i * p.steps[2]));
      const A y = (A)to_work(*(const E *)(const void *)(out + i * p.steps[1]));
      *(E *)(void *)(p.lines.data[0] + offsets[0] + i * p.steps[0]) =
          element<E>::from(p.is_log ? g - exp_of(y) * sum : (g - sum) * y);
    }
  }
}

#define FORWARD(name, E, O, A)                                \
  KERNEL_BLOCK(SOFTMAX_KERNEL_THREADS, name, softmax_kernel) { \
    run_forward<E, O, A>(p);                                  \
  }
FORWARD(softmax_f32, float, float, float)
FORWARD(softmax_f64, double, double, double)
FORWARD(softmax_f16, half_bits, half_bits, float)
FORWARD(softmax_bf16, bfloat_bits, bfloat_bits, float)
FORWARD(softmax_f16_f32, half_bits, float, float)
FORWARD(softmax_bf16_f32, bfloat_bits, float, float)
#define GRADIENT(name, E, A)                                  \
  KERNEL_BLOCK(SOFTMAX_KERNEL_THREADS, name, softmax_kernel) { \
    run_gradient<E, A>(p);                                    \
  }
GRADIENT(softmax_gradient_f32, float, float)
GRADIENT(softmax_gradient_f64, double, double)
GRADIENT(softmax_gradient_f16, half_bits, float)
GRADIENT(softmax_gradient_bf16, bfloat_bits, float)
