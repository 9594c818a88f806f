/// Elements that move in mmcv: point-wise attention masks, temporal shifts, rotated filters, columns at places; and the
/// resampling filter and the leaky activation of StyleGAN.
///
/// psamask: psa_type 0 (collect) puts mask position (i, j) of place (y, x) at plane[(y + i - half, x + j - half), (y,
/// x)], 1 (distribute) at plane[(y, x), (...)]; zeros elsewhere. tin_shift: output[n, t] = input[n, t - shift], zeros
/// where there is none. active_rotated_filter: weight `entry` goes to position indices[entry, k] - 1 of rotation k.
/// masked im2col takes windows at places, col2im puts elements there. upfirdn2d: input (major, H, W, minor) with up - 1
/// zeros after each element, padded (negative: cut), convolved with the turned kernel, every down-th kept. fused bias
/// leaky relu: act 3 (leaky, slope alpha) or 1 (linear), grad 0 itself, 1 its derivative at `refer` times the input, 2
/// zero; all times scale. Floating dtypes, one for all; indices int32 or int64.
#include "call.h"

struct psa_task {
  int64_t mask_h, mask_w, half_h, half_w;
  bool distributes, backward;
};
struct filter_task {
  int64_t entries, rotations;
  bool backward;
};
struct window_task {
  int64_t kernel_h, kernel_w, pad_h, pad_w;
};
struct resample_task {
  int64_t up_x, up_y, down_x, down_y, pad_x, pad_y, out_h, out_w;
};
struct leaky_task {
  int64_t act, grad, step, channels;
  double alpha, scale;
};

#define LOOPS "move_loops.h"
#include "twice.h"

// psamask

static diopiError_t run_psa(struct call *call) {
  const struct psa_task *task = call->task;
  call_zero(call, task->backward ? 0 : 1);
  CALL_LOOP(call, call_size(call, 'n'), call_numel(call, 0) / (call_size(call, 'n') + 1), psa_images);
  return diopiSuccess;
}

/// Sizes of the numbers: masks are (num, mask_h mask_w, h, w), planes (num, h w, h, w).
static diopiError_t set_psa(struct call *call, const struct psa_task *task, int64_t psa_type, int64_t num_,
                            int64_t h_feature, int64_t w_feature) {
  CALL_CHECK(call, psa_type == 0 || psa_type == 1, "'psa_type' is %lld; valid: 0 and 1", (long long)psa_type);
  CALL_SET(call, num_, 'n');
  CALL_SET(call, h_feature, 'h');
  CALL_SET(call, w_feature, 'w');
  CALL_CHECK(call, task->mask_h > 0 && task->mask_w > 0, "the mask is %lld x %lld; valid: from 1",
             (long long)task->mask_h, (long long)task->mask_w);
  call->sizes['m'] = task->mask_h * task->mask_w;
  call->sizes['p'] = h_feature * w_feature;
  call->task = task;
  return diopiSuccess;
}

diopiError_t diopiPsamaskMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output, diopiConstTensorHandle_t input,
                              int64_t psa_type, int64_t num_, int64_t h_feature, int64_t w_feature, int64_t h_mask,
                              int64_t w_mask, int64_t half_h_mask, int64_t half_w_mask) {
  struct call call;
  const struct psa_task task = {h_mask, w_mask, half_h_mask, half_w_mask, psa_type == 1, false};
  CALL_BEGIN(&call, ctx);
  FRAME_TRY(set_psa(&call, &task, psa_type, num_, h_feature, w_feature));
  CALL_IN(&call, input, "f:nmhw");
  CALL_OUT(&call, output, "f:nphw");
  return call_run(&call, run_psa);
}

diopiError_t diopiPsamaskBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                      diopiConstTensorHandle_t grad_output, int64_t psa_type, int64_t num_,
                                      int64_t h_feature, int64_t w_feature, int64_t h_mask, int64_t w_mask,
                                      int64_t half_h_mask, int64_t half_w_mask) {
  struct call call;
  const struct psa_task task = {h_mask, w_mask, half_h_mask, half_w_mask, psa_type == 1, true};
  CALL_BEGIN(&call, ctx);
  FRAME_TRY(set_psa(&call, &task, psa_type, num_, h_feature, w_feature));
  CALL_OUT(&call, grad_input, "f:nmhw");
  CALL_IN(&call, grad_output, "f:nphw");
  return call_run(&call, run_psa);
}

// tin_shift

static diopiError_t run_shift(struct call *call) {
  CALL_LOOP(call, call_size(call, 'n') * call_size(call, 'c'), call_size(call, 't') * call_size(call, 'l'),
            shift_channels);
  return diopiSuccess;
}

