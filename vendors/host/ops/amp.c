/// The two steps of automatic mixed precision.
///
/// AmpForeachNonFiniteCheckAndUnscaleInp: found_inf = 1 when a gradient holds infinity or NaN; gradients times
/// inv_scale. AmpUpdateScaleInp: the scale shrinks after an overflow and grows after growth_interval good steps.
/// Nothing waits for the device.
#include "amp.h"

/// A tensor of one element of the wanted dtype.
static diopiError_t take_one(struct frame *frame, const char *name, diopiConstTensorHandle_t handle, int dtype,
                             struct dit_tensor_view *view) {
  FRAME_TRY(frame_take(frame, name, handle, view));
  FRAME_CHECK(frame, view->numel == 1, "'%s' has %lld elements; it must have 1", name, (long long)view->numel);
  if (view->dtype != dtype) {
    return frame_fail_dtype(frame, name, view->dtype);
  }
  return diopiSuccess;
}

diopiError_t diopiAmpForeachNonFiniteCheckAndUnscaleInp(diopiContextHandle_t ctx, diopiTensorHandle_t *scaled_grads,
                                                        int64_t num_scaled_grads, diopiTensorHandle_t found_inf,
                                                        diopiConstTensorHandle_t inv_scale) {
  struct frame frame;
  struct dit_tensor_view found, factor;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TRY(take_one(&frame, "found_inf", found_inf, DIT_DTYPE_F32, &found));
  FRAME_TRY(take_one(&frame, "inv_scale", inv_scale, DIT_DTYPE_F32, &factor));
  FRAME_CHECK(&frame, num_scaled_grads >= 0 && (num_scaled_grads == 0 || scaled_grads),
              "'scaled_grads' is NULL or 'num_scaled_grads' (%lld) negative", (long long)num_scaled_grads);
  for (int64_t i = 0; i < num_scaled_grads; i++) {
    struct dit_tensor_view grad;
    FRAME_TRY(frame_take(&frame, "scaled_grads", scaled_grads[i], &grad));
    FRAME_TRY(frame_check_output(&frame, "scaled_grads", &grad, NULL, 0, false));
    if (!frame_has_dtype(DTYPES_FLOAT, grad.dtype)) {
      return frame_fail_dtype(&frame, "scaled_grads", grad.dtype);
    }
  }
  const struct amp_unscale task = {scaled_grads, num_scaled_grads, found.data, factor.data};
  return amp_unscale(&frame, &task);
}

diopiError_t diopiAmpUpdateScaleInp(diopiContextHandle_t ctx, diopiTensorHandle_t current_scale,
                                    diopiTensorHandle_t growth_tracker, diopiConstTensorHandle_t found_inf,
                                    double scale_growth_factor, double scale_backoff_factor, int32_t growth_interval) {
  struct frame frame;
  struct dit_tensor_view scale, tracker, found;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TRY(take_one(&frame, "current_scale", current_scale, DIT_DTYPE_F32, &scale));
  FRAME_TRY(take_one(&frame, "growth_tracker", growth_tracker, DIT_DTYPE_I32, &tracker));
  FRAME_TRY(take_one(&frame, "found_inf", found_inf, DIT_DTYPE_F32, &found));
  const struct amp_update task = {scale.data,          tracker.data,         found.data,
                                  scale_growth_factor, scale_backoff_factor, growth_interval};
  return amp_update(&frame, &task);
}
