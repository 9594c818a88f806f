/// Rotary embedding, and the softmax of scaled and masked rows (formulas: vendors/host/ops/rotary.c, masked_softmax.c).
/// One warp per line.
#include "rotary.h"

#include "pointwise.cuh"

template <class E, class A>
KERNEL_INLINE void run_rotary(const rotary_kernel &p) {
  const int half = p.width / 2, partner = p.is_interleaved ? 1 : half;
  const int64_t warps = (int64_t)gridDim.x * (ROTARY_KERNEL_THREADS / 32);
  for (int64_t line = (int64_t)blockIdx.x * (ROTARY_KERNEL_THREADS / 32) + threadIdx.x / 32; line < p.lines.numel;
       line += warps) {
    int64_t offsets[4];
    find_offsets<4>(p.lines, line, offsets);
    char *out = p.lines.data[0] + offsets[0];
    const char *x = p.lines.data[1] + offsets[1], *c = p.lines.data[2] + offsets[2], *s = p.lines.data[3] + offsets[3];
    for (int i = (int)threadIdx.x % 32; i < half; i += 32) {
      const int at = p.is_interleaved ? 2 * i : i, other = p.is_full ? at + partner : i;
      const A x1 = (A)to_work(*(const E *)(const void *)(x + at * p.steps[1]));
      const A x2 = (A)to_work(*(const E *)(const void *)(x + (at + partner) * p.steps[1]));
      const A c1 = load_as<A>(c + i * p.steps[2], p.cosine_dtype, false);
      const A c2 = load_as<A>(c + other * p.steps[2], p.cosine_dtype, false);
      const A sign = p.is_conj ? (A)-1 : (A)1;
      const A s1 = sign * load_as<A>(s + i * p.steps[3], p.sine_dtype, false);
      const A s2 = sign * load_as<A>(s + other * p.steps[3], p.sine_dtype, false);
      *(E *)(void *)(out + at * p.steps[0]) = element<E>::from(x1 * c1 - x2 * s1);
      *(E *)(void *)(out + (at + partner) * p.steps[0]) = element<E>::from(x1 * s2 + x2 * c2);
    }
  }
}

template <class A>
struct masked_row {
  const uint8_t *mask;
  int64_t step, seen;
  __device__ bool is_masked(int64_t i) const {
    return i >= seen || (mask && mask[i * step]);
  }
};

template <class E, class A>
KERNEL_INLINE void run_masked_softmax(const masked_softmax_kernel &p) {
  const int64_t warps = (int64_t)gridDim.x * (ROTARY_KERNEL_THREADS / 32);
  const int lane = (int)threadIdx.x % 32;
  for (int64_t number = (int64_t)blockIdx.x * (ROTARY_KERNEL_THREADS / 32) + threadIdx.x / 32; number < p.rows;
       number += warps) {
    masked_row<A> row = {p.mask, p.mask_step, p.triangle ? number % p.triangle + 1 : p.length};
    int64_t rest = number;
    for (int dim = 0; dim < p.ndim && p.mask; dim++) {
      row.mask += rest % p.sizes[dim] * p.mask_strides[dim];
      rest /= p.sizes[dim];
    }
    const E *x = (const E *)(const void *)p.x + number * p.length;
    const E *y = (const E *)(const void *)p.y + number * p.length;
    E *out = (E *)(void *)p.out + number * p.length;
    if (p.is_backward) {
      A sum = 0;
      for (int64_t i = lane; i < p.length; i += 32) {
        sum += (A)to_work(x[i]) * (A)to_work(y[i]);
      }
      sum = warp_reduce(sum, join_sum());
      for (int64_t i = lane; i < p.length; i += 32) {
        const A value = (A)p.scale * (A)to_work(y[i]) * ((A)to_work(x[i]) - sum);
        out[i] = element<E>::from(row.is_masked(i) ? (A)0 : value);
      }
      continue;
    }
    A most = -(A)INFINITY, sum = 0;
    for (int64_t i = lane; i < p.length; i += 32) {
      const A score = row.is_masked(i) ? (A)p.masked : (A)to_work(x[i]) * (A)p.scale;
      most = score > most ? score : most;
    }
    most = warp_reduce(most, join_max());
    for (int64_t i = lane; i < p.length; i += 32) {
      sum += exp((row.is_masked(i) ? (A)p.masked : (A)to_work(x[i]) * (A)p.scale) - most);
    }
    sum = warp_reduce(sum, join_sum());
    for (int64_t i = lane; i < p.length; i += 32) {
      const A score = row.is_masked(i) ? (A)p.masked : (A)to_work(x[i]) * (A)p.scale;
      out[i] = element<E>::from(exp(score - most) / sum);
    }
  }
}

#define ROTARY(tag, E, A)                                                                   \
  KERNEL(ROTARY_KERNEL_THREADS, rotary_##tag, rotary_kernel) {                              \
    run_rotary<E, A>(p);                                                                    \
  }                                                                                         \
  KERNEL_BLOCK(ROTARY_KERNEL_THREADS, masked_softmax_##tag, masked_softmax_kernel) {        \
    run_masked_softmax<E, A>(p);                                                            \
  }
ROTARY(f32, float, float)
ROTARY(f64, double, double)
ROTARY(f16, half_bits, float)
ROTARY(bf16, bfloat_bits, float)
