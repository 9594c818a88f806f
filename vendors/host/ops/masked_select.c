/// Elements where a mask is true, one after another: nonzero, masked_select with its gradient, masked_scatter.
///
/// nonzero: int64 [n, dimensions of input], the coordinates of the elements that are not zero, row-major; of every
/// dtype. masked_select: the elements of input where mask is true, 1-d, in row-major order of the shape that both
/// broadcast to. Both make their result themselves. masked_scatter: out = input with the elements where mask is true
/// taken from source one after another; mask broadcasts to input, out may be input. Backward: the same on zeros with
/// grad_output; mask broadcasts to input there. mask is bool (or uint8: not zero). Every dtype.
#include "engine/index.h"
#include "masked.h"

static diopiError_t require(struct frame *frame, diopiTensorHandle_t *made, int ndim, const int64_t *sizes, int dtype,
                            struct dit_tensor_view *view) {
  const diopiSize_t size = {sizes, ndim};
  if (diopiRequireTensor(frame->context, made, &size, NULL, dit_diopi_get_dtype(dtype), diopi_device) != diopiSuccess) {
    return frame_fail(frame, diopiErrorOccurred, "no memory for a result of shape %s", layout_print(ndim, sizes));
  }
  return frame_take(frame, "out", *made, view);
}

// Nonzero

struct nonzero_task {
  struct frame *frame;
  struct dit_tensor_view input;
  diopiTensorHandle_t *out;
};

static diopiError_t fail_count(struct frame *frame, enum dit_status status, const struct dit_error *err,
                               int64_t numel) {
  return status == DIT_ERR_NOMEM
             ? frame_fail(frame, diopiErrorOccurred, "no memory to count %lld elements", (long long)numel)
             : frame_get_code(frame, status, err);
}

static diopiError_t run_nonzero(void *argument) {
  struct nonzero_task *task = argument;
  struct frame *frame = task->frame;
  struct dit_tensor_view out;
  struct dit_error err = {.message = ""};
  diopiTensorHandle_t made = NULL;
  int64_t *starts = NULL, total = 0;
  enum dit_status status = index_count_blocks(frame->context, frame->stream, &task->input, &starts, &total, &err);
  const int64_t sizes[2] = {total, task->input.ndim};
  diopiError_t code = status == DIT_OK ? require(frame, &made, 2, sizes, DIT_DTYPE_I64, &out)
                                       : fail_count(frame, status, &err, task->input.numel);
  if (code == diopiSuccess && out.numel > 0) {
    status = index_list_nonzero(frame->stream, &task->input, starts, out.data, task->input.ndim, 1, &err);
    code = frame_get_code(frame, status, &err);
  }
  if (code == diopiSuccess) {
    *task->out = made;
  }
  index_give_room(starts);
  return code;
}

diopiError_t diopiNonzero(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t input) {
  struct frame frame;
  struct nonzero_task task = {.frame = &frame, .out = out};
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, out, "'out' is NULL; it must be the place for a tensor");
  FRAME_TAKE(&frame, input, &task.input);
  return frame_run(&frame, run_nonzero, &task);
}

// Packing and unpacking by a mask

/// The packed side is there: for unpacking given, for packing made now.
static diopiError_t prepare_pack(struct pack_task *task, int64_t total) {
  struct frame *frame = task->frame;
  struct frame now = frame_get_inner(frame);
  if (!task->unpack) {
    diopiTensorHandle_t made = NULL;
    FRAME_TRY(require(frame, &made, 1, &total, task->whole.dtype, &task->packed));
    *task->out = made;
    return diopiSuccess;
  }
  FRAME_CHECK(frame, task->exact ? task->packed.numel == total : task->packed.numel >= total,
              "'%s' has %lld elements; 'mask' is true %lld times", task->packed_name, (long long)task->packed.numel,
              (long long)total);
  if (task->zero) {
    return layout_zero(&now, &task->whole);
  }
  return layout_is_same(&task->input, &task->whole) ? diopiSuccess : layout_copy(&now, &task->whole, &task->input);
}

static diopiError_t run_pack(void *argument) {
  struct pack_task *task = argument;
  struct frame *frame = task->frame;
  struct dit_error err = {.message = ""};
  int64_t *starts = NULL, total = 0;
  const enum dit_status status = index_count_blocks(frame->context, frame->stream, &task->mask, &starts, &total, &err);
  diopiError_t code = status == DIT_OK ? prepare_pack(task, total) : fail_count(frame, status, &err, task->mask.numel);
  if (code == diopiSuccess && total > 0) {
    task->starts = starts;
    code = masked_pack(task);
  }
  index_give_room(starts);
  return code;
}

static diopiError_t check_mask(struct frame *frame, const struct dit_tensor_view *mask) {
  if (mask->dtype != DIT_DTYPE_BOOL && mask->dtype != DIT_DTYPE_U8) {
    return frame_fail(frame, diopiDtypeNotSupported, "'mask' is %s; valid: bool, uint8",
                      dit_dtype_get_name(mask->dtype));
  }
  return diopiSuccess;
}

