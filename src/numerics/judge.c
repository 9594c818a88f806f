/// The arithmetic of the auto verdict (contract in include/dit/judge.h).
///
/// Tensors are walked in the order of their indices. Chunks of real numbers that double holds go through the loops of
/// judge_loops.c; a chunk with a NaN or an infinity, complex numbers and integers beyond 2^53 are done pair by pair.
/// Where a chunk raises the margin it is looked at again for the place: that happens a few times per slot.
#include "dit/judge.h"

#include <float.h>
#include <string.h>

#include "numerics/judge_loops.h"
#include "numerics/pair.h"

// Types

enum dit_status dit_judge_type_get(int dtype, struct dit_judge_type *type, struct dit_error *err) {
  // The floor: float32, float64 and bfloat16 may be flushed to zero below the smallest normal number. The narrow types
  // have their subnormal numbers on every device; there it is the distance between them.
  switch (dit_dtype_is_valid(dtype) ? dit_dtype_get_real(dtype) : -1) {
    case DIT_DTYPE_F64:
      *type = (struct dit_judge_type){0x1p-53, DBL_MIN, DBL_MAX};
      return DIT_OK;
    case DIT_DTYPE_F32:
      *type = (struct dit_judge_type){0x1p-24, FLT_MIN, FLT_MAX};
      return DIT_OK;
    case DIT_DTYPE_BF16:
      *type = (struct dit_judge_type){0x1p-8, FLT_MIN, 0x1.FEp127};
      return DIT_OK;
    case DIT_DTYPE_F16:
      *type = (struct dit_judge_type){0x1p-11, 0x1p-24, 65504};
      return DIT_OK;
    case DIT_DTYPE_F8_E5M2:
    case DIT_DTYPE_F8_E5M2FNUZ:
      *type = (struct dit_judge_type){0x1p-3, 0x1p-16, 57344};
      return DIT_OK;
    case DIT_DTYPE_F8_E4M3FN:
      *type = (struct dit_judge_type){0x1p-4, 0x1p-9, 448};
      return DIT_OK;
    case DIT_DTYPE_F8_E4M3FNUZ:
      *type = (struct dit_judge_type){0x1p-4, 0x1p-10, 240};
      return DIT_OK;
    case DIT_DTYPE_F8_E8M0FNU:
      *type = (struct dit_judge_type){0.5, 0x1p-127, 0x1p127};
      return DIT_OK;
    default:
      return dit_error_set(err, DIT_ERR_UNSUPPORTED, "dtype %s (%d) has no rounding errors to judge",
                           dit_dtype_get_name(dtype), dtype);
  }
}

// What the passes share

struct judge_task {
  const struct walk *walk;
  int dtype[2];
  bool fast;  ///< real on both sides
  const struct dit_judge_rule *rule;
  double relative, floor;
  void *partials;
};

struct judge_slot {
  const struct judge_task *task;
  void *partial;
};

static enum dit_status judge_check(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                                   struct dit_error *err) {
  static const struct dit_compare_options any = {0};
  return pair_check(a, b, &any, err);
}

static void task_init(struct judge_task *task, struct walk *walk, const struct dit_tensor_view *a,
                      const struct dit_tensor_view *b, void *partials) {
  const struct dit_tensor_view *views[2] = {a, b};
  *task = (struct judge_task){
      .walk = walk,
      .dtype = {a->dtype, b->dtype},
      .fast = !stage_is_complex(a->dtype) && !stage_is_complex(b->dtype),
      .partials = partials,
  };
  walk_init(walk, 2, views, WALK_ROW_MAJOR);
}

/// Both sides of a chunk in double, padded; false when they cannot be had exactly.
static bool chunk_stage(const struct judge_task *task, const char *const *data, int64_t count, double *const *room,
                        const double **a, const double **b) {
  if (!task->fast || !(*a = stage_exact(task->dtype[0], data[0], room[0], count)) ||
      !(*b = stage_exact(task->dtype[1], data[1], room[1], count))) {
    return false;
  }
  int64_t rest = count % JUDGE_WIDTH;
  if (rest == 0) {
    return true;
  }
  const double **sides[2] = {a, b};
  for (int side = 0; side < 2; side++) {
    if (*sides[side] != room[side]) {
      memcpy(room[side], *sides[side], (size_t)count * sizeof(double));
      *sides[side] = room[side];
    }
    memset(room[side] + count, 0, (size_t)(JUDGE_WIDTH - rest) * sizeof(double));
  }
  return true;
}

static double get_larger(double a, double b) {
  return a > b ? a : b;
}

/// Two NaN are equal, and so are two complex infinities whatever their parts.
static bool pair_is_same(struct pair_number x, struct pair_number r, bool is_complex) {
  return pair_is_equal(x, r, true) ||
         (is_complex && pair_get_class(x) == PAIR_INFINITE && pair_get_class(r) == PAIR_INFINITE);
}

// Compare

struct compare_partial {
  struct dit_judge_result result;
};

