/// QR of matrices: A (..., M, N) = Q @ R by Householder reflections.
///
/// `mode` "reduced": Q (..., M, K), R (..., K, N) with K = min(M, N); "complete": Q (..., M, M), R (..., M, N); "r": R
/// as reduced, Q has no elements and is not written. R is upper triangular; the signs of its diagonal are those of the
/// reflections, as in LAPACK. float32, float64 and their complex types. No in-place form.
#include <stdatomic.h>
#include <string.h>

#include "dense.h"
#include "dit/parallel.h"
#include "engine/linalg.h"
#include "engine/scratch.h"
#include "matrix_batch.h"

struct qr_call {
  struct frame *frame;
  struct dit_tensor_view a, q, r;
  bool complete, with_q;
  int64_t count;
  // set by the work
  const char *from;
  char *to_q, *to_r;
  atomic_bool failed;
};

static void run_qr(void *context, int64_t begin, int64_t end) {
  struct qr_call *call = context;
  const int dtype = call->a.dtype;
  const int64_t m = matrix_get_rows(&call->a), n = matrix_get_columns(&call->a), rows = matrix_get_rows(&call->r);
  const size_t size = dit_dtype_get_size(dtype), bytes = (size_t)(m * n) * size;
  char *room = scratch_take(bytes + 1);
  bool done = room != NULL;
  for (int64_t i = begin; done && i < end; i++) {
    memcpy(room, call->from ? call->from + (size_t)i * bytes : room, call->from ? bytes : 0);
    done = linalg_qr(dtype, m, n, call->complete, room,
                     call->with_q && call->to_q ? call->to_q + (size_t)(i * m * rows) * size : NULL,
                     call->to_r ? call->to_r + (size_t)(i * rows * n) * size : NULL);
  }
  scratch_give(room);
  if (!done) {
    atomic_store(&call->failed, true);
  }
}

static diopiError_t work(void *context) {
  struct qr_call *call = context;
  const int dtype = call->a.dtype;
  const int64_t m = matrix_get_rows(&call->a), n = matrix_get_columns(&call->a);
  struct dense a = {0}, q = {0}, r = {0};
  bool done =
      dense_read(&a, &call->a, dtype) && dense_reserve(&q, &call->q, dtype) && dense_reserve(&r, &call->r, dtype);
  if (done) {
    call->from = a.data;
    call->to_q = q.data;
    call->to_r = r.data;
    dit_parallel_for(0, call->count, 1 + 32768 / (m * n * (n + 1) + 1), run_qr, call);
    done = !atomic_load(&call->failed);
  }
  if (done) {
    dense_store(&q);
    dense_store(&r);
  }
  dense_close(&a);
  dense_close(&q);
  dense_close(&r);
  return done ? diopiSuccess : dense_fail(call->frame);
}

static bool is_result(const struct qr_call *call, const struct dit_tensor_view *view, int64_t rows, int64_t columns) {
  return matrix_has_batch(view, call->a.ndim - 2, call->a.sizes) && matrix_is(view, rows, columns) &&
         view->dtype == call->a.dtype;
}

diopiError_t diopiLinalgQR(diopiContextHandle_t ctx, diopiConstTensorHandle_t A, const char *mode,
                           diopiTensorHandle_t Q, diopiTensorHandle_t R) {
  struct frame frame;
  struct qr_call call = {.frame = &frame};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, A, &call.a);
  FRAME_TAKE(&frame, Q, &call.q);
  FRAME_TAKE(&frame, R, &call.r);
  FRAME_CHECK(&frame, mode && (strcmp(mode, "reduced") == 0 || strcmp(mode, "complete") == 0 || strcmp(mode, "r") == 0),
              "'mode' is \"%s\"; valid: \"reduced\", \"complete\", \"r\"", mode ? mode : "NULL");
  FRAME_CHECK(&frame, call.a.ndim >= 2, "'A' has %d dimensions; valid: at least 2", (int)call.a.ndim);
  if (!frame_has_dtype(DTYPES_LINALG, call.a.dtype)) {
    return frame_fail_dtype(&frame, "A", call.a.dtype);
  }
  call.complete = mode[0] == 'c';
  call.with_q = mode[0] != 'r' || mode[1] == 'e';
  const int64_t m = matrix_get_rows(&call.a), n = matrix_get_columns(&call.a);
  const int64_t rows = call.complete || m < n ? m : n;
  FRAME_CHECK(&frame, call.with_q ? is_result(&call, &call.q, m, rows) : call.q.numel == 0,
              "'Q' must have the dtype and leading dimensions of 'A', then %lld x %lld (mode \"r\": no elements)",
              (long long)m, (long long)rows);
  FRAME_CHECK(&frame, is_result(&call, &call.r, rows, n),
              "'R' must have the dtype and leading dimensions of 'A', then %lld x %lld", (long long)rows, (long long)n);
  call.count = matrix_count(&call.a);
  const struct dit_tensor_view *inputs[] = {&call.a, &call.r};
  FRAME_TRY(frame_check_output(&frame, "Q", &call.q, inputs, 2, false));
  FRAME_TRY(frame_check_output(&frame, "R", &call.r, inputs, 1, false));
  return FRAME_QUEUE(&frame, work, &call, &call.frame, &call.a, &call.q, &call.r);
}
