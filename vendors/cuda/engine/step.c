/// Steps of optimizers: one kernel over a parameter, its states and its gradient; for lists of them one over many.
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

// Lists: one launch for many tensors, whose step counts stay on the device

KERNEL_REFERENCE(optimizer_list_adam_f32, optimizer);
KERNEL_REFERENCE(optimizer_list_adam_f64, optimizer);
KERNEL_REFERENCE(optimizer_list_amsgrad_f32, optimizer);
KERNEL_REFERENCE(optimizer_list_amsgrad_f64, optimizer);

/// What is collected for the next launch: tensors of one work type.
struct batch {
  struct step_list kernel;
  int64_t blocks;
  int work;
};

static diopiError_t flush(const struct optimizer_list *list, struct batch *batch) {
  struct dit_error err = {.message = ""};
  struct kernel *kernel = batch->work == DIT_DTYPE_F64
                              ? (list->amsgrad ? &optimizer_list_amsgrad_f64 : &optimizer_list_adam_f64)
                              : (list->amsgrad ? &optimizer_list_amsgrad_f32 : &optimizer_list_adam_f32);
  const struct kernel_grid grid = {.x = (unsigned)batch->blocks, .threads = POINTWISE_KERNEL_THREADS};
  const enum dit_status status =
      batch->kernel.count ? kernel_launch(kernel, list->frame->stream, grid, &batch->kernel, &err) : DIT_OK;
  batch->kernel.count = 0;
  batch->blocks = 0;
  return frame_get_code(list->frame, status, &err);
}

/// False for tensors with gaps, or in different orders.
static bool set_tensor(struct step_tensor *tensor, const struct optimizer_item *item) {
  const struct pointwise *run = &item->run.run;
  const int states = run->loop->states;
  const struct dit_tensor_view *views[STEP_KERNEL_OPERANDS];
  struct nest nest;
  *tensor = (struct step_tensor){
      .count = item->count.data, .numel = run->views[0]->numel, .count_dtype = item->count.dtype, .is_plain = true};
  for (int i = 0; i <= states; i++) {
    views[i] = run->views[i < states ? i : 2 * states];
    tensor->data[i] = views[i]->data;
    tensor->dtype[i] = views[i]->dtype;
    tensor->is_plain = tensor->is_plain && views[i]->dtype == run->work[0] && (uintptr_t)views[i]->data % 16 == 0;
  }
  nest_init(&nest, states + 1, views);
  bool is_flat = nest.ndim <= 1;
  for (int i = 0; i <= states && nest.ndim == 1; i++) {
    is_flat = is_flat && nest.strides[i][0] == (int64_t)dit_dtype_get_size(views[i]->dtype);
  }
  return is_flat;
}

/// A step that no list takes: its count is read first, which waits.
static diopiError_t run_alone(const struct optimizer_list *list, struct optimizer_item *item) {
  struct dit_error err = {.message = ""};
  _Alignas(16) char bytes[16];
  double count = 0;
  FRAME_TRY(frame_get_code(
      list->frame,
      launch_read(list->frame->stream, bytes, item->count.data, dit_dtype_get_size(item->count.dtype), &err), &err));
  cast_block(DIT_DTYPE_F64, &count, item->count.dtype, bytes, 1);
  list->set_count(list, item, count);
  return elementwise_launch(&item->run);
}

static diopiError_t add_item(const struct optimizer_list *list, struct batch *batch, struct optimizer_item *item) {
  const struct pointwise *run = &item->run.run;
  struct step_tensor tensor;
  if (run->views[0]->numel == 0) {
    return diopiSuccess;
  }
  if (!set_tensor(&tensor, item)) {
    return run_alone(list, item);
  }
  const int64_t blocks = (tensor.numel + STEP_LIST_CHUNK - 1) / STEP_LIST_CHUNK;
  if (batch->kernel.count == STEP_LIST_TENSORS || batch->work != run->work[0] || batch->blocks + blocks > INT32_MAX) {
    FRAME_TRY(flush(list, batch));
  }
  batch->work = run->work[0];
  for (int i = 0; i < 12; i++) {
    batch->kernel.numbers[i] = batch->work == DIT_DTYPE_F64 ? ((const double *)(const void *)run->parameters)[i]
                                                            : (double)((const float *)(const void *)run->parameters)[i];
  }
  batch->kernel.first[batch->kernel.count] = (int32_t)batch->blocks;
  batch->kernel.tensors[batch->kernel.count++] = tensor;
  batch->blocks += blocks;
  return diopiSuccess;
}

diopiError_t optimizer_run_list(const struct optimizer_list *list) {
  struct batch batch = {.kernel = {.lr = list->lr, .beta1 = list->beta1, .beta2 = list->beta2}};
  for (int64_t i = 0; i < list->count; i++) {
    struct optimizer_item item;
    FRAME_TRY(list->prepare(list, i, &item));
    FRAME_TRY(add_item(list, &batch, &item));
  }
  return flush(list, &batch);
}
