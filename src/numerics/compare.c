/// Comparison of two tensors: one fused pass (contract in include/dit/numerics.h).
///
/// Chunks of finite real numbers go through the vector kernels; the relative maxima are only looked for in chunks that
/// the kernel says can raise them. Chunks with NaN or infinities, of complex numbers or integers beyond 2^53, or whose
/// squares leave double's range, are done pair by pair in long double.
#include <float.h>
#include <string.h>

#include "numerics/kernels.h"
#include "numerics/pair.h"

#define SQUARE_MIN 1e-270

struct partial {
  int64_t finite, unequal, over, mismatch;
  double max_diff, rel, rel_sym;
  double min_a, max_a, min_b, max_b;
  long double dot, square_a, square_b, abs_diff;
};

struct compare_task {
  const struct walk *walk;
  const struct dit_compare_options *options;
  int dtype[2];
  bool fast;  ///< the vector kernels may be tried
  bool wide;  ///< in double
  struct partial *partials;
};

struct slot_state {
  const struct compare_task *task;
  struct partial *partial;
};

enum dit_status pair_check(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                           const struct dit_compare_options *options, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(walk_check(a, "tensor a", err));
  DIT_RETURN_IF_NOT_OK(walk_check(b, "tensor b", err));
  DIT_RETURN_IF_NOT_OK(stage_check(a->dtype, "tensor a", err));
  DIT_RETURN_IF_NOT_OK(stage_check(b->dtype, "tensor b", err));
  if (a->ndim != b->ndim) {
    return dit_error_set(
        err, DIT_ERR_INVALID,
        "tensor a has %d dimensions and tensor b has %d; compare needs equal shapes: expand or reshape", a->ndim,
        b->ndim);
  }
  for (int dim = 0; dim < a->ndim; dim++) {
    if (a->sizes[dim] != b->sizes[dim]) {
      return dit_error_set(err, DIT_ERR_INVALID,
                           "dimension %d is %lld in tensor a and %lld in tensor b; compare needs equal shapes", dim,
                           (long long)a->sizes[dim], (long long)b->sizes[dim]);
    }
  }
  if (!(options->rtol >= 0) || !(options->atol >= 0)) {
    return dit_error_set(err, DIT_ERR_INVALID, "rtol is %g and atol is %g; both must be 0 or more", options->rtol,
                         options->atol);
  }
  return DIT_OK;
}

static void partial_init(struct partial *partial) {
  memset(partial, 0, sizeof(*partial));
  partial->min_a = partial->min_b = INFINITY;
  partial->max_a = partial->max_b = -INFINITY;
}

static double get_larger(double a, double b) {
  return a > b ? a : b;
}

static double get_smaller(double a, double b) {
  return a < b ? a : b;
}

/// Two finite numbers.
static void add_finite(struct partial *partial, struct pair_number a, struct pair_number b, bool is_complex) {
  long double diff = pair_get_diff(a, b), size_a = pair_get_size(a), size_b = pair_get_size(b);
  double low_a = (double)(is_complex ? size_a : a.real), low_b = (double)(is_complex ? size_b : b.real);
  partial->finite++;
  partial->max_diff = get_larger(partial->max_diff, (double)diff);
  partial->rel = get_larger(partial->rel, pair_get_ratio(diff, size_b));
  partial->rel_sym = get_larger(partial->rel_sym, pair_get_ratio(diff, size_a > size_b ? size_a : size_b));
  partial->min_a = get_smaller(partial->min_a, low_a);
  partial->max_a = get_larger(partial->max_a, low_a);
  partial->min_b = get_smaller(partial->min_b, low_b);
  partial->max_b = get_larger(partial->max_b, low_b);
  partial->dot += a.real * b.real + a.imag * b.imag;
  partial->square_a += a.real * a.real + a.imag * a.imag;
  partial->square_b += b.real * b.real + b.imag * b.imag;
  partial->abs_diff += diff;
}

