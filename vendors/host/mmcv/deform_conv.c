/// Deformable convolution of mmcv, with and without masks, and its gradients.
///
/// The kernel's positions are moved by offset (N, 2 groups kH kW, H', W'), y before x for each position, and read
/// bilinearly with zeros around the picture; mask (N, groups kH kW, H', W') multiplies what is read. Channels are
/// shared evenly by the deformable groups and by the groups of the convolution. An image at a time: its columns, then a
/// product per group. The tensors columns and ones are not used; im2col_step only has to be positive. Floating dtypes,
/// one for all.
#include <string.h>

#include "call.h"
#include "deform.h"
#include "engine/scratch.h"
#include "product.h"

enum { INPUT, WEIGHT, OFFSET, MASK, OUTPUT, BIAS, GRAD_INPUT, GRAD_OFFSET, GRAD_MASK, GRAD_WEIGHT, GRAD_BIAS };

struct deform_task {
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int64_t groups, deform_groups, step;
  double scale;  ///< of the weights' gradient, which is added to what is there when `adds`
  bool adds;
  int64_t out_h, out_w, image;
  void *columns;
};

#define LOOPS "deform_conv_loops.h"
#include "twice.h"

/// The n-th matrix of `elements` elements from `data` on.
static void *shift(const struct call *call, void *data, int64_t elements) {
  return (char *)data + (size_t)elements * dit_dtype_get_size(call->work);
}

static void fill_columns(struct call *call, struct deform_task *task) {
  const int64_t kernel = task->kernel_h * task->kernel_w;
  CALL_LOOP(call, task->deform_groups * kernel,
            40 * task->out_h * task->out_w * (call_size(call, 'c') / task->deform_groups + 1), make_columns);
}

/// Sizes of the products: rows of a group's weights, its columns, places.
struct product_sizes {
  int64_t rows, inner, places;
};
static struct product_sizes get_sizes(const struct call *call, const struct deform_task *task) {
  return (struct product_sizes){call_size(call, 'o') / task->groups,
                                call_size(call, 'c') / task->groups * task->kernel_h * task->kernel_w,
                                task->out_h * task->out_w};
}

static diopiError_t run_forward(struct call *call) {
  struct deform_task *task = (struct deform_task *)(uintptr_t)call->task;
  const struct product_sizes s = get_sizes(call, task);
  task->columns = scratch_take((size_t)(s.inner * task->groups * s.places + 1) * dit_dtype_get_size(call->work));
  if (!task->columns) {
    return dense_fail(&call->frame);
  }
  for (task->image = 0; task->image < call_size(call, 'n'); task->image++) {
    fill_columns(call, task);
    for (int64_t g = 0; g < task->groups; g++) {
      product_multiply(call->work, s.rows, s.places, s.inner,
                       shift(call, call_data(call, WEIGHT), g * s.rows * s.inner), false,
                       shift(call, task->columns, g * s.inner * s.places), false,
                       shift(call, call_data(call, OUTPUT), (task->image * task->groups + g) * s.rows * s.places));
    }
  }
  (call->work == DIT_DTYPE_F64 ? add_bias_f64 : add_bias_f32)(call);
  scratch_give(task->columns);
  return diopiSuccess;
}

/// Gradients of input, offset and mask for one image.
static void pull_image(struct call *call, struct deform_task *task) {
  const struct product_sizes s = get_sizes(call, task);
  for (int64_t g = 0; g < task->groups; g++) {
    product_multiply(call->work, s.inner, s.places, s.rows, shift(call, call_data(call, WEIGHT), g * s.rows * s.inner),
                     true, shift(call, call_data(call, OUTPUT), (task->image * task->groups + g) * s.rows * s.places),
                     false, shift(call, task->columns, g * s.inner * s.places));
  }
  CALL_LOOP(call, call_size(call, 'c'), 60 * task->kernel_h * task->kernel_w * s.places, spread_columns);
  CALL_LOOP(call, task->deform_groups * task->kernel_h * task->kernel_w, 60 * s.places * (call_size(call, 'c') + 1),
            move_offsets);
}

/// The weights' gradient of one image, added with its factor; `room` holds one group's.
static void pull_weights(struct call *call, struct deform_task *task, void *room) {
  const struct product_sizes s = get_sizes(call, task);
  fill_columns(call, task);
  for (int64_t g = 0; g < task->groups; g++) {
    void *to = shift(call, call_data(call, GRAD_WEIGHT), g * s.rows * s.inner);
    product_multiply(call->work, s.rows, s.inner, s.places,
                     shift(call, call_data(call, OUTPUT), (task->image * task->groups + g) * s.rows * s.places), false,
                     shift(call, task->columns, g * s.inner * s.places), true, room);
    if (call->work == DIT_DTYPE_F64) {
      add_scaled_f64(to, room, s.rows * s.inner, task->scale);
    } else {
      add_scaled_f32(to, room, s.rows * s.inner, task->scale);
    }
  }
}

