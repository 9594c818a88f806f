/// Multi-scale deformable attention of mmcv and its gradients.
///
/// value (B, S, heads, D) has the levels' pixels one after another: level l has spatial_shapes[l] = (H, W) pixels from
/// level_start_index[l] on. sampling_loc (B, Q, heads, L, P, 2) is x and y, 0 and 1 the picture's edges; out (B, Q,
/// heads D) is the sum over levels and points of attn_weight times a bilinear sample, zeros around the picture.
/// im2col_step only has to be positive. Floating dtypes, one for all; indices int32 or int64.
#include "call.h"
#include "deform.h"

#define LOOPS "deform_attention_loops.h"
#include "twice.h"

/// Levels lie within the pixels that there are.
static diopiError_t check_levels(struct call *call) {
  const int64_t *shapes = call_data(call, 1), *starts = call_data(call, 2);
  for (int64_t l = 0; l < call_size(call, 'l'); l++) {
    const int64_t high = shapes[2 * l], wide = shapes[2 * l + 1];
    FRAME_CHECK_RANGE(&call->frame,
                      high >= 0 && wide >= 0 && high <= INT32_MAX && wide <= INT32_MAX && starts[l] >= 0 &&
                          starts[l] <= call_size(call, 's') && high * wide <= call_size(call, 's') - starts[l],
                      "level %lld, %lld x %lld from %lld on, is not in 'value' with %lld pixels", (long long)l,
                      (long long)high, (long long)wide, (long long)starts[l], (long long)call_size(call, 's'));
  }
  return diopiSuccess;
}

static diopiError_t run_attention(struct call *call) {
  FRAME_TRY(check_levels(call));
  CALL_LOOP(call, call_size(call, 'b') * call_size(call, 'q') * call_size(call, 'h'),
            8 * call_size(call, 'l') * call_size(call, 'p') * (call_size(call, 'd') + 4), attend);
  return diopiSuccess;
}

static diopiError_t run_attention_backward(struct call *call) {
  FRAME_TRY(check_levels(call));
  call_zero(call, 6);
  CALL_LOOP(call, call_size(call, 'b') * call_size(call, 'h'),
            16 * call_size(call, 'q') * call_size(call, 'l') * call_size(call, 'p') * (call_size(call, 'd') + 4),
            attend_backward);
  return diopiSuccess;
}

static diopiError_t take_inputs(struct call *call, diopiConstTensorHandle_t value,
                                diopiConstTensorHandle_t spatial_shapes, diopiConstTensorHandle_t level_start_index,
                                diopiConstTensorHandle_t sampling_loc, diopiConstTensorHandle_t attn_weight,
                                int64_t im2col_step) {
  CALL_SET_POSITIVE(call, im2col_step, 'i');
  CALL_IN(call, value, "f:bshd");
  CALL_IN(call, spatial_shapes, "i:l2");
  CALL_IN(call, level_start_index, "i:l");
  CALL_IN(call, sampling_loc, "f:bqhlp2");
  CALL_IN(call, attn_weight, "f:bqhlp");
  return diopiSuccess;
}

diopiError_t diopiMsDeformAttnMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t value,
                                   diopiConstTensorHandle_t spatial_shapes, diopiConstTensorHandle_t level_start_index,
                                   diopiConstTensorHandle_t sampling_loc, diopiConstTensorHandle_t attn_weight,
                                   int64_t im2col_step) {
  struct call call;
  diopiTensorHandle_t made = NULL;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, out, "'out' is NULL; it must be a place for the result's handle");
  FRAME_TRY(take_inputs(&call, value, spatial_shapes, level_start_index, sampling_loc, attn_weight, im2col_step));
  const int64_t sizes[3] = {call_size(&call, 'b'), call_size(&call, 'q'),
                            call_size(&call, 'h') * call_size(&call, 'd')};
  FRAME_TRY(call_make(&call, "out", &made, call.dtype, 3, sizes, 'f'));
  FRAME_TRY(call_run(&call, run_attention));
  *out = made;
  return diopiSuccess;
}

diopiError_t diopiMsDeformAttnBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_value,
                                           diopiTensorHandle_t grad_sampling_loc, diopiTensorHandle_t grad_attn_weight,
                                           diopiConstTensorHandle_t value, diopiConstTensorHandle_t spatial_shapes,
                                           diopiConstTensorHandle_t level_start_index,
                                           diopiConstTensorHandle_t sampling_loc, diopiConstTensorHandle_t attn_weight,
                                           diopiConstTensorHandle_t grad_output, int64_t im2col_step) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  FRAME_TRY(take_inputs(&call, value, spatial_shapes, level_start_index, sampling_loc, attn_weight, im2col_step));
  CALL_IN(&call, grad_output, "f:bqe");
  CALL_CHECK(&call, call_size(&call, 'e') == call_size(&call, 'h') * call_size(&call, 'd'),
             "'grad_output' has %lld columns; it must have %lld", (long long)call_size(&call, 'e'),
             (long long)(call_size(&call, 'h') * call_size(&call, 'd')));
  CALL_OUT(&call, grad_value, "f:bshd");
  CALL_OUT(&call, grad_sampling_loc, "f:bqhlp2");
  CALL_OUT(&call, grad_attn_weight, "f:bqhlp");
  return call_run(&call, run_attention_backward);
}
