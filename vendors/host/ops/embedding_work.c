/// Gradients and norms of embedding tables on the host (see embedding.c).
#include <math.h>
#include <string.h>

#include "dit/parallel.h"
#include "embedding.h"
#include "engine/cast.h"
#include "engine/index.h"
#include "engine/simd.h"

#define CHUNK 512

#define SUM_PARAMS (void *sum, const void *term, int64_t stride, double scale, int64_t count)
#define SUM_ARGS (sum, term, stride, scale, count)
/// sum[i] += scale * term[i]; `type` is the element's type, `stride` in elements.
#define SUM_LOOP(name, type, expr)            \
  KERNEL_INLINE void name##_body SUM_PARAMS { \
    type *restrict s = sum;                   \
    const type *restrict t = term;            \
    (void)scale;                              \
    if (stride == 1) {                        \
      for (int64_t i = 0; i < count; i++) {   \
        const type a = s[i], b = t[i];        \
        s[i] = (type)(expr);                  \
      }                                       \
      return;                                 \
    }                                         \
    for (int64_t i = 0; i < count; i++) {     \
      const type a = s[i], b = t[i * stride]; \
      s[i] = (type)(expr);                    \
    }                                         \
  }                                           \
  KERNEL_MULTI(static, name, SUM_PARAMS, SUM_ARGS)
SUM_LOOP(sum_f32, float, a + (float)scale * b)
SUM_LOOP(sum_f64, double, a + scale * b)
SUM_LOOP(sum_u8, uint8_t, a + b)
SUM_LOOP(sum_i16, uint16_t, a + b)
SUM_LOOP(sum_i32, uint32_t, a + b)
SUM_LOOP(sum_i64, uint64_t, a + b)

struct sum_row {
  int work;  ///< dtype of the sums
  void(*loop) SUM_PARAMS;
};
static const struct sum_row sums[] = {
    [DIT_DTYPE_F32] = {DIT_DTYPE_F32, sum_f32},  [DIT_DTYPE_F16] = {DIT_DTYPE_F32, sum_f32},
    [DIT_DTYPE_BF16] = {DIT_DTYPE_F32, sum_f32}, [DIT_DTYPE_F64] = {DIT_DTYPE_F64, sum_f64},
    [DIT_DTYPE_U8] = {DIT_DTYPE_U8, sum_u8},     [DIT_DTYPE_I8] = {DIT_DTYPE_I8, sum_u8},
    [DIT_DTYPE_I16] = {DIT_DTYPE_I16, sum_i16},  [DIT_DTYPE_I32] = {DIT_DTYPE_I32, sum_i32},
    [DIT_DTYPE_I64] = {DIT_DTYPE_I64, sum_i64},
};

/// Positions grouped by row: those of row r are order[starts[r]] to order[starts[r + 1] - 1].
struct rows {
  const struct embedding_task *task;
  const struct sum_row *sum;
  int64_t *starts, *order;
  int64_t *offsets;  ///< in bytes, of each position in grad
};

/// Columns [begin, begin + count) of one row.
static void sum_row(const struct rows *rows, int64_t row, int64_t begin, int64_t count) {
  const struct embedding_task *task = rows->task;
  const int64_t first = rows->starts[row], last = rows->starts[row + 1];
  const int64_t width = (int64_t)dit_dtype_get_size(task->out.dtype),
                stride = task->table.strides[task->table.ndim - 1];
  const double scale = task->scaled ? 1.0 / (double)(last - first) : 1;
  char *out = (char *)task->out.data + (row * task->out.strides[0] + begin * task->out.strides[1]) * width;
  _Alignas(64) char room[CHUNK * 8], wide[CHUNK * 8], raw[CHUNK * 8];
  const bool direct = rows->sum->work == task->out.dtype && task->out.strides[1] == 1;
  char *sum = direct ? out : room;
  memset(sum, 0, (size_t)count * dit_dtype_get_size(rows->sum->work));
  for (int64_t i = first; row != task->padding && i < last; i++) {
    const char *term = (const char *)task->table.data + rows->offsets[rows->order[i]] + begin * stride * width;
    if (rows->sum->work == task->out.dtype) {
      rows->sum->loop(sum, term, stride, scale, count);
      continue;
    }
    cast_gather(raw, term, stride * width, (int)width, count);
    cast_block(rows->sum->work, wide, task->out.dtype, raw, count);
    rows->sum->loop(sum, wide, 1, scale, count);
  }
  if (direct) {
    return;
  }
  cast_block(task->out.dtype, raw, rows->sum->work, sum, count);
  cast_scatter(out, task->out.strides[1] * width, raw, (int)width, count);
}