static long double get_allowed(const struct dit_judge_rule *rule, long double size) {
  long double line = rule->relative * size + rule->absolute;
  long double most = fmaxl(rule->cap, rule->cap_relative * size);
  return fminl(line, most) + rule->floor;
}

static void result_put(struct dit_judge_result *result, int64_t index, long double error, long double allowed,
                       struct pair_number x, struct pair_number r) {
  result->index = index;
  result->error = (double)error;
  result->allowed = (double)allowed;
  result->value = (double)x.real;
  result->reference = (double)r.real;
}

/// The candidate overflowed where the reference, with its allowance, leaves the type's range.
static bool pair_may_overflow(const struct dit_judge_rule *rule, struct pair_number x, struct pair_number r,
                              bool is_complex) {
  if (pair_get_class(r) != PAIR_FINITE || pair_get_class(x) == PAIR_FINITE || !isfinite(rule->limit)) {
    return false;
  }
  long double size = pair_get_size(r);
  if (size + get_allowed(rule, size) < rule->limit) {
    return false;
  }
  return is_complex || (isinf(x.real) && (x.real > 0) == (r.real > 0));
}

static void compare_pair(const struct judge_task *task, struct dit_judge_result *result, struct pair_number x,
                         struct pair_number r, int64_t index) {
  bool is_complex = !task->fast;
  if (pair_is_same(x, r, is_complex)) {
    return;
  }
  result->unequal++;
  long double size = pair_get_size(r), allowed = get_allowed(task->rule, size);
  if (pair_get_class(x) != PAIR_FINITE || pair_get_class(r) != PAIR_FINITE) {
    if (pair_may_overflow(task->rule, x, r, is_complex)) {
      return;
    }
    result->wrong++;
    if (result->nonfinite++ == 0) {
      result_put(result, index, INFINITY, allowed, x, r);
    }
    return;
  }
  long double error = pair_get_diff(x, r);
  double margin = (double)(error / allowed);
  result->wrong += error > allowed;
  if (margin > result->margin) {
    result->margin = margin;
    if (result->nonfinite == 0) {
      result_put(result, index, error, allowed, x, r);
    }
  }
}

static void compare_slowly(const struct judge_task *task, struct dit_judge_result *result, const char *const *data,
                           int64_t begin, int64_t count) {
  _Alignas(64) double room[2][2 * WALK_CHUNK];
  struct pair_side x, r;
  pair_side_init(&x, task->dtype[0], data[0], count, room[0]);
  pair_side_init(&r, task->dtype[1], data[1], count, room[1]);
  for (int64_t i = 0; i < count; i++) {
    compare_pair(task, result, pair_side_get(&x, i), pair_side_get(&r, i), begin + i);
  }
}

/// The pair that raised the margin: the loop's own arithmetic once more, one by one.
static void place_find(const struct dit_judge_rule *rule, const double *x, const double *r, int64_t begin,
                       int64_t count, double margin, struct dit_judge_result *result) {
  for (int64_t i = 0; i < count; i++) {
    double size = fabs(r[i]), error = fabs(x[i] - r[i]);
    double line = rule->relative * size + rule->absolute, most = rule->cap_relative * size;
    most = rule->cap > most ? rule->cap : most;
    most = (line < most ? line : most) + rule->floor;
    if (error / most == margin) {
      result->margin = margin;
      if (result->nonfinite == 0) {
        result_put(result, begin + i, error, most, (struct pair_number){x[i], 0}, (struct pair_number){r[i], 0});
      }
      return;
    }
  }
}

static void compare_chunk(void *context, const char *const *data, int64_t begin, int64_t count) {
  const struct judge_slot *slot = context;
  struct dit_judge_result *result = &((struct compare_partial *)slot->partial)->result;
  _Alignas(64) double room[2][WALK_CHUNK + JUDGE_WIDTH];
  const double *x, *r;
  struct judge_found found = {.margin = result->margin};
  if (chunk_stage(slot->task, data, count, (double *[]){room[0], room[1]}, &x, &r)) {
    judge_loop_compare(x, r, count, slot->task->rule, &found);
    if (!found.bad) {
      result->wrong += found.wrong;
      result->unequal += found.unequal;
      if (found.margin > result->margin) {
        place_find(slot->task->rule, x, r, begin, count, found.margin, result);
      }
      return;
    }
  }
  compare_slowly(slot->task, result, data, begin, count);
}

static void compare_slot(void *context, int index, int64_t begin, int64_t end) {
  const struct judge_task *task = context;
  struct compare_partial *partial = (struct compare_partial *)task->partials + index;
  struct judge_slot slot = {task, partial};
  partial->result = (struct dit_judge_result){.index = -1};
  walk_range(task->walk, begin, end, compare_chunk, &slot);
}

/// `b` comes after `a`.
static void result_merge(struct dit_judge_result *a, const struct dit_judge_result *b) {
  bool first_nonfinite = a->nonfinite == 0 && b->nonfinite > 0;
  bool larger = a->nonfinite == 0 && b->nonfinite == 0 && b->margin > a->margin;
  if (first_nonfinite || larger) {
    a->index = b->index;
    a->error = b->error;
    a->allowed = b->allowed;
    a->value = b->value;
    a->reference = b->reference;
  }
  a->margin = get_larger(a->margin, b->margin);
  a->wrong += b->wrong;
  a->nonfinite += b->nonfinite;
  a->unequal += b->unequal;
}

