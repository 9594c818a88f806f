/// Comparison of two tensors, pair by pair in double (64-bit integers: in two doubles).
///
/// Formulas and special cases are those of src/numerics/compare.c. Part of helper_kernels.cu.
#ifndef DIT_CUDA_HELPER_COMPARE_CUH
#define DIT_CUDA_HELPER_COMPARE_CUH

#include "helper_stats.cuh"

/// A number with what double lacks of a 64-bit integer in `rest`.
struct pair_number {
  double re, rest, im;
};

DEVICE struct pair_number number_get(struct bits128 bits, int dtype) {
  struct pair_number x;
  x.re = real_from_bits(bits.low, dtype);
  x.rest = 0;
  x.im = dtype_is_complex(dtype) ? imag_from_bits(bits, dtype) : 0;
  if (dtype_is_int64(dtype)) {
    // Two exact halves; what their sum loses is the rest.
    double high = dtype == DIT_DTYPE_I64 ? (double)(int32_t)(bits.low >> 32) : (double)(uint32_t)(bits.low >> 32);
    double low = (double)(uint32_t)bits.low;
    high *= 0x1p32;
    x.re = high + low;
    x.rest = low - (x.re - high);
  }
  return x;
}

/// `quarter` keeps the difference of huge numbers finite: 0.25, else 1.
DEVICE double number_get_diff(struct pair_number a, struct pair_number b, double quarter, bool is_complex, bool wide) {
  double re = (a.re * quarter - b.re * quarter) + (a.rest - b.rest);
  return is_complex ? size_get(re, a.im * quarter - b.im * quarter, wide) : fabs(re);
}

DEVICE double number_get_size(struct pair_number x, bool is_complex, bool wide) {
  return is_complex && x.im != 0 ? size_get(x.re, x.im, wide) : fabs(x.re);
}

DEVICE bool number_is_nan(struct pair_number x) {
  return is_nan(x.re) || is_nan(x.im);
}

DEVICE void pair_raise(struct compare_partial *p, int bin_a, int bin_b) {
  int from = p->bin_a > p->bin_b ? p->bin_a : p->bin_b;
  bin_a = bin_a > p->bin_a ? bin_a : p->bin_a;
  bin_b = bin_b > p->bin_b ? bin_b : p->bin_b;
  p->dot = bin_raise(bin_raise(p->dot, p->bin_a, bin_a), p->bin_b, bin_b);
  p->square_a = bin_raise_square(p->square_a, p->bin_a, bin_a);
  p->square_b = bin_raise_square(p->square_b, p->bin_b, bin_b);
  p->abs_diff = bin_raise(p->abs_diff, from, bin_a > bin_b ? bin_a : bin_b);
  p->bin_a = bin_a;
  p->bin_b = bin_b;
}

/// Sums of a finite pair in the units of its bins.
DEVICE void pair_add_sums(struct compare_partial *p, struct pair_number a, struct pair_number b, double diff,
                          double quarter) {
  double scale_a = bin_get_scale(p->bin_a), scale_b = bin_get_scale(p->bin_b);
  double re_a = a.re * scale_a, im_a = a.im * scale_a, re_b = b.re * scale_b, im_b = b.im * scale_b;
  p->dot += re_a * re_b + im_a * im_b;
  p->square_a += re_a * re_a + im_a * im_a;
  p->square_b += re_b * re_b + im_b * im_b;
  // The difference of huge numbers was quartered; scaled down first, it stays finite.
  double scale = bin_get_scale(p->bin_a > p->bin_b ? p->bin_a : p->bin_b);
  p->abs_diff += diff * scale / quarter;
}

DEVICE void pair_add_finite(struct compare_partial *p, struct pair_number a, struct pair_number b, bool is_complex,
                            bool wide, double tolerance_r, double tolerance_a, bool equal) {
  double size_a = number_get_size(a, is_complex, wide), size_b = number_get_size(b, is_complex, wide), quarter = 1;
  if (wide) {
    int bin_a = bin_get(size_a), bin_b = bin_get(size_b);
    quarter = bin_a == BIN_HIGH || bin_b == BIN_HIGH ? 0.25 : 1;
    if (bin_a > p->bin_a || bin_b > p->bin_b) {
      pair_raise(p, bin_a, bin_b);
    }
  }
  double diff = number_get_diff(a, b, quarter, is_complex, wide), larger = larger_get(size_a, size_b);
  double low_a = is_complex ? size_a : a.re, low_b = is_complex ? size_b : b.re;
  p->finite++;
  p->over += !equal && !(diff / quarter <= tolerance_a + tolerance_r * size_b);
  p->max_diff = larger_get(p->max_diff, diff / quarter);
  p->rel = larger_get(p->rel, diff > 0 ? diff / size_b / quarter : 0);
  p->rel_sym = larger_get(p->rel_sym, diff > 0 ? diff / larger / quarter : 0);
  p->min_a = smaller_get(p->min_a, low_a);
  p->max_a = larger_get(p->max_a, low_a);
  p->min_b = smaller_get(p->min_b, low_b);
  p->max_b = larger_get(p->max_b, low_b);
  pair_add_sums(p, a, b, diff, quarter);
}

