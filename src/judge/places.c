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

// Dimensions of the plane that a pooling chooses from; 0: it chooses along one dimension.
static int spatial_get(const struct dit_verdict_case *c) {
  const char *name = c->op ? c->op->name : "";
  return strstr(name, "pool2d") ? 2 : strstr(name, "pool3d") ? 3 : strstr(name, "pool1d") ? 1 : 0;
}

// Along `dim`, or from `dim` to the end (`flat`).
static struct rows rows_cut(const struct dit_tensor_view *view, int dim, bool flat) {
  struct rows rows = {1, 1, 1};
  for (int i = 0; i < view->ndim; i++) {
    int64_t *extent = i < dim ? &rows.outer : i == dim || flat ? &rows.size : &rows.inner;
    *extent *= view->sizes[i];
  }
  return rows;
}

// The dimension that the operator chooses from; -1: all elements at once.
static int dim_find(const struct dit_verdict_case *c, const struct dit_verdict_arguments *arguments, int ndim) {
  if (arguments->has_dim) {
    int64_t dim = arguments->dim < 0 ? arguments->dim + ndim : arguments->dim;
    return dim >= 0 && dim < ndim ? (int)dim : -1;
  }
  if (c->op && strcmp(c->op->name, "msort") == 0) {
    return 0;
  }
  return c->traits & DIT_OPERATOR_LAST ? ndim - 1 : -1;
}

