/// Sums and means over any set of dimensions.
///
/// Accumulation is float for float, half and bfloat16 results, double for double, 64-bit integer for integers. Sums are
/// pairwise: blocks of ROW_BLOCK (or ROW_BLOCK_DIRECT) elements (or cascades of COLUMN_STEP rows) added in a tree, so
/// the error grows with log n. How the work is cut depends on shapes and strides alone, never on the number of threads:
/// results repeat on any machine size.
#include <math.h>
#include <string.h>

#include "cast.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "host.h"
#include "kernels.h"
#include "nest.h"
#include "simd.h"

#define ROW_BLOCK NEST_BLOCK   // elements per leaf when they are staged
#define ROW_BLOCK_DIRECT 2048  // when they are added where they lie
#define CHUNK_ELEMENTS 131072  // least work of a chunk
#define COLUMN_BLOCK 256
#define COLUMN_STEP 32
#define COLUMN_LEVELS 5
#define MAX_CHUNKS 256

/// One set of dimensions, innermost first, fused where possible; strides in bytes.
struct axes {
  int ndim;
  int64_t numel;
  int64_t sizes[DIT_MAX_DIMS];
  int64_t in[DIT_MAX_DIMS];
  int64_t out[DIT_MAX_DIMS];
};

struct reduce_task {
  struct axes kept, reduced;
  const char *in;
  char *out;
  int in_dtype, out_dtype, work;
  int in_width, out_width;
  bool convert_twice;  ///< elements are rounded to the result dtype before they are added
  bool mean;
  bool rows;              ///< the innermost memory dimension is reduced
  int64_t leaf;           ///< elements per leaf of the tree
  int64_t chunks, chunk;  ///< of the reduced index, when few results share much work
};

typedef union {
  float f;
  double d;
  int64_t i;
} accumulator;

// ---- blocks of contiguous work-type values

#define LANES 64
#define SUM_BODY(name, type)                                                   \
  KERNEL_INLINE void name##_body(const type *p, int64_t count, type *result) { \
    type lanes[LANES] = {0};                                                   \
    int64_t i = 0;                                                             \
    for (; i + LANES <= count; i += LANES) {                                   \
      for (int j = 0; j < LANES; j++) {                                        \
        lanes[j] += p[i + j];                                                  \
      }                                                                        \
    }                                                                          \
    for (int j = 0; i < count; i++, j++) {                                     \
      lanes[j] += p[i];                                                        \
    }                                                                          \
    for (int width = LANES / 2; width > 0; width /= 2) {                       \
      for (int j = 0; j < width; j++) {                                        \
        lanes[j] += lanes[j + width];                                          \
      }                                                                        \
    }                                                                          \
    *result = lanes[0];                                                        \
  }                                                                            \
  KERNEL_MULTI(static, name, (const type *p, int64_t count, type *result), (p, count, result))
SUM_BODY(sum_f32, float)
SUM_BODY(sum_f64, double)
SUM_BODY(sum_u64, uint64_t)

#define ADD_BODY(name, type)                                                                    \
  KERNEL_INLINE void name##_body(type *restrict total, const type *restrict p, int64_t count) { \
    for (int64_t i = 0; i < count; i++) {                                                       \
      total[i] += p[i];                                                                         \
    }                                                                                           \
  }                                                                                             \
  KERNEL_MULTI(static, name, (type *restrict total, const type *restrict p, int64_t count), (total, p, count))
ADD_BODY(add_f32, float)
ADD_BODY(add_f64, double)
ADD_BODY(add_u64, uint64_t)

static accumulator sum_block(int work, const void *block, int64_t count) {
  accumulator result;
  if (work == DIT_DTYPE_F32) {
    sum_f32(block, count, &result.f);
  } else if (work == DIT_DTYPE_F64) {
    sum_f64(block, count, &result.d);
  } else {
    uint64_t sum;
    sum_u64(block, count, &sum);
    result.i = (int64_t)sum;
  }
  return result;
}

static void add_blocks(int work, void *total, const void *block, int64_t count) {
  if (work == DIT_DTYPE_F32) {
    add_f32(total, block, count);
  } else if (work == DIT_DTYPE_F64) {
    add_f64(total, block, count);
  } else {
    add_u64(total, block, count);
  }
}

