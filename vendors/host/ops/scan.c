/// Running sums along one dimension.
///
/// out[i] = x[0] + ... + x[i]; the gradient runs the other way: grad_input[i] = g[i] + ... + g[last]. Accumulated in
/// double for floating types and in 64 bits for integers; `out` may have another dtype than the input. Complex numbers
/// are summed in their parts. Outputs may be exactly the input.
#include "dense.h"
#include "dit/parallel.h"
#include "engine/simd.h"
#include "lines.h"

#define COLUMN_BLOCK 256
#define GRAIN 16384

struct scan_task {
  struct frame *frame;
  const struct dit_tensor_view *v_out, *v_in;
  struct line_shape shape;
  int64_t blocks;  ///< of columns per outer index
  bool reverse;
  int work;
  const void *in;
  void *out;
};

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
    if (n == 1) {                                                                  \
      total sum = 0;                                                               \
      for (int64_t i = 0; i < length; i++) {                                       \
        const int64_t at = (task->reverse ? length - 1 - i : i) * inner;           \
        sum += (total)in[at];                                                      \
        out[at] = (type)sum;                                                       \
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

static diopiError_t launch(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out, const char *o_name,
                           diopiConstTensorHandle_t in, const char *x_name, int64_t dim, bool reverse) {
  struct frame frame;
  struct dit_tensor_view o, x;
  struct shaped real_out, real_in;
  int d;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, o_name, out, &o));
  FRAME_TRY(frame_take(&frame, x_name, in, &x));
  const bool pairs = frame_has_dtype(DTYPES_COMPLEX, x.dtype);
  if (!frame_has_dtype(DTYPES_PLAIN | DTYPES_COMPLEX, x.dtype)) {
    return frame_fail_dtype(&frame, x_name, x.dtype);
  }
  if (pairs ? o.dtype != x.dtype : !frame_has_dtype(DTYPES_PLAIN, o.dtype)) {
    return frame_fail_dtype(&frame, o_name, o.dtype);
  }
  FRAME_CHECK(&frame, frame_is_same_shape(&o, &x), "'%s' has another shape than '%s'", o_name, x_name);
  FRAME_TRY(frame_wrap_dim(&frame, "dim", dim, x.ndim, &d));
  FRAME_TRY(frame_check_output(&frame, o_name, &o, (const struct dit_tensor_view *[]){&x}, 1, true));
  if (x.numel == 0) {
    return diopiSuccess;
  }
  struct scan_task task = {&frame, &o, &x, line_shape_get(&x, d), 0, reverse, dense_get_work(o.dtype), NULL, NULL};
  if (pairs) {
    FRAME_CHECK(&frame, shaped_as_real(&real_out, &o) && shaped_as_real(&real_in, &x),
                "a complex '%s' may have at most %d dimensions", x_name, DIT_MAX_DIMS - 1);
    task.v_out = &real_out.view;
    task.v_in = &real_in.view;
    task.shape.inner *= 2;
    task.work = real_in.view.dtype;
  }
  return frame_run(&frame, run_scan, &task);
}

diopiError_t diopiCumsum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         int64_t dim) {
  return launch(__func__, ctx, out, "out", input, "input", dim, false);
}

diopiError_t diopiCumsumBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                 diopiConstTensorHandle_t grad_output, int64_t dim) {
  return launch(__func__, ctx, grad_input, "grad_input", grad_output, "grad_output", dim, true);
}
