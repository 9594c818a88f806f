/// The matrix product kernel: out = beta * bias + alpha * a @ b for a batch of matrices.
///
/// float: tiny products by a direct loop, others by oneDNN or BLAS where one was found, else by the built-in blocked
/// code; double the same without oneDNN. half and bfloat16 go to oneDNN, else they are widened to float, accumulated
/// there and rounded once. Complex matrices are four real products of their parts. Integers multiply in plain C and
/// wrap. Strides that BLAS cannot take are packed first; large products are cut into tiles by shape alone. Without
/// memory for packing a plain loop does the work: slow, but right. Option host_batch_invariant: the built-in blocked
/// code alone, which gives each row the same bits in every product.
#include "gemm.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "blas.h"
#include "cast.h"
#include "dit/parallel.h"
#include "engine/scratch.h"
#include "host.h"
#include "kernels.h"
#include "onednn.h"
#include "rows.h"

// Multiplications of a call from which on oneDNN pays: float has BLAS beside it, the half types must be widened else.
#define ONEDNN_FLOAT 524288.0
#define ONEDNN_HALF 65536.0

/// One operand: strides in elements for batch, row, column.
struct operand {
  char *data;
  int64_t sizes[3];
  int64_t strides[3];
};

struct gemm_task {
  struct operand out, a, b, bias;
  int dtype;
  bool has_bias;
  double alpha, beta;
};

static void set_operand(struct operand *operand, const struct dit_tensor_view *view) {
  operand->data = view->data;
  for (int i = 0; i < 3; i++) {
    operand->sizes[i] = view->sizes[i];
    operand->strides[i] = view->strides[i];
  }
}

static char *get_matrix(const struct operand *operand, int64_t batch, size_t width) {
  return operand->data + batch * operand->strides[0] * (int64_t)width;
}

/// dst (dense rows x columns of `dst_dtype`) = one matrix of the operand, or the way back.
static void copy_matrix(const struct operand *operand, int64_t batch, int dtype, void *dense, int dense_dtype,
                        bool to_operand) {
  const int64_t dense_strides[2] = {operand->sizes[2], 1};
  struct dit_tensor_view far = {.data = get_matrix(operand, batch, dit_dtype_get_size(dtype)),
                                .sizes = operand->sizes + 1,
                                .strides = operand->strides + 1,
                                .numel = operand->sizes[1] * operand->sizes[2],
                                .ndim = 2,
                                .dtype = (int16_t)dtype};
  struct dit_tensor_view near = far;
  near.data = dense;
  near.strides = dense_strides;
  near.dtype = (int16_t)dense_dtype;
  enum dit_status status = kernel_copy(NULL, to_operand ? &far : &near, to_operand ? &near : &far, NULL);
  (void)status;  // conversions between these types always exist
}

// Plain loops, any dtype

static double load_real(int dtype, const char *data, int64_t index) {
  float value;
  switch (dtype) {
    case DIT_DTYPE_F32:
      return (double)((const float *)data)[index];
    case DIT_DTYPE_F64:
      return ((const double *)data)[index];
    default:
      cast_block(DIT_DTYPE_F32, &value, dtype, data + 2 * index, 1);
      return (double)value;
  }
}

static int64_t load_integer(int dtype, const char *data, int64_t index) {
  int64_t value;
  cast_block(DIT_DTYPE_I64, &value, dtype, data + index * (int64_t)dit_dtype_get_size(dtype), 1);
  return value;
}

static bool is_complex(int dtype) {
  return dtype == DIT_DTYPE_C64 || dtype == DIT_DTYPE_C128;
}

static bool is_floating(int dtype) {
  return dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_F64 || dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}

static void plain_real(const struct gemm_task *task, const char *a, const char *b, const char *bias, char *out) {
  double sum = 0;
  for (int64_t k = 0; k < task->a.sizes[2]; k++) {
    sum += load_real(task->dtype, a, k * task->a.strides[2]) * load_real(task->dtype, b, k * task->b.strides[1]);
  }
  sum = task->alpha * sum + (bias ? task->beta * load_real(task->dtype, bias, 0) : 0);
  cast_block(task->dtype, out, DIT_DTYPE_F64, &sum, 1);
}