static diopiError_t start_shift(struct call *call) {
  CALL_CHECK(call, call_size(call, 'g') > 0 && call_size(call, 'c') % call_size(call, 'g') == 0,
             "%lld groups of shifts do not divide %lld channels", (long long)call_size(call, 'g'),
             (long long)call_size(call, 'c'));
  call_limit(call, 2, INT32_MIN, INT32_MAX);
  return call_run(call, run_shift);
}

diopiError_t diopiTinShiftMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t shift) {
  static const int64_t sign = 1;
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, input, "f:ntcl");
  CALL_OUT(&call, output, "f:ntcl");
  CALL_IN(&call, shift, "i:ng");
  call.task = &sign;
  return start_shift(&call);
}

diopiError_t diopiTinShiftBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                       diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t shift) {
  static const int64_t sign = -1;
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, grad_output, "f:ntcl");
  CALL_OUT(&call, grad_input, "f:ntcl");
  CALL_IN(&call, shift, "i:ng");
  call.task = &sign;
  return start_shift(&call);
}

// active_rotated_filter

static diopiError_t run_rotate(struct call *call) {
  const struct filter_task *task = call->task;
  call_zero(call, task->backward ? 0 : 1);
  CALL_LOOP(call, call_size(call, 'o') * call_size(call, 'i'), 2 * task->entries * task->rotations, rotate_filters);
  return diopiSuccess;
}

static diopiError_t start_rotate(struct call *call, struct filter_task *task) {
  task->entries = call_size(call, 't') * call_size(call, 'h') * call_size(call, 'w');
  task->rotations = call_size(call, 'r');
  CALL_CHECK(call,
             call_size(call, 'p') == call_size(call, 'o') * task->rotations &&
                 call_size(call, 'q') == call_size(call, 'i') * call_size(call, 't'),
             "the rotated filters are %lld x %lld; they must be %lld x %lld", (long long)call_size(call, 'p'),
             (long long)call_size(call, 'q'), (long long)(call_size(call, 'o') * task->rotations),
             (long long)(call_size(call, 'i') * call_size(call, 't')));
  call_limit(call, 2, 1, task->entries);
  call->task = task;
  return call_run(call, run_rotate);
}

diopiError_t diopiActiveRotatedFilterMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                          diopiConstTensorHandle_t input, diopiConstTensorHandle_t indices) {
  struct call call;
  struct filter_task task = {.backward = false};
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, input, "f:oithw");
  CALL_OUT(&call, output, "f:pqhw");
  CALL_IN(&call, indices, "i:thwr");
  return start_rotate(&call, &task);
}

diopiError_t diopiActiveRotatedFilterBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_in,
                                                  diopiConstTensorHandle_t grad_out, diopiConstTensorHandle_t indices) {
  struct call call;
  struct filter_task task = {.backward = true};
  CALL_BEGIN(&call, ctx);
  CALL_OUT(&call, grad_in, "f:oithw");
  CALL_IN(&call, grad_out, "f:pqhw");
  CALL_IN(&call, indices, "i:thwr");
  return start_rotate(&call, &task);
}

// Columns at places

static diopiError_t run_windows(struct call *call) {
  const struct window_task *task = call->task;
  if (task) {
    CALL_LOOP(call, call_size(call, 'c'), 2 * task->kernel_h * task->kernel_w * call_size(call, 'm'), take_windows);
  } else {
    call_zero(call, 0);
    CALL_LOOP(call, call_size(call, 'c'), 2 * call_size(call, 'm'), put_places);
  }
  return diopiSuccess;
}

diopiError_t diopiMaskedIm2colMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t col, diopiConstTensorHandle_t im,
                                   diopiConstTensorHandle_t mask_h_idx, diopiConstTensorHandle_t mask_w_idx,
                                   int64_t kernel_h, int64_t kernel_w, int64_t pad_h, int64_t pad_w) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET_POSITIVE(&call, kernel_h, 'i');
  CALL_SET_POSITIVE(&call, kernel_w, 'j');
  CALL_IN(&call, im, "f:1chw");
  CALL_OUT(&call, col, "f:qm");
  CALL_IN(&call, mask_h_idx, "i:m");
  CALL_IN(&call, mask_w_idx, "i:m");
  CALL_CHECK(&call, call_size(&call, 'q') == call_size(&call, 'c') * kernel_h * kernel_w,
             "'col' has %lld rows; it must have %lld", (long long)call_size(&call, 'q'),
             (long long)(call_size(&call, 'c') * kernel_h * kernel_w));
  call_limit(&call, 2, INT32_MIN, INT32_MAX);
  call_limit(&call, 3, INT32_MIN, INT32_MAX);
  call.task = &(struct window_task){kernel_h, kernel_w, pad_h, pad_w};
  return call_run(&call, run_windows);
}

