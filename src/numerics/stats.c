/// Statistics of one tensor: one fused pass (contract in include/dit/numerics.h).
///
/// A chunk is summed in double lanes, relative to its first element where the variance or the norm would suffer from a
/// large mean; chunks and slots are merged in order, sums in long double. Chunks that are not all finite are done
/// without their NaN and infinite elements; chunks of doubles so large or small that squares leave the range are done
/// again in long double.
#include <float.h>
#include <math.h>
#include <string.h>

#include "dit/numerics.h"
#include "numerics/kernels.h"
#include "numerics/simd.h"
#include "numerics/stage.h"
#include "numerics/walk.h"

__extension__ typedef __int128 wide_int;

/// Squares below this lost digits to underflow.
#define SQUARE_MIN 1e-270

struct moments {
  int64_t count;
  long double sum;
  long double square;  ///< sum of squares
  long double spread;  ///< sum of squared distances from the mean
};

struct partial {
  int64_t nan, pos_inf, neg_inf;
  struct extrema extrema;  ///< of the finite values
  struct moments real, imag;
  int64_t min_int, max_int;
  wide_int sum_int;
};

struct stats_task {
  const struct walk *walk;
  int dtype;
  enum stage_kind kind;
  struct partial *partials;
};

/// What one slot works with.
struct slot_state {
  const struct stats_task *task;
  struct partial *partial;
};

static void partial_init(struct partial *partial) {
  memset(partial, 0, sizeof(*partial));
  partial->extrema.min = INFINITY;
  partial->extrema.max = -INFINITY;
  partial->min_int = INT64_MAX;
  partial->max_int = INT64_MIN;
}

/// Add `b` to `a`; `delta` is the difference of their means.
static void moments_merge(struct moments *a, const struct moments *b, long double delta) {
  if (a->count > 0 && b->count > 0) {
    double weight = (double)a->count * ((double)b->count / (double)(a->count + b->count));
    a->spread += delta * delta * weight;
  }
  a->count += b->count;
  a->sum += b->sum;
  a->square += b->square;
  a->spread += b->spread;
}

/// Cross-multiplied, so that groups of one mean have a difference of nearly 0.
static long double moments_get_delta(const struct moments *a, const struct moments *b) {
  if (a->count == 0 || b->count == 0) {
    return 0;
  }
  double scale = 1 / ((double)a->count * (double)b->count);
  return (b->sum * a->count - a->sum * b->count) * scale;
}

/// Finite values in long double, two passes: for squares that double cannot hold.
static void sum_slowly(const double *values, int64_t count, struct moments *out) {
  long double sum = 0, square = 0, spread = 0;
  for (int64_t i = 0; i < count; i++) {
    sum += values[i];
    square += (long double)values[i] * values[i];
  }
  long double mean = sum / count;
  for (int64_t i = 0; i < count; i++) {
    spread += (values[i] - mean) * (values[i] - mean);
  }
  *out = (struct moments){count, sum, square, spread};
}

/// Moments from sums relative to `shift`.
static void moments_init(struct moments *out, int64_t count, double shift, const struct single_sums *sums) {
  double spread = sums->square - sums->sum * (sums->sum / (double)count);
  *out = (struct moments){count, sums->sum, sums->square, spread > 0 ? spread : 0};
  if (shift != 0) {
    out->sum += (long double)shift * count;
    out->square += (long double)shift * (2 * (long double)sums->sum + (long double)shift * count);
  }
}

/// The finite values of a chunk, moved together; the others are counted.
#define COMPACT(type)                             \
  do {                                            \
    const type *source = values;                  \
    type *target = room;                          \
    for (int64_t i = 0; i < count; i++) {         \
      type x = source[i];                         \
      target[kept] = x;                           \
      kept += isfinite(x) != 0;                   \
      partial->nan += isnan(x) != 0;              \
      partial->pos_inf += x == (type)INFINITY;    \
      partial->neg_inf += x == (type) - INFINITY; \
    }                                             \
  } while (0)

