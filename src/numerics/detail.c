/// Where two tensors differ: indices and the histogram of distances in units in the last place, pair by pair.
#include <string.h>

#include "core/convert.h"
#include "numerics/pair.h"

struct partial {
  int64_t worst_abs_index, worst_rel_index, first_index;
  long double worst_abs;
  long double worst_rel;
  int64_t ulp[DIT_ULP_BUCKETS];
  int64_t nan_both, nan_one;
};

struct detail_task {
  const struct walk *walk;
  const struct dit_compare_options *options;
  int dtype[2];
  int ulp_dtype;
  struct partial *partials;
};

struct slot_state {
  const struct detail_task *task;
  struct partial *partial;
};

/// Significant bits of a real type; integers are exact, the narrower one counts as less.
static int get_precision(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F64:
      return 53;
    case DIT_DTYPE_F32:
      return 24;
    case DIT_DTYPE_F16:
      return 11;
    case DIT_DTYPE_BF16:
      return 8;
    case DIT_DTYPE_F8_E4M3FN:
    case DIT_DTYPE_F8_E4M3FNUZ:
      return 4;
    case DIT_DTYPE_F8_E5M2:
    case DIT_DTYPE_F8_E5M2FNUZ:
      return 3;
    case DIT_DTYPE_F8_E8M0FNU:
      return 1;
    case DIT_DTYPE_BOOL:
      return 100;
    default:
      return 100 + (int)dit_dtype_get_size(dtype);
  }
}

static int choose_ulp_dtype(int a, int b) {
  int real_a = dit_dtype_get_real(a), real_b = dit_dtype_get_real(b);
  return get_precision(real_b) < get_precision(real_a) ? real_b : real_a;
}

static int64_t get_signed(uint64_t magnitude, bool negative) {
  return negative ? -(int64_t)magnitude : (int64_t)magnitude;
}

/// The number's place in the sequence of all values of a float type; 0 for both zeros.
static int64_t get_place(long double value, int dtype) {
  bool negative = value < 0;
  float narrow = (float)value;
  switch (dtype) {
    case DIT_DTYPE_F64: {
      double number = (double)value;
      uint64_t bits;
      memcpy(&bits, &number, sizeof(bits));
      return get_signed(bits & INT64_MAX, negative);
    }
    case DIT_DTYPE_F32:
      return get_signed(dit_float_get_bits(narrow) & INT32_MAX, negative);
    case DIT_DTYPE_F16:
      return get_signed(dit_float_to_f16(narrow) & 0x7FFF, negative);
    case DIT_DTYPE_BF16:
      return get_signed(dit_float_to_bf16(narrow) & 0x7FFF, negative);
    case DIT_DTYPE_F8_E5M2:
      return get_signed(dit_float_to_f8_e5m2(narrow) & 0x7F, negative);
    case DIT_DTYPE_F8_E4M3FN:
      return get_signed(dit_float_to_f8_e4m3fn(narrow) & 0x7F, negative);
    case DIT_DTYPE_F8_E8M0FNU:
      return dit_float_to_f8_e8m0fnu(narrow);
    default: {
      // The fnuz types have no infinity: what is beyond the range encodes as their one NaN, 0x80, one after the
      // largest.
      uint8_t code =
          dtype == DIT_DTYPE_F8_E5M2FNUZ ? dit_float_to_f8_e5m2fnuz(narrow) : dit_float_to_f8_e4m3fnuz(narrow);
      return get_signed(code == 0x80 ? 0x80 : code & 0x7F, negative);
    }
  }
}