static accumulator add_two(int work, accumulator a, accumulator b) {
  if (work == DIT_DTYPE_F32) {
    a.f += b.f;
  } else if (work == DIT_DTYPE_F64) {
    a.d += b.d;
  } else {
    a.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i);
  }
  return a;
}

static int get_width(int work) {
  return work == DIT_DTYPE_F32 ? 4 : 8;
}

/// `count` elements from `data` with a byte stride, in the work type. Returns `data` itself when nothing has to be
/// done.
static const void *load_block(const struct reduce_task *task, const char *data, int64_t stride, int64_t count,
                              char *room) {
  char raw[NEST_BLOCK * 8], rounded[NEST_BLOCK * 8];
  const bool strided = stride != task->in_width && count > 1;
  if (task->in_dtype == task->work && !task->convert_twice) {
    if (!strided) {
      return data;
    }
    cast_gather(room, data, stride, task->in_width, count);
    return room;
  }
  if (strided) {
    cast_gather(raw, data, stride, task->in_width, count);
    data = raw;
  }
  if (task->convert_twice) {
    cast_block(task->out_dtype, rounded, task->in_dtype, data, count);
    cast_block(task->work, room, task->out_dtype, rounded, count);
  } else {
    cast_block(task->work, room, task->in_dtype, data, count);
  }
  return room;
}

static void store_results(const struct reduce_task *task, char *out, int64_t stride, const void *block, int64_t count) {
  _Alignas(16) char scaled[NEST_BLOCK * 8], raw[NEST_BLOCK * 8];
  const double divisor = (double)task->reduced.numel;
  if (task->mean) {
    for (int64_t i = 0; i < count; i++) {
      if (task->work == DIT_DTYPE_F32) {
        ((float *)scaled)[i] = ((const float *)block)[i] / (float)divisor;
      } else {
        ((double *)scaled)[i] = ((const double *)block)[i] / divisor;
      }
    }
    block = scaled;
  }
  cast_block(task->out_dtype, raw, task->work, block, count);
  cast_scatter(out, stride, raw, task->out_width, count);
}

// ---- rows: one result at a time

/// Byte offset of the reduced index and how many elements follow with the innermost stride.
static int64_t locate(const struct axes *axes, int64_t index, int64_t *run) {
  int64_t offset = 0;
  *run = axes->sizes[0] - index % axes->sizes[0];
  for (int dim = 0; dim < axes->ndim; dim++) {
    offset += index % axes->sizes[dim] * axes->in[dim];
    index /= axes->sizes[dim];
  }
  return offset;
}

static accumulator sum_leaf(const struct reduce_task *task, const char *base, int64_t begin, int64_t end) {
  _Alignas(64) char block[ROW_BLOCK * 8], part[ROW_BLOCK * 8];
  if (task->leaf == ROW_BLOCK_DIRECT) {
    return sum_block(task->work, base + begin * task->in_width, end - begin);
  }
  int64_t run, offset = locate(&task->reduced, begin, &run);
  if (run >= end - begin) {
    return sum_block(task->work, load_block(task, base + offset, task->reduced.in[0], end - begin, block), end - begin);
  }
  int width = get_width(task->work);
  for (int64_t at = begin; at < end; at += run) {
    offset = locate(&task->reduced, at, &run);
    run = run < end - at ? run : end - at;
    memcpy(block + (at - begin) * width, load_block(task, base + offset, task->reduced.in[0], run, part),
           (size_t)(run * width));
  }
  return sum_block(task->work, block, end - begin);
}

static accumulator sum_tree(const struct reduce_task *task, const char *base, int64_t begin, int64_t end) {
  if (end - begin <= task->leaf) {
    return sum_leaf(task, base, begin, end);
  }
  int64_t blocks = (end - begin + task->leaf - 1) / task->leaf, middle = begin + blocks / 2 * task->leaf;
  return add_two(task->work, sum_tree(task, base, begin, middle), sum_tree(task, base, middle, end));
}

static void locate_kept(const struct reduce_task *task, int64_t index, const char **in, char **out) {
  *in = task->in;
  *out = task->out;
  for (int dim = 0; dim < task->kept.ndim; dim++) {
    *in += index % task->kept.sizes[dim] * task->kept.in[dim];
    *out += index % task->kept.sizes[dim] * task->kept.out[dim];
    index /= task->kept.sizes[dim];
  }
}

