/// Words of recipes that look along dimensions: every one becomes a call on the last dimension of a matrix.
#include <string.h>

#include "evaluate.h"

/// The dimensions that the function's "dim" names; all of them where it has none or it is absent.
static diopiError_t get_dims(const struct run *run, int ndim, uint32_t *out) {
  const int parameter = adapt_find_parameter(run->recipe->function, "dim");
  const uint32_t all = ndim >= 32 ? UINT32_MAX : (1U << ndim) - 1;
  const int64_t room = ndim > 0 ? ndim : 1;
  diopiSize_t list = {NULL, 0};
  if (parameter >= 0 && run->kinds[parameter] == 'z') {
    list = run->values[parameter].size;
  } else if (parameter >= 0 && run->kinds[parameter] == 'I') {
    list = (diopiSize_t){run->values[parameter].ints, run->values[parameter].ints ? 1 : 0};
  } else if (parameter >= 0) {
    list = (diopiSize_t){&run->values[parameter].i, 1};
  }
  *out = 0;
  for (int64_t i = 0; i < list.len; i++) {
    const int64_t dim = list.data[i];
    ADAPT_CHECK_ARGUMENT(dim >= -room && dim < room, "'dim' is %lld; valid: %lld to %lld", (long long)dim,
                         (long long)-room, (long long)room - 1);
    const uint32_t bit = 1U << (dim < 0 ? dim + room : dim);
    ADAPT_CHECK_ARGUMENT(!(*out & bit), "'dim' names dimension %lld twice", (long long)dim);
    *out |= bit;
  }
  *out = list.len <= 0 ? all : *out & all;
  return diopiSuccess;
}

/// The tensor as (outer, inner) with the folded dimensions last, and the shape of results: size 1 in their place.
struct matrix {
  diopiTensorHandle_t tensor;
  int64_t sizes[2], kept[DIT_MAX_DIMS];
  int order[DIT_MAX_DIMS];  ///< dimension of the tensor at each place of the copy
};

static diopiError_t make_matrix(struct run *run, const struct dit_tensor_view *view, uint32_t dims, int dtype,
                                struct matrix *out) {
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
  int at = 0;
  out->sizes[0] = out->sizes[1] = 1;
  for (int pass = 0; pass < 2; pass++) {
    for (int d = 0; d < view->ndim; d++) {
      if ((dims >> d & 1) == (uint32_t)pass) {
        out->order[at] = d;
        sizes[at] = view->sizes[d];
        strides[at++] = view->strides[d];
        out->sizes[pass] *= view->sizes[d];
      }
      out->kept[d] = dims >> d & 1 ? 1 : view->sizes[d];
    }
  }
  struct dit_tensor_view permuted = *view;
  permuted.sizes = sizes;
  permuted.strides = strides;
  permuted.flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  out->tensor = adapt_create(run->ctx, 2, out->sizes, dtype);
  if (!out->tensor) {
    return diopiErrorOccurred;
  }
  struct dit_tensor_view spread = out->tensor->view;
  int64_t contiguous[DIT_MAX_DIMS];
  dit_shape_set_contiguous(view->ndim, sizes, contiguous);
  spread.ndim = view->ndim;
  spread.sizes = sizes;
  spread.strides = contiguous;
  return adapt_copy(run->ctx, &spread, &permuted, ADAPT_WRAP);
}

/// A row of results, one per outer index, as a tensor of the kept shape.
static diopiError_t take_row(struct run *run, const struct matrix *matrix, int ndim, diopiTensorHandle_t row,
                             struct value *out) {
  out->tensor = adapt_create(run->ctx, ndim, matrix->kept, row->view.dtype);
  if (!out->tensor) {
    return diopiErrorOccurred;
  }
  struct dit_tensor_view flat = out->tensor->view;
  flat.ndim = 1;
  flat.sizes = row->view.sizes;
  flat.strides = row->view.strides;
  return adapt_copy(run->ctx, &flat, &row->view, ADAPT_WRAP);
}