static uint64_t get_distance(long double a, long double b, int dtype) {
  if (get_precision(dtype) >= 100) {
    long double diff = fabsl(a - b);
    return diff < 0x1p64L ? (uint64_t)diff : UINT64_MAX;
  }
  int64_t x = get_place(a, dtype), y = get_place(b, dtype);
  return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

static int get_bucket(uint64_t distance) {
  return distance <= 1 ? (int)distance : 65 - __builtin_clzll(distance - 1);
}

static void count_ulp(const struct detail_task *task, struct partial *partial, struct pair_number a,
                      struct pair_number b) {
  bool nan_a = pair_get_class(a) == PAIR_NAN, nan_b = pair_get_class(b) == PAIR_NAN;
  if (nan_a || nan_b) {
    partial->nan_both += nan_a && nan_b;
    partial->nan_one += nan_a != nan_b;
    return;
  }
  uint64_t real = get_distance(a.real, b.real, task->ulp_dtype), imag = 0;
  if (stage_is_complex(task->dtype[0]) || stage_is_complex(task->dtype[1])) {
    imag = get_distance(a.imag, b.imag, task->ulp_dtype);
  }
  partial->ulp[get_bucket(real > imag ? real : imag)]++;
}

static void add_pair(const struct detail_task *task, struct partial *partial, struct pair_number a,
                     struct pair_number b, int64_t index) {
  count_ulp(task, partial, a, b);
  if (partial->first_index < 0 && !pair_is_close(a, b, task->options)) {
    partial->first_index = index;
  }
  if (pair_get_class(a) != PAIR_FINITE || pair_get_class(b) != PAIR_FINITE) {
    return;
  }
  long double diff = pair_get_diff(a, b);
  if (diff > partial->worst_abs) {
    partial->worst_abs = diff;
    partial->worst_abs_index = index;
  }
  long double ratio = diff > 0 ? diff / pair_get_size(b) : 0;
  if (ratio > partial->worst_rel) {
    partial->worst_rel = ratio;
    partial->worst_rel_index = index;
  }
}

static void run_chunk(void *context, const char *const *data, int64_t begin, int64_t count) {
  const struct slot_state *state = context;
  _Alignas(64) double room[2][2 * WALK_CHUNK];
  struct pair_side a, b;
  pair_side_init(&a, state->task->dtype[0], data[0], count, room[0]);
  pair_side_init(&b, state->task->dtype[1], data[1], count, room[1]);
  for (int64_t i = 0; i < count; i++) {
    add_pair(state->task, state->partial, pair_side_get(&a, i), pair_side_get(&b, i), begin + i);
  }
}

static void partial_init(struct partial *partial) {
  memset(partial, 0, sizeof(*partial));
  partial->worst_abs_index = partial->worst_rel_index = partial->first_index = -1;
}

static void run_slot(void *context, int index, int64_t begin, int64_t end) {
  const struct detail_task *task = context;
  struct slot_state state = {task, &task->partials[index]};
  partial_init(state.partial);
  walk_range(task->walk, begin, end, run_chunk, &state);
}

/// `b` comes after `a`.
static void partial_merge(struct partial *a, const struct partial *b) {
  if (b->worst_abs > a->worst_abs) {
    a->worst_abs = b->worst_abs;
    a->worst_abs_index = b->worst_abs_index;
  }
  if (b->worst_rel > a->worst_rel) {
    a->worst_rel = b->worst_rel;
    a->worst_rel_index = b->worst_rel_index;
  }
  if (a->first_index < 0) {
    a->first_index = b->first_index;
  }
  for (int bucket = 0; bucket < DIT_ULP_BUCKETS; bucket++) {
    a->ulp[bucket] += b->ulp[bucket];
  }
  a->nan_both += b->nan_both;
  a->nan_one += b->nan_one;
}

static void set_coordinates(const struct dit_tensor_view *view, int64_t index, int64_t *coordinates) {
  for (int dim = view->ndim - 1; dim >= 0 && index >= 0; dim--) {
    coordinates[dim] = index % view->sizes[dim];
    index /= view->sizes[dim];
  }
}

enum dit_status dit_tensor_compare_detail(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                                          const struct dit_compare_options *options, struct dit_compare_detail *detail,
                                          struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(pair_check(a, b, options, err));
  struct partial partials[WALK_SLOTS];
  struct walk walk;
  struct detail_task task = {
      &walk, options, {a->dtype, b->dtype}, choose_ulp_dtype(a->dtype, b->dtype), partials,
  };
  const struct dit_tensor_view *views[2] = {a, b};
  partial_init(&partials[0]);
  walk_init(&walk, 2, views, WALK_ROW_MAJOR);
  int slots = walk_run(&walk, run_slot, &task);
  for (int slot = 1; slot < slots; slot++) {
    partial_merge(&partials[0], &partials[slot]);
  }
  memset(detail, 0, sizeof(*detail));
  detail->worst_abs_index = partials[0].worst_abs_index;
  detail->worst_rel_index = partials[0].worst_rel_index;
  detail->first_mismatch_index = partials[0].first_index;
  set_coordinates(a, detail->worst_abs_index, detail->worst_abs);
  set_coordinates(a, detail->worst_rel_index, detail->worst_rel);
  set_coordinates(a, detail->first_mismatch_index, detail->first_mismatch);
  detail->ulp_dtype = task.ulp_dtype;
  memcpy(detail->ulp, partials[0].ulp, sizeof(detail->ulp));
  detail->ulp_nan_both = partials[0].nan_both;
  detail->ulp_nan_one = partials[0].nan_one;
  return DIT_OK;
}
