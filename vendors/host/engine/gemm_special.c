/// Matrix products that BLAS does badly or not at all: a few rows against rows of b (thin), and integers.
#include <string.h>

#include "dit/parallel.h"
#include "engine/scratch.h"
#include "gemm_builtin.h"
#include "simd.h"

// thin: c[i][j] = a_i . b_j with b_j contiguous, a handful of a_i

#define THIN_ROWS 8
#define THIN_STEP 4  // rows of a that share a load of b

bool gemm_is_thin(const struct gemm_problem *p) {
  return p->m <= THIN_ROWS && p->b_strides[0] == 1 && p->k >= 128 && p->n >= 4;
}

struct thin_task {
  const struct gemm_problem *problem;
  const void *a;  ///< dense rows
};

/// Columns [begin, end) of c.
#define THIN_BODY(name, type, lanes)                                                                          \
  KERNEL_INLINE void name##_body(const struct thin_task *task, int64_t begin, int64_t end) {                  \
    typedef type vector __attribute__((vector_size(lanes * sizeof(type)), aligned(sizeof(type)), may_alias)); \
    const struct gemm_problem *p = task->problem;                                                             \
    const type alpha = (type)p->alpha, beta = (type)p->beta;                                                  \
    for (int64_t j = begin; j < end; j++) {                                                                   \
      const type *b = (const type *)p->b + j * p->b_strides[1];                                               \
      for (int64_t first = 0; first < p->m; first += THIN_STEP) {                                             \
        const int64_t rows = p->m - first < THIN_STEP ? p->m - first : THIN_STEP;                             \
        const type *a0 = (const type *)task->a + first * p->k, *a1 = rows > 1 ? a0 + p->k : a0;               \
        const type *a2 = rows > 2 ? a1 + p->k : a0, *a3 = rows > 3 ? a2 + p->k : a0;                          \
        vector s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                        \
        type sums[THIN_STEP] = {0};                                                                           \
        int64_t i = 0;                                                                                        \
        for (; i + lanes <= p->k; i += lanes) {                                                               \
          const vector x = *(const vector *)(b + i);                                                          \
          s0 += *(const vector *)(a0 + i) * x;                                                                \
          s1 += *(const vector *)(a1 + i) * x;                                                                \
          s2 += *(const vector *)(a2 + i) * x;                                                                \
          s3 += *(const vector *)(a3 + i) * x;                                                                \
        }                                                                                                     \
        for (; i < p->k; i++) {                                                                               \
          sums[0] += a0[i] * b[i];                                                                            \
          sums[1] += a1[i] * b[i];                                                                            \
          sums[2] += a2[i] * b[i];                                                                            \
          sums[3] += a3[i] * b[i];                                                                            \
        }                                                                                                     \
        for (int l = 0; l < lanes; l++) {                                                                     \
          sums[0] += s0[l];                                                                                   \
          sums[1] += s1[l];                                                                                   \
          sums[2] += s2[l];                                                                                   \
          sums[3] += s3[l];                                                                                   \
        }                                                                                                     \
        for (int64_t r = 0; r < rows; r++) {                                                                  \
          type *c = (type *)p->c + (first + r) * p->c_strides[0] + j * p->c_strides[1];                       \
          *c = beta == 0 ? alpha * sums[r] : beta * *c + alpha * sums[r];                                     \
        }                                                                                                     \
      }                                                                                                       \
    }                                                                                                         \
  }                                                                                                           \
  KERNEL_MULTI(static, name, (const struct thin_task *task, int64_t begin, int64_t end), (task, begin, end))
THIN_BODY(thin_f32, float, 16)
THIN_BODY(thin_f64, double, 8)