static void run_rows(void *context, int64_t begin, int64_t end) {
  const struct reduce_task *task = context;
  for (int64_t k = begin; k < end; k++) {
    const char *in;
    char *out;
    locate_kept(task, k, &in, &out);
    accumulator sum = sum_tree(task, in, 0, task->reduced.numel);
    store_results(task, out, task->out_width, &sum, 1);
  }
}

struct chunk_task {
  const struct reduce_task *reduce;
  accumulator *partial;  ///< [kept][chunks]
};

static void run_row_chunks(void *context, int64_t begin, int64_t end) {
  const struct chunk_task *chunks = context;
  const struct reduce_task *task = chunks->reduce;
  for (int64_t i = begin; i < end; i++) {
    const char *in;
    char *out;
    locate_kept(task, i / task->chunks, &in, &out);
    int64_t first = i % task->chunks * task->chunk, last = first + task->chunk;
    last = last < task->reduced.numel ? last : task->reduced.numel;
    chunks->partial[i] = sum_tree(task, in, first, last);
  }
}

static accumulator add_partials(int work, const accumulator *partial, int64_t count) {
  if (count == 1) {
    return partial[0];
  }
  return add_two(work, add_partials(work, partial, count / 2),
                 add_partials(work, partial + count / 2, count - count / 2));
}

static void reduce_rows(struct reduce_task *task) {
  accumulator partial[MAX_CHUNKS];
  const int64_t kept = task->kept.numel, reduced = task->reduced.numel;
  if (task->chunks <= 1) {
    int64_t grain = NEST_GRAIN / reduced;
    dit_parallel_for(0, kept, grain, run_rows, task);
    return;
  }
  struct chunk_task chunks = {task, partial};
  dit_parallel_for(0, kept * task->chunks, 1, run_row_chunks, &chunks);
  for (int64_t k = 0; k < kept; k++) {
    const char *in;
    char *out;
    locate_kept(task, k, &in, &out);
    accumulator sum = add_partials(task->work, partial + k * task->chunks, task->chunks);
    store_results(task, out, task->out_width, &sum, 1);
  }
}

// ---- columns: a block of neighbouring results at a time

/// Sum the rows [begin, end) of the reduced index over `width` neighbouring columns into `total` (work type).
static void sum_columns(const struct reduce_task *task, const char *base, int64_t begin, int64_t end, int64_t columns,
                        char *total) {
  _Alignas(64) char levels[COLUMN_LEVELS][COLUMN_BLOCK * 8], room[COLUMN_BLOCK * 8];
  const size_t bytes = (size_t)(columns * get_width(task->work));
  for (int level = 0; level < COLUMN_LEVELS; level++) {
    memset(levels[level], 0, bytes);
  }
  int64_t run = 0, offset = 0;
  for (int64_t row = begin; row < end; row++) {
    if (run == 0) {
      offset = locate(&task->reduced, row, &run);
    }
    add_blocks(task->work, levels[0], load_block(task, base + offset, task->kept.in[0], columns, room), columns);
    offset += task->reduced.in[0];
    run--;
    int64_t done = row - begin + 1;
    for (int level = 0; level + 1 < COLUMN_LEVELS && done % COLUMN_STEP == 0; level++, done /= COLUMN_STEP) {
      add_blocks(task->work, levels[level + 1], levels[level], columns);
      memset(levels[level], 0, bytes);
    }
  }
  for (int level = 0; level + 1 < COLUMN_LEVELS; level++) {
    add_blocks(task->work, levels[level + 1], levels[level], columns);
  }
  memcpy(total, levels[COLUMN_LEVELS - 1], bytes);
}

struct column_task {
  const struct reduce_task *reduce;
  int64_t blocks;  ///< per line of the innermost kept dimension
  char *partial;   ///< [chunk][kept] in the work type, NULL without chunks
};

static int64_t get_columns(const struct column_task *column, int64_t block, int64_t *first) {
  const struct axes *kept = &column->reduce->kept;
  int64_t start = block % column->blocks * COLUMN_BLOCK, line = block / column->blocks;
  *first = line * kept->sizes[0] + start;
  return kept->sizes[0] - start < COLUMN_BLOCK ? kept->sizes[0] - start : COLUMN_BLOCK;
}