static int64_t compact(const void *values, int64_t count, bool wide, void *room, struct partial *partial) {
  int64_t kept = 0;
  if (wide) {
    COMPACT(double);
  } else {
    COMPACT(float);
  }
  return kept;
}

static double get_first(const void *values, bool wide) {
  return wide ? *(const double *)values : (double)*(const float *)values;
}

/// Moments of values that are known to be finite.
static void sum_finite(const void *values, int64_t count, bool wide, bool constant, struct moments *out) {
  struct single_sums sums;
  double shift = get_first(values, wide);
  single_sum(values, count, wide, shift, &sums);
  if (wide && !(sums.square < DBL_MAX && (sums.square > SQUARE_MIN || constant))) {
    sum_slowly(values, count, out);
    return;
  }
  moments_init(out, count, shift, &sums);
}

static void add_chunk(struct partial *partial, const struct extrema *local, const struct moments *chunk) {
  partial->extrema.min = local->min < partial->extrema.min ? local->min : partial->extrema.min;
  partial->extrema.max = local->max > partial->extrema.max ? local->max : partial->extrema.max;
  partial->extrema.zero += local->zero;
  moments_merge(&partial->real, chunk, moments_get_delta(&partial->real, chunk));
}

/// What is finite among values that are not all.
static void add_compacted(struct partial *partial, const void *values, int64_t count, bool wide) {
  _Alignas(64) double room[WALK_CHUNK];
  struct moments chunk;
  struct extrema local = {INFINITY, -INFINITY, 0};
  count = compact(values, count, wide, room, partial);
  if (count == 0) {
    return;
  }
  single_extrema(room, count, wide, &local);
  sum_finite(room, count, wide, local.min == local.max, &chunk);
  add_chunk(partial, &local, &chunk);
}

static void add_doubles(struct partial *partial, const double *values, int64_t count) {
  struct moments chunk;
  struct single_sums sums;
  struct extrema local = {INFINITY, -INFINITY, 0};
  double shift = values[0];
  single_sum(values, count, true, shift, &sums);
  if (!isfinite(sums.sum) || !isfinite(sums.square)) {
    add_compacted(partial, values, count, true);
    return;
  }
  single_extrema(values, count, true, &local);
  if (sums.square < SQUARE_MIN && local.min != local.max) {
    sum_finite(values, count, true, false, &chunk);
  } else {
    moments_init(&chunk, count, shift, &sums);
  }
  add_chunk(partial, &local, &chunk);
}

/// Without a shift, which costs half of the time, the sums lose to cancellation what the largest size exceeds the range
/// by, squared: nothing worth it unless all the values lie close together and far from 0.
static bool is_spread(double low, double high) {
  double size = -low > high ? -low : high;
  return size <= 2 * (high - low);
}

/// Elements of a type that float holds; those of 16-bit floats are looked at as they are.
static void add_floats(struct partial *partial, int dtype, const char *data, int64_t count) {
  _Alignas(64) float room[WALK_CHUNK];
  struct moments chunk;
  struct single_sums sums;
  struct extrema local;
  enum lane_source lanes;
  const void *values = stage_lanes(dtype, data, room, count, &lanes);
  if (!key_get_extrema(dtype, data, values, count, &local)) {
    add_compacted(partial, stage_float(dtype, data, room, count), count, false);
    return;
  }
  double shift = 0;
  if (is_spread(local.min, local.max)) {
    float_sum(values, lanes, count, &sums);
  } else {
    values = stage_float(dtype, data, room, count);
    shift = get_first(values, false);
    single_sum(values, count, false, shift, &sums);
  }
  moments_init(&chunk, count, shift, &sums);
  add_chunk(partial, &local, &chunk);
}

/// Small integers: all is exact.
static void add_bytes(struct partial *partial, int dtype, const char *data, int64_t count) {
  struct byte_sums sums;
  byte_sum(dtype, data, count, &sums);
  struct extrema local = {sums.min, sums.max, sums.zero};
  int64_t spread = count * sums.square - (int64_t)sums.sum * sums.sum;
  struct moments chunk = {count, sums.sum, sums.square, (double)spread / (double)count};
  add_chunk(partial, &local, &chunk);
}

