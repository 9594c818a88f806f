/// copy and fill: the kernels that only move and convert elements.
///
/// copy: contiguous runs of one type are memcpy, a run that is strided on one side and contiguous on the other in a
/// second dimension is a blocked transpose, the rest is gathered, converted and scattered in blocks. fill: the value is
/// converted once.
#include <string.h>

#include "cast.h"
#include "dit/parallel.h"
#include "host.h"
#include "kernels.h"
#include "nest.h"
#include "scalar.h"

struct copy_task {
  struct nest nest;
  int dst_dtype, src_dtype;
  int dst_width, src_width;
};

static void copy_run(void *context, char *const *data, int64_t count) {
  const struct copy_task *task = context;
  const int64_t dst_stride = task->nest.strides[0][0], src_stride = task->nest.strides[1][0];
  if (task->dst_dtype == task->src_dtype) {
    cast_move(data[0], dst_stride, data[1], src_stride, task->dst_width, count);
    return;
  }
  if (dst_stride == task->dst_width && src_stride == task->src_width) {
    cast_block(task->dst_dtype, data[0], task->src_dtype, data[1], count);
    return;
  }
  _Alignas(16) char src_block[NEST_BLOCK * 16], dst_block[NEST_BLOCK * 16];
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    int64_t n = count - i < NEST_BLOCK ? count - i : NEST_BLOCK;
    cast_gather(src_block, data[1] + i * src_stride, src_stride, task->src_width, n);
    cast_block(task->dst_dtype, dst_block, task->src_dtype, src_block, n);
    cast_scatter(data[0] + i * dst_stride, dst_stride, dst_block, task->dst_width, n);
  }
}

/// Tiles of TILE x TILE elements keep both sides in the first-level cache.
#define TILE 16

#define TRANSPOSE_TILE(type)                                                                                   \
  for (int64_t j = 0; j < outer; j++) {                                                                        \
    for (int64_t i = 0; i < inner; i++) {                                                                      \
      memcpy(dst + i * (int64_t)sizeof(type) + j * dst_outer, src + i * src_inner + j * (int64_t)sizeof(type), \
             sizeof(type));                                                                                    \
    }                                                                                                          \
  }                                                                                                            \
  break;

/// dst contiguous along `inner`, src contiguous along `outer`.
static void transpose_tile(int width, char *dst, int64_t dst_outer, const char *src, int64_t src_inner, int64_t inner,
                           int64_t outer) {
  switch (width) {
    case 1:
      TRANSPOSE_TILE(uint8_t)
    case 2:
      TRANSPOSE_TILE(uint16_t)
    case 4:
      TRANSPOSE_TILE(uint32_t)
    default:
      TRANSPOSE_TILE(uint64_t)
  }
}

static bool is_transpose(const struct copy_task *task) {
  const struct nest *nest = &task->nest;
  return task->dst_dtype == task->src_dtype && nest->ndim >= 2 && task->dst_width <= 8 &&
         nest->strides[0][0] == task->dst_width && nest->strides[1][1] == task->src_width && nest->sizes[0] >= TILE &&
         nest->sizes[1] >= TILE;
}

struct band_task {
  const struct copy_task *copy;
  int64_t bands;  ///< per matrix
};

/// Tasks are bands of TILE steps of dimension 1; the dimensions above select the matrix.
static void transpose_bands(void *context, int64_t begin, int64_t end) {
  const struct band_task *task = context;
  const struct nest *nest = &task->copy->nest;
  const int width = task->copy->dst_width;
  for (int64_t band = begin; band < end; band++) {
    char *dst = nest->data[0];
    const char *src = nest->data[1];
    int64_t rest = band / task->bands, first = band % task->bands * TILE;
    for (int dim = 2; dim < nest->ndim; dim++) {
      dst += rest % nest->sizes[dim] * nest->strides[0][dim];
      src += rest % nest->sizes[dim] * nest->strides[1][dim];
      rest /= nest->sizes[dim];
    }
    int64_t outer = nest->sizes[1] - first < TILE ? nest->sizes[1] - first : TILE;
    dst += first * nest->strides[0][1];
    src += first * nest->strides[1][1];
    for (int64_t i = 0; i < nest->sizes[0]; i += TILE) {
      int64_t inner = nest->sizes[0] - i < TILE ? nest->sizes[0] - i : TILE;
      transpose_tile(width, dst + i * width, nest->strides[0][1], src + i * nest->strides[1][0], nest->strides[1][0],
                     inner, outer);
    }
  }
}

