/// Reductions over any set of dimensions (reduce.h): how a tensor is cut and walked.
///
/// Accumulation is float for float, half and bfloat16 results, double for double, 64-bit integer for integers. Sums are
/// pairwise: leaves of ROW_STAGE (or ROW_DIRECT) elements (or cascades of COLUMN_STEP rows) added in a tree, so the
/// error grows with log n. How the work is cut depends on shapes and strides alone, never on the number of threads:
/// results repeat on any machine size.
#include "reduce.h"

#include <math.h>
#include <string.h>

#include "cast.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "host.h"
#include "kernels.h"
#include "nest.h"
#include "scratch.h"

#define ROW_STAGE 2048    // elements per leaf when they are staged
#define ROW_DIRECT 65536  // when they are folded where they lie
#define ROWS_TOGETHER 256
#define CHUNK_ELEMENTS 131072  // least work of a chunk
#define CHUNK_UNIT 2048
#define COLUMN_BLOCK 256
#define COLUMN_STEP 32
#define COLUMN_ROWS 8  // staged at once
#define COLUMN_LEVELS 5
#define FEW_COLUMNS 48  // of which several rows are one line
#define MAX_CHUNKS 256
#define NARROW_RESULTS 3    // at most so many lie side by side
#define NARROW_TOGETHER 32  // elements of each that are one line
#define NARROW_LEAF 2048

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
  int element;  ///< what the fold's loops read: the work type, or a smaller one that they widen
  int in_width, out_width;
  bool convert_twice;  ///< elements are rounded to the result dtype before they are added
  enum reduce_kind kind;
  double parameter;
  const struct reduce_fold *fold;
  bool rows;              ///< the innermost memory dimension is reduced
  bool direct;            ///< rows: their innermost runs are folded where they lie
  bool narrow;            ///< rows of a few results side by side, taken together
  bool turned;            ///< results are made in the order of the input and copied to `result`
  struct axes result;     ///< `in`: of the copy, `out`: of the output, in bytes
  int64_t leaf;           ///< elements per leaf of the tree
  int64_t chunks, chunk;  ///< of the reduced index, when few results share much work
};

static int get_width(int work) {
  return (int)dit_dtype_get_size(work);
}

static bool is_as_stored(const struct reduce_task *task) {
  return task->in_dtype == task->element && !task->convert_twice;
}

/// `count` elements from `data` with a byte stride, as the fold reads them, into `room`.
static void load_block(const struct reduce_task *task, const char *data, int64_t stride, int64_t count, char *room) {
  _Alignas(64) char raw[NEST_BLOCK * 16], rounded[NEST_BLOCK * 8];
  const int width = (int)dit_dtype_get_size(task->element);
  const bool strided = stride != task->in_width && count > 1;
  if (is_as_stored(task)) {
    cast_gather(room, data, stride, task->in_width, count);
    return;
  }
  if (!strided && !task->convert_twice) {
    cast_block(task->element, room, task->in_dtype, data, count);
    return;
  }
  for (int64_t done = 0; done < count; done += NEST_BLOCK) {
    const int64_t n = count - done < NEST_BLOCK ? count - done : NEST_BLOCK;
    const char *from = data + done * stride;
    if (strided) {
      cast_gather(raw, from, stride, task->in_width, n);
      from = raw;
    }
    if (task->convert_twice) {
      cast_block(task->out_dtype, rounded, task->in_dtype, from, n);
      cast_block(task->element, room + done * width, task->out_dtype, rounded, n);
    } else {
      cast_block(task->element, room + done * width, task->in_dtype, from, n);
    }
  }
}

/// What remains to be done to the folded values: division, root.
#define FINISH_LOOP(type, EXPRESSION)     \
  for (int64_t i = 0; i < count; i++) {   \
    const type x = ((const type *)in)[i]; \
    ((type *)out)[i] = EXPRESSION;        \
  }
