// Sets of bytes as strided views have them.
//
// Two boxes are compared digit by digit: all strides of both, sorted, make the units of a mixed radix (each must divide
// the next), and in it a box is a range of digits per unit, or a few such boxes when a range crosses a unit. Half of
// the columns of a matrix is a range of the lowest digit, every second row a single value of a digit of two. What does
// not fit (a step of three in rows of eight) is answered with "cannot be said". Depends on nothing but integers.
#include "tools/overflow/box.h"

#include <string.h>

#define UNITS (2 * OVERFLOW_BOX_DIMS)

/// Ranges of digits, lowest unit first.
struct digits {
  int64_t low[UNITS], high[UNITS];
};

struct digits_list {
  struct digits item[OVERFLOW_BOX_PIECES];
  int count;
};

struct radix {
  int64_t unit[UNITS];
  int count;
  uintptr_t origin;
};

// Boxes

void overflow_box_set_run(struct overflow_box *box, uintptr_t low, uintptr_t high) {
  *box = (struct overflow_box){.start = low, .ndim = 1, .size[0] = (int64_t)(high - low), .stride[0] = 1};
}

struct engine_span overflow_box_get_span(const struct overflow_box *box) {
  int64_t reach = 1;
  for (int d = 0; d < box->ndim; d++) {
    reach += (box->size[d] - 1) * box->stride[d];
  }
  return (struct engine_span){box->start, box->start + (uintptr_t)reach};
}

int64_t overflow_box_get_bytes(const struct overflow_box *box) {
  int64_t bytes = 1;
  for (int d = 0; d < box->ndim; d++) {
    bytes *= box->size[d];
  }
  return bytes;
}

// Put a dimension around the `count` ones at the end of the arrays, which fall in stride. False: they would meet.
static bool dim_wrap(struct overflow_box *box, int64_t size, int64_t stride) {
  int64_t *inner_size = &box->size[OVERFLOW_BOX_DIMS - box->ndim];
  int64_t *inner_stride = &box->stride[OVERFLOW_BOX_DIMS - box->ndim];
  if (size == 1) {
    return true;
  }
  if (stride == *inner_size * *inner_stride) {
    *inner_size *= size;
    return true;
  }
  if (box->ndim == 1 && stride < *inner_size) {  // windows that overlap: one run
    *inner_size += (size - 1) * stride;
    return true;
  }
  int64_t reach = 1;
  for (int d = 0; d < box->ndim; d++) {
    reach += (inner_size[d] - 1) * inner_stride[d];
  }
  if (stride < reach || box->ndim == OVERFLOW_BOX_DIMS) {
    return false;
  }
  box->ndim++;
  inner_size[-1] = size;
  inner_stride[-1] = stride;
  return true;
}

static void box_begin(struct overflow_box *box, uintptr_t start, int64_t run) {
  *box = (struct overflow_box){.start = start, .ndim = 1};
  box->size[OVERFLOW_BOX_DIMS - 1] = run;
  box->stride[OVERFLOW_BOX_DIMS - 1] = 1;
}

static void box_end(struct overflow_box *box) {
  int first = OVERFLOW_BOX_DIMS - box->ndim;
  memmove(box->size, box->size + first, (size_t)box->ndim * sizeof *box->size);
  memmove(box->stride, box->stride + first, (size_t)box->ndim * sizeof *box->stride);
}

bool overflow_box_set(struct overflow_box *box, const struct engine_tensor *tensor) {
  struct engine_span span = engine_tensor_get_span(tensor);
  int64_t item = (int64_t)dit_dtype_get_size(tensor->dtype);
  bool wrapped = true;
  box_begin(box, span.low, item);
  for (int64_t after = 0; wrapped;) {  // dimensions in the order of their strides
    int64_t stride = INT64_MAX;
    for (int d = 0; d < tensor->ndim; d++) {
      if (tensor->sizes[d] > 1 && tensor->strides[d] > after && tensor->strides[d] < stride) {
        stride = tensor->strides[d];
      }
    }
    if (stride == INT64_MAX) {
      break;
    }
    int64_t reach = 0;  // dimensions of one stride are one that reaches further
    for (int d = 0; d < tensor->ndim; d++) {
      reach += tensor->strides[d] == stride ? tensor->sizes[d] - 1 : 0;
    }
    wrapped = dim_wrap(box, reach + 1, stride * item);
    after = stride;
  }
  if (!wrapped) {
    overflow_box_set_run(box, span.low, span.high);
    return false;
  }
  box_end(box);
  return true;
}

// Digits