static void copy_all(void *argument) {
  struct copy_task *task = argument;
  if (is_transpose(task)) {
    struct band_task bands = {task, (task->nest.sizes[1] + TILE - 1) / TILE};
    int64_t count = bands.bands;
    for (int dim = 2; dim < task->nest.ndim; dim++) {
      count *= task->nest.sizes[dim];
    }
    int64_t grain = NEST_GRAIN / (TILE * task->nest.sizes[0]);
    dit_parallel_for(0, count, grain, transpose_bands, &bands);
    return;
  }
  nest_run(&task->nest, copy_run, task);
}

enum dit_status kernel_copy(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                            struct dit_error *err) {
  if (!cast_is_supported(out->dtype, in->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (out->numel == 0) {
    return DIT_OK;
  }
  if (!stream && out->flags & in->flags & DIT_TENSOR_CONTIGUOUS && out->numel <= NEST_GRAIN) {
    if (out->data != in->data) {
      cast_block(out->dtype, out->data, in->dtype, in->data, out->numel);
    }
    return DIT_OK;
  }
  struct copy_task task;
  nest_init(&task.nest, 2, (const struct dit_tensor_view *const[]){out, in});
  task.dst_dtype = out->dtype;
  task.src_dtype = in->dtype;
  task.dst_width = (int)dit_dtype_get_size(out->dtype);
  task.src_width = (int)dit_dtype_get_size(in->dtype);
  return host_stream_launch(stream, copy_all, &task, sizeof(task), err);
}

bool kernel_store_scalar(struct dit_scalar scalar, int dtype, void *dst) {
  switch (scalar.kind) {
    case DIT_SCALAR_BOOL:
    case DIT_SCALAR_INT:
      if (DIT_LIKELY(dtype == DIT_DTYPE_F32)) {
        *(float *)dst = (float)scalar.v.i;
        return true;
      }
      if (!cast_is_supported(dtype, DIT_DTYPE_I64)) {
        return false;
      }
      cast_block(dtype, dst, DIT_DTYPE_I64, &scalar.v.i, 1);
      return true;
    case DIT_SCALAR_DOUBLE:
      if (!cast_is_supported(dtype, DIT_DTYPE_F64)) {
        return false;
      }
      cast_block(dtype, dst, DIT_DTYPE_F64, &scalar.v.d, 1);
      return true;
    default:
      if (!cast_is_supported(dtype, DIT_DTYPE_C128)) {
        return false;
      }
      cast_block(dtype, dst, DIT_DTYPE_C128, &scalar.v.c, 1);
      return true;
  }
}

struct fill_task {
  struct nest nest;
  int width;
  _Alignas(16) char value[16];
};

static void fill_run(void *context, char *const *data, int64_t count) {
  const struct fill_task *task = context;
  const int64_t stride = task->nest.strides[0][0];
  if (stride != task->width) {
    cast_move(data[0], stride, task->value, 0, task->width, count);
    return;
  }
  bool uniform = true;
  for (int i = 1; i < task->width; i++) {
    uniform = uniform && task->value[i] == task->value[0];
  }
  if (uniform) {
    memset(data[0], task->value[0], (size_t)(count * task->width));
  } else {
    cast_move(data[0], task->width, task->value, 0, task->width, count);
  }
}

static void fill_all(void *argument) {
  struct fill_task *task = argument;
  nest_run(&task->nest, fill_run, task);
}

enum dit_status kernel_fill(void *stream, const struct dit_tensor_view *out, struct dit_scalar value,
                            struct dit_error *err) {
  struct fill_task task;
  memset(task.value, 0, sizeof(task.value));
  if (!kernel_store_scalar(value, out->dtype, task.value)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (out->numel == 0) {
    return DIT_OK;
  }
  task.width = (int)dit_dtype_get_size(out->dtype);
  nest_init(&task.nest, 1, &out);
  return host_stream_launch(stream, fill_all, &task, sizeof(task), err);
}
