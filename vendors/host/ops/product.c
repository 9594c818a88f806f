/// Products of stacks of matrices (see product.h): batch dimensions become as few calls of the matrix kernel as the
/// strides allow.
///
/// Dimensions that lie behind each other are merged. A batch that repeats b is folded into the rows (one large product
/// instead of many), a batch that is summed into the depth.
#include "product.h"

#include <string.h>

#include "engine/kernels.h"

void product_set(const struct product *product, struct product_matrix *matrix, const struct dit_tensor_view *view,
                 int row, int column) {
  memset(matrix, 0, sizeof *matrix);
  matrix->data = view->data;
  matrix->sizes[0] = row >= 0 ? view->sizes[row] : 1;
  matrix->sizes[1] = column >= 0 ? view->sizes[column] : 1;
  matrix->strides[0] = row >= 0 ? view->strides[row] : matrix->sizes[1];
  matrix->strides[1] = column >= 0 ? view->strides[column] : 1;
  int dim = product->ndim - 1;
  for (int i = view->ndim - 1; i >= 0; i--) {
    if (i != row && i != column) {
      matrix->batch[dim] = view->sizes[i] == product->sizes[dim] ? view->strides[i] : 0;
      dim--;
    }
  }
}

void product_transpose(struct product_matrix *matrix) {
  const int64_t size = matrix->sizes[0], stride = matrix->strides[0];
  matrix->sizes[0] = matrix->sizes[1];
  matrix->strides[0] = matrix->strides[1];
  matrix->sizes[1] = size;
  matrix->strides[1] = stride;
}

static void drop_dim(struct product *p, int dim) {
  struct product_matrix *const all[4] = {&p->out, &p->a, &p->b, &p->bias};
  for (int i = dim; i + 1 < p->ndim; i++) {
    p->sizes[i] = p->sizes[i + 1];
    for (int j = 0; j < 4; j++) {
      all[j]->batch[i] = all[j]->batch[i + 1];
    }
  }
  p->ndim--;
}

static bool is_merged(const struct product *p, const struct product_matrix *matrix, int dim) {
  return matrix->batch[dim] == matrix->batch[dim + 1] * p->sizes[dim + 1];
}

static void merge_dims(struct product *p) {
  for (int dim = p->ndim - 1; dim >= 0; dim--) {
    if (p->sizes[dim] == 1) {
      drop_dim(p, dim);
    }
  }
  for (int dim = p->ndim - 2; dim >= 0; dim--) {
    if (is_merged(p, &p->out, dim) && is_merged(p, &p->a, dim) && is_merged(p, &p->b, dim) &&
        is_merged(p, &p->bias, dim)) {
      p->sizes[dim + 1] *= p->sizes[dim];
      drop_dim(p, dim);
    }
  }
}

/// Does the last batch dimension go on where the matrix's own dimension `which` ends?
static bool continues(const struct product_matrix *matrix, int last, int which) {
  return matrix->batch[last] == matrix->sizes[which] * matrix->strides[which];
}

/// One product of many rows where every matrix of the batch meets the same b.
static void fold_rows(struct product *p) {
  const int last = p->ndim - 1;
  if (last < 0 || p->b.batch[last] != 0 || !continues(&p->a, last, 0) || !continues(&p->out, last, 0)) {
    return;
  }
  if (p->bias.data && (p->bias.batch[last] != 0 || p->bias.strides[0] != 0) && !continues(&p->bias, last, 0)) {
    return;
  }
  p->out.sizes[0] = p->a.sizes[0] = p->bias.sizes[0] = p->a.sizes[0] * p->sizes[last];
  p->ndim--;
}

/// One deep product where the whole batch is added up.
static void fold_depth(struct product *p) {
  const int last = p->ndim - 1;
  if (last >= 0 && p->out.batch[last] == 0 && continues(&p->a, last, 1) && continues(&p->b, last, 0)) {
    p->a.sizes[1] = p->b.sizes[0] = p->a.sizes[1] * p->sizes[last];
    p->ndim--;
  }
}

struct matrix_view {
  struct dit_tensor_view view;
  int64_t sizes[3], strides[3];
};