static void plain_integer(const struct gemm_task *task, const char *a, const char *b, const char *bias, char *out) {
  uint64_t sum = 0;
  for (int64_t k = 0; k < task->a.sizes[2]; k++) {
    sum += (uint64_t)load_integer(task->dtype, a, k * task->a.strides[2]) *
           (uint64_t)load_integer(task->dtype, b, k * task->b.strides[1]);
  }
  sum *= (uint64_t)(int64_t)task->alpha;
  if (bias) {
    sum += (uint64_t)(int64_t)task->beta * (uint64_t)load_integer(task->dtype, bias, 0);
  }
  int64_t result = (int64_t)sum;
  cast_block(task->dtype, out, DIT_DTYPE_I64, &result, 1);
}

/// Rows [begin, end) of all matrices together.
static void run_plain(void *context, int64_t begin, int64_t end) {
  const struct gemm_task *task = context;
  const int64_t width = (int64_t)dit_dtype_get_size(task->dtype), rows = task->out.sizes[1];
  for (int64_t i = begin; i < end; i++) {
    int64_t batch = i / rows, row = i % rows;
    char *out = task->out.data + (batch * task->out.strides[0] + row * task->out.strides[1]) * width;
    const char *a = task->a.data + (batch * task->a.strides[0] + row * task->a.strides[1]) * width;
    const char *b = task->b.data + batch * task->b.strides[0] * width;
    const char *bias = task->bias.data + (batch * task->bias.strides[0] + row * task->bias.strides[1]) * width;
    for (int64_t column = 0; column < task->out.sizes[2]; column++) {
      (is_floating(task->dtype) ? plain_real : plain_integer)(
          task, a, b + column * task->b.strides[2] * width,
          task->has_bias ? bias + column * task->bias.strides[2] * width : NULL,
          out + column * task->out.strides[2] * width);
    }
  }
}

static void multiply_plain(struct gemm_task *task) {
  int64_t work = task->out.sizes[2] * (task->a.sizes[2] + 1);
  dit_parallel_for(0, task->out.sizes[0] * task->out.sizes[1], 16384 / (work + 1), run_plain, task);
}

// Float and double

/// Can BLAS read this matrix as it lies? A dimension of size 1 has any stride.
static bool map_matrix(const void *data, int64_t rows, int64_t columns, const int64_t *strides,
                       struct blas_matrix *out) {
  const int64_t row = strides[0], column = strides[1];
  out->data = data;
  if ((column == 1 || columns == 1) && (row >= columns || rows == 1)) {
    out->ld = rows == 1 && row < columns ? columns : row;
    out->transposed = false;
  } else if ((row == 1 || rows == 1) && (column >= rows || columns == 1)) {
    out->ld = columns == 1 && column < rows ? rows : column;
    out->transposed = true;
  } else {
    return false;
  }
  return out->ld >= 1 && out->ld <= INT32_MAX;
}

struct tiled_task {
  const struct gemm_problem *problem;
  struct blas_matrix a, b;
  int64_t ldc;
  int64_t row_tiles, column_tiles, tile_rows, tile_columns;
};

static void run_tiles(void *context, int64_t begin, int64_t end) {
  const struct tiled_task *task = context;
  const struct gemm_problem *p = task->problem;
  const int64_t size = p->wide ? 8 : 4;
  for (int64_t i = begin; i < end; i++) {
    int64_t row = i / task->column_tiles * task->tile_rows, column = i % task->column_tiles * task->tile_columns;
    int64_t rows = p->m - row < task->tile_rows ? p->m - row : task->tile_rows;
    int64_t columns = p->n - column < task->tile_columns ? p->n - column : task->tile_columns;
    struct blas_matrix a = task->a, b = task->b;
    a.data = (const char *)a.data + row * (a.transposed ? 1 : a.ld) * size;
    b.data = (const char *)b.data + column * (b.transposed ? b.ld : 1) * size;
    blas_gemm(p->wide, rows, columns, p->k, p->alpha, &a, &b, p->beta, (char *)p->c + (row * task->ldc + column) * size,
              task->ldc);
  }
}

