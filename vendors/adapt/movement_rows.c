/// Movement row by row: triangles, and rows whose numbers a tensor of indices holds.
#include <string.h>

#include "dit/alloc.h"
#include "movement.h"

#define TAKE(piece, number, name) ADAPT_TRY(piece_init(&(piece), v[number].tensor, name))

static diopiError_t copy(diopiContextHandle_t ctx, const struct piece *out, const struct piece *in) {
  return adapt_copy(ctx, &out->view, &in->view, ADAPT_WRAP);
}

// Triangles

static diopiError_t keep_triangle(diopiContextHandle_t ctx, const union dit_diopi_value *v, bool lower) {
  struct piece out, in;
  const diopiScalar_t zero = {.stype = diopi_dtype_int64, .ival = 0};
  TAKE(out, 1, "out");
  TAKE(in, 2, "input");
  const int ndim = in.view.ndim;
  ADAPT_CHECK_ARGUMENT(ndim >= 2, "'input' has %d dimensions; at least 2 are needed", ndim);
  ADAPT_TRY(piece_check_shape(&out, ndim, in.sizes));
  const int64_t columns = in.sizes[ndim - 1], diagonal = v[3].i;
  for (int64_t row = 0; row < in.sizes[ndim - 2]; row++) {
    // elements before `edge` are on or below the diagonal (lower), or below it (upper)
    int64_t edge = row + (lower ? 1 : 0) +
                   (diagonal > columns      ? columns
                    : diagonal < -(row + 1) ? -(row + 1)
                                            : diagonal);
    edge = edge < 0 ? 0 : edge > columns ? columns : edge;
    for (int side = 0; side < 2; side++) {
      struct piece to, from;
      const bool keep = (side == 0) == lower;
      piece_copy(&to, &out);
      piece_copy(&from, &in);
      piece_narrow(&to, ndim - 2, row, 1, 1);
      piece_narrow(&from, ndim - 2, row, 1, 1);
      piece_narrow(&to, ndim - 1, side ? edge : 0, side ? columns - edge : edge, 1);
      piece_narrow(&from, ndim - 1, side ? edge : 0, side ? columns - edge : edge, 1);
      ADAPT_TRY(keep ? copy(ctx, &to, &from) : piece_fill(ctx, &to, &zero));
    }
  }
  return diopiSuccess;
}

diopiError_t move_tril(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  return keep_triangle(ctx, v, true);
}

diopiError_t move_triu(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  return keep_triangle(ctx, v, false);
}

// Rows by index

/// Indices on the host, wrapped and checked. The caller frees them.
static diopiError_t read_indices(diopiContextHandle_t ctx, const struct piece *index, int64_t size, bool negative,
                                 int64_t **out) {
  ADAPT_CHECK_ARGUMENT(index->view.dtype == DIT_DTYPE_I64 || index->view.dtype == DIT_DTYPE_I32,
                       "indices are %s; valid: int64, int32", dit_dtype_get_name(index->view.dtype));
  ADAPT_TRY(adapt_read_ints(ctx, &index->view, out));
  for (int64_t i = 0; i < index->view.numel; i++) {
    const int64_t own = (*out)[i];
    if (own >= size || own < (negative ? -size : 0)) {
      dit_free(*out);
      return adapt_fail(diopiErrorOccurred, diopiExtFailureRange, "an index holds %lld, valid are %lld to %lld",
                        (long long)own, (long long)(negative ? -size : 0), (long long)size - 1);
    }
    (*out)[i] = own < 0 ? own + size : own;
  }
  return diopiSuccess;
}

