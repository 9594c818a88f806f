/// Losses of class numbers (formulas: vendors/host/ops/loss_class.c): log-softmax, the loss and its gradient at once.
///
/// A point has one thread (classes far apart: neighbouring points are neighbours in memory), a warp or a block. Sums
/// are in double and in a fixed order.
#include "kernel.cuh"
#include "loss.h"
#include "math.cuh"

KERNEL_INLINE float exp_of(float x) {
  return expf(x);
}
KERNEL_INLINE double exp_of(double x) {
  return exp(x);
}

template <class T, class Join>
KERNEL_INLINE T join_lanes(const class_kernel &p, T value, T identity, T *room, Join join) {
  return p.lanes == 1 ? value : p.lanes == 32 ? warp_reduce(value, join) : block_reduce(value, identity, room, join);
}

/// The classes of one point.
template <class E, class A>
struct point_line {
  const E *x;
  int64_t offset;
  A top, lost;  ///< log-softmax = x - top - lost
  __device__ A get(const class_kernel &p, int64_t c) const { return (A)to_work(x[offset + c * p.inner]) - top - lost; }
};

KERNEL_INLINE double get_weight(const class_kernel &p, int64_t c) {
  return p.weight ? load_as<double>(p.weight + c * dtype_width(p.weight_dtype), p.weight_dtype, false) : 1.0;
}
KERNEL_INLINE double get_share(const class_kernel &p, int64_t at) {
  const double t = load_as<double>(p.target + at * dtype_width(p.target_dtype), p.target_dtype, false);
  return t * (1 - p.smoothing) + p.smoothing / (double)p.classes;
}
/// -1 where the point does not count.
KERNEL_INLINE int64_t get_target(const class_kernel &p, int64_t point) {
  const int64_t t = load_as<int64_t>(p.target + point * dtype_width(p.target_dtype), p.target_dtype, false);
  if (t != p.ignored && (t < 0 || t >= p.classes)) {
    __trap();
    return -1;
  }
  return t == p.ignored ? -1 : t;
}

template <class E, class A>
KERNEL_INLINE point_line<E, A> open_point(const class_kernel &p, int64_t point, int lane, A *room, double *sums) {
  point_line<E, A> line = {(const E *)(const void *)p.x, point / p.inner * p.classes * p.inner + point % p.inner, 0, 0};
  if (p.has_softmax) {
    A top = -(A)INFINITY;
    for (int64_t c = lane; c < p.classes; c += p.lanes) {
      top = join_max()((A)to_work(line.x[line.offset + c * p.inner]), top);
    }
    line.top = join_lanes(p, top, -(A)INFINITY, room, join_max());
    double total = 0;
    for (int64_t c = lane; c < p.classes; c += p.lanes) {
      total += (double)exp_of((A)to_work(line.x[line.offset + c * p.inner]) - line.top);
    }
    line.lost = (A)log(join_lanes(p, total, 0.0, sums, join_sum()));
  }
  return line;
}

/// Loss and weight of one point, known to all of its lanes.
template <class E, class A>
KERNEL_INLINE void get_loss(const class_kernel &p, int64_t point, int lane, A *room, double *sums, double *loss,
                            double *weight) {
  const point_line<E, A> line = open_point<E, A>(p, point, lane, room, sums);
  const bool needs_all = p.has_probabilities || p.smoothing > 0;
  double total = 0;
  for (int64_t c = lane; needs_all && c < p.classes; c += p.lanes) {
    const double share = p.has_probabilities ? get_share(p, line.offset + c * p.inner) : 1;
    total -= get_weight(p, c) * share * (double)line.get(p, c);
  }
  total = needs_all ? join_lanes(p, total, 0.0, sums, join_sum()) : 0;
  *loss = total;
  *weight = 1;
  if (!p.has_probabilities) {
    const int64_t target = get_target(p, point);
    *loss = *weight = 0;
    if (target >= 0) {
      *weight = get_weight(p, target);
      *loss = -*weight * (double)line.get(p, target);
      *loss = p.smoothing > 0 ? (1 - p.smoothing) * *loss + p.smoothing / (double)p.classes * total : *loss;
    }
  }
}

