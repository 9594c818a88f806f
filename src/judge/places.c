/// Where more than one answer is right (contract in places.h).
///
/// Values and indices are read into packed arrays and walked as rows along the dimension that the operator chooses
/// from: [outer, size, inner]. Poolings choose from planes: their last two or three dimensions count as one.
#include "judge/places.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dit/alloc.h"
#include "judge/values.h"

/// A tensor as rows.
struct rows {
  int64_t outer, size, inner;
};

// Along `dim`, or from `dim` to the end (`flat`).
static struct rows rows_cut(const struct dit_tensor_view *view, int dim, bool flat) {
  struct rows rows = {1, 1, 1};
  for (int i = 0; i < view->ndim; i++) {
    int64_t *extent = i < dim ? &rows.outer : i == dim || flat ? &rows.size : &rows.inner;
    *extent *= view->sizes[i];
  }
  return rows;
}

// What the operator chooses from: along a dimension, a plane, a volume, or all elements at once.
static struct rows rows_find(const struct dit_verdict_case *c, const struct dit_verdict_arguments *arguments,
                             const struct dit_tensor_view *values) {
  int known = c->op ? c->op->dim : -1, ndim = values->ndim;
  int flat = known == DIT_OPERATOR_PLANE ? 2 : known == DIT_OPERATOR_VOLUME ? 3 : 0;
  if (flat > 0) {
    return rows_cut(values, ndim > flat ? ndim - flat : 0, true);
  }
  int64_t dim = arguments->has_dim              ? arguments->dim + (arguments->dim < 0 ? ndim : 0)
                : known == DIT_OPERATOR_FIRST   ? 0
                : c->traits & DIT_OPERATOR_LAST ? ndim - 1
                                                : -1;
  return dim < 0 || dim >= ndim ? (struct rows){1, values->numel, 1} : rows_cut(values, (int)dim, false);
}

static bool is_equal(double a, double b) {
  return a == b || (isnan(a) && isnan(b));
}

// Equal numbers come together, NaN last.
static int number_compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  if (isnan(a) || isnan(b)) {
    return isnan(a) - isnan(b);
  }
  return (a > b) - (a < b);
}

// Do two numbers of one row equal each other? `step` apart in memory.
static bool row_repeats(const double *row, int64_t size, int64_t step, double *room) {
  for (int64_t i = 0; i < size; i++) {
    room[i] = row[i * step];
  }
  qsort(room, (size_t)size, sizeof *room, number_compare);
  for (int64_t i = 1; i < size; i++) {
    if (room[i] == room[i - 1]) {
      return true;
    }
  }
  return false;
}

static enum dit_status rows_repeat(const struct dit_tensor_view *view, const struct rows *rows, bool *repeats,
                                   struct dit_error *err) {
  struct values values;
  *repeats = false;
  DIT_RETURN_IF_NOT_OK(values_read(view, &values, err));
  double *room = dit_malloc((size_t)(rows->size > 0 ? rows->size : 1) * sizeof *room);
  for (int64_t i = 0; room && i < rows->outer * rows->inner && !*repeats; i++) {
    const double *row = values.data + i / rows->inner * rows->size * rows->inner + i % rows->inner;
    *repeats = row_repeats(row, rows->size, rows->inner, room);
  }
  values_reset(&values);
  bool failed = !room;
  dit_free(room);
  return failed ? dit_error_set(err, DIT_ERR_NOMEM, "no memory for a row of %lld numbers", (long long)rows->size)
                : DIT_OK;
}

/// What was chosen from, what each side chose, and what is asked of it.
struct choice {
  struct values values, mine, wanted;
  struct rows rows;
  int64_t count;  ///< chosen of each row
  bool is_place, is_distinct, is_frequent, is_unsorted;
};

// To be reset in any case.
static enum dit_status choice_read(struct choice *choice, const struct dit_tensor_view *values,
                                   const struct dit_tensor_view *device, const struct dit_tensor_view *cpu,
                                   struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(values_read(values, &choice->values, err));
  DIT_RETURN_IF_NOT_OK(values_read(device, &choice->mine, err));
  return values_read(cpu, &choice->wanted, err);
}

static void choice_reset(struct choice *choice) {
  values_reset(&choice->values);
  values_reset(&choice->mine);
  values_reset(&choice->wanted);
}

// Gradients of what was chosen

/// A value of a row and its gradient.
struct pair {
  double value, gradient;
};

