/// Two small passes beside the verdict: the legacy relative difference, and numbers with a full significand (contracts
/// in include/dit/judge.h).
#include <float.h>

#include "dit/judge.h"
#include "numerics/judge_loops.h"
#include "numerics/pair.h"

// The legacy columns

struct relate_partial {
  double difference, relative;
  bool nan, infinite;  ///< a pair of which one side alone is NaN; other unlike infinities
};

struct relate_task {
  const struct walk *walk;
  int dtype[2];
  bool fast;
  double offset;
  struct relate_partial *partials;
};

struct relate_slot_state {
  const struct relate_task *task;
  struct relate_partial *partial;
};

static void relate_pair(const struct relate_task *task, struct relate_partial *out, struct pair_number a,
                        struct pair_number b) {
  if (pair_is_equal(a, b, true)) {
    return;
  }
  if (pair_get_class(a) == PAIR_NAN || pair_get_class(b) == PAIR_NAN) {
    out->nan = true;
    return;
  }
  if (pair_get_class(a) == PAIR_INFINITE || pair_get_class(b) == PAIR_INFINITE) {
    out->infinite = true;
    return;
  }
  long double difference = pair_get_diff(a, b);
  double relative = (double)(difference / (pair_get_size(a) + task->offset));
  out->difference = (double)difference > out->difference ? (double)difference : out->difference;
  out->relative = relative > out->relative ? relative : out->relative;
}

static void relate_chunk(void *context, const char *const *data, int64_t begin, int64_t count) {
  (void)begin;
  const struct relate_slot_state *state = context;
  const struct relate_task *task = state->task;
  struct relate_partial *out = state->partial;
  _Alignas(64) double room[2][2 * WALK_CHUNK];
  const double *p = NULL, *q = NULL;
  struct judge_related found = {out->difference, out->relative, false};
  int64_t whole = count - count % JUDGE_WIDTH;
  if (task->fast && (p = stage_exact(task->dtype[0], data[0], room[0], count)) &&
      (q = stage_exact(task->dtype[1], data[1], room[1], count))) {
    judge_loop_relate(p, q, whole, task->offset, &found);
  }
  bool done = p && q && !found.bad;
  if (done) {
    out->difference = found.difference;
    out->relative = found.relative;
  }
  struct pair_side a, b;
  pair_side_init(&a, task->dtype[0], data[0], count, room[0]);
  pair_side_init(&b, task->dtype[1], data[1], count, room[1]);
  for (int64_t i = done ? whole : 0; i < count; i++) {
    relate_pair(task, out, pair_side_get(&a, i), pair_side_get(&b, i));
  }
}

static void relate_slot(void *context, int index, int64_t begin, int64_t end) {
  const struct relate_task *task = context;
  struct relate_slot_state state = {task, &task->partials[index]};
  *state.partial = (struct relate_partial){0};
  walk_range(task->walk, begin, end, relate_chunk, &state);
}

enum dit_status dit_judge_relative(const struct dit_tensor_view *a, const struct dit_tensor_view *b, double offset,
                                   double *difference, double *relative, struct dit_error *err) {
  static const struct dit_compare_options any = {0};
  DIT_RETURN_IF_NOT_OK(pair_check(a, b, &any, err));
  const struct dit_tensor_view *views[2] = {a, b};
  struct relate_partial partials[WALK_SLOTS];
  struct walk walk;
  struct relate_task task = {
      .walk = &walk,
      .dtype = {a->dtype, b->dtype},
      .fast = !stage_is_complex(a->dtype) && !stage_is_complex(b->dtype),
      .offset = offset,
      .partials = partials,
  };
  partials[0] = (struct relate_partial){0};
  walk_init(&walk, 2, views, WALK_ANY);
  int slots = walk_run(&walk, relate_slot, &task);
  struct relate_partial all = partials[0];
  for (int slot = 1; slot < slots; slot++) {
    all.difference = partials[slot].difference > all.difference ? partials[slot].difference : all.difference;
    all.relative = partials[slot].relative > all.relative ? partials[slot].relative : all.relative;
    all.nan |= partials[slot].nan;
    all.infinite |= partials[slot].infinite;
  }
  *difference = all.nan ? NAN : all.infinite ? INFINITY : all.difference;
  *relative = all.nan ? NAN : all.infinite ? INFINITY : all.relative;
  return DIT_OK;
}

// Full significands

struct odd_task {
  const struct walk *walk;
  int64_t *counts;
  int width, parts;
};

struct odd_slot_state {
  const struct odd_task *task;
  int64_t *count;
};

#define COUNT_ODD(type)                       \
  do {                                        \
    const type *bits = (const void *)data[0]; \
    for (int64_t i = 0; i < numbers; i++) {   \
      odd += bits[i] & 1;                     \
    }                                         \
  } while (0)

static void odd_chunk(void *context, const char *const *data, int64_t begin, int64_t count) {
  (void)begin;
  const struct odd_slot_state *state = context;
  int64_t numbers = count * state->task->parts;
  uint64_t odd = 0;
  if (state->task->width == 8) {
    COUNT_ODD(uint64_t);
  } else if (state->task->width == 4) {
    COUNT_ODD(uint32_t);
  } else {
    COUNT_ODD(uint16_t);
  }
  *state->count += (int64_t)odd;
}

static void odd_slot(void *context, int index, int64_t begin, int64_t end) {
  const struct odd_task *task = context;
  struct odd_slot_state state = {task, &task->counts[index]};
  *state.count = 0;
  walk_range(task->walk, begin, end, odd_chunk, &state);
}

enum dit_status dit_judge_count_odd(const struct dit_tensor_view *x, int64_t *odd, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(walk_check(x, "the tensor", err));
  enum dit_dtype_class kind = dit_dtype_get_class(x->dtype);
  int real = dit_dtype_get_real(x->dtype), width = (int)dit_dtype_get_size(real);
  if ((kind != DIT_DTYPE_CLASS_FLOAT && kind != DIT_DTYPE_CLASS_COMPLEX) || width < 2) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "dtype %s has no significand of 8 bits or more",
                         dit_dtype_get_name(x->dtype));
  }
  int64_t counts[WALK_SLOTS];
  struct walk walk;
  struct odd_task task = {&walk, counts, width, real == x->dtype ? 1 : 2};
  walk_init(&walk, 1, &x, WALK_ANY);
  int slots = walk_run(&walk, odd_slot, &task);
  int64_t total = 0;
  for (int slot = 0; slot < slots; slot++) {
    total += counts[slot];
  }
  *odd = total;
  return DIT_OK;
}