static void run_columns(void *context, int64_t begin, int64_t end) {
  const struct column_task *column = context;
  const struct reduce_task *task = column->reduce;
  _Alignas(64) char total[COLUMN_BLOCK * 8];
  for (int64_t block = begin; block < end; block++) {
    const char *in;
    char *out;
    int64_t first, columns = get_columns(column, block, &first);
    locate_kept(task, first, &in, &out);
    sum_columns(task, in, 0, task->reduced.numel, columns, total);
    store_results(task, out, task->kept.out[0], total, columns);
  }
}

static void run_column_chunk(const struct column_task *column, int64_t chunk, int64_t block, char *total) {
  const struct reduce_task *task = column->reduce;
  const char *in;
  char *out;
  int64_t first, columns = get_columns(column, block, &first);
  int64_t begin = chunk * task->chunk, end = begin + task->chunk;
  locate_kept(task, first, &in, &out);
  sum_columns(task, in, begin, end < task->reduced.numel ? end : task->reduced.numel, columns, total);
}

static void run_column_chunks(void *context, int64_t begin, int64_t end) {
  const struct column_task *column = context;
  const struct reduce_task *task = column->reduce;
  int64_t per_chunk = column->blocks * (task->kept.numel / task->kept.sizes[0]);
  for (int64_t i = begin; i < end; i++) {
    int64_t first, chunk = i / per_chunk;
    get_columns(column, i % per_chunk, &first);
    run_column_chunk(column, chunk, i % per_chunk,
                     column->partial + (chunk * task->kept.numel + first) * get_width(task->work));
  }
}

/// Chunks are added in their order, whether they were all computed first or, without memory for that, one after the
/// other.
static void finish_columns(const struct column_task *column, int64_t block) {
  const struct reduce_task *task = column->reduce;
  _Alignas(64) char total[COLUMN_BLOCK * 8], room[COLUMN_BLOCK * 8];
  const int width = get_width(task->work);
  int64_t first, columns = get_columns(column, block, &first);
  const char *in;
  char *out;
  locate_kept(task, first, &in, &out);
  memset(total, 0, sizeof(total));
  for (int64_t chunk = 0; chunk < task->chunks; chunk++) {
    const char *part = room;
    if (column->partial) {
      part = column->partial + (chunk * task->kept.numel + first) * width;
    } else {
      run_column_chunk(column, chunk, block, room);
    }
    add_blocks(task->work, total, part, columns);
  }
  store_results(task, out, task->kept.out[0], total, columns);
}

static void reduce_columns(struct reduce_task *task) {
  struct column_task column = {task, (task->kept.sizes[0] + COLUMN_BLOCK - 1) / COLUMN_BLOCK, NULL};
  const int64_t lines = task->kept.numel / task->kept.sizes[0], blocks = column.blocks * lines;
  if (task->chunks <= 1) {
    int64_t width = task->kept.sizes[0] < COLUMN_BLOCK ? task->kept.sizes[0] : COLUMN_BLOCK;
    dit_parallel_for(0, blocks, NEST_GRAIN / (width * task->reduced.numel), run_columns, &column);
    return;
  }
  column.partial = dit_malloc((size_t)(task->chunks * task->kept.numel * get_width(task->work)));
  if (column.partial) {
    dit_parallel_for(0, task->chunks * blocks, 1, run_column_chunks, &column);
  }
  for (int64_t block = 0; block < blocks; block++) {
    finish_columns(&column, block);
  }
  dit_free(column.partial);
}

// ---- setting up

static void axes_push(struct axes *axes, int64_t size, int64_t in, int64_t out) {
  int at = axes->ndim++;
  while (at > 0 && axes->in[at - 1] > in) {
    axes->sizes[at] = axes->sizes[at - 1];
    axes->in[at] = axes->in[at - 1];
    axes->out[at] = axes->out[at - 1];
    at--;
  }
  axes->sizes[at] = size;
  axes->in[at] = in;
  axes->out[at] = out;
}

static void axes_fuse(struct axes *axes) {
  if (axes->ndim == 0) {
    axes->ndim = 1;
    axes->sizes[0] = 1;
    axes->in[0] = axes->out[0] = 0;
    return;
  }
  int last = 0;
  for (int dim = 1; dim < axes->ndim; dim++) {
    if (axes->in[dim] == axes->in[last] * axes->sizes[last] && axes->out[dim] == axes->out[last] * axes->sizes[last]) {
      axes->sizes[last] *= axes->sizes[dim];
      continue;
    }
    last++;
    axes->sizes[last] = axes->sizes[dim];
    axes->in[last] = axes->in[dim];
    axes->out[last] = axes->out[dim];
  }
  axes->ndim = last + 1;
}