static int pair_compare(const void *left, const void *right) {
  const struct pair *a = left, *b = right;
  int order = number_compare(&a->value, &b->value);
  return order ? order : number_compare(&a->gradient, &b->gradient);
}

// The gradients of each row in the order of its values, those of equal values in their own; `any`: all in their own.
static void gradients_sort(const struct values *values, const struct rows *rows, bool any, struct values *gradients,
                           struct pair *room) {
  for (int64_t line = 0; line < rows->outer * rows->inner; line++) {
    int64_t begin = line / rows->inner * rows->size * rows->inner + line % rows->inner;
    for (int64_t i = 0; i < rows->size; i++) {
      int64_t at = begin + i * rows->inner;
      room[i] = (struct pair){any ? 0 : values->data[at], gradients->data[at]};
    }
    qsort(room, (size_t)rows->size, sizeof *room, pair_compare);
    for (int64_t i = 0; i < rows->size; i++) {
      gradients->data[begin + i * rows->inner] = room[i].gradient;
    }
  }
}

static enum dit_status gradients_compare(struct choice *choice, const struct dit_judge_rule *rule, bool *right,
                                         struct dit_error *err) {
  struct pair *room = dit_malloc((size_t)(choice->rows.size + 1) * sizeof *room);
  if (!room) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a row of %lld numbers", (long long)choice->rows.size);
  }
  gradients_sort(&choice->values, &choice->rows, choice->is_unsorted, &choice->mine, room);
  gradients_sort(&choice->values, &choice->rows, choice->is_unsorted, &choice->wanted, room);
  dit_free(room);
  struct dit_judge_result result;
  DIT_RETURN_IF_NOT_OK(dit_judge_compare(&choice->mine.view, &choice->wanted.view, rule, &result, err));
  *right = result.wrong == 0;
  return DIT_OK;
}

enum dit_status places_exchange(const struct dit_verdict_case *c, const struct dit_verdict_arguments *arguments,
                                const struct dit_tensor_view *device, const struct dit_tensor_view *cpu,
                                const struct dit_judge_rule *rule, enum places_exchange *found, struct dit_error *err) {
  *found = PLACES_UNIQUE;
  const struct dit_tensor_view *input = arguments->inputs;
  if (arguments->input_count < 1 || c->index != 0 || !views_agree(input, device) || !views_agree(input, cpu) ||
      dit_dtype_get_class(input->dtype) == DIT_DTYPE_CLASS_COMPLEX) {
    return DIT_OK;
  }
  struct choice choice = {.rows = rows_find(c, arguments, input), .is_unsorted = arguments->is_unsorted};
  bool ties, right = false;
  DIT_RETURN_IF_NOT_OK(rows_repeat(input, &choice.rows, &ties, err));
  if (!ties && !choice.is_unsorted) {
    return DIT_OK;
  }
  enum dit_status status = choice_read(&choice, input, device, cpu, err);
  status = status == DIT_OK ? gradients_compare(&choice, rule, &right, err) : status;
  choice_reset(&choice);
  *found = right ? PLACES_EXCHANGED : PLACES_TIED;
  return status;
}

enum dit_status places_have_repeats(const struct dit_verdict_case *c, const struct dit_verdict_arguments *arguments,
                                    bool *repeats, struct dit_error *err) {
  bool known = arguments->index >= 0 && arguments->index < arguments->input_count;
  const struct dit_tensor_view *index = known ? &arguments->inputs[arguments->index] : NULL;
  *repeats = true;
  if (!known || (!arguments->has_dim && !(c->op && strncmp(c->op->name, "index_", 6) == 0))) {
    return DIT_OK;
  }
  if (index->numel < 2) {
    *repeats = false;
    return DIT_OK;
  }
  // index_copy has one index for all rows; scatter has one per element.
  int64_t dim = index->ndim > 1 ? arguments->dim : 0;
  dim = dim < 0 ? dim + index->ndim : dim;
  if (dim < 0 || dim >= index->ndim) {
    return DIT_OK;
  }
  struct rows rows = rows_cut(index, (int)dim, false);
  return rows_repeat(index, &rows, repeats, err);
}

// What was chosen

// Of arguments that are written to (out=) the dtype alone tells which they are.
static bool is_place(const struct dit_verdict_case *c, const struct dit_tensor_view *device) {
  if (c->what == DIT_VERDICT_OUTPUT || c->op->places < 0) {
    return c->index == c->op->places;
  }
  return device->dtype == DIT_DTYPE_I64 && c->index > 0;
}