diopiError_t diopiMaskedCol2imMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t im, diopiConstTensorHandle_t col,
                                   diopiConstTensorHandle_t mask_h_idx, diopiConstTensorHandle_t mask_w_idx,
                                   int64_t height, int64_t width, int64_t channels) {
  struct call call;
  CALL_BEGIN(&call, ctx);
  CALL_SET(&call, height, 'h');
  CALL_SET(&call, width, 'w');
  CALL_SET(&call, channels, 'c');
  CALL_OUT(&call, im, "f:1chw");
  CALL_IN(&call, col, "f:cm");
  CALL_IN(&call, mask_h_idx, "i:m");
  CALL_IN(&call, mask_w_idx, "i:m");
  call_limit(&call, 2, 0, height - 1);
  call_limit(&call, 3, 0, width - 1);
  return call_run(&call, run_windows);
}

// Filters of StyleGAN

static diopiError_t run_resample(struct call *call) {
  const struct resample_task *task = call->task;
  CALL_LOOP(call, call_size(call, 'a') * task->out_h, 4 * call_numel(call, 1) * task->out_w * call_size(call, 'b'),
            filter_rows);
  return diopiSuccess;
}

diopiError_t diopiUpfirdn2dOpMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t kernel, int64_t up_x, int64_t up_y, int64_t down_x,
                                  int64_t down_y, int64_t pad_x0, int64_t pad_x1, int64_t pad_y0, int64_t pad_y1) {
  struct call call;
  struct resample_task task = {up_x, up_y, down_x, down_y, pad_x0, pad_y0, 0, 0};
  diopiTensorHandle_t made = NULL;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, out, "'out' is NULL; it must be a place for the result's handle");
  CALL_CHECK(&call, up_x > 0 && up_y > 0 && down_x > 0 && down_y > 0,
             "'up' is %lld, %lld, 'down' %lld, %lld; valid: from 1", (long long)up_x, (long long)up_y,
             (long long)down_x, (long long)down_y);
  CALL_IN(&call, input, "f:ahwb");
  CALL_IN(&call, kernel, "f:ij");
  const int64_t high = call_size(&call, 'h') * up_y + pad_y0 + pad_y1 - call_size(&call, 'i');
  const int64_t wide = call_size(&call, 'w') * up_x + pad_x0 + pad_x1 - call_size(&call, 'j');
  CALL_CHECK(&call, high >= 0 && wide >= 0 && call_numel(&call, 1) > 0,
             "'kernel' does not fit into the padded picture");
  task.out_h = high / down_y + 1;
  task.out_w = wide / down_x + 1;
  call.task = &task;
  const int64_t sizes[4] = {call_size(&call, 'a'), task.out_h, task.out_w, call_size(&call, 'b')};
  FRAME_TRY(call_make(&call, "out", &made, call.dtype, 4, sizes, 'f'));
  FRAME_TRY(call_run(&call, run_resample));
  *out = made;
  return diopiSuccess;
}

static diopiError_t run_leaky(struct call *call) {
  CALL_LOOP(call, call_numel(call, 0), 8, activate);
  return diopiSuccess;
}

diopiError_t diopiFusedBiasLeakyreluMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t *out,
                                         diopiConstTensorHandle_t input, diopiConstTensorHandle_t bias,
                                         diopiConstTensorHandle_t refer, int64_t act, int64_t grad, float alpha,
                                         float scale) {
  struct call call;
  struct leaky_task task = {act, grad, 1, 1, alpha, scale};
  diopiTensorHandle_t made = NULL;
  CALL_BEGIN(&call, ctx);
  CALL_CHECK(&call, out, "'out' is NULL; it must be a place for the result's handle");
  CALL_CHECK(&call, (act == 1 || act == 3) && grad >= 0 && grad <= 2,
             "'act' is %lld, 'grad' %lld; valid: 1 and 3, and 0 to 2", (long long)act, (long long)grad);
  CALL_IN(&call, input, "f:*");
  CALL_OPTIONAL(&call, bias, "f:k");
  CALL_OPTIONAL(&call, refer, "f:*");
  const struct dit_tensor_view *x = &call.tensors[0].view;
  for (int i = 2; i < x->ndim; i++) {
    task.step *= x->sizes[i];
  }
  task.channels = call_numel(&call, 1) > 0 ? call_numel(&call, 1) : 1;
  task.step = task.step > 0 ? task.step : 1;
  CALL_CHECK(&call, !call.tensors[1].view.handle || (x->ndim >= 2 && x->sizes[1] == task.channels),
             "'bias' has %lld elements, which are not the channels of 'input'", (long long)task.channels);
  CALL_CHECK(&call, !call.tensors[2].view.handle || frame_is_same_shape(&call.tensors[2].view, x),
             "'refer' has another shape than 'input'");
  call.task = &task;
  FRAME_TRY(call_make(&call, "out", &made, call.dtype, x->ndim, x->sizes, 'f'));
  FRAME_TRY(call_run(&call, run_leaky));
  *out = made;
  return diopiSuccess;
}