DEVICE void pair_add(struct compare_partial *p, struct bits128 bits_a, struct bits128 bits_b, int dtype_a, int dtype_b,
                     const struct kernel_compare *task) {
  struct pair_number a = number_get(bits_a, dtype_a), b = number_get(bits_b, dtype_b);
  bool is_complex = dtype_is_complex(dtype_a) || dtype_is_complex(dtype_b);
  bool wide = dtype_is_wide(dtype_a) || dtype_is_wide(dtype_b);
  bool nan_a = number_is_nan(a), nan_b = number_is_nan(b), nan = nan_a && nan_b;
  bool equal = (a.re == b.re && a.rest == b.rest && a.im == b.im) || (nan && task->equal_nan);
  p->unequal += !equal;
  if (is_finite(a.re) && is_finite(a.im) && is_finite(b.re) && is_finite(b.im)) {
    pair_add_finite(p, a, b, is_complex, wide, task->rtol, task->atol, equal);
    return;
  }
  p->over += !equal;
  p->mismatch += !equal && !nan;
}

DEVICE void pair_init(struct compare_partial *p, int dtype_a, int dtype_b) {
  memset(p, 0, sizeof(*p));
  p->min_a = p->min_b = infinity_get();
  p->max_a = p->max_b = -infinity_get();
  // One scale for both sides would do; two keep the product of a small and a large tensor.
  p->bin_a = p->bin_b = dtype_is_wide(dtype_a) || dtype_is_wide(dtype_b) ? BIN_LOW : BIN_PLAIN;
}

/// Both packed and of one dtype.
DEVICE void pair_of_flat(struct compare_partial *p, const struct kernel_compare *task, int dtype) {
  const struct kernel_tensor *a = &task->tensor[0], *b = &task->tensor[1];
  struct cursor cursor = cursor_make(a, dtype_get_width(dtype), is_aligned(a) && is_aligned(b));
  struct bits128 other = cursor_load(&cursor, b, cursor.at), next;
  FOR_STEPS(cursor, a, {
    next = cursor_load(&cursor, b, cursor.at + cursor.step);
    UNROLL_2 for (int i = 0; i < count; i++) {
      pair_add(p, take_element(loaded, i, cursor.width), take_element(other, i, cursor.width), dtype, dtype, task);
    }
    other = next;
  });
}

/// Any strides, any two dtypes: they are looked at for every element.
DEVICE void pair_of_strided(struct compare_partial *p, const struct kernel_compare *task) {
  const struct kernel_tensor *a = &task->tensor[0], *b = &task->tensor[1];
  int dtype_a = a->dtype, dtype_b = b->dtype;
  int width_a = dtype_get_width(dtype_a), width_b = dtype_get_width(dtype_b);
  struct cursor cursor = cursor_make(a, width_a, false);
  for (; cursor.at < cursor.end; cursor.at += cursor.step) {
    int64_t rest = cursor.at, offset_a = 0, offset_b = 0;
    UNROLL_1 for (int dim = 0; dim < a->ndim; dim++) {
      int64_t next = dim == a->ndim - 1 ? 0 : rest / task->dims[dim].size, index = rest - next * task->dims[dim].size;
      offset_a += index * task->dims[dim].stride[0];
      offset_b += index * task->dims[dim].stride[1];
      rest = next;
    }
    pair_add(p, load_element(a->data + offset_a, width_a), load_element(b->data + offset_b, width_b), dtype_a, dtype_b,
             task);
  }
}

