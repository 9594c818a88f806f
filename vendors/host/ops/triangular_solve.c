/// Systems with triangular matrices, and their gradients.
///
/// op(mat) @ out = b: mat (..., N, N), of which one triangle counts (with ones on its diagonal when `unitriangular`), b
/// (..., N, M), leading dimensions broadcast; op transposes when `transpose`. cloned_mat is mat, broadcast. Gradients:
/// grad_b = op(mat)^-H grad_x; grad_mat = the triangle of -grad_b x^H (-conj(x) grad_b^T when transposed), without the
/// diagonal when `unitriangular`, plus grad_cloned_mat (NULL: none); both summed over what was broadcast. float32,
/// float64 and their complex types, one for all. No in-place form.
#include <complex.h>
#include <stdatomic.h>
#include <string.h>

#include "dense.h"
#include "dit/parallel.h"
#include "engine/linalg.h"
#include "engine/scratch.h"
#include "matrix_batch.h"

struct triangular_call {
  struct frame *frame;
  struct dit_tensor_view out, copy, b, mat;               ///< copy: cloned_mat
  struct dit_tensor_view grad_b, grad_mat, grad, cloned;  ///< backward; out is its x, then only read
  struct linalg_triangle how;
  int ndim;  ///< of the batch
  int64_t sizes[DIT_MAX_DIMS], count;
  // set by the work
  char *x, *copies, *gradients_b, *gradients_mat;
  const char *rights, *mats, *grads;
};

static void run_solve(void *context, int64_t begin, int64_t end) {
  struct triangular_call *call = context;
  const int dtype = call->mat.dtype;
  const int64_t n = matrix_get_rows(&call->mat), m = matrix_get_columns(&call->b);
  const size_t size = dit_dtype_get_size(dtype), right = (size_t)(n * m) * size, square = (size_t)(n * n) * size;
  for (int64_t i = begin; i < end; i++) {
    const char *mat = call->mats + (size_t)matrix_find(&call->mat, call->ndim, call->sizes, i) * square;
    const char *b = call->rights + (size_t)matrix_find(&call->b, call->ndim, call->sizes, i) * right;
    memcpy(call->copies + (size_t)i * square, mat, square);
    if (m == 0) {
      continue;
    }
    memcpy(call->x + (size_t)i * right, b, right);
    linalg_solve(dtype, &call->how, n, m, mat, call->x + (size_t)i * right);
  }
}

static diopiError_t work_solve(void *context) {
  struct triangular_call *call = context;
  const int dtype = call->mat.dtype;
  const int64_t n = matrix_get_rows(&call->mat), m = matrix_get_columns(&call->b);
  struct dense out = {0}, copy = {0}, b = {0}, mat = {0};
  const bool done = dense_read(&b, &call->b, dtype) && dense_read(&mat, &call->mat, dtype) &&
                    dense_reserve(&out, &call->out, dtype) && dense_reserve(&copy, &call->copy, dtype);
  if (done && n > 0) {
    call->x = out.data;
    call->copies = copy.data;
    call->rights = b.data;
    call->mats = mat.data;
    dit_parallel_for(0, call->count, 1 + 32768 / (n * n * (m + 1)), run_solve, call);
    dense_store(&out);
    dense_store(&copy);
  }
  dense_close(&out);
  dense_close(&copy);
  dense_close(&b);
  dense_close(&mat);
  return done ? diopiSuccess : dense_fail(call->frame);
}

// Backward

static void conjugate(int dtype, int64_t count, void *data) {
  for (int64_t i = 0; i < count; i++) {
    if (dtype == DIT_DTYPE_C64) {
      ((float complex *)data)[i] = conjf(((float complex *)data)[i]);
    } else if (dtype == DIT_DTYPE_C128) {
      ((double complex *)data)[i] = conj(((double complex *)data)[i]);
    }
  }
}

/// to += from, as numbers of real parts.
static void add(int dtype, int64_t count, const void *from, void *to) {
  const bool wide = dtype == DIT_DTYPE_F64 || dtype == DIT_DTYPE_C128;
  const int64_t reals = frame_has_dtype(DTYPES_COMPLEX, dtype) ? 2 * count : count;
  for (int64_t i = 0; i < reals; i++) {
    if (wide) {
      ((double *)to)[i] += ((const double *)from)[i];
    } else {
      ((float *)to)[i] += ((const float *)from)[i];
    }
  }
}

/// Nothing but the triangle that counts.
static void keep_triangle(const struct linalg_triangle *how, size_t size, int64_t n, char *a) {
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < n; j++) {
      const bool stays = (how->upper ? j >= i : j <= i) && !(how->unit && i == j);
      if (!stays) {
        memset(a + (size_t)(i * n + j) * size, 0, size);
      }
    }
  }
}

