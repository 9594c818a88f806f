/// The legacy columns and the distance from a yardstick in one pass (contract in include/dit/judge.h): the common case
/// of the auto verdict, float32 results that differ from the CPU's in the last bits alone.
///
/// Eight lanes in double. Maxima do not depend on the order; sums are folded chunk by chunk and slot by slot, so
/// neither the instruction set nor the number of threads changes a bit.
#include <math.h>
#include <string.h>

#include "dit/judge.h"
#include "numerics/simd.h"
#include "numerics/walk.h"

#define LANES 8

typedef double wide __attribute__((vector_size(8 * LANES)));
typedef float narrow __attribute__((vector_size(4 * LANES)));
typedef int64_t bits __attribute__((vector_size(8 * LANES)));

#define FILL(value) ((wide){0} + (value))
#define ABSOLUTE(x) ((wide)((bits)(x) & INT64_MAX))
#define RAISE(most, x)                                                  \
  do {                                                                  \
    bits larger_ = (x) > (most);                                        \
    (most) = (wide)(((bits)(x) & larger_) | ((bits)(most) & ~larger_)); \
  } while (0)
#define FOLD_MAX(out, lanes)                                                                             \
  do {                                                                                                   \
    for (int lane_ = 0; lane_ < LANES; lane_++) (out) = (lanes)[lane_] > (out) ? (lanes)[lane_] : (out); \
  } while (0)
#define FOLD_SUM(out, lanes)                                             \
  do {                                                                   \
    for (int lane_ = 0; lane_ < LANES; lane_++) (out) += (lanes)[lane_]; \
  } while (0)

/// `type` is that of the reference. The columns see it rounded to float32.
#define NEAR_LOOP(name, type, vector)                                                                            \
  NUMERIC_INLINE void name##_body(const float *x, const type *r, int64_t count,                                  \
                                  const struct dit_judge_near_rule *rule, struct dit_judge_near *near) {         \
    wide atol = FILL(rule->atol), rtol = FILL(rule->rtol), relative = FILL(rule->relative), offset = FILL(1e-6); \
    wide difference = FILL(near->difference), quotient = FILL(near->relative), beyond = FILL(near->beyond);      \
    wide excess = FILL(near->excess), scale = FILL(near->scale);                                                 \
    wide dot = {0}, norm_x = {0}, norm_r = {0}, poison = {0};                                                    \
    for (int64_t i = 0; i < count; i += LANES) {                                                                 \
      narrow single;                                                                                             \
      vector stored;                                                                                             \
      memcpy(&single, x + i, sizeof single);                                                                     \
      memcpy(&stored, r + i, sizeof stored);                                                                     \
      wide a = __builtin_convertvector(single, wide), c = __builtin_convertvector(stored, wide);                 \
      wide b = __builtin_convertvector(__builtin_convertvector(c, narrow), wide);                                \
      wide size_a = ABSOLUTE(a), size_b = ABSOLUTE(b), apart = ABSOLUTE(a - b), error = ABSOLUTE(a - c);         \
      RAISE(difference, apart);                                                                                  \
      RAISE(quotient, apart / (size_a + offset));                                                                \
      RAISE(beyond, apart - (atol + rtol * size_b));                                                             \
      RAISE(excess, error - relative * ABSOLUTE(c));                                                             \
      RAISE(scale, size_b);                                                                                      \
      dot += a * b;                                                                                              \
      norm_x += a * a;                                                                                           \
      norm_r += b * b;                                                                                           \
      poison += (a - a) + (c - c);                                                                               \
    }                                                                                                            \
    FOLD_MAX(near->difference, difference);                                                                      \
    FOLD_MAX(near->relative, quotient);                                                                          \
    FOLD_MAX(near->beyond, beyond);                                                                              \
    FOLD_MAX(near->excess, excess);                                                                              \
    FOLD_MAX(near->scale, scale);                                                                                \
    FOLD_SUM(near->dot, dot);                                                                                    \
    FOLD_SUM(near->norm_x, norm_x);                                                                              \
    FOLD_SUM(near->norm_r, norm_r);                                                                              \
    FOLD_SUM(near->poison, poison);                                                                              \
  }                                                                                                              \
  NUMERIC_MULTI(static, name,                                                                                    \
                (const float *x, const type *r, int64_t count, const struct dit_judge_near_rule *rule,           \
                 struct dit_judge_near *near),                                                                   \
                (x, r, count, rule, near))