static void sum_rows(void *context, int64_t begin, int64_t end) {
  const struct rows *rows = context;
  const struct dit_tensor_view *out = &rows->task->out;
  for (int64_t row = begin; row < end; row++) {
    if (rows->starts[row] == rows->starts[row + 1] && out->flags & DIT_TENSOR_CONTIGUOUS) {
      const int64_t size = out->sizes[1] * (int64_t)dit_dtype_get_size(out->dtype);
      memset((char *)out->data + row * size, 0, (size_t)size);
      continue;
    }
    for (int64_t i = 0; i < out->sizes[1]; i += CHUNK) {
      sum_row(rows, row, i, out->sizes[1] - i < CHUNK ? out->sizes[1] - i : CHUNK);
    }
  }
}

/// Walks indices and the positions of grad (without its last dimension) in row-major order.
struct position_walk {
  struct rows *rows;
  int64_t *numbers, at;
  const char *base;
  int64_t index_stride, grad_stride;
  bool wide;
};

static void list_positions(void *context, char *const *data, int64_t count) {
  struct position_walk *walk = context;
  for (int64_t i = 0; i < count; i++, walk->at++) {
    const int64_t row = index_read(data[0] + i * walk->index_stride, walk->wide);
    walk->numbers[walk->at] = row;
    walk->rows->starts[row]++;
    walk->rows->offsets[walk->at] = data[1] + i * walk->grad_stride - walk->base;
  }
}

/// starts, order and offsets of `rows`; `numbers` is room.
static void group_rows(struct rows *rows, int64_t *numbers) {
  const struct embedding_task *task = rows->task;
  struct dit_tensor_view grad = task->table;
  struct nest nest;
  const int64_t table = task->out.sizes[0], count = task->indices.numel;
  grad.ndim = task->indices.ndim;
  grad.sizes = task->indices.sizes;
  grad.numel = count;
  nest_init_ordered(&nest, 2, (const struct dit_tensor_view *const[]){&task->indices, &grad});
  struct position_walk walk = {
      rows, numbers, 0, task->table.data, nest.strides[0][0], nest.strides[1][0], task->indices.dtype == DIT_DTYPE_I64};
  nest_walk(&nest, 0, count, list_positions, &walk);
  int64_t sum = 0;
  for (int64_t row = 0; row < table; row++) {
    sum += rows->starts[row];
    rows->starts[row] = sum;
  }
  rows->starts[table] = sum;
  for (int64_t i = count - 1; i >= 0; i--) {
    rows->order[--rows->starts[numbers[i]]] = i;
  }
}

static diopiError_t run_backward(void *argument) {
  struct embedding_task *task = argument;
  const int64_t count = task->indices.numel, table = task->out.sizes[0];
  struct rows rows = {task, &sums[task->out.dtype], NULL, NULL, NULL};
  FRAME_TRY(layout_check_index(task->frame, "indices", &task->indices, table, false));
  if (task->out.numel == 0) {
    return diopiSuccess;
  }
  rows.starts = dit_calloc((size_t)(table + 1 + 3 * count), sizeof *rows.starts);
  if (!rows.starts) {
    return frame_fail(task->frame, diopiErrorOccurred, "no memory for %lld positions and %lld rows", (long long)count,
                      (long long)table);
  }
  rows.order = rows.starts + table + 1;
  rows.offsets = rows.order + count;
  if (count > 0) {
    group_rows(&rows, rows.offsets + count);
  }
  dit_parallel_for(0, table, 4096 / task->out.sizes[1] + 1, sum_rows, &rows);
  dit_free(rows.starts);
  return diopiSuccess;
}

