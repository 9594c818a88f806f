/// Functions that only move or fill elements, made of the adaptor's copies: every dtype and layout.
///
/// Each takes (context of the call, values); shapes are checked before the first byte is written.
#include "movement.h"

#include <math.h>
#include <string.h>

#include "dit/alloc.h"

#define TAKE(piece, number, name) ADAPT_TRY(piece_init(&(piece), v[number].tensor, name))

static diopiError_t copy(diopiContextHandle_t ctx, const struct piece *out, const struct piece *in) {
  return adapt_copy(ctx, &out->view, &in->view, ADAPT_WRAP);
}

// Whole tensors

static diopiError_t copy_inp(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece src, dest;
  TAKE(src, 1, "src");
  TAKE(dest, 2, "dest");
  return copy(ctx, &dest, &src);
}

static diopiError_t cast(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, in;
  TAKE(out, 1, "out");
  TAKE(in, 2, "input");
  ADAPT_TRY(piece_check_shape(&out, in.view.ndim, in.sizes));
  return copy(ctx, &out, &in);
}

static diopiError_t expand(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, in;
  TAKE(out, 1, "out");
  TAKE(in, 2, "input");
  return copy(ctx, &out, &in);
}

static diopiError_t contiguous(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece in;
  diopiTensorHandle_t made = NULL;
  int64_t strides[DIT_MAX_DIMS];
  ADAPT_CHECK_ARGUMENT(v[1].tensors, "'out' is NULL; it must be a place for a tensor");
  TAKE(in, 2, "input");
  const int64_t format = v[3].i, ndim = in.view.ndim;
  const bool last = (format == ChannelsLast && ndim == 4) || (format == ChannelsLast3d && ndim == 5) ||
                    (format == ChannelsLast1d && ndim == 3);
  ADAPT_CHECK_ARGUMENT(last || format == Contiguous || (format == Preserve),
                       "memory format %lld does not suit %lld "
                       "dimensions",
                       (long long)format, (long long)ndim);
  dit_shape_set_contiguous(in.view.ndim, in.sizes, strides);
  if (last) {
    adapt_set_channels_last(in.view.ndim, in.sizes, strides);
  } else if (format == Preserve && dit_shape_is_dense(in.view.ndim, in.sizes, in.strides)) {
    memcpy(strides, in.strides, sizeof(int64_t) * (size_t)ndim);
  }
  const diopiSize_t size = {in.sizes, ndim}, stride = {strides, ndim};
  if (diopiRequireTensor(v[0].context, &made, &size, &stride, dit_diopi_get_dtype(in.view.dtype), diopi_device) !=
      diopiSuccess) {
    return adapt_fail(diopiErrorOccurred, diopiExtFailureOther, "no memory for the result");
  }
  ADAPT_TRY(adapt_copy(ctx, &made->view, &in.view, ADAPT_WRAP));
  v[1].tensors[0] = made;
  return diopiSuccess;
}

static diopiError_t fill_int(diopiContextHandle_t ctx, diopiTensorHandle_t tensor, const char *name, int64_t number) {
  struct piece out;
  ADAPT_TRY(piece_init(&out, tensor, name));
  return piece_fill(ctx, &out, &(diopiScalar_t){.stype = diopi_dtype_int64, .ival = number});
}

static diopiError_t fill(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out;
  TAKE(out, 1, "input");
  ADAPT_CHECK_ARGUMENT(v[2].scalar, "'value' is NULL; it must be a scalar");
  return piece_fill(ctx, &out, v[2].scalar);
}

static diopiError_t fill_sized(diopiContextHandle_t ctx, const union dit_diopi_value *v, int64_t number) {
  struct piece out;
  TAKE(out, 1, "out");
  ADAPT_CHECK_ARGUMENT(v[2].size.len >= 0 && (v[2].size.len == 0 || v[2].size.data), "'size' is no list");
  ADAPT_TRY(piece_check_shape(&out, (int)v[2].size.len, v[2].size.data));
  return fill_int(ctx, v[1].tensor, "out", number);
}

static diopiError_t zeros(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  return fill_sized(ctx, v, 0);
}

static diopiError_t ones(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  return fill_sized(ctx, v, 1);
}

