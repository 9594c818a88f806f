/// CTC loss and its gradient (formulas: vendors/host/ops/loss_ctc.c), in double: a block per sample, a thread per state,
/// one step of time after the other.
///
/// Lengths and labels are not checked, because that would make the host wait; those that have no room are cut, and a
/// label that is none has probability 0.
#include "ctc.h"

#include "kernel.cuh"
#include "math.cuh"

KERNEL_INLINE double load_number(const char *data, int dtype, int64_t i) {
  return load_as<double>(data + i * dtype_width(dtype), dtype, false);
}
KERNEL_INLINE int64_t load_integer(const char *data, int dtype, int64_t i) {
  return load_as<int64_t>(data + i * dtype_width(dtype), dtype, false);
}
KERNEL_INLINE void store_number(char *data, int dtype, int64_t i, double value) {
  store_as(data + i * dtype_width(dtype), dtype, value);
}

KERNEL_INLINE double add_logs(double a, double b) {
  const double top = a > b ? a : b;
  return top == -(double)INFINITY ? top : top + log(exp(a - top) + exp(b - top));
}

struct ctc_sample {
  int64_t n, length, states, start;
};

KERNEL_INLINE int64_t cut(int64_t value, int64_t most) {
  return value < 0 ? 0 : value > most ? most : value;
}

KERNEL_INLINE ctc_sample get_sample(const ctc_kernel &p, int64_t n) {
  ctc_sample sample = {n, cut(load_integer(p.inputs, p.inputs_dtype, n), p.steps), 0, n * p.target_stride};
  int64_t room = p.target_stride;
  if (p.target_stride == 0) {
    for (int64_t i = 0; i < n; i++) {
      sample.start += cut(load_integer(p.labels, p.labels_dtype, i), p.target_count - sample.start);
    }
    room = p.target_count - sample.start;
  }
  const int64_t most = (p.width - 1) / 2;
  sample.states = 2 * cut(load_integer(p.labels, p.labels_dtype, n), room < most ? room : most) + 1;
  return sample;
}

KERNEL_INLINE int64_t get_label(const ctc_kernel &p, const ctc_sample &sample, int64_t s) {
  return s % 2 ? load_integer(p.targets, p.targets_dtype, sample.start + s / 2) : p.blank;
}
KERNEL_INLINE double get_prob(const ctc_kernel &p, const ctc_sample &sample, int64_t t, int64_t label) {
  return label < 0 || label >= p.classes
             ? -(double)INFINITY
             : load_number(p.probs, p.probs_dtype, (t * p.batch + sample.n) * p.classes + label);
}
/// May a path skip the blank before s?
KERNEL_INLINE bool can_skip(const ctc_kernel &p, const ctc_sample &sample, int64_t s) {
  return s % 2 && s > 2 && get_label(p, sample, s) != get_label(p, sample, s - 2);
}

KERNEL_BLOCK(CTC_KERNEL_THREADS, ctc_forward, ctc_kernel) {
  for (int64_t n = blockIdx.x; n < p.batch; n += gridDim.x) {
    const ctc_sample sample = get_sample(p, n);
    double *from = p.lines + 2 * n * p.width, *to = from + p.width;
    const int64_t first = n * p.steps * p.width;
    for (int64_t i = threadIdx.x; i < p.steps * p.width; i += blockDim.x) {
      if (i / p.width >= sample.length || i % p.width >= sample.states) {
        store_number(p.alpha, p.alpha_dtype, first + i, -(double)INFINITY);
      }
    }
    for (int64_t t = 0; t < sample.length; t++) {
      for (int64_t s = threadIdx.x; s < sample.states; s += blockDim.x) {
        double sum = s < 2 ? 0 : -(double)INFINITY;
        if (t > 0) {
          sum = s > 0 ? add_logs(from[s], from[s - 1]) : from[s];
          sum = can_skip(p, sample, s) ? add_logs(sum, from[s - 2]) : sum;
        }
        to[s] = sum + get_prob(p, sample, t, get_label(p, sample, s));
        store_number(p.alpha, p.alpha_dtype, first + t * p.width + s, to[s]);
      }
      __syncthreads();
      double *swap = from;
      from = to;
      to = swap;
    }
    if (threadIdx.x == 0) {
      double loss = sample.states == 1 ? 0 : (double)INFINITY;
      if (sample.length > 0) {
        loss = -(sample.states > 1 ? add_logs(from[sample.states - 1], from[sample.states - 2]) : from[0]);
      }
      p.losses[n] = loss;
      store_number(p.nll, p.nll_dtype, n, loss);
    }
  }
}

