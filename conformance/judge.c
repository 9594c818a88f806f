/// The checks of a case: elements, moments, permutation, selection, kept.
///
/// Every element is read as a wide number of its class (float64, complex128, int64, uint64, bool), so nothing is
/// rounded on the way. NaN must be where NaN is expected and nowhere else; infinities are equal or wrong; a bool is 0
/// or 1.
#include "judge.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/convert.h"
#include "dit/alloc.h"

struct number {
  enum pack_wide wide;
  double re, im;
  int64_t i;  ///< of integers and bools; the bits of a uint64
};

bool outcome_fail(struct outcome *outcome, const char *kind, const char *format, ...) {
  if (outcome->verdict == VERDICT_FAIL) {
    return false;
  }
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(outcome->reason, sizeof outcome->reason, format, arguments);
  va_end(arguments);
  outcome->verdict = VERDICT_FAIL;
  outcome->kind = kind;
  return false;
}

void outcome_prefix(struct outcome *outcome, const char *words) {
  char reason[sizeof outcome->reason];
  snprintf(reason, sizeof reason, "%s%.700s", words, outcome->reason);
  memcpy(outcome->reason, reason, sizeof reason);
}

// Numbers

static struct number load_element(int dtype, const void *data, int64_t index) {
  struct number n = {PACK_WIDE_I64, 0, 0, 0};
#define LOAD(type, target, convert)                           \
  {                                                           \
    type value;                                               \
    memcpy(&value, (const type *)data + index, sizeof value); \
    target = convert(value);                                  \
    break;                                                    \
  }
#define LOAD_PAIR(type, convert)                                                \
  {                                                                             \
    type pair[2];                                                               \
    memcpy(pair, (const type *)data + 2 * index, sizeof pair);                  \
    n = (struct number){PACK_WIDE_C128, convert(pair[0]), convert(pair[1]), 0}; \
    break;                                                                      \
  }
  switch (dtype) {
    case DIT_DTYPE_I8:
      LOAD(int8_t, n.i, )
    case DIT_DTYPE_U8:
      LOAD(uint8_t, n.i, )
    case DIT_DTYPE_I16:
      LOAD(int16_t, n.i, )
    case DIT_DTYPE_U16:
      LOAD(uint16_t, n.i, )
    case DIT_DTYPE_I32:
      LOAD(int32_t, n.i, )
    case DIT_DTYPE_U32:
      LOAD(uint32_t, n.i, )
    case DIT_DTYPE_I64:
      LOAD(int64_t, n.i, )
    case DIT_DTYPE_U64:
      n.wide = PACK_WIDE_U64;
      LOAD(int64_t, n.i, )
    case DIT_DTYPE_BOOL:
      n.wide = PACK_WIDE_U8;
      LOAD(uint8_t, n.i, )
    case DIT_DTYPE_F16:
      n.wide = PACK_WIDE_F64;
      LOAD(uint16_t, n.re, (double)dit_float_from_f16)
    case DIT_DTYPE_BF16:
      n.wide = PACK_WIDE_F64;
      LOAD(uint16_t, n.re, (double)dit_float_from_bf16)
    case DIT_DTYPE_F32:
      n.wide = PACK_WIDE_F64;
      LOAD(float, n.re, (double))
    case DIT_DTYPE_F64:
      n.wide = PACK_WIDE_F64;
      LOAD(double, n.re, )
    case DIT_DTYPE_C32:
      LOAD_PAIR(uint16_t, (double)dit_float_from_f16)
    case DIT_DTYPE_C64:
      LOAD_PAIR(float, (double))
    case DIT_DTYPE_C128:
      LOAD_PAIR(double, )
    default:
      break;
  }
#undef LOAD
#undef LOAD_PAIR
  return n;
}

static struct number load_expected(const struct pack_tensor *tensor, int64_t index) {
  static const int dtypes[PACK_WIDE_COUNT] = {DIT_DTYPE_BITS8, DIT_DTYPE_I64,  DIT_DTYPE_U64,
                                              DIT_DTYPE_F64,   DIT_DTYPE_C128, DIT_DTYPE_BOOL};
  return load_element(dtypes[tensor->wide], tensor->expected, index);
}

