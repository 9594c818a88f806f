/// The built-in matrix product (see gemm_builtin.h): panels of b and blocks of a are packed, tiles of 6 rows by two
/// vectors stay in registers.
#include "gemm_builtin.h"

#include <pthread.h>
#include <string.h>

#include "dit/options.h"
#include "dit/parallel.h"
#include "engine/scratch.h"
#include "simd.h"

#define GEMM_ROWS 6
#define BLOCK_ROWS 48  // multiple of GEMM_ROWS: packed a stays in the second-level cache
#define BLOCK_DEPTH 256
#define BLOCK_COLUMNS 2048

typedef void tile_function(int64_t depth, const void *a, const void *b, void *tile);

#define REAL float
#define VECTOR_BYTES 16
#define TILE_NAME tile_f32_base
#define TILE_TARGET
#include "gemm_tile.h"
#define REAL double
#define VECTOR_BYTES 16
#define TILE_NAME tile_f64_base
#define TILE_TARGET
#include "gemm_tile.h"
#if KERNEL_X86
#define REAL float
#define VECTOR_BYTES 32
#define TILE_NAME tile_f32_v3
#define TILE_TARGET KERNEL_V3
#include "gemm_tile.h"
#define REAL double
#define VECTOR_BYTES 32
#define TILE_NAME tile_f64_v3
#define TILE_TARGET KERNEL_V3
#include "gemm_tile.h"
#define REAL float
#define VECTOR_BYTES 64
#define TILE_NAME tile_f32_v4
#define TILE_TARGET KERNEL_V4
#include "gemm_tile.h"
#define REAL double
#define VECTOR_BYTES 64
#define TILE_NAME tile_f64_v4
#define TILE_TARGET KERNEL_V4
#include "gemm_tile.h"
#endif

struct tile_choice {
  tile_function *run[2];  ///< float, double
  int vector_bytes;
};

static struct tile_choice choose_tile(void) {
#if KERNEL_X86
  if (kernel_level == 4) {
    return (struct tile_choice){{tile_f32_v4, tile_f64_v4}, 64};
  }
  if (kernel_level == 3) {
    return (struct tile_choice){{tile_f32_v3, tile_f64_v3}, 32};
  }
#endif
  return (struct tile_choice){{tile_f32_base, tile_f64_base}, 16};
}

#define PACK_LOOP(type)                                                                                              \
  for (int64_t k = 0; k < depth; k++) {                                                                              \
    for (int64_t i = 0; i < width; i++) {                                                                            \
      ((type *)dst)[k * width + i] = i < valid ? ((const type *)src)[i * width_stride + k * depth_stride] : (type)0; \
    }                                                                                                                \
  }

/// A strip of `valid` rows (or columns) by `depth`, padded with zeros to `width`, interleaved along the depth.
static void pack_strip(bool wide, void *dst, const void *src, int64_t valid, int64_t width, int64_t width_stride,
                       int64_t depth, int64_t depth_stride) {
  if (wide) {
    PACK_LOOP(double)
  } else {
    PACK_LOOP(float)
  }
}

struct blocked_task {
  const struct gemm_problem *problem;
  tile_function *tile;
  int64_t width;  ///< columns of a tile
  int64_t column, columns;
  int64_t deep, depth;
  char *packed_b;
  const int64_t *rows;  ///< where b's rows begin; NULL: by its strides
};

static int64_t get_size(const struct gemm_problem *problem) {
  return problem->wide ? 8 : 4;
}

/// A strip of b whose rows begin anywhere.
static void pack_rows(const struct blocked_task *task, char *dst, int64_t column, int64_t valid) {
  const int64_t size = get_size(task->problem), bytes = task->width * size;
  const char *b = (const char *)task->problem->b + column * size;
  const int64_t *rows = task->rows + task->deep;
  if (valid == task->width && bytes == 128) {
    for (int64_t k = 0; k < task->depth; k++) {
      memcpy(dst + k * 128, b + rows[k] * size, 128);
    }
    return;
  }
  for (int64_t k = 0; k < task->depth; k++) {
    memcpy(dst + k * bytes, b + rows[k] * size, (size_t)(valid * size));
    memset(dst + k * bytes + valid * size, 0, (size_t)(bytes - valid * size));
  }
}

