/// p-norms over dimensions, their gradient, and division by them.
///
/// norm = (sum |x|^p)^(1/p); p = 0 counts what is not 0, p = inf and -inf take the largest and smallest |x|. The p-norm
/// of complex numbers is that of their magnitudes. Shapes as in reduce.c. Normalize: out = x / max(norm, eps) along one
/// dimension; its output may be exactly the input. Accumulated in float for half types.
#include "reduce_norm.h"

#include <math.h>

#include "dense.h"
#include "engine/reduce.h"

enum reduce_kind norm_get_kind(double p) {
  if (isinf(p)) {
    return p > 0 ? REDUCE_NORM_MAX : REDUCE_NORM_MIN;
  }
  return p == 0 ? REDUCE_NORM_0 : p == 1 ? REDUCE_NORM_1 : p == 2 ? REDUCE_NORM_2 : REDUCE_NORM_P;
}

static diopiError_t get_power(struct frame *frame, const char *name, const diopiScalar_t *scalar, double *p) {
  struct dit_scalar value = {DIT_SCALAR_DOUBLE, {.d = 2}};
  if (scalar) {
    FRAME_TRY(frame_get_scalar(frame, name, scalar, &value));
  }
  *p = frame_scalar_to_double(value);
  FRAME_CHECK(frame, !isnan(*p), "'%s' is NaN; it must be a number or an infinity", name);
  return diopiSuccess;
}

// Norms

static diopiError_t run_norm(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                             double p, uint32_t mask, int keepdim) {
  struct shaped kept;
  struct dit_error err = {.message = ""};
  if (!frame_has_dtype(DTYPES_FLOAT | DTYPES_COMPLEX, in->dtype)) {
    return frame_fail_dtype(frame, "input", in->dtype);
  }
  if (!frame_has_dtype(DTYPES_FLOAT, out->dtype)) {
    return frame_fail_dtype(frame, "out", out->dtype);
  }
  FRAME_TRY(shaped_keep(&kept, frame, "out", out, in, mask, keepdim));
  FRAME_TRY(frame_check_output(frame, "out", out, &in, 1, false));
  FRAME_CHECK(frame, !(in->numel == 0 && out->numel > 0 && (isinf(p) || p < 0)),
              "'input' has no elements; the norm of order %g needs at least one", p);
  if (in->numel == kept.view.numel && p != 0) {
    p = INFINITY;  // the norm of one number is its magnitude: nothing is rounded
  }
  if (frame_has_dtype(DTYPES_COMPLEX, in->dtype)) {
    return norm_run_complex(frame, &kept.view, in, p, mask);
  }
  return frame_get_code(frame, reduce_launch(frame->stream, norm_get_kind(p), p, &kept.view, in, mask, &err), &err);
}

diopiError_t diopiNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       const diopiScalar_t *p, diopiSize_t dim) {
  struct frame frame;
  struct dit_tensor_view o, x;
  double power;
  uint32_t mask;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TRY(get_power(&frame, "p", p, &power));
  FRAME_TRY(frame_get_mask(&frame, "dim", dim, x.ndim, true, &mask));
  return run_norm(&frame, &o, &x, power, mask, -1);
}

diopiError_t diopiLinalgVecNorm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiScalar_t *ord, diopiSize_t dim, bool keepdim) {
  struct frame frame;
  struct dit_tensor_view o, x;
  double power;
  uint32_t mask;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TRY(get_power(&frame, "ord", ord, &power));
  FRAME_TRY(frame_get_mask(&frame, "dim", dim, x.ndim, true, &mask));
  return run_norm(&frame, &o, &x, power, mask, keepdim);
}

// Gradient of a norm, and normalisation

static diopiError_t launch_rows(struct norm_task *task, const struct dit_tensor_view *out,
                                const struct dit_tensor_view *x, const struct dit_tensor_view *g, uint32_t mask) {
  struct shaped moved_out, moved_x, moved_g;
  shaped_move_last(&moved_out, out, mask);
  shaped_move_last(&moved_x, x, mask);
  task->v_out = &moved_out.view;
  task->v_x = &moved_x.view;
  if (g) {  // as large as x: a gradient of the normalised tensor
    shaped_move_last(&moved_g, g, mask);
    task->v_g = &moved_g.view;
  }
  task->kind = norm_get_kind(task->p);
  task->work = x->dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  task->adds = task->kind != REDUCE_NORM_MAX && task->kind != REDUCE_NORM_MIN;
  task->kept = task->length = 1;
  for (int dim = 0; dim < x->ndim; dim++) {
    *(mask >> dim & 1 ? &task->length : &task->kept) *= x->sizes[dim];
  }
  return x->numel == 0 ? diopiSuccess : norm_run_rows(task);
}