static diopiError_t zero_inp(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  return fill_int(ctx, v[1].tensor, "self", 0);
}

// Other orders of dimensions

static diopiError_t permute(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, in, view;
  uint32_t seen = 0;
  TAKE(out, 1, "out");
  TAKE(in, 2, "input");
  ADAPT_CHECK_ARGUMENT(v[3].size.len == in.view.ndim, "'dims' has %lld entries, 'input' %d dimensions",
                       (long long)v[3].size.len, in.view.ndim);
  piece_copy(&view, &in);
  for (int d = 0; d < in.view.ndim; d++) {
    int from;
    ADAPT_TRY(piece_wrap_dim("an entry of 'dims'", v[3].size.data[d], in.view.ndim, &from));
    ADAPT_CHECK_ARGUMENT(!(seen >> from & 1), "'dims' names dimension %d twice", from);
    seen |= 1U << from;
    view.sizes[d] = in.sizes[from];
    view.strides[d] = in.strides[from];
  }
  piece_update(&view);
  ADAPT_TRY(piece_check_shape(&out, view.view.ndim, view.sizes));
  return copy(ctx, &out, &view);
}

static diopiError_t transpose(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, in, view;
  int a, b;
  TAKE(out, 1, "out");
  TAKE(in, 2, "input");
  ADAPT_TRY(piece_wrap_dim("'dim0'", v[3].i, in.view.ndim, &a));
  ADAPT_TRY(piece_wrap_dim("'dim1'", v[4].i, in.view.ndim, &b));
  piece_copy(&view, &in);
  if (in.view.ndim > 0) {
    view.sizes[a] = in.sizes[b];
    view.strides[a] = in.strides[b];
    view.sizes[b] = in.sizes[a];
    view.strides[b] = in.strides[a];
  }
  piece_update(&view);
  ADAPT_TRY(piece_check_shape(&out, view.view.ndim, view.sizes));
  return copy(ctx, &out, &view);
}

/// Each dimension of the result is split into (repeat, size) and the input broadcast into it.
static diopiError_t repeat(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, in, split, source;
  TAKE(out, 1, "out");
  TAKE(in, 2, "input");
  const int ndim = (int)v[3].size.len, grow = ndim - in.view.ndim;
  ADAPT_CHECK_ARGUMENT(grow >= 0 && v[3].size.len <= DIT_MAX_DIMS / 2,
                       "'repeats_size' has %lld entries, 'input' %d "
                       "dimensions",
                       (long long)v[3].size.len, in.view.ndim);
  piece_copy(&split, &out);
  piece_copy(&source, &in);
  int64_t sizes[DIT_MAX_DIMS];
  for (int d = 0; d < ndim; d++) {
    const int64_t size = d < grow ? 1 : in.sizes[d - grow], times = v[3].size.data[d];
    ADAPT_CHECK_ARGUMENT(times >= 0, "'repeats_size' holds %lld", (long long)times);
    sizes[d] = size * times;
    split.sizes[2 * d] = source.sizes[2 * d] = times;
    split.sizes[2 * d + 1] = source.sizes[2 * d + 1] = size;
  }
  ADAPT_TRY(piece_check_shape(&out, ndim, sizes));
  for (int d = 0; d < ndim; d++) {
    split.strides[2 * d + 1] = out.strides[d];
    split.strides[2 * d] = out.strides[d] * split.sizes[2 * d + 1];
    source.strides[2 * d] = 0;
    source.strides[2 * d + 1] = d < grow ? 0 : in.strides[d - grow];
  }
  split.view.ndim = source.view.ndim = 2 * ndim;
  piece_update(&split);
  piece_update(&source);
  return copy(ctx, &split, &source);
}

