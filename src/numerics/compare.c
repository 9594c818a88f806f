/// Comparison of two tensors: one fused pass (contract in include/dit/numerics.h).
///
/// Chunks of finite real numbers go through the vector kernels, and only as far as they need: equal ones have one side
/// summed up, of those that differ in a few places only the blocks around are compared, and tolerances and the relative
/// maxima are only looked at closely where a cheap bound says that it can matter. Chunks with NaN or infinities, of
/// complex numbers or integers beyond 2^53, or whose squares leave double's range, are done pair by pair in long
/// double.
#include <float.h>
#include <string.h>

#include "numerics/kernels.h"
#include "numerics/pair.h"
#include "numerics/pair_terms.h"

#define SQUARE_MIN 1e-270
/// A chunk is sparse when less than one pair in so many differs: then at most half of its blocks do.
#define SPARSE (2 * SUM_LANES)

struct partial {
  int64_t finite, unequal, over, mismatch;
  double max_diff, rel, rel_sym;
  double min_a, max_a, min_b, max_b;
  long double dot, square_a, square_b, abs_diff;
  int restless;  ///< chunks for which is_calm need not be asked, because it said no lately
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
  return pair_check_terms(a, b, options, err);
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
  bool endless = isinf(partial->rel);
  double rel = endless ? 0 : partial->rel;
  pair_relative(a, b, count, wide, &rel, &partial->rel_sym, &endless);
  partial->rel = endless ? INFINITY : rel;
}

/// What a chunk starts with: the bounds, lowered by more than double's rounding.
static void found_init(struct pair_extrema *found, const struct partial *partial) {
  bool endless = isinf(partial->rel);
  *found = (struct pair_extrema){.min_a = INFINITY,
                                 .max_a = -INFINITY,
                                 .min_b = INFINITY,
                                 .max_b = -INFINITY,
                                 .rel = endless ? 0 : partial->rel * (1 - 0x1p-50),
                                 .rel_floor = endless ? DBL_MAX : 0,
                                 .rel_sym = partial->rel_sym * (1 - 0x1p-50)};
}

static void add_chunk(struct partial *partial, int64_t count, const struct pair_extrema *found,
                      const struct pair_sums *sums) {
  partial->finite += count;
  partial->unequal += found->unequal;
  partial->over += found->over;
  partial->max_diff = get_larger(partial->max_diff, sums->max_diff);
  partial->min_a = get_smaller(partial->min_a, found->min_a);
  partial->max_a = get_larger(partial->max_a, found->max_a);
  partial->min_b = get_smaller(partial->min_b, found->min_b);
  partial->max_b = get_larger(partial->max_b, found->max_b);
  partial->dot += sums->dot;
  partial->square_a += sums->square_a;
  partial->square_b += sums->square_b;
  partial->abs_diff += sums->abs_diff;
}

/// Sums of a chunk that is the same on both sides.
static struct pair_sums get_equal_sums(double square) {
  return (struct pair_sums){.dot = square, .square_a = square, .square_b = square};
}

static bool is_same(const struct compare_task *task, const char *const *data, int64_t count) {
  return task->dtype[0] == task->dtype[1] && memcmp(data[0], data[1], (size_t)(count * task->walk->width[0])) == 0;
}

/// Nothing is over the tolerance and no relative maximum can be raised: so say the distances of the bits.
static bool is_calm(const struct compare_task *task, struct partial *partial, const char *const *data, int64_t count) {
  if (partial->restless > 0) {
    partial->restless--;
    return false;
  }
  double rel, rel_sym;
  key_get_ratio_bounds(task->dtype, data, count, &rel, &rel_sym);
  bool calm = rel <= task->options->rtol * (1 - 0x1p-50) && rel <= partial->rel && rel_sym <= partial->rel_sym;
  partial->restless = calm ? 0 : 3;
  return calm;
}

/// Counts over the tolerance, and the relative maxima; `found` has the rest. Floats are screened, and most chunks need
/// no more.
static void look_closely(const struct compare_task *task, struct partial *partial, const float *a, const float *b,
                         int64_t count, struct pair_extrema *found) {
  const struct dit_compare_options *options = task->options;
  pair_screen(a, b, count, options->rtol, options->atol, found);
  if (found->over > 0) {
    found->over = found->unequal = 0;
    pair_extremum(a, b, count, false, options->rtol, options->atol, found);
  }
  if (found->beaten) {
    raise_relative(partial, a, b, count, false);
  }
}

/// A chunk with few differences: only the blocks that have some are compared.
static void compare_sparse(const struct compare_task *task, struct partial *partial, const float *a, const float *b,
                           int64_t count, struct pair_extrema *found, struct pair_sums *sums) {
  _Alignas(64) float room[2][WALK_CHUNK];
  struct pair_split split = {.left = room[0], .right = room[1]};
  float_split(a, b, count, &split);
  float_pair_sum(split.left, split.right, split.count, sums);
  sums->dot += split.square;
  sums->square_a += split.square;
  sums->square_b += split.square;
  look_closely(task, partial, split.left, split.right, split.count, found);
}