static void finish_block(const struct reduce_task *task, void *out, const void *in, int64_t count) {
  const double number = (double)task->reduced.numel, root = 1 / task->parameter;
  const bool single = task->work == DIT_DTYPE_F32;
  if (task->kind == REDUCE_MEAN && single) {
    FINISH_LOOP(float, x / (float)number)
  } else if (task->kind == REDUCE_MEAN) {
    FINISH_LOOP(double, x / number)
  } else if (task->kind == REDUCE_NORM_2 && single) {
    FINISH_LOOP(float, sqrtf(x))
  } else if (task->kind == REDUCE_NORM_2) {
    FINISH_LOOP(double, sqrt(x))
  } else if (single) {
    FINISH_LOOP(float, powf(x, (float)root))
  } else {
    FINISH_LOOP(double, pow(x, root))
  }
}

static void store_results(const struct reduce_task *task, char *out, int64_t stride, const void *block, int64_t count) {
  _Alignas(16) char scaled[NEST_BLOCK * 8], raw[NEST_BLOCK * 8];
  if (task->kind == REDUCE_MEAN || task->kind == REDUCE_NORM_2 || task->kind == REDUCE_NORM_P) {
    finish_block(task, scaled, block, count);
    block = scaled;
  }
  if (task->out_dtype == task->work && (stride == task->out_width || count == 1)) {
    memcpy(out, block, (size_t)(count * task->out_width));
    return;
  }
  cast_block(task->out_dtype, raw, task->work, block, count);
  cast_scatter(out, stride, raw, task->out_width, count);
}

static union reduce_value fold_row(const struct reduce_task *task, const void *block, int64_t count) {
  union reduce_value result;
  reduce_fold_rows(task->fold, block, count, 1, 0, task->parameter, &result);
  return result;
}

static union reduce_value join_two(const struct reduce_task *task, union reduce_value a, union reduce_value b) {
  task->fold->merge(&a, &b, 1);
  return a;
}

// rows: one result at a time

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

/// Runs of the innermost reduced dimension where they lie; many short ones at once.
static union reduce_value fold_runs(const struct reduce_task *task, const char *base, int64_t begin, int64_t end) {
  const struct axes *axes = &task->reduced;
  _Alignas(64) char values[ROWS_TOGETHER * 8];
  union reduce_value total = task->fold->identity;
  for (int64_t at = begin, taken; at < end; at += taken) {
    int64_t run;
    const char *data = base + locate(axes, at, &run);
    union reduce_value value;
    if (run == axes->sizes[0] && axes->ndim > 1 && end - at >= 2 * run) {
      const int64_t left = axes->sizes[1] - at / run % axes->sizes[1], whole = (end - at) / run;
      int64_t rows = left < whole ? left : whole;
      rows = rows < ROWS_TOGETHER ? rows : ROWS_TOGETHER;
      reduce_fold_rows(task->fold, data, run, rows, axes->in[1], task->parameter, values);
      reduce_join(task->fold, values, rows);
      memcpy(&value, values, (size_t)task->fold->value_width);
      taken = rows * run;
    } else {
      taken = run < end - at ? run : end - at;
      value = fold_row(task, data, taken);
    }
    total = at == begin ? value : join_two(task, total, value);
  }
  return total;
}

/// Not inlined: the tree's recursion must not carry the block.
__attribute__((noinline)) static union reduce_value fold_leaf(const struct reduce_task *task, const char *base,
                                                              int64_t begin, int64_t end) {
  _Alignas(64) char block[ROW_STAGE * 8];
  if (task->direct) {
    return fold_runs(task, base, begin, end);
  }
  const int width = (int)dit_dtype_get_size(task->element);
  int64_t run;
  for (int64_t at = begin; at < end; at += run) {
    const int64_t offset = locate(&task->reduced, at, &run);
    run = run < end - at ? run : end - at;
    load_block(task, base + offset, task->reduced.in[0], run, block + (at - begin) * width);
  }
  return fold_row(task, block, end - begin);
}

static union reduce_value fold_tree(const struct reduce_task *task, const char *base, int64_t begin, int64_t end) {
  if (end - begin <= task->leaf) {
    return fold_leaf(task, base, begin, end);
  }
  int64_t blocks = (end - begin + task->leaf - 1) / task->leaf, middle = begin + blocks / 2 * task->leaf;
  return join_two(task, fold_tree(task, base, begin, middle), fold_tree(task, base, middle, end));
}