/// Cut by shape alone: pieces of at least 2^21 multiplications, not thinner than 128 rows or 256 columns: BLAS packs
/// both matrices anew for every piece.
static void set_tiles(struct tiled_task *task) {
  const struct gemm_problem *p = task->problem;
  int64_t wanted = (int64_t)((double)p->m * (double)p->n * (double)p->k / 4194304.0);
  wanted = wanted > 64 ? 64 : wanted < 1 ? 1 : wanted;
  int64_t most_rows = (p->m + 127) / 128, most_columns = (p->n + 255) / 256;
  task->row_tiles = wanted < most_rows ? wanted : most_rows;
  int64_t left = wanted / task->row_tiles;
  task->column_tiles = left < 1 ? 1 : left < most_columns ? left : most_columns;
  task->tile_rows = ((p->m + task->row_tiles - 1) / task->row_tiles + 15) / 16 * 16;
  task->tile_columns = ((p->n + task->column_tiles - 1) / task->column_tiles + 63) / 64 * 64;
  task->row_tiles = (p->m + task->tile_rows - 1) / task->tile_rows;
  task->column_tiles = (p->n + task->tile_columns - 1) / task->tile_columns;
}

/// False when BLAS cannot take the result's layout or the sizes.
static bool multiply_blas(const struct gemm_problem *p) {
  struct tiled_task task = {.problem = p};
  if (p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX ||
      !map_matrix(p->a, p->m, p->k, p->a_strides, &task.a) || !map_matrix(p->b, p->k, p->n, p->b_strides, &task.b)) {
    return false;
  }
  struct blas_matrix c;
  if (!map_matrix(p->c, p->m, p->n, p->c_strides, &c) || c.transposed) {
    return false;
  }
  task.ldc = c.ld;
  set_tiles(&task);
  dit_parallel_for(0, task.row_tiles * task.column_tiles, 1, run_tiles, &task);
  return true;
}

/// A column-major result is the transposed product of the transposed inputs.
static void transpose_problem(struct gemm_problem *p) {
  struct gemm_problem old = *p;
  p->m = old.n;
  p->n = old.m;
  p->a = old.b;
  p->b = old.a;
  for (int i = 0; i < 2; i++) {
    p->a_strides[i] = old.b_strides[1 - i];
    p->b_strides[i] = old.a_strides[1 - i];
    p->c_strides[i] = old.c_strides[1 - i];
  }
}

/// One line by one line.
static void multiply_lines(const struct gemm_problem *p) {
  const double dot = p->wide ? row_dot_f64(p->a, p->b, p->k) : row_dot_f32(p->a, p->b, p->k);
  const double alpha = (double)p->alpha, beta = (double)p->beta;
  if (p->wide) {
    double *c = p->c;
    *c = alpha * dot + (beta == 0 ? 0 : beta * *c);
  } else {
    float *c = p->c;
    *c = (float)(alpha * dot + (beta == 0 ? 0 : beta * (double)*c));
  }
}

void gemm_multiply(struct gemm_problem *p) {
  if (gemm_is_batch_invariant() && gemm_blocked(p)) {
    return;
  }
  if (gemm_is_tiny(p->m, p->n, p->k)) {
    gemm_tiny(p);
    return;
  }
  if (p->n < p->m && p->n <= 8) {
    transpose_problem(p);  // few columns: few rows then
  }
  if (gemm_is_thin(p) && gemm_thin(p)) {
    return;
  }
  if (p->m == 1 && p->n == 1 && p->a_strides[1] == 1 && p->b_strides[0] == 1) {
    multiply_lines(p);
    return;
  }
  if (p->c_strides[1] != 1 && p->c_strides[0] == 1) {
    transpose_problem(p);
  }
  if (blas_is_available() && multiply_blas(p)) {
    return;
  }
  if (gemm_blocked(p)) {
    return;
  }
  for (int64_t i = 0; i < p->m; i++) {  // no memory: the tiny code on pieces, which keeps the sums in order
    for (int64_t j = 0; j < p->n; j++) {
      for (int64_t k = 0; k < p->k; k += 64) {
        struct gemm_problem piece = *p;
        const int64_t size = p->wide ? 8 : 4;
        piece.m = piece.n = 1;
        piece.k = p->k - k < 64 ? p->k - k : 64;
        piece.beta = k == 0 ? p->beta : 1;
        piece.a = (const char *)p->a + (i * p->a_strides[0] + k * p->a_strides[1]) * size;
        piece.b = (const char *)p->b + (k * p->b_strides[0] + j * p->b_strides[1]) * size;
        piece.c = (char *)p->c + (i * p->c_strides[0] + j * p->c_strides[1]) * size;
        gemm_tiny(&piece);
      }
    }
  }
}

