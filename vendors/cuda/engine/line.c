/// Running sums, sorting, gradients of norms and normalisation on CUDA (vendors/host/ops: scan.h, sort.h,
/// reduce_norm.h).
#include "kernels/line.h"

#include "launch.h"
#include "ops/fail.h"
#include "ops/gather.h"
#include "ops/reduce_norm.h"
#include "ops/scan.h"
#include "ops/sort.h"
#include "order.h"
#include "packed.h"

KERNEL_REFERENCE(scan_rows_f32, line);
KERNEL_REFERENCE(scan_rows_f64, line);
KERNEL_REFERENCE(scan_rows_i64, line);
KERNEL_REFERENCE(scan_columns_f32, line);
KERNEL_REFERENCE(scan_columns_f64, line);
KERNEL_REFERENCE(scan_columns_i64, line);
KERNEL_REFERENCE(sort_keys, line);
KERNEL_REFERENCE(sort_read, line);
KERNEL_REFERENCE(norm_rows_f32, line);
KERNEL_REFERENCE(norm_rows_f64, line);

#define CHOOSE(name, work) ((work) == DIT_DTYPE_F32 ? &name##_f32 : (work) == DIT_DTYPE_F64 ? &name##_f64 : &name##_i64)

diopiError_t scan_run(struct scan_task *task) {
  struct frame *frame = task->frame;
  struct packed in, out;
  struct dit_error err = {.message = ""};
  FRAME_TRY(packed_read(&in, frame, task->v_in));
  FRAME_TRY(packed_reserve(&out, frame, task->v_out));
  const struct scan_kernel kernel = {.in = in.view.data,
                                     .out = out.view.data,
                                     .outer = task->shape.outer,
                                     .length = task->shape.length,
                                     .inner = task->shape.inner,
                                     .in_dtype = in.view.dtype,
                                     .out_dtype = out.view.dtype,
                                     .is_reverse = task->reverse};
  const bool rows = kernel.inner == 1 && kernel.length > 32;
  const struct kernel_grid grid = {.x = rows ? kernel_get_blocks(kernel.outer, 1)
                                             : kernel_get_blocks(kernel.outer * kernel.inner, LINE_KERNEL_THREADS),
                                   .threads = LINE_KERNEL_THREADS};
  struct kernel *run = rows ? CHOOSE(scan_rows, task->work) : CHOOSE(scan_columns, task->work);
  FRAME_TRY(frame_get_code(frame, kernel_launch(run, frame->stream, grid, &kernel, &err), &err));
  return packed_store(&out, frame, task->v_out);
}

// Sorting

static enum dit_status launch_sort(const struct sort_task *task, struct sort_kernel *kernel, struct dit_error *err) {
  void *stream = task->frame->stream;
  struct order order;
  const int64_t total = task->rows * task->length;
  DIT_RETURN_IF_NOT_OK(order_init(&order, task->frame->context, total, task->width == 8, err));
  struct kernel_grid grid = {.x = kernel_get_blocks(total, LINE_KERNEL_THREADS), .threads = LINE_KERNEL_THREADS};
  kernel->keys = order.keys;
  kernel->places = order.places;
  DIT_RETURN_IF_NOT_OK(kernel_launch(&sort_keys, stream, grid, kernel, err));
  DIT_RETURN_IF_NOT_OK(order_sort(&order, stream, task->dtype == DIT_DTYPE_BOOL ? 8 : 8 * task->width, err));
  DIT_RETURN_IF_NOT_OK(order_sort_lines(&order, stream, task->length, task->rows, err));
  kernel->places = order.places;
  grid.x = kernel_get_blocks(task->rows * task->keep, LINE_KERNEL_THREADS);
  return kernel_launch(&sort_read, stream, grid, kernel, err);
}

diopiError_t sort_run(struct sort_task *task) {
  struct frame *frame = task->frame;
  struct packed in, values, indices;
  struct dit_error err = {.message = ""};
  if (task->rows * task->length >= (int64_t)UINT32_MAX) {
    return frame_get_code(frame, DIT_ERR_UNSUPPORTED, &err);
  }
  FRAME_TRY(packed_read(&in, frame, &task->v_in));
  FRAME_TRY(packed_reserve(&values, frame, &task->v_values));
  FRAME_TRY(packed_reserve(&indices, frame, &task->v_indices));
  struct sort_kernel kernel = {.in = in.view.data,
                               .values = values.view.data,
                               .indices = indices.view.data,
                               .rows = task->rows,
                               .length = task->length,
                               .keep = task->keep,
                               .dtype = task->dtype,
                               .width = task->width,
                               .is_descending = task->descending};
  FRAME_TRY(frame_get_code(frame, launch_sort(task, &kernel, &err), &err));
  FRAME_TRY(packed_store(&values, frame, &task->v_values));
  return packed_store(&indices, frame, &task->v_indices);
}

/// Zeros, then a scatter along the last dimension.
diopiError_t sort_run_back(struct back_task *task) {
  struct scatter_task scatter = {.frame = &task->frame,
                                 .self = *task->v_out,
                                 .src = *task->v_grad,
                                 .index = *task->v_indices,
                                 .has_copied = true,
                                 .mode = SCATTER_SET};
  layout_raise(&scatter.self);
  layout_raise(&scatter.src);
  layout_raise(&scatter.index);
  scatter.dim = scatter.self.ndim - 1;
  return scatter_run(&scatter);
}

// Norms

diopiError_t norm_run_complex(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                              double p, uint32_t mask) {
  (void)out, (void)p, (void)mask;
  return frame_fail_dtype(frame, "input", in->dtype);
}

diopiError_t norm_run_rows(struct norm_task *task) {
  static const struct dit_tensor_view absent;
  struct frame *frame = task->frame;
  struct packed x, g, norm, out;
  struct dit_error err = {.message = ""};
  FRAME_TRY(packed_read(&x, frame, task->v_x));
  FRAME_TRY(packed_read(&g, frame, task->v_g ? task->v_g : &absent));
  FRAME_TRY(packed_read(&norm, frame, task->v_norm ? task->v_norm : &absent));
  FRAME_TRY(packed_reserve(&out, frame, task->v_out));
  const struct norm_kernel kernel = {.x = x.view.data,
                                     .g = g.view.data,
                                     .norm = norm.view.data,
                                     .out = out.view.data,
                                     .rows = task->kept,
                                     .length = task->length,
                                     .p = task->p,
                                     .eps = task->eps,
                                     .x_dtype = x.view.dtype,
                                     .g_dtype = g.view.dtype,
                                     .norm_dtype = norm.view.dtype,
                                     .out_dtype = out.view.dtype};
  const struct kernel_grid grid = {.x = kernel_get_blocks(kernel.rows, 1), .threads = LINE_KERNEL_THREADS};
  FRAME_TRY(frame_get_code(
      frame,
      kernel_launch(task->work == DIT_DTYPE_F64 ? &norm_rows_f64 : &norm_rows_f32, frame->stream, grid, &kernel, &err),
      &err));
  return packed_store(&out, frame, task->v_out);
}