static void locate_kept(const struct reduce_task *task, int64_t index, const char **in, char **out) {
  *in = task->in;
  *out = task->out;
  if (task->kept.ndim == 1) {
    *in += index * task->kept.in[0];
    *out += index * task->kept.out[0];
    return;
  }
  for (int dim = 0; dim < task->kept.ndim; dim++) {
    *in += index % task->kept.sizes[dim] * task->kept.in[dim];
    *out += index % task->kept.sizes[dim] * task->kept.out[dim];
    index /= task->kept.sizes[dim];
  }
}

/// Neighbouring results whose rows are single runs, at most `most`. Returns how many; 0 when they must go one by one.
static int64_t fold_together(const struct reduce_task *task, int64_t first, int64_t most, const char *in, char *out) {
  _Alignas(64) char results[ROWS_TOGETHER * 8], block[ROW_STAGE * 8];
  const int64_t length = task->reduced.numel, step = task->kept.in[0];
  const int64_t left = task->kept.sizes[0] - first % task->kept.sizes[0];
  int64_t rows = most < left ? most : left;
  if (task->reduced.ndim > 1 || length > task->leaf) {
    return 0;
  }
  rows = rows < ROWS_TOGETHER ? rows : ROWS_TOGETHER;
  if (task->direct) {
    reduce_fold_rows(task->fold, in, length, rows, step, task->parameter, results);
  } else {
    const int64_t width = length * (int)dit_dtype_get_size(task->element);
    rows = rows < ROW_STAGE / length ? rows : ROW_STAGE / length;
    if (step == length * task->in_width && task->reduced.in[0] == task->in_width) {
      load_block(task, in, task->in_width, rows * length, block);
    } else {
      for (int64_t row = 0; row < rows; row++) {
        load_block(task, in + row * step, task->reduced.in[0], length, block + row * width);
      }
    }
    reduce_fold_rows(task->fold, block, length, rows, width, task->parameter, results);
  }
  store_results(task, out, task->kept.out[0], results, rows);
  return rows;
}

static void run_rows(void *context, int64_t begin, int64_t end) {
  const struct reduce_task *task = context;
  for (int64_t k = begin, taken; k < end; k += taken) {
    const char *in;
    char *out;
    locate_kept(task, k, &in, &out);
    taken = fold_together(task, k, end - k, in, out);
    if (taken == 0) {
      union reduce_value sum = fold_tree(task, in, 0, task->reduced.numel);
      store_results(task, out, task->out_width, &sum, 1);
      taken = 1;
    }
  }
}

struct chunk_task {
  const struct reduce_task *reduce;
  union reduce_value *partial;  ///< [kept][chunks]
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
    chunks->partial[i] = fold_tree(task, in, first, last);
  }
}

static union reduce_value join_partials(const struct reduce_task *task, const union reduce_value *partial,
                                        int64_t count) {
  if (count == 1) {
    return partial[0];
  }
  return join_two(task, join_partials(task, partial, count / 2),
                  join_partials(task, partial + count / 2, count - count / 2));
}

// rows of a few results side by side, as the parts of complex numbers are: as columns that repeat along the row

static void fold_narrow_leaf(const struct reduce_task *task, const char *base, int64_t begin, int64_t end,
                             char *values) {
  _Alignas(64) char lines[NARROW_RESULTS * NARROW_TOGETHER * 8];
  const struct reduce_fold *fold = task->fold;
  const int64_t few = task->kept.sizes[0], step = task->reduced.in[0];
  int64_t run;
  reduce_fill_identity(fold, lines, few * NARROW_TOGETHER);
  for (int64_t at = begin; at < end; at += run) {
    const char *data = base + locate(&task->reduced, at, &run);
    run = run < end - at ? run : end - at;
    const int64_t whole = run / NARROW_TOGETHER, rest = run % NARROW_TOGETHER;
    fold->column(lines, data, few * NARROW_TOGETHER, whole, step * NARROW_TOGETHER, task->parameter);
    fold->column(lines, data + whole * NARROW_TOGETHER * step, few, rest, step, task->parameter);
  }
  for (int64_t half = NARROW_TOGETHER / 2; half > 0; half /= 2) {
    fold->merge(lines, lines + half * few * fold->value_width, half * few);
  }
  memcpy(values, lines, (size_t)(few * fold->value_width));
}