/// The same for one row of a, whose loads four columns share; a sum is taken in the same order. Columns beyond the last
/// one read it again.
#define LINE_BODY(name, type, lanes)                                                                            \
  KERNEL_INLINE void name##_body(const struct thin_task *task, int64_t begin, int64_t end) {                    \
    typedef type vector __attribute__((vector_size(lanes * sizeof(type)), aligned(sizeof(type)), may_alias));   \
    const struct gemm_problem *p = task->problem;                                                               \
    const type alpha = (type)p->alpha, beta = (type)p->beta, *a = task->a;                                      \
    for (int64_t j = begin; j < end; j += THIN_STEP) {                                                          \
      const int64_t columns = end - j < THIN_STEP ? end - j : THIN_STEP;                                        \
      const type *b0 = (const type *)p->b + j * p->b_strides[1], *b1 = columns > 1 ? b0 + p->b_strides[1] : b0; \
      const type *b2 = columns > 2 ? b1 + p->b_strides[1] : b0, *b3 = columns > 3 ? b2 + p->b_strides[1] : b0;  \
      vector s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                            \
      type sums[THIN_STEP] = {0};                                                                               \
      int64_t i = 0;                                                                                            \
      for (; i + lanes <= p->k; i += lanes) {                                                                   \
        const vector x = *(const vector *)(a + i);                                                              \
        s0 += x * *(const vector *)(b0 + i);                                                                    \
        s1 += x * *(const vector *)(b1 + i);                                                                    \
        s2 += x * *(const vector *)(b2 + i);                                                                    \
        s3 += x * *(const vector *)(b3 + i);                                                                    \
      }                                                                                                         \
      for (; i < p->k; i++) {                                                                                   \
        sums[0] += a[i] * b0[i];                                                                                \
        sums[1] += a[i] * b1[i];                                                                                \
        sums[2] += a[i] * b2[i];                                                                                \
        sums[3] += a[i] * b3[i];                                                                                \
      }                                                                                                         \
      for (int l = 0; l < lanes; l++) {                                                                         \
        sums[0] += s0[l];                                                                                       \
        sums[1] += s1[l];                                                                                       \
        sums[2] += s2[l];                                                                                       \
        sums[3] += s3[l];                                                                                       \
      }                                                                                                         \
      for (int64_t r = 0; r < columns; r++) {                                                                   \
        type *c = (type *)p->c + (j + r) * p->c_strides[1];                                                     \
        *c = beta == 0 ? alpha * sums[r] : beta * *c + alpha * sums[r];                                         \
      }                                                                                                         \
    }                                                                                                           \
  }                                                                                                             \
  KERNEL_MULTI(static, name, (const struct thin_task *task, int64_t begin, int64_t end), (task, begin, end))
LINE_BODY(line_f32, float, 16)
LINE_BODY(line_f64, double, 8)

static void run_thin(void *context, int64_t begin, int64_t end) {
  const struct thin_task *task = context;
  if (task->problem->m == 1) {
    (task->problem->wide ? line_f64 : line_f32)(task, begin, end);
  } else if (task->problem->wide) {
    thin_f64(task, begin, end);
  } else {
    thin_f32(task, begin, end);
  }
}

bool gemm_thin(const struct gemm_problem *p) {
  const size_t size = p->wide ? 8 : 4;
  void *room = NULL;
  struct thin_task task = {p, p->a};
  if (p->a_strides[1] != 1 || (p->m > 1 && p->a_strides[0] != p->k)) {
    room = scratch_take((size_t)(p->m * p->k) * size);
    if (!room) {
      return false;
    }
    for (int64_t i = 0; i < p->m * p->k; i++) {
      const int64_t at = i / p->k * p->a_strides[0] + i % p->k * p->a_strides[1];
      memcpy((char *)room + (size_t)i * size, (const char *)p->a + at * (int64_t)size, size);
    }
    task.a = room;
  }
  dit_parallel_for(0, p->n, 131072 / (p->m * p->k + 1) + 1, run_thin, &task);
  scratch_give(room);
  return true;
}

// integers: arithmetic modulo 2^32 or 2^64

#define PANEL_BYTES 64  // of one row of a panel of b, and of the sums that stay in registers
#define PANEL_ROWS 4    // of c that share a load of the panel