static void set_problem(const struct gemm_task *task, int64_t batch, struct gemm_problem *p) {
  const size_t width = task->dtype == DIT_DTYPE_F64 ? 8 : 4;
  p->m = task->out.sizes[1];
  p->n = task->out.sizes[2];
  p->k = task->a.sizes[2];
  p->a = get_matrix(&task->a, batch, width);
  p->b = get_matrix(&task->b, batch, width);
  p->c = get_matrix(&task->out, batch, width);
  for (int i = 0; i < 2; i++) {
    p->a_strides[i] = task->a.strides[1 + i];
    p->b_strides[i] = task->b.strides[1 + i];
    p->c_strides[i] = task->out.strides[1 + i];
  }
  p->alpha = task->alpha;
  p->beta = task->has_bias ? task->beta : 0;
  p->wide = task->dtype == DIT_DTYPE_F64;
}

/// out = bias, where there is one: the products add to it.
static void copy_bias(const struct gemm_task *task, int64_t batch) {
  if (task->has_bias) {
    const size_t width = dit_dtype_get_size(task->dtype);
    struct dit_tensor_view to = {.data = get_matrix(&task->out, batch, width),
                                 .sizes = task->out.sizes + 1,
                                 .strides = task->out.strides + 1,
                                 .numel = task->out.sizes[1] * task->out.sizes[2],
                                 .ndim = 2,
                                 .dtype = (int16_t)task->dtype};
    struct dit_tensor_view from = to;
    from.data = get_matrix(&task->bias, batch, width);
    from.strides = task->bias.strides + 1;
    enum dit_status status = kernel_copy(NULL, &to, &from, NULL);
    (void)status;  // one dtype: cannot fail
  }
}

static void multiply_one(const struct gemm_task *task, int64_t batch) {
  struct gemm_problem problem;
  set_problem(task, batch, &problem);
  copy_bias(task, batch);
  gemm_multiply(&problem);
}

// complex: re = a.re b.re - a.im b.im, im = a.re b.im + a.im b.re

/// Products of real parts: `a_part`, `b_part` and `c_part` are 0 (real) or 1 (imaginary).
static void multiply_parts(const struct gemm_problem *whole, int a_part, int b_part, int c_part, double sign,
                           double beta) {
  struct gemm_problem p = *whole;
  const int64_t size = p.wide ? 8 : 4;
  p.a = (const char *)p.a + a_part * size;
  p.b = (const char *)p.b + b_part * size;
  p.c = (char *)p.c + c_part * size;
  p.alpha *= sign;
  p.beta = beta;
  gemm_multiply(&p);
}

/// K = 0: out = beta * out, or 0.
static void scale_complex(const struct gemm_problem *p) {
  for (int64_t i = 0; i < 2 * p->m * p->n; i++) {
    const int64_t at = i / 2 / p->n * p->c_strides[0] + i / 2 % p->n * p->c_strides[1] + i % 2;
    if (p->wide) {
      ((double *)p->c)[at] = p->beta == 0 ? 0 : ((double *)p->c)[at] * p->beta;
    } else {
      ((float *)p->c)[at] = p->beta == 0 ? 0 : ((float *)p->c)[at] * (float)p->beta;
    }
  }
}

static void run_complex_batch(void *context, int64_t begin, int64_t end) {
  const struct gemm_task *task = context;
  const size_t width = dit_dtype_get_size(task->dtype);
  for (int64_t batch = begin; batch < end; batch++) {
    struct gemm_problem p;
    set_problem(task, batch, &p);
    p.a = get_matrix(&task->a, batch, width);
    p.b = get_matrix(&task->b, batch, width);
    p.c = get_matrix(&task->out, batch, width);
    p.wide = task->dtype == DIT_DTYPE_C128;
    for (int i = 0; i < 2; i++) {
      p.a_strides[i] *= 2;
      p.b_strides[i] *= 2;
      p.c_strides[i] *= 2;
    }
    copy_bias(task, batch);
    if (p.k == 0) {
      scale_complex(&p);
      continue;
    }
    multiply_parts(&p, 0, 0, 0, 1, p.beta);
    multiply_parts(&p, 1, 1, 0, -1, 1);
    multiply_parts(&p, 0, 1, 1, 1, p.beta);
    multiply_parts(&p, 1, 0, 1, 1, 1);
  }
}

static void run_batch(void *context, int64_t begin, int64_t end) {
  for (int64_t batch = begin; batch < end; batch++) {
    multiply_one(context, batch);
  }
}

// integers: one matrix at a time in 32 or 64 bits, whose low bits are those of the narrower types