NEAR_LOOP(near_loop_double, double, wide)
NEAR_LOOP(near_loop_float, float, narrow)

struct near_task {
  const struct walk *walk;
  const struct dit_judge_near_rule *rule;
  bool is_wide;
  struct dit_judge_near *partials;
};

struct near_slot {
  const struct near_task *task;
  struct dit_judge_near *near;
};

static void near_run(const struct near_slot *slot, const void *x, const void *r, int64_t count) {
  if (slot->task->is_wide) {
    near_loop_double(x, r, count, slot->task->rule, slot->near);
  } else {
    near_loop_float(x, r, count, slot->task->rule, slot->near);
  }
}

static void near_chunk(void *context, const char *const *data, int64_t begin, int64_t count) {
  (void)begin;
  const struct near_slot *slot = context;
  int64_t whole = count - count % LANES, rest = count - whole;
  size_t width = slot->task->is_wide ? sizeof(double) : sizeof(float);
  if (whole > 0) {
    near_run(slot, data[0], data[1], whole);
  }
  if (rest > 0) {  // beside zeros
    float x[LANES] = {0};
    double r[LANES] = {0};
    memcpy(x, data[0] + (size_t)whole * sizeof *x, (size_t)rest * sizeof *x);
    memcpy(r, data[1] + (size_t)whole * width, (size_t)rest * width);
    near_run(slot, x, r, LANES);
  }
}

static const struct dit_judge_near nothing = {.beyond = -INFINITY, .excess = -INFINITY};

static void near_fill(void *context, int index, int64_t begin, int64_t end) {
  const struct near_task *task = context;
  struct near_slot slot = {task, &task->partials[index]};
  task->partials[index] = nothing;
  walk_range(task->walk, begin, end, near_chunk, &slot);
}

static void near_merge(struct dit_judge_near *a, const struct dit_judge_near *b) {
  a->difference = fmax(a->difference, b->difference);
  a->relative = fmax(a->relative, b->relative);
  a->beyond = fmax(a->beyond, b->beyond);
  a->excess = fmax(a->excess, b->excess);
  a->scale = fmax(a->scale, b->scale);
  a->dot += b->dot;
  a->norm_x += b->norm_x;
  a->norm_r += b->norm_r;
  a->poison += b->poison;
}

static bool views_fit(const struct dit_tensor_view *x, const struct dit_tensor_view *r) {
  size_t size = (size_t)x->ndim * sizeof *x->sizes;
  return x->dtype == DIT_DTYPE_F32 && (r->dtype == DIT_DTYPE_F32 || r->dtype == DIT_DTYPE_F64) && x->ndim == r->ndim &&
         x->numel == r->numel && x->numel > 0 &&
         (size == 0 || (memcmp(x->sizes, r->sizes, size) == 0 && memcmp(x->strides, r->strides, size) == 0)) &&
         dit_shape_is_dense(x->ndim, x->sizes, x->strides);
}

bool dit_judge_near(const struct dit_tensor_view *x, const struct dit_tensor_view *r,
                    const struct dit_judge_near_rule *rule, struct dit_judge_near *near) {
  if (!views_fit(x, r) || walk_check(x, "x", NULL) != DIT_OK || walk_check(r, "r", NULL) != DIT_OK) {
    return false;
  }
  const struct dit_tensor_view *views[2] = {x, r};
  struct dit_judge_near partials[WALK_SLOTS];
  struct walk walk;
  struct near_task task = {&walk, rule, r->dtype == DIT_DTYPE_F64, partials};
  walk_init(&walk, 2, views, WALK_ANY);
  int slots = walk_run(&walk, near_fill, &task);
  for (int slot = 1; slot < slots; slot++) {
    near_merge(&partials[0], &partials[slot]);
  }
  *near = slots > 0 ? partials[0] : nothing;
  return slots > 0;
}