static void add_slowly(const struct compare_task *task, struct partial *partial, const char *const *data,
                       int64_t count) {
  _Alignas(64) double room[2][2 * WALK_CHUNK];
  struct pair_side a, b;
  pair_side_init(&a, task->dtype[0], data[0], count, room[0]);
  pair_side_init(&b, task->dtype[1], data[1], count, room[1]);
  for (int64_t i = 0; i < count; i++) {
    struct pair_number x = pair_side_get(&a, i), y = pair_side_get(&b, i);
    enum pair_class class_x = pair_get_class(x), class_y = pair_get_class(y);
    bool equal = pair_is_equal(x, y, task->options->equal_nan);
    partial->unequal += !equal;
    partial->over += !pair_is_close(x, y, task->options);
    if (class_x == PAIR_FINITE && class_y == PAIR_FINITE) {
      add_finite(partial, x, y, a.is_complex || b.is_complex);
    } else {
      partial->mismatch += !equal && !(class_x == PAIR_NAN && class_y == PAIR_NAN);
    }
  }
}

static void raise_relative(struct partial *partial, const void *a, const void *b, int64_t count, bool wide) {
  // An infinite ratio stays out of the kernel, which knows finite numbers only.
  double rel = isinf(partial->rel) ? 0 : partial->rel;
  bool endless = false;
  pair_relative(a, b, count, wide, &rel, &partial->rel_sym, &endless);
  partial->rel = endless ? INFINITY : get_larger(partial->rel, rel);
}

/// Squares that underflowed: nearly nothing in sum though there are numbers.
static bool is_lost(double square, double low, double high) {
  return square < SQUARE_MIN && (low != 0 || high != 0);
}

/// Extrema and counts of finite numbers; floats are screened first, and most chunks need no more.
static void find_extrema(const struct compare_task *task, const struct partial *partial, const void *a, const void *b,
                         int64_t count, struct pair_extrema *found) {
  const struct dit_compare_options *options = task->options;
  if (!task->wide) {
    struct pair_extrema screened = *found;
    pair_screen(a, b, count, options->rtol, options->atol, &screened);
    if (screened.over == 0) {
      if (screened.max_diff > partial->max_diff * (1 - 0x1p-20)) {
        pair_max_diff(a, b, count, &screened.max_diff);
      }
      *found = screened;
      return;
    }
  }
  pair_extremum(a, b, count, task->wide, options->rtol, options->atol, found);
}

/// False when the chunk needs care; nothing is changed then.
static bool add_fast(const struct compare_task *task, struct partial *partial, const void *a, const void *b,
                     int64_t count) {
  struct pair_sums sums;
  pair_sum(a, b, count, task->wide, &sums);
  if (!isfinite(sums.square_a) || !isfinite(sums.square_b) || !isfinite(sums.abs_diff)) {
    return false;
  }
  bool endless = isinf(partial->rel);
  struct pair_extrema found = {.min_a = INFINITY,
                               .max_a = -INFINITY,
                               .min_b = INFINITY,
                               .max_b = -INFINITY,
                               .rel = endless ? 0 : partial->rel,
                               .rel_floor = endless ? DBL_MAX : 0,
                               .rel_sym = partial->rel_sym};
  find_extrema(task, partial, a, b, count, &found);
  if (task->wide &&
      (is_lost(sums.square_a, found.min_a, found.max_a) || is_lost(sums.square_b, found.min_b, found.max_b))) {
    return false;
  }
  partial->finite += count;
  partial->unequal += found.unequal;
  partial->over += found.over;
  partial->max_diff = get_larger(partial->max_diff, found.max_diff);
  partial->min_a = get_smaller(partial->min_a, found.min_a);
  partial->max_a = get_larger(partial->max_a, found.max_a);
  partial->min_b = get_smaller(partial->min_b, found.min_b);
  partial->max_b = get_larger(partial->max_b, found.max_b);
  partial->dot += sums.dot;
  partial->square_a += sums.square_a;
  partial->square_b += sums.square_b;
  partial->abs_diff += sums.abs_diff;
  if (found.beaten) {
    raise_relative(partial, a, b, count, task->wide);
  }
  return true;
}