diopiError_t diopiMaskedSelect(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t mask) {
  struct frame frame;
  struct pack_task task = {.frame = &frame, .out = out};
  struct dit_tensor_view x, m;
  int ndim = 0;
  int64_t sizes[DIT_MAX_DIMS], x_strides[DIT_MAX_DIMS], m_strides[DIT_MAX_DIMS];
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, out, "'out' is NULL; it must be the place for a tensor");
  FRAME_TAKE(&frame, input, &x);
  FRAME_TAKE(&frame, mask, &m);
  FRAME_TRY(check_mask(&frame, &m));
  FRAME_CHECK(&frame,
              dit_shape_broadcast(x.ndim, x.sizes, &ndim, sizes, NULL) == DIT_OK &&
                  dit_shape_broadcast(m.ndim, m.sizes, &ndim, sizes, NULL) == DIT_OK &&
                  frame_expand(&x, ndim, sizes, x_strides, &task.whole) &&
                  frame_expand(&m, ndim, sizes, m_strides, &task.mask),
              "'input' has shape %s and 'mask' %s; they do not broadcast", layout_print(x.ndim, x.sizes),
              layout_print(m.ndim, m.sizes));
  return frame_run(&frame, run_pack, &task);
}

/// Fill `out` from the packed elements; the task has whole (the output), mask as given, and packed as given.
static diopiError_t launch_unpack(struct pack_task *task, const char *name) {
  struct frame *frame = task->frame;
  const struct dit_tensor_view *inputs[] = {&task->mask, &task->packed};
  struct dit_tensor_view mask;
  int64_t strides[DIT_MAX_DIMS];
  FRAME_TRY(check_mask(frame, &task->mask));
  FRAME_TRY(layout_check_dtype(frame, task->packed_name, &task->packed, name, &task->whole));
  FRAME_CHECK(frame, frame_expand(&task->mask, task->whole.ndim, task->whole.sizes, strides, &mask),
              "'mask' has shape %s, which does not broadcast to %s", layout_print(task->mask.ndim, task->mask.sizes),
              layout_print(task->whole.ndim, task->whole.sizes));
  FRAME_TRY(frame_check_output(frame, name, &task->whole, inputs, 2, false));
  task->mask = mask;
  return frame_run(frame, run_pack, task);
}

/// A source of any shape is read in row-major order: as 1-d where its strides allow, else from a contiguous copy.
static diopiError_t flatten(struct frame *frame, struct dit_tensor_view *view, int64_t *size, int64_t *stride) {
  struct nest nest;
  if (view->numel > 0) {
    nest_init_ordered(&nest, 1, (const struct dit_tensor_view *const[]){view});
    if (nest.ndim > 1) {
      diopiTensorHandle_t made = NULL;
      struct dit_tensor_view copy;
      FRAME_TRY(require(frame, &made, view->ndim, view->sizes, view->dtype, &copy));
      FRAME_TRY(layout_copy(frame, &copy, view));
      *view = copy;
      nest_init_ordered(&nest, 1, (const struct dit_tensor_view *const[]){view});
    }
    *stride = nest.strides[0][0] / (int64_t)dit_dtype_get_size(view->dtype);
  } else {
    *stride = 1;
  }
  *size = view->numel;
  view->ndim = 1;
  view->sizes = size;
  view->strides = stride;
  return diopiSuccess;
}

diopiError_t diopiMaskedScatter(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t mask, diopiConstTensorHandle_t source) {
  struct frame frame;
  struct pack_task task = {.frame = &frame, .unpack = true, .packed_name = "source"};
  const struct dit_tensor_view *inputs[] = {&task.input};
  int64_t size, stride;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &task.whole);
  FRAME_TAKE(&frame, input, &task.input);
  FRAME_TAKE(&frame, mask, &task.mask);
  FRAME_TAKE(&frame, source, &task.packed);
  FRAME_TRY(layout_check_sizes(&frame, "out", &task.whole, task.input.ndim, task.input.sizes));
  FRAME_TRY(layout_check_dtype(&frame, "out", &task.whole, "input", &task.input));
  FRAME_TRY(frame_check_output(&frame, "out", &task.whole, inputs, 1, true));
  FRAME_TRY(flatten(&frame, &task.packed, &size, &stride));
  return launch_unpack(&task, "out");
}

diopiError_t diopiMaskedSelectBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                       diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input,
                                       diopiConstTensorHandle_t mask) {
  struct frame frame;
  struct pack_task task = {.frame = &frame, .unpack = true, .zero = true, .exact = true, .packed_name = "grad_output"};
  int64_t size, stride;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &task.whole);
  FRAME_TAKE(&frame, grad_output, &task.packed);
  FRAME_TAKE(&frame, input, &task.input);
  FRAME_TAKE(&frame, mask, &task.mask);
  FRAME_TRY(layout_check_sizes(&frame, "grad_input", &task.whole, task.input.ndim, task.input.sizes));
  FRAME_CHECK(&frame, task.packed.ndim == 1, "'grad_output' has %d dimensions; it must have 1", task.packed.ndim);
  FRAME_TRY(flatten(&frame, &task.packed, &size, &stride));
  return launch_unpack(&task, "grad_input");
}