static struct rows rows_find(const struct dit_verdict_case *c, const struct dit_verdict_arguments *arguments,
                             const struct dit_tensor_view *values) {
  int spatial = spatial_get(c);
  if (spatial > 0) {
    return rows_cut(values, values->ndim > spatial ? values->ndim - spatial : 0, true);
  }
  int dim = dim_find(c, arguments, values->ndim);
  return dim < 0 ? (struct rows){1, values->numel, 1} : rows_cut(values, dim, false);
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

enum dit_status places_have_ties(const struct dit_verdict_case *c, const struct dit_verdict_arguments *arguments,
                                 bool *ties, struct dit_error *err) {
  *ties = false;
  if (arguments->input_count < 1 || dit_dtype_get_class(arguments->inputs[0].dtype) == DIT_DTYPE_CLASS_COMPLEX) {
    return DIT_OK;
  }
  struct rows rows = rows_find(c, arguments, &arguments->inputs[0]);
  return rows_repeat(&arguments->inputs[0], &rows, ties, err);
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

// The row of `values` that element `i` of the indices belongs to, and its first element. The indices have as many rows;
// `chosen` of each.
static bool row_agrees(const double *values, const struct rows *rows, int64_t i, int64_t chosen, const double *device,
                       const double *cpu) {
  int64_t outer = i / (chosen * rows->inner), inner = i % rows->inner;
  const double *row = values + outer * rows->size * rows->inner + inner;
  if (!(device[i] >= 0 && device[i] < (double)rows->size) || !(cpu[i] >= 0 && cpu[i] < (double)rows->size)) {
    return false;
  }
  return is_equal(row[(int64_t)device[i] * rows->inner], row[(int64_t)cpu[i] * rows->inner]);
}

static bool values_agree(const struct values *values, const struct rows *rows, const struct values *device,
                         const struct values *cpu) {
  int64_t lines = rows->outer * rows->inner, chosen = lines > 0 ? device->count / lines : 0;
  if (lines * chosen != device->count || device->count != cpu->count) {
    return false;
  }
  for (int64_t i = 0; i < device->count; i++) {
    if (!row_agrees(values->data, rows, i, chosen, device->data, cpu->data)) {
      return false;
    }
  }
  return true;
}

/// What was chosen from, and what each side chose.
struct choice {
  struct values values, mine, wanted;
};

static void choice_reset(struct choice *choice) {
  values_reset(&choice->values);
  values_reset(&choice->mine);
  values_reset(&choice->wanted);
}

// To be reset in any case.
static enum dit_status choice_read(struct choice *choice, const struct dit_tensor_view *values,
                                   const struct dit_tensor_view *device, const struct dit_tensor_view *cpu,
                                   struct dit_error *err) {
  *choice = (struct choice){0};
  DIT_RETURN_IF_NOT_OK(values_read(values, &choice->values, err));
  DIT_RETURN_IF_NOT_OK(values_read(device, &choice->mine, err));
  return values_read(cpu, &choice->wanted, err);
}

enum dit_status places_compare(const struct dit_verdict_case *c, const struct dit_verdict_arguments *arguments,
                               const struct dit_tensor_view *device, const struct dit_tensor_view *cpu, bool *alike,
                               struct dit_error *err) {
  *alike = false;
  if (arguments->input_count < 1) {
    return DIT_OK;
  }
  struct choice choice;
  struct rows rows = rows_find(c, arguments, &arguments->inputs[0]);
  enum dit_status status = choice_read(&choice, &arguments->inputs[0], device, cpu, err);
  if (status == DIT_OK && !choice.values.is_complex) {
    *alike = values_agree(&choice.values, &rows, &choice.mine, &choice.wanted);
  }
  int64_t lines = rows.outer * rows.inner;
  if (status == DIT_OK && *alike && (c->traits & DIT_OPERATOR_DISTINCT) && lines > 0) {
    struct rows places = {rows.outer, choice.mine.count / lines, rows.inner};
    bool repeats;
    status = rows_repeat(&choice.mine.view, &places, &repeats, err);
    *alike = status == DIT_OK && !repeats;
  }
  choice_reset(&choice);
  return status;
}

// How often the chosen value (or the value at the chosen place) occurs in its row; -1: no such place.
static int64_t frequency_get(const struct values *values, const struct rows *rows, int64_t line, double chosen,
                             bool is_place) {
  const double *row = values->data + line / rows->inner * rows->size * rows->inner + line % rows->inner;
  int64_t count = 0;
  if (is_place && !(chosen >= 0 && chosen < (double)rows->size)) {
    return -1;
  }
  double value = is_place ? row[(int64_t)chosen * rows->inner] : chosen;
  for (int64_t i = 0; i < rows->size; i++) {
    count += is_equal(row[i * rows->inner], value);
  }
  return count;
}

enum dit_status places_are_as_frequent(const struct dit_verdict_case *c, const struct dit_verdict_arguments *arguments,
                                       const struct dit_tensor_view *device, const struct dit_tensor_view *cpu,
                                       bool *alike, struct dit_error *err) {
  *alike = false;
  if (arguments->input_count < 1 || arguments->inputs[0].numel == 0) {
    return DIT_OK;
  }
  struct choice choice;
  struct rows rows = rows_find(c, arguments, &arguments->inputs[0]);
  enum dit_status status = choice_read(&choice, &arguments->inputs[0], device, cpu, err);
  if (status == DIT_OK && choice.mine.count == rows.outer * rows.inner && choice.wanted.count == choice.mine.count) {
    *alike = true;
    for (int64_t i = 0; i < choice.mine.count && *alike; i++) {
      int64_t count = frequency_get(&choice.values, &rows, i, choice.mine.data[i], c->index == 1);
      *alike = count > 0 && count == frequency_get(&choice.values, &rows, i, choice.wanted.data[i], c->index == 1);
    }
  }
  choice_reset(&choice);
  return status;
}

// One row of what was chosen, as values in rising order. False: a place that does not exist, or twice the same.
static bool chosen_read(const struct values *values, const struct rows *rows, int64_t line, const struct values *chosen,
                        int64_t count, bool is_place, double *out) {
  const double *row = values->data + line / rows->inner * rows->size * rows->inner + line % rows->inner;
  const double *picked = chosen->data + line / rows->inner * count * rows->inner + line % rows->inner;
  if (is_place && row_repeats(picked, count, rows->inner, out)) {
    return false;
  }
  for (int64_t i = 0; i < count; i++) {
    double one = picked[i * rows->inner];
    if (is_place && !(one >= 0 && one < (double)rows->size)) {
      return false;
    }
    out[i] = is_place ? row[(int64_t)one * rows->inner] : one;
  }
  qsort(out, (size_t)count, sizeof *out, number_compare);
  return true;
}

static bool rows_are_permuted(const struct values *values, const struct rows *rows, const struct values *mine,
                              const struct values *wanted, bool is_place, double *room) {
  int64_t lines = rows->outer * rows->inner, count = lines > 0 ? mine->count / lines : 0;
  if (lines * count != mine->count || mine->count != wanted->count || count > rows->size) {
    return false;
  }
  for (int64_t line = 0; line < lines; line++) {
    if (!chosen_read(values, rows, line, mine, count, is_place, room) ||
        !chosen_read(values, rows, line, wanted, count, is_place, room + rows->size)) {
      return false;
    }
    for (int64_t i = 0; i < count; i++) {
      if (!is_equal(room[i], room[rows->size + i])) {
        return false;
      }
    }
  }
  return true;
}

enum dit_status places_are_permuted(const struct dit_verdict_case *c, const struct dit_verdict_arguments *arguments,
                                    const struct dit_tensor_view *device, const struct dit_tensor_view *cpu,
                                    bool *alike, struct dit_error *err) {
  *alike = false;
  if (arguments->input_count < 1 || arguments->inputs[0].numel == 0) {
    return DIT_OK;
  }
  struct choice choice;
  struct rows rows = rows_find(c, arguments, &arguments->inputs[0]);
  enum dit_status status = choice_read(&choice, &arguments->inputs[0], device, cpu, err);
  double *room = status == DIT_OK ? dit_malloc((size_t)(2 * rows.size) * sizeof *room) : NULL;
  if (status == DIT_OK && !room) {
    status = dit_error_set(err, DIT_ERR_NOMEM, "no memory for a row of %lld numbers", (long long)rows.size);
  }
  if (status == DIT_OK && !choice.values.is_complex) {
    *alike = rows_are_permuted(&choice.values, &rows, &choice.mine, &choice.wanted, c->index == 1, room);
  }
  dit_free(room);
  choice_reset(&choice);
  return status;
}