static void pack_b(void *context, int64_t begin, int64_t end) {
  const struct blocked_task *task = context;
  const struct gemm_problem *p = task->problem;
  const int64_t size = get_size(p);
  for (int64_t strip = begin; strip < end; strip++) {
    int64_t first = strip * task->width, valid = task->columns - first;
    if (task->rows) {
      pack_rows(task, task->packed_b + first * task->depth * size, task->column + first,
                valid < task->width ? valid : task->width);
      continue;
    }
    const char *src =
        (const char *)p->b + (task->deep * p->b_strides[0] + (task->column + first) * p->b_strides[1]) * size;
    pack_strip(p->wide, task->packed_b + first * task->depth * size, src, valid < task->width ? valid : task->width,
               task->width, p->b_strides[1], task->depth, p->b_strides[0]);
  }
}

#define MERGE_ROW(step)                                                             \
  for (int64_t j = 0; j < columns; j++) {                                           \
    c[j * (step)] = beta == 0 ? alpha * t[j] : beta * c[j * (step)] + alpha * t[j]; \
  }

#define MERGE_LOOP(type)                                                   \
  for (int64_t i = 0; i < rows; i++) {                                     \
    type *restrict c = (type *)at + i * p->c_strides[0];                   \
    const type *restrict t = (const type *)tile + i * task->width;         \
    const type alpha = (type)p->alpha, beta = (type)(first ? p->beta : 1); \
    if (p->c_strides[1] != 1) {                                            \
      MERGE_ROW(p->c_strides[1])                                           \
    } else if (beta == 1 && alpha == 1) {                                  \
      for (int64_t j = 0; j < columns; j++) {                              \
        c[j] += t[j];                                                      \
      }                                                                    \
    } else if (beta == 0) {                                                \
      for (int64_t j = 0; j < columns; j++) {                              \
        c[j] = alpha * t[j];                                               \
      }                                                                    \
    } else {                                                               \
      MERGE_ROW(1)                                                         \
    }                                                                      \
  }

static void merge_tile(const struct blocked_task *task, int64_t row, int64_t column, int64_t rows, int64_t columns,
                       const void *tile) {
  const struct gemm_problem *p = task->problem;
  const bool first = task->deep == 0;
  char *at = (char *)p->c + (row * p->c_strides[0] + column * p->c_strides[1]) * get_size(p);
  if (p->wide) {
    MERGE_LOOP(double)
  } else {
    MERGE_LOOP(float)
  }
}