static void fold_narrow(const struct reduce_task *task, const char *base, int64_t begin, int64_t end, char *values) {
  if (end - begin <= NARROW_LEAF) {
    fold_narrow_leaf(task, base, begin, end, values);
    return;
  }
  char second[NARROW_RESULTS * 8];
  const int64_t leaves = (end - begin + NARROW_LEAF - 1) / NARROW_LEAF, middle = begin + leaves / 2 * NARROW_LEAF;
  fold_narrow(task, base, begin, middle, values);
  fold_narrow(task, base, middle, end, second);
  task->fold->merge(values, second, task->kept.sizes[0]);
}

static void run_narrow(void *context, int64_t begin, int64_t end) {
  const struct reduce_task *task = context;
  for (int64_t line = begin; line < end; line++) {
    _Alignas(16) char values[NARROW_RESULTS * 8];
    const char *in;
    char *out;
    locate_kept(task, line * task->kept.sizes[0], &in, &out);
    fold_narrow(task, in, 0, task->reduced.numel, values);
    store_results(task, out, task->kept.out[0], values, task->kept.sizes[0]);
  }
}

static void run_narrow_chunks(void *context, int64_t begin, int64_t end) {
  const struct chunk_task *chunks = context;
  const struct reduce_task *task = chunks->reduce;
  const int64_t few = task->kept.sizes[0];
  for (int64_t i = begin; i < end; i++) {
    _Alignas(16) char values[NARROW_RESULTS * 8];
    const int64_t line = i / task->chunks, chunk = i % task->chunks, first = chunk * task->chunk;
    const int64_t last = first + task->chunk < task->reduced.numel ? first + task->chunk : task->reduced.numel;
    const char *in;
    char *out;
    locate_kept(task, line * few, &in, &out);
    fold_narrow(task, in, first, last, values);
    for (int64_t k = 0; k < few; k++) {
      memcpy(&chunks->partial[(line * few + k) * task->chunks + chunk], values + k * task->fold->value_width,
             (size_t)task->fold->value_width);
    }
  }
}

static void reduce_rows(struct reduce_task *task) {
  union reduce_value partial[MAX_CHUNKS];
  const int64_t kept = task->kept.numel, reduced = task->reduced.numel;
  const int64_t lines = task->narrow ? kept / task->kept.sizes[0] : kept;
  if (task->chunks <= 1 && task->narrow) {
    dit_parallel_for(0, lines, NEST_GRAIN / (reduced * task->kept.sizes[0]), run_narrow, task);
    return;
  }
  if (task->chunks <= 1) {
    int64_t grain = NEST_GRAIN / reduced;
    dit_parallel_for(0, kept, grain, run_rows, task);
    return;
  }
  struct chunk_task chunks = {task, partial};
  dit_parallel_for(0, lines * task->chunks, 1, task->narrow ? run_narrow_chunks : run_row_chunks, &chunks);
  for (int64_t k = 0; k < kept; k++) {
    const char *in;
    char *out;
    locate_kept(task, k, &in, &out);
    union reduce_value sum = join_partials(task, partial + k * task->chunks, task->chunks);
    store_results(task, out, task->out_width, &sum, 1);
  }
}

// columns: a block of neighbouring results at a time

/// Take `rows` rows of `columns` neighbours into the running values; rows that are not as the fold reads them are
/// staged.
static void take_rows(const struct reduce_task *task, char *total, const char *data, int64_t columns, int64_t rows) {
  _Alignas(64) char room[COLUMN_ROWS * COLUMN_BLOCK * 8];
  const int64_t step = task->reduced.in[0];
  if (is_as_stored(task) && (task->kept.in[0] == task->in_width || columns == 1)) {
    task->fold->column(total, data, columns, rows, step, task->parameter);
    return;
  }
  const int64_t width = columns * (int64_t)dit_dtype_get_size(task->element);
  const bool packed = task->kept.in[0] == task->in_width && step == columns * task->in_width;
  const int64_t most = packed ? COLUMN_ROWS * COLUMN_BLOCK / columns : COLUMN_ROWS;
  for (int64_t row = 0, n; row < rows; row += n) {
    n = rows - row < most ? rows - row : most;
    if (packed) {
      load_block(task, data + row * step, task->in_width, n * columns, room);
    }
    for (int64_t k = 0; k < n && !packed; k++) {
      load_block(task, data + (row + k) * step, task->kept.in[0], columns, room + k * width);
    }
    task->fold->column(total, room, columns, n, width, task->parameter);
  }
}