/// Rows [begin, end) of c, one after the other.
#define ROWS_BODY(name, type)                                                                 \
  KERNEL_INLINE void name##_body(const struct gemm_integers *p, int64_t begin, int64_t end) { \
    const int64_t n = p->n, depth = p->k;                                                     \
    const type alpha = (type)p->alpha, beta = (type)p->beta;                                  \
    for (int64_t i = begin; i < end; i++) {                                                   \
      type *restrict c = (type *)p->c + i * n;                                                \
      const type *restrict a = (const type *)p->a + i * depth;                                \
      for (int64_t j = 0; j < n; j++) {                                                       \
        c[j] *= beta;                                                                         \
      }                                                                                       \
      for (int64_t k = 0; k < depth; k++) {                                                   \
        const type factor = alpha * a[k], *restrict b = (const type *)p->b + k * n;           \
        KERNEL_LANES                                                                          \
        for (int64_t j = 0; j < n; j++) {                                                     \
          c[j] += factor * b[j];                                                              \
        }                                                                                     \
      }                                                                                       \
    }                                                                                         \
  }                                                                                           \
  KERNEL_MULTI(static, name, (const struct gemm_integers *p, int64_t begin, int64_t end), (p, begin, end))
ROWS_BODY(rows_u32, uint32_t)
ROWS_BODY(rows_u64, uint64_t)

/// The same in panels: `width` columns of b are packed into `panel`, then four rows of c at a time are summed in
/// registers. Rows beyond the last one read the first again.
#define PANEL_BODY(name, type)                                                                             \
  KERNEL_INLINE void name##_body(const struct gemm_integers *p, type *panel, int64_t begin, int64_t end) { \
    enum { LANES = PANEL_BYTES / sizeof(type) };                                                           \
    typedef type vector __attribute__((vector_size(PANEL_BYTES), aligned(sizeof(type)), may_alias));       \
    const type alpha = (type)p->alpha, beta = (type)p->beta;                                               \
    for (int64_t j = 0; j < p->n; j += LANES) {                                                            \
      const int64_t width = p->n - j < LANES ? p->n - j : LANES;                                           \
      for (int64_t k = 0; k < p->k; k++) {                                                                 \
        const type *b = (const type *)p->b + k * p->n + j;                                                 \
        for (int64_t l = 0; l < LANES; l++) {                                                              \
          panel[k * LANES + l] = l < width ? b[l] : 0;                                                     \
        }                                                                                                  \
      }                                                                                                    \
      for (int64_t i = begin; i < end; i += PANEL_ROWS) {                                                  \
        const int64_t rows = end - i < PANEL_ROWS ? end - i : PANEL_ROWS;                                  \
        const type *a0 = (const type *)p->a + i * p->k, *a1 = rows > 1 ? a0 + p->k : a0;                   \
        const type *a2 = rows > 2 ? a1 + p->k : a0, *a3 = rows > 3 ? a2 + p->k : a0;                       \
        vector sums[PANEL_ROWS] = {{0}};                                                                   \
        for (int64_t k = 0; k < p->k; k++) {                                                               \
          const vector x = *(const vector *)(panel + k * LANES);                                           \
          sums[0] += x * a0[k];                                                                            \
          sums[1] += x * a1[k];                                                                            \
          sums[2] += x * a2[k];                                                                            \
          sums[3] += x * a3[k];                                                                            \
        }                                                                                                  \
        for (int64_t r = 0; r < rows; r++) {                                                               \
          type *c = (type *)p->c + (i + r) * p->n + j;                                                     \
          for (int64_t l = 0; l < width; l++) {                                                            \
            c[l] = beta * c[l] + alpha * sums[r][l];                                                       \
          }                                                                                                \
        }                                                                                                  \
      }                                                                                                    \
    }                                                                                                      \
  }                                                                                                        \
  KERNEL_MULTI(static, name, (const struct gemm_integers *p, type *panel, int64_t begin, int64_t end),     \
               (p, panel, begin, end))
PANEL_BODY(panels_u32, uint32_t)
PANEL_BODY(panels_u64, uint64_t)

static void run_integers(void *context, int64_t begin, int64_t end) {
  const struct gemm_integers *p = context;
  void *panel = end - begin >= PANEL_ROWS ? scratch_take((size_t)p->k * PANEL_BYTES) : NULL;
  if (!panel) {
    (p->wide ? rows_u64 : rows_u32)(p, begin, end);
  } else if (p->wide) {
    panels_u64(p, panel, begin, end);
  } else {
    panels_u32(p, panel, begin, end);
  }
  scratch_give(panel);
}

void gemm_multiply_integers(struct gemm_integers *product) {
  dit_parallel_for(0, product->m, 65536 / (product->n * product->k + 1) + 1, run_integers, product);
}