/// `count` matrices of a stack from the one at `offset` elements as the kernel's 3-d view.
static void set_view(struct matrix_view *out, const struct product_matrix *matrix, int64_t offset, int64_t count,
                     int64_t stride, int dtype) {
  out->sizes[0] = count;
  out->strides[0] = stride;
  for (int i = 0; i < 2; i++) {
    out->sizes[1 + i] = matrix->sizes[i];
    out->strides[1 + i] = matrix->strides[i];
  }
  out->view = (struct dit_tensor_view){.data = matrix->data + offset * (int64_t)dit_dtype_get_size(dtype),
                                       .sizes = out->sizes,
                                       .strides = out->strides,
                                       .numel = count * matrix->sizes[0] * matrix->sizes[1],
                                       .ndim = 3,
                                       .dtype = (int16_t)dtype};
}

static int64_t get_offset(const struct product_matrix *matrix, const int64_t *index, int ndim) {
  int64_t offset = 0;
  for (int dim = 0; dim < ndim; dim++) {
    offset += index[dim] * matrix->batch[dim];
  }
  return offset;
}

/// Advance an index over `ndim` sizes, last one fastest; false after the last.
static bool step(int64_t *index, const int64_t *sizes, int ndim) {
  for (int dim = ndim - 1; dim >= 0; dim--) {
    if (++index[dim] < sizes[dim]) {
      return true;
    }
    index[dim] = 0;
  }
  return false;
}

static bool is_empty(const struct product *p) {
  for (int dim = 0; dim < p->ndim; dim++) {
    if (p->sizes[dim] == 0) {
      return true;
    }
  }
  return p->out.sizes[0] == 0 || p->out.sizes[1] == 0;
}

enum dit_status product_run(void *stream, struct product *p, struct dit_error *err) {
  if (is_empty(p)) {
    return DIT_OK;
  }
  merge_dims(p);
  fold_rows(p);
  int64_t index[DIT_MAX_DIMS] = {0};
  const int outer = p->ndim > 0 ? p->ndim - 1 : 0;
  const int64_t count = p->ndim > 0 ? p->sizes[outer] : 1;
  do {
    struct matrix_view out, a, b, bias;
    set_view(&out, &p->out, get_offset(&p->out, index, outer), count, p->out.batch[outer], p->dtype);
    set_view(&a, &p->a, get_offset(&p->a, index, outer), count, p->a.batch[outer], p->dtype);
    set_view(&b, &p->b, get_offset(&p->b, index, outer), count, p->b.batch[outer], p->dtype);
    if (p->bias.data) {
      set_view(&bias, &p->bias, get_offset(&p->bias, index, outer), count, p->bias.batch[outer], p->dtype);
    }
    DIT_RETURN_IF_NOT_OK(kernel_gemm(stream, &out.view, &a.view, &b.view, p->bias.data ? &bias.view : NULL, 1, 1, err));
  } while (step(index, p->sizes, outer));
  return DIT_OK;
}

/// Is this the first product that falls on its matrix of `out`?
static bool is_first(const struct product *p, const int64_t *index) {
  for (int dim = 0; dim < p->ndim; dim++) {
    if (p->out.batch[dim] == 0 && index[dim] != 0) {
      return false;
    }
  }
  return true;
}

bool product_is_sum(struct product *p) {
  if (is_empty(p)) {
    return false;
  }
  merge_dims(p);
  fold_depth(p);
  for (int dim = 0; dim < p->ndim; dim++) {
    if (p->out.batch[dim] == 0 && p->sizes[dim] > 1) {
      return true;
    }
  }
  return false;
}

enum dit_status product_sum(void *stream, struct product *p, struct dit_error *err) {
  if (is_empty(p)) {
    return DIT_OK;
  }
  merge_dims(p);
  fold_depth(p);
  int64_t index[DIT_MAX_DIMS] = {0};
  do {
    struct matrix_view out, a, b;
    set_view(&out, &p->out, get_offset(&p->out, index, p->ndim), 1, 0, p->dtype);
    set_view(&a, &p->a, get_offset(&p->a, index, p->ndim), 1, 0, p->dtype);
    set_view(&b, &p->b, get_offset(&p->b, index, p->ndim), 1, 0, p->dtype);
    const bool first = is_first(p, index);
    DIT_RETURN_IF_NOT_OK(kernel_gemm(stream, &out.view, &a.view, &b.view, first ? NULL : &out.view, 1, 1, err));
  } while (step(index, p->sizes, p->ndim));
  return DIT_OK;
}