/// The losses one by one, or their sum in one order.
KERNEL(32, ctc_finish, ctc_kernel) {
  double sum = 0;
  if (threadIdx.x > 0) {
    return;
  }
  for (int64_t n = 0; n < p.batch; n++) {
    const double loss = p.zero_infinity && p.losses[n] == (double)INFINITY ? 0 : p.losses[n];
    const int64_t labels = load_integer(p.labels, p.labels_dtype, n);
    if (p.reduction == 0) {
      store_number(p.out, p.out_dtype, n, loss);
    }
    sum += p.reduction == 1 ? loss / (double)(labels > 0 ? labels : 1) / (double)p.batch : loss;
  }
  if (p.reduction != 0) {
    store_number(p.out, p.out_dtype, 0, sum);
  }
}

/// Has no state before s this label? Blanks count from state 0.
KERNEL_INLINE bool is_first(const ctc_kernel &p, const ctc_sample &sample, int64_t s) {
  const int64_t label = get_label(p, sample, s);
  bool first = s == 0 || (s % 2 && label != p.blank);
  for (int64_t before = 1; before < s && first; before += 2) {
    first = get_label(p, sample, before) != label;
  }
  return first;
}

/// The share of the paths through each class that has a state, from alpha + beta.
KERNEL_INLINE void store_paths(const ctc_kernel &p, const ctc_sample &sample, int64_t t, const double *beta, double nll,
                               double g) {
  const int64_t alpha = (sample.n * p.steps + t) * p.width, out = (t * p.batch + sample.n) * p.classes;
  for (int64_t s = threadIdx.x; s < sample.states; s += blockDim.x) {
    const int64_t label = get_label(p, sample, s);
    if (label < 0 || label >= p.classes || !is_first(p, sample, s)) {
      continue;
    }
    double paths = -(double)INFINITY;
    for (int64_t other = s; other < sample.states; other++) {
      if (get_label(p, sample, other) == label) {
        paths = add_logs(paths, load_number(p.alpha, p.alpha_dtype, alpha + other) + beta[other]);
      }
    }
    const double prob = get_prob(p, sample, t, label);
    const bool is_unreached = paths == -(double)INFINITY && nll != (double)INFINITY;
    store_number(p.out, p.out_dtype, out + label, g * (exp(prob) - (is_unreached ? 0 : exp(paths + nll - prob))));
  }
}

KERNEL_BLOCK(CTC_KERNEL_THREADS, ctc_backward, ctc_kernel) {
  for (int64_t n = blockIdx.x; n < p.batch; n += gridDim.x) {
    const ctc_sample sample = get_sample(p, n);
    double *beta = p.lines + 2 * n * p.width, *next = beta + p.width;
    const double nll = load_number(p.nll, p.nll_dtype, n);
    double g = load_number(p.grad, p.grad_dtype, p.reduction == 0 ? n : 0);
    if (p.reduction == 1) {
      g /= (double)(sample.states > 1 ? sample.states / 2 : 1) * (double)p.batch;
    }
    const int64_t used = p.zero_infinity && nll == (double)INFINITY ? 0 : sample.length;
    for (int64_t i = threadIdx.x; i < p.steps * p.classes; i += blockDim.x) {
      const int64_t t = i / p.classes, c = i % p.classes;
      // classes without a state: no path; an infinite loss has no gradient
      const double value = t >= used ? 0 : g * (exp(get_prob(p, sample, t, c)) - (nll == (double)INFINITY ? nll - nll : 0));
      store_number(p.out, p.out_dtype, (t * p.batch + n) * p.classes + c, value);
    }
    __syncthreads();
    for (int64_t t = used - 1; t >= 0; t--) {
      for (int64_t s = threadIdx.x; s < sample.states; s += blockDim.x) {
        double sum = s >= sample.states - 2 ? 0 : -(double)INFINITY;
        if (t < sample.length - 1) {
          sum = s + 1 < sample.states ? add_logs(next[s], next[s + 1]) : next[s];
          sum = s + 2 < sample.states && can_skip(p, sample, s + 2) ? add_logs(sum, next[s + 2]) : sum;
        }
        beta[s] = sum + get_prob(p, sample, t, get_label(p, sample, s));
      }
      __syncthreads();
      store_paths(p, sample, t, beta, nll, g);
      double *swap = beta;
      beta = next;
      next = swap;
      __syncthreads();
    }
  }
}
