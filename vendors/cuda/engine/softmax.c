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
#define ROW_TAGS(X) X(f32) X(f16) X(bf16) X(f16_f32) X(bf16_f32) X(gradient_f32) X(gradient_f16) X(gradient_bf16)
#define ROW_REFERENCES(tag)                         \
  KERNEL_REFERENCE(softmax_row_##tag, softmax_row); \
  KERNEL_REFERENCE(softmax_long_##tag, softmax_row);
ROW_TAGS(ROW_REFERENCES)

/// For rows: those that wait in registers, and longer ones. NULL where there are none.
struct row_kernels {
  struct kernel *general, *row, *longer;
};
#define ROW_KERNELS(tag) {&softmax_##tag, &softmax_row_##tag, &softmax_long_##tag},
static const struct row_kernels row_kernels[] = {ROW_TAGS(ROW_KERNELS)};
#define UNEVEN_ROW 2048  ///< elements of a row that is worth a large block though it has no whole number of vectors
#define OWN_SHARED 1024  ///< bytes of shared memory that the kernels have beside a row, and more

/// Packed rows of whole vectors, and long ones of any length, take the kernels of rows: the one that does, or NULL.
static struct kernel *choose_rows(struct softmax_kernel *task, const struct kernel *general,
                                  const struct dit_tensor_view *const *views, int count, int dim,
                                  struct kernel_grid *grid) {
  const struct row_kernels *found = NULL;
  const size_t width = dit_dtype_get_size(views[1]->dtype), bytes = (size_t)task->length * width;
  for (size_t i = 0; i < sizeof row_kernels / sizeof *row_kernels; i++) {
    found = row_kernels[i].general == general ? &row_kernels[i] : found;
  }
  bool is_packed = found && dim == views[0]->ndim - 1 && bytes / 16 <= INT32_MAX, is_even = bytes % 16 == 0;
  for (int i = 0; i < count; i++) {
    const size_t size = dit_dtype_get_size(views[i]->dtype), vector = 16 / width * size;
    is_packed = is_packed && views[i]->flags & DIT_TENSOR_CONTIGUOUS && (uintptr_t)views[i]->data % size == 0;
    is_even = is_even && (uintptr_t)views[i]->data % vector == 0;
  }
  // long rows may begin anywhere, if all operands do so alike
  for (int i = 0; i < count; i++) {
    is_packed = is_packed && (is_even || (task->length >= UNEVEN_ROW && views[i]->dtype == views[0]->dtype &&
                                          ((uintptr_t)views[i]->data - (uintptr_t)views[0]->data) % 16 == 0));
  }
  if (!is_packed) {
    return NULL;
  }
  for (int i = 0; i < count; i++) {
    task->lines.data[i] = views[i]->data;
  }
  task->lines.numel = views[0]->numel / task->length;
  task->lanes = is_even ? row_get_lanes((int64_t)(bytes / 16)) : 0;
  if (task->lanes > 0) {
    grid->threads = task->lanes > 32 ? (unsigned)task->lanes : ROW_SMALL;
    const int64_t rows = grid->threads / (unsigned)task->lanes, blocks = (task->lines.numel + rows - 1) / rows;
    grid->x = (unsigned)blocks;
    return blocks <= INT32_MAX ? found->row : NULL;
  }
  task->is_cached = bytes + OWN_SHARED <= kernel_get_shared_limit();
  *grid = (struct kernel_grid){.x = kernel_get_blocks(task->lines.numel, 1),
                               .threads = SOFTMAX_KERNEL_LONG,
                               .shared = task->is_cached ? bytes / 16 * 16 : 0};
  return found->longer;
}

/// `views`: the result, the input and, for the gradient, a third; all of one shape.
static enum dit_status launch(struct kernel *kernel, void *stream, const struct dit_tensor_view *const *views,
                              int count, int dim, bool log, struct dit_error *err) {
  struct softmax_kernel task = {.length = views[0]->sizes[dim], .is_log = log};
  struct dit_tensor_view lines[3];
  const struct dit_tensor_view *first[3];
  int64_t sizes[DIT_MAX_DIMS], numel = 1;
  struct nest nest;
  struct kernel_grid rows = {0};
  struct kernel *row = choose_rows(&task, kernel, views, count, dim, &rows);
  if (row) {
    return kernel_launch(row, stream, rows, &task, err);
  }
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
