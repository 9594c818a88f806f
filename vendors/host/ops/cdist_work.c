/// Pairwise distances on the host (see cdist.c): a row of input1 against all rows of input2.
#include <math.h>
#include <string.h>

#include "cdist.h"
#include "dense.h"
#include "dit/parallel.h"
#include "engine/simd.h"
#include "matrix_batch.h"

struct cdist_run {
  const struct cdist *call;
  void *out;
  const void *a, *b, *grad, *dist;
};

#define REAL float
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#define ABS fabsf
#define POW powf
#define ROOT sqrtf
#include "cdist_loops.h"
#define REAL double
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#define ABS fabs
#define POW pow
#define ROOT sqrt
#include "cdist_loops.h"

/// Rows that share a row of the gradient (input1 was broadcast) are added up in one thread.
static int64_t get_grain(const struct cdist *call) {
  const int64_t rows = matrix_get_rows(&call->a);
  const int64_t work = matrix_get_rows(&call->b) * matrix_get_columns(&call->a) + 1;
  return call->backward && matrix_count(&call->a) != call->count ? rows * call->count : 1 + 16384 / work;
}

static diopiError_t work(void *context) {
  struct cdist *call = context;
  const int type = dense_get_work(call->a.dtype);
  struct dense out = {0}, a = {0}, b = {0}, grad = {0}, dist = {0};
  const bool done = dense_read(&a, &call->a, type) && dense_read(&b, &call->b, type) &&
                    dense_read(&grad, &call->grad, type) && dense_read(&dist, &call->dist, type) &&
                    dense_reserve(&out, &call->out, type);
  if (done) {
    struct cdist_run run = {call, out.data, a.data, b.data, grad.data, dist.data};
    if (call->backward) {
      memset(out.data, 0, (size_t)call->out.numel * dit_dtype_get_size(type));
    }
    dit_parallel_for(0, call->count * matrix_get_rows(&call->a), get_grain(call),
                     type == DIT_DTYPE_F64 ? rows_f64 : rows_f32, &run);
    dense_store(&out);
  }
  dense_close(&out);
  dense_close(&a);
  dense_close(&b);
  dense_close(&grad);
  dense_close(&dist);
  return done ? diopiSuccess : dense_fail(call->frame);
}

diopiError_t cdist_run(struct cdist *call) {
  return FRAME_QUEUE(call->frame, work, call, &call->frame, &call->out, &call->a, &call->b, &call->grad, &call->dist);
}