static bool multiply_integers(struct gemm_task *task, int64_t batch) {
  const int64_t m = task->out.sizes[1], n = task->out.sizes[2], k = task->a.sizes[2];
  const int work = task->dtype == DIT_DTYPE_I64 ? DIT_DTYPE_I64 : DIT_DTYPE_I32;
  const int64_t size = (int64_t)dit_dtype_get_size(work);
  char *room = scratch_take((size_t)((m * k + k * n + m * n) * size));
  if (!room) {
    return false;
  }
  char *a = room, *b = a + m * k * size, *c = b + k * n * size;
  copy_matrix(&task->a, batch, task->dtype, a, work, false);
  copy_matrix(&task->b, batch, task->dtype, b, work, false);
  if (task->has_bias) {
    copy_matrix(&task->bias, batch, task->dtype, c, work, false);
  } else {
    memset(c, 0, (size_t)(m * n * size));
  }
  struct gemm_integers product = {.m = m,
                                  .n = n,
                                  .k = k,
                                  .a = a,
                                  .b = b,
                                  .c = c,
                                  .alpha = (uint64_t)(int64_t)task->alpha,
                                  .beta = task->has_bias ? (uint64_t)(int64_t)task->beta : 1,
                                  .wide = work == DIT_DTYPE_I64};
  gemm_multiply_integers(&product);
  copy_matrix(&task->out, batch, task->dtype, c, work, true);
  scratch_give(room);
  return true;
}

static void run_integer_batch(void *context, int64_t begin, int64_t end) {
  struct gemm_task *task = context;
  for (int64_t batch = begin; batch < end; batch++) {
    if (!multiply_integers(task, batch)) {
      run_plain(task, batch * task->out.sizes[1], (batch + 1) * task->out.sizes[1]);
    }
  }
}

// Half types: one matrix at a time in float

/// One matrix of the operand as dense floats in the order it lies in; `strides` says which that is.
static void widen_matrix(const struct operand *operand, int64_t batch, int dtype, float *dense, int64_t strides[2]) {
  struct operand turned = *operand;
  const bool columns = operand->strides[1] < operand->strides[2];
  if (columns) {
    turned.sizes[1] = operand->sizes[2];
    turned.sizes[2] = operand->sizes[1];
    turned.strides[1] = operand->strides[2];
    turned.strides[2] = operand->strides[1];
  }
  copy_matrix(&turned, batch, dtype, dense, DIT_DTYPE_F32, false);
  strides[0] = columns ? 1 : operand->sizes[2];
  strides[1] = columns ? operand->sizes[1] : 1;
}

static bool multiply_half(struct gemm_task *task, int64_t batch) {
  const int64_t m = task->out.sizes[1], n = task->out.sizes[2], k = task->a.sizes[2];
  float *room = scratch_take(sizeof(float) * (size_t)(m * k + k * n + m * n));
  if (!room) {
    return false;
  }
  float *a = room, *b = a + m * k, *c = b + k * n;
  struct gemm_problem problem = {.m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a,
                                 .b = b,
                                 .c = c,
                                 .c_strides = {n, 1},
                                 .alpha = task->alpha,
                                 .beta = task->has_bias ? task->beta : 0};
  widen_matrix(&task->a, batch, task->dtype, a, problem.a_strides);
  widen_matrix(&task->b, batch, task->dtype, b, problem.b_strides);
  if (task->has_bias) {
    copy_matrix(&task->bias, batch, task->dtype, c, DIT_DTYPE_F32, false);
  }
  gemm_multiply(&problem);
  copy_matrix(&task->out, batch, task->dtype, c, DIT_DTYPE_F32, true);
  scratch_give(room);
  return true;
}

/// Few rows against many columns: widening all of b costs more than the product, so that blocks of its columns are
/// widened where the caches still hold them.
#define FEW_ROWS 64
#define THIN_BLOCK 32768   // elements of b in a block, where the product only reads them once or twice
#define WIDE_BLOCK 262144  // and where it works on them

struct half_columns {
  const struct gemm_task *task;
  int64_t batch, width;  ///< columns of a block
  const float *a;
  int64_t a_strides[2];
  _Atomic bool failed;
};

static int64_t get_half_width(const struct gemm_task *task) {
  const int64_t m = task->out.sizes[1], k = task->a.sizes[2];
  const int64_t width = (m <= 8 ? THIN_BLOCK : WIDE_BLOCK) / k;
  return width < 8 ? 8 : width;
}

