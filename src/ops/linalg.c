/// Linear algebra over batches of matrices: Cholesky factors, triangular systems, QR, pairwise distances.
///
/// Matrices are the last two dimensions, the others count them; new results have columns that lie together, as
/// LAPACK's have, and distances are row-major. float32, float64 and their complex types (distances: floating ones).
/// linalg_solve_triangular from the right is the transposed system over transposed views. _cholesky_solve_helper is
/// two triangular systems: L y = b, then L^T x = y; complex ones need a conjugate and are left to the CPU. A given
/// result must have its shape already. linalg_cholesky_ex with check_errors: the CPU's kernel words the error.
#include "dit/tensor.h"
#include "invoke.h"
#include "network.h"
#include "table.h"

static bool is_linalg(const struct dit_tensor_view *view) {
  return view && op_is_device(view) && view->ndim >= 2 && view->ndim <= DIT_MAX_DIMS &&
         (view->dtype == DIT_DTYPE_F32 || view->dtype == DIT_DTYPE_F64 || op_is_complex(view->dtype));
}

static int64_t count_rows(const struct dit_tensor_view *view) {
  return view->sizes[view->ndim - 2];
}

static int64_t count_columns(const struct dit_tensor_view *view) {
  return view->sizes[view->ndim - 1];
}

/// Strides of dense matrices whose columns lie together.
static void set_column_strides(int ndim, const int64_t *sizes, int64_t *strides) {
  int64_t step = 1;
  for (int dim = ndim - 1; dim >= 0; dim--) {
    strides[dim] = step;
    step *= sizes[dim] > 0 ? sizes[dim] : 1;
  }
  strides[ndim - 2] = 1;
  strides[ndim - 1] = sizes[ndim - 2] > 0 ? sizes[ndim - 2] : 1;
}

/// A result: new with columns that lie together, or a given one of this shape and dtype that shares no memory with
/// `inputs`.
static enum dit_status prepare(struct dit_call *call, int index, const struct dit_tensor_view *const *inputs, int count,
                               int ndim, const int64_t *sizes, int dtype, struct dit_tensor_view *out) {
  if (call->op->target == OP_NEW) {
    int64_t strides[DIT_MAX_DIMS];
    if (ndim < 2) {
      return call->services->new_tensor(call, ndim, sizes, NULL, dtype, out);
    }
    set_column_strides(ndim, sizes, strides);
    return call->services->new_tensor(call, ndim, sizes, strides, dtype, out);
  }
  const struct dit_tensor_view *given = op_get_tensor(call, call->nargs - call->nrets + index);
  NET_NEED(given && op_is_device(given) && given->dtype == dtype && op_same_sizes(given, ndim, sizes) &&
           net_is_writable(given));
  for (int i = 0; i < count; i++) {
    NET_NEED(net_is_apart(given, inputs[i]));
  }
  *out = *given;
  return DIT_OK;
}

enum dit_status op_cholesky_ex(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  const bool upper = call->args[1].v.i != 0, check = call->args[2].v.i != 0;
  struct dit_tensor_view out = {0}, info = {0};
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(OP_HAS(call, diopiCholesky) && is_linalg(self) && count_rows(self) == count_columns(self) && !check);
  const struct dit_tensor_view *inputs[2] = {self, &out};
  DIT_RETURN_IF_NOT_OK(prepare(call, 0, inputs, 1, self->ndim, self->sizes, self->dtype, &out));
  if (call->op->target == OP_NEW) {
    DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, self->ndim - 2, self->sizes, NULL, DIT_DTYPE_I32, &info));
  } else {
    DIT_RETURN_IF_NOT_OK(prepare(call, 1, inputs, 2, self->ndim - 2, self->sizes, DIT_DTYPE_I32, &info));
  }
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiCholesky, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], &info), op_handle(call, &rooms[2], self), upper, false));
  DIT_RETURN_IF_NOT_OK(op_return(call, 0, &out));
  return op_return(call, 1, &info);
}

/// Sizes of a matrix result: the broadcast leading dimensions of a and b, then rows x columns; false where they do not
/// broadcast.
static bool set_batch_sizes(const struct dit_tensor_view *a, const struct dit_tensor_view *b, int64_t rows,
                            int64_t columns, int *ndim, int64_t *sizes) {
  *ndim = 0;
  if (dit_shape_broadcast(a->ndim - 2, a->sizes, ndim, sizes, NULL) != DIT_OK ||
      dit_shape_broadcast(b->ndim - 2, b->sizes, ndim, sizes, NULL) != DIT_OK || *ndim + 2 > DIT_MAX_DIMS) {
    return false;
  }
  sizes[(*ndim)++] = rows;
  sizes[(*ndim)++] = columns;
  return true;
}

/// A view with its last two dimensions exchanged.
struct turned {
  struct dit_tensor_view view;
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
};