static double get_norm(const double *row, int64_t count, double type) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    const double value = fabs(row[i]);
    if (isinf(type)) {
      const double best = type > 0 ? (value > sum ? value : sum) : (i == 0 || value < sum ? value : sum);
      sum = isnan(value) ? value : isnan(sum) ? sum : best;
    } else {
      sum += type == 2 ? value * value : type == 1 ? value : type == 0 ? value != 0 : pow(value, type);
    }
  }
  return type == 2 ? sqrt(sum) : type == 0 || type == 1 || isinf(type) ? sum : pow(sum, 1 / type);
}

/// `room` holds one row as doubles; `raw` as elements.
static void renorm_row(const struct renorm_task *task, int64_t row, double *room, char *raw) {
  const struct dit_tensor_view *table = &task->table;
  const int64_t count = table->sizes[1], width = (int64_t)dit_dtype_get_size(table->dtype);
  char *data = (char *)table->data + row * table->strides[0] * width;
  cast_gather(raw, data, table->strides[1] * width, (int)width, count);
  cast_block(DIT_DTYPE_F64, room, table->dtype, raw, count);
  double norm = get_norm(room, count, task->norm_type);
  cast_block(table->dtype, raw, DIT_DTYPE_F64, &norm, 1);  // PyTorch keeps the norm in the table's dtype
  cast_block(DIT_DTYPE_F64, &norm, table->dtype, raw, 1);
  if (!(norm > task->max_norm)) {
    return;
  }
  const double scale = task->max_norm / (norm + 1e-7);
  for (int64_t i = 0; i < count; i++) {
    room[i] = table->dtype == DIT_DTYPE_F64 ? room[i] * scale : (float)room[i] * (float)scale;
  }
  cast_block(table->dtype, raw, DIT_DTYPE_F64, room, count);
  cast_scatter(data, table->strides[1] * width, raw, (int)width, count);
}

static void mark_rows(void *context, char *const *data, int64_t count) {
  const struct position_walk *walk = context;
  for (int64_t i = 0; i < count; i++) {
    walk->numbers[index_read(data[0] + i * walk->index_stride, walk->wide)] = 1;
  }
}

static diopiError_t run_renorm(void *argument) {
  const struct renorm_task *task = argument;
  const struct dit_tensor_view *index = &task->indices;
  const int64_t rows = task->table.sizes[0], columns = task->table.sizes[1];
  struct nest nest;
  FRAME_TRY(layout_check_index(task->frame, "indices", index, rows, false));
  if (index->numel == 0 || task->table.numel == 0) {
    return diopiSuccess;
  }
  int64_t *named = dit_calloc((size_t)rows, sizeof *named);
  double *room = dit_calloc((size_t)columns, 2 * sizeof *room);
  if (named && room) {
    nest_init(&nest, 1, &index);
    struct position_walk walk = {
        .numbers = named, .index_stride = nest.strides[0][0], .wide = index->dtype == DIT_DTYPE_I64};
    nest_walk(&nest, 0, index->numel, mark_rows, &walk);
    for (int64_t row = 0; row < rows; row++) {
      if (named[row]) {
        renorm_row(task, row, room, (char *)(room + columns));
      }
    }
  }
  const bool done = named && room;
  dit_free(named);
  dit_free(room);
  return done ? diopiSuccess : frame_fail(task->frame, diopiErrorOccurred, "no memory for %lld rows", (long long)rows);
}

diopiError_t embedding_backward(struct embedding_task *task) {
  return frame_run(task->frame, run_backward, task);
}

diopiError_t embedding_renorm(struct renorm_task *task) {
  return frame_run(task->frame, run_renorm, task);
}
