/// Content-aware upsampling (CARAFE) and correlation of mmcv, with gradients.
///
/// carafe: output[n, c, y, x] = sum over the kernel_size^2 pixels around (y / scale, x / scale) of the features times
/// masks[n, (group of c) kernel_size^2 + position, y, x]; channels are shared by group_size groups. rfeatures, routput
/// and rmasks are the features, the output and the masks with channels last (N, H, W, C), row by row, whatever shape of
/// that many elements they have; the gradient reads rfeatures; its other r tensors are not used.
/// correlation: output[n, i, j, y, x] = sum over channels and a kH by kW window of input1 at the window and input2 at
/// the window moved by ((i - (patchH - 1) / 2) dilation_patchH, ...); zeros outside. Floating dtypes, one for all.
#include "call.h"

struct carafe_task {
  int64_t kernel, groups, scale, share;
  bool last;
};

struct correlation_task {
  int64_t kernel[2], patch[2], pad[2], dilation[2], patch_dilation[2], stride[2];
};

static int64_t count_window(const struct call *call) {
  const struct correlation_task *task = call->task;
  return task->kernel[0] * task->kernel[1];
}

/// Elements of both planes that meet for a shift, a place and a position of the window; false when one is outside.
static bool find_pair(const struct call *call, int64_t shift, int64_t place, int64_t window, int64_t *first,
                      int64_t *second) {
  const struct correlation_task *task = call->task;
  const int64_t sizes[2] = {call_size(call, 'h'), call_size(call, 'w')}, wide = call_size(call, 'x');
  const int64_t shifts[2] = {shift / task->patch[1], shift % task->patch[1]}, places[2] = {place / wide, place % wide};
  const int64_t windows[2] = {window / task->kernel[1], window % task->kernel[1]};
  int64_t at[2] = {0, 0};
  for (int i = 0; i < 2; i++) {
    const int64_t a = places[i] * task->stride[i] - task->pad[i] + windows[i] * task->dilation[i];
    const int64_t b = a + (shifts[i] - (task->patch[i] - 1) / 2) * task->patch_dilation[i];
    if (a < 0 || a >= sizes[i] || b < 0 || b >= sizes[i]) {
      return false;
    }
    at[0] = at[0] * sizes[i] + a;
    at[1] = at[1] * sizes[i] + b;
  }
  *first = at[0];
  *second = at[1];
  return true;
}

#define LOOPS "carafe_loops.h"
#include "twice.h"

static int64_t get_cost(const struct call *call) {
  const struct carafe_task *task = call->task;
  return 8 * task->kernel * task->kernel * call_size(call, 'y') * call_size(call, 'x');
}

static void turn(const struct call *call, int from, int to, int64_t channels, int64_t places) {
  if (call->work == DIT_DTYPE_F64) {
    turn_f64(call_data(call, from), call_data(call, to), call_size(call, 'n'), channels, places);
  } else {
    turn_f32(call_data(call, from), call_data(call, to), call_size(call, 'n'), channels, places);
  }
}

static diopiError_t run_carafe(struct call *call) {
  const int64_t small = call_size(call, 'h') * call_size(call, 'w'),
                large = call_size(call, 'y') * call_size(call, 'x');
  CALL_LOOP(call, call_size(call, 'n') * call_size(call, 'c'), get_cost(call), carafe_planes);
  if (call->count > 3) {
    turn(call, 0, 3, call_size(call, 'c'), small);
    turn(call, 2, 4, call_size(call, 'c'), large);
    turn(call, 1, 5, call_size(call, 'm'), large);
  }
  return diopiSuccess;
}

static diopiError_t run_carafe_backward(struct call *call) {
  call_zero(call, 3);
  CALL_LOOP(call, call_size(call, 'n') * call_size(call, 'c'), get_cost(call), carafe_feature_planes);
  CALL_LOOP(call, call_size(call, 'n') * call_size(call, 'm'),
            2 * call_size(call, 'c') * call_size(call, 'y') * call_size(call, 'x'), carafe_mask_planes);
  return diopiSuccess;
}

