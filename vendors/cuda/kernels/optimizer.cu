/// The kernels of vendors/host/ops/optimizer_expressions.h: `_v` all float32 (or float64) and contiguous, `_s` any floating
/// dtypes and strides.
#include "step.h"

#include "pointwise.cuh"

#ifdef __CUDACC__
#pragma nv_diag_suppress 550  // a step need not look at all states
#endif

#define STEP_TYPED(name, tag, type_, states_, statements)                                                \
  struct step_##name##_##tag {                                                                           \
    typedef type_ type;                                                                                  \
    static constexpr int states = states_;                                                               \
    static __device__ void apply(const type *n, type &param, type grad, type (*p)[1], type (*o)[1]) {    \
      const int i = 0;                                                                                   \
      type *p1 = p[1], *p2 = p[2], *p3 = p[3], *o1 = o[1], *o2 = o[2], *o3 = o[3];                       \
      (void)i, (void)p1, (void)p2, (void)p3, (void)o1, (void)o2, (void)o3;                               \
      statements                                                                                         \
    }                                                                                                    \
  };                                                                                                     \
  LOOP_KERNEL(name##_##tag, _v, step_flat) {                                                             \
    run_step_flat<step_##name##_##tag>(p);                                                               \
  }                                                                                                      \
  LOOP_KERNEL(name##_##tag, _s, step_strided) {                                                          \
    run_step_strided<step_##name##_##tag>(p);                                                            \
  }
#define LOOP_STEP(name, states, ...)                  \
  STEP_TYPED(name, f32, float, states, __VA_ARGS__)   \
  STEP_TYPED(name, f64, double, states, __VA_ARGS__)

template <class F>
KERNEL_INLINE void run_step_flat(const step_flat &p) {
  typedef typename F::type T;
  const T *numbers = (const T *)(const void *)p.numbers;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    T before[4][1], after[4][1];
#pragma unroll
    for (int k = 0; k < F::states; k++) {
      before[k][0] = ((const T *)(const void *)p.data[k])[i];
    }
    T param = before[0][0];
    F::apply(numbers, param, ((const T *)(const void *)p.data[F::states])[i], before, after);
    after[0][0] = param;
#pragma unroll
    for (int k = 0; k < F::states; k++) {
      ((T *)(void *)p.data[k])[i] = after[k][0];
    }
  }
}

template <class F>
KERNEL_INLINE void run_step_strided(const step_strided &p) {
  typedef typename F::type T;
  const T *numbers = (const T *)(const void *)p.numbers;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.numel; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t offsets[F::states + 1] = {}, rest = i;
    for (int dim = 0; dim < p.ndim; dim++) {
      const int64_t place = rest % p.sizes[dim];
      rest /= p.sizes[dim];
      for (int k = 0; k <= F::states; k++) {
        offsets[k] += place * p.strides[dim][k];
      }
    }
    T before[4][1], after[4][1];
    for (int k = 0; k < F::states; k++) {
      before[k][0] = load_as<T>(p.data[k] + offsets[k], p.dtype[k], false);
    }
    T param = before[0][0];
    F::apply(numbers, param, load_as<T>(p.data[F::states] + offsets[F::states], p.dtype[F::states], false), before,
             after);
    after[0][0] = param;
    for (int k = 0; k < F::states; k++) {
      store_as(p.data[k] + offsets[k], p.dtype[k], after[k][0]);
    }
  }
}

#include "ops/optimizer_expressions.h"
