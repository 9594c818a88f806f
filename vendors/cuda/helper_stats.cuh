/// Statistics: a thread sums distances from its first finite value; groups are merged by their means (Chan).
///
/// Formulas and special cases are those of src/numerics/stats.c. Part of helper_kernels.cu.
#ifndef DIT_CUDA_HELPER_STATS_CUH
#define DIT_CUDA_HELPER_STATS_CUH

#include "helper_block.cuh"

/// Distances of one part (real or imaginary) from its first value.
struct part_sums {
  double shift, sum, square;
};

/// What one thread has seen.
struct stats_state {
  int32_t count, zero, nan, pos_inf, neg_inf;
  int32_t bin;
  double min, max;
  struct part_sums real, imag;
  double norm;    ///< sum of squares
  uint64_t base;  ///< 64-bit integers: distances are from this member of the tensor
  uint64_t min_int, max_int;
  wide_int sum;
};

DEVICE void stats_init(struct stats_state *s, int dtype, uint64_t base) {
  memset(s, 0, sizeof(*s));
  s->min = infinity_get();
  s->max = -infinity_get();
  s->bin = dtype_is_wide(dtype) ? BIN_LOW : BIN_PLAIN;
  s->base = base;
}

DEVICE void part_add(struct part_sums *part, double x, bool first, double scale) {
  if (first) {
    part->shift = x;
  }
  double distance = x * scale - part->shift * scale;
  part->sum += distance;
  part->square += distance * distance;
}

DEVICE void part_raise(struct part_sums *part, int from, int to) {
  part->sum = bin_raise(part->sum, from, to);
  part->square = bin_raise_square(part->square, from, to);
}

/// A finite number; `size` is what min and max are of.
DEVICE void stats_add_finite(struct stats_state *s, double re, double im, double size, bool is_complex, bool wide) {
  double scale = 1;
  if (wide) {
    int bin = bin_get(size > 0 || size < 0 ? size : 0);
    if (bin > s->bin) {
      part_raise(&s->real, s->bin, bin);
      part_raise(&s->imag, s->bin, bin);
      s->norm = bin_raise_square(s->norm, s->bin, bin);
      s->bin = bin;
    }
    scale = bin_get_scale(s->bin);
  }
  bool first = s->count == 0;
  part_add(&s->real, re, first, scale);
  s->norm += re * scale * (re * scale);
  if (is_complex) {
    part_add(&s->imag, im, first, scale);
    s->norm += im * scale * (im * scale);
  }
  s->min = smaller_get(size, s->min);
  s->max = larger_get(size, s->max);
  s->zero += re == 0 && im == 0;
  s->count++;
}

DEVICE void stats_add_int(struct stats_state *s, uint64_t bits, bool is_signed) {
  // Compared as unsigned numbers, with the sign bit turned over.
  uint64_t flip = is_signed ? UINT64_C(1) << 63 : 0;
  bool first = s->count == 0, below = (bits ^ flip) < (s->base ^ flip);
  double value = is_signed ? (double)(int64_t)bits : (double)bits;
  part_add(&s->real, below ? -(double)(s->base - bits) : (double)(bits - s->base), first, 1);
  s->norm += value * value;
  s->min_int = first || (bits ^ flip) < (s->min_int ^ flip) ? bits : s->min_int;
  s->max_int = first || (bits ^ flip) > (s->max_int ^ flip) ? bits : s->max_int;
  s->sum += is_signed ? (wide_int)(int64_t)bits : (wide_int)bits;
  s->zero += bits == 0;
  s->count++;
}

DEVICE void stats_add(struct stats_state *s, struct bits128 bits, int dtype) {
  if (dtype_is_int64(dtype)) {
    stats_add_int(s, bits.low, dtype == DIT_DTYPE_I64);
    return;
  }
  bool is_complex = dtype_is_complex(dtype), wide = dtype_is_wide(dtype);
  double re = real_from_bits(bits.low, dtype), im = is_complex ? imag_from_bits(bits, dtype) : 0;
  if (is_finite(re) && is_finite(im)) {
    stats_add_finite(s, re, im, is_complex ? size_get(re, im, wide) : re, is_complex, wide);
  } else if (is_nan(re) || is_nan(im)) {
    s->nan++;
  } else if (is_complex || re > 0) {
    s->pos_inf++;
  } else {
    s->neg_inf++;
  }
}