static enum dit_status rule_check(const struct dit_judge_rule *rule, struct dit_error *err) {
  const double values[] = {rule->relative, rule->absolute, rule->cap, rule->cap_relative, rule->floor, rule->limit};
  static const char *const names[] = {"relative", "absolute", "cap", "cap_relative", "floor", "limit"};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    if (!(values[i] >= 0)) {
      return dit_error_set(err, DIT_ERR_INVALID, "%s of the rule is %g; it must be 0 or more", names[i], values[i]);
    }
  }
  return DIT_OK;
}

enum dit_status dit_judge_compare(const struct dit_tensor_view *x, const struct dit_tensor_view *r,
                                  const struct dit_judge_rule *rule, struct dit_judge_result *result,
                                  struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(judge_check(x, r, err));
  DIT_RETURN_IF_NOT_OK(rule_check(rule, err));
  struct compare_partial partials[WALK_SLOTS];
  struct walk walk;
  struct judge_task task;
  task_init(&task, &walk, x, r, partials);
  task.rule = rule;
  partials[0].result = (struct dit_judge_result){.index = -1};
  int slots = walk_run(&walk, compare_slot, &task);
  for (int slot = 1; slot < slots; slot++) {
    result_merge(&partials[0].result, &partials[slot].result);
  }
  *result = partials[0].result;
  result->numel = x->numel;
  return DIT_OK;
}

// Measure

static void measure_pair(const struct judge_task *task, struct dit_judge_error *error, struct pair_number x,
                         struct pair_number r) {
  error->unequal += !pair_is_same(x, r, !task->fast);
  if (pair_get_class(x) != PAIR_FINITE || pair_get_class(r) != PAIR_FINITE) {
    return;
  }
  long double size = pair_get_size(r), difference = pair_get_diff(x, r);
  error->finite++;
  error->largest = get_larger(error->largest, (double)difference);
  error->scale = get_larger(error->scale, (double)size);
  error->ratio = get_larger(error->ratio, difference > task->floor ? (double)(difference / size) : 0);
  error->residual = get_larger(error->residual, (double)(difference - task->relative * size - task->floor));
}

static void measure_chunk(void *context, const char *const *data, int64_t begin, int64_t count) {
  (void)begin;
  const struct judge_slot *slot = context;
  const struct judge_task *task = slot->task;
  struct dit_judge_error *error = slot->partial;
  _Alignas(64) double room[2][2 * WALK_CHUNK + JUDGE_WIDTH];
  const double *x, *r;
  struct judge_measured found = {0, error->largest, error->ratio, error->residual, error->scale, false};
  if (chunk_stage(task, data, count, (double *[]){room[0], room[1]}, &x, &r)) {
    judge_loop_measure(x, r, count, task->relative, task->floor, &found);
    if (!found.bad) {
      error->finite += count;
      error->unequal += found.unequal;
      error->largest = found.largest;
      error->ratio = found.ratio;
      error->residual = found.residual;
      error->scale = found.scale;
      return;
    }
  }
  struct pair_side a, b;
  pair_side_init(&a, task->dtype[0], data[0], count, room[0]);
  pair_side_init(&b, task->dtype[1], data[1], count, room[1]);
  for (int64_t i = 0; i < count; i++) {
    measure_pair(task, error, pair_side_get(&a, i), pair_side_get(&b, i));
  }
}

static void measure_slot(void *context, int index, int64_t begin, int64_t end) {
  const struct judge_task *task = context;
  struct dit_judge_error *partial = (struct dit_judge_error *)task->partials + index;
  struct judge_slot slot = {task, partial};
  *partial = (struct dit_judge_error){0};
  walk_range(task->walk, begin, end, measure_chunk, &slot);
}

enum dit_status dit_judge_measure(const struct dit_tensor_view *x, const struct dit_tensor_view *r, double relative,
                                  double floor, struct dit_judge_error *error, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(judge_check(x, r, err));
  struct dit_judge_error partials[WALK_SLOTS];
  struct walk walk;
  struct judge_task task;
  task_init(&task, &walk, x, r, partials);
  task.relative = relative;
  task.floor = floor;
  partials[0] = (struct dit_judge_error){0};
  int slots = walk_run(&walk, measure_slot, &task);
  struct dit_judge_error *all = &partials[0];
  for (int slot = 1; slot < slots; slot++) {
    const struct dit_judge_error *part = &partials[slot];
    all->finite += part->finite;
    all->unequal += part->unequal;
    all->largest = get_larger(all->largest, part->largest);
    all->ratio = get_larger(all->ratio, part->ratio);
    all->residual = get_larger(all->residual, part->residual);
    all->scale = get_larger(all->scale, part->scale);
  }
  all->numel = x->numel;
  *error = *all;
  return DIT_OK;
}
