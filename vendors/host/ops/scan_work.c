/// Running sums on the host (see scan.c).
#include "dense.h"
#include "dit/parallel.h"
#include "engine/simd.h"
#include "scan.h"

#define COLUMN_BLOCK 256
#define GRAIN 16384
/// So many lines side by side go one after the other.
#define FEW_LINES 4

/// Lines side by side: one step of each.
#define DEFINE_STEP(name, type, total)                                                            \
  KERNEL_INLINE void name##_body(type *out, const type *in, total *restrict sum, int64_t count) { \
    KERNEL_LANES                                                                                  \
    for (int64_t i = 0; i < count; i++) {                                                         \
      sum[i] += (total)in[i];                                                                     \
      out[i] = (type)sum[i];                                                                      \
    }                                                                                             \
  }                                                                                               \
  KERNEL_MULTI(static, name, (type * out, const type *in, total *restrict sum, int64_t count), (out, in, sum, count))
DEFINE_STEP(step_f32, float, double)
DEFINE_STEP(step_f64, double, double)
DEFINE_STEP(step_u64, uint64_t, uint64_t)

#define DEFINE_SCAN(suffix, type, total)                                           \
  static void scan_block_##suffix(const struct scan_task *task, int64_t block) {   \
    const int64_t inner = task->shape.inner, length = task->shape.length;          \
    const int64_t first = block % task->blocks * COLUMN_BLOCK;                     \
    const int64_t n = inner - first < COLUMN_BLOCK ? inner - first : COLUMN_BLOCK; \
    const int64_t base = block / task->blocks * length * inner + first;            \
    const type *in = (const type *)task->in + base;                                \
    type *out = (type *)task->out + base;                                          \
    if (n <= FEW_LINES) {                                                          \
      for (int64_t line = 0; line < n; line++) {                                   \
        total sum = 0;                                                             \
        for (int64_t i = 0; i < length; i++) {                                     \
          const int64_t at = (task->reverse ? length - 1 - i : i) * inner + line;  \
          sum += (total)in[at];                                                    \
          out[at] = (type)sum;                                                     \
        }                                                                          \
      }                                                                            \
      return;                                                                      \
    }                                                                              \
    total sum[COLUMN_BLOCK] = {0};                                                 \
    for (int64_t i = 0; i < length; i++) {                                         \
      const int64_t at = (task->reverse ? length - 1 - i : i) * inner;             \
      step_##suffix(out + at, in + at, sum, n);                                    \
    }                                                                              \
  }
DEFINE_SCAN(f32, float, double)
DEFINE_SCAN(f64, double, double)
DEFINE_SCAN(u64, uint64_t, uint64_t)

static void run_blocks(void *context, int64_t begin, int64_t end) {
  const struct scan_task *task = context;
  for (int64_t block = begin; block < end; block++) {
    if (task->work == DIT_DTYPE_F32) {
      scan_block_f32(task, block);
    } else if (task->work == DIT_DTYPE_F64) {
      scan_block_f64(task, block);
    } else {
      scan_block_u64(task, block);
    }
  }
}

static diopiError_t run_scan(void *argument) {
  struct scan_task *task = argument;
  struct dense in = {0}, out = {0};
  const bool done = dense_read(&in, task->v_in, task->work) && dense_reserve(&out, task->v_out, task->work);
  if (done) {
    const int64_t width = task->shape.inner < COLUMN_BLOCK ? task->shape.inner : COLUMN_BLOCK;
    task->in = in.data;
    task->out = out.data;
    task->blocks = (task->shape.inner + COLUMN_BLOCK - 1) / COLUMN_BLOCK;
    dit_parallel_for(0, task->shape.outer * task->blocks, GRAIN / (task->shape.length * width), run_blocks, task);
    dense_store(&out);
  }
  dense_close(&in);
  dense_close(&out);
  return done ? diopiSuccess : dense_fail(task->frame);
}

diopiError_t scan_run(struct scan_task *task) {
  return frame_run(task->frame, run_scan, task);
}
