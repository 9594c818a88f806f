/// Complex numbers: put together, taken apart, conjugated.
///
///   complex  real + i imag          polar  abs * (cos(angle) + i sin(angle))
///   conj, real, imag of complex64 and complex128; conj and real of real numbers are a copy
#include <math.h>

#include "dit/promotion.h"
#include "elementwise.h"
#include "engine/kernels.h"

#define DEFINE_LOOPS(tag, type, sin_, cos_)                         \
  static void complex_##tag LOOP_PARAMS {                           \
    type *o = out[0];                                               \
    const type *p = in[0], *q = in[1];                              \
    (void)parameters;                                               \
    for (int64_t i = 0; i < count; i++) {                           \
      o[2 * i] = p[i];                                              \
      o[2 * i + 1] = q[i];                                          \
    }                                                               \
  }                                                                 \
  static void polar_##tag LOOP_PARAMS {                             \
    type *o = out[0];                                               \
    const type *p = in[0], *q = in[1];                              \
    (void)parameters;                                               \
    for (int64_t i = 0; i < count; i++) {                           \
      o[2 * i] = p[i] * cos_(q[i]);                                 \
      o[2 * i + 1] = p[i] * sin_(q[i]);                             \
    }                                                               \
  }                                                                 \
  static void conj_##tag LOOP_PARAMS {                              \
    type *o = out[0];                                               \
    const type *p = in[0];                                          \
    (void)parameters;                                               \
    for (int64_t i = 0; i < count; i++) {                           \
      o[2 * i] = p[2 * i];                                          \
      o[2 * i + 1] = -p[2 * i + 1];                                 \
    }                                                               \
  }                                                                 \
  static void part_##tag LOOP_PARAMS {                              \
    type *o = out[0];                                               \
    const type *p = (const type *)in[0] + *(const int *)parameters; \
    for (int64_t i = 0; i < count; i++) {                           \
      o[i] = p[2 * i];                                              \
    }                                                               \
  }
DEFINE_LOOPS(f32, float, sinf, cosf)
DEFINE_LOOPS(f64, double, sin, cos)

static diopiError_t run_make(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                             const char *const *names, const diopiConstTensorHandle_t *inputs, pointwise_loop *single,
                             pointwise_loop *precise) {
  struct elementwise e;
  FRAME_TRY(elementwise_begin(&e, function, ctx));
  FRAME_TRY(elementwise_add_output(&e, "out", out));
  FRAME_TRY(elementwise_add_input(&e, names[0], inputs[0]));
  FRAME_TRY(elementwise_add_input(&e, names[1], inputs[1]));
  FRAME_TRY(elementwise_check(&e));
  const int dtype = e.views[1].dtype, made = dit_dtype_get_complex(dtype);
  if (dtype != DIT_DTYPE_F32 && dtype != DIT_DTYPE_F64) {
    return frame_fail_dtype(&e.frame, names[0], dtype);
  }
  if (e.views[2].dtype != dtype) {
    return frame_fail_dtype(&e.frame, names[1], e.views[2].dtype);
  }
  if (e.views[0].dtype != made) {
    return frame_fail_dtype(&e.frame, "out", e.views[0].dtype);
  }
  e.run.work[0] = made;
  e.run.work[1] = e.run.work[2] = dtype;
  e.run.loop = dtype == DIT_DTYPE_F32 ? single : precise;
  return elementwise_launch(&e);
}

diopiError_t diopiComplex(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t real,
                          diopiConstTensorHandle_t imag) {
  static const char *const names[] = {"real", "imag"};
  return run_make(__func__, ctx, out, names, (const diopiConstTensorHandle_t[]){real, imag}, complex_f32, complex_f64);
}
diopiError_t diopiPolar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t abs,
                        diopiConstTensorHandle_t angle) {
  static const char *const names[] = {"abs", "angle"};
  return run_make(__func__, ctx, out, names, (const diopiConstTensorHandle_t[]){abs, angle}, polar_f32, polar_f64);
}

/// `result` of a complex input: its own dtype or the real one. `part`: 0 real, 1 imaginary.
static diopiError_t run_take(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                             diopiConstTensorHandle_t input, bool is_conj, int part) {
  struct elementwise e;
  struct dit_error err;
  err.message[0] = 0;
  FRAME_TRY(elementwise_unary(&e, function, ctx, out, input));
  const int dtype = e.views[1].dtype;
  const bool is_complex = dtype == DIT_DTYPE_C64 || dtype == DIT_DTYPE_C128;
  if (!is_complex && (part == 1 || dtype == DIT_DTYPE_C32)) {
    return frame_fail_dtype(&e.frame, "input", dtype);
  }
  const int result = is_complex && !is_conj ? dit_dtype_get_real(dtype) : dtype;
  if (e.views[0].dtype != result) {
    return frame_fail_dtype(&e.frame, "out", e.views[0].dtype);
  }
  if (!is_complex) {
    return frame_get_code(&e.frame, kernel_copy(e.frame.stream, &e.views[0], &e.views[1], &err), &err);
  }
  e.run.work[0] = result;
  e.run.work[1] = dtype;
  *(int *)e.run.parameters = part;
  if (is_conj) {
    e.run.loop = dtype == DIT_DTYPE_C64 ? conj_f32 : conj_f64;
  } else {
    e.run.loop = dtype == DIT_DTYPE_C64 ? part_f32 : part_f64;
  }
  return elementwise_launch(&e);
}

diopiError_t diopiConj(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  return run_take(__func__, ctx, out, input, true, 0);
}
diopiError_t diopiReal(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  return run_take(__func__, ctx, out, input, false, 0);
}
diopiError_t diopiImag(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  return run_take(__func__, ctx, out, input, false, 1);
}