DEVICE void pair_merge(struct compare_partial *a, const struct compare_partial *other) {
  struct compare_partial b = *other;
  pair_raise(a, b.bin_a, b.bin_b);
  pair_raise(&b, a->bin_a, a->bin_b);
  a->finite += b.finite;
  a->unequal += b.unequal;
  a->over += b.over;
  a->mismatch += b.mismatch;
  a->max_diff = larger_get(a->max_diff, b.max_diff);
  a->rel = larger_get(a->rel, b.rel);
  a->rel_sym = larger_get(a->rel_sym, b.rel_sym);
  a->min_a = smaller_get(a->min_a, b.min_a);
  a->max_a = larger_get(a->max_a, b.max_a);
  a->min_b = smaller_get(a->min_b, b.min_b);
  a->max_b = larger_get(a->max_b, b.max_b);
  a->dot += b.dot;
  a->square_a += b.square_a;
  a->square_b += b.square_b;
  a->abs_diff += b.abs_diff;
}

DEVICE double finish_cosine(const struct compare_partial *all) {
  if (all->finite == 0) {
    return nan_get();
  }
  if (all->square_a == 0 || all->square_b == 0) {
    return all->square_a == all->square_b ? 1 : 0;
  }
  double cosine = all->dot / (sqrt(all->square_a) * sqrt(all->square_b));
  return larger_get(-1, smaller_get(1, cosine));
}

/// src/numerics/compare.c: finish.
DEVICE void finish_compare(const struct compare_partial *all, int64_t numel, struct dit_compare_result *out) {
  bool any = all->finite > 0;
  int bin = all->bin_a > all->bin_b ? all->bin_a : all->bin_b;
  memset(out, 0, sizeof(*out));
  out->allclose = all->over == 0;
  out->numel = numel;
  out->finite_pairs = all->finite;
  out->unequal = all->unequal;
  out->over_tolerance = all->over;
  out->nonfinite_mismatch = all->mismatch;
  out->max_abs_diff = all->max_diff;
  out->max_rel_diff = all->rel;
  out->max_rel_diff_sym = all->rel_sym;
  out->mean_abs_diff = any ? bin_leave(all->abs_diff / (double)all->finite, bin) : nan_get();
  out->cosine = finish_cosine(all);
  out->dot = bin_leave(bin_leave(all->dot, all->bin_a), all->bin_b);
  out->sum_abs_diff = bin_leave(all->abs_diff, bin);
  out->min_a = any ? all->min_a + 0.0 : nan_get();
  out->max_a = any ? all->max_a + 0.0 : nan_get();
  out->norm_a = bin_leave(sqrt(all->square_a), all->bin_a);
  out->min_b = any ? all->min_b + 0.0 : nan_get();
  out->max_b = any ? all->max_b + 0.0 : nan_get();
  out->norm_b = bin_leave(sqrt(all->square_b), all->bin_b);
}

DEVICE void pair_fold(struct compare_partial *room) {
  UNROLL_1 for (unsigned width = HELPER_THREADS / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      pair_merge(&room[threadIdx.x], &room[threadIdx.x + width]);
    }
  }
  __syncthreads();
}

KERNEL helper_compare(PARAMETER struct kernel_compare task) {
  const struct kernel_tensor *a = &task.tensor[0];
  const int words = (int)(sizeof(struct compare_partial) / sizeof(uint64_t));
  __shared__ struct compare_partial room[HELPER_THREADS];
  int dtype_a = a->dtype, dtype_b = task.tensor[1].dtype;
  struct compare_partial mine;
  pair_init(&mine, dtype_a, dtype_b);
  if (task.is_flat) {
#define PAIR_FLAT(constant) pair_of_flat(&mine, &task, constant)
    FOR_DTYPE(dtype_a, PAIR_FLAT)
  } else {
    pair_of_strided(&mine, &task);
  }
  room[threadIdx.x] = mine;
  pair_fold(room);
  if (a->blocks > 1) {
    if (threadIdx.x == 0) {
      task.scratch->pairs[blockIdx.x] = room[0];
    }
    if (!block_is_last(task.scratch, 0, a->blocks)) {
      return;
    }
    pair_init(&room[threadIdx.x], dtype_a, dtype_b);
    UNROLL_1 for (unsigned i = threadIdx.x; i < a->blocks; i += HELPER_THREADS) {
      struct compare_partial other;
      fetch_words(&other, &task.scratch->pairs[i], words);
      pair_merge(&room[threadIdx.x], &other);
    }
    pair_fold(room);
  }
  if (threadIdx.x == 0) {
    struct dit_compare_result result;
    finish_compare(&room[0], a->numel, &result);
    *task.out = result;
  }
}

#endif
