/// Matrix products of recipes: any number of batch dimensions, broadcast, as one diopiBmm.
#include <string.h>

#include "evaluate.h"

struct operand {
  struct dit_tensor_view view;
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
  bool is_vector;
};

/// A view of at least two dimensions; a vector becomes a row (left) or a column.
static diopiError_t take(const struct value *value, bool left, bool transposed, struct operand *out) {
  ADAPT_CHECK_ARGUMENT(value->tensor && value->tensor->view.ndim > 0 && value->tensor->view.ndim < DIT_MAX_DIMS,
                       "a number has no matrix product");
  out->view = value->tensor->view;
  const int ndim = out->view.ndim;
  out->is_vector = ndim == 1;
  memcpy(out->sizes, out->view.sizes, sizeof(int64_t) * (size_t)ndim);
  memcpy(out->strides, out->view.strides, sizeof(int64_t) * (size_t)ndim);
  if (out->is_vector) {
    const int matrix = left ? 1 : 0;
    out->sizes[matrix] = out->view.sizes[0];
    out->strides[matrix] = out->view.strides[0];
    out->sizes[1 - matrix] = 1;
    out->strides[1 - matrix] = 1;
    out->view.ndim = 2;
  } else if (transposed) {
    const int64_t size = out->sizes[ndim - 1], stride = out->strides[ndim - 1];
    out->sizes[ndim - 1] = out->sizes[ndim - 2];
    out->strides[ndim - 1] = out->strides[ndim - 2];
    out->sizes[ndim - 2] = size;
    out->strides[ndim - 2] = stride;
  }
  out->view.sizes = out->sizes;
  out->view.strides = out->strides;
  out->view.flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  return diopiSuccess;
}

/// A tensor (batch, rows, columns) seen with the batch dimensions apart.
static void spread(const struct dit_tensor_view *flat, int batch_ndim, const int64_t *batch, int64_t *sizes,
                   int64_t *strides, struct dit_tensor_view *out) {
  *out = *flat;
  memcpy(sizes, batch, sizeof(int64_t) * (size_t)batch_ndim);
  sizes[batch_ndim] = flat->sizes[1];
  sizes[batch_ndim + 1] = flat->sizes[2];
  dit_shape_set_contiguous(batch_ndim + 2, sizes, strides);
  out->ndim = batch_ndim + 2;
  out->sizes = sizes;
  out->strides = strides;
}

static diopiError_t load(struct run *run, const struct operand *operand, int batch_ndim, const int64_t *batch,
                         int64_t count, diopiTensorHandle_t *out) {
  const int ndim = operand->view.ndim;
  const int64_t shape[3] = {count, operand->sizes[ndim - 2], operand->sizes[ndim - 1]};
  int64_t sizes[DIT_MAX_DIMS + 2], strides[DIT_MAX_DIMS + 2];
  struct dit_tensor_view wide;
  *out = adapt_create(run->ctx, 3, shape, run->work);
  if (!*out) {
    return diopiErrorOccurred;
  }
  spread(&(*out)->view, batch_ndim, batch, sizes, strides, &wide);
  return adapt_copy(run->ctx, &wide, &operand->view, ADAPT_WRAP);
}

/// The product with the batch dimensions apart, without those that a vector lent.
static diopiError_t give(struct run *run, const struct operand *a, const struct operand *b, int batch_ndim,
                         const int64_t *batch, const struct dit_tensor_view *flat, struct value *out) {
  int64_t sizes[DIT_MAX_DIMS + 2];
  int ndim = batch_ndim;
  memcpy(sizes, batch, sizeof(int64_t) * (size_t)batch_ndim);
  if (!a->is_vector) {
    sizes[ndim++] = flat->sizes[1];
  }
  if (!b->is_vector) {
    sizes[ndim++] = flat->sizes[2];
  }
  out->tensor = adapt_create(run->ctx, ndim, sizes, run->work);
  if (!out->tensor) {
    return diopiErrorOccurred;
  }
  struct dit_tensor_view same = out->tensor->view;
  same.ndim = 3;
  same.sizes = flat->sizes;
  same.strides = flat->strides;
  return adapt_copy(run->ctx, &same, flat, ADAPT_WRAP);
}

diopiError_t run_product(struct run *run, const struct value *a, const struct value *b, bool transposed,
                         struct value *out) {
  struct operand left, right;
  struct dit_error err = {.message = ""};
  int64_t batch[DIT_MAX_DIMS], count = 1;
  int batch_ndim = 0;
  diopiTensorHandle_t x, y;
  ADAPT_TRY(take(a, true, false, &left));
  ADAPT_TRY(take(b, false, transposed, &right));
  const int64_t inner = left.sizes[left.view.ndim - 1];
  ADAPT_CHECK_ARGUMENT(inner == right.sizes[right.view.ndim - 2], "matrices of %lld columns and %lld rows",
                       (long long)inner, (long long)right.sizes[right.view.ndim - 2]);
  ADAPT_CHECK_ARGUMENT(dit_shape_broadcast(left.view.ndim - 2, left.sizes, &batch_ndim, batch, &err) == DIT_OK &&
                           dit_shape_broadcast(right.view.ndim - 2, right.sizes, &batch_ndim, batch, &err) == DIT_OK,
                       "%s", err.message);
  for (int d = 0; d < batch_ndim; d++) {
    count *= batch[d];
  }
  ADAPT_TRY(load(run, &left, batch_ndim, batch, count, &x));
  ADAPT_TRY(load(run, &right, batch_ndim, batch, count, &y));
  const int64_t shape[3] = {count, x->view.sizes[1], y->view.sizes[2]};
  diopiTensorHandle_t product = adapt_create(run->ctx, 3, shape, run->work);
  const union dit_diopi_value v[4] = {{.context = run->ctx}, {.tensor = product}, {.tensor = x}, {.tensor = y}};
  ADAPT_TRY(product ? adapt_call(DIT_DIOPI_diopiBmm, v) : diopiErrorOccurred);
  return give(run, &left, &right, batch_ndim, batch, &product->view, out);
}