static diopiError_t run_backward(struct call *call) {
  struct deform_task *task = (struct deform_task *)(uintptr_t)call->task;
  const struct product_sizes s = get_sizes(call, task);
  const size_t width = dit_dtype_get_size(call->work);
  task->columns = scratch_take((size_t)(s.inner * task->groups * s.places + 1) * width);
  void *room = scratch_take((size_t)(s.rows * s.inner + 1) * width);
  const bool done = task->columns && room;
  if (done) {
    call_zero(call, GRAD_INPUT);
    if (!task->adds) {
      call_zero(call, GRAD_WEIGHT);
    }
    for (task->image = 0; task->image < call_size(call, 'n'); task->image++) {
      if (call->tensors[GRAD_INPUT].view.handle) {  // it may be empty where the offsets are not
        pull_image(call, task);
      }
      if (call_data(call, GRAD_WEIGHT)) {
        pull_weights(call, task, room);
      }
    }
    (call->work == DIT_DTYPE_F64 ? sum_bias_f64 : sum_bias_f32)(call);
  }
  scratch_give(room);
  scratch_give(task->columns);
  return done ? diopiSuccess : dense_fail(&call->frame);
}

static int64_t count_places(int64_t size, int64_t pad, int64_t dilation, int64_t kernel, int64_t stride) {
  const int64_t room = size + 2 * pad - (dilation * (kernel - 1) + 1);
  return room < 0 ? 0 : room / stride + 1;
}

/// Tensors that the function does not have stay absent.
static void skip_to(struct call *call, int number) {
  call->count = number;
}

/// The numbers, before any tensor.
static diopiError_t check_numbers(struct call *call, const struct deform_task *task) {
  CALL_CHECK(call, task->kernel_h > 0 && task->kernel_w > 0 && task->stride_h > 0 && task->stride_w > 0,
             "the kernel is %lld x %lld, its stride %lld, %lld; valid: from 1", (long long)task->kernel_h,
             (long long)task->kernel_w, (long long)task->stride_h, (long long)task->stride_w);
  CALL_CHECK(call, task->dilation_h > 0 && task->dilation_w > 0 && task->pad_h >= 0 && task->pad_w >= 0,
             "the dilation is %lld, %lld, the padding %lld, %lld; valid: from 1 and from 0",
             (long long)task->dilation_h, (long long)task->dilation_w, (long long)task->pad_h, (long long)task->pad_w);
  CALL_CHECK(call, task->groups > 0 && task->deform_groups > 0 && task->step > 0,
             "groups are %lld, deformable groups %lld, 'im2col_step' %lld; valid: from 1", (long long)task->groups,
             (long long)task->deform_groups, (long long)task->step);
  return diopiSuccess;
}

/// The tensors' sizes go together. Letters: n c h w the picture, o its outputs, y x their places, q offsets.
static diopiError_t check_sizes(struct call *call, struct deform_task *task) {
  const int64_t channels = call_size(call, 'c'), kernel = task->kernel_h * task->kernel_w;
  task->out_h = count_places(call_size(call, 'h'), task->pad_h, task->dilation_h, task->kernel_h, task->stride_h);
  task->out_w = count_places(call_size(call, 'w'), task->pad_w, task->dilation_w, task->kernel_w, task->stride_w);
  CALL_CHECK(call, task->out_h > 0 && task->out_w > 0, "the kernel does not fit into the padded picture");
  CALL_CHECK(call, call_size(call, 'y') == task->out_h && call_size(call, 'x') == task->out_w,
             "the result has %lld x %lld places; it must have %lld x %lld", (long long)call_size(call, 'y'),
             (long long)call_size(call, 'x'), (long long)task->out_h, (long long)task->out_w);
  CALL_CHECK(call, channels % task->groups == 0 && call_size(call, 'o') % task->groups == 0,
             "%lld groups do not divide %lld and %lld channels", (long long)task->groups, (long long)channels,
             (long long)call_size(call, 'o'));
  CALL_CHECK(call, channels % task->deform_groups == 0, "%lld deformable groups do not divide %lld channels",
             (long long)task->deform_groups, (long long)channels);
  CALL_CHECK(call, call_size(call, 'q') == 2 * task->deform_groups * kernel,
             "'offset' has %lld channels; it must have %lld", (long long)call_size(call, 'q'),
             (long long)(2 * task->deform_groups * kernel));
  CALL_CHECK(call, call_size(call, 'm') < 0 || call_size(call, 'm') == task->deform_groups * kernel,
             "'mask' has %lld channels; it must have %lld", (long long)call_size(call, 'm'),
             (long long)(task->deform_groups * kernel));
  CALL_CHECK(
      call,
      call_size(call, 's') < 0 || (call_size(call, 's') * task->groups == channels &&
                                   call_size(call, 'i') == task->kernel_h && call_size(call, 'j') == task->kernel_w),
      "the weights have other sizes than %lld channels and a kernel of %lld x %lld",
      (long long)(channels / task->groups), (long long)task->kernel_h, (long long)task->kernel_w);
  call->task = task;
  return diopiSuccess;
}

