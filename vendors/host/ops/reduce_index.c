/// Reductions that tell where: extremes with their indices, argmax, argmin; and the standard deviation.
///
/// Shapes and lists of dimensions are those of reduce.c. Of equal values the first counts; NaN wins.
#include "engine/reduce_index.h"

#include "dense.h"
#include "lines.h"
#include "reduce_begin.h"
#include "reduce_index.h"

static diopiError_t run_max(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t values,
                            diopiTensorHandle_t indices, diopiConstTensorHandle_t input, int64_t dim, bool largest) {
  struct reduction r;
  struct dit_tensor_view index;
  struct shaped kept_values, kept_indices, in;
  struct dit_error err = {.message = ""};
  int d;
  const char *const index_name = largest ? "max_indices" : "min_indices";
  r.out_name = largest ? "max" : "min";
  r.in_name = "input";
  FRAME_TRY(begin(&r, function, ctx, values, input, (diopiSize_t){&dim, 1}, DTYPES_PLAIN));
  FRAME_TRY(frame_take(&r.frame, index_name, indices, &index));
  FRAME_TRY(frame_wrap_dim(&r.frame, "dim", dim, r.in.ndim, &d));
  FRAME_TRY(check_dtype(&r, r.out.dtype == r.in.dtype));
  if (index.dtype != DIT_DTYPE_I64) {
    return frame_fail_dtype(&r.frame, index_name, index.dtype);
  }
  FRAME_CHECK(&r.frame, r.in.ndim == 0 || r.in.sizes[d] > 0, "dimension %d of 'input' has size 0", d);
  FRAME_TRY(shaped_keep(&kept_values, &r.frame, r.out_name, &r.out, &r.in, r.mask, -1));
  FRAME_TRY(shaped_keep(&kept_indices, &r.frame, index_name, &index, &r.in, r.mask, -1));
  FRAME_TRY(check_out(&r.frame, r.out_name, &r.out, &r.in));
  FRAME_TRY(check_out(&r.frame, index_name, &index, &r.in));
  FRAME_TRY(check_out(&r.frame, index_name, &index, &r.out));
  if (r.in.ndim == 0) {
    shaped_push(&kept_values, 1, 1);
    shaped_push(&kept_indices, 1, 1);
  }
  shaped_init(&in, &r.in, true);
  return frame_get_code(
      &r.frame, reduce_index_launch(r.frame.stream, largest, &kept_values.view, &kept_indices.view, &in.view, d, &err),
      &err);
}

diopiError_t diopiMax(diopiContextHandle_t ctx, diopiTensorHandle_t max, diopiTensorHandle_t max_indices,
                      diopiConstTensorHandle_t input, int64_t dim) {
  return run_max(__func__, ctx, max, max_indices, input, dim, true);
}

diopiError_t diopiMin(diopiContextHandle_t ctx, diopiTensorHandle_t min, diopiTensorHandle_t min_indices,
                      diopiConstTensorHandle_t input, int64_t dim) {
  return run_max(__func__, ctx, min, min_indices, input, dim, false);
}

static diopiError_t run_arg(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                            diopiConstTensorHandle_t input, const int64_t *dim, bool keepdim, bool largest) {
  struct reduction r;
  struct shaped kept, in;
  struct dit_error err = {.message = ""};
  int d = 0;
  BEGIN_DIM(&r, function, ctx, out, input, dim, DTYPES_REAL);
  FRAME_TRY(check_dtype(&r, r.out.dtype == DIT_DTYPE_I64));
  FRAME_TRY(frame_wrap_dim(&r.frame, "dim", dim ? *dim : 0, r.in.ndim, &d));
  FRAME_CHECK(&r.frame, dim ? r.in.ndim == 0 || r.in.sizes[d] > 0 : r.in.numel > 0,
              "'input' has no elements to choose from; it needs at least one along 'dim'");
  FRAME_TRY(shaped_keep(&kept, &r.frame, "out", &r.out, &r.in, r.mask, dim ? keepdim : -1));
  FRAME_TRY(check_out(&r.frame, "out", &r.out, &r.in));
  if (!dim || r.in.ndim == 0) {
    kept.view.ndim = 0;
    shaped_push(&kept, 1, 1);
    return arg_run_flat(&r.frame, &kept.view, &r.in, largest);
  }
  shaped_init(&in, &r.in, true);
  return frame_get_code(&r.frame, reduce_index_launch(r.frame.stream, largest, NULL, &kept.view, &in.view, d, &err),
                        &err);
}

diopiError_t diopiArgmax(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         const int64_t *dim, bool keepdim) {
  return run_arg(__func__, ctx, out, input, dim, keepdim, true);
}

diopiError_t diopiArgmin(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         const int64_t *dim, bool keepdim) {
  return run_arg(__func__, ctx, out, input, dim, keepdim, false);
}

// Standard deviation

diopiError_t diopiStd(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiSize_t dim, const diopiScalar_t *correction) {
  struct reduction r;
  struct shaped kept, moved;
  struct dit_scalar scalar = {DIT_SCALAR_INT, {.i = 1}};
  BEGIN_DIMS(&r, __func__, ctx, out, input, dim, DTYPES_FLOAT);
  FRAME_TRY(check_dtype(&r, r.out.dtype == r.in.dtype));
  if (correction) {
    FRAME_TRY(frame_get_scalar(&r.frame, "correction", correction, &scalar));
  }
  FRAME_TRY(shaped_keep(&kept, &r.frame, "out", &r.out, &r.in, r.mask, -1));
  FRAME_TRY(check_out(&r.frame, "out", &r.out, &r.in));
  shaped_move_last(&moved, &r.in, r.mask);
  struct std_task task = {.frame = &r.frame,
                          .out = &r.out,
                          .in = &moved.view,
                          .correction = frame_scalar_to_double(scalar),
                          .work = dense_get_work(r.in.dtype),
                          .kept = r.out.numel,
                          .reduced = 1};
  for (int d = 0; d < r.in.ndim; d++) {
    task.reduced *= r.mask >> d & 1 ? r.in.sizes[d] : 1;
  }
  return std_run(&task);
}