static diopiError_t call_fold(struct run *run, int word, const struct matrix *matrix, diopiTensorHandle_t row,
                              diopiTensorHandle_t *indices) {
  int64_t one = 1;
  union dit_diopi_value v[5] = {{.context = run->ctx}, {.tensor = row}};
  switch (word) {
    case WORD_SUM:
    case WORD_SUMALL:
      v[2].tensor = matrix->tensor;
      v[3].size = (diopiSize_t){&one, 1};
      return adapt_call(DIT_DIOPI_diopiSum, v);
    case WORD_PROD:
      v[2].tensor = matrix->tensor;
      v[3].ints = &one;
      return adapt_call(DIT_DIOPI_diopiProd, v);
    default:
      ADAPT_CHECK_ARGUMENT(matrix->sizes[1] > 0 || matrix->sizes[0] == 0, "no elements have no maximum");
      *indices = v[2].tensor = adapt_create(run->ctx, 1, matrix->sizes, DIT_DTYPE_I64);
      if (!v[2].tensor) {
        return diopiErrorOccurred;
      }
      v[3].tensor = matrix->tensor;
      v[4].i = 1;
      return adapt_call(DIT_DIOPI_diopiMax, v);
  }
}

static diopiError_t fold(struct run *run, int word, diopiTensorHandle_t tensor, uint32_t dims, struct value *out) {
  struct matrix matrix;
  diopiTensorHandle_t indices = NULL;
  ADAPT_TRY(make_matrix(run, &tensor->view, dims, run->work, &matrix));
  diopiTensorHandle_t row = adapt_create(run->ctx, 1, matrix.sizes, run->work);
  ADAPT_TRY(row ? call_fold(run, word, &matrix, row, &indices) : diopiErrorOccurred);
  run->folded = dims;
  run->folded_ndim = tensor->view.ndim;
  return take_row(run, &matrix, tensor->view.ndim, word == WORD_ARGMAX ? indices : row, out);
}

/// A matrix of results as a tensor in the order of its own dimensions, of the shape `sizes`.
static diopiError_t take_back(struct run *run, const struct matrix *matrix, int ndim, const int64_t *sizes,
                              const struct dit_tensor_view *result, struct value *out) {
  int64_t ordered[DIT_MAX_DIMS] = {0}, packed[DIT_MAX_DIMS] = {0}, strides[DIT_MAX_DIMS] = {0};
  out->tensor = adapt_create(run->ctx, ndim, sizes, result->dtype);
  if (!out->tensor) {
    return diopiErrorOccurred;
  }
  for (int i = 0; i < ndim; i++) {
    ordered[i] = sizes[matrix->order[i]];
  }
  dit_shape_set_contiguous(ndim, ordered, packed);
  for (int i = 0; i < ndim; i++) {
    strides[matrix->order[i]] = packed[i];
  }
  struct dit_tensor_view back = *result;
  back.ndim = ndim;
  back.sizes = out->tensor->view.sizes;
  back.strides = strides;
  back.flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  return adapt_copy(run->ctx, &out->tensor->view, &back, ADAPT_WRAP);
}

static diopiError_t scan(struct run *run, diopiTensorHandle_t tensor, uint32_t dims, struct value *out) {
  struct matrix matrix;
  ADAPT_TRY(make_matrix(run, &tensor->view, dims, run->work, &matrix));
  diopiTensorHandle_t sums = adapt_create(run->ctx, 2, matrix.sizes, run->work);
  union dit_diopi_value v[4] = {{.context = run->ctx}, {.tensor = sums}, {.tensor = matrix.tensor}, {.i = 1}};
  ADAPT_TRY(sums ? adapt_call(DIT_DIOPI_diopiCumsum, v) : diopiErrorOccurred);
  return take_back(run, &matrix, tensor->view.ndim, tensor->view.sizes, &sums->view, out);
}

static bool get_flag(const struct run *run, const char *name, bool absent) {
  const int parameter = adapt_find_parameter(run->recipe->function, name);
  return parameter < 0 ? absent : run->values[parameter].i != 0;
}