static void set_axes(struct reduce_task *task, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                     uint32_t mask) {
  task->kept.ndim = task->reduced.ndim = 0;
  task->kept.numel = task->reduced.numel = 1;
  for (int dim = in->ndim - 1; dim >= 0; dim--) {
    bool reduced = mask >> dim & 1;
    struct axes *axes = reduced ? &task->reduced : &task->kept;
    axes->numel *= in->sizes[dim];
    if (in->sizes[dim] != 1) {
      axes_push(axes, in->sizes[dim], in->strides[dim] * task->in_width,
                reduced ? 0 : out->strides[dim] * task->out_width);
    }
  }
  axes_fuse(&task->kept);
  axes_fuse(&task->reduced);
}

/// Few results over many elements are cut along the reduced index as well; the cut depends on the shape only.
static void set_chunks(struct reduce_task *task) {
  const int64_t kept = task->kept.numel, reduced = task->reduced.numel, total = kept * reduced;
  const int64_t room = task->rows ? MAX_CHUNKS / kept : kept <= 4096 ? 64 : 1;
  task->chunks = total / CHUNK_ELEMENTS < room ? total / CHUNK_ELEMENTS : room;
  if (task->chunks <= 1 || (task->rows && kept > 16) || reduced < 2 * ROW_BLOCK_DIRECT) {
    task->chunks = 1;
    return;
  }
  task->chunk = (reduced / task->chunks + ROW_BLOCK_DIRECT - 1) / ROW_BLOCK_DIRECT * ROW_BLOCK_DIRECT;
  task->chunks = (reduced + task->chunk - 1) / task->chunk;
}

static void run_reduce(void *argument) {
  struct reduce_task *task = argument;
  if (task->rows) {
    reduce_rows(task);
  } else {
    reduce_columns(task);
  }
}

enum dit_status kernel_reduce(void *stream, enum dit_reduce_kind kind, const struct dit_tensor_view *out,
                              const struct dit_tensor_view *in, uint32_t mask, struct dit_error *err) {
  struct reduce_task task;
  enum dit_dtype_class class = dit_dtype_get_class(out->dtype);
  bool small = out->dtype == DIT_DTYPE_F16 || out->dtype == DIT_DTYPE_BF16;
  bool wide = out->dtype == DIT_DTYPE_F32 || out->dtype == DIT_DTYPE_F64;
  if ((!small && !wide && class != DIT_DTYPE_CLASS_INT && out->dtype != DIT_DTYPE_U8) ||
      (kind == DIT_REDUCE_MEAN && !small && !wide) || !cast_is_supported(out->dtype, in->dtype) ||
      dit_dtype_get_size(in->dtype) > 8) {
    return DIT_ERR_UNSUPPORTED;
  }
  task.work = out->dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : small || wide ? DIT_DTYPE_F32 : DIT_DTYPE_I64;
  task.in_dtype = in->dtype;
  task.out_dtype = out->dtype;
  task.in_width = (int)dit_dtype_get_size(in->dtype);
  task.out_width = (int)dit_dtype_get_size(out->dtype);
  task.convert_twice = task.work != out->dtype && in->dtype != out->dtype;
  task.mean = kind == DIT_REDUCE_MEAN;
  task.in = in->data;
  task.out = out->data;
  set_axes(&task, out, in, mask);
  if (task.kept.numel == 0) {
    return DIT_OK;
  }
  if (task.reduced.numel == 0) {
    struct dit_scalar empty = {DIT_SCALAR_DOUBLE, {.d = task.mean ? NAN : 0.0}};
    return kernel_fill(stream, out, empty, err);
  }
  task.rows = task.kept.numel == 1 || task.kept.sizes[0] == 1 ||
              (task.reduced.numel > 1 && task.reduced.in[0] <= task.kept.in[0]);
  bool direct = task.in_dtype == task.work && !task.convert_twice && task.reduced.ndim == 1 &&
                task.reduced.in[0] == task.in_width;
  task.leaf = direct ? ROW_BLOCK_DIRECT : ROW_BLOCK;
  set_chunks(&task);
  return host_stream_launch(stream, run_reduce, &task, sizeof(task), err);
}