static const struct dit_tensor_view *turn(const struct dit_tensor_view *view, struct turned *room) {
  const int last = view->ndim - 1;
  op_copy_dims(room->sizes, view->sizes, view->ndim);
  op_copy_dims(room->strides, view->strides, view->ndim);
  room->sizes[last] = view->sizes[last - 1];
  room->sizes[last - 1] = view->sizes[last];
  room->strides[last] = view->strides[last - 1];
  room->strides[last - 1] = view->strides[last];
  room->view = *view;
  room->view.sizes = room->sizes;
  room->view.strides = room->strides;
  room->view.flags &= (uint8_t)~DIT_TENSOR_CONTIGUOUS;
  return &room->view;
}

struct triangle {
  bool upper, transpose, unit;
};

static enum dit_status solve(struct dit_call *call, const struct dit_tensor_view *out,
                             const struct dit_tensor_view *copy, const struct dit_tensor_view *b,
                             const struct dit_tensor_view *mat, struct triangle how) {
  struct diopiContext context;
  struct diopiTensor rooms[4];
  op_context_init(&context, call);
  return OP_DIOPI(call, &context, diopiTriangularSolve, op_handle(call, &rooms[0], out),
                  op_handle(call, &rooms[1], copy), op_handle(call, &rooms[2], b), op_handle(call, &rooms[3], mat),
                  how.upper, how.transpose, how.unit);
}

static bool is_system(const struct dit_tensor_view *mat, const struct dit_tensor_view *b, bool left) {
  return is_linalg(mat) && is_linalg(b) && mat->dtype == b->dtype && count_rows(mat) == count_columns(mat) &&
         (left ? count_rows(b) : count_columns(b)) == count_rows(mat);
}

enum dit_status op_solve_triangular(struct dit_call *call) {
  const struct dit_tensor_view *mat = op_get_tensor(call, 0), *b = op_get_tensor(call, 1);
  const bool left = call->args[3].v.i != 0;
  const struct triangle how = {call->args[2].v.i != 0, !left, call->args[4].v.i != 0};
  struct dit_tensor_view out = {0}, copy = {0};
  struct turned turned_out, turned_b;
  int64_t sizes[DIT_MAX_DIMS], squares[DIT_MAX_DIMS];
  int ndim = 0;
  NET_NEED(OP_HAS(call, diopiTriangularSolve) && is_system(mat, b, left) &&
           set_batch_sizes(mat, b, count_rows(mat), count_rows(mat), &ndim, squares));
  NET_NEED(set_batch_sizes(mat, b, count_rows(b), count_columns(b), &ndim, sizes));
  const struct dit_tensor_view *inputs[2] = {mat, b};
  DIT_RETURN_IF_NOT_OK(prepare(call, 0, inputs, 2, ndim, sizes, b->dtype, &out));
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, ndim, squares, NULL, b->dtype, &copy));
  DIT_RETURN_IF_NOT_OK(
      solve(call, left ? &out : turn(&out, &turned_out), &copy, left ? b : turn(b, &turned_b), mat, how));
  return op_return(call, 0, &out);
}

enum dit_status op_triangular_solve(struct dit_call *call) {
  const struct dit_tensor_view *b = op_get_tensor(call, 0), *mat = op_get_tensor(call, 1);
  const struct triangle how = {call->args[2].v.i != 0, call->args[3].v.i != 0, call->args[4].v.i != 0};
  struct dit_tensor_view out = {0}, copy = {0};
  int64_t sizes[DIT_MAX_DIMS], squares[DIT_MAX_DIMS];
  int ndim = 0;
  NET_NEED(OP_HAS(call, diopiTriangularSolve) && is_system(mat, b, true) &&
           set_batch_sizes(mat, b, count_rows(mat), count_rows(mat), &ndim, squares));
  NET_NEED(set_batch_sizes(mat, b, count_rows(b), count_columns(b), &ndim, sizes));
  const struct dit_tensor_view *inputs[3] = {mat, b, &out};
  DIT_RETURN_IF_NOT_OK(prepare(call, 0, inputs, 2, ndim, sizes, b->dtype, &out));
  DIT_RETURN_IF_NOT_OK(prepare(call, 1, inputs, 3, ndim, squares, b->dtype, &copy));
  DIT_RETURN_IF_NOT_OK(solve(call, &out, &copy, b, mat, how));
  DIT_RETURN_IF_NOT_OK(op_return(call, 0, &out));
  return op_return(call, 1, &copy);
}

/// The sizes are broadcast already. The factor L of A = L L^T, or U of U^T U.
enum dit_status op_cholesky_solve(struct dit_call *call) {
  const struct dit_tensor_view *b = op_get_tensor(call, 0), *factor = op_get_tensor(call, 1);
  const bool upper = call->args[2].v.i != 0;
  struct dit_tensor_view half = {0}, out = {0}, copy = {0};
  NET_NEED(OP_HAS(call, diopiTriangularSolve) && is_system(factor, b, true) && !op_is_complex(b->dtype) &&
           factor->ndim == b->ndim);
  for (int dim = 0; dim < b->ndim - 2; dim++) {
    NET_NEED(factor->sizes[dim] == b->sizes[dim]);
  }
  const struct dit_tensor_view *inputs[2] = {factor, b};
  DIT_RETURN_IF_NOT_OK(prepare(call, 0, inputs, 2, b->ndim, b->sizes, b->dtype, &out));
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, b->ndim, b->sizes, NULL, b->dtype, &half));
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, factor->ndim, factor->sizes, NULL, b->dtype, &copy));
  DIT_RETURN_IF_NOT_OK(solve(call, &half, &copy, b, factor, (struct triangle){upper, upper, false}));
  DIT_RETURN_IF_NOT_OK(solve(call, &out, &copy, &half, factor, (struct triangle){upper, !upper, false}));
  return op_return(call, 0, &out);
}

