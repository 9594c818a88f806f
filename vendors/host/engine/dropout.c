/// Dropout: element i (row-major number) keeps its value when its random number is below `keep`.
///
/// The number of element i is word i % 4 of philox(seed, 0, offset + i / 4); its 32 bits are compared with keep * 2^32,
/// so keep 0 and 1 are exact. Strides of all three tensors are free.
#include <string.h>

#include "cast.h"
#include "dit/parallel.h"
#include "host.h"
#include "kernels.h"
#include "nest.h"
#include "philox.h"
#include "scalar.h"

struct operand {
  char *data;
  int64_t strides[DIT_MAX_DIMS];  ///< in bytes
};

struct dropout_task {
  struct operand out, mask, in;
  int ndim;
  int64_t sizes[DIT_MAX_DIMS];
  int dtype, width;
  bool contiguous;
  int64_t numel;
  uint64_t limit, seed, offset;
  double scale;
};

static void set_operand(struct operand *operand, const struct dit_tensor_view *view) {
  operand->data = view->data;
  for (int dim = 0; dim < view->ndim; dim++) {
    operand->strides[dim] = view->strides[dim] * (int64_t)dit_dtype_get_size(view->dtype);
  }
}

/// Addresses of `count` elements that start at row-major number `first`, gathered into or scattered from dense blocks.
static int64_t locate(const struct dropout_task *task, const struct operand *operand, int64_t index) {
  int64_t offset = 0;
  for (int dim = task->ndim - 1; dim >= 0; dim--) {
    offset += index % task->sizes[dim] * operand->strides[dim];
    index /= task->sizes[dim];
  }
  return offset;
}

static void draw(const struct dropout_task *task, int64_t first, int64_t count, uint8_t *mask) {
  uint32_t random[NEST_BLOCK];
  philox_fill(task->seed, task->offset + (uint64_t)first / 4, (count + 3) / 4, random);
  for (int64_t i = 0; i < count; i++) {
    mask[i] = random[i] < task->limit;
  }
}

static void scale_block(const struct dropout_task *task, void *out, const void *in, const uint8_t *mask,
                        int64_t count) {
  if (task->dtype == DIT_DTYPE_F64) {
    for (int64_t i = 0; i < count; i++) {
      ((double *)out)[i] = ((const double *)in)[i] * (double)mask[i] * task->scale;
    }
    return;
  }
  float block[NEST_BLOCK];
  const float scale = (float)task->scale;
  cast_block(DIT_DTYPE_F32, block, task->dtype, in, count);
  for (int64_t i = 0; i < count; i++) {
    block[i] = block[i] * (float)mask[i] * scale;
  }
  cast_block(task->dtype, out, DIT_DTYPE_F32, block, count);
}

/// Ranges begin at multiples of NEST_BLOCK, which is a multiple of 4: no philox word is split.
static void run_blocks(void *context, int64_t begin, int64_t end) {
  const struct dropout_task *task = context;
  for (int64_t block = begin; block < end; block++) {
    _Alignas(16) char in[NEST_BLOCK * 8], out[NEST_BLOCK * 8];
    uint8_t mask[NEST_BLOCK];
    int64_t first = block * NEST_BLOCK, count = task->numel - first < NEST_BLOCK ? task->numel - first : NEST_BLOCK;
    draw(task, first, count, mask);
    if (task->contiguous) {
      scale_block(task, task->out.data + first * task->width, task->in.data + first * task->width, mask, count);
      memcpy(task->mask.data + first, mask, (size_t)count);
      continue;
    }
    for (int64_t i = 0; i < count; i++) {
      memcpy(in + i * task->width, task->in.data + locate(task, &task->in, first + i), (size_t)task->width);
    }
    scale_block(task, out, in, mask, count);
    for (int64_t i = 0; i < count; i++) {
      memcpy(task->out.data + locate(task, &task->out, first + i), out + i * task->width, (size_t)task->width);
      task->mask.data[locate(task, &task->mask, first + i)] = (char)mask[i];
    }
  }
}

static void run_dropout(void *argument) {
  struct dropout_task *task = argument;
  int64_t blocks = (task->numel + NEST_BLOCK - 1) / NEST_BLOCK;
  dit_parallel_for(0, blocks, 8192 / NEST_BLOCK, run_blocks, task);
}

enum dit_status kernel_dropout(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *mask,
                               const struct dit_tensor_view *in, double keep, double scale, uint64_t seed,
                               uint64_t offset, struct dit_error *err) {
  struct dropout_task task;
  bool half = in->dtype == DIT_DTYPE_F16 || in->dtype == DIT_DTYPE_BF16;
  if ((!half && in->dtype != DIT_DTYPE_F32 && in->dtype != DIT_DTYPE_F64) || out->dtype != in->dtype ||
      mask->dtype != DIT_DTYPE_BOOL) {
    return DIT_ERR_UNSUPPORTED;
  }
  set_operand(&task.out, out);
  set_operand(&task.mask, mask);
  set_operand(&task.in, in);
  task.ndim = in->ndim;
  memcpy(task.sizes, in->sizes, sizeof(int64_t) * (size_t)in->ndim);
  task.dtype = in->dtype;
  task.width = (int)dit_dtype_get_size(in->dtype);
  task.contiguous = (out->flags & mask->flags & in->flags & DIT_TENSOR_CONTIGUOUS) != 0;
  task.numel = in->numel;
  task.limit = (uint64_t)(keep * 4294967296.0);
  task.scale = scale;
  task.seed = seed;
  task.offset = offset;
  return in->numel == 0 ? DIT_OK : host_stream_launch(stream, run_dropout, &task, sizeof(task), err);
}