template <class E, class A>
KERNEL_INLINE void run_losses(const class_kernel &p) {
  __shared__ A room[33];
  __shared__ double sums[33];
  const int lane = threadIdx.x % p.lanes, group = threadIdx.x / p.lanes, groups = blockDim.x / p.lanes;
  double total = 0, weights = 0;
  // all threads of a block go round equally often
  for (int64_t first = (int64_t)blockIdx.x * groups; first < p.points; first += (int64_t)gridDim.x * groups) {
    const int64_t point = first + group < p.points ? first + group : p.points - 1;
    double loss, weight;
    get_loss<E, A>(p, point, lane, room, sums, &loss, &weight);
    if (lane == 0 && first + group < p.points) {
      total += loss;
      weights += weight;
      if (!p.is_reduced) {
        store_as(p.out + point * dtype_width(p.out_dtype), p.out_dtype, loss);
      }
    }
  }
  total = block_reduce(total, 0.0, sums, join_sum());
  weights = block_reduce(weights, 0.0, sums, join_sum());
  if (threadIdx.x == 0 && p.partials) {
    p.partials[2 * blockIdx.x] = total;
    p.partials[2 * blockIdx.x + 1] = weights;
  }
}

/// One block: the result of a mean or sum, and the sum of weights.
KERNEL_BLOCK(LOSS_KERNEL_THREADS, class_join, class_kernel) {
  __shared__ double sums[33];
  double total = 0, weights = 0;
  for (int i = threadIdx.x; i < p.blocks; i += blockDim.x) {
    total += p.partials[2 * i];
    weights += p.partials[2 * i + 1];
  }
  total = block_reduce(total, 0.0, sums, join_sum());
  weights = block_reduce(weights, 0.0, sums, join_sum());
  if (threadIdx.x == 0) {
    if (p.out) {
      store_as(p.out, p.out_dtype, p.is_mean ? total / weights : total);
    }
    if (p.total) {
      store_as(p.total, p.total_dtype, weights);
    }
  }
}

/// Sum of the weights of the points that count, per block.
KERNEL_BLOCK(LOSS_KERNEL_THREADS, class_weights, class_kernel) {
  __shared__ double sums[33];
  double weights = 0;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.points; i += (int64_t)gridDim.x * blockDim.x) {
    const int64_t target = get_target(p, i);
    weights += target >= 0 ? get_weight(p, target) : 0;
  }
  weights = block_reduce(weights, 0.0, sums, join_sum());
  if (threadIdx.x == 0) {
    p.partials[2 * blockIdx.x] = 0;
    p.partials[2 * blockIdx.x + 1] = weights;
  }
}

/// One block: a class number that is not valid, or ignored where there is none.
KERNEL_BLOCK(LOSS_KERNEL_THREADS, class_check, class_kernel) {
  __shared__ int64_t room[33];
  int64_t wrong = INT64_MIN;
  for (int64_t i = threadIdx.x; i < p.points; i += blockDim.x) {
    const int64_t t = load_as<int64_t>(p.target + i * dtype_width(p.target_dtype), p.target_dtype, false);
    wrong = t != p.ignored && (t < 0 || t >= p.classes) ? t : wrong;
  }
  wrong = block_reduce(wrong, (int64_t)INT64_MIN, room, join_max());
  if (threadIdx.x == 0) {
    *p.wrong = wrong == INT64_MIN ? p.ignored : wrong;
  }
}

