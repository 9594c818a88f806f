/// Losses between elements (formulas: vendors/host/ops/loss_expressions.h). Sums are taken per block, then by one block
/// over those, in a fixed order.
#include "loss.h"

#include "math.cuh"
#include "ops/loss_kinds.h"
#include "pointwise.cuh"

#define REAL float
#define NAME(x) x##_f32
#define EXP exp_f32
#define LOG1P log1p_f32
#define LOG log_f32
#define FABS fabsf
#define POW powf
#include "ops/loss_expressions.h"
#undef REAL
#undef NAME
#undef EXP
#undef LOG1P
#undef LOG
#undef FABS
#undef POW
#define REAL double
#define NAME(x) x##_f64
#define EXP exp
#define LOG1P log1p
#define LOG log
#define FABS fabs
#define POW pow
#include "ops/loss_expressions.h"

/// A probability outside [0, 1] stops the device, as in PyTorch.
template <class A>
KERNEL_INLINE A check_probability(A x) {
  if (!(x >= 0 && x <= 1)) {
    __trap();
  }
  return x;
}

#define LOSS_OF(A, suffix)                                                            \
  KERNEL_INLINE A get_loss(const loss_kernel &p, A x, A t, A q) {                     \
    const A a = (A)p.a, b = (A)p.b;                                                   \
    switch (p.kind) {                                                                 \
      case LOSS_MSE:                                                                  \
        return mse_of_##suffix(x, t);                                                 \
      case LOSS_SMOOTH_L1:                                                            \
        return smooth_##suffix(x - t, a);                                             \
      case LOSS_BCE:                                                                  \
        return entropy_##suffix(check_probability(x), t);                             \
      case LOSS_LOGITS:                                                               \
        return logits_of_##suffix(x, t);                                              \
      case LOSS_WEIGHTED_LOGITS:                                                      \
        return weighted_of_##suffix(x, t, q);                                         \
      default:                                                                        \
        return focal_##suffix(x, t, a, b);                                            \
    }                                                                                 \
  }                                                                                   \
  KERNEL_INLINE A get_slope(const loss_kernel &p, A x, A t, A q) {                    \
    const A a = (A)p.a, b = (A)p.b;                                                   \
    switch (p.kind) {                                                                 \
      case LOSS_MSE:                                                                  \
        return mse_slope_of_##suffix(x, t);                                           \
      case LOSS_SMOOTH_L1:                                                            \
        return smooth_slope_##suffix(x - t, a);                                       \
      case LOSS_BCE:                                                                  \
        return entropy_slope_##suffix(x, t);                                          \
      case LOSS_LOGITS:                                                               \
        return logits_slope_of_##suffix(x, t);                                        \
      case LOSS_WEIGHTED_LOGITS:                                                      \
        return weighted_slope_of_##suffix(x, t, q);                                   \
      default:                                                                        \
        return focal_slope_##suffix(x, t, a, b);                                      \
    }                                                                                 \
  }
LOSS_OF(float, f32)
LOSS_OF(double, f64)

enum { OUT, X, TARGET, WEIGHT, POS_WEIGHT, GRAD };

template <class A>
KERNEL_INLINE A get_operand(const loss_kernel &p, const int64_t *offsets, int i) {
  return p.data[i] ? load_as<A>(p.data[i] + offsets[i], p.dtype[i], false) : (A)1;
}
template <class A>
KERNEL_INLINE A compute(const loss_kernel &p, const int64_t *offsets) {
  const A x = get_operand<A>(p, offsets, X), t = get_operand<A>(p, offsets, TARGET);
  const A q = get_operand<A>(p, offsets, POS_WEIGHT);
  A result = p.is_backward ? get_slope(p, x, t, q) : get_loss(p, x, t, q);
  if (p.data[WEIGHT]) {
    result *= get_operand<A>(p, offsets, WEIGHT);
  }
  return p.is_backward ? result * (get_operand<A>(p, offsets, GRAD) * (A)p.scale) : result;
}

template <class A>
KERNEL_INLINE void map(const loss_kernel &p) {
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t offsets[LOSS_KERNEL_OPERANDS];
    find_offsets<LOSS_KERNEL_OPERANDS>(p, i, offsets);
    store_as(p.data[OUT] + offsets[OUT], p.dtype[OUT], compute<A>(p, offsets));
  }
}
template <class A>
KERNEL_INLINE void sum(const loss_kernel &p) {
  __shared__ double room[33];
  double total = 0;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t offsets[LOSS_KERNEL_OPERANDS];
    find_offsets<LOSS_KERNEL_OPERANDS>(p, i, offsets);
    total += (double)compute<A>(p, offsets);
  }
  total = block_reduce(total, 0.0, room, join_sum());
  if (threadIdx.x == 0) {
    p.partials[blockIdx.x] = total;
  }
}
KERNEL(LOSS_KERNEL_THREADS, loss_map_f32, loss_kernel) {
  map<float>(p);
}
KERNEL(LOSS_KERNEL_THREADS, loss_map_f64, loss_kernel) {
  map<double>(p);
}
KERNEL_BLOCK(LOSS_KERNEL_THREADS, loss_sum_f32, loss_kernel) {
  sum<float>(p);
}
KERNEL_BLOCK(LOSS_KERNEL_THREADS, loss_sum_f64, loss_kernel) {
  sum<double>(p);
}
KERNEL_BLOCK(LOSS_KERNEL_THREADS, loss_join, loss_kernel) {
  __shared__ double room[33];
  double total = 0;
  for (int i = threadIdx.x; i < p.blocks; i += blockDim.x) {
    total += p.partials[i];
  }
  total = block_reduce(total, 0.0, room, join_sum());
  if (threadIdx.x == 0) {
    store_as(p.data[OUT], p.dtype[OUT], p.is_mean ? total / (double)p.numel : total);
  }
}
