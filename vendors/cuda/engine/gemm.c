/// Matrix products on CUDA (vendors/host/engine/kernels.h says what they do), by cuBLASLt
/// where it is there and takes the strides, else by the built-in kernel.
#include "kernels/gemm.h"

#include <string.h>

#include "cublaslt.h"
#include "engine/kernels.h"
#include "launch.h"

KERNEL_REFERENCE(gemm_f32, gemm);
KERNEL_REFERENCE(gemm_f64, gemm);
KERNEL_REFERENCE(gemm_f16, gemm);
KERNEL_REFERENCE(gemm_bf16, gemm);

/// Strides of a 3-d view; a dimension of size 1 is repeated when the result's is larger.
static void set_strides(int64_t *strides, const struct dit_tensor_view *view, const struct dit_tensor_view *out) {
  for (int dim = 0; dim < 3; dim++) {
    strides[dim] = out && view->sizes[dim] == 1 && out->sizes[dim] != 1 ? 0 : view->strides[dim];
  }
}

/// By cuBLASLt. A bias that it does not take as it lies is copied to the result first, which is added to.
static enum dit_status multiply(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *bias,
                                const struct gemm_kernel *task, struct dit_error *err) {
  if (cublaslt_takes(out->dtype, task)) {
    return cublaslt_multiply(stream, out->dtype, task, err);
  }
  struct gemm_kernel added = *task;
  added.bias = added.out;
  memcpy(added.bias_strides, added.out_strides, sizeof added.bias_strides);
  if (!task->bias || task->bias == task->out || !cublaslt_takes(out->dtype, &added)) {
    return DIT_ERR_UNSUPPORTED;
  }
  struct dit_tensor_view spread = *bias;
  spread.sizes = out->sizes;
  spread.strides = task->bias_strides;
  spread.numel = out->numel;
  spread.flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  DIT_RETURN_IF_NOT_OK(kernel_copy(stream, out, &spread, err));
  return cublaslt_multiply(stream, out->dtype, &added, err);
}

enum dit_status kernel_gemm(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                            const struct dit_tensor_view *b, const struct dit_tensor_view *bias, double alpha,
                            double beta, struct dit_error *err) {
  struct kernel *kernel = out->dtype == DIT_DTYPE_F32    ? &gemm_f32
                          : out->dtype == DIT_DTYPE_F64  ? &gemm_f64
                          : out->dtype == DIT_DTYPE_F16  ? &gemm_f16
                          : out->dtype == DIT_DTYPE_BF16 ? &gemm_bf16
                                                         : NULL;
  if (!kernel) {
    return DIT_ERR_UNSUPPORTED;
  }
  struct gemm_kernel task = {.out = out->data,
                             .a = a->data,
                             .b = b->data,
                             .bias = bias && beta != 0 ? bias->data : NULL,
                             .batch = out->sizes[0],
                             .rows = out->sizes[1],
                             .columns = out->sizes[2],
                             .depth = a->sizes[2],
                             .alpha = alpha,
                             .beta = beta};
  if (task.batch == 0 || task.rows == 0 || task.columns == 0) {
    return DIT_OK;
  }
  set_strides(task.out_strides, out, NULL);
  set_strides(task.a_strides, a, NULL);
  set_strides(task.b_strides, b, NULL);
  if (task.bias) {
    set_strides(task.bias_strides, bias, out);
  }
  const enum dit_status status = multiply(stream, out, bias, &task, err);
  if (status != DIT_ERR_UNSUPPORTED) {
    return status;
  }
  const int64_t tiles[2] = {(task.columns + GEMM_KERNEL_TILE - 1) / GEMM_KERNEL_TILE,
                            (task.rows + GEMM_KERNEL_TILE - 1) / GEMM_KERNEL_TILE};
  if (tiles[0] > INT32_MAX || tiles[1] > 65535) {
    return DIT_ERR_UNSUPPORTED;
  }
  const struct kernel_grid grid = {.x = (unsigned)tiles[0],
                                   .y = (unsigned)tiles[1],
                                   .z = (unsigned)(task.batch > 65535 ? 65535 : task.batch),
                                   .threads = GEMM_KERNEL_THREADS};
  return kernel_launch(kernel, stream, grid, &task, err);
}