template <class E, class A>
KERNEL_INLINE void run_gradients(const class_kernel &p) {
  __shared__ A room[33];
  __shared__ double sums[33];
  const int lane = threadIdx.x % p.lanes, group = threadIdx.x / p.lanes, groups = blockDim.x / p.lanes;
  const double even = p.smoothing / (double)p.classes;
  double scale = 1;
  if (p.is_mean) {
    scale = 1 / (p.total ? load_as<double>(p.total, p.total_dtype, false) : (double)p.points);
  }
  for (int64_t first = (int64_t)blockIdx.x * groups; first < p.points; first += (int64_t)gridDim.x * groups) {
    const bool is_mine = first + group < p.points;
    const int64_t point = is_mine ? first + group : p.points - 1;
    const point_line<E, A> line = open_point<E, A>(p, point, lane, room, sums);
    const int64_t target = p.has_probabilities ? -1 : get_target(p, point);
    const double own = target >= 0 ? (1 - p.smoothing) * get_weight(p, target) : 0;
    double total = 0;
    if (p.has_probabilities || (p.smoothing > 0 && p.has_softmax)) {
      for (int64_t c = lane; c < p.classes; c += p.lanes) {
        total += get_weight(p, c) * (p.has_probabilities ? get_share(p, line.offset + c * p.inner) : even);
      }
      total = join_lanes(p, total, 0.0, sums, join_sum());
    }
    total += own;
    const int64_t from = p.is_reduced ? 0 : point;
    const double s = scale * load_as<double>(p.grad + from * dtype_width(p.grad_dtype), p.grad_dtype, false);
    for (int64_t c = lane; is_mine && c < p.classes; c += p.lanes) {
      const int64_t at = line.offset + c * p.inner;
      // the two steps of PyTorch: the gradient of the classes, then that of the softmax; an infinite one stays visible
      double direct = c == target ? -(s * own) : 0;
      if (p.has_softmax && (p.has_probabilities || (p.smoothing > 0 && target >= 0))) {
        direct -= s * get_weight(p, c) * (p.has_probabilities ? get_share(p, at) : even);
      }
      if (p.has_softmax && (p.has_probabilities || target >= 0)) {
        direct += (double)exp_of(line.get(p, c)) * (s * total);
      }
      ((E *)(void *)p.out)[at] = element<E>::from((A)direct);
    }
  }
}

/// The gradient of a loss without softmax is zero but for one class of each point; the zeros are there already.
template <class E, class A>
KERNEL_INLINE void run_targets(const class_kernel &p) {
  double scale = 1;
  if (p.is_mean) {
    scale = 1 / (p.total ? load_as<double>(p.total, p.total_dtype, false) : (double)p.points);
  }
  for (int64_t point = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; point < p.points;
       point += (int64_t)gridDim.x * blockDim.x) {
    const int64_t target = get_target(p, point), from = p.is_reduced ? 0 : point;
    if (target >= 0) {
      const double s = scale * load_as<double>(p.grad + from * dtype_width(p.grad_dtype), p.grad_dtype, false);
      const double slope = -(1 - p.smoothing) * get_weight(p, target);
      const int64_t at = (point / p.inner * p.classes + target) * p.inner + point % p.inner;
      ((E *)(void *)p.out)[at] = element<E>::from((A)(slope == 0 ? 0 : s * slope));
    }
  }
}

#define CLASS_KERNELS(tag, E, A)                                          \
  KERNEL_BLOCK(LOSS_KERNEL_THREADS, class_loss_##tag, class_kernel) {     \
    run_losses<E, A>(p);                                                  \
  }                                                                       \
  KERNEL_BLOCK(LOSS_KERNEL_THREADS, class_gradient_##tag, class_kernel) { \
    run_gradients<E, A>(p);                                               \
  }                                                                       \
  KERNEL(LOSS_KERNEL_THREADS, class_targets_##tag, class_kernel) {        \
    run_targets<E, A>(p);                                                 \
  }
CLASS_KERNELS(f32, float, float)
CLASS_KERNELS(f64, double, double)
CLASS_KERNELS(f16, half_bits, float)
CLASS_KERNELS(bf16, bfloat_bits, float)
