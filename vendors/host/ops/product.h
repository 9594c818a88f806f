/// Products of stacks of matrices, as matmul, linear and their gradients need them.
#ifndef DIT_HOST_OPS_PRODUCT_H
#define DIT_HOST_OPS_PRODUCT_H

#include <stdbool.h>

#include "dit/error.h"
#include "dit/tensor.h"

/// A stack of matrices. Strides are in elements; a batch stride of 0 repeats a matrix, or, for `out` of product_sum,
/// adds to it.
struct product_matrix {
  char *data;
  int64_t batch[DIT_MAX_DIMS];
  int64_t sizes[2], strides[2];
};

/// out = a @ b + bias over all batch dimensions; bias.data may be NULL.
struct product {
  int ndim;  ///< batch dimensions
  int64_t sizes[DIT_MAX_DIMS];
  struct product_matrix out, a, b, bias;
  int dtype;
};

/// A tensor as matrices: rows and columns are its dimensions `row` and `column` (-1: absent, size 1), all others are
/// batch dimensions, right-aligned to product->ndim and product->sizes; where the size differs (1) the stride is 0.
void product_set(const struct product *product, struct product_matrix *matrix, const struct dit_tensor_view *view,
                 int row, int column);
void product_transpose(struct product_matrix *matrix);
/// On the stream. Batch dimensions are merged where memory allows it.
enum dit_status product_run(void *stream, struct product *product, struct dit_error *err);
/// The same without bias; products that fall on the same matrix of `out` are added up. half types must be widened
/// before where there are such (product_is_sum).
enum dit_status product_sum(void *stream, struct product *product, struct dit_error *err);
/// Do several products fall on one matrix of `out`, after the batch was folded as far as memory allows?
bool product_is_sum(struct product *product);

#endif