/// Sorted rows, cut to the first k: values, or where they were.
static diopiError_t sort(struct run *run, diopiTensorHandle_t tensor, uint32_t dims, bool places, struct value *out) {
  const int ndim = tensor->view.ndim, cut = adapt_find_parameter(run->recipe->function, "k");
  const bool stable = true, descending = get_flag(run, "descending", get_flag(run, "largest", false));
  struct matrix matrix;
  int64_t sizes[DIT_MAX_DIMS];
  dims = (dims & (dims - 1)) ? 1U << (ndim - 1) : dims;  // all: the default, which is the last one
  ADAPT_TRY(make_matrix(run, &tensor->view, dims, run->work, &matrix));
  diopiTensorHandle_t values = adapt_create(run->ctx, 2, matrix.sizes, run->work);
  diopiTensorHandle_t indices = adapt_create(run->ctx, 2, matrix.sizes, DIT_DTYPE_I64);
  bool flag = stable;
  union dit_diopi_value v[7] = {{.context = run->ctx},     {.tensor = values}, {.tensor = indices},
                                {.tensor = matrix.tensor}, {.i = 1},           {.i = descending},
                                {.bools = &flag}};
  ADAPT_TRY(values && indices ? adapt_call(DIT_DIOPI_diopiSort, v) : diopiErrorOccurred);
  const int64_t count = cut < 0 ? matrix.sizes[1] : run->values[cut].i;
  ADAPT_CHECK_ARGUMENT(count >= 0 && count <= matrix.sizes[1], "'k' is %lld; valid: 0 to %lld", (long long)count,
                       (long long)matrix.sizes[1]);
  for (int d = 0; d < ndim; d++) {
    sizes[d] = dims >> d & 1 ? count : tensor->view.sizes[d];
  }
  const int64_t shape[2] = {matrix.sizes[0], count};
  diopiTensorHandle_t from = places ? indices : values;
  diopiTensorHandle_t first = adapt_create(run->ctx, 2, shape, from->view.dtype);
  struct dit_tensor_view part = from->view;
  part.sizes = shape;
  part.numel = shape[0] * shape[1];
  part.flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  ADAPT_TRY(first ? adapt_copy(run->ctx, &first->view, &part, ADAPT_WRAP) : diopiErrorOccurred);
  return take_back(run, &matrix, ndim, sizes, &first->view, out);
}

static diopiError_t divide_by(struct run *run, const struct value *value, int64_t count, struct value *out) {
  const struct value arguments[2] = {*value, {.real = (double)count, .integer = count, .is_integer = true}};
  return run_call(run, DIT_DIOPI_diopiDiv, RoundModeNone, arguments, 2, out);
}

static int64_t count_elements(const struct dit_tensor_view *view, uint32_t dims) {
  int64_t count = 1;
  for (int d = 0; d < view->ndim; d++) {
    count *= dims >> d & 1 ? view->sizes[d] : 1;
  }
  return count;
}

diopiError_t run_fold(struct run *run, int word, const struct value *value, struct value *out) {
  diopiTensorHandle_t tensor = value->tensor;
  const int reduction = adapt_find_parameter(run->recipe->function, "reduction");
  uint32_t dims;
  if (!tensor) {
    ADAPT_TRY(run_load(run, value, 0, NULL, run->work, &tensor));
  }
  const uint32_t all = tensor->view.ndim >= 32 ? UINT32_MAX : (1U << tensor->view.ndim) - 1;
  ADAPT_TRY(get_dims(run, tensor->view.ndim, &dims));
  switch (word) {
    case WORD_NUMEL:
    case WORD_COUNT: {
      const int64_t count = word == WORD_NUMEL ? tensor->view.numel : count_elements(&tensor->view, dims);
      *out = (struct value){.real = (double)count, .integer = count, .is_integer = true};
      return diopiSuccess;
    }
    case WORD_SORT:
    case WORD_ARGSORT:
      return sort(run, tensor, dims, word == WORD_ARGSORT, out);
    case WORD_SCAN:
      return scan(run, tensor, dims, out);
    case WORD_SHARE:
      *out = *value;
      return run->values[reduction].i == ReductionMean ? divide_by(run, value, tensor->view.numel, out) : diopiSuccess;
    case WORD_REDUCE: {
      struct value total;
      ADAPT_CHECK_ARGUMENT(run->values[reduction].i >= ReductionNone && run->values[reduction].i < ReductionEND,
                           "'reduction' is %lld", (long long)run->values[reduction].i);
      *out = *value;
      if (run->values[reduction].i == ReductionNone) {
        return diopiSuccess;
      }
      ADAPT_TRY(fold(run, WORD_SUM, tensor, all, &total));
      *out = total;
      return run->values[reduction].i == ReductionMean ? divide_by(run, &total, tensor->view.numel, out) : diopiSuccess;
    }
    case WORD_SUMALL:
    case WORD_MAXALL:
      return fold(run, word, tensor, all, out);
    default:
      return fold(run, word, tensor, dims, out);
  }
}
