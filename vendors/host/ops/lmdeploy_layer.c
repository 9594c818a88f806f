/// Layers of language models in place (lmdeploy): norm by the root of the mean square, with and without a residual, and
/// the gated feed-forward layer.
///
/// RootMeanSquareNormInp: x = x / sqrt(mean(x^2) + eps) * scale over the last dimension. FusedAdd...: residual += x +
/// bias (or NULL), x = the norm of residual. FusedSiluFfnInp: x (T, H) = (silu(x @ weight1) * (x @ weight3)) @ weight2
/// with weight1 and weight3 (H, I), weight2 (I, H). Floating dtypes, one for all; half types are computed in float.
#include <math.h>
#include <string.h>

#include "dense.h"
#include "dit/parallel.h"
#include "engine/gemm.h"
#include "engine/rows.h"
#include "engine/scratch.h"
#include "workspace.h"

// Norms

struct rms_call {
  struct frame *frame;
  struct dit_tensor_view x, residual, bias, scale;
  double eps;
  // set by the work
  void *to, *sum;
  const void *add, *weight;
};

#define DEFINE_RMS(REAL, suffix)                                                   \
  static void rms_##suffix(void *context, int64_t begin, int64_t end) {            \
    const struct rms_call *call = context;                                         \
    const int64_t width = call->x.sizes[call->x.ndim - 1];                         \
    const REAL *bias = call->add, *weight = call->weight;                          \
    for (int64_t row = begin; row < end; row++) {                                  \
      REAL *x = (REAL *)call->to + row * width;                                    \
      REAL *sum = call->sum ? (REAL *)call->sum + row * width : x;                 \
      for (int64_t i = 0; call->sum && i < width; i++) {                           \
        sum[i] += bias ? x[i] + bias[i] : x[i];                                    \
      }                                                                            \
      const double mean = row_sum_squares_##suffix(sum, width, 0) / (double)width; \
      const REAL factor = (REAL)(1 / sqrt(mean + call->eps));                      \
      for (int64_t i = 0; i < width; i++) {                                        \
        x[i] = sum[i] * factor * weight[i];                                        \
      }                                                                            \
    }                                                                              \
  }
DEFINE_RMS(float, f32)
DEFINE_RMS(double, f64)

static diopiError_t work_rms(void *context) {
  struct rms_call *call = context;
  const int type = dense_get_work(call->x.dtype);
  const int64_t width = call->x.sizes[call->x.ndim - 1];
  struct dense x = {0}, residual = {0}, bias = {0}, scale = {0};
  const bool done = dense_read(&x, &call->x, type) && dense_read(&residual, &call->residual, type) &&
                    dense_read(&bias, &call->bias, type) && dense_read(&scale, &call->scale, type);
  if (done) {
    call->to = x.data;
    call->sum = residual.data;
    call->add = bias.data;
    call->weight = scale.data;
    dit_parallel_for(0, call->x.numel / width, 1 + 8192 / width, type == DIT_DTYPE_F64 ? rms_f64 : rms_f32, call);
    dense_store(&x);
    dense_store(&residual);
  }
  dense_close(&x);
  dense_close(&residual);
  dense_close(&bias);
  dense_close(&scale);
  return done ? diopiSuccess : dense_fail(call->frame);
}

static diopiError_t check_row(struct rms_call *call, const char *name, const struct dit_tensor_view *view) {
  const int64_t width = call->x.sizes[call->x.ndim - 1];
  FRAME_CHECK(call->frame, view->ndim == 1 && view->sizes[0] == width && view->dtype == call->x.dtype,
              "'%s' must have one dimension of size %lld and the dtype of 'inoutput'", name, (long long)width);
  return diopiSuccess;
}

static diopiError_t start_rms(struct rms_call *call) {
  struct frame *frame = call->frame;
  FRAME_CHECK(frame, call->x.ndim >= 1, "'inoutput' has no dimensions; valid: at least 1");
  if (!frame_has_dtype(DTYPES_FLOAT, call->x.dtype)) {
    return frame_fail_dtype(frame, "inoutput", call->x.dtype);
  }
  FRAME_TRY(check_row(call, "scale", &call->scale));
  if (call->bias.handle) {
    FRAME_TRY(check_row(call, "bias", &call->bias));
  }
  const struct dit_tensor_view *inputs[] = {&call->scale, &call->bias, &call->residual};
  FRAME_TRY(frame_check_output(frame, "inoutput", &call->x, inputs, 3, false));
  if (call->residual.handle) {
    FRAME_CHECK(frame, frame_is_same_shape(&call->residual, &call->x) && call->residual.dtype == call->x.dtype,
                "'residual' has another shape or dtype than 'inoutput'");
    FRAME_TRY(frame_check_output(frame, "residual", &call->residual, inputs, 2, false));
  }
  return call->x.numel == 0
             ? diopiSuccess
             : FRAME_QUEUE(frame, work_rms, call, &call->frame, &call->x, &call->residual, &call->bias, &call->scale);
}

diopiError_t diopiRootMeanSquareNormInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput,
                                        diopiConstTensorHandle_t scale, float eps) {
  struct frame frame;
  struct rms_call call = {.frame = &frame, .eps = (double)eps};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, inoutput, &call.x);
  FRAME_TAKE(&frame, scale, &call.scale);
  return start_rms(&call);
}

