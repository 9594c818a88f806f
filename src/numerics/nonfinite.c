/// The flag-only pass: bits are compared as integers; only a chunk that holds something special is looked at closely.
#include <math.h>
#include <stdatomic.h>

#include "dit/numerics.h"
#include "numerics/simd.h"
#include "numerics/stage.h"
#include "numerics/walk.h"

/// An element is NaN or infinite when ((bits ^ flip) & mask) >= limit.
struct special_rule {
  int width;  ///< bytes of one real number
  uint64_t flip, mask, limit;
};

static bool get_rule(int dtype, struct special_rule *rule) {
  switch (dit_dtype_get_real(dtype)) {
    case DIT_DTYPE_F64:
      *rule = (struct special_rule){8, 0, INT64_MAX, UINT64_C(0x7FF0000000000000)};
      return true;
    case DIT_DTYPE_F32:
      *rule = (struct special_rule){4, 0, INT32_MAX, 0x7F800000};
      return true;
    case DIT_DTYPE_F16:
      *rule = (struct special_rule){2, 0, 0x7FFF, 0x7C00};
      return true;
    case DIT_DTYPE_BF16:
      *rule = (struct special_rule){2, 0, 0x7FFF, 0x7F80};
      return true;
    case DIT_DTYPE_F8_E5M2:
      *rule = (struct special_rule){1, 0, 0x7F, 0x7C};
      return true;
    case DIT_DTYPE_F8_E4M3FN:
      *rule = (struct special_rule){1, 0, 0x7F, 0x7F};
      return true;
    case DIT_DTYPE_F8_E5M2FNUZ:
    case DIT_DTYPE_F8_E4M3FNUZ:
      *rule = (struct special_rule){1, 0x7F, 0xFF, 0xFF};
      return true;
    case DIT_DTYPE_F8_E8M0FNU:
      *rule = (struct special_rule){1, 0, 0xFF, 0xFF};
      return true;
    default:
      return false;
  }
}

#define FIND(type)                                                                             \
  do {                                                                                         \
    const type *bits = values;                                                                 \
    type flip = (type)rule->flip, mask = (type)rule->mask, limit = (type)rule->limit, any = 0; \
    for (int64_t i = 0; i < count; i++) {                                                      \
      type hit = (type)((bits[i] ^ flip) & mask) >= limit ? 1 : 0;                             \
      any |= hit;                                                                              \
    }                                                                                          \
    *found = any != 0;                                                                         \
  } while (0)

NUMERIC_INLINE void find_special_body(const void *values, int64_t count, const struct special_rule *rule, bool *found) {
  if (rule->width == 4) {
    FIND(uint32_t);
  } else if (rule->width == 2) {
    FIND(uint16_t);
  } else if (rule->width == 8) {
    FIND(uint64_t);
  } else {
    FIND(uint8_t);
  }
}
NUMERIC_MULTI(static, find_special, (const void *values, int64_t count, const struct special_rule *rule, bool *found),
              (values, count, rule, found))

struct flag_task {
  const struct walk *walk;
  int dtype;
  struct special_rule rule;
  atomic_bool nan, inf;  ///< only ever set, so the order does not matter
};

static void run_chunk(void *context, const char *const *data, int64_t begin, int64_t count) {
  (void)begin;
  struct flag_task *task = context;
  bool found = false;
  count = stage_is_complex(task->dtype) ? 2 * count : count;
  find_special(data[0], count, &task->rule, &found);
  for (int64_t i = 0; found && i < count; i++) {
    double x = (double)stage_one(task->dtype, data[0], i);
    if (isnan(x)) {
      atomic_store_explicit(&task->nan, true, memory_order_relaxed);
    } else if (isinf(x)) {
      atomic_store_explicit(&task->inf, true, memory_order_relaxed);
    }
  }
}

static void run_slot(void *context, int index, int64_t begin, int64_t end) {
  (void)index;
  struct flag_task *task = context;
  const int64_t step = 16 * WALK_CHUNK;
  for (; begin < end; begin += step) {
    if (atomic_load_explicit(&task->nan, memory_order_relaxed) &&
        atomic_load_explicit(&task->inf, memory_order_relaxed)) {
      return;
    }
    walk_range(task->walk, begin, begin + step < end ? begin + step : end, run_chunk, task);
  }
}

enum dit_status dit_tensor_get_nonfinite(const struct dit_tensor_view *view, bool *has_nan, bool *has_inf,
                                         struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(walk_check(view, "the tensor", err));
  DIT_RETURN_IF_NOT_OK(stage_check(view->dtype, "the tensor", err));
  struct walk walk;
  struct flag_task task = {.walk = &walk, .dtype = view->dtype};
  atomic_init(&task.nan, false);
  atomic_init(&task.inf, false);
  if (get_rule(view->dtype, &task.rule)) {
    walk_init(&walk, 1, &view, WALK_ANY);
    (void)walk_run(&walk, run_slot, &task);
  }
  *has_nan = atomic_load(&task.nan);
  *has_inf = atomic_load(&task.inf);
  return DIT_OK;
}