static void multiply_rows(void *context, int64_t begin, int64_t end) {
  const struct blocked_task *task = context;
  const struct gemm_problem *p = task->problem;
  const int64_t size = get_size(p);
  _Alignas(64) char packed_a[BLOCK_ROWS * BLOCK_DEPTH * 8];
  _Alignas(64) char tile[GEMM_ROWS * 2 * 64];
  for (int64_t block = begin; block < end; block++) {
    int64_t row = block * BLOCK_ROWS, rows = p->m - row < BLOCK_ROWS ? p->m - row : BLOCK_ROWS;
    for (int64_t i = 0; i < rows; i += GEMM_ROWS) {
      const char *src = (const char *)p->a + ((row + i) * p->a_strides[0] + task->deep * p->a_strides[1]) * size;
      pack_strip(p->wide, packed_a + i * task->depth * size, src, rows - i < GEMM_ROWS ? rows - i : GEMM_ROWS,
                 GEMM_ROWS, p->a_strides[0], task->depth, p->a_strides[1]);
    }
    for (int64_t j = 0; j < task->columns; j += task->width) {
      int64_t columns = task->columns - j < task->width ? task->columns - j : task->width;
      for (int64_t i = 0; i < rows; i += GEMM_ROWS) {
        task->tile(task->depth, packed_a + i * task->depth * size, task->packed_b + j * task->depth * size, tile);
        merge_tile(task, row + i, task->column + j, rows - i < GEMM_ROWS ? rows - i : GEMM_ROWS, columns, tile);
      }
    }
  }
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int option;

static void find_option(void) {
  option = dit_option_find("host_batch_invariant");
}

bool gemm_is_batch_invariant(void) {
  pthread_once(&once, find_option);
  return option >= 0 && dit_option_get_int(option) != 0;
}

bool gemm_blocked(const struct gemm_problem *p) {
  return gemm_blocked_rows(p, NULL);
}

bool gemm_blocked_rows(const struct gemm_problem *p, const int64_t *rows) {
  struct tile_choice choice = choose_tile();
  struct blocked_task task = {.problem = p, .tile = choice.run[p->wide], .rows = rows};
  task.width = 2 * choice.vector_bytes / get_size(p);
  int64_t columns = p->n < BLOCK_COLUMNS ? p->n : BLOCK_COLUMNS, depth = p->k < BLOCK_DEPTH ? p->k : BLOCK_DEPTH;
  columns = (columns + task.width - 1) / task.width * task.width;
  task.packed_b = scratch_take((size_t)(columns * depth * get_size(p)));
  if (!task.packed_b) {
    return false;
  }
  for (task.column = 0; task.column < p->n; task.column += BLOCK_COLUMNS) {
    task.columns = p->n - task.column < BLOCK_COLUMNS ? p->n - task.column : BLOCK_COLUMNS;
    for (task.deep = 0; task.deep < p->k; task.deep += BLOCK_DEPTH) {
      task.depth = p->k - task.deep < BLOCK_DEPTH ? p->k - task.deep : BLOCK_DEPTH;
      int64_t strips = (task.columns + task.width - 1) / task.width;
      dit_parallel_for(0, strips, 32768 / (task.width * task.depth) + 1, pack_b, &task);
      int64_t blocks = (p->m + BLOCK_ROWS - 1) / BLOCK_ROWS;
      int64_t grain = 1 + (INT64_C(1) << 18) / (BLOCK_ROWS * task.columns * task.depth);
      dit_parallel_for(0, blocks, grain, multiply_rows, &task);
    }
  }
  scratch_give(task.packed_b);
  return true;
}

bool gemm_is_tiny(int64_t m, int64_t n, int64_t k) {
  return n <= 64 && k <= 64 && m <= 64 && m * n * k <= 8192;
}

/// Columns are taken in panels of `lanes`: the panel of b is packed (padded with zeros), one row of sums is one vector.
#define TINY_PANEL(name, type, lanes)                                                                         \
  KERNEL_INLINE void name(const struct gemm_problem *p, int column) {                                         \
    typedef type vector __attribute__((vector_size(lanes * sizeof(type)), aligned(sizeof(type)), may_alias)); \
    type b[64 * lanes] __attribute__((aligned(64)));                                                          \
    const int n = (int)p->n - column < lanes ? (int)p->n - column : lanes, k = (int)p->k;                     \
    const type alpha = (type)p->alpha, beta = (type)p->beta;                                                  \
    const int64_t step = p->b_strides[1];                                                                     \
    for (int i = 0; i < k; i++) {                                                                             \
      const type *at = (const type *)p->b + i * p->b_strides[0] + column * step;                              \
      vector row = {0};                                                                                       \
      if (n == lanes && step == 1) {                                                                          \
        row = *(const vector *)at;                                                                            \
      } else {                                                                                                \
        for (int j = 0; j < n; j++) {                                                                         \
          ((type *)&row)[j] = at[j * step];                                                                   \
        }                                                                                                     \
      }                                                                                                       \
      *(vector *)(b + i * lanes) = row;                                                                       \
    }                                                                                                         \
    for (int64_t row = 0; row < p->m; row++) {                                                                \
      const type *a = (const type *)p->a + row * p->a_strides[0];                                             \
      type *c = (type *)p->c + row * p->c_strides[0] + column * p->c_strides[1];                              \
      vector sum = {0};                                                                                       \
      for (int i = 0; i < k; i++) {                                                                           \
        sum += a[i * p->a_strides[1]] * *(const vector *)(b + i * lanes);                                     \
      }                                                                                                       \
      sum *= alpha;                                                                                           \
      if (beta == 0 && n == lanes && p->c_strides[1] == 1) {                                                  \
        *(vector *)c = sum;                                                                                   \
        continue;                                                                                             \
      }                                                                                                       \
      for (int j = 0; j < n; j++) {                                                                           \
        type *target = c + j * p->c_strides[1];                                                               \
        *target = beta == 0 ? ((type *)&sum)[j] : beta * *target + ((type *)&sum)[j];                         \
      }                                                                                                       \
    }                                                                                                         \
  }
TINY_PANEL(tiny_panel_f32_narrow, float, 4)
TINY_PANEL(tiny_panel_f32_wide, float, 16)
TINY_PANEL(tiny_panel_f64_narrow, double, 4)
TINY_PANEL(tiny_panel_f64_wide, double, 8)

#define TINY_BODY(name, panel, lanes)                            \
  KERNEL_INLINE void name##_body(const struct gemm_problem *p) { \
    if (p->n <= 4) {                                             \
      panel##_narrow(p, 0);                                      \
      return;                                                    \
    }                                                            \
    for (int column = 0; column < p->n; column += lanes) {       \
      panel##_wide(p, column);                                   \
    }                                                            \
  }                                                              \
  KERNEL_MULTI(static, name, (const struct gemm_problem *p), (p))
TINY_BODY(tiny_f32, tiny_panel_f32, 16)
TINY_BODY(tiny_f64, tiny_panel_f64, 8)

void gemm_tiny(const struct gemm_problem *problem) {
  if (problem->wide) {
    tiny_f64(problem);
  } else {
    tiny_f32(problem);
  }
}