/// Pairs of real and imaginary parts.
static void add_complex(struct partial *partial, const double *pairs, int64_t count, bool careful) {
  _Alignas(64) double real[WALK_CHUNK], imag[WALK_CHUNK], size[WALK_CHUNK];
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++) {
    double re = pairs[2 * i], im = pairs[2 * i + 1];
    if (isnan(re) || isnan(im)) {
      partial->nan++;
    } else if (isinf(re) || isinf(im)) {
      partial->pos_inf++;
    } else {
      real[kept] = re;
      imag[kept] = im;
      size[kept++] = careful ? hypot(re, im) : sqrt(re * re + im * im);
    }
  }
  if (kept == 0) {
    return;
  }
  struct moments chunk;
  struct extrema parts[2] = {{INFINITY, -INFINITY, 0}, {INFINITY, -INFINITY, 0}};
  single_extrema(real, kept, true, &parts[0]);
  single_extrema(imag, kept, true, &parts[1]);
  for (int64_t i = 0; i < kept; i++) {
    partial->extrema.zero += real[i] == 0 && imag[i] == 0;
    partial->extrema.min = size[i] < partial->extrema.min ? size[i] : partial->extrema.min;
    partial->extrema.max = size[i] > partial->extrema.max ? size[i] : partial->extrema.max;
  }
  sum_finite(real, kept, true, parts[0].min == parts[0].max, &chunk);
  moments_merge(&partial->real, &chunk, moments_get_delta(&partial->real, &chunk));
  sum_finite(imag, kept, true, parts[1].min == parts[1].max, &chunk);
  moments_merge(&partial->imag, &chunk, moments_get_delta(&partial->imag, &chunk));
}

static wide_int get_int(const void *values, int64_t index, bool is_signed) {
  return is_signed ? (wide_int)((const int64_t *)values)[index] : (wide_int)((const uint64_t *)values)[index];
}

/// The difference of the means of two groups of integers, exact before it is rounded.
static long double get_int_delta(wide_int sum_a, int64_t count_a, wide_int sum_b, int64_t count_b) {
  if (count_a == 0 || count_b == 0) {
    return 0;
  }
  long double rest_a = (long double)(int64_t)(sum_a % count_a) / count_a;
  long double rest_b = (long double)(int64_t)(sum_b % count_b) / count_b;
  return (long double)(sum_b / count_b - sum_a / count_a) + (rest_b - rest_a);
}

/// 128-bit steps: any integers.
static void sum_ints_slowly(const void *values, int64_t count, bool is_signed, wide_int shift, struct moments *chunk,
                            wide_int *total) {
  *total = 0;
  for (int64_t i = 0; i < count; i++) {
    wide_int x = get_int(values, i, is_signed);
    long double distance = (long double)(x - shift);
    *total += x;
    chunk->sum += distance;
    chunk->square += distance * distance;
  }
}

/// Sums relative to `low`, in doubles or better; the sum of the integers themselves is exact.
static void sum_ints(const uint64_t *values, int64_t count, wide_int low, wide_int range, struct moments *chunk,
                     wide_int *total) {
  _Alignas(64) double room[WALK_CHUNK];
  struct int_sums near;
  struct single_sums far;
  if (range < INT_NEAR) {
    int_sum_near(values, count, (uint64_t)low, &near);
    chunk->square = near.square;
  } else {
    int_measure(values, count, (uint64_t)low, room, &near.sum);
    single_sum(room, count, true, 0, &far);
    chunk->square = far.square;
  }
  chunk->sum = near.sum;
  *total = low * count + (wide_int)near.sum;
}