static double get_tolerance(const struct pack_tensor *tensor, int64_t index, double scale) {
  return tensor->tolerance_count == 0 ? 0 : scale * tensor->tolerance[tensor->tolerance_count == 1 ? 0 : index];
}

static bool is_near(double got, double want, double tolerance) {
  if (isnan(got) || isnan(want)) {
    return isnan(got) && isnan(want);
  }
  if (isinf(got) || isinf(want)) {
    return got == want;
  }
  return got == want || fabs(got - want) <= tolerance;
}

static bool is_complex_near(const struct number *got, const struct number *want, double tolerance) {
  const bool got_nan = isnan(got->re) || isnan(got->im), want_nan = isnan(want->re) || isnan(want->im);
  if (got_nan || want_nan) {
    return got_nan && want_nan;
  }
  if (isinf(got->re) || isinf(got->im) || isinf(want->re) || isinf(want->im)) {
    return is_near(got->re, want->re, tolerance) && is_near(got->im, want->im, tolerance);
  }
  return (got->re == want->re && got->im == want->im) || hypot(got->re - want->re, got->im - want->im) <= tolerance;
}

static bool is_match(const struct number *got, const struct number *want, double tolerance) {
  switch (got->wide) {
    case PACK_WIDE_F64:
      return is_near(got->re, want->re, tolerance);
    case PACK_WIDE_C128:
      return is_complex_near(got, want, tolerance);
    case PACK_WIDE_U8:
      return got->i == want->i;
    default:
      return got->i == want->i || (tolerance > 0 && fabs((double)got->i - (double)want->i) <= tolerance);
  }
}

static const char *print_number(const struct number *n, char *text, size_t size) {
  switch (n->wide) {
    case PACK_WIDE_F64:
      snprintf(text, size, "%.9g", n->re);
      break;
    case PACK_WIDE_C128:
      snprintf(text, size, "%.9g%+.9gj", n->re, n->im);
      break;
    case PACK_WIDE_U64:
      snprintf(text, size, "%" PRIu64, (uint64_t)n->i);
      break;
    case PACK_WIDE_U8:
      snprintf(text, size, n->i == 0 ? "false" : n->i == 1 ? "true" : "%d (no bool)", (int)n->i);
      break;
    default:
      snprintf(text, size, "%" PRId64, n->i);
  }
  return text;
}

/// "[1, 0, 2]" for an index in row-major order.
static const char *print_index(const struct pack_tensor *tensor, int64_t index, char *text, size_t size) {
  int64_t coordinates[DIT_MAX_DIMS];
  for (int d = tensor->ndim - 1; d >= 0; d--) {
    coordinates[d] = index % tensor->sizes[d];
    index /= tensor->sizes[d];
  }
  size_t at = (size_t)snprintf(text, size, "[");
  for (int d = 0; d < tensor->ndim && at < size; d++) {
    at += (size_t)snprintf(text + at, size - at, d ? ", %" PRId64 : "%" PRId64, coordinates[d]);
  }
  if (at < size) {
    snprintf(text + at, size - at, "]");
  }
  return text;
}

static bool fail_element(const struct pack_tensor *tensor, int64_t index, const struct number *got,
                         const struct number *want, double tolerance, int64_t bad, const char *label,
                         struct outcome *outcome) {
  char place[128], is[64], should[64];
  const bool nan = got->wide == PACK_WIDE_F64 && isnan(got->re) != isnan(want->re);
  return outcome_fail(outcome, nan ? "nan" : "value",
                      "%s%s is %s, expected %s (tolerance %.3g); %" PRId64 " of %" PRId64 " elements are wrong", label,
                      print_index(tensor, index, place, sizeof place), print_number(got, is, sizeof is),
                      print_number(want, should, sizeof should), tolerance, bad, tensor->numel);
}

// Checks

static bool judge_elements(const struct pack_tensor *tensor, const void *got, const char *label, double scale,
                           struct outcome *outcome) {
  int64_t bad = 0, first = 0;
  for (int64_t i = 0; i < tensor->numel; i++) {
    const struct number is = load_element(tensor->dtype, got, i), should = load_expected(tensor, i);
    if (!is_match(&is, &should, get_tolerance(tensor, i, scale))) {
      first = bad++ == 0 ? i : first;
    }
  }
  if (bad == 0) {
    return true;
  }
  const struct number is = load_element(tensor->dtype, got, first), should = load_expected(tensor, first);
  return fail_element(tensor, first, &is, &should, get_tolerance(tensor, first, scale), bad, label, outcome);
}

