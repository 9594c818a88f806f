/// Norms with statistics per channel: from the sums of parts to numbers of channels and the factors of the last pass.
/// In double.
#include "channel.h"
#include "kernel.cuh"

KERNEL_INLINE double get(const channel_numbers &numbers, int64_t i, double missing) {
  return numbers.data ? load_as<double>(numbers.data + i * dtype_width(numbers.dtype), numbers.dtype, false) : missing;
}
KERNEL_INLINE void put(const channel_numbers &numbers, int64_t i, double value) {
  if (numbers.data) {
    store_as(numbers.data + i * dtype_width(numbers.dtype), numbers.dtype, value);
  }
}

/// A warp per channel or group: its lanes share the parts, so that many parts are no long wait.
struct warp_walk {
  int64_t first, step;
  int lane;
  __device__ warp_walk() {
    first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    step = (int64_t)gridDim.x * blockDim.x / 32;
    lane = threadIdx.x % 32;
  }
};

/// Mean and variance of all parts of a channel; every lane of the warp gets them.
template <class A>
KERNEL_INLINE void join_moments(const channel_finish &p, int64_t channel, int lane, double *mean, double *variance) {
  double total = 0, squares = 0;
  for (int64_t split = lane; split < p.splits; split += 32) {
    const A *part = (const A *)p.partials + (split * p.channels + channel) * 2;
    const int64_t left = p.count - split * p.part;
    total += (double)part[0] * (double)(left < p.part ? left : p.part);
  }
  *mean = warp_reduce(total, join_sum()) / (double)p.count;
  for (int64_t split = lane; split < p.splits; split += 32) {
    const A *part = (const A *)p.partials + (split * p.channels + channel) * 2;
    const int64_t left = p.count - split * p.part;
    const double away = (double)part[0] - *mean;
    squares += (double)part[1] + away * away * (double)(left < p.part ? left : p.part);
  }
  *variance = warp_reduce(squares, join_sum()) / (double)p.count;
}
/// Parts `first`, `first` + `step` and so on.
template <class A>
KERNEL_INLINE void join_dots(const channel_finish &p, int64_t channel, int first, int step, double *sum, double *dot) {
  *sum = *dot = 0;
  for (int64_t split = first; split < p.splits; split += step) {
    const A *part = (const A *)p.partials + (split * p.channels + channel) * 2;
    *sum += (double)part[0];
    *dot += (double)part[1];
  }
}
/// (x - mean) * scale + shift, where the mean is rounded to the work type and what that lost is in the shift.
template <class A>
KERNEL_INLINE void set_forward(const channel_finish &p, int64_t at, double mean, double scale, double bias) {
  if (p.factors) {
    A *f = (A *)p.factors + at * CHANNEL_KERNEL_FACTORS;
    f[0] = 0;
    f[1] = (A)scale;
    f[2] = (A)mean;
    f[3] = (A)(bias - (mean - (double)f[2]) * scale);
  }
}
template <class A>
KERNEL_INLINE void set_backward(const channel_finish &p, int64_t at, double a, double b, double mean, double c) {
  if (p.factors) {
    A *f = (A *)p.factors + at * CHANNEL_KERNEL_FACTORS;
    f[0] = (A)a;
    f[1] = (A)b;
    f[2] = (A)mean;
    f[3] = (A)(c - (mean - (double)f[2]) * b);
  }
}

// Batch norm

/// With partials: training. Without: running statistics, or given ones (`mean`, `scale`).
template <class A>
KERNEL_INLINE void finish_batch(const channel_finish &p) {
  const warp_walk walk;
  for (int64_t c = walk.first; c < p.channels; c += walk.step) {
    double mean, variance, scale;
    if (p.is_training) {
      join_moments<A>(p, c, walk.lane, &mean, &variance);
      scale = 1 / sqrt(variance + p.eps);
    } else {
      mean = get(p.mean, c, 0);
      scale = get(p.scale, c, 1);
      scale = p.is_variance ? 1 / sqrt(scale + p.eps) : scale;
    }
    if (p.is_training && walk.lane == 0) {
      const double n = (double)p.count;
      put(p.mean, c, mean);
      put(p.scale, c, scale);
      put(p.running_mean, c, (1 - p.momentum) * get(p.running_mean, c, 0) + p.momentum * mean);
      put(p.running_var, c, (1 - p.momentum) * get(p.running_var, c, 0) + p.momentum * variance * (n / (n - 1)));
    }
    if (walk.lane == 0) {
      set_forward<A>(p, c, mean, scale * get(p.weight, c, 1), get(p.bias, c, 0));
    }
  }
}
/// Without partials: sums and dots are given, and counts of all processes.
template <class A>
KERNEL_INLINE void finish_batch_backward(const channel_finish &p) {
  const warp_walk walk;
  for (int64_t c = walk.first; c < p.channels; c += walk.step) {
    double sum = 0, dot = 0, total = (double)p.count, scale = get(p.scale, c, 1);
    scale = p.is_variance ? 1 / sqrt(scale + p.eps) : scale;
    if (p.partials) {
      join_dots<A>(p, c, walk.lane, 32, &sum, &dot);
      sum = warp_reduce(sum, join_sum());
      dot = warp_reduce(dot, join_sum());
    }
    if (walk.lane != 0) {
      continue;
    }
    if (p.partials) {
      put(p.grad_weight, c, dot * scale);
      put(p.grad_bias, c, sum);
      put(p.sums, c, sum);
      put(p.dots, c, dot);
    } else {
      sum = get(p.sums, c, 0);
      dot = get(p.dots, c, 0);
      total = 0;
      for (int64_t i = 0; i < p.processes; i++) {
        total += get(p.counts, i, 0);
      }
    }
    const double a = scale * get(p.weight, c, 1);
    set_backward<A>(p, c, a, p.is_training ? -a * scale * scale * dot / total : 0, get(p.mean, c, 0),
                    p.is_training ? -a * sum / total : 0);
  }
}
/// Statistics of several processes as one.
KERNEL(CHANNEL_KERNEL_THREADS, channel_gather, channel_finish) {
  for (int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; c < p.channels;
       c += (int64_t)gridDim.x * blockDim.x) {
    double n = 0, mean = 0, squares = 0;
    for (int64_t i = 0; i < p.processes; i++) {
      const double count = get(p.counts, i, 0), scale = get(p.scale_all, i * p.channels + c, 1);
      const double delta = get(p.mean_all, i * p.channels + c, 0) - mean, sum = n + count;
      if (count > 0) {
        squares += count * (1 / (scale * scale) - p.eps) + delta * delta * n * count / sum;
        mean += delta * count / sum;
        n = sum;
      }
    }
    put(p.mean, c, mean);
    put(p.scale, c, 1 / sqrt(squares / n + p.eps));
    const double old_mean = get(p.running_mean, c, 0), old_var = get(p.running_var, c, 0);
    put(p.running_mean, c, old_mean + p.momentum * (mean - old_mean));
    put(p.running_var, c, old_var + p.momentum * (squares / (n - 1) - old_var));
  }
}

