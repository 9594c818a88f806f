/// Reductions over dimensions: sum, mean, prod, any, all, extremes.
///
/// out[kept] = fold of input over the reduced dimensions. `out` has the input's shape without them or, where no keepdim
/// parameter says otherwise, with size 1 for them. An absent or empty list of dimensions means all. Accumulated in the
/// dtype of `out` (float for half types, 64-bit integers); complex sums are those of their parts. Not in place.
#include "engine/reduce.h"

#include "lines.h"
#include "reduce_begin.h"

/// Everything after the arguments are views: shapes, aliasing, complex parts, the engine.
static diopiError_t launch(struct reduction *r, enum reduce_kind kind, int keepdim) {
  struct shaped kept, real_out, real_in;
  struct dit_error err = {.message = ""};
  const struct dit_tensor_view *to = &kept.view, *in = &r->in;
  FRAME_TRY(shaped_keep(&kept, &r->frame, r->out_name, &r->out, in, r->mask, keepdim));
  FRAME_TRY(check_out(&r->frame, r->out_name, &r->out, in));
  if (frame_has_dtype(DTYPES_COMPLEX, in->dtype) && frame_has_dtype(DTYPES_COMPLEX, r->out.dtype)) {  // sum and mean
    FRAME_CHECK(&r->frame, shaped_as_real(&real_out, &kept.view) && shaped_as_real(&real_in, in),
                "a complex '%s' may have at most %d dimensions", r->in_name, DIT_MAX_DIMS - 1);
    to = &real_out.view;
    in = &real_in.view;
  }
  return frame_get_code(&r->frame, reduce_launch(r->frame.stream, kind, 0, to, in, r->mask, &err), &err);
}

static const diopiSize_t everything = {NULL, 0};

diopiError_t diopiSum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiSize_t dim) {
  struct reduction r;
  BEGIN_DIMS(&r, __func__, ctx, out, input, dim, DTYPES_PLAIN | DTYPES_COMPLEX);
  FRAME_TRY(check_dtype(&r, IS(r.out, DTYPES_PLAIN) || (IS(r.out, DTYPES_COMPLEX) && r.out.dtype == r.in.dtype)));
  return launch(&r, REDUCE_SUM, -1);
}

diopiError_t diopiMean(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       diopiSize_t dim) {
  struct reduction r;
  BEGIN_DIMS(&r, __func__, ctx, out, input, dim, DTYPES_PLAIN | DTYPES_COMPLEX);
  FRAME_TRY(check_dtype(&r, IS(r.out, DTYPES_FLOAT) || (IS(r.out, DTYPES_COMPLEX) && r.out.dtype == r.in.dtype)));
  return launch(&r, REDUCE_MEAN, -1);
}

diopiError_t diopiProd(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       const int64_t *dim) {
  struct reduction r;
  BEGIN_DIM(&r, __func__, ctx, out, input, dim, DTYPES_PLAIN);
  FRAME_TRY(check_dtype(&r, IS(r.out, DTYPES_PLAIN)));
  return launch(&r, REDUCE_PROD, -1);
}

static diopiError_t run_logical(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, const int64_t *dim, enum reduce_kind kind) {
  struct reduction r;
  BEGIN_DIM(&r, function, ctx, out, input, dim, DTYPES_ANY);
  FRAME_TRY(check_dtype(&r, r.out.dtype == DIT_DTYPE_BOOL || r.out.dtype == DIT_DTYPE_U8));
  return launch(&r, kind, -1);
}

diopiError_t diopiAny(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      const int64_t *dim) {
  return run_logical(__func__, ctx, out, input, dim, REDUCE_ANY);
}

diopiError_t diopiAll(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      const int64_t *dim) {
  return run_logical(__func__, ctx, out, input, dim, REDUCE_ALL);
}

// Extremes

static diopiError_t run_extreme(struct reduction *r, enum reduce_kind kind, int keepdim) {
  FRAME_TRY(check_dtype(r, r->out.dtype == r->in.dtype));
  FRAME_CHECK(&r->frame, !is_empty_fold(&r->out, &r->in), "the input has no elements; it needs at least one");
  return launch(r, kind, keepdim);
}

diopiError_t diopiAmax(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t self,
                       diopiSize_t dim, bool keepdim) {
  struct reduction r;
  BEGIN_DIMS(&r, __func__, ctx, out, self, dim, DTYPES_PLAIN);
  return run_extreme(&r, REDUCE_MAX, keepdim);
}

diopiError_t diopiMaxAll(diopiContextHandle_t ctx, diopiTensorHandle_t max, diopiConstTensorHandle_t input) {
  struct reduction r;
  BEGIN_DIMS(&r, __func__, ctx, max, input, everything, DTYPES_PLAIN);
  return run_extreme(&r, REDUCE_MAX, -1);
}

diopiError_t diopiMinAll(diopiContextHandle_t ctx, diopiTensorHandle_t min, diopiConstTensorHandle_t input) {
  struct reduction r;
  BEGIN_DIMS(&r, __func__, ctx, min, input, everything, DTYPES_PLAIN);
  return run_extreme(&r, REDUCE_MIN, -1);
}