diopiError_t diopiFusedAddRootMeanSquareNormInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput,
                                                diopiTensorHandle_t residual, diopiConstTensorHandle_t bias,
                                                diopiConstTensorHandle_t scale, float eps) {
  struct frame frame;
  struct rms_call call = {.frame = &frame, .eps = (double)eps};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, inoutput, &call.x);
  FRAME_TAKE(&frame, residual, &call.residual);
  FRAME_TAKE_OPTIONAL(&frame, bias, &call.bias);
  FRAME_TAKE(&frame, scale, &call.scale);
  return start_rms(&call);
}

// The feed-forward layer

struct ffn_call {
  struct frame *frame;
  struct dit_tensor_view x, first, second, third;
};

struct gate {
  void *a;
  const void *b;
  bool wide;
};

static void run_gate(void *context, int64_t begin, int64_t end) {
  const struct gate *gate = context;
  for (int64_t i = begin; i < end; i++) {
    if (gate->wide) {
      double *a = (double *)gate->a + i;
      *a = *a / (1 + exp(-*a)) * ((const double *)gate->b)[i];
    } else {
      float *a = (float *)gate->a + i;
      *a = *a / (1 + expf(-*a)) * ((const float *)gate->b)[i];
    }
  }
}

static void multiply(bool wide, int64_t m, int64_t n, int64_t k, const void *a, const void *b, void *c) {
  struct gemm_problem problem = {.m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a,
                                 .b = b,
                                 .c = c,
                                 .a_strides = {k, 1},
                                 .b_strides = {n, 1},
                                 .c_strides = {n, 1},
                                 .alpha = 1,
                                 .wide = wide};
  gemm_multiply(&problem);
}

static diopiError_t work_ffn(void *context) {
  struct ffn_call *call = context;
  const int type = dense_get_work(call->x.dtype);
  const bool wide = type == DIT_DTYPE_F64;
  const int64_t tokens = call->x.sizes[0], hidden = call->x.sizes[1], inner = call->first.sizes[1];
  const size_t bytes = (size_t)(tokens * inner) * dit_dtype_get_size(type);
  struct dense x = {0}, first = {0}, second = {0}, third = {0};
  char *room = scratch_take(2 * bytes + 1);
  const bool done = room && dense_read(&x, &call->x, type) && dense_read(&first, &call->first, type) &&
                    dense_read(&second, &call->second, type) && dense_read(&third, &call->third, type);
  if (done && inner == 0) {
    memset(x.data, 0, (size_t)call->x.numel * dit_dtype_get_size(type));
  } else if (done) {
    struct gate gate = {room, room + bytes, wide};
    multiply(wide, tokens, inner, hidden, x.data, first.data, room);
    multiply(wide, tokens, inner, hidden, x.data, third.data, room + bytes);
    dit_parallel_for(0, tokens * inner, 4096, run_gate, &gate);
    multiply(wide, tokens, hidden, inner, room, second.data, x.data);
  }
  if (done) {
    dense_store(&x);
  }
  dense_close(&x);
  dense_close(&first);
  dense_close(&second);
  dense_close(&third);
  scratch_give(room);
  return done ? diopiSuccess : dense_fail(call->frame);
}

diopiError_t diopiFusedSiluFfnInp(diopiContextHandle_t ctx, diopiTensorHandle_t inoutput,
                                  diopiConstTensorHandle_t weight1, diopiConstTensorHandle_t weight2,
                                  diopiConstTensorHandle_t weight3, diopiTensorHandle_t workspace,
                                  int64_t *workspace_size, int64_t fusion_level) {
  struct frame frame;
  struct ffn_call call = {.frame = &frame};
  (void)workspace;
  (void)fusion_level;
  FRAME_BEGIN(&frame, ctx);
  if (workspace_is_question(workspace_size)) {
    return diopiSuccess;
  }
  FRAME_TAKE(&frame, inoutput, &call.x);
  FRAME_TAKE(&frame, weight1, &call.first);
  FRAME_TAKE(&frame, weight2, &call.second);
  FRAME_TAKE(&frame, weight3, &call.third);
  const struct dit_tensor_view *x = &call.x, *a = &call.first, *b = &call.second;
  FRAME_CHECK(&frame, x->ndim == 2 && a->ndim == 2 && a->sizes[0] == x->sizes[1],
              "'inoutput' and 'weight1' must have 2 dimensions, and 'weight1' as many rows as the other columns");
  FRAME_CHECK(&frame, frame_is_same_shape(a, &call.third), "'weight3' has another shape than 'weight1'");
  FRAME_CHECK(&frame, b->ndim == 2 && b->sizes[0] == a->sizes[1] && b->sizes[1] == a->sizes[0],
              "'weight2' must be %lld x %lld", (long long)a->sizes[1], (long long)a->sizes[0]);
  FRAME_CHECK(&frame, x->dtype == a->dtype && x->dtype == b->dtype && x->dtype == call.third.dtype,
              "'inoutput' and the weights must have one dtype");
  if (!frame_has_dtype(DTYPES_FLOAT, x->dtype)) {
    return frame_fail_dtype(&frame, "inoutput", x->dtype);
  }
  const struct dit_tensor_view *inputs[] = {a, b, &call.third};
  FRAME_TRY(frame_check_output(&frame, "inoutput", x, inputs, 3, false));
  return x->numel == 0
             ? diopiSuccess
             : FRAME_QUEUE(&frame, work_ffn, &call, &call.frame, &call.x, &call.first, &call.second, &call.third);
}