// What was chosen of one row, as values. False: a place that does not exist, or twice the same.
static bool chosen_read(const struct choice *choice, const struct values *chosen, int64_t line, double *out) {
  const struct rows *rows = &choice->rows;
  int64_t outer = line / rows->inner, inner = line % rows->inner;
  const double *row = choice->values.data + outer * rows->size * rows->inner + inner;
  const double *picked = chosen->data + outer * choice->count * rows->inner + inner;
  if (choice->is_place && choice->is_distinct && row_repeats(picked, choice->count, rows->inner, out)) {
    return false;
  }
  for (int64_t i = 0; i < choice->count; i++) {
    double one = picked[i * rows->inner];
    if (choice->is_place && !(one >= 0 && one < (double)rows->size)) {
      return false;
    }
    out[i] = choice->is_place ? row[(int64_t)one * rows->inner] : one;
  }
  return true;
}

// Each value becomes the number of its kind in the row. False: there is none.
static bool frequencies_count(const struct choice *choice, int64_t line, double *chosen) {
  const struct rows *rows = &choice->rows;
  const double *row = choice->values.data + line / rows->inner * rows->size * rows->inner + line % rows->inner;
  for (int64_t i = 0; i < choice->count; i++) {
    int64_t count = 0;
    for (int64_t k = 0; k < rows->size; k++) {
      count += is_equal(row[k * rows->inner], chosen[i]);
    }
    if (count == 0) {
      return false;
    }
    chosen[i] = (double)count;
  }
  return true;
}

static bool row_is_alike(const struct choice *choice, int64_t line, double *mine, double *wanted) {
  if (!chosen_read(choice, &choice->mine, line, mine) || !chosen_read(choice, &choice->wanted, line, wanted)) {
    return false;
  }
  if (choice->is_frequent && (!frequencies_count(choice, line, mine) || !frequencies_count(choice, line, wanted))) {
    return false;
  }
  if (choice->is_unsorted) {
    qsort(mine, (size_t)choice->count, sizeof *mine, number_compare);
    qsort(wanted, (size_t)choice->count, sizeof *wanted, number_compare);
  }
  for (int64_t i = 0; i < choice->count; i++) {
    if (!is_equal(mine[i], wanted[i])) {
      return false;
    }
  }
  return true;
}

static enum dit_status choice_compare(struct choice *choice, bool *alike, struct dit_error *err) {
  int64_t lines = choice->rows.outer * choice->rows.inner;
  choice->count = lines > 0 ? choice->mine.count / lines : 0;
  if (choice->values.is_complex || lines * choice->count != choice->mine.count ||
      choice->mine.count != choice->wanted.count) {
    return DIT_OK;
  }
  double *room = dit_malloc((size_t)(2 * choice->count + 1) * sizeof *room);
  if (!room) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a row of %lld numbers", (long long)choice->count);
  }
  *alike = true;
  for (int64_t line = 0; line < lines && *alike; line++) {
    *alike = row_is_alike(choice, line, room, room + choice->count);
  }
  dit_free(room);
  return DIT_OK;
}

enum dit_status places_compare(const struct dit_verdict_case *c, const struct dit_verdict_arguments *arguments,
                               const struct dit_tensor_view *device, const struct dit_tensor_view *cpu, bool *alike,
                               struct dit_error *err) {
  *alike = false;
  if (arguments->input_count < 1 || arguments->inputs[0].numel == 0) {
    return DIT_OK;
  }
  struct choice choice = {
      .rows = rows_find(c, arguments, &arguments->inputs[0]),
      .is_place = is_place(c, device),
      .is_distinct = (c->traits & DIT_OPERATOR_DISTINCT) != 0,
      .is_frequent = (c->traits & DIT_OPERATOR_FREQUENT) != 0,
      .is_unsorted = arguments->is_unsorted,
  };
  if (!choice.is_place && !choice.is_frequent && !choice.is_unsorted) {
    return DIT_OK;  // the values themselves are not a matter of choice
  }
  enum dit_status status = choice_read(&choice, &arguments->inputs[0], device, cpu, err);
  status = status == DIT_OK ? choice_compare(&choice, alike, err) : status;
  choice_reset(&choice);
  return status;
}
