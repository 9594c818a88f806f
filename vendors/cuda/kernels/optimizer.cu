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

// Lists of tensors: one launch for many, step counts stay on the device

template <class F>
KERNEL_INLINE void apply_step(const typename F::type *numbers, typename F::type (*before)[1],
                              typename F::type (*after)[1], typename F::type grad) {
  typename F::type param = before[0][0];
  F::apply(numbers, param, grad, before, after);
  after[0][0] = param;
}

template <class F>
KERNEL_INLINE void run_step_vectors(const step_tensor &tensor, const typename F::type *numbers, int64_t begin,
                                    int64_t end) {
  typedef typename F::type T;
  constexpr int V = 16 / sizeof(T);
  for (int64_t i = begin + (int64_t)threadIdx.x * V; i + V <= end; i += POINTWISE_KERNEL_THREADS * V) {
    pack<T, V> in[F::states + 1], out[F::states];
#pragma unroll
    for (int k = 0; k <= F::states; k++) {
      in[k] = *(const pack<T, V> *)(const void *)((const T *)(const void *)tensor.data[k] + i);
    }
#pragma unroll
    for (int lane = 0; lane < V; lane++) {
      T before[4][1], after[4][1];
#pragma unroll
      for (int k = 0; k < F::states; k++) {
        before[k][0] = in[k].value[lane];
      }
      apply_step<F>(numbers, before, after, in[F::states].value[lane]);
#pragma unroll
      for (int k = 0; k < F::states; k++) {
        out[k].value[lane] = after[k][0];
      }
    }
#pragma unroll
    for (int k = 0; k < F::states; k++) {
      *(pack<T, V> *)(void *)((T *)(void *)tensor.data[k] + i) = out[k];
    }
  }
}

template <class F>
KERNEL_INLINE void run_step_elements(const step_tensor &tensor, const typename F::type *numbers, int64_t begin,
                                     int64_t end) {
  typedef typename F::type T;
  for (int64_t i = begin + threadIdx.x; i < end; i += POINTWISE_KERNEL_THREADS) {
    T before[4][1], after[4][1];
#pragma unroll
    for (int k = 0; k < F::states; k++) {
      before[k][0] = load_as<T>(tensor.data[k] + i * dtype_width(tensor.dtype[k]), tensor.dtype[k], false);
    }
    const int dtype = tensor.dtype[F::states];
    apply_step<F>(numbers, before, after, load_as<T>(tensor.data[F::states] + i * dtype_width(dtype), dtype, false));
#pragma unroll
    for (int k = 0; k < F::states; k++) {
      store_as(tensor.data[k] + i * dtype_width(tensor.dtype[k]), tensor.dtype[k], after[k][0]);
    }
  }
}

template <class F>
KERNEL_INLINE void run_step_list(const step_list &p) {
  typedef typename F::type T;
  __shared__ T numbers[12];
  int place = 0;
  while (place + 1 < p.count && p.first[place + 1] <= (int)blockIdx.x) {
    place++;
  }
  const step_tensor &tensor = p.tensors[place];
  if (threadIdx.x < 12) {
    const double t = load_as<double>(tensor.count, tensor.count_dtype, false);
    numbers[threadIdx.x] = (T)(threadIdx.x == ADAM_STEP   ? ADAM_GET_STEP(p.lr, p.beta1, t)
                               : threadIdx.x == ADAM_ROOT ? ADAM_GET_ROOT(p.beta2, t)
                                                          : p.numbers[threadIdx.x]);
  }
  __syncthreads();
  const int64_t begin = (int64_t)((int)blockIdx.x - p.first[place]) * STEP_LIST_CHUNK;
  const int64_t end = begin + STEP_LIST_CHUNK < tensor.numel ? begin + STEP_LIST_CHUNK : tensor.numel;
  constexpr int V = 16 / sizeof(T);
  const int64_t whole = tensor.is_plain ? begin + (end - begin) / V * V : begin;
  run_step_vectors<F>(tensor, numbers, begin, whole);
  run_step_elements<F>(tensor, numbers, whole, end);
}

#define STEP_LIST(name)                                                               \
  KERNEL_BLOCK(POINTWISE_KERNEL_THREADS, optimizer_list_##name, step_list) {          \
    run_step_list<step_##name>(p);                                                    \
  }
STEP_LIST(adam_f32)
STEP_LIST(adam_f64)
STEP_LIST(amsgrad_f32)
STEP_LIST(amsgrad_f64)