/// Fold the rows [begin, end) of the reduced index over `columns` neighbouring columns into `total` (work type).
static void fold_lines(const struct reduce_task *task, const char *base, int64_t begin, int64_t end, int64_t columns,
                       char *total) {
  _Alignas(64) char levels[COLUMN_LEVELS][COLUMN_BLOCK * 8];
  int count = 1;
  for (int64_t rows = end - begin; rows > COLUMN_STEP && count < COLUMN_LEVELS; rows /= COLUMN_STEP) {
    count++;
  }
  for (int level = 0; level < count; level++) {
    reduce_fill_identity(task->fold, levels[level], columns);
  }
  int64_t run = 0, offset = 0;
  for (int64_t row = begin, rows; row < end; row += rows) {
    if (run == 0) {
      offset = locate(&task->reduced, row, &run);
    }
    const int64_t step = COLUMN_STEP - (row - begin) % COLUMN_STEP, left = end - row < run ? end - row : run;
    rows = left < step ? left : step;
    take_rows(task, levels[0], base + offset, columns, rows);
    offset += rows * task->reduced.in[0];
    run -= rows;
    int64_t done = row - begin + rows;
    for (int level = 0; level + 1 < count && done % COLUMN_STEP == 0; level++, done /= COLUMN_STEP) {
      task->fold->merge(levels[level + 1], levels[level], columns);
      reduce_fill_identity(task->fold, levels[level], columns);
    }
  }
  for (int level = 0; level + 1 < count; level++) {
    task->fold->merge(levels[level + 1], levels[level], columns);
  }
  memcpy(total, levels[count - 1], (size_t)(columns * task->fold->value_width));
}