enum dit_status op_qr(struct dit_call *call) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  struct dit_tensor_view q = {0}, r = {0};
  struct diopiContext context;
  struct diopiTensor rooms[3];
  int64_t q_sizes[DIT_MAX_DIMS], r_sizes[DIT_MAX_DIMS];
  NET_NEED(OP_HAS(call, diopiLinalgQR) && is_linalg(self) && call->args[1].tag == DIT_VALUE_STRING);
  const char *mode = call->args[1].v.string;
  const bool complete = strcmp(mode, "complete") == 0, no_q = strcmp(mode, "r") == 0;
  NET_NEED(complete || no_q || strcmp(mode, "reduced") == 0);
  const int64_t rows = count_rows(self), columns = count_columns(self);
  const int64_t inner = complete || rows < columns ? rows : columns;
  const int last = self->ndim - 1;
  op_copy_dims(q_sizes, self->sizes, self->ndim);
  op_copy_dims(r_sizes, self->sizes, self->ndim);
  q_sizes[no_q ? 0 : last] = no_q ? 0 : inner;
  r_sizes[last - 1] = inner;
  const struct dit_tensor_view *inputs[2] = {self, &q};
  DIT_RETURN_IF_NOT_OK(prepare(call, 0, inputs, 1, no_q ? 1 : self->ndim, q_sizes, self->dtype, &q));
  DIT_RETURN_IF_NOT_OK(prepare(call, 1, inputs, 2, self->ndim, r_sizes, self->dtype, &r));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiLinalgQR, op_handle(call, &rooms[0], self), mode,
                                op_handle(call, &rooms[1], &q), op_handle(call, &rooms[2], &r)));
  DIT_RETURN_IF_NOT_OK(op_return(call, 0, &q));
  return op_return(call, 1, &r);
}

// Distances

/// float32 and float64, as PyTorch's kernels take them.
static bool is_distance(const struct dit_tensor_view *view) {
  return is_linalg(view) && !op_is_complex(view->dtype);
}

static bool is_pair(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  return is_distance(a) && is_distance(b) && a->dtype == b->dtype && count_columns(a) == count_columns(b);
}

enum dit_status op_cdist(struct dit_call *call) {
  const struct dit_tensor_view *a = op_get_tensor(call, 0), *b = op_get_tensor(call, 1);
  struct dit_tensor_view *given = NULL, out = {0};
  int64_t sizes[DIT_MAX_DIMS];
  int ndim = 0;
  NET_NEED(OP_HAS(call, diopiCdist) && is_pair(a, b) && net_get_double(call, 2) >= 0 &&
           set_batch_sizes(a, b, count_rows(a), count_rows(b), &ndim, sizes) && net_get_given(call, 4, &given));
  const struct dit_tensor_view *inputs[2] = {a, b}, *outs[1] = {&out};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 2, ndim, sizes, a->dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  return op_return(call, 0, &out);
}

/// The gradient has the broadcast leading dimensions: autograd sums over them, so x1 goes to the library expanded.
enum dit_status op_cdist_backward(struct dit_call *call) {
  const struct dit_tensor_view *grad = op_get_tensor(call, 0), *b = op_get_tensor(call, 2);
  struct dit_tensor_view *a = op_get_tensor(call, 1), *given = NULL, out = {0}, wide = {0};
  const struct dit_tensor_view *distance = op_get_tensor(call, 4);
  struct op_layout layout = {0};
  int64_t strides[DIT_MAX_DIMS], sizes[DIT_MAX_DIMS];
  int ndim = 0;
  NET_NEED(OP_HAS(call, diopiCdistBackward) && is_distance(grad) && is_pair(a, b) && is_distance(distance) &&
           grad->dtype == a->dtype && distance->dtype == a->dtype && net_get_double(call, 3) >= 0 &&
           set_batch_sizes(a, b, count_rows(a), count_rows(b), &ndim, sizes) && net_get_given(call, 5, &given));
  NET_NEED(op_same_sizes(grad, ndim, sizes) && op_same_sizes(distance, ndim, sizes) && distance->numel > 0 &&
           count_columns(a) > 0);
  layout.ndim = ndim;
  NET_NEED(set_batch_sizes(a, b, count_rows(a), count_columns(a), &layout.ndim, layout.sizes));
  const struct dit_tensor_view *inputs[4] = {grad, a, b, distance}, *outs[1] = {&out};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 4, layout.ndim, layout.sizes, a->dtype, &out));
  op_expand(a, &layout, strides, &wide);
  *a = wide;
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  return op_return(call, 0, &out);
}