static double load_real(int dtype, const void *data, int64_t index) {
  const struct number n = load_element(dtype, data, index);
  return n.wide == PACK_WIDE_F64 ? n.re : (double)n.i;
}

/// Random numbers that are others' repetitions: the distance of each from the mean, times that of the one `lag` places
/// on. Of numbers that have nothing to do with each other these products have the mean 0; eight standard errors are
/// allowed.
static bool judge_repetition(const struct pack_tensor *tensor, const void *got, int64_t lag, const char *label,
                             struct outcome *outcome) {
  const double mean = (tensor->bounds[0] + tensor->bounds[1]) / 2;
  double sum = 0, square = 0;
  for (int64_t i = 0; i + lag < tensor->numel; i++) {
    const double one = load_real(tensor->dtype, got, i) - mean;
    const double two = load_real(tensor->dtype, got, i + lag) - mean;
    sum += one * two;
    square += one * two * one * two;
  }
  return !(sum > 8 * sqrt(square)) ||
         outcome_fail(outcome, "moments", "random numbers of %s come again %" PRId64 " places on", label, lag);
}

/// Neighbours, rows, batches, and what an index of 16 bits reaches. Fewer than 1000 numbers tell nothing.
static bool judge_repetitions(const struct pack_tensor *tensor, const void *got, const char *label,
                              struct outcome *outcome) {
  const int64_t row = tensor->ndim > 1 ? tensor->sizes[tensor->ndim - 1] : 1;
  const int64_t batch = tensor->ndim > 2 ? tensor->numel / tensor->sizes[0] : 1;
  const int64_t lags[] = {1, row, batch, 65536};
  const bool have_one_mean = tensor->bound_count > 6 && tensor->bounds[6] != 0;
  for (int i = 0; have_one_mean && i < 4; i++) {
    if (tensor->numel - lags[i] >= 1000 && !judge_repetition(tensor, got, lags[i], label, outcome)) {
      return false;
    }
  }
  return true;
}

/// Mean and variance (mean of the squared distance from the mean) in two passes.
static bool judge_moments(const struct pack_tensor *tensor, const void *got, const char *label,
                          struct outcome *outcome) {
  static const char *const names[] = {"mean", "variance", "least value", "largest value"};
  double sum = 0, square = 0, least = INFINITY, largest = -INFINITY;
  const double count = (double)tensor->numel;
  for (int64_t i = 0; i < tensor->numel; i++) {
    const struct number n = load_element(tensor->dtype, got, i);
    const double value = n.wide == PACK_WIDE_F64 ? n.re : (double)n.i;
    if (n.wide == PACK_WIDE_C128 || isnan(value)) {
      return outcome_fail(outcome, "nan", "%s has NaN or complex values among random numbers", label);
    }
    sum += value;
    least = fmin(least, value);
    largest = fmax(largest, value);
  }
  if (tensor->numel == 0) {
    return true;
  }
  const double mean = sum / count;
  for (int64_t i = 0; i < tensor->numel; i++) {
    const double distance = load_real(tensor->dtype, got, i) - mean;
    square += distance * distance;
  }
  const double values[] = {mean, square / count, least, largest}, *bounds = tensor->bounds;
  const double low[] = {bounds[0], bounds[2], bounds[4], bounds[4]};
  const double high[] = {bounds[1], bounds[3], bounds[5], bounds[5]};
  for (int i = 0; i < 4; i++) {
    if (!(values[i] >= low[i] && values[i] <= high[i])) {
      return outcome_fail(outcome, "moments", "the %s of %s is %.9g, expected %.9g to %.9g", names[i], label, values[i],
                          low[i], high[i]);
    }
  }
  return judge_repetitions(tensor, got, label, outcome);
}

struct lane_item {
  struct number number;
  double tolerance;
};