/// Bytes that are the same on both sides.
static void add_equal_bytes(struct partial *partial, int dtype, const char *data, int64_t count) {
  struct byte_sums bytes;
  struct pair_extrema found;
  byte_sum(dtype, data, count, &bytes);
  found_init(&found, partial);
  found.min_a = found.min_b = bytes.min;
  found.max_a = found.max_b = bytes.max;
  struct pair_sums sums = get_equal_sums(bytes.square);
  add_chunk(partial, count, &found, &sums);
}

/// Floats that are equal on both sides; `values`: those of a side, or NULL to stage it.
static void add_equal_floats(const struct compare_task *task, struct partial *partial, const char *data,
                             const float *values, int64_t count, float *room, const struct pair_extrema *found) {
  enum lane_source lanes = LANE_FLOAT;
  struct single_sums single;
  const void *staged = values ? values : stage_lanes(task->dtype[0], data, room, count, &lanes);
  float_sum(staged, lanes, count, &single);
  struct pair_sums sums = get_equal_sums(single.square);
  add_chunk(partial, count, found, &sums);
}

/// Types that float holds.
static bool add_floats(const struct compare_task *task, struct partial *partial, const char *const *data,
                       int64_t count) {
  _Alignas(64) float room[2][WALK_CHUNK];
  if (stage_is_byte(task->dtype[0]) && is_same(task, data, count)) {
    add_equal_bytes(partial, task->dtype[0], data[0], count);
    return true;
  }
  struct pair_extrema found;
  struct pair_sums sums;
  const float *a = NULL, *b = NULL;
  bool late = task->dtype[0] == task->dtype[1] && stage_is_half(task->dtype[0]);  // floats only when something differs
  found_init(&found, partial);
  if (!late) {
    a = stage_float(task->dtype[0], data[0], room[0], count);
    b = stage_float(task->dtype[1], data[1], room[1], count);
  }
  if (!key_get_pair_extrema(task->dtype, data, (const void *[]){a, b}, count, &found)) {
    return false;
  }
  if (found.unequal == 0) {
    add_equal_floats(task, partial, data[0], a, count, room[0], &found);
    return true;
  }
  if (late) {
    a = stage_float(task->dtype[0], data[0], room[0], count);
    b = stage_float(task->dtype[1], data[1], room[1], count);
  }
  if (found.unequal * SPARSE <= count) {
    compare_sparse(task, partial, a, b, count, &found, &sums);
  } else {
    float_pair_sum(a, b, count, &sums);
    if (!is_calm(task, partial, data, count)) {
      look_closely(task, partial, a, b, count, &found);
    }
  }
  add_chunk(partial, count, &found, &sums);
  return true;
}

/// Squares that underflowed: nearly nothing in sum though there are numbers.
static bool is_lost(double square, double low, double high) {
  return square < SQUARE_MIN && (low != 0 || high != 0);
}

static bool add_equal_doubles(struct partial *partial, const double *values, int64_t count) {
  struct single_sums single;
  struct extrema range = {INFINITY, -INFINITY, 0};
  struct pair_extrema found;
  single_sum(values, count, true, 0, &single);
  if (!isfinite(single.square)) {
    return false;
  }
  single_extrema(values, count, true, &range);
  if (is_lost(single.square, range.min, range.max)) {
    return false;
  }
  found_init(&found, partial);
  found.min_a = found.min_b = range.min;
  found.max_a = found.max_b = range.max;
  struct pair_sums sums = get_equal_sums(single.square);
  add_chunk(partial, count, &found, &sums);
  return true;
}

/// Everything else that is real, in double.
static bool add_doubles(const struct compare_task *task, struct partial *partial, const char *const *data,
                        int64_t count) {
  _Alignas(64) double room[2][WALK_CHUNK];
  const double *a = stage_exact(task->dtype[0], data[0], room[0], count), *b;
  if (!a) {
    return false;
  }
  if (is_same(task, data, count)) {
    return add_equal_doubles(partial, a, count);
  }
  if (!(b = stage_exact(task->dtype[1], data[1], room[1], count))) {
    return false;
  }
  struct pair_sums sums;
  struct pair_extrema found;
  pair_sum(a, b, count, &sums);
  if (!isfinite(sums.square_a) || !isfinite(sums.square_b) || !isfinite(sums.abs_diff)) {
    return false;
  }
  found_init(&found, partial);
  pair_extremum(a, b, count, true, task->options->rtol, task->options->atol, &found);
  if (is_lost(sums.square_a, found.min_a, found.max_a) || is_lost(sums.square_b, found.min_b, found.max_b)) {
    return false;
  }
  add_chunk(partial, count, &found, &sums);
  if (found.beaten) {
    raise_relative(partial, a, b, count, true);
  }
  return true;
}

static void run_chunk(void *context, const char *const *data, int64_t begin, int64_t count) {
  (void)begin;
  const struct slot_state *state = context;
  const struct compare_task *task = state->task;
  bool done = task->fast && (task->wide ? add_doubles : add_floats)(task, state->partial, data, count);
  if (!done) {
    add_slowly(task, state->partial, data, count);
  }
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
