/// List operators on CUDA (vendors/host/ops/foreach.h): tensors without gaps share launches, others have their own.
#include "kernels/foreach.h"

#include <math.h>

#include "engine/reduce.h"
#include "launch.h"
#include "ops/foreach.h"

KERNEL_REFERENCE(foreach_list_f32, foreach);
KERNEL_REFERENCE(foreach_list_f64, foreach);
KERNEL_REFERENCE(foreach_list_f16, foreach);
KERNEL_REFERENCE(foreach_list_bf16, foreach);

/// What is collected for the next launch: tensors of one dtype, with one number.
struct batch {
  struct foreach_kernel kernel;
  int64_t blocks;
  int dtype;
};

static diopiError_t flush(const struct foreach_list *list, struct batch *batch) {
  struct dit_error err = {.message = ""};
  struct kernel *kernel = batch->dtype == DIT_DTYPE_F64   ? &foreach_list_f64
                          : batch->dtype == DIT_DTYPE_F16 ? &foreach_list_f16
                          : batch->dtype == DIT_DTYPE_F32 ? &foreach_list_f32
                                                          : &foreach_list_bf16;
  const struct kernel_grid grid = {.x = (unsigned)batch->blocks, .threads = POINTWISE_KERNEL_THREADS};
  const enum dit_status status =
      batch->kernel.count ? kernel_launch(kernel, list->frame->stream, grid, &batch->kernel, &err) : DIT_OK;
  batch->kernel.count = 0;
  batch->blocks = 0;
  return frame_get_code(list->frame, status, &err);
}

/// Floating numbers of one dtype without gaps.
static bool is_listed(const struct pointwise *run) {
  const struct dit_tensor_view *out = run->views[0], *in = run->views[1];
  const struct dit_tensor_view *other = run->inputs > 1 ? run->views[2] : NULL;
  return frame_has_dtype(DTYPES_FLOAT, out->dtype) && in->dtype == out->dtype &&
         (!other || other->dtype == out->dtype) && out->flags & DIT_TENSOR_CONTIGUOUS &&
         in->flags & DIT_TENSOR_CONTIGUOUS &&
         (out->dtype == DIT_DTYPE_F64 ? run->work[0] == DIT_DTYPE_F64 : run->work[0] == DIT_DTYPE_F32);
}

static diopiError_t add_run(const struct foreach_list *list, struct batch *batch, struct elementwise *e) {
  const struct pointwise *run = &e->run;
  const struct dit_tensor_view *out = run->views[0], *in = run->views[1];
  if (!is_listed(run)) {
    return elementwise_launch(e);
  }
  const int64_t blocks = (out->numel + FOREACH_LIST_CHUNK - 1) / FOREACH_LIST_CHUNK;
  if (batch->kernel.count == FOREACH_LIST_TENSORS || batch->dtype != out->dtype || batch->blocks + blocks > INT32_MAX) {
    FRAME_TRY(flush(list, batch));
  }
  if (blocks == 0) {
    return diopiSuccess;
  }
  batch->dtype = out->dtype;
  batch->kernel.is_product = list->is_product;
  batch->kernel.other = run->inputs > 1 && run->views[2] ? run->views[2]->data : NULL;
  batch->kernel.number = run->work[0] == DIT_DTYPE_F64 ? *(const double *)(const void *)run->parameters
                                                       : (double)*(const float *)(const void *)run->parameters;
  batch->kernel.first[batch->kernel.count] = (int32_t)batch->blocks;
  batch->kernel.tensors[batch->kernel.count++] =
      (struct foreach_tensor){.out = out->data,
                              .in = in->data,
                              .numel = out->numel,
                              .is_aligned = ((uintptr_t)out->data | (uintptr_t)in->data) % 16 == 0};
  batch->blocks += blocks;
  return diopiSuccess;
}

diopiError_t foreach_run_list(const struct foreach_list *list) {
  struct batch batch = {.blocks = 0};
  for (int64_t i = 0; i < list->count; i++) {
    struct elementwise e;
    FRAME_TRY(list->prepare(list, i, &e));
    FRAME_TRY(add_run(list, &batch, &e));
  }
  return flush(list, &batch);
}

static enum reduce_kind get_kind(double p) {
  if (isinf(p)) {
    return p > 0 ? REDUCE_NORM_MAX : REDUCE_NORM_MIN;
  }
  return p == 0 ? REDUCE_NORM_0 : p == 1 ? REDUCE_NORM_1 : p == 2 ? REDUCE_NORM_2 : REDUCE_NORM_P;
}

diopiError_t foreach_run_norms(const struct foreach_norms *list) {
  int64_t ones[DIT_MAX_DIMS], none[DIT_MAX_DIMS] = {0};
  for (int dim = 0; dim < DIT_MAX_DIMS; dim++) {
    ones[dim] = 1;
  }
  for (int64_t i = 0; i < list->count; i++) {
    struct dit_tensor_view o, x;
    struct dit_error err = {.message = ""};
    FRAME_TRY(frame_take(list->frame, "outs", list->outs[i], &o));
    FRAME_TRY(frame_take(list->frame, "inputs", list->inputs[i], &x));
    if (x.ndim == 0) {
      x.ndim = 1;
      x.sizes = x.strides = ones;
    }
    o.ndim = x.ndim;
    o.sizes = ones;
    o.strides = none;
    const uint32_t mask = (uint32_t)((UINT64_C(1) << x.ndim) - 1);
    const enum dit_status status = reduce_launch(list->frame->stream, get_kind(list->p), list->p, &o, &x, mask, &err);
    FRAME_TRY(frame_get_code(list->frame, status, &err));
  }
  return diopiSuccess;
}