/// Numbers in ascending order, NaN last.
static int compare_items(const void *left, const void *right) {
  const struct number *a = &((const struct lane_item *)left)->number, *b = &((const struct lane_item *)right)->number;
  if (a->wide == PACK_WIDE_F64 || a->wide == PACK_WIDE_C128) {
    if (isnan(a->re) || isnan(b->re)) {
      return isnan(a->re) - isnan(b->re);
    }
    return a->re != b->re ? (a->re > b->re) - (a->re < b->re) : (a->im > b->im) - (a->im < b->im);
  }
  if (a->wide == PACK_WIDE_U64) {
    return ((uint64_t)a->i > (uint64_t)b->i) - ((uint64_t)a->i < (uint64_t)b->i);
  }
  return (a->i > b->i) - (a->i < b->i);
}

static bool judge_permutation(const struct pack_tensor *tensor, const void *got, const char *label, double scale,
                              struct outcome *outcome) {
  const int64_t length = tensor->ndim ? tensor->sizes[tensor->ndim - 1] : 1;
  struct lane_item *items = dit_calloc((size_t)length * 2 + 1, sizeof *items), *wanted = items ? items + length : NULL;
  if (!items) {
    return outcome_fail(outcome, "memory", "no memory to judge %s", label);
  }
  bool ok = true;
  for (int64_t lane = 0; ok && length > 0 && lane < tensor->numel / length; lane++) {
    for (int64_t i = 0; i < length; i++) {
      const int64_t at = lane * length + i;
      items[i] = (struct lane_item){load_element(tensor->dtype, got, at), 0};
      wanted[i] = (struct lane_item){load_expected(tensor, at), get_tolerance(tensor, at, scale)};
    }
    qsort(items, (size_t)length, sizeof *items, compare_items);
    qsort(wanted, (size_t)length, sizeof *items, compare_items);
    for (int64_t i = 0; ok && i < length; i++) {
      char is[64], should[64];
      if (!is_match(&items[i].number, &wanted[i].number, wanted[i].tolerance)) {
        ok = outcome_fail(outcome, "value",
                          "row %" PRId64 " of %s, put in order, has %s at place %" PRId64 ", expected %s", lane, label,
                          print_number(&items[i].number, is, sizeof is), i,
                          print_number(&wanted[i].number, should, sizeof should));
      }
    }
  }
  dit_free(items);
  return ok;
}

/// Where in the source an index of the output at `at` points to; -1 when nowhere.
static int64_t find_selected(const struct pack_tensor *tensor, const struct pack_tensor *source, int dim, int64_t at,
                             int64_t index) {
  int64_t coordinates[DIT_MAX_DIMS + 1], place = 0;
  if (dim < 0 || source->ndim == 0) {
    return index >= 0 && index < source->numel ? index : -1;
  }
  const bool reduced = tensor->ndim == source->ndim - 1;
  for (int d = tensor->ndim - 1; d >= 0; d--) {
    coordinates[d] = at % tensor->sizes[d];
    at /= tensor->sizes[d];
  }
  for (int d = 0; d < source->ndim; d++) {
    const int64_t coordinate = d == dim ? index : coordinates[reduced && d > dim ? d - 1 : d];
    if (coordinate < 0 || coordinate >= source->sizes[d]) {
      return -1;
    }
    place = place * source->sizes[d] + coordinate;
  }
  return place;
}

static bool judge_one_selected(const struct pack_tensor *tensor, const void *got, const char *label, int dim,
                               const struct pack_tensor *source, const void *data, bool *seen, int64_t i, double scale,
                               struct outcome *outcome) {
  char place[128], is[64], should[64];
  const struct number index = load_element(tensor->dtype, got, i), wanted = load_expected(tensor, i);
  const int64_t at = find_selected(tensor, source, dim, i, index.i);
  print_index(tensor, i, place, sizeof place);
  if (at < 0) {
    return outcome_fail(outcome, "value", "%s%s is %" PRId64 ", which is no index into its source", label, place,
                        index.i);
  }
  if (seen[at]) {
    return outcome_fail(outcome, "value", "%s%s is %" PRId64 ", an index that is already there", label, place, index.i);
  }
  seen[at] = true;
  const struct number found = load_element(source->dtype, data, at);
  if (found.wide != wanted.wide || !is_match(&found, &wanted, get_tolerance(tensor, i, scale))) {
    return outcome_fail(outcome, "value", "%s%s is %" PRId64 ", where the source has %s, expected one that has %s",
                        label, place, index.i, print_number(&found, is, sizeof is),
                        print_number(&wanted, should, sizeof should));
  }
  return true;
}