DEVICE void stats_of_flat(struct stats_state *s, const struct kernel_tensor *tensor, int dtype) {
  struct cursor cursor = cursor_make(tensor, dtype_get_width(dtype), is_aligned(tensor));
  FOR_STEPS(cursor, tensor, {
    UNROLL_2 for (int i = 0; i < count; i++) {
      stats_add(s, take_element(loaded, i, cursor.width), dtype);
    }
  });
}

DEVICE void stats_of_strided(struct stats_state *s, const struct kernel_tensor *tensor, const struct kernel_dim *dims) {
  int dtype = tensor->dtype;
  struct cursor cursor = cursor_make(tensor, dtype_get_width(dtype), false);
  UNROLL_1 for (; cursor.at < cursor.end; cursor.at += cursor.step) {
    const char *address = tensor->data + offset_get(dims, tensor->ndim, cursor.at);
    stats_add(s, load_element(address, cursor.width), dtype);
  }
}

/// A thread's sums as moments: count, mean, squared distances from it.
DEVICE void stats_leave(const struct stats_state *s, struct stats_partial *out) {
  double count = s->count > 0 ? s->count : 1, scale = bin_get_scale(s->bin);
  out->count = s->count;
  out->zero = s->zero;
  out->nan = s->nan;
  out->pos_inf = s->pos_inf;
  out->neg_inf = s->neg_inf;
  out->min = s->min;
  out->max = s->max;
  out->mean = s->real.shift * scale + s->real.sum / count;
  out->spread = larger_get(0, s->real.square - s->real.sum * (s->real.sum / count));
  out->mean_imag = s->imag.shift * scale + s->imag.sum / count;
  out->spread_imag = larger_get(0, s->imag.square - s->imag.sum * (s->imag.sum / count));
  out->square = s->norm;
  out->min_int = (int64_t)s->min_int;
  out->max_int = (int64_t)s->max_int;
  out->sum_low = (uint64_t)s->sum;
  out->sum_high = (uint64_t)(s->sum >> 64);
  out->bin = s->bin;
}

DEVICE void partial_raise(struct stats_partial *p, int64_t bin) {
  int from = (int)p->bin, to = (int)bin;
  if (from < to) {
    p->mean = bin_raise(p->mean, from, to);
    p->mean_imag = bin_raise(p->mean_imag, from, to);
    p->spread = bin_raise_square(p->spread, from, to);
    p->spread_imag = bin_raise_square(p->spread_imag, from, to);
    p->square = bin_raise_square(p->square, from, to);
    p->bin = bin;
  }
}

/// Both groups have elements.
DEVICE void moments_merge(double *mean, double *spread, double count, double other_mean, double other_spread,
                          double other_count) {
  double share = other_count / (count + other_count), delta = other_mean - *mean;
  *spread += other_spread + delta * delta * (count * share);
  *mean += delta * share;
}

/// Add `b` to `a`.
DEVICE void partial_merge(struct stats_partial *a, const struct stats_partial *other, int dtype) {
  struct stats_partial b = *other;
  uint64_t flip = dtype == DIT_DTYPE_I64 ? UINT64_C(1) << 63 : 0;
  partial_raise(a, b.bin);
  partial_raise(&b, a->bin);
  a->nan += b.nan;
  a->pos_inf += b.pos_inf;
  a->neg_inf += b.neg_inf;
  if (b.count == 0) {
    return;
  }
  if (a->count == 0) {
    a->mean = b.mean;
    a->spread = b.spread;
    a->mean_imag = b.mean_imag;
    a->spread_imag = b.spread_imag;
  } else {
    moments_merge(&a->mean, &a->spread, (double)a->count, b.mean, b.spread, (double)b.count);
    moments_merge(&a->mean_imag, &a->spread_imag, (double)a->count, b.mean_imag, b.spread_imag, (double)b.count);
  }
  if (a->count == 0 || ((uint64_t)b.min_int ^ flip) < ((uint64_t)a->min_int ^ flip)) {
    a->min_int = b.min_int;
  }
  if (a->count == 0 || ((uint64_t)b.max_int ^ flip) > ((uint64_t)a->max_int ^ flip)) {
    a->max_int = b.max_int;
  }
  a->count += b.count;
  a->zero += b.zero;
  a->square += b.square;
  a->min = smaller_get(a->min, b.min);
  a->max = larger_get(a->max, b.max);
  a->sum_low += b.sum_low;
  a->sum_high += b.sum_high + (a->sum_low < b.sum_low);
}