static diopiError_t check_carafe(struct call *call, struct carafe_task *task) {
  const int64_t wanted = task->kernel * task->kernel * task->groups;
  CALL_CHECK(call, task->kernel > 0 && task->kernel % 2 == 1, "'kernel_size' is %lld; valid: odd numbers from 1",
             (long long)task->kernel);
  CALL_CHECK(call, task->groups > 0 && task->scale > 0, "'group_size' is %lld, 'scale_factor' %lld; valid: from 1",
             (long long)task->groups, (long long)task->scale);
  CALL_CHECK(call, call_size(call, 'm') == wanted, "'masks' has %lld channels; it must have %lld",
             (long long)call_size(call, 'm'), (long long)wanted);
  CALL_CHECK(call,
             call_size(call, 'y') == call_size(call, 'h') * task->scale &&
                 call_size(call, 'x') == call_size(call, 'w') * task->scale,
             "the large picture has %lld x %lld places; it must have %lld x %lld", (long long)call_size(call, 'y'),
             (long long)call_size(call, 'x'), (long long)(call_size(call, 'h') * task->scale),
             (long long)(call_size(call, 'w') * task->scale));
  task->share = (call_size(call, 'c') + task->groups - 1) / task->groups;
  task->share += task->share == 0;
  call->task = task;
  return diopiSuccess;
}

/// Tensor `number` has as many elements as (n, channels, places).
static diopiError_t check_turned(struct call *call, int number, int like) {
  CALL_CHECK(call, call_numel(call, number) == call_numel(call, like), "'%s' has %lld elements; it must have %lld",
             call->tensors[number].name, (long long)call_numel(call, number), (long long)call_numel(call, like));
  return diopiSuccess;
}

diopiError_t diopiCarafeMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t rfeatures, diopiTensorHandle_t routput,
                             diopiTensorHandle_t rmasks, diopiTensorHandle_t output, diopiConstTensorHandle_t features,
                             diopiConstTensorHandle_t masks, int64_t kernel_size, int64_t group_size,
                             int64_t scale_factor) {
  struct call call;
  struct carafe_task task = {kernel_size, group_size, scale_factor, 0, false};
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, features, "f:nchw");
  CALL_IN(&call, masks, "f:nmyx");
  CALL_OUT(&call, output, "f:ncyx");
  CALL_OUT(&call, rfeatures, "f:*");
  CALL_OUT(&call, routput, "f:*");
  CALL_OUT(&call, rmasks, "f:*");
  FRAME_TRY(check_carafe(&call, &task));
  FRAME_TRY(check_turned(&call, 3, 0));
  FRAME_TRY(check_turned(&call, 4, 2));
  FRAME_TRY(check_turned(&call, 5, 1));
  return call_run(&call, run_carafe);
}

diopiError_t diopiCarafeNaiveMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                  diopiConstTensorHandle_t features, diopiConstTensorHandle_t masks,
                                  int64_t kernel_size, int64_t group_size, int64_t scale_factor) {
  struct call call;
  struct carafe_task task = {kernel_size, group_size, scale_factor, 0, false};
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, features, "f:nchw");
  CALL_IN(&call, masks, "f:nmyx");
  CALL_OUT(&call, output, "f:ncyx");
  FRAME_TRY(check_carafe(&call, &task));
  return call_run(&call, run_carafe);
}

diopiError_t diopiCarafeBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t rtop_grad,
                                     diopiTensorHandle_t rbottom_grad_hs, diopiTensorHandle_t rbottom_grad,
                                     diopiTensorHandle_t rmask_grad, diopiTensorHandle_t bottom_grad,
                                     diopiTensorHandle_t mask_grad, diopiConstTensorHandle_t top_grad,
                                     diopiConstTensorHandle_t rfeatures, diopiConstTensorHandle_t masks,
                                     int64_t kernel_size, int64_t group_size, int64_t scale_factor) {
  struct call call;
  struct carafe_task task = {kernel_size, group_size, scale_factor, 0, true};
  (void)rtop_grad;
  (void)rbottom_grad_hs;
  (void)rbottom_grad;
  (void)rmask_grad;
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, rfeatures, "f:*");
  CALL_IN(&call, masks, "f:nmyx");
  CALL_IN(&call, top_grad, "f:ncyx");
  CALL_OUT(&call, bottom_grad, "f:nchw");
  CALL_OUT(&call, mask_grad, "f:nmyx");
  FRAME_TRY(check_carafe(&call, &task));
  FRAME_TRY(check_turned(&call, 0, 3));
  return call_run(&call, run_carafe_backward);
}