static void run_chunk(void *context, const char *const *data, int64_t begin, int64_t count) {
  (void)begin;
  const struct slot_state *state = context;
  const struct compare_task *task = state->task;
  if (task->fast && stage_is_exact(task->dtype[0], data[0], count) && stage_is_exact(task->dtype[1], data[1], count)) {
    _Alignas(64) double room[2][WALK_CHUNK];
    const void *staged[2];
    for (int side = 0; side < 2; side++) {
      if (task->wide) {
        staged[side] = stage_double(task->dtype[side], data[side], room[side], count);
      } else {
        staged[side] = stage_float(task->dtype[side], data[side], (void *)room[side], count);
      }
    }
    if (add_fast(task, state->partial, staged[0], staged[1], count)) {
      return;
    }
  }
  add_slowly(task, state->partial, data, count);
}

static void run_slot(void *context, int index, int64_t begin, int64_t end) {
  const struct compare_task *task = context;
  struct slot_state state = {task, &task->partials[index]};
  partial_init(state.partial);
  walk_range(task->walk, begin, end, run_chunk, &state);
}

static void partial_merge(struct partial *a, const struct partial *b) {
  a->finite += b->finite;
  a->unequal += b->unequal;
  a->over += b->over;
  a->mismatch += b->mismatch;
  a->max_diff = get_larger(a->max_diff, b->max_diff);
  a->rel = get_larger(a->rel, b->rel);
  a->rel_sym = get_larger(a->rel_sym, b->rel_sym);
  a->min_a = get_smaller(a->min_a, b->min_a);
  a->max_a = get_larger(a->max_a, b->max_a);
  a->min_b = get_smaller(a->min_b, b->min_b);
  a->max_b = get_larger(a->max_b, b->max_b);
  a->dot += b->dot;
  a->square_a += b->square_a;
  a->square_b += b->square_b;
  a->abs_diff += b->abs_diff;
}

static double get_cosine(const struct partial *all) {
  if (all->finite == 0) {
    return NAN;
  }
  if (all->square_a == 0 || all->square_b == 0) {
    return all->square_a == all->square_b ? 1 : 0;
  }
  double cosine = (double)(all->dot / (sqrtl(all->square_a) * sqrtl(all->square_b)));
  return get_larger(-1, get_smaller(1, cosine));
}

static void finish(const struct partial *all, int64_t numel, struct dit_compare_result *out) {
  bool any = all->finite > 0;
  *out = (struct dit_compare_result){
      .allclose = all->over == 0,
      .numel = numel,
      .finite_pairs = all->finite,
      .unequal = all->unequal,
      .over_tolerance = all->over,
      .nonfinite_mismatch = all->mismatch,
      .max_abs_diff = all->max_diff,
      .max_rel_diff = all->rel,
      .max_rel_diff_sym = all->rel_sym,
      .mean_abs_diff = any ? (double)(all->abs_diff / all->finite) : NAN,
      .cosine = get_cosine(all),
      .dot = (double)all->dot,
      .sum_abs_diff = (double)all->abs_diff,
      .min_a = any ? all->min_a + 0.0 : NAN,
      .max_a = any ? all->max_a + 0.0 : NAN,
      .norm_a = (double)sqrtl(all->square_a),
      .min_b = any ? all->min_b + 0.0 : NAN,
      .max_b = any ? all->max_b + 0.0 : NAN,
      .norm_b = (double)sqrtl(all->square_b),
  };
}

enum dit_status dit_tensor_compare(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                                   const struct dit_compare_options *options, struct dit_compare_result *result,
                                   struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(pair_check(a, b, options, err));
  struct partial partials[WALK_SLOTS];
  struct walk walk;
  enum stage_kind kind_a = stage_get_kind(a->dtype), kind_b = stage_get_kind(b->dtype);
  bool is_plain =
      !stage_is_complex(a->dtype) && !stage_is_complex(b->dtype) && isfinite(options->rtol) && isfinite(options->atol);
  struct compare_task task = {
      &walk, options, {a->dtype, b->dtype}, is_plain, kind_a != STAGE_FLOAT || kind_b != STAGE_FLOAT, partials,
  };
  const struct dit_tensor_view *views[2] = {a, b};
  partial_init(&partials[0]);
  walk_init(&walk, 2, views, WALK_ANY);
  int slots = walk_run(&walk, run_slot, &task);
  for (int step = 1; step < slots; step *= 2) {
    for (int i = 0; i + step < slots; i += 2 * step) {
      partial_merge(&partials[i], &partials[i + step]);
    }
  }
  finish(&partials[0], a->numel, result);
  return DIT_OK;
}
