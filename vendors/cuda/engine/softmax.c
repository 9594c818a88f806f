/// Softmax and its gradient on CUDA (vendors/host/engine/kernels.h, vendors/host/ops/softmax_gradient.h).
#include "kernels/softmax.h"

#include <string.h>

#include "engine/kernels.h"
#include "engine/nest.h"
#include "launch.h"
#include "ops/softmax_gradient.h"
#include "plan.h"

KERNEL_REFERENCE(softmax_f32, softmax);
KERNEL_REFERENCE(softmax_f64, softmax);
KERNEL_REFERENCE(softmax_f16, softmax);
KERNEL_REFERENCE(softmax_bf16, softmax);
KERNEL_REFERENCE(softmax_f16_f32, softmax);
KERNEL_REFERENCE(softmax_bf16_f32, softmax);
KERNEL_REFERENCE(softmax_gradient_f32, softmax);
KERNEL_REFERENCE(softmax_gradient_f64, softmax);
KERNEL_REFERENCE(softmax_gradient_f16, softmax);
KERNEL_REFERENCE(softmax_gradient_bf16, softmax);

/// `views`: the result, the input and, for the gradient, a third; all of one shape.
static enum dit_status launch(struct kernel *kernel, void *stream, const struct dit_tensor_view *const *views,
                              int count, int dim, bool log, struct dit_error *err) {
  struct softmax_kernel task = {.length = views[0]->sizes[dim], .is_log = log};
  struct dit_tensor_view lines[3];
  const struct dit_tensor_view *first[3];
  int64_t sizes[DIT_MAX_DIMS], numel = 1;
  struct nest nest;
  for (int i = 0; i < views[0]->ndim; i++) {
    sizes[i] = i == dim ? 1 : views[0]->sizes[i];
    numel *= sizes[i];
  }
  for (int i = 0; i < count; i++) {
    lines[i] = *views[i];
    lines[i].sizes = sizes;
    lines[i].numel = numel;
    first[i] = &lines[i];
    task.steps[i] = views[i]->strides[dim] * (int64_t)dit_dtype_get_size(views[i]->dtype);
  }
  nest_init(&nest, count, first);
  if (!plan_set_strided(&task.lines, &nest)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int64_t width = (int64_t)dit_dtype_get_size(views[1]->dtype);
  task.is_column = task.steps[1] != width && nest.strides[1][0] == width && nest.sizes[0] > 1;
  task.columns = task.is_column ? 32 : task.length <= 1024 ? 8 : 1;
  const struct kernel_grid grid = {.x = kernel_get_blocks(numel, task.columns), .threads = SOFTMAX_KERNEL_THREADS};
  return kernel_launch(kernel, stream, grid, &task, err);
}

enum dit_status kernel_softmax(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                               int dim, bool log, struct dit_error *err) {
  const bool wide = out->dtype != in->dtype;
  struct kernel *kernel = in->dtype == DIT_DTYPE_F32    ? &softmax_f32
                          : in->dtype == DIT_DTYPE_F64  ? &softmax_f64
                          : in->dtype == DIT_DTYPE_F16  ? wide ? &softmax_f16_f32 : &softmax_f16
                          : in->dtype == DIT_DTYPE_BF16 ? wide ? &softmax_bf16_f32 : &softmax_bf16
                                                        : NULL;
  if (!kernel || (wide && out->dtype != DIT_DTYPE_F32)) {
    return DIT_ERR_UNSUPPORTED;
  }
  return in->numel == 0 ? DIT_OK
                        : launch(kernel, stream, (const struct dit_tensor_view *const[]){out, in}, 2, dim, log, err);
}

diopiError_t softmax_gradient(struct frame *frame, const struct dit_tensor_view *grad_input,
                              const struct dit_tensor_view *grad_output, const struct dit_tensor_view *output, int dim,
                              bool log) {
  const int dtype = output->dtype;
  struct dit_error err = {.message = ""};
  struct kernel *kernel = dtype == DIT_DTYPE_F32   ? &softmax_gradient_f32
                          : dtype == DIT_DTYPE_F64 ? &softmax_gradient_f64
                          : dtype == DIT_DTYPE_F16 ? &softmax_gradient_f16
                                                   : &softmax_gradient_bf16;
  if (grad_input->dtype != dtype || grad_output->dtype != dtype) {
    return frame_fail(frame, diopiDtypeNotSupported,
                      "'grad_input', 'grad_output' and 'output' must have one dtype here");
  }
  const struct dit_tensor_view *const views[] = {grad_input, output, grad_output};
  static const int64_t one = 1;
  struct dit_tensor_view flat[3];
  const struct dit_tensor_view *lines[3];
  for (int i = 0; i < 3; i++) {
    flat[i] = *views[i];
    if (flat[i].ndim == 0) {
      flat[i].ndim = 1;
      flat[i].sizes = flat[i].strides = &one;
    }
    lines[i] = &flat[i];
  }
  return frame_get_code(frame, launch(kernel, frame->stream, lines, 3, dim, log, &err), &err);
}