diopiError_t diopiCarafeNaiveBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t bottom_grad,
                                          diopiTensorHandle_t mask_grad, diopiConstTensorHandle_t top_grad,
                                          diopiConstTensorHandle_t features, diopiConstTensorHandle_t masks,
                                          int64_t kernel_size, int64_t group_size, int64_t scale_factor) {
  struct call call;
  struct carafe_task task = {kernel_size, group_size, scale_factor, 0, false};
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, features, "f:nchw");
  CALL_IN(&call, masks, "f:nmyx");
  CALL_IN(&call, top_grad, "f:ncyx");
  CALL_OUT(&call, bottom_grad, "f:nchw");
  CALL_OUT(&call, mask_grad, "f:nmyx");
  FRAME_TRY(check_carafe(&call, &task));
  return call_run(&call, run_carafe_backward);
}

// Correlation

static diopiError_t run_correlation(struct call *call) {
  const int64_t cost = 2 * call_size(call, 'c') * count_window(call) * call_size(call, 'y') * call_size(call, 'x');
  if (call->count == 3) {
    CALL_LOOP(call, call_size(call, 'n') * call_size(call, 'i') * call_size(call, 'j'), cost, correlate);
    return diopiSuccess;
  }
  call_zero(call, 3);
  call_zero(call, 4);
  CALL_LOOP(call, call_size(call, 'n') * call_size(call, 'c'), cost, correlate_backward);
  return diopiSuccess;
}

static diopiError_t check_correlation(struct call *call, const struct correlation_task *task) {
  for (int i = 0; i < 2; i++) {
    CALL_CHECK(call,
               task->kernel[i] > 0 && task->patch[i] > 0 && task->pad[i] >= 0 && task->dilation[i] > 0 &&
                   task->patch_dilation[i] > 0 && task->stride[i] > 0,
               "sizes, strides and dilations must be positive, the padding not negative, in dimension %d", i);
    const int64_t size = call_size(call, i ? 'w' : 'h'), reach = (task->kernel[i] - 1) * task->dilation[i] + 1;
    const int64_t room = size + 2 * task->pad[i] - reach, wanted = room < 0 ? 0 : room / task->stride[i] + 1;
    CALL_CHECK(call, call_size(call, i ? 'x' : 'y') == wanted && call_size(call, i ? 'j' : 'i') == task->patch[i],
               "the output has %lld shifts and %lld places in dimension %d; it must have %lld and %lld",
               (long long)call_size(call, i ? 'j' : 'i'), (long long)call_size(call, i ? 'x' : 'y'), i,
               (long long)task->patch[i], (long long)wanted);
  }
  call->task = task;
  return diopiSuccess;
}

diopiError_t diopiCorrelationMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output, diopiConstTensorHandle_t input1,
                                  diopiConstTensorHandle_t input2, int64_t kH, int64_t kW, int64_t patchH,
                                  int64_t patchW, int64_t padH, int64_t padW, int64_t dilationH, int64_t dilationW,
                                  int64_t dilation_patchH, int64_t dilation_patchW, int64_t dH, int64_t dW) {
  struct call call;
  const struct correlation_task task = {
      {kH, kW}, {patchH, patchW}, {padH, padW}, {dilationH, dilationW}, {dilation_patchH, dilation_patchW}, {dH, dW}};
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, input1, "f:nchw");
  CALL_IN(&call, input2, "f:nchw");
  CALL_OUT(&call, output, "f:nijyx");
  FRAME_TRY(check_correlation(&call, &task));
  return call_run(&call, run_correlation);
}

diopiError_t diopiCorrelationBackwardMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input1,
                                          diopiTensorHandle_t grad_input2, diopiConstTensorHandle_t grad_output,
                                          diopiConstTensorHandle_t input1, diopiConstTensorHandle_t input2, int64_t kH,
                                          int64_t kW, int64_t patchH, int64_t patchW, int64_t padH, int64_t padW,
                                          int64_t dilationH, int64_t dilationW, int64_t dilation_patchH,
                                          int64_t dilation_patchW, int64_t dH, int64_t dW) {
  struct call call;
  const struct correlation_task task = {
      {kH, kW}, {patchH, patchW}, {padH, padW}, {dilationH, dilationW}, {dilation_patchH, dilation_patchW}, {dH, dW}};
  CALL_BEGIN(&call, ctx);
  CALL_IN(&call, input1, "f:nchw");
  CALL_IN(&call, input2, "f:nchw");
  CALL_IN(&call, grad_output, "f:nijyx");
  CALL_OUT(&call, grad_input1, "f:nchw");
  CALL_OUT(&call, grad_input2, "f:nchw");
  FRAME_TRY(check_correlation(&call, &task));
  return call_run(&call, run_correlation);
}