diopiError_t move_index_select(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, in, index, shape;
  int64_t *map;
  int dim;
  TAKE(out, 1, "out");
  TAKE(in, 2, "input");
  TAKE(index, 4, "index");
  ADAPT_CHECK_ARGUMENT(index.view.ndim <= 1, "'index' has %d dimensions; valid: 0 or 1", index.view.ndim);
  ADAPT_TRY(piece_wrap_dim("'dim'", v[3].i, in.view.ndim, &dim));
  piece_copy(&shape, &in);
  if (in.view.ndim == 0) {
    piece_insert(&in, 0);
    piece_insert(&out, 0);
    piece_insert(&shape, 0);
  }
  shape.sizes[dim] = index.view.numel;
  ADAPT_TRY(piece_check_shape(&out, shape.view.ndim, shape.sizes));
  ADAPT_TRY(read_indices(ctx, &index, in.sizes[dim], false, &map));
  const diopiError_t code = piece_copy_mapped(ctx, &out, &in, dim, map);
  dit_free(map);
  return code;
}

diopiError_t move_embedding(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, weight, index;
  int64_t sizes[DIT_MAX_DIMS], *map;
  TAKE(out, 1, "out");
  TAKE(weight, 2, "weight");
  TAKE(index, 3, "indices");
  const int ndim = index.view.ndim;
  ADAPT_CHECK_ARGUMENT(weight.view.ndim == 2 && ndim < DIT_MAX_DIMS, "'weight' has %d dimensions; it must have 2",
                       weight.view.ndim);
  memcpy(sizes, index.sizes, sizeof(int64_t) * (size_t)ndim);
  sizes[ndim] = weight.sizes[1];
  ADAPT_TRY(piece_check_shape(&out, ndim + 1, sizes));
  ADAPT_TRY(read_indices(ctx, &index, weight.sizes[0], false, &map));
  diopiTensorHandle_t packed = adapt_create(ctx, 2, (int64_t[]){index.view.numel, weight.sizes[1]}, weight.view.dtype);
  struct piece rows;
  diopiError_t code = packed ? piece_init(&rows, packed, "out") : diopiErrorOccurred;
  code = code == diopiSuccess ? piece_copy_mapped(ctx, &rows, &weight, 0, map) : code;
  dit_free(map);
  ADAPT_TRY(code);
  rows.view.ndim = ndim + 1;
  memcpy(rows.sizes, sizes, sizeof(int64_t) * (size_t)(ndim + 1));
  dit_shape_set_contiguous(ndim + 1, rows.sizes, rows.strides);
  piece_update(&rows);
  return copy(ctx, &out, &rows);
}

/// `value` NULL: the scalar.
static diopiError_t fill_rows(diopiContextHandle_t ctx, const union dit_diopi_value *v, const struct piece *value,
                              const diopiScalar_t *scalar) {
  struct piece out, in, index;
  int64_t *map;
  int dim;
  TAKE(out, 1, "out");
  TAKE(in, 2, "input");
  TAKE(index, 4, "index");
  ADAPT_CHECK_ARGUMENT(index.view.ndim <= 1, "'index' has %d dimensions; valid: 0 or 1", index.view.ndim);
  ADAPT_TRY(piece_wrap_dim("'dim'", v[3].i, in.view.ndim, &dim));
  ADAPT_TRY(piece_check_shape(&out, in.view.ndim, in.sizes));
  if (in.view.ndim == 0) {
    piece_insert(&in, 0);
    piece_insert(&out, 0);
  }
  ADAPT_TRY(read_indices(ctx, &index, in.sizes[dim], true, &map));
  diopiError_t code = copy(ctx, &out, &in);
  for (int64_t i = 0; i < index.view.numel && code == diopiSuccess; i++) {
    struct piece part;
    piece_copy(&part, &out);
    piece_narrow(&part, dim, map[i], 1, 1);
    code = value ? copy(ctx, &part, value) : piece_fill(ctx, &part, scalar);
  }
  dit_free(map);
  return code;
}

diopiError_t move_index_fill(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece value;
  TAKE(value, 5, "value");
  ADAPT_CHECK_ARGUMENT(value.view.ndim == 0, "'value' has %d dimensions; it must have none", value.view.ndim);
  return fill_rows(ctx, v, &value, NULL);
}

diopiError_t move_index_fill_scalar(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  ADAPT_CHECK_ARGUMENT(v[5].scalar, "'value' is NULL; it must be a scalar");
  return fill_rows(ctx, v, NULL, v[5].scalar);
}