DEVICE double int_get(int64_t bits, bool is_signed) {
  return is_signed ? (double)bits : (double)(uint64_t)bits;
}

DEVICE void finish_extrema(const struct stats_partial *all, int dtype, struct dit_tensor_stats *out) {
  double low = all->min, high = all->max;
  if (dtype_is_int64(dtype) && all->count > 0) {
    low = int_get(all->min_int, dtype == DIT_DTYPE_I64);
    high = int_get(all->max_int, dtype == DIT_DTYPE_I64);
    out->min_int = all->min_int;
    out->max_int = all->max_int;
  }
  out->min = out->max = out->abs_max = nan_get();
  if (all->count + all->pos_inf + all->neg_inf == 0) {
    return;
  }
  low = all->neg_inf > 0 ? -infinity_get() : low;
  high = all->pos_inf > 0 ? infinity_get() : high;
  low = all->count == 0 && all->neg_inf == 0 ? infinity_get() : low;
  high = all->count == 0 && all->pos_inf == 0 ? -infinity_get() : high;
  out->min = low + 0.0;
  out->max = high + 0.0;
  out->abs_max = dtype_is_complex(dtype) ? out->max : larger_get(fabs(out->min), fabs(out->max));
}

/// Mean of the finite values.
DEVICE double finish_mean(const struct stats_partial *all, int dtype) {
  if (!dtype_is_int64(dtype)) {
    return bin_leave(all->mean, (int)all->bin);
  }
  wide_int sum = (wide_int)((wide_uint)all->sum_high << 64 | all->sum_low);
  wide_int whole = sum / all->count;
  return (double)whole + (double)(int64_t)(sum - whole * all->count) / (double)all->count;
}

/// src/numerics/stats.c: finish.
DEVICE void finish_stats(const struct stats_partial *all, const struct kernel_tensor *tensor,
                         struct dit_tensor_stats *out) {
  int dtype = tensor->dtype, bin = (int)all->bin;
  bool is_complex = dtype_is_complex(dtype), clean = all->count == tensor->numel;
  double count = (double)all->count, spread = all->spread + all->spread_imag;
  memset(out, 0, sizeof(*out));
  out->numel = tensor->numel;
  out->finite = all->count;
  out->zero = all->zero;
  out->nan = all->nan;
  out->pos_inf = all->pos_inf;
  out->neg_inf = all->neg_inf;
  finish_extrema(all, dtype, out);
  out->finite_mean = count > 0 ? finish_mean(all, dtype) : nan_get();
  out->finite_mean_imag = !is_complex ? 0 : count > 0 ? bin_leave(all->mean_imag, bin) : nan_get();
  out->finite_std = count > 0 ? bin_leave(sqrt(spread / count), bin) : nan_get();
  out->finite_std_sample = count > 1 ? bin_leave(sqrt(spread / (count - 1)), bin) : nan_get();
  out->finite_norm = bin_leave(sqrt(all->square), bin);
  out->std = clean ? out->finite_std : nan_get();
  out->std_sample = clean ? out->finite_std_sample : nan_get();
  out->norm = out->nan > 0 ? nan_get() : clean ? out->finite_norm : infinity_get();
  out->mean = out->finite_mean;
  out->mean_imag = out->finite_mean_imag;
  if (!clean) {
    bool both = out->nan > 0 || (out->pos_inf > 0 && out->neg_inf > 0) || is_complex;
    out->mean = both ? nan_get() : out->pos_inf > 0 ? infinity_get() : -infinity_get();
    out->mean_imag = is_complex ? nan_get() : 0;
  }
}