static struct operand get_columns(const struct operand *whole, int64_t first, int64_t count) {
  struct operand part = *whole;
  part.data += first * whole->strides[2] * 2;
  part.sizes[2] = count;
  return part;
}

/// Blocks [begin, end) of columns.
static void run_half_columns(void *context, int64_t begin, int64_t end) {
  struct half_columns *half = context;
  const struct gemm_task *task = half->task;
  const int64_t m = task->out.sizes[1], n = task->out.sizes[2], k = task->a.sizes[2], width = half->width;
  float *room = scratch_take(sizeof(float) * (size_t)((k + m) * width));
  if (!room) {
    half->failed = true;
    return;
  }
  for (int64_t block = begin; block < end; block++) {
    const int64_t first = block * width, count = n - first < width ? n - first : width;
    float *b = room, *c = b + k * count;
    struct gemm_problem problem = {.m = m,
                                   .n = count,
                                   .k = k,
                                   .a = half->a,
                                   .b = b,
                                   .c = c,
                                   .a_strides = {half->a_strides[0], half->a_strides[1]},
                                   .c_strides = {count, 1},
                                   .alpha = task->alpha,
                                   .beta = task->has_bias ? task->beta : 0};
    const struct operand columns = get_columns(&task->b, first, count);
    const struct operand bias = get_columns(&task->bias, first, count), out = get_columns(&task->out, first, count);
    widen_matrix(&columns, half->batch, task->dtype, b, problem.b_strides);
    if (task->has_bias) {
      copy_matrix(&bias, half->batch, task->dtype, c, DIT_DTYPE_F32, false);
    }
    if (m > 8 || problem.b_strides[0] != 1 || k < 128 || gemm_is_batch_invariant() || !gemm_thin(&problem)) {
      gemm_multiply(&problem);
    }
    copy_matrix(&out, half->batch, task->dtype, c, DIT_DTYPE_F32, true);
  }
  scratch_give(room);
}

static bool multiply_half_columns(struct gemm_task *task, int64_t batch) {
  const int64_t m = task->out.sizes[1], n = task->out.sizes[2], k = task->a.sizes[2];
  float *a = scratch_take(sizeof(float) * (size_t)(m * k));
  if (!a) {
    return false;
  }
  struct half_columns half = {.task = task, .batch = batch, .width = get_half_width(task), .a = a, .failed = false};
  widen_matrix(&task->a, batch, task->dtype, a, half.a_strides);
  dit_parallel_for(0, (n + half.width - 1) / half.width, 1, run_half_columns, &half);
  scratch_give(a);
  return !half.failed;
}

static void run_half_batch(void *context, int64_t begin, int64_t end) {
  struct gemm_task *task = context;
  const bool by_columns = task->out.sizes[1] <= FEW_ROWS && task->out.sizes[2] > 2 * get_half_width(task);
  for (int64_t batch = begin; batch < end; batch++) {
    if (!(by_columns ? multiply_half_columns : multiply_half)(task, batch)) {
      run_plain(task, batch * task->out.sizes[1], (batch + 1) * task->out.sizes[1]);
    }
  }
}

/// Is it quicker there? BLAS is for a few columns, and for a few rows against columns that lie contiguous.
static bool is_for_onednn(const struct gemm_task *task) {
  const int64_t m = task->out.sizes[1], n = task->out.sizes[2], k = task->a.sizes[2];
  const double work = (double)m * (double)n * (double)k * (double)task->out.sizes[0];
  if (task->dtype == DIT_DTYPE_F32) {
    return work >= ONEDNN_FLOAT && n >= 16 && (m >= 128 || task->b.strides[2] == 1) && onednn_is_available();
  }
  return (task->dtype == DIT_DTYPE_F16 || task->dtype == DIT_DTYPE_BF16) && work >= ONEDNN_HALF &&
         onednn_is_available();
}

