/// The Cholesky factor of symmetric (Hermitian) positive-definite matrices, and its gradient.
///
/// mat (..., N, N), of which the lower triangle is read (the upper one when `upper`); out = L with mat = L L^H, or L^H
/// when `upper`, the rest 0; info (...), int32: 0, or the order of the first minor that is not positive. float32,
/// float64 and their complex types. With `checkerror` such a matrix is an error, and nothing is written. The gradient,
/// with L and its gradient G (both conjugated and transposed when `upper`): grad_mat = L^-H P L^-1 with P = (T +
/// T'^H) / 2, where T is the lower triangle of L^H G and T' what lies below its diagonal. No in-place form.
#include <complex.h>
#include <stdatomic.h>
#include <string.h>

#include "dense.h"
#include "dit/parallel.h"
#include "engine/linalg.h"
#include "engine/scratch.h"
#include "fail.h"
#include "matrix_batch.h"

struct cholesky_call {
  struct frame *frame;
  struct dit_tensor_view out, info, mat, grad;  ///< backward: out is grad_mat, mat the factor
  bool upper, check, backward;
  // set by the work
  char *to;
  const char *from, *grads;
  int32_t *codes;
  atomic_bool failed;
};

/// to = from (n x n), conjugated and transposed.
static void transpose(int dtype, int64_t n, const void *from, void *to) {
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < n; j++) {
      switch (dtype) {
        case DIT_DTYPE_F32:
          ((float *)to)[j * n + i] = ((const float *)from)[i * n + j];
          break;
        case DIT_DTYPE_F64:
          ((double *)to)[j * n + i] = ((const double *)from)[i * n + j];
          break;
        case DIT_DTYPE_C64:
          ((float complex *)to)[j * n + i] = conjf(((const float complex *)from)[i * n + j]);
          break;
        default:
          ((double complex *)to)[j * n + i] = conj(((const double complex *)from)[i * n + j]);
      }
    }
  }
}

/// a = (the lower triangle of a, and what is below its diagonal conjugated and transposed above it) / 2.
#define DEFINE_MIRROR(type, name, conjugate)      \
  static void name(int64_t n, type *a) {          \
    for (int64_t i = 0; i < n; i++) {             \
      for (int64_t j = 0; j <= i; j++) {          \
        a[i * n + j] /= 2;                        \
        if (j < i) {                              \
          a[j * n + i] = conjugate(a[i * n + j]); \
        }                                         \
      }                                           \
    }                                             \
  }
DEFINE_MIRROR(float, mirror_f32, )
DEFINE_MIRROR(double, mirror_f64, )
DEFINE_MIRROR(float complex, mirror_c64, conjf)
DEFINE_MIRROR(double complex, mirror_c128, conj)

static void mirror(int dtype, int64_t n, void *a) {
  switch (dtype) {
    case DIT_DTYPE_F32:
      mirror_f32(n, a);
      break;
    case DIT_DTYPE_F64:
      mirror_f64(n, a);
      break;
    case DIT_DTYPE_C64:
      mirror_c64(n, a);
      break;
    default:
      mirror_c128(n, a);
  }
}

static void run_forward(void *context, int64_t begin, int64_t end) {
  struct cholesky_call *call = context;
  const int dtype = call->mat.dtype;
  const int64_t n = matrix_get_rows(&call->mat);
  const size_t bytes = (size_t)(n * n) * dit_dtype_get_size(dtype);
  char *room = call->upper ? scratch_take(bytes) : NULL;
  if (call->upper && !room) {
    atomic_store(&call->failed, true);
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    char *to = call->to + (size_t)i * bytes;
    if (call->upper) {
      transpose(dtype, n, call->from + (size_t)i * bytes, room);
      call->codes[i] = linalg_cholesky(dtype, n, room);
      transpose(dtype, n, room, to);
    } else {
      memcpy(to, call->from + (size_t)i * bytes, bytes);
      call->codes[i] = linalg_cholesky(dtype, n, to);
    }
  }
  scratch_give(room);
}

static void run_backward(void *context, int64_t begin, int64_t end) {
  struct cholesky_call *call = context;
  const int dtype = call->mat.dtype;
  const int64_t n = matrix_get_rows(&call->mat);
  const size_t bytes = (size_t)(n * n) * dit_dtype_get_size(dtype);
  char *room = scratch_take(4 * bytes), *factor = room + bytes, *grad = room + 2 * bytes, *other = room + 3 * bytes;
  if (!room) {
    atomic_store(&call->failed, true);
    return;
  }
  const struct linalg_triangle adjoint = {.transposed = true, .conjugated = true};  // L^H
  for (int64_t i = begin; i < end; i++) {
    const char *mat = call->from + (size_t)i * bytes, *g = call->grads + (size_t)i * bytes;
    if (call->upper) {
      transpose(dtype, n, mat, factor);
      transpose(dtype, n, g, grad);
      mat = factor;
      g = grad;
    }
    linalg_multiply(dtype, n, n, n, 1, mat, 2, g, 0, room);
    mirror(dtype, n, room);
    linalg_solve(dtype, &adjoint, n, n, mat, room);   // L^-H P
    transpose(dtype, n, room, other);                 // P^H L^-1
    linalg_solve(dtype, &adjoint, n, n, mat, other);  // (L^-H P L^-1)^H
    transpose(dtype, n, other, call->to + (size_t)i * bytes);
  }
  scratch_give(room);
}