static diopiError_t unfold(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, view;
  int dim;
  TAKE(out, 1, "out");
  TAKE(view, 2, "input");
  const int64_t size = v[4].i, step = v[5].i;
  if (view.view.ndim == 0) {
    piece_insert(&view, 0);
  }
  ADAPT_TRY(piece_wrap_dim("'dim'", v[3].i, view.view.ndim, &dim));
  ADAPT_CHECK_ARGUMENT(size >= 0 && size <= view.sizes[dim] && step > 0 && view.view.ndim < DIT_MAX_DIMS,
                       "windows of %lld with step %lld in a dimension of %lld", (long long)size, (long long)step,
                       (long long)view.sizes[dim]);
  const int last = view.view.ndim++;
  view.sizes[last] = size;
  view.strides[last] = view.strides[dim];
  view.sizes[dim] = (view.sizes[dim] - size) / step + 1;
  view.strides[dim] *= step;
  if (v[2].tensor->view.ndim == 0) {
    piece_drop(&view, 0);
  }
  piece_update(&view);
  ADAPT_TRY(piece_check_shape(&out, view.view.ndim, view.sizes));
  return copy(ctx, &out, &view);
}

// Parts

/// The part of `piece` that start, end and step name, as PyTorch's slices do.
static diopiError_t slice_piece(struct piece *piece, int64_t dim_number, int64_t start, int64_t end, int64_t step) {
  int dim;
  ADAPT_CHECK_ARGUMENT(piece->view.ndim > 0, "a tensor without dimensions has no slices");
  ADAPT_TRY(piece_wrap_dim("'dim'", dim_number, piece->view.ndim, &dim));
  const int64_t size = piece->sizes[dim];
  ADAPT_CHECK_ARGUMENT(step > 0, "'step' is %lld; it must be above 0", (long long)step);
  start = start < 0 ? start + size : start;
  end = end < 0 ? end + size : end;
  start = start < 0 ? 0 : start > size ? size : start;
  end = end < start ? start : end > size ? size : end;
  piece_narrow(piece, dim, start, (end - start + step - 1) / step, step);
  return diopiSuccess;
}

static diopiError_t select_piece(struct piece *piece, int64_t dim_number, int64_t index) {
  int dim;
  ADAPT_CHECK_ARGUMENT(piece->view.ndim > 0, "a tensor without dimensions has nothing to select");
  ADAPT_TRY(piece_wrap_dim("'dim'", dim_number, piece->view.ndim, &dim));
  const int64_t size = piece->sizes[dim];
  ADAPT_CHECK_ARGUMENT(index >= -size && index < size, "'index' is %lld; valid: %lld to %lld", (long long)index,
                       (long long)-size, (long long)size - 1);
  piece_narrow(piece, dim, index < 0 ? index + size : index, 1, 1);
  piece_drop(piece, dim);
  return diopiSuccess;
}

static diopiError_t slice(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, in;
  TAKE(out, 1, "null_out");
  TAKE(in, 2, "input");
  ADAPT_TRY(slice_piece(&in, v[3].i, v[4].i, v[5].i, v[6].i));
  ADAPT_TRY(piece_check_shape(&out, in.view.ndim, in.sizes));
  return copy(ctx, &out, &in);
}

static diopiError_t select(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, in;
  TAKE(out, 1, "out");
  TAKE(in, 2, "input");
  ADAPT_TRY(select_piece(&in, v[3].i, v[4].i));
  ADAPT_TRY(piece_check_shape(&out, in.view.ndim, in.sizes));
  return copy(ctx, &out, &in);
}

/// `out` is `in` (zeros when NULL) with `src` in the place `part` of it.
static diopiError_t put_part(diopiContextHandle_t ctx, const struct piece *out, const struct piece *in,
                             const struct piece *part, const struct piece *src) {
  ADAPT_TRY(piece_check_shape(src, part->view.ndim, part->sizes));
  if (in) {
    ADAPT_TRY(piece_check_shape(out, in->view.ndim, in->sizes));
    ADAPT_TRY(copy(ctx, out, in));
  } else {
    ADAPT_TRY(piece_fill(ctx, out, &(diopiScalar_t){.stype = diopi_dtype_int64, .ival = 0}));
  }
  return copy(ctx, part, src);
}

static diopiError_t slice_scatter(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, in, src, part;
  TAKE(out, 1, "out");
  TAKE(in, 2, "input");
  TAKE(src, 3, "src");
  piece_copy(&part, &out);
  ADAPT_TRY(slice_piece(&part, v[4].i, v[5].i, v[6].i, v[7].i));
  return put_part(ctx, &out, &in, &part, &src);
}