static void add_ints(struct partial *partial, const void *values, int64_t count, bool is_signed) {
  struct int_extrema found;
  struct moments chunk = {count, 0, 0, 0};
  int_find_extrema(values, count, is_signed, &found);
  wide_int low = get_int(&found.min, 0, is_signed), high = get_int(&found.max, 0, is_signed), shift = low, total;
  if (high - low < INT_FAR) {
    sum_ints(values, count, low, high - low, &chunk, &total);
  } else {
    shift = get_int(values, 0, is_signed);
    sum_ints_slowly(values, count, is_signed, shift, &chunk, &total);
  }
  chunk.spread = chunk.square - chunk.sum * (chunk.sum / count);
  chunk.spread = chunk.spread > 0 ? chunk.spread : 0;
  chunk.square += (long double)shift * (2 * chunk.sum + (long double)shift * count);
  chunk.sum = (long double)total;
  bool first = partial->real.count == 0;
  moments_merge(&partial->real, &chunk, get_int_delta(partial->sum_int, partial->real.count, total, count));
  partial->sum_int += total;
  partial->extrema.zero += found.zero;
  // Kept as bits: uint64 is compared as such by wide_int.
  if (first || low < get_int(&partial->min_int, 0, is_signed)) {
    partial->min_int = (int64_t)low;
  }
  if (first || high > get_int(&partial->max_int, 0, is_signed)) {
    partial->max_int = (int64_t)high;
  }
}

static void run_chunk(void *context, const char *const *data, int64_t begin, int64_t count) {
  (void)begin;
  const struct slot_state *state = context;
  const struct stats_task *task = state->task;
  _Alignas(64) double room[2 * WALK_CHUNK];
  if (task->kind == STAGE_INT64) {
    add_ints(state->partial, data[0], count, task->dtype == DIT_DTYPE_I64);
  } else if (stage_is_complex(task->dtype)) {
    add_complex(state->partial, stage_double(task->dtype, data[0], room, 2 * count), count,
                task->dtype == DIT_DTYPE_C128);
  } else if (stage_is_byte(task->dtype)) {
    add_bytes(state->partial, task->dtype, data[0], count);
  } else if (task->kind == STAGE_FLOAT) {
    add_floats(state->partial, task->dtype, data[0], count);
  } else {
    add_doubles(state->partial, stage_double(task->dtype, data[0], room, count), count);
  }
}

static void run_slot(void *context, int index, int64_t begin, int64_t end) {
  const struct stats_task *task = context;
  struct slot_state state = {task, &task->partials[index]};
  partial_init(state.partial);
  walk_range(task->walk, begin, end, run_chunk, &state);
}

static void partial_merge(struct partial *a, const struct partial *b, const struct stats_task *task) {
  long double delta = moments_get_delta(&a->real, &b->real);
  if (task->kind == STAGE_INT64) {
    bool is_signed = task->dtype == DIT_DTYPE_I64;
    delta = get_int_delta(a->sum_int, a->real.count, b->sum_int, b->real.count);
    if (get_int(&b->min_int, 0, is_signed) < get_int(&a->min_int, 0, is_signed)) {
      a->min_int = b->min_int;
    }
    if (get_int(&b->max_int, 0, is_signed) > get_int(&a->max_int, 0, is_signed)) {
      a->max_int = b->max_int;
    }
    a->sum_int += b->sum_int;
  }
  moments_merge(&a->real, &b->real, delta);
  moments_merge(&a->imag, &b->imag, moments_get_delta(&a->imag, &b->imag));
  a->nan += b->nan;
  a->pos_inf += b->pos_inf;
  a->neg_inf += b->neg_inf;
  a->extrema.zero += b->extrema.zero;
  a->extrema.min = b->extrema.min < a->extrema.min ? b->extrema.min : a->extrema.min;
  a->extrema.max = b->extrema.max > a->extrema.max ? b->extrema.max : a->extrema.max;
}

/// Neighbours first, as a tree.
static void merge_all(const struct stats_task *task, int slots) {
  for (int step = 1; step < slots; step *= 2) {
    for (int i = 0; i + step < slots; i += 2 * step) {
      partial_merge(&task->partials[i], &task->partials[i + step], task);
    }
  }
}