static diopiError_t find_failure(struct cholesky_call *call, int64_t count) {
  for (int64_t i = 0; call->check && i < count; i++) {
    if (call->codes[i] != 0) {
      return frame_fail(call->frame, diopiErrorOccurred,
                        "matrix %lld of 'mat' is not positive-definite: its leading minor of order %d is not positive",
                        (long long)i, call->codes[i]);
    }
  }
  return diopiSuccess;
}

/// The factors go to memory of our own first, so that an error leaves the outputs alone.
static diopiError_t work(void *context) {
  struct cholesky_call *call = context;
  const int dtype = call->mat.dtype;
  const int64_t count = matrix_count(&call->mat), n = matrix_get_rows(&call->mat);
  struct dense mat = {0}, grad = {0}, out = {0}, info = {0};
  struct dit_tensor_view hidden = call->out;
  const bool direct = call->backward || !call->check;
  hidden.flags &= (uint8_t)(direct ? 0xff : ~DIT_TENSOR_CONTIGUOUS);
  diopiError_t code = diopiErrorOccurred;
  bool done = false;
  call->codes = scratch_take(sizeof(int32_t) * (size_t)(count + 1));
  if (call->codes && dense_read(&mat, &call->mat, dtype) && dense_read(&grad, &call->grad, dtype) &&
      dense_reserve(&out, &hidden, dtype)) {
    call->from = mat.data;
    call->grads = grad.data;
    call->to = out.data;
    memset(call->codes, 0, sizeof(int32_t) * (size_t)count);
    if (call->out.numel > 0) {
      dit_parallel_for(0, count, 1 + 32768 / (n * n * n + 1), call->backward ? run_backward : run_forward, call);
    }
    done = !atomic_load(&call->failed);
    code = done ? find_failure(call, count) : code;
  }
  if (code == diopiSuccess && !call->backward && dense_reserve(&info, &call->info, DIT_DTYPE_I32) && count > 0) {
    memcpy(info.data, call->codes, sizeof(int32_t) * (size_t)count);
    dense_store(&info);
  }
  if (code == diopiSuccess) {
    dense_store(&out);
  }
  dense_close(&info);
  dense_close(&out);
  dense_close(&grad);
  dense_close(&mat);
  scratch_give(call->codes);
  return done ? code : dense_fail(call->frame);
}

static diopiError_t check_square(struct frame *frame, const char *name, const struct dit_tensor_view *view) {
  FRAME_CHECK(frame, view->ndim >= 2 && matrix_is(view, matrix_get_columns(view), -1),
              "'%s' must have at least 2 dimensions, the last two of one size", name);
  return frame_has_dtype(DTYPES_LINALG, view->dtype) ? diopiSuccess : frame_fail_dtype(frame, name, view->dtype);
}

static diopiError_t check_like(struct frame *frame, const char *name, const struct dit_tensor_view *view,
                               const char *other, const struct dit_tensor_view *like) {
  FRAME_CHECK(frame, frame_is_same_shape(view, like) && view->dtype == like->dtype,
              "'%s' has another shape or dtype than '%s'", name, other);
  return diopiSuccess;
}

diopiError_t diopiCholesky(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t info,
                           diopiConstTensorHandle_t mat, bool upper, bool checkerror) {
  struct frame frame;
  struct cholesky_call call = {.frame = &frame, .upper = upper, .check = checkerror};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, info, &call.info);
  FRAME_TAKE(&frame, mat, &call.mat);
  FRAME_TRY(check_square(&frame, "mat", &call.mat));
  FRAME_TRY(check_like(&frame, "out", &call.out, "mat", &call.mat));
  bool same = call.info.ndim == call.mat.ndim - 2 && call.info.dtype == DIT_DTYPE_I32;
  for (int dim = 0; same && dim < call.info.ndim; dim++) {
    same = call.info.sizes[dim] == call.mat.sizes[dim];
  }
  FRAME_CHECK(&frame, same, "'info' must be int32 with the leading dimensions of 'mat'");
  const struct dit_tensor_view *inputs[] = {&call.mat, &call.info};
  FRAME_TRY(frame_check_output(&frame, "out", &call.out, inputs, 2, false));
  FRAME_TRY(frame_check_output(&frame, "info", &call.info, inputs, 1, false));
  return checkerror ? frame_run(&frame, work, &call)
                    : FRAME_QUEUE(&frame, work, &call, &call.frame, &call.out, &call.info, &call.mat);
}

diopiError_t diopiCholeskyBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_mat,
                                   diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t L, bool upper) {
  struct frame frame;
  struct cholesky_call call = {.frame = &frame, .upper = upper, .backward = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_mat, &call.out);
  FRAME_TAKE(&frame, grad_output, &call.grad);
  FRAME_TAKE(&frame, L, &call.mat);
  FRAME_TRY(check_square(&frame, "L", &call.mat));
  FRAME_TRY(check_like(&frame, "grad_mat", &call.out, "L", &call.mat));
  FRAME_TRY(check_like(&frame, "grad_output", &call.grad, "L", &call.mat));
  const struct dit_tensor_view *inputs[] = {&call.mat, &call.grad};
  FRAME_TRY(frame_check_output(&frame, "grad_mat", &call.out, inputs, 2, false));
  return FRAME_QUEUE(&frame, work, &call, &call.frame, &call.out, &call.grad, &call.mat);
}
