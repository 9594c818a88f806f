/// Index of the extreme element along one dimension (see reduce_index.h).
///
/// A line along memory is folded block by block, and only the block that wins is searched; otherwise a block of
/// neighbouring lines advances together. Values are copied from where they were found, so no rounding happens.
#include "reduce_index.h"

#include <string.h>

#include "cast.h"
#include "dit/parallel.h"
#include "host.h"
#include "nest.h"
#include "reduce.h"
#include "simd.h"

#define ROW_BLOCK_DIRECT 2048
#define COLUMN_BLOCK 256
#define FIND_BLOCK 16

struct index_task {
  struct nest nest;  ///< all dimensions but one; operands in, indices, values
  const struct reduce_fold *fold;
  int64_t length, in_step;
  int dtype, work, width;
  bool largest, has_values, rows;
  bool direct;  ///< a row is read where it lies
};

static const void *load_block(const struct index_task *task, const char *data, int64_t stride, int64_t count,
                              char *room) {
  _Alignas(16) char raw[NEST_BLOCK * 8];
  const bool strided = stride != task->width && count > 1;
  if (task->dtype == task->work) {
    if (!strided) {
      return data;
    }
    cast_gather(room, data, stride, task->width, count);
    return room;
  }
  if (strided) {
    cast_gather(raw, data, stride, task->width, count);
    data = raw;
  }
  cast_block(task->work, room, task->dtype, data, count);
  return room;
}

#define REAL float
#define INDEX int32_t
#define IS_NAN(x) ((x) != (x))
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#include "reduce_index_loops.h"
#undef REAL
#undef INDEX
#undef NAME
#undef BODY
#define REAL double
#define INDEX int64_t
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#include "reduce_index_loops.h"
#undef REAL
#undef IS_NAN
#undef NAME
#undef BODY
#define REAL int64_t
#define IS_NAN(x) ((void)(x), 0)
#define NAME(x) x##_i64
#define BODY(x) x##_i64_body
#include "reduce_index_loops.h"

static void store_found(const struct index_task *task, char *const *data, int64_t first, const int64_t *found,
                        int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    memcpy(data[1] + (first + i) * task->nest.strides[1][0], &found[i], sizeof(int64_t));
    if (task->has_values) {
      memcpy(data[2] + (first + i) * task->nest.strides[2][0],
             data[0] + (first + i) * task->nest.strides[0][0] + found[i] * task->in_step, (size_t)task->width);
    }
  }
}

static void run_lines(void *context, char *const *data, int64_t count) {
  const struct index_task *task = context;
  int64_t found[COLUMN_BLOCK];
  for (int64_t i = 0; i < count; i += task->rows ? 1 : COLUMN_BLOCK) {
    const char *in = data[0] + i * task->nest.strides[0][0];
    int64_t n = task->rows ? 1 : count - i < COLUMN_BLOCK ? count - i : COLUMN_BLOCK;
    if (task->rows) {
      found[0] = task->work == DIT_DTYPE_F32   ? find_row_f32(task, in)
                 : task->work == DIT_DTYPE_F64 ? find_row_f64(task, in)
                                               : find_row_i64(task, in);
    } else if (task->work == DIT_DTYPE_F32) {
      find_columns_f32(task, in, n, found);
    } else if (task->work == DIT_DTYPE_F64) {
      find_columns_f64(task, in, n, found);
    } else {
      find_columns_i64(task, in, n, found);
    }
    store_found(task, data, i, found, n);
  }
}

static void run_range(void *context, int64_t begin, int64_t end) {
  struct index_task *task = context;
  nest_walk(&task->nest, begin, end, run_lines, task);
}

static void run_index(void *argument) {
  struct index_task *task = argument;
  int64_t grain = NEST_GRAIN / task->length;
  if (!task->rows) {
    grain = grain < COLUMN_BLOCK ? COLUMN_BLOCK : grain;
  }
  dit_parallel_for(0, task->nest.numel, grain, run_range, task);
}

/// The views without dimension `dim`.
static void drop_dim(const struct dit_tensor_view *in, int dim, struct dit_tensor_view *view, int64_t *sizes,
                     int64_t *strides) {
  int next = 0;
  for (int d = 0; d < in->ndim; d++) {
    if (d != dim) {
      sizes[next] = in->sizes[d];
      strides[next++] = view->strides[d];
    }
  }
  view->ndim = next;
  view->sizes = sizes;
  view->strides = strides;
  view->numel = in->numel / in->sizes[dim];
}

enum dit_status reduce_index_launch(void *stream, bool largest, const struct dit_tensor_view *values,
                                    const struct dit_tensor_view *indices, const struct dit_tensor_view *in, int dim,
                                    struct dit_error *err) {
  struct index_task task;
  struct dit_tensor_view views[3] = {*in, *indices, values ? *values : *indices};
  int64_t sizes[3][DIT_MAX_DIMS], strides[3][DIT_MAX_DIMS];
  task.dtype = in->dtype;
  task.width = (int)dit_dtype_get_size(in->dtype);
  task.work = in->dtype == DIT_DTYPE_F64                                                                ? DIT_DTYPE_F64
              : in->dtype == DIT_DTYPE_F32 || in->dtype == DIT_DTYPE_F16 || in->dtype == DIT_DTYPE_BF16 ? DIT_DTYPE_F32
                                                                                                        : DIT_DTYPE_I64;
  if (task.width > 8 || !cast_is_supported(task.work, in->dtype) || in->dtype == DIT_DTYPE_C32 ||
      in->dtype == DIT_DTYPE_C64 || in->dtype == DIT_DTYPE_U64) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (in->numel == 0) {
    return DIT_OK;
  }
  for (int i = 0; i < 3; i++) {
    drop_dim(in, dim, &views[i], sizes[i], strides[i]);
  }
  nest_init(&task.nest, 3, (const struct dit_tensor_view *const[]){&views[0], &views[1], &views[2]});
  task.fold = reduce_find_fold(largest ? REDUCE_MAX : REDUCE_MIN, task.work);
  task.length = in->sizes[dim];
  task.in_step = in->strides[dim] * task.width;
  task.largest = largest;
  task.has_values = values != NULL;
  task.direct = task.dtype == task.work && task.in_step == task.width;
  task.rows = task.nest.numel == 1 || task.in_step <= task.nest.strides[0][0] || task.nest.sizes[0] < 8 ||
              task.length > INT32_MAX;
  return host_stream_launch(stream, run_index, &task, sizeof(task), err);
}