// Group norm

/// `channels` are the groups of all samples; factors for their channels.
template <class A>
KERNEL_INLINE void finish_group(const channel_finish &p) {
  const warp_walk walk;
  for (int64_t k = walk.first; k < p.channels; k += walk.step) {
    double mean, variance;
    join_moments<A>(p, k, walk.lane, &mean, &variance);
    const double scale = 1 / sqrt(variance + p.eps);
    if (walk.lane == 0) {
      put(p.mean, k, mean);
      put(p.scale, k, scale);
    }
    for (int64_t j = walk.lane; j < p.width; j += 32) {
      const int64_t c = k % p.groups * p.width + j;
      set_forward<A>(p, k * p.width + j, mean, scale * get(p.weight, c, 1), get(p.bias, c, 0));
    }
  }
}
/// `channels` are those of all samples.
template <class A>
KERNEL_INLINE void finish_group_backward(const channel_finish &p) {
  const warp_walk walk;
  for (int64_t k = walk.first; k < p.samples * p.groups; k += walk.step) {
    const double scale = get(p.scale, k, 1), mean = get(p.mean, k, 0);
    double sum = 0, dot = 0;
    for (int64_t j = walk.lane; j < p.width; j += 32) {
      double own_sum, own_dot;
      const double weight = get(p.weight, k % p.groups * p.width + j, 1);
      join_dots<A>(p, k * p.width + j, 0, 1, &own_sum, &own_dot);
      sum += weight * own_sum;
      dot += weight * own_dot;
    }
    sum = warp_reduce(sum, join_sum());
    dot = warp_reduce(dot, join_sum());
    const double b = -scale * scale * scale * dot / (double)p.size, c = -scale * sum / (double)p.size;
    for (int64_t j = walk.lane; j < p.width; j += 32) {
      set_backward<A>(p, k * p.width + j, scale * get(p.weight, k % p.groups * p.width + j, 1), b, mean, c);
    }
  }
}
template <class A>
KERNEL_INLINE void add_parameters(const channel_finish &p) {
  const int64_t channels = p.groups * p.width;
  const warp_walk walk;
  for (int64_t c = walk.first; c < channels; c += walk.step) {
    double weight = 0, bias = 0;
    for (int64_t n = walk.lane; n < p.samples; n += 32) {
      double sum, dot;
      join_dots<A>(p, n * channels + c, 0, 1, &sum, &dot);
      bias += sum;
      weight += dot * get(p.scale, n * p.groups + c / p.width, 1);
    }
    weight = warp_reduce(weight, join_sum());
    bias = warp_reduce(bias, join_sum());
    if (walk.lane == 0) {
      put(p.grad_weight, c, weight);
      put(p.grad_bias, c, bias);
    }
  }
}

/// Standard deviations; `eps` is what the count is corrected by.
template <class A>
KERNEL_INLINE void finish_deviations(const channel_finish &p) {
  const warp_walk walk;
  for (int64_t c = walk.first; c < p.channels; c += walk.step) {
    double mean, variance = NAN;
    if (p.count > 0) {
      join_moments<A>(p, c, walk.lane, &mean, &variance);
    }
    const double left = (double)p.count - p.eps;
    if (walk.lane == 0) {
      put(p.scale, c, sqrt(variance * (double)p.count / (left > 0 ? left : 0)));
    }
  }
}

#define CHANNEL_FINISH(tag, A)                                                           \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_batch_##tag, channel_finish) {            \
    finish_batch<A>(p);                                                                  \
  }                                                                                      \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_batch_backward_##tag, channel_finish) {   \
    finish_batch_backward<A>(p);                                                         \
  }                                                                                      \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_group_##tag, channel_finish) {            \
    finish_group<A>(p);                                                                  \
  }                                                                                      \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_group_backward_##tag, channel_finish) {   \
    finish_group_backward<A>(p);                                                         \
  }                                                                                      \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_group_parameters_##tag, channel_finish) { \
    add_parameters<A>(p);                                                                \
  }                                                                                      \
  KERNEL_BLOCK(CHANNEL_KERNEL_THREADS, channel_deviations_##tag, channel_finish) {       \
    finish_deviations<A>(p);                                                             \
  }
CHANNEL_FINISH(f32, float)
CHANNEL_FINISH(f64, double)
