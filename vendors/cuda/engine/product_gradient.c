/// The gradients of linear layers and matmul on CUDA (vendors/host/ops/linear_backward.h, matmul_backward.h).
///
/// A gradient that adds over a batch is one deep product where memory allows it, else one product after the other; half
/// types are widened for that alone, because every product is rounded.
#include "engine/kernels.h"
#include "launch.h"
#include "ops/fail.h"
#include "ops/linear_backward.h"
#include "ops/matmul_backward.h"
#include "packed.h"

static const struct dit_scalar zero = {.kind = DIT_SCALAR_INT};

// Linear

/// grad^T x over all rows, which follow each other.
diopiError_t linear_run_weight(struct linear_task *task) {
  struct packed grad, from;
  struct dit_error err = {.message = ""};
  const struct dit_tensor_view *w = &task->grad_w;
  const int64_t rows = w->sizes[0] > 0 ? task->grad.numel / w->sizes[0] : 0;
  if (rows == 0 || w->numel == 0) {
    return frame_get_code(task->frame, kernel_fill(task->stream, w, zero, &err), &err);
  }
  FRAME_TRY(packed_read(&grad, task->frame, &task->grad));
  FRAME_TRY(packed_read(&from, task->frame, &task->x));
  const int64_t n = w->sizes[0], k = w->sizes[1];
  struct product p = {.dtype = w->dtype};
  p.out = (struct product_matrix){.data = w->data, .sizes = {n, k}, .strides = {w->strides[0], w->strides[1]}};
  p.a = (struct product_matrix){.data = grad.view.data, .sizes = {n, rows}, .strides = {1, n}};
  p.b = (struct product_matrix){.data = from.view.data, .sizes = {rows, k}, .strides = {k, 1}};
  return frame_get_code(task->frame, product_sum(task->stream, &p, &err), &err);
}

diopiError_t linear_run_backward(struct linear_task *task) {
  task->stream = task->frame->stream;
  return linear_add_gradients(task);
}

// Matmul

/// A contiguous copy in float, of the call's memory.
struct wide {
  struct dit_tensor_view view;
  int64_t strides[DIT_MAX_DIMS];
};

static diopiError_t widen(struct frame *frame, struct wide *wide, const struct dit_tensor_view *from, bool read) {
  struct dit_error err = {.message = ""};
  wide->view = *from;
  dit_shape_set_contiguous(from->ndim, from->sizes, wide->strides);
  wide->view.strides = wide->strides;
  wide->view.dtype = DIT_DTYPE_F32;
  wide->view.flags |= DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE;
  wide->view.data = scratch_take(frame->context, (size_t)from->numel * sizeof(float));
  if (!wide->view.data) {
    return frame_fail_device(frame, "no device memory for a copy in float32");
  }
  return read ? frame_get_code(frame, kernel_copy(frame->stream, &wide->view, from, &err), &err) : diopiSuccess;
}

static diopiError_t run_gradient(struct matmul_task *task, bool of_b, const struct dit_tensor_view *target,
                                 const struct dit_tensor_view *x) {
  struct frame *frame = task->frame;
  struct dit_error err = {.message = ""};
  if (!target->handle || target->numel == 0) {
    return diopiSuccess;
  }
  if (task->grad.numel == 0 || x->numel == 0) {
    return frame_get_code(frame, kernel_fill(frame->stream, target, zero, &err), &err);
  }
  struct product product = matmul_get_gradient(task, of_b, target, &task->grad, x);
  const bool is_half = target->dtype == DIT_DTYPE_F16 || target->dtype == DIT_DTYPE_BF16;
  if (!product_is_sum(&product)) {
    return frame_get_code(frame, product_run(frame->stream, &product, &err), &err);
  }
  if (!is_half) {
    return frame_get_code(frame, product_sum(frame->stream, &product, &err), &err);
  }
  struct wide to, grad, from;
  FRAME_TRY(widen(frame, &to, target, false));
  FRAME_TRY(widen(frame, &grad, &task->grad, true));
  FRAME_TRY(widen(frame, &from, x, true));
  product = matmul_get_gradient(task, of_b, &to.view, &grad.view, &from.view);
  FRAME_TRY(frame_get_code(frame, product_sum(frame->stream, &product, &err), &err));
  return frame_get_code(frame, kernel_copy(frame->stream, target, &to.view, &err), &err);
}

diopiError_t matmul_run_backward(struct matmul_task *task) {
  FRAME_TRY(run_gradient(task, false, &task->grad_a, &task->b));
  return run_gradient(task, true, &task->grad_b, &task->a);
}
