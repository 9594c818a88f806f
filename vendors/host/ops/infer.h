/// Shapes and dtypes of results without a call: what the rules of diopiExtInferOutputs share.
///
/// A function's row (functions.inc) has one item for each parameter that may be written, in their order; when it has
/// fewer, the last one serves the rest. An item is a rule with the names of the arguments that it reads. A rule looks
/// at shapes, dtypes and attributes alone, never at elements, and emits a result (one per tensor for a list).
#ifndef DIT_HOST_OPS_INFER_H
#define DIT_HOST_OPS_INFER_H

#include "frame.h"

/// The dtype of a result, from that of the inputs.
enum infer_as {
  AS_IS,
  AS_FLOAT,    ///< float32 for integers and bool
  AS_SUM,      ///< int64 for integers and bool
  AS_WIDE,     ///< float32 for half types
  AS_REAL,     ///< of complex: that of its parts
  AS_COMPLEX,  ///< the complex one with these parts
  AS_INDEX,    ///< int64
  AS_I32,      ///< int32
  AS_BOOL,     ///< bool
  AS_TRUTH,    ///< bool, but uint8 stays
  AS_CHOSEN,   ///< whatever the caller wants
};

#define INFER_NAMES 4
struct infer;
struct infer_item {
  diopiError_t (*rule)(struct infer *infer, const struct infer_item *item);
  enum infer_as as;
  int number;  ///< of the rule: spatial dimensions, rank ...
  const char *names[INFER_NAMES];
};

/// One question.
struct infer {
  struct frame frame;  ///< for messages; it has no context
  const struct dit_diopi_info *info;
  const diopiExtArgument_t *arguments;
  int parameter;  ///< whose result is asked for, from 0 after the context
  diopiExtOutput_t *outputs;
  int64_t room, count;
};

/// A shape in the making.
struct infer_shape {
  int ndim, dtype;
  int64_t sizes[DIT_MAX_DIMS];
};

/// The argument with this name; NULL when it is absent.
const diopiExtArgument_t *infer_find(const struct infer *infer, const char *name);
/// Kind of the parameter with this name (struct dit_diopi_info), 0 when there is none.
char infer_get_kind(const struct infer *infer, const char *name);
/// The argument that must be there, as a tensor.
diopiError_t infer_take(struct infer *infer, const char *name, struct dit_tensor_view *view);
/// An integer that must be there; a list of integers, absent or not (data NULL).
diopiError_t infer_get_integer(struct infer *infer, const char *name, int64_t *value);
diopiSize_t infer_get_list(const struct infer *infer, const char *name);
bool infer_get_flag(const struct infer *infer, const char *name);

/// A product of sizes; negative, which no size may be, where it is too large.
static inline int64_t infer_multiply(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

void infer_start(struct infer_shape *shape, const struct dit_tensor_view *view);
/// One more dimension; too many are an argument error.
diopiError_t infer_add_size(struct infer *infer, struct infer_shape *shape, int64_t size);
/// The shape is the next result. Negative sizes, and more bytes than there can be, are argument errors.
diopiError_t infer_emit(struct infer *infer, const struct infer_shape *shape, enum infer_as as);
/// The next result has a shape that nobody can tell from the arguments; dtype -1: nor its dtype.
diopiError_t infer_emit_unknown(struct infer *infer, int dtype, enum infer_as as);
int infer_convert(int dtype, enum infer_as as);

// rules: infer.c, infer_layout.c (moved elements), infer_network.c (products, windows, norms, losses),
// infer_linalg.c (matrices in batches, shapes of single sizes)

typedef diopiError_t infer_rule(struct infer *infer, const struct infer_item *item);
infer_rule infer_own, infer_like, infer_mix, infer_sizes, infer_unknown, infer_scalar, infer_reduce, infer_arange,
    infer_length, infer_text, infer_pairs, infer_voxels, infer_two, infer_sparse;
infer_rule infer_resize, infer_cat, infer_stack, infer_split, infer_mesh, infer_select, infer_slice, infer_transpose,
    infer_permute, infer_repeat, infer_pad, infer_unfold, infer_one_hot, infer_embedding, infer_embedding_backward,
    infer_index, infer_unique;
infer_rule infer_product, infer_linear, infer_conv, infer_bias, infer_pool, infer_im2col, infer_col2im, infer_upsample,
    infer_grid, infer_size_of, infer_layer, infer_layer_flat, infer_groups, infer_loss, infer_loss_class, infer_ctc,
    infer_attention;
infer_rule infer_dims, infer_batch, infer_matrices, infer_qr;

#endif