static diopiError_t check_float(struct frame *frame, const char *name, const struct dit_tensor_view *view) {
  return frame_has_dtype(DTYPES_FLOAT, view->dtype) ? diopiSuccess : frame_fail_dtype(frame, name, view->dtype);
}

diopiError_t diopiNormBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                               diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t self,
                               diopiConstTensorHandle_t norm, diopiSize_t dim, const diopiScalar_t *p) {
  struct frame frame;
  struct dit_tensor_view gi, go, x, n;
  struct shaped kept;
  uint32_t mask;
  struct norm_task task = {.frame = &frame};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &gi);
  FRAME_TAKE(&frame, grad_output, &go);
  FRAME_TAKE(&frame, self, &x);
  FRAME_TAKE(&frame, norm, &n);
  FRAME_TRY(get_power(&frame, "p", p, &task.p));
  FRAME_TRY(frame_get_mask(&frame, "dim", dim, x.ndim, true, &mask));
  FRAME_TRY(check_float(&frame, "grad_input", &gi));
  FRAME_TRY(check_float(&frame, "grad_output", &go));
  FRAME_TRY(check_float(&frame, "self", &x));
  FRAME_TRY(check_float(&frame, "norm", &n));
  FRAME_CHECK(&frame, frame_is_same_shape(&gi, &x), "'grad_input' has another shape than 'self'");
  FRAME_TRY(shaped_keep(&kept, &frame, "grad_output", &go, &x, mask, -1));
  FRAME_TRY(shaped_keep(&kept, &frame, "norm", &n, &x, mask, -1));
  const struct dit_tensor_view *inputs[] = {&x, &go, &n};
  FRAME_TRY(frame_check_output(&frame, "grad_input", &gi, inputs, 1, true));
  FRAME_TRY(frame_check_output(&frame, "grad_input", &gi, inputs + 1, 2, false));
  task.v_g = &go;
  task.v_norm = &n;
  return launch_rows(&task, &gi, &x, NULL, mask);
}

static diopiError_t run_normalize(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                  const char *name, diopiConstTensorHandle_t grad_output,
                                  diopiConstTensorHandle_t input, double p, int64_t axis, double eps) {
  struct frame frame;
  struct dit_tensor_view o, g, x;
  int d;
  struct norm_task task = {.frame = &frame, .p = p, .eps = eps};
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, name, out, &o));
  FRAME_TAKE_OPTIONAL(&frame, grad_output, &g);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TRY(check_float(&frame, name, &o));
  FRAME_TRY(check_float(&frame, "input", &x));
  FRAME_CHECK(&frame, !isnan(p), "'p' is NaN; it must be a number or an infinity");
  FRAME_CHECK(&frame, frame_is_same_shape(&o, &x), "'%s' has another shape than 'input'", name);
  if (grad_output) {
    FRAME_TRY(check_float(&frame, "grad_output", &g));
    FRAME_CHECK(&frame, frame_is_same_shape(&g, &x), "'grad_output' has another shape than 'input'");
  }
  FRAME_TRY(frame_wrap_dim(&frame, "axis", axis, x.ndim, &d));
  FRAME_TRY(frame_check_output(&frame, name, &o, (const struct dit_tensor_view *[]){&x, &g}, 2, true));
  return launch_rows(&task, &o, &x, grad_output ? &g : NULL, x.ndim > 0 ? 1u << d : 0);
}

diopiError_t diopiNormalize(diopiContextHandle_t ctx, diopiTensorHandle_t output, diopiConstTensorHandle_t input,
                            const float p, const int64_t axis, const double eps) {
  return run_normalize(__func__, ctx, output, "output", NULL, input, (double)p, axis, eps);
}

diopiError_t diopiNormalizeBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                    diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input, const float p,
                                    const int64_t axis, const double eps) {
  struct frame frame;
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, grad_output, "'grad_output' is NULL; it must be a tensor");
  return run_normalize(__func__, ctx, grad_input, "grad_input", grad_output, input, (double)p, axis, eps);
}