/// One matrix of the batch: its gradients into `grad_b` (n x m) and `grad_mat` (n x n).
static void solve_backward(const struct triangular_call *call, int64_t number, char *grad_b, char *grad_mat,
                           char *room) {
  const int dtype = call->mat.dtype;
  const int64_t n = matrix_get_rows(&call->mat), m = matrix_get_columns(&call->out);
  const size_t size = dit_dtype_get_size(dtype), right = (size_t)(n * m) * size, square = (size_t)(n * n) * size;
  const char *mat = call->mats + (size_t)matrix_find(&call->mat, call->ndim, call->sizes, number) * square;
  const char *x = call->x + (size_t)number * right;
  struct linalg_triangle adjoint = call->how;
  adjoint.transposed = !adjoint.transposed;
  adjoint.conjugated = true;
  memcpy(grad_b, call->grads + (size_t)number * right, right);
  linalg_solve(dtype, &adjoint, n, m, mat, grad_b);
  if (call->how.transposed) {
    memcpy(room, x, right);
    conjugate(dtype, n * m, room);
    linalg_multiply(dtype, n, n, m, -1, room, 0, grad_b, 1, grad_mat);
  } else {
    linalg_multiply(dtype, n, n, m, -1, grad_b, 0, x, 2, grad_mat);
  }
  keep_triangle(&call->how, size, n, grad_mat);
}

/// In the order of the batch, so that sums over broadcast dimensions do not depend on threads.
static bool run_backward(const struct triangular_call *call, const char *cloned) {
  const int dtype = call->mat.dtype;
  const int64_t n = matrix_get_rows(&call->mat), m = matrix_get_columns(&call->out);
  const size_t size = dit_dtype_get_size(dtype), right = (size_t)(n * m) * size, square = (size_t)(n * n) * size;
  char *room = scratch_take(2 * right + square + 1);
  for (int64_t i = 0; room && i < call->count; i++) {
    const int64_t at_b = matrix_find(&call->grad_b, call->ndim, call->sizes, i);
    const int64_t at_mat = matrix_find(&call->grad_mat, call->ndim, call->sizes, i);
    solve_backward(call, i, room, room + 2 * right, room + right);
    add(dtype, n * m, room, call->gradients_b + (size_t)at_b * right);
    add(dtype, n * n, room + 2 * right, call->gradients_mat + (size_t)at_mat * square);
    if (cloned) {
      add(dtype, n * n, cloned + (size_t)i * square, call->gradients_mat + (size_t)at_mat * square);
    }
  }
  scratch_give(room);
  return room != NULL;
}

static diopiError_t work_backward(void *context) {
  struct triangular_call *call = context;
  const int dtype = call->mat.dtype;
  const size_t size = dit_dtype_get_size(dtype);
  struct dense grad_b = {0}, grad_mat = {0}, grad = {0}, cloned = {0}, x = {0}, mat = {0};
  bool done = dense_read(&grad, &call->grad, dtype) && dense_read(&cloned, &call->cloned, dtype) &&
              dense_read(&x, &call->out, dtype) && dense_read(&mat, &call->mat, dtype) &&
              dense_reserve(&grad_b, &call->grad_b, dtype) && dense_reserve(&grad_mat, &call->grad_mat, dtype);
  if (done) {
    call->x = x.data;
    call->mats = mat.data;
    call->grads = grad.data;
    call->gradients_b = grad_b.data;
    call->gradients_mat = grad_mat.data;
    memset(grad_b.data ? grad_b.data : &done, 0, grad_b.data ? (size_t)call->grad_b.numel * size : 0);
    memset(grad_mat.data ? grad_mat.data : &done, 0, grad_mat.data ? (size_t)call->grad_mat.numel * size : 0);
    done = call->grad_mat.numel == 0 || run_backward(call, cloned.data);
  }
  if (done) {
    dense_store(&grad_b);
    dense_store(&grad_mat);
  }
  dense_close(&grad_b);
  dense_close(&grad_mat);
  dense_close(&grad);
  dense_close(&cloned);
  dense_close(&x);
  dense_close(&mat);
  return done ? diopiSuccess : dense_fail(call->frame);
}

// Checks

static diopiError_t check_system(struct triangular_call *call) {
  struct frame *frame = call->frame;
  FRAME_CHECK(frame, call->mat.ndim >= 2 && matrix_is(&call->mat, matrix_get_columns(&call->mat), -1),
              "'mat' must have at least 2 dimensions, the last two of one size");
  FRAME_CHECK(frame, matrix_is(&call->b, matrix_get_rows(&call->mat), -1), "'b' must have %lld rows, as 'mat'",
              (long long)matrix_get_rows(&call->mat));
  FRAME_CHECK(frame, call->b.dtype == call->mat.dtype, "'b' is %s and 'mat' %s; valid: one dtype",
              dit_dtype_get_name(call->b.dtype), dit_dtype_get_name(call->mat.dtype));
  if (!frame_has_dtype(DTYPES_LINALG, call->mat.dtype)) {
    return frame_fail_dtype(frame, "mat", call->mat.dtype);
  }
  FRAME_CHECK(frame, matrix_broadcast(&call->b, &call->mat, &call->ndim, call->sizes),
              "the leading dimensions of 'b' and 'mat' do not broadcast");
  call->count = 1;
  for (int dim = 0; dim < call->ndim; dim++) {
    call->count *= call->sizes[dim];
  }
  return diopiSuccess;
}