/// The whole batch by oneDNN, which reads the half types as they are; out is right afterwards, or written again.
static bool try_onednn(const struct gemm_task *task) {
  const struct operand *bias = &task->bias;
  const int64_t m = task->out.sizes[1], n = task->out.sizes[2], k = task->a.sizes[2];
  if (gemm_is_batch_invariant() || task->alpha != 1 ||
      (task->has_bias && (task->beta != 1 || bias->data == task->out.data)) || !is_for_onednn(task)) {
    return false;
  }
  struct onednn_gemm_call call = {.batch = task->out.sizes[0],
                                  .m = m,
                                  .n = n,
                                  .k = k,
                                  .a = task->a.data,
                                  .b = task->b.data,
                                  .out = task->out.data,
                                  .dtype = task->dtype};
  memcpy(call.a_strides, task->a.strides, sizeof(call.a_strides));
  memcpy(call.b_strides, task->b.strides, sizeof(call.b_strides));
  memcpy(call.out_strides, task->out.strides, sizeof(call.out_strides));
  if (task->has_bias && (call.batch == 1 || bias->strides[0] == 0) && (m == 1 || bias->strides[1] == 0) &&
      (n == 1 || bias->strides[2] == 1)) {
    call.bias = bias->data;
  } else if (task->has_bias) {
    call.adds = true;
    for (int64_t batch = 0; batch < call.batch; batch++) {
      copy_bias(task, batch);
    }
  }
  return onednn_multiply(&call);
}

static void run_gemm(void *argument) {
  struct gemm_task *task = argument;
  const int64_t batches = task->out.sizes[0], k = task->a.sizes[2];
  bool half = task->dtype == DIT_DTYPE_F16 || task->dtype == DIT_DTYPE_BF16;
  if (is_complex(task->dtype)) {
    dit_parallel_for(0, batches, 1, run_complex_batch, task);
    return;
  }
  if (k == 0) {
    multiply_plain(task);
    return;
  }
  if (try_onednn(task)) {
    return;
  }
  // many small matrices: one thread each; few large ones: all threads on each
  double work = (double)task->out.sizes[1] * (double)task->out.sizes[2] * (double)k;
  int64_t grain = work > 2097152.0 && batches < 16 ? batches : (int64_t)(262144.0 / (work + 1)) + 1;
  dit_parallel_for(0, batches, grain,
                   half                       ? run_half_batch
                   : is_floating(task->dtype) ? run_batch
                                              : run_integer_batch,
                   task);
}

/// The 4 x 4 path: one tiny float or double product on the default stream needs no task.
static bool try_tiny(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                     const struct dit_tensor_view *b, const struct dit_tensor_view *bias, double alpha) {
  if (stream || bias || out->sizes[0] != 1 || (out->dtype != DIT_DTYPE_F32 && out->dtype != DIT_DTYPE_F64) ||
      a->sizes[2] == 0 || !gemm_is_tiny(out->sizes[1], out->sizes[2], a->sizes[2]) || gemm_is_batch_invariant()) {
    return false;
  }
  struct gemm_problem problem = {.m = out->sizes[1],
                                 .n = out->sizes[2],
                                 .k = a->sizes[2],
                                 .a = a->data,
                                 .b = b->data,
                                 .c = out->data,
                                 .a_strides = {a->strides[1], a->strides[2]},
                                 .b_strides = {b->strides[1], b->strides[2]},
                                 .c_strides = {out->strides[1], out->strides[2]},
                                 .alpha = alpha,
                                 .wide = out->dtype == DIT_DTYPE_F64};
  gemm_tiny(&problem);
  return true;
}

enum dit_status kernel_gemm(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                            const struct dit_tensor_view *b, const struct dit_tensor_view *bias, double alpha,
                            double beta, struct dit_error *err) {
  enum dit_dtype_class class = dit_dtype_get_class(out->dtype);
  const bool real = is_floating(out->dtype), complex = is_complex(out->dtype);
  if ((!real && !complex && class != DIT_DTYPE_CLASS_INT && out->dtype != DIT_DTYPE_U8) || a->dtype != out->dtype ||
      b->dtype != out->dtype || (bias && bias->dtype != out->dtype) ||
      (!real && !complex && (alpha != trunc(alpha) || beta != trunc(beta)))) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (out->numel == 0 || try_tiny(stream, out, a, b, beta == 0 ? NULL : bias, alpha)) {
    return DIT_OK;
  }
  struct gemm_task task;
  set_operand(&task.out, out);
  set_operand(&task.a, a);
  set_operand(&task.b, b);
  task.has_bias = bias && beta != 0;
  set_operand(&task.bias, task.has_bias ? bias : out);
  task.dtype = out->dtype;
  task.alpha = alpha;
  task.beta = beta;
  return host_stream_launch(stream, run_gemm, &task, sizeof(task), err);
}
