/// Matrix products: mm, bmm, baddbmm, addmm, matmul and its gradient.
///
/// out = beta * input + alpha * (a @ b). mm (M,K)x(K,N), bmm (B,M,K)x(B,K,N); input of addmm and baddbmm broadcasts to
/// out and is not read when beta is 0. matmul follows PyTorch: a 1-d operand is a row (left) or a column (right) whose
/// dimension leaves the result, all leading dimensions broadcast; its gradient sums over the broadcast ones. One dtype
/// for all: floating, complex or integer (integers wrap; alpha and beta are whole numbers). half types are accumulated
/// in float and rounded once. K = 0 gives beta * input. out overlaps no operand but may be exactly `input`.
#include "dense.h"
#include "engine/kernels.h"
#include "frame.h"
#include "product.h"

#define PRODUCT_DTYPES (DTYPES_REAL | DTYPES_COMPLEX)

static diopiError_t check_dtypes(struct frame *frame, const char *const *names,
                                 const struct dit_tensor_view *const *views, int count, uint64_t set) {
  for (int i = 0; i < count; i++) {
    if (views[i]->dtype != views[0]->dtype) {
      return frame_fail(frame, diopiErrorOccurred, "'%s' is %s and '%s' is %s; all operands have one dtype", names[0],
                        dit_dtype_get_name(views[0]->dtype), names[i], dit_dtype_get_name(views[i]->dtype));
    }
  }
  return frame_has_dtype(set, views[0]->dtype) ? diopiSuccess : frame_fail_dtype(frame, names[0], views[0]->dtype);
}

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

// ---- matmul

/// Where the operands of matmul have their rows and columns, and the batch they broadcast to.
struct matmul_shape {
  struct product product;
  int a_row, b_column, out_row, out_column;  ///< dimensions; -1 where a 1-d operand has none
};

static int max_int(int a, int b) {
  return a > b ? a : b;
}

/// Sizes of the batch and of the result; an argument error where they do not fit. `o` is the result or its gradient.
static diopiError_t set_shape(struct frame *frame, const char *name, const struct dit_tensor_view *o,
                              const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                              struct matmul_shape *shape) {
  struct product *p = &shape->product;
  *shape = (struct matmul_shape){.product = {.dtype = a->dtype}};
  FRAME_CHECK(frame, a->ndim > 0 && b->ndim > 0, "'input' has %d and 'other' %d dimensions; valid: at least 1",
              (int)a->ndim, (int)b->ndim);
  const int a_batch = max_int(a->ndim - 2, 0), b_batch = max_int(b->ndim - 2, 0);
  shape->a_row = a->ndim > 1 ? a->ndim - 2 : -1;
  shape->b_column = b->ndim > 1 ? b->ndim - 1 : -1;
  const int64_t depth = a->sizes[a->ndim - 1], rows = b->sizes[b->ndim > 1 ? b->ndim - 2 : 0];
  FRAME_CHECK(frame, depth == rows, "'input' ends with %lld elements and 'other' has %lld rows; they must be equal",
              (long long)depth, (long long)rows);
  p->ndim = max_int(a_batch, b_batch);
  const int ndim = p->ndim + (shape->a_row >= 0) + (shape->b_column >= 0);
  shape->out_row = shape->a_row >= 0 ? p->ndim : -1;
  shape->out_column = shape->b_column >= 0 ? ndim - 1 : -1;
  FRAME_CHECK(frame, o->ndim == ndim, "'%s' has %d dimensions; the product has %d", name, (int)o->ndim, ndim);
  for (int i = 0; i < p->ndim; i++) {
    const int64_t x = i < p->ndim - a_batch ? 1 : a->sizes[i - p->ndim + a_batch];
    const int64_t y = i < p->ndim - b_batch ? 1 : b->sizes[i - p->ndim + b_batch];
    FRAME_CHECK(frame, x == y || x == 1 || y == 1, "sizes %lld and %lld in batch dimension %d do not broadcast",
                (long long)x, (long long)y, i);
    p->sizes[i] = x == 1 ? y : x;
    FRAME_CHECK(frame, o->sizes[i] == p->sizes[i], "'%s' has size %lld in dimension %d; the product has %lld", name,
                (long long)o->sizes[i], i, (long long)p->sizes[i]);
  }
  FRAME_CHECK(frame, shape->a_row < 0 || o->sizes[shape->out_row] == a->sizes[shape->a_row],
              "'%s' has another number of rows than 'input'", name);
  FRAME_CHECK(frame, shape->b_column < 0 || o->sizes[shape->out_column] == b->sizes[shape->b_column],
              "'%s' has another number of columns than 'other'", name);
  return diopiSuccess;
}

static void set_operands(struct matmul_shape *shape, const struct dit_tensor_view *o, const struct dit_tensor_view *a,
                         const struct dit_tensor_view *b) {
  struct product *p = &shape->product;
  product_set(p, &p->out, o, shape->out_row, shape->out_column);
  product_set(p, &p->a, a, shape->a_row, a->ndim - 1);
  product_set(p, &p->b, b, b->ndim > 1 ? b->ndim - 2 : 0, shape->b_column);
}

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

