/// Matrix products: mm, bmm, baddbmm, addmm, matmul.
///
/// out = beta * input + alpha * (a @ b). mm (M,K)x(K,N), bmm (B,M,K)x(B,K,N); input of addmm and baddbmm broadcasts to
/// out and is not read when beta is 0. matmul follows PyTorch: a 1-d operand is a row (left) or a column (right) whose
/// dimension leaves the result, all leading dimensions broadcast; One dtype
/// for all: floating, complex or integer (integers wrap; alpha and beta are whole numbers). half types are accumulated
/// in float and rounded once. K = 0 gives beta * input. out overlaps no operand but may be exactly `input`.
#include "engine/kernels.h"
#include "frame.h"
#include "matmul_shape.h"

struct matrix_room {
  int64_t sizes[3], strides[3];
};

/// A 2-d view as a batch of one.
static void add_batch(struct dit_tensor_view *view, struct matrix_room *room) {
  if (view->ndim == 2) {
    room->sizes[0] = 1;
    room->strides[0] = 0;
    for (int i = 0; i < 2; i++) {
      room->sizes[1 + i] = view->sizes[i];
      room->strides[1 + i] = view->strides[i];
    }
    view->ndim = 3;
    view->sizes = room->sizes;
    view->strides = room->strides;
  }
}

struct product_names {
  const char *input, *a, *b;
};

/// The common part of mm, bmm, addmm and baddbmm: tensors of `ndim` dimensions, `input` may be absent.
static diopiError_t run_product(struct frame *frame, const struct product_names *names, int ndim,
                                struct dit_tensor_view *o, const struct dit_tensor_view *input,
                                struct dit_tensor_view *a, struct dit_tensor_view *b, double alpha, double beta) {
  FRAME_CHECK(frame, a->ndim == ndim, "'%s' has %d dimensions; valid: %d", names->a, (int)a->ndim, ndim);
  FRAME_CHECK(frame, b->ndim == ndim, "'%s' has %d dimensions; valid: %d", names->b, (int)b->ndim, ndim);
  FRAME_CHECK(frame, o->ndim == ndim, "'out' has %d dimensions; valid: %d", (int)o->ndim, ndim);
  const int64_t *as = a->sizes + ndim - 2, *bs = b->sizes + ndim - 2, *os = o->sizes + ndim - 2;
  FRAME_CHECK(frame, as[1] == bs[0], "'%s' has %lld columns and '%s' %lld rows; they must be equal", names->a,
              (long long)as[1], names->b, (long long)bs[0]);
  FRAME_CHECK(frame, ndim == 2 || (a->sizes[0] == b->sizes[0] && a->sizes[0] == o->sizes[0]),
              "'%s', '%s' and 'out' have %lld, %lld and %lld matrices; they must be equal", names->a, names->b,
              (long long)a->sizes[0], (long long)b->sizes[0], (long long)o->sizes[0]);
  FRAME_CHECK(frame, os[0] == as[0] && os[1] == bs[1], "'out' is %lld x %lld; the product is %lld x %lld",
              (long long)os[0], (long long)os[1], (long long)as[0], (long long)bs[1]);
  const char *const labels[] = {names->a, names->b, "out", names->input};
  const struct dit_tensor_view *views[] = {a, b, o, input};
  FRAME_TRY(check_dtypes(frame, labels, views, input ? 4 : 3, PRODUCT_DTYPES));
  const bool whole = frame_has_dtype(DTYPES_INT, o->dtype);
  FRAME_CHECK(frame, !whole || (alpha == (double)(int64_t)alpha && beta == (double)(int64_t)beta),
              "alpha is %g and beta is %g; they must be whole numbers for %s tensors", alpha, beta,
              dit_dtype_get_name(o->dtype));
  FRAME_TRY(frame_check_output(frame, "out", o, views, 2, false));
  struct dit_tensor_view bias = {0};
  int64_t strides[DIT_MAX_DIMS];
  if (input) {
    FRAME_CHECK(frame, frame_expand(input, ndim, o->sizes, strides, &bias), "'%s' does not broadcast to 'out'",
                names->input);
    const struct dit_tensor_view *addend = input;
    FRAME_TRY(frame_check_output(frame, "out", o, &addend, 1, true));
  }
  struct matrix_room rooms[4];
  add_batch(o, &rooms[0]);
  add_batch(a, &rooms[1]);
  add_batch(b, &rooms[2]);
  add_batch(&bias, &rooms[3]);
  struct dit_error err = {.message = ""};
  return frame_get_code(frame, kernel_gemm(frame->stream, o, a, b, input ? &bias : NULL, alpha, beta, &err), &err);
}

