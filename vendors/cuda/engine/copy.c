/// Copies, conversions, fills and ramps on CUDA (vendors/host/engine/kernels.h and ramp.h say what they do).
#include "kernels/copy.h"

#include <string.h>

#include "engine/kernels.h"
#include "engine/nest.h"
#include "engine/ramp.h"
#include "kinds.h"
#include "launch.h"
#include "plan.h"

#define THREADS 256

#define REFERENCES(width)                       \
  KERNEL_REFERENCE(copy_strided_##width, copy); \
  KERNEL_REFERENCE(fill_strided_##width, copy);
WIDTH_KINDS(REFERENCES)
KERNEL_REFERENCE(copy_convert, copy);
KERNEL_REFERENCE(convert_f32_bf16, copy);
KERNEL_REFERENCE(convert_bf16_f32, copy);
KERNEL_REFERENCE(convert_f32_f16, copy);
KERNEL_REFERENCE(convert_f16_f32, copy);
KERNEL_REFERENCE(transpose_2, copy);
KERNEL_REFERENCE(transpose_4, copy);
KERNEL_REFERENCE(transpose_8, copy);
KERNEL_REFERENCE(fill_flat_16, copy);
KERNEL_REFERENCE(ramp, copy);

static struct kernel *get_copy(size_t width) {
  return width == 1   ? &copy_strided_1
         : width == 2 ? &copy_strided_2
         : width == 4 ? &copy_strided_4
         : width == 8 ? &copy_strided_8
                      : &copy_strided_16;
}

static struct kernel *get_fill(size_t width) {
  return width == 1   ? &fill_strided_1
         : width == 2 ? &fill_strided_2
         : width == 4 ? &fill_strided_4
         : width == 8 ? &fill_strided_8
                      : &fill_strided_16;
}

static bool is_flat(const struct nest *nest, int to_width, int from_width) {
  return nest->ndim == 1 && nest->strides[0][0] == to_width && nest->strides[1][0] == from_width;
}

static struct kernel *find_convert(int to, int from) {
  return to == DIT_DTYPE_F32 && from == DIT_DTYPE_BF16   ? &convert_f32_bf16
         : to == DIT_DTYPE_BF16 && from == DIT_DTYPE_F32 ? &convert_bf16_f32
         : to == DIT_DTYPE_F32 && from == DIT_DTYPE_F16  ? &convert_f32_f16
         : to == DIT_DTYPE_F16 && from == DIT_DTYPE_F32  ? &convert_f16_f32
                                                         : NULL;
}

static bool is_convertible(int dtype) {
  return plan_is_loadable(dtype) || dtype == DIT_DTYPE_C32 || dtype == DIT_DTYPE_C64 || dtype == DIT_DTYPE_C128;
}

/// Neighbours of the output lie apart in the input, which has neighbours along another dimension: its number, or -1.
static int find_transpose(const struct nest *nest, int width) {
  const bool fits = (width == 2 || width == 4 || width == 8) && nest->ndim >= 2 &&
                    nest->ndim <= TRANSPOSE_KERNEL_DIMS + 2 && nest->strides[0][0] == width &&
                    nest->strides[1][0] != width && nest->strides[1][0] != 0 && nest->sizes[0] >= TRANSPOSE_KERNEL_TILE;
  for (int dim = 1; fits && dim < nest->ndim; dim++) {
    if (nest->strides[1][dim] == width && nest->sizes[dim] >= TRANSPOSE_KERNEL_TILE) {
      return dim;
    }
  }
  return -1;
}

static enum dit_status launch_transpose(void *stream, const struct nest *nest, int width, int rows,
                                        struct dit_error *err) {
  struct transpose_kernel task = {.to = nest->data[0],
                                  .from = nest->data[1],
                                  .columns = nest->sizes[0],
                                  .rows = nest->sizes[rows],
                                  .to_step = nest->strides[0][rows],
                                  .from_step = nest->strides[1][0]};
  const int64_t tile = TRANSPOSE_KERNEL_TILE;
  task.tiles = ((task.columns + tile - 1) / tile) * ((task.rows + tile - 1) / tile);
  for (int dim = 1; dim < nest->ndim; dim++) {
    if (dim != rows) {
      task.sizes[task.ndim] = nest->sizes[dim];
      task.strides[task.ndim][0] = nest->strides[0][dim];
      task.strides[task.ndim++][1] = nest->strides[1][dim];
      task.tiles *= nest->sizes[dim];
    }
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(task.tiles, 1), .threads = THREADS};
  return kernel_launch(width == 2 ? &transpose_2 : width == 4 ? &transpose_4 : &transpose_8, stream, grid, &task, err);
}

/// Where neighbours lie side by side on both sides, the widest elements that all rows are made of: 16 bytes at most.
static int widen(struct nest *nest, int width) {
  const bool packed = nest->strides[0][0] == width && nest->strides[1][0] == width;
  for (int wide = 16; packed && wide > width; wide /= 2) {
    const uintptr_t addresses = (uintptr_t)nest->data[0] | (uintptr_t)nest->data[1];
    bool fits = addresses % (uintptr_t)wide == 0 && nest->sizes[0] * width % wide == 0;
    for (int dim = 1; fits && dim < nest->ndim; dim++) {
      fits = (nest->strides[0][dim] | nest->strides[1][dim]) % wide == 0;
    }
    if (fits) {
      nest->sizes[0] = nest->sizes[0] * width / wide;
      nest->numel = nest->numel * width / wide;
      nest->strides[0][0] = nest->strides[1][0] = wide;
      return wide;
    }
  }
  return width;
}

enum dit_status kernel_copy(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                            struct dit_error *err) {
  const int width = (int)dit_dtype_get_size(out->dtype), from_width = (int)dit_dtype_get_size(in->dtype);
  const bool same = out->dtype == in->dtype;
  struct nest nest;
  struct pointwise_strided strided;
  if (!same && (!is_convertible(out->dtype) || !is_convertible(in->dtype))) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (out->numel == 0) {
    return DIT_OK;
  }
  nest_init(&nest, 2, (const struct dit_tensor_view *const[]){out, in});
  const bool flat = is_flat(&nest, width, from_width);
  if (flat && same) {
    return out->data == in->data ? DIT_OK : launch_copy(stream, out->data, in->data, (size_t)(nest.numel * width), err);
  }
  struct kernel *convert = flat ? find_convert(out->dtype, in->dtype) : NULL;
  if (convert && ((uintptr_t)out->data | (uintptr_t)in->data) % 16 == 0) {
    const struct copy_flat task = {out->data, in->data, nest.numel};
    const int64_t block = THREADS * 4 * CONVERT_KERNEL_VECTORS, blocks = (nest.numel + block - 1) / block;
    const struct kernel_grid grid = {.x = (unsigned)(blocks < 1 << 30 ? blocks : 1 << 30), .threads = THREADS};
    return kernel_launch(convert, stream, grid, &task, err);
  }
  const int rows = same ? find_transpose(&nest, width) : -1;
  if (rows > 0) {
    return launch_transpose(stream, &nest, width, rows, err);
  }
  const int moved = same ? widen(&nest, width) : width;
  if (!plan_set_strided(&strided, &nest)) {
    return DIT_ERR_UNSUPPORTED;
  }
  strided.dtype[0] = out->dtype;
  strided.dtype[1] = in->dtype;
  const struct kernel_grid grid = {.x = kernel_get_blocks(nest.numel, THREADS * 2), .threads = THREADS};
  return kernel_launch(same ? get_copy((size_t)moved) : &copy_convert, stream, grid, &strided, err);
}

enum dit_status kernel_fill(void *stream, const struct dit_tensor_view *out, struct dit_scalar value,
                            struct dit_error *err) {
  const size_t width = dit_dtype_get_size(out->dtype);
  struct fill_flat task = {.to = out->data};
  struct pointwise_strided strided;
  struct nest nest;
  if (!kernel_store_scalar(value, out->dtype, task.value)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (out->numel == 0) {
    return DIT_OK;
  }
  bool uniform = true;
  for (size_t i = 0; i < 16; i++) {
    task.value[i] = task.value[i % width];
    uniform = uniform && task.value[i] == task.value[0];
  }
  nest_init(&nest, 1, &out);
  const bool flat = nest.ndim == 1 && nest.strides[0][0] == (int64_t)width;
  const size_t bytes = (size_t)nest.numel * width;
  if (flat && uniform) {
    return launch_set(stream, out->data, task.value[0], bytes, err);
  }
  if (flat && (uintptr_t)out->data % 16 == 0 && bytes % 16 == 0) {
    task.numel = (int64_t)(bytes / 16);
    const struct kernel_grid grid = {.x = kernel_get_blocks(task.numel, THREADS * 2), .threads = THREADS};
    return kernel_launch(&fill_flat_16, stream, grid, &task, err);
  }
  if (!plan_set_strided(&strided, &nest)) {
    return DIT_ERR_UNSUPPORTED;
  }
  memcpy(strided.numbers, task.value, sizeof task.value);
  const struct kernel_grid grid = {.x = kernel_get_blocks(nest.numel, THREADS * 2), .threads = THREADS};
  return kernel_launch(get_fill(width), stream, grid, &strided, err);
}

enum dit_status ramp_launch(void *stream, const struct ramp_task *task, struct dit_error *err) {
  const struct ramp_kernel kernel = {.data = task->data,
                                     .stride = task->stride,
                                     .count = task->count,
                                     .steps = task->steps,
                                     .dtype = task->dtype,
                                     .is_integer = task->is_integer,
                                     .is_linspace = task->is_linspace,
                                     .istart = task->istart,
                                     .istep = task->istep,
                                     .start = task->start,
                                     .end = task->end,
                                     .step = task->step};
  if (!plan_is_loadable(task->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (task->count == 0) {
    return DIT_OK;
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(task->count, THREADS), .threads = THREADS};
  return kernel_launch(&ramp, stream, grid, &kernel, err);
}