static bool radix_add(struct radix *radix, const struct overflow_box *box) {
  for (int d = 0; d < box->ndim; d++) {
    int at = 0;
    while (at < radix->count && radix->unit[at] < box->stride[d]) {
      at++;
    }
    if (at < radix->count && radix->unit[at] == box->stride[d]) {
      continue;
    }
    if ((at > 0 && box->stride[d] % radix->unit[at - 1]) || (at < radix->count && radix->unit[at] % box->stride[d])) {
      return false;
    }
    memmove(&radix->unit[at + 1], &radix->unit[at], (size_t)(radix->count - at) * sizeof *radix->unit);
    radix->unit[at] = box->stride[d];
    radix->count++;
  }
  return true;
}

// The digits of `a` start at 0, but for the highest: `b` may lie before it.
static bool radix_set(struct radix *radix, const struct overflow_box *a, const struct overflow_box *b) {
  radix->count = 0;
  if (!radix_add(radix, a) || !radix_add(radix, b)) {
    return false;
  }
  uintptr_t top = (uintptr_t)radix->unit[radix->count - 1];
  uintptr_t ahead = b->start < a->start ? (a->start - b->start + top - 1) / top * top : 0;
  radix->origin = a->start - ahead;
  return true;
}

// Every item of the list, with the digits `first` up to `end` as in `range`, goes to `out`.
static bool list_cross(const struct digits_list *list, const struct digits *range, int first, int end,
                       struct digits_list *out) {
  for (int i = 0; i < list->count; i++) {
    if (out->count == OVERFLOW_BOX_PIECES) {
      return false;
    }
    struct digits *item = &out->item[out->count++];
    *item = list->item[i];
    memcpy(item->low + first, range->low + first, (size_t)(end - first) * sizeof *item->low);
    memcpy(item->high + first, range->high + first, (size_t)(end - first) * sizeof *item->high);
  }
  return true;
}

static void digits_put(const struct radix *radix, struct digits *digits, int first, int end, int64_t value) {
  for (int i = first; i < end; i++) {
    int64_t base = i + 1 < end ? radix->unit[i + 1] / radix->unit[i] : INT64_MAX;
    digits->low[i] = value % base;
    digits->high[i] = digits->low[i] + 1;
    value /= base;
  }
}

// The numbers from `low` up to `high`, counted in unit `first`, in the digits up to `end`: what comes before a full
// unit, the full units, what comes after them.
static bool range_split(const struct radix *radix, int64_t low, int64_t high, int first, int end,
                        const struct digits_list *list, struct digits_list *out) {
  struct digits range;
  for (int level = first; low < high; level++) {
    if (level + 1 == end) {
      range.low[level] = low;
      range.high[level] = high;
      return list_cross(list, &range, first, end, out);
    }
    int64_t base = radix->unit[level + 1] / radix->unit[level];
    int64_t head = low % base ? base - low % base : 0, tail = high % base;
    if (low / base == high / base) {
      head = high - low;
      tail = 0;
    }
    if (head) {
      range.low[level] = low % base;
      range.high[level] = low % base + head;
      digits_put(radix, &range, level + 1, end, low / base);
      if (!list_cross(list, &range, first, end, out)) {
        return false;
      }
    }
    if (tail) {
      range.low[level] = 0;
      range.high[level] = tail;
      digits_put(radix, &range, level + 1, end, high / base);
      if (!list_cross(list, &range, first, end, out)) {
        return false;
      }
    }
    range.low[level] = 0;  // full units: on with the next digit
    range.high[level] = base;
    low = (low + head) / base;
    high = (high - tail) / base;
  }
  return true;
}

static bool list_set(struct digits_list *list, const struct radix *radix, const struct overflow_box *box) {
  int64_t offset = (int64_t)(box->start - radix->origin);
  memset(&list->item[0], 0, sizeof list->item[0]);
  list->count = 1;
  int level = 0;
  for (int d = box->ndim - 1; d >= 0; d--) {
    int end = level;  // of the digits that this dimension may count in: those below the next dimension's
    while (end < radix->count && (d == 0 || radix->unit[end] < box->stride[d - 1])) {
      end++;
    }
    int64_t from = offset / radix->unit[level];
    if (end < radix->count) {
      from %= radix->unit[end] / radix->unit[level];
      if (from + box->size[d] > radix->unit[end] / radix->unit[level]) {
        return false;
      }
    }
    struct digits_list crossed = {.count = 0};
    if (!range_split(radix, from, from + box->size[d], level, end, list, &crossed)) {
      return false;
    }
    *list = crossed;
    level = end;
  }
  return true;
}

static bool pair_set(struct radix *radix, const struct overflow_box *a, const struct overflow_box *b,
                     struct digits_list *a_list, struct digits_list *b_list) {
  return radix_set(radix, a, b) && list_set(a_list, radix, a) && list_set(b_list, radix, b);
}