static bool judge_selection(const struct pack_tensor *tensor, const void *got, const char *label,
                            const struct pack_tensor *source, const void *data, double scale, struct outcome *outcome) {
  int dim = tensor->bound_count ? (int)tensor->bounds[0] : -1;
  dim += tensor->bound_count && dim < 0 ? source->ndim : 0;
  const bool fits = dim < 0 || source->ndim == 0 ||
                    (dim < source->ndim && (tensor->ndim == source->ndim || tensor->ndim == source->ndim - 1));
  bool *seen = dit_calloc((size_t)source->numel + 1, sizeof *seen);
  if (!seen || !fits) {
    dit_free(seen);
    return outcome_fail(outcome, "case", "%s cannot be judged: its rank does not go with its source", label);
  }
  bool ok = true;
  for (int64_t i = 0; ok && i < tensor->numel; i++) {
    ok = judge_one_selected(tensor, got, label, dim, source, data, seen, i, scale, outcome);
  }
  dit_free(seen);
  return ok;
}

/// Elements that a mask keeps are as expected, the others 0.
static bool judge_kept(const struct pack_tensor *tensor, const void *got, const char *label,
                       const struct pack_tensor *mask, const void *mask_data, double scale, struct outcome *outcome) {
  if (mask->dtype != DIT_DTYPE_BOOL || mask->numel != tensor->numel) {
    return outcome_fail(outcome, "case", "%s cannot be judged: its mask has another size or is not of bools", label);
  }
  struct number zero = load_expected(tensor, 0);
  zero.re = zero.im = 0;
  zero.i = 0;
  for (int64_t i = 0; i < tensor->numel; i++) {
    const struct number is = load_element(tensor->dtype, got, i);
    const bool kept = ((const uint8_t *)mask_data)[i];
    const struct number should = kept ? load_expected(tensor, i) : zero;
    const double tolerance = kept ? get_tolerance(tensor, i, scale) : 0;
    if (!is_match(&is, &should, tolerance)) {
      char place[128], has[64], wants[64];
      return outcome_fail(outcome, "value", "%s%s is %s, expected %s (tolerance %.3g), for its mask is %s there", label,
                          print_index(tensor, i, place, sizeof place), print_number(&is, has, sizeof has),
                          print_number(&should, wants, sizeof wants), tolerance, kept ? "true" : "false");
    }
  }
  return true;
}

bool judge_tensor(const struct pack_tensor *tensor, const void *got, const char *label,
                  const struct pack_tensor *source, const void *source_data, double scale, struct outcome *outcome) {
  switch (tensor->check) {
    case PACK_ELEMENTS:
      return judge_elements(tensor, got, label, scale, outcome);
    case PACK_MOMENTS:
      return judge_moments(tensor, got, label, outcome);
    case PACK_PERMUTATION:
      return judge_permutation(tensor, got, label, scale, outcome);
    case PACK_SELECTION:
      return source ? judge_selection(tensor, got, label, source, source_data, scale, outcome)
                    : outcome_fail(outcome, "case", "%s points into an argument that is no tensor", label);
    case PACK_KEPT:
      return source ? judge_kept(tensor, got, label, source, source_data, scale, outcome)
                    : outcome_fail(outcome, "case", "the mask of %s is no tensor", label);
    default:
      return true;
  }
}

bool judge_value(char kind, uint64_t got, uint64_t expected, double tolerance, const char *label,
                 struct outcome *outcome) {
  struct number is = {PACK_WIDE_I64, 0, 0, (int64_t)got}, should = {PACK_WIDE_I64, 0, 0, (int64_t)expected};
  if (kind == 'D') {
    memcpy(&is.re, &got, sizeof got);
    memcpy(&should.re, &expected, sizeof expected);
  }
  is.wide = should.wide = kind == 'D' ? PACK_WIDE_F64 : kind == 'B' ? PACK_WIDE_U8 : PACK_WIDE_I64;
  char a[64], b[64];
  return is_match(&is, &should, tolerance) ||
         outcome_fail(outcome, "value", "%s is %s, expected %s (tolerance %.3g)", label, print_number(&is, a, sizeof a),
                      print_number(&should, b, sizeof b), tolerance);
}