/// room[0] becomes the sum of all, as a tree over neighbours at ever smaller distance.
DEVICE void stats_fold(struct stats_partial *room, int dtype) {
  UNROLL_1 for (unsigned width = HELPER_THREADS / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      partial_merge(&room[threadIdx.x], &room[threadIdx.x + width], dtype);
    }
  }
  __syncthreads();
}

DEVICE void stats_reduce(const struct kernel_batch *batch, int index, const struct stats_state *mine) {
  const struct kernel_tensor *tensor = &batch->tensor[index];
  struct stats_partial *partials = batch->scratch->partials[index];
  struct dit_tensor_stats *out = (struct dit_tensor_stats *)batch->out + tensor->slot;
  __shared__ struct stats_partial room[HELPER_THREADS];
  const int words = (int)(sizeof(struct stats_partial) / sizeof(uint64_t));
  int dtype = tensor->dtype;
  stats_leave(mine, &room[threadIdx.x]);
  stats_fold(room, dtype);
  if (tensor->blocks > 1) {
    if (threadIdx.x == 0) {
      partials[blockIdx.x] = room[0];
    }
    if (!block_is_last(batch->scratch, index, tensor->blocks)) {
      return;
    }
    struct stats_state none;
    stats_init(&none, dtype, 0);
    stats_leave(&none, &room[threadIdx.x]);
    UNROLL_1 for (unsigned i = threadIdx.x; i < tensor->blocks; i += HELPER_THREADS) {
      struct stats_partial other;
      fetch_words(&other, &partials[i], words);
      partial_merge(&room[threadIdx.x], &other, dtype);
    }
    stats_fold(room, dtype);
  }
  if (threadIdx.x == 0) {
    struct dit_tensor_stats result;
    finish_stats(&room[0], tensor, &result);
    *out = result;
  }
}

/// Calls X(dtype) with a constant for the types that fill memory, so that their loops are short; the others share one
/// loop that looks at the type for every element.
#define FOR_DTYPE(dtype, X) \
  switch (dtype) {          \
    case DIT_DTYPE_F32:     \
      X(DIT_DTYPE_F32);     \
      break;                \
    case DIT_DTYPE_F16:     \
      X(DIT_DTYPE_F16);     \
      break;                \
    case DIT_DTYPE_BF16:    \
      X(DIT_DTYPE_BF16);    \
      break;                \
    case DIT_DTYPE_F64:     \
      X(DIT_DTYPE_F64);     \
      break;                \
    case DIT_DTYPE_I64:     \
      X(DIT_DTYPE_I64);     \
      break;                \
    default:                \
      X(dtype);             \
  }

/// 64-bit integers count distances from the first element in memory.
DEVICE uint64_t base_get(const struct kernel_tensor *tensor) {
  return dtype_is_int64(tensor->dtype) && tensor->numel > 0 ? load_element(tensor->data, 8).low : 0;
}

/// Is there anything to be said?
DEVICE bool batch_is_wanted(const struct kernel_batch *batch) {
  return !batch->mark || batch->scratch->marks[batch->mark % DIT_HELPER_MARKS] == batch->mark;
}

KERNEL helper_stats(PARAMETER struct kernel_batch batch) {
  int index = (int)blockIdx.y;
  const struct kernel_tensor *tensor = &batch.tensor[index];
  if (blockIdx.x >= tensor->blocks || !batch_is_wanted(&batch)) {
    return;
  }
  struct stats_state state;
  stats_init(&state, tensor->dtype, base_get(tensor));
#define STATS_FLAT(constant) stats_of_flat(&state, tensor, constant)
  FOR_DTYPE(tensor->dtype, STATS_FLAT)
  stats_reduce(&batch, index, &state);
}

KERNEL helper_stats_strided(PARAMETER struct kernel_batch_strided strided) {
  int index = (int)blockIdx.y;
  const struct kernel_tensor *tensor = &strided.batch.tensor[index];
  if (blockIdx.x >= tensor->blocks || !batch_is_wanted(&strided.batch)) {
    return;
  }
  struct stats_state state;
  stats_init(&state, tensor->dtype, base_get(tensor));
  stats_of_strided(&state, tensor, strided.dims + tensor->first_dim);
  stats_reduce(&strided.batch, index, &state);
}

#endif