// Pairs

static bool digits_meet(const struct radix *radix, const struct digits *a, const struct digits *b) {
  for (int i = 0; i < radix->count; i++) {
    if (a->low[i] >= b->high[i] || b->low[i] >= a->high[i]) {
      return false;
    }
  }
  return true;
}

static int64_t digits_count_common(const struct radix *radix, const struct digits *a, const struct digits *b) {
  int64_t count = 1;
  for (int i = 0; i < radix->count; i++) {
    int64_t low = a->low[i] > b->low[i] ? a->low[i] : b->low[i];
    int64_t high = a->high[i] < b->high[i] ? a->high[i] : b->high[i];
    count *= high - low;
  }
  return count;
}

static bool box_has(const struct overflow_box *box, const struct engine_span *span) {
  struct engine_span own = overflow_box_get_span(box);
  return box->ndim == 1 && own.low <= span->low && span->high <= own.high;
}

int64_t overflow_box_meet(const struct overflow_box *a, const struct overflow_box *b) {
  struct engine_span a_span = overflow_box_get_span(a), b_span = overflow_box_get_span(b);
  if (!engine_spans_meet(&a_span, &b_span)) {
    return 0;
  }
  if (box_has(a, &b_span)) {
    return overflow_box_get_bytes(b);
  }
  if (box_has(b, &a_span)) {
    return overflow_box_get_bytes(a);
  }
  struct radix radix;
  struct digits_list a_list, b_list;
  if (!pair_set(&radix, a, b, &a_list, &b_list)) {
    return -1;
  }
  int64_t common = 0;
  for (int i = 0; i < a_list.count; i++) {
    for (int k = 0; k < b_list.count; k++) {
      common += digits_meet(&radix, &a_list.item[i], &b_list.item[k])
                    ? digits_count_common(&radix, &a_list.item[i], &b_list.item[k])
                    : 0;
    }
  }
  return common;
}

// `a` without `b`, digit by digit from the highest: what lies below and above b's range, then on with what lies in it.
static bool digits_subtract(const struct radix *radix, struct digits a, const struct digits *b,
                            struct digits_list *out) {
  if (!digits_meet(radix, &a, b)) {
    if (out->count == OVERFLOW_BOX_PIECES) {
      return false;
    }
    out->item[out->count++] = a;
    return true;
  }
  for (int i = radix->count - 1; i >= 0; i--) {
    int64_t low = a.low[i], high = a.high[i];
    if (out->count + 2 > OVERFLOW_BOX_PIECES) {
      return false;
    }
    if (low < b->low[i]) {
      a.high[i] = b->low[i];
      out->item[out->count++] = a;
    }
    if (b->high[i] < high) {
      a.low[i] = b->high[i];
      a.high[i] = high;
      out->item[out->count++] = a;
    }
    a.low[i] = low > b->low[i] ? low : b->low[i];
    a.high[i] = high < b->high[i] ? high : b->high[i];
  }
  return true;
}

static bool digits_get_box(const struct radix *radix, const struct digits *digits, struct overflow_box *box) {
  uintptr_t start = radix->origin;
  for (int i = 0; i < radix->count; i++) {
    start += (uintptr_t)(digits->low[i] * radix->unit[i]);
  }
  box_begin(box, start, digits->high[0] - digits->low[0]);
  for (int i = 1; i < radix->count; i++) {
    if (!dim_wrap(box, digits->high[i] - digits->low[i], radix->unit[i])) {
      return false;
    }
  }
  box_end(box);
  return true;
}

int overflow_box_subtract(const struct overflow_box *a, const struct overflow_box *b, struct overflow_box *out) {
  struct engine_span a_span = overflow_box_get_span(a), b_span = overflow_box_get_span(b);
  if (!engine_spans_meet(&a_span, &b_span)) {
    out[0] = *a;
    return 1;
  }
  if (box_has(b, &a_span)) {
    return 0;
  }
  struct radix radix;
  struct digits_list left, b_list;
  if (!pair_set(&radix, a, b, &left, &b_list)) {
    return -1;
  }
  for (int k = 0; k < b_list.count; k++) {
    struct digits_list rest = {.count = 0};
    for (int i = 0; i < left.count; i++) {
      if (!digits_subtract(&radix, left.item[i], &b_list.item[k], &rest)) {
        return -1;
      }
    }
    left = rest;
  }
  for (int i = 0; i < left.count; i++) {
    if (!digits_get_box(&radix, &left.item[i], &out[i])) {
      return -1;
    }
  }
  return left.count;
}