diopiError_t diopiDeformConvMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output, diopiTensorHandle_t columns,
                                 diopiTensorHandle_t ones, diopiConstTensorHandle_t input,
                                 diopiConstTensorHandle_t weight, diopiConstTensorHandle_t offset, int64_t kW,
                                 int64_t kH, int64_t dW, int64_t dH, int64_t padW, int64_t padH, int64_t dilationW,
                                 int64_t dilationH, int64_t groups, int64_t deform_groups, int64_t im2col_step) {
  struct call call;
  struct deform_task task = {kH,          kW, dH,    dW, padH, padW, dilationH, dilationW, groups, deform_groups,
                             im2col_step, 0,  false, 0,  0,    0,    NULL};
  (void)columns;
  (void)ones;
  CALL_BEGIN(&call, ctx);
  FRAME_TRY(check_numbers(&call, &task));
  CALL_IN(&call, input, "f:nchw");
  CALL_IN(&call, weight, "f:osij");
  CALL_IN(&call, offset, "f:nqyx");
  skip_to(&call, OUTPUT);
  CALL_OUT(&call, output, "f:noyx");
  skip_to(&call, GRAD_INPUT);
  FRAME_TRY(check_sizes(&call, &task));
  return call_run(&call, run_forward);
}

diopiError_t diopiDeformConvBackwardInputMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t gradInput,
                                              diopiTensorHandle_t gradOffset, diopiConstTensorHandle_t input,
                                              diopiConstTensorHandle_t offset, diopiConstTensorHandle_t gradOutput,
                                              diopiConstTensorHandle_t weight, diopiConstTensorHandle_t columns,
                                              int64_t kW, int64_t kH, int64_t dW, int64_t dH, int64_t padW,
                                              int64_t padH, int64_t dilationW, int64_t dilationH, int64_t groups,
                                              int64_t deform_groups, int64_t im2col_step) {
  struct call call;
  struct deform_task task = {kH,          kW, dH,    dW, padH, padW, dilationH, dilationW, groups, deform_groups,
                             im2col_step, 0,  false, 0,  0,    0,    NULL};
  (void)columns;
  CALL_BEGIN(&call, ctx);
  FRAME_TRY(check_numbers(&call, &task));
  CALL_IN(&call, input, "f:nchw");
  CALL_IN(&call, weight, "f:osij");
  CALL_IN(&call, offset, "f:nqyx");
  skip_to(&call, OUTPUT);
  CALL_IN(&call, gradOutput, "f:noyx");
  skip_to(&call, GRAD_INPUT);
  CALL_OUT(&call, gradInput, "f:nchw");
  CALL_OUT(&call, gradOffset, "f:nqyx");
  skip_to(&call, GRAD_BIAS + 1);
  FRAME_TRY(check_sizes(&call, &task));
  return call_run(&call, run_backward);
}