/// The same; rows of few columns that follow each other are taken several at a time, as one line in which the columns
/// repeat.
static void fold_columns(const struct reduce_task *task, const char *base, int64_t begin, int64_t end, int64_t columns,
                         char *total) {
  const int64_t step = task->reduced.in[0], together = COLUMN_BLOCK / columns, lines = (end - begin) / together;
  const bool packed = task->kept.in[0] == task->in_width && step == columns * task->in_width;
  if (!packed || columns > FEW_COLUMNS || task->reduced.ndim > 1 || lines < 2) {
    fold_lines(task, base, begin, end, columns, total);
    return;
  }
  const struct reduce_fold *fold = task->fold;
  struct reduce_task wide = *task;
  _Alignas(64) char block[COLUMN_BLOCK * 8];
  wide.reduced.sizes[0] = wide.reduced.numel = lines;
  wide.reduced.in[0] = step * together;
  fold_lines(&wide, base + begin * step, 0, lines, columns * together, block);
  for (int64_t left = together; left > 1;) {
    const int64_t half = left / 2;
    fold->merge(block, block + (left - half) * columns * fold->value_width, half * columns);
    left -= half;
  }
  memcpy(total, block, (size_t)(columns * fold->value_width));
  if (lines * together < end - begin) {
    fold_lines(task, base, begin + lines * together, end, columns, block);
    fold->merge(total, block, columns);
  }
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
    fold_columns(task, in, 0, task->reduced.numel, columns, total);
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
  fold_columns(task, in, begin, end < task->reduced.numel ? end : task->reduced.numel, columns, total);
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
  reduce_fill_identity(task->fold, total, columns);
  for (int64_t chunk = 0; chunk < task->chunks; chunk++) {
    const char *part = room;
    if (column->partial) {
      part = column->partial + (chunk * task->kept.numel + first) * width;
    } else {
      run_column_chunk(column, chunk, block, room);
    }
    task->fold->merge(total, part, columns);
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

// Setting up

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

/// A few results side by side over a long way, as the two parts of complex numbers are.
static bool is_narrow(const struct reduce_task *task) {
  return task->kept.in[0] == task->in_width && task->kept.sizes[0] > 1 && task->kept.sizes[0] <= NARROW_RESULTS &&
         task->reduced.sizes[0] >= 2 * NARROW_TOGETHER && task->reduced.in[0] == task->kept.sizes[0] * task->in_width;
}

/// Few results over many elements are cut along the reduced index as well; the cut depends on the shape only.
static void set_chunks(struct reduce_task *task) {
  const int64_t kept = task->kept.numel, reduced = task->reduced.numel, total = kept * reduced;
  const int64_t room = task->rows ? MAX_CHUNKS / kept : kept <= 4096 ? 64 : 1;
  task->chunks = total / CHUNK_ELEMENTS < room ? total / CHUNK_ELEMENTS : room;
  if (task->chunks <= 1 || (task->rows && kept > 16) || reduced < 2 * CHUNK_UNIT) {
    task->chunks = 1;
    return;
  }
  task->chunk = (reduced / task->chunks + CHUNK_UNIT - 1) / CHUNK_UNIT * CHUNK_UNIT;
  task->chunks = (reduced + task->chunk - 1) / task->chunk;
}

/// Rows or columns, and how they are cut.
static void set_direction(struct reduce_task *task) {
  const bool narrow = is_narrow(task);
  task->narrow = narrow && is_as_stored(task);
  task->rows = task->kept.numel == 1 || task->kept.sizes[0] == 1 || narrow ||
               (task->reduced.numel > 1 && task->reduced.in[0] <= task->kept.in[0]);
  task->direct = is_as_stored(task) && (task->reduced.in[0] == task->in_width || task->reduced.sizes[0] == 1);
  task->leaf = task->direct ? ROW_DIRECT : ROW_STAGE;
  set_chunks(task);
}

/// Many results whose order in memory is not that of what they are made of: short lines of them would cost a call each.
static void set_turned(struct reduce_task *task) {
  const struct axes *kept = &task->kept;
  int64_t step = task->out_width;
  task->result = *kept;
  for (int dim = 0; dim < kept->ndim; dim++) {
    task->result.in[dim] = step;
    step *= kept->sizes[dim];
  }
  task->turned = kept->ndim > 1 && kept->sizes[0] < COLUMN_BLOCK && kept->numel >= 4 * kept->sizes[0] &&
                 kept->in[1] == kept->in[0] * kept->sizes[0];
}

static void run_axes(struct reduce_task *task) {
  if (task->rows) {
    reduce_rows(task);
  } else {
    reduce_columns(task);
  }
}

/// The copy of turned results to their places.
static void store_turned(const struct reduce_task *task, char *out, char *from) {
  const struct axes *axes = &task->result;
  int64_t sizes[DIT_MAX_DIMS], strides[2][DIT_MAX_DIMS];
  struct dit_tensor_view views[2];
  for (int dim = 0; dim < axes->ndim; dim++) {
    const int at = axes->ndim - 1 - dim;
    sizes[at] = axes->sizes[dim];
    strides[0][at] = axes->out[dim] / task->out_width;
    strides[1][at] = axes->in[dim] / task->out_width;
  }
  for (int i = 0; i < 2; i++) {
    views[i] = (struct dit_tensor_view){.data = i == 0 ? out : from,
                                        .sizes = sizes,
                                        .strides = strides[i],
                                        .numel = task->kept.numel,
                                        .ndim = axes->ndim,
                                        .dtype = (int16_t)task->out_dtype};
  }
  const enum dit_status status = kernel_copy(NULL, &views[0], &views[1], NULL);
  (void)status;  // equal dtypes
}

static void run_reduce(void *argument) {
  struct reduce_task *task = argument;
  char *out = task->out, *room = task->turned ? scratch_take((size_t)(task->kept.numel * task->out_width)) : NULL;
  if (!room) {
    run_axes(task);
    return;
  }
  struct reduce_task packed = *task;
  packed.out = room;
  for (int dim = 0; dim < task->kept.ndim; dim++) {
    packed.kept.out[dim] = task->result.in[dim];
  }
  axes_fuse(&packed.kept);
  set_direction(&packed);
  run_axes(&packed);
  store_turned(task, out, room);
  scratch_give(room);
}

/// The type to work in; -1 when the fold has none for this pair.
static int find_work(enum reduce_kind kind, int out_dtype, int in_dtype) {
  const bool small = out_dtype == DIT_DTYPE_F16 || out_dtype == DIT_DTYPE_BF16;
  const bool logical = kind == REDUCE_ANY || kind == REDUCE_ALL;
  int work = out_dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : small || out_dtype == DIT_DTYPE_F32 ? DIT_DTYPE_F32 : -1;
  if (!cast_is_supported(out_dtype, in_dtype) || dit_dtype_get_size(out_dtype) > 8) {
    return -1;
  }
  if (logical) {
    return out_dtype == DIT_DTYPE_BOOL || out_dtype == DIT_DTYPE_U8 ? DIT_DTYPE_BOOL : -1;
  }
  if (dit_dtype_get_size(in_dtype) > 8) {
    return -1;
  }
  if (work < 0) {
    const enum dit_dtype_class class = dit_dtype_get_class(out_dtype);
    const bool whole = class == DIT_DTYPE_CLASS_INT || out_dtype == DIT_DTYPE_U8 || out_dtype == DIT_DTYPE_BOOL;
    work = whole && kind != REDUCE_MEAN ? DIT_DTYPE_I64 : -1;
    const bool extreme = kind == REDUCE_MAX || kind == REDUCE_MIN;
    work = work >= 0 && extreme && out_dtype == in_dtype && out_dtype != DIT_DTYPE_BOOL ? out_dtype : work;
  }
  return work;
}

static enum dit_status fill_empty(void *stream, const struct reduce_task *task, const struct dit_tensor_view *out,
                                  struct dit_error *err) {
  double value = 0;
  if (task->kind == REDUCE_MEAN) {
    value = NAN;
  } else if (task->kind == REDUCE_ALL || task->kind == REDUCE_PROD) {
    value = 1;
  } else if (task->kind == REDUCE_MAX || task->kind == REDUCE_MIN || task->kind == REDUCE_NORM_MIN) {
    return dit_error_set(err, DIT_ERR_INVALID, "a reduction over no elements has no value");
  }
  return kernel_fill(stream, out, (struct dit_scalar){DIT_SCALAR_DOUBLE, {.d = value}}, err);
}

enum dit_status reduce_launch(void *stream, enum reduce_kind kind, double parameter, const struct dit_tensor_view *out,
                              const struct dit_tensor_view *in, uint32_t mask, struct dit_error *err) {
  struct reduce_task task;
  const bool logical = kind == REDUCE_ANY || kind == REDUCE_ALL;
  task.work = find_work(kind, out->dtype, in->dtype);
  task.fold = task.work < 0 ? NULL : reduce_find_fold(kind, task.work);
  if (!task.fold) {
    return DIT_ERR_UNSUPPORTED;
  }
  task.in_dtype = in->dtype;
  task.out_dtype = out->dtype;
  task.in_width = (int)dit_dtype_get_size(in->dtype);
  task.out_width = (int)dit_dtype_get_size(out->dtype);
  task.convert_twice = !logical && task.work != out->dtype && in->dtype != out->dtype;
  task.element = task.work;
  if (in->dtype == DIT_DTYPE_BF16 && task.work == DIT_DTYPE_F32 && !task.convert_twice &&
      reduce_find_fold(kind, DIT_DTYPE_BF16)) {
    task.element = DIT_DTYPE_BF16;
    task.fold = reduce_find_fold(kind, DIT_DTYPE_BF16);
  }
  task.kind = kind;
  task.parameter = parameter;
  task.in = in->data;
  task.out = out->data;
  set_axes(&task, out, in, mask);
  if (task.kept.numel == 0) {
    return DIT_OK;
  }
  if (task.reduced.numel == 0) {
    return fill_empty(stream, &task, out, err);
  }
  set_turned(&task);
  set_direction(&task);
  return host_stream_launch(stream, run_reduce, &task, sizeof(task), err);
}