static diopiError_t select_scatter(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, in, src, part;
  TAKE(out, 1, "out");
  TAKE(in, 2, "input");
  TAKE(src, 3, "src");
  piece_copy(&part, &out);
  ADAPT_TRY(select_piece(&part, v[4].i, v[5].i));
  return put_part(ctx, &out, &in, &part, &src);
}

static diopiError_t slice_backward(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, src, part;
  TAKE(out, 1, "grad_input");
  TAKE(src, 2, "grad_output");
  ADAPT_TRY(piece_check_shape(&out, (int)v[3].size.len, v[3].size.data));
  piece_copy(&part, &out);
  ADAPT_TRY(slice_piece(&part, v[4].i, v[5].i, v[6].i, v[7].i));
  return put_part(ctx, &out, NULL, &part, &src);
}

static diopiError_t select_backward(diopiContextHandle_t ctx, const union dit_diopi_value *v) {
  struct piece out, src, part;
  TAKE(out, 1, "grad_input");
  TAKE(src, 2, "grad_output");
  ADAPT_TRY(piece_check_shape(&out, (int)v[3].size.len, v[3].size.data));
  piece_copy(&part, &out);
  ADAPT_TRY(select_piece(&part, v[4].i, v[5].i));
  return put_part(ctx, &out, NULL, &part, &src);
}

// The table

diopiError_t move_cat(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_stack(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_split(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_roll(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_flip(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_pad(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_tril(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_triu(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_mesh_grid(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_index_select(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_embedding(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_index_fill(diopiContextHandle_t ctx, const union dit_diopi_value *v);
diopiError_t move_index_fill_scalar(diopiContextHandle_t ctx, const union dit_diopi_value *v);

static const struct {
  int function;
  diopiError_t (*run)(diopiContextHandle_t ctx, const union dit_diopi_value *v);
} rows[] = {{DIT_DIOPI_diopiCopyInp, copy_inp},
            {DIT_DIOPI_diopiCastDtype, cast},
            {DIT_DIOPI_diopiExpand, expand},
            {DIT_DIOPI_diopiContiguous, contiguous},
            {DIT_DIOPI_diopiFill, fill},
            {DIT_DIOPI_diopiZeros, zeros},
            {DIT_DIOPI_diopiOnes, ones},
            {DIT_DIOPI_diopiZeroInp, zero_inp},
            {DIT_DIOPI_diopiPermute, permute},
            {DIT_DIOPI_diopiTranspose, transpose},
            {DIT_DIOPI_diopiRepeat, repeat},
            {DIT_DIOPI_diopiUnfold, unfold},
            {DIT_DIOPI_diopiSlice, slice},
            {DIT_DIOPI_diopiSelect, select},
            {DIT_DIOPI_diopiSliceScatter, slice_scatter},
            {DIT_DIOPI_diopiSelectScatter, select_scatter},
            {DIT_DIOPI_diopiSliceBackward, slice_backward},
            {DIT_DIOPI_diopiSelectBackward, select_backward},
            {DIT_DIOPI_diopiCat, move_cat},
            {DIT_DIOPI_diopiStack, move_stack},
            {DIT_DIOPI_diopiSplitWithSizes, move_split},
            {DIT_DIOPI_diopiRoll, move_roll},
            {DIT_DIOPI_diopiFlip, move_flip},
            {DIT_DIOPI_diopiPad, move_pad},
            {DIT_DIOPI_diopiTril, move_tril},
            {DIT_DIOPI_diopiTriu, move_triu},
            {DIT_DIOPI_diopiMeshGrid, move_mesh_grid},
            {DIT_DIOPI_diopiIndexSelect, move_index_select},
            {DIT_DIOPI_diopiEmbedding, move_embedding},
            {DIT_DIOPI_diopiIndexFill, move_index_fill},
            {DIT_DIOPI_diopiIndexFillScalar, move_index_fill_scalar}};

bool adapt_is_movement(int function) {
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (rows[i].function == function) {
      return true;
    }
  }
  return false;
}

diopiError_t adapt_move(diopiContextHandle_t ctx, int function, const union dit_diopi_value *v) {
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (rows[i].function == function) {
      return rows[i].run(ctx, v);
    }
  }
  return diopiNoImplement;
}