diopiError_t diopiDeformConvBackwardParametersMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t gradOutput,
                                                   diopiTensorHandle_t gradWeight, diopiConstTensorHandle_t input,
                                                   diopiConstTensorHandle_t offset, diopiConstTensorHandle_t columns,
                                                   diopiConstTensorHandle_t ones, int64_t kW, int64_t kH, int64_t dW,
                                                   int64_t dH, int64_t padW, int64_t padH, int64_t dilationW,
                                                   int64_t dilationH, int64_t groups, int64_t deform_groups,
                                                   int64_t im2col_step, float scale) {
  struct call call;
  struct deform_task task = {.kernel_h = kH,
                             .kernel_w = kW,
                             .stride_h = dH,
                             .stride_w = dW,
                             .pad_h = padH,
                             .pad_w = padW,
                             .dilation_h = dilationH,
                             .dilation_w = dilationW,
                             .groups = groups,
                             .deform_groups = deform_groups,
                             .step = im2col_step,
                             .scale = scale,
                             .adds = true};
  (void)columns;
  (void)ones;
  CALL_BEGIN(&call, ctx);
  FRAME_TRY(check_numbers(&call, &task));
  CALL_IN(&call, input, "f:nchw");
  skip_to(&call, OFFSET);
  CALL_IN(&call, offset, "f:nqyx");
  skip_to(&call, OUTPUT);
  CALL_IN(&call, gradOutput, "f:noyx");
  skip_to(&call, GRAD_WEIGHT);
  CALL_INOUT(&call, gradWeight, "f:osij");
  skip_to(&call, GRAD_BIAS + 1);
  FRAME_TRY(check_sizes(&call, &task));
  return call_run(&call, run_backward);
}

diopiError_t diopiModulatedDeformConvMmcv(diopiContextHandle_t ctx, diopiTensorHandle_t output,
                                          diopiTensorHandle_t columns, diopiTensorHandle_t ones,
                                          diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight,
                                          diopiConstTensorHandle_t bias, diopiConstTensorHandle_t offset,
                                          diopiConstTensorHandle_t mask, int64_t kernel_h, int64_t kernel_w,
                                          const int64_t stride_h, const int64_t stride_w, const int64_t pad_h,
                                          const int64_t pad_w, const int64_t dilation_h, const int64_t dilation_w,
                                          const int64_t group, const int64_t deformable_group, const bool with_bias) {
  struct call call;
  struct deform_task task = {kernel_h, kernel_w,         stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
                             group,    deformable_group, 1,        0,        false, 0,     0,          0,
                             NULL};
  (void)columns;
  (void)ones;
  CALL_BEGIN(&call, ctx);
  FRAME_TRY(check_numbers(&call, &task));
  CALL_IN(&call, input, "f:nchw");
  CALL_IN(&call, weight, "f:osij");
  CALL_IN(&call, offset, "f:nqyx");
  CALL_IN(&call, mask, "f:nmyx");
  CALL_OUT(&call, output, "f:noyx");
  if (with_bias) {
    CALL_IN(&call, bias, "f:o");
  }
  skip_to(&call, GRAD_INPUT);
  FRAME_TRY(check_sizes(&call, &task));
  return call_run(&call, run_forward);
}

diopiError_t diopiModulatedDeformConvBackwardMmcv(
    diopiContextHandle_t ctx, diopiTensorHandle_t grad_input, diopiTensorHandle_t grad_weight,
    diopiTensorHandle_t grad_bias, diopiTensorHandle_t grad_offset, diopiTensorHandle_t grad_mask,
    diopiConstTensorHandle_t input, diopiConstTensorHandle_t weight, diopiConstTensorHandle_t bias,
    diopiConstTensorHandle_t ones, diopiConstTensorHandle_t offset, diopiConstTensorHandle_t mask,
    diopiConstTensorHandle_t columns, diopiConstTensorHandle_t grad_output, int64_t kernel_h, int64_t kernel_w,
    int64_t stride_h, int64_t stride_w, int64_t pad_h, int64_t pad_w, int64_t dilation_h, int64_t dilation_w,
    int64_t group, int64_t deformable_group, const bool with_bias) {
  struct call call;
  struct deform_task task = {kernel_h, kernel_w,         stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
                             group,    deformable_group, 1,        1,        false, 0,     0,          0,
                             NULL};
  (void)columns;
  (void)ones;
  (void)bias;
  CALL_BEGIN(&call, ctx);
  FRAME_TRY(check_numbers(&call, &task));
  CALL_IN(&call, input, "f:nchw");
  CALL_IN(&call, weight, "f:osij");
  CALL_IN(&call, offset, "f:nqyx");
  CALL_IN(&call, mask, "f:nmyx");
  CALL_IN(&call, grad_output, "f:noyx");
  skip_to(&call, GRAD_INPUT);
  CALL_OUT(&call, grad_input, "f:nchw");
  CALL_OUT(&call, grad_offset, "f:nqyx");
  CALL_OUT(&call, grad_mask, "f:nmyx");
  CALL_OUT(&call, grad_weight, "f:osij");
  if (with_bias) {
    CALL_OUT(&call, grad_bias, "f:o");
  }
  skip_to(&call, GRAD_BIAS + 1);
  FRAME_TRY(check_sizes(&call, &task));
  return call_run(&call, run_backward);
}