static void finish_extrema(const struct stats_task *task, struct partial *all, struct dit_tensor_stats *out) {
  if (task->kind == STAGE_INT64 && all->real.count > 0) {
    bool is_signed = task->dtype == DIT_DTYPE_I64;
    all->extrema.min = (double)get_int(&all->min_int, 0, is_signed);
    all->extrema.max = (double)get_int(&all->max_int, 0, is_signed);
    out->min_int = all->min_int;
    out->max_int = all->max_int;
  }
  out->min = out->max = out->abs_max = NAN;
  if (all->real.count + all->pos_inf + all->neg_inf == 0) {
    return;
  }
  bool is_complex = stage_is_complex(task->dtype);
  // The finite extrema start at the opposite infinities, so an infinite element needs no case of its own but these.
  double low = all->extrema.min, high = all->extrema.max;
  low = all->neg_inf > 0 ? -INFINITY : low;
  high = all->pos_inf > 0 ? INFINITY : high;
  low = all->real.count == 0 && all->neg_inf == 0 ? INFINITY : low;
  high = all->real.count == 0 && all->pos_inf == 0 ? -INFINITY : high;
  out->min = low + 0.0;  // no negative zero: which of the two was met first says nothing
  out->max = high + 0.0;
  out->abs_max = is_complex ? out->max : fmax(fabs(out->min), fabs(out->max));
}

static void finish(const struct stats_task *task, struct partial *all, int64_t numel, struct dit_tensor_stats *out) {
  memset(out, 0, sizeof(*out));
  int64_t count = all->real.count;
  out->numel = numel;
  out->finite = count;
  out->zero = all->extrema.zero;
  out->nan = all->nan;
  out->pos_inf = all->pos_inf;
  out->neg_inf = all->neg_inf;
  finish_extrema(task, all, out);
  bool is_complex = stage_is_complex(task->dtype);
  long double spread = all->real.spread + all->imag.spread;
  if (task->kind == STAGE_INT64) {
    out->finite_mean = count ? (double)get_int_delta(0, 1, all->sum_int, count) : NAN;
  } else {
    out->finite_mean = count ? (double)(all->real.sum / count) : NAN;
  }
  out->finite_mean_imag = is_complex ? (count ? (double)(all->imag.sum / count) : NAN) : 0;
  out->finite_std = count ? (double)sqrtl(spread / count) : NAN;
  out->finite_std_sample = count > 1 ? (double)sqrtl(spread / (count - 1)) : NAN;
  out->finite_norm = (double)sqrtl(all->real.square + all->imag.square);
  bool clean = count == numel;
  out->std = clean ? out->finite_std : NAN;
  out->std_sample = clean ? out->finite_std_sample : NAN;
  out->norm = out->nan > 0 ? NAN : clean ? out->finite_norm : INFINITY;
  out->mean = out->finite_mean;
  out->mean_imag = out->finite_mean_imag;
  if (!clean) {
    bool both = out->nan > 0 || (out->pos_inf > 0 && out->neg_inf > 0) || is_complex;
    out->mean = both ? NAN : out->pos_inf > 0 ? INFINITY : -INFINITY;
    out->mean_imag = is_complex ? NAN : 0;
  }
}

enum dit_status dit_tensor_get_stats(const struct dit_tensor_view *view, struct dit_tensor_stats *stats,
                                     struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(walk_check(view, "the tensor", err));
  struct partial partials[WALK_SLOTS];
  struct walk walk;
  struct stats_task task = {&walk, view->dtype, stage_get_kind(view->dtype), partials};
  DIT_RETURN_IF_NOT_OK(stage_check(view->dtype, "the tensor", err));
  partial_init(&partials[0]);
  walk_init(&walk, 1, &view, WALK_ANY);
  merge_all(&task, walk_run(&walk, run_slot, &task));
  finish(&task, &partials[0], view->numel, stats);
  return DIT_OK;
}