/// (batch, N, columns)
static diopiError_t check_whole(struct triangular_call *call, const char *name, const struct dit_tensor_view *view,
                                int64_t columns) {
  FRAME_CHECK(call->frame,
              matrix_has_batch(view, call->ndim, call->sizes) &&
                  matrix_is(view, matrix_get_rows(&call->mat), columns) && view->dtype == call->mat.dtype,
              "'%s' must have the dtype of 'mat', the broadcast leading dimensions, then %lld x %lld", name,
              (long long)matrix_get_rows(&call->mat), (long long)columns);
  return diopiSuccess;
}

diopiError_t diopiTriangularSolve(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t cloned_mat,
                                  diopiConstTensorHandle_t b, diopiConstTensorHandle_t mat, bool upper, bool transpose,
                                  bool unitriangular) {
  struct frame frame;
  struct triangular_call call = {.frame = &frame,
                                 .how = {.upper = upper, .transposed = transpose, .unit = unitriangular}};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, cloned_mat, &call.copy);
  FRAME_TAKE(&frame, b, &call.b);
  FRAME_TAKE(&frame, mat, &call.mat);
  FRAME_TRY(check_system(&call));
  FRAME_TRY(check_whole(&call, "out", &call.out, matrix_get_columns(&call.b)));
  FRAME_TRY(check_whole(&call, "cloned_mat", &call.copy, matrix_get_rows(&call.mat)));
  const struct dit_tensor_view *inputs[] = {&call.b, &call.mat, &call.copy};
  FRAME_TRY(frame_check_output(&frame, "out", &call.out, inputs, 3, false));
  FRAME_TRY(frame_check_output(&frame, "cloned_mat", &call.copy, inputs, 2, false));
  return FRAME_QUEUE(&frame, work_solve, &call, &call.frame, &call.out, &call.copy, &call.b, &call.mat);
}

diopiError_t diopiTriangularSolveBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_b,
                                          diopiTensorHandle_t grad_mat, diopiConstTensorHandle_t grad_x,
                                          diopiConstTensorHandle_t grad_cloned_mat, diopiConstTensorHandle_t x,
                                          diopiConstTensorHandle_t b, diopiConstTensorHandle_t mat, bool upper,
                                          bool transpose, bool unitriangular) {
  struct frame frame;
  struct triangular_call call = {.frame = &frame,
                                 .how = {.upper = upper, .transposed = transpose, .unit = unitriangular}};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_b, &call.grad_b);
  FRAME_TAKE(&frame, grad_mat, &call.grad_mat);
  FRAME_TAKE(&frame, grad_x, &call.grad);
  FRAME_TAKE_OPTIONAL(&frame, grad_cloned_mat, &call.cloned);
  FRAME_TAKE(&frame, x, &call.out);
  FRAME_TAKE(&frame, b, &call.b);
  FRAME_TAKE(&frame, mat, &call.mat);
  FRAME_TRY(check_system(&call));
  const int64_t columns = matrix_get_columns(&call.b);
  FRAME_TRY(check_whole(&call, "x", &call.out, columns));
  FRAME_TRY(check_whole(&call, "grad_x", &call.grad, columns));
  if (call.cloned.handle) {
    FRAME_TRY(check_whole(&call, "grad_cloned_mat", &call.cloned, matrix_get_rows(&call.mat)));
  }
  FRAME_CHECK(&frame, frame_is_same_shape(&call.grad_b, &call.b) && call.grad_b.dtype == call.b.dtype,
              "'grad_b' has another shape or dtype than 'b'");
  FRAME_CHECK(&frame, frame_is_same_shape(&call.grad_mat, &call.mat) && call.grad_mat.dtype == call.mat.dtype,
              "'grad_mat' has another shape or dtype than 'mat'");
  const struct dit_tensor_view *inputs[] = {&call.grad, &call.cloned, &call.out, &call.b, &call.mat, &call.grad_mat};
  FRAME_TRY(frame_check_output(&frame, "grad_b", &call.grad_b, inputs, 6, false));
  FRAME_TRY(frame_check_output(&frame, "grad_mat", &call.grad_mat, inputs, 5, false));
  return FRAME_QUEUE(&frame, work_backward, &call, &call.frame, &call.grad_b, &call.grad_mat, &call.grad, &call.cloned,
                     &call.out, &call.b, &call.mat);
}