diopiError_t diopiMm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                     diopiConstTensorHandle_t mat2) {
  struct frame frame;
  struct dit_tensor_view o, a, b;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &a);
  FRAME_TAKE(&frame, mat2, &b);
  static const struct product_names names = {NULL, "input", "mat2"};
  return run_product(&frame, &names, 2, &o, NULL, &a, &b, 1, 0);
}

diopiError_t diopiBmm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiConstTensorHandle_t mat2) {
  struct frame frame;
  struct dit_tensor_view o, a, b;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &a);
  FRAME_TAKE(&frame, mat2, &b);
  static const struct product_names names = {NULL, "input", "mat2"};
  return run_product(&frame, &names, 3, &o, NULL, &a, &b, 1, 0);
}

static diopiError_t run_baddbmm(struct frame *frame, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                diopiConstTensorHandle_t batch1, diopiConstTensorHandle_t batch2, double beta,
                                double alpha) {
  static const struct product_names names = {"input", "batch1", "batch2"};
  struct dit_tensor_view o, x, a, b;
  FRAME_TAKE(frame, out, &o);
  FRAME_TAKE(frame, input, &x);
  FRAME_TAKE(frame, batch1, &a);
  FRAME_TAKE(frame, batch2, &b);
  return run_product(frame, &names, 3, &o, &x, &a, &b, alpha, beta);
}

diopiError_t diopiBaddbmm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          diopiConstTensorHandle_t batch1, diopiConstTensorHandle_t batch2, double beta, double alpha) {
  struct frame frame;
  FRAME_BEGIN(&frame, ctx);
  return run_baddbmm(&frame, out, input, batch1, batch2, beta, alpha);
}

diopiError_t diopiBaddbmmInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t batch1,
                             diopiConstTensorHandle_t batch2, double beta, double alpha) {
  struct frame frame;
  FRAME_BEGIN(&frame, ctx);
  return run_baddbmm(&frame, input, input, batch1, batch2, beta, alpha);
}

diopiError_t diopiAddmm(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                        diopiConstTensorHandle_t mat1, diopiConstTensorHandle_t mat2, const diopiScalar_t *beta,
                        const diopiScalar_t *alpha) {
  static const struct product_names names = {"input", "mat1", "mat2"};
  struct frame frame;
  struct dit_tensor_view o, x, a, b;
  struct dit_scalar alpha_value, beta_value;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &x);
  FRAME_TAKE(&frame, mat1, &a);
  FRAME_TAKE(&frame, mat2, &b);
  FRAME_TRY(frame_get_scalar(&frame, "beta", beta, &beta_value));
  FRAME_TRY(frame_get_scalar(&frame, "alpha", alpha, &alpha_value));
  return run_product(&frame, &names, 2, &o, &x, &a, &b, frame_scalar_to_double(alpha_value),
                     frame_scalar_to_double(beta_value));
}

// Matmul

diopiError_t diopiMatmul(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         diopiConstTensorHandle_t other) {
  struct frame frame;
  struct dit_tensor_view o, a, b;
  struct matmul_shape shape;
  struct dit_error err = {.message = ""};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, input, &a);
  FRAME_TAKE(&frame, other, &b);
  static const char *const names[] = {"input", "other", "out"};
  const struct dit_tensor_view *views[] = {&a, &b, &o};
  FRAME_TRY(check_dtypes(&frame, names, views, 3, PRODUCT_DTYPES));
  FRAME_TRY(set_shape(&frame, "out", &o, &a, &b, &shape));
  FRAME_TRY(frame_check_output(&frame, "out", &o, views, 2, false));
  set_operands(&shape, &o, &a, &b);
  return frame_get_code(&frame, product_run(frame.stream, &shape.product, &err), &err);
}
