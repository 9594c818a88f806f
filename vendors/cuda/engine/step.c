/// Steps of optimizers: one kernel over a parameter, its states and its gradient; and numbers that lie on the device.
#include "kernels/step.h"

#include <string.h>

#include "engine/cast.h"
#include "engine/nest.h"
#include "engine/pointwise.h"
#include "ops/fail.h"
#include "ops/optimizer.h"
#include "step.h"

/// Views: parameter and states once as outputs, once as inputs, then the gradient; both times the same memory.
enum dit_status step_launch(void *stream, const struct pointwise *run, struct dit_error *err) {
  const int states = run->loop->states;
  const struct dit_tensor_view *views[STEP_KERNEL_OPERANDS];
  struct step_flat flat = {.numel = run->views[0]->numel};
  struct step_strided strided = {.numel = run->views[0]->numel};
  bool is_flat = true;
  if (states + 1 > STEP_KERNEL_OPERANDS || run->outputs != states || run->inputs != states + 1) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (run->views[0]->numel == 0) {
    return DIT_OK;
  }
  for (int i = 0; i <= states; i++) {
    views[i] = run->views[i < states ? i : 2 * states];
    flat.data[i] = strided.data[i] = views[i]->data;
    strided.dtype[i] = views[i]->dtype;
    is_flat = is_flat && views[i]->flags & DIT_TENSOR_CONTIGUOUS && views[i]->dtype == run->work[0];
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(flat.numel, POINTWISE_KERNEL_THREADS),
                                   .threads = POINTWISE_KERNEL_THREADS};
  if (is_flat) {
    memcpy(flat.numbers, run->parameters, sizeof flat.numbers);
    return kernel_launch(&run->loop->variants[POINTWISE_VECTOR], stream, grid, &flat, err);
  }
  struct nest nest;
  nest_init(&nest, states + 1, views);
  if (nest.ndim > POINTWISE_KERNEL_DIMS) {
    return DIT_ERR_UNSUPPORTED;
  }
  strided.ndim = (int16_t)nest.ndim;
  for (int dim = 0; dim < nest.ndim; dim++) {
    strided.sizes[dim] = nest.sizes[dim];
    for (int i = 0; i <= states; i++) {
      strided.strides[dim][i] = nest.strides[i][dim];
    }
  }
  memcpy(strided.numbers, run->parameters, sizeof strided.numbers);
  return kernel_launch(&run->loop->variants[POINTWISE_STRIDED], stream, grid, &strided, err);
}

diopiError_t optimizer_read_number(struct frame *frame, const struct dit_tensor_view *view, double *out) {
  struct dit_error err = {.message = ""};
  _Alignas(16) char bytes[16];
  FRAME_TRY(frame_get_code(frame, launch_read(frame->stream, bytes, view->data, dit_dtype_get_size(view->dtype), &err),
                           &err));
  cast_block(DIT_DTYPE_F64, out, view->dtype, bytes, 1);
  return diopiSuccess;
}