struct backward_task {
  struct frame *frame;
  struct matmul_shape shape;
  struct dit_tensor_view grad, a, b, grad_a, grad_b;
};

/// A view over a dense copy; `room` holds its strides.
static struct dit_tensor_view get_copy(const struct dense *dense, int64_t *room) {
  struct dit_tensor_view view = dense->view;
  dit_shape_set_contiguous(view.ndim, view.sizes, room);
  view.data = dense->data;
  view.dtype = (int16_t)dense->dtype;
  view.strides = room;
  return view;
}

/// grad_a = grad @ b^T, or with `of_b` grad_b = a^T @ grad; x is the other operand.
static enum dit_status add_gradient(const struct backward_task *task, bool of_b, const struct dit_tensor_view *target,
                                    const struct dit_tensor_view *grad, const struct dit_tensor_view *x,
                                    struct dit_error *err) {
  struct matmul_shape shape = task->shape;
  struct product *p = &shape.product;
  p->dtype = target->dtype;
  if (of_b) {
    set_operands(&shape, grad, x, target);
    const struct product_matrix result = p->b;
    p->b = p->out;
    p->out = result;
    product_transpose(&p->a);
  } else {
    set_operands(&shape, grad, target, x);
    const struct product_matrix result = p->a;
    p->a = p->out;
    p->out = result;
    product_transpose(&p->b);
  }
  if (grad->numel == 0) {
    return kernel_fill(NULL, target, (struct dit_scalar){.kind = DIT_SCALAR_INT}, err);
  }
  return product_sum(p, err);
}

static diopiError_t run_gradient(struct backward_task *task, bool of_b, const struct dit_tensor_view *target,
                                 const struct dit_tensor_view *x) {
  struct dense to = {0}, grad = {0}, from = {0};
  struct dit_error err = {.message = ""};
  enum dit_status status = DIT_ERR_NOMEM;
  const int work = dense_get_work(target->dtype);
  if (!target->handle || target->numel == 0) {
    return diopiSuccess;
  }
  if (work == target->dtype) {
    return frame_get_code(task->frame, add_gradient(task, of_b, target, &task->grad, x, &err), &err);
  }
  if (dense_reserve(&to, target, work) && dense_read(&grad, &task->grad, work) && dense_read(&from, x, work)) {
    int64_t rooms[3][DIT_MAX_DIMS];
    const struct dit_tensor_view wide = get_copy(&to, rooms[0]), wide_grad = get_copy(&grad, rooms[1]),
                                 wide_x = get_copy(&from, rooms[2]);
    status = add_gradient(task, of_b, &wide, &wide_grad, &wide_x, &err);
    if (status == DIT_OK) {
      dense_store(&to);
    }
  }
  dense_close(&to);
  dense_close(&grad);
  dense_close(&from);
  return frame_get_code(task->frame, status, &err);
}

static diopiError_t run_backward(void *context) {
  struct backward_task *task = context;
  FRAME_TRY(run_gradient(task, false, &task->grad_a, &task->b));
  return run_gradient(task, true, &task->grad_b, &task->a);
}

diopiError_t diopiMatmulBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                 diopiTensorHandle_t grad_other, diopiConstTensorHandle_t grad_out,
                                 diopiConstTensorHandle_t input, diopiConstTensorHandle_t other) {
  struct frame frame;
  struct backward_task task;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE_OPTIONAL(&frame, grad_input, &task.grad_a);
  FRAME_TAKE_OPTIONAL(&frame, grad_other, &task.grad_b);
  FRAME_TAKE(&frame, grad_out, &task.grad);
  FRAME_TAKE(&frame, input, &task.a);
  FRAME_TAKE(&frame, other, &task.b);
  static const char *const names[] = {"input", "other", "grad_out"};
  const struct dit_tensor_view *views[] = {&task.a, &task.b, &task.grad, &task.grad_a};
  FRAME_TRY(check_dtypes(&frame, names, views, 3, DTYPES_FLOAT));
  FRAME_TRY(set_shape(&frame, "grad_out", &task.grad, &task.a, &task.b, &task.shape));
  const struct dit_tensor_view *const results[] = {&task.grad_a, &task.grad_b};
  static const char *const labels[] = {"grad_input", "grad_other"};
  for (int i = 0; i < 2; i++) {
    if (results[i]->handle) {
      FRAME_CHECK(&frame, frame_is_same_shape(results[i], views[i]) && results[i]->dtype == views[i]->dtype,
                  "'%s' has another shape or dtype than '%s'", labels[i], names[i]);
      FRAME_TRY(frame_check_output(&frame, labels[i], results[i], views, 3 + i, false));
    }
  }
  task.frame = &frame;
  return frame_run(&frame, run_backward, &task);
}
