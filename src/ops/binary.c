/// add, sub, mul, div: functional, in-place and out= forms, Tensor and Scalar.
///
/// out = self op (alpha *) other, broadcast; result dtype by promotion (true division turns integers into the default
/// dtype); results take their strides as TensorIterator says. In-place keeps self's shape and dtype. The first check of
/// every call is the small-tensor path: two contiguous device tensors of one shape and dtype need no inference at all.
#include <stddef.h>

#include "infer.h"
#include "table.h"

static const struct dit_scalar one = {DIT_SCALAR_INT, {1}};

/// The alpha argument of add and sub against the result type.
static enum dit_status check_alpha(int common, const struct dit_scalar *alpha, struct dit_error *err) {
  if (alpha->kind == DIT_SCALAR_BOOL && common != DIT_DTYPE_BOOL) {
    return dit_error_set(err, DIT_ERR_INVALID, "Boolean alpha only supported for Boolean results.");
  }
  if (alpha->kind == DIT_SCALAR_DOUBLE && !op_is_floating(common)) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "For integral input tensors, argument alpha must not be a floating point number.");
  }
  if (alpha->kind == DIT_SCALAR_COMPLEX) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "For non-complex input tensors, argument alpha must not be a complex number.");
  }
  return DIT_OK;
}

static enum dit_status check_subtraction(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                                         struct dit_error *err) {
  if (a->dtype == DIT_DTYPE_BOOL && b->dtype == DIT_DTYPE_BOOL) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                         "`logical_xor()` operator instead.");
  }
  if (a->dtype == DIT_DTYPE_BOOL || b->dtype == DIT_DTYPE_BOOL) {
    return dit_error_set(err, DIT_ERR_INVALID,
                         "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to "
                         "invert a mask, use the `~` or `logical_not()` operator instead.");
  }
  return DIT_OK;
}

static int get_common(enum dit_binary_kind kind, const struct dit_tensor_view *const *inputs) {
  int common = op_promote(inputs, 2);
  if (kind == DIT_BINARY_DIV && common >= 0 && !op_is_floating(common)) {
    common = op_get_default_dtype();
  }
  return common;
}

/// Half types compute in float and round once, unless an operand must first be rounded to the half type.
static int get_compute(int common, const struct dit_tensor_view *const *inputs, int out_dtype) {
  if (!op_is_half(common) || out_dtype != common) {
    return common;
  }
  for (int i = 0; i < 2; i++) {
    if (op_is_device(inputs[i]) && inputs[i]->dtype != common) {
      return common;
    }
  }
  return DIT_DTYPE_F32;
}

static enum dit_status run_general(struct dit_call *call, enum dit_binary_kind kind, enum op_target target,
                                   const struct dit_tensor_view *const *inputs, struct dit_scalar alpha,
                                   struct dit_tensor_view *out) {
  struct op_layout layout;
  struct dit_tensor_view a, b;
  int64_t a_strides[DIT_MAX_DIMS], b_strides[DIT_MAX_DIMS];
  bool same_shape;
  DIT_RETURN_IF_NOT_OK(op_check_input(inputs[0]));
  DIT_RETURN_IF_NOT_OK(op_check_input(inputs[1]));
  if (!op_is_device(inputs[0]) && !op_is_device(inputs[1])) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (kind == DIT_BINARY_SUB) {
    DIT_RETURN_IF_NOT_OK(check_subtraction(inputs[0], inputs[1], call->err));
  }
  DIT_RETURN_IF_NOT_OK(op_check_given(call, target, inputs, 2, out));
  DIT_RETURN_IF_NOT_OK(op_broadcast(inputs, 2, &layout, &same_shape, call->err));
  if (target == OP_INPLACE) {
    DIT_RETURN_IF_NOT_OK(op_check_inplace(out, &layout, call->err));
  }
  int common = get_common(kind, inputs);
  if (common < 0 || !op_is_plain(common)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (target != OP_NEW) {
    DIT_RETURN_IF_NOT_OK(op_check_cast(common, out->dtype, call->err));
  }
  DIT_RETURN_IF_NOT_OK(check_alpha(common, &alpha, call->err));
  DIT_RETURN_IF_NOT_OK(op_prepare(call, target, inputs, 2, common, &layout, same_shape, out));
  op_expand(inputs[0], &layout, a_strides, &a);
  op_expand(inputs[1], &layout, b_strides, &b);
  return call->kernels->binary(call->stream, kind, out, &a, &b, alpha, get_compute(common, inputs, out->dtype),
                               call->err);
}

/// Two contiguous device tensors of one shape and dtype; in-place also needs disjoint or identical memory.
static bool is_simple(enum dit_binary_kind kind, enum op_target target, const struct dit_tensor_view *a,
                      const struct dit_tensor_view *b, const struct dit_scalar *alpha) {
  const uint8_t want = DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_ON_DEVICE;
  if ((a->flags & b->flags & want) != want || a->dtype != b->dtype || target == OP_OUT || a->ndim > DIT_MAX_DIMS ||
      !op_same_sizes(a, b->ndim, b->sizes)) {
    return false;
  }
  if (!op_is_floating(a->dtype)) {
    bool integer = op_is_plain(a->dtype) && a->dtype != DIT_DTYPE_BOOL;
    if (!integer || kind == DIT_BINARY_DIV || alpha->kind != DIT_SCALAR_INT) {
      return false;
    }
  } else if (alpha->kind != DIT_SCALAR_INT && alpha->kind != DIT_SCALAR_DOUBLE) {
    return false;
  }
  return target == OP_NEW || a->storage != b->storage || a->data == b->data;
}

static enum dit_status run_binary(struct dit_call *call, enum dit_binary_kind kind, enum op_target target,
                                  struct dit_tensor_view *a, struct dit_tensor_view *b, struct dit_scalar alpha,
                                  struct dit_tensor_view *given) {
  struct dit_tensor_view made, *out = target == OP_NEW ? &made : given;
  if (DIT_UNLIKELY(!OP_HAS_KERNEL(call, binary) || !a || !b || !out)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (DIT_LIKELY(is_simple(kind, target, a, b, &alpha))) {
    if (target == OP_NEW) {
      DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, a->ndim, a->sizes, NULL, a->dtype, &made));
    }
    int compute = op_is_half(a->dtype) ? DIT_DTYPE_F32 : a->dtype;
    DIT_RETURN_IF_NOT_OK(call->kernels->binary(call->stream, kind, out, a, b, alpha, compute, call->err));
    return op_return(call, 0, out);
  }
  const struct dit_tensor_view *inputs[2] = {a, b};
  DIT_RETURN_IF_NOT_OK(run_general(call, kind, target, inputs, alpha, out));
  return op_return(call, 0, out);
}

static enum dit_status run_tensor(struct dit_call *call, enum dit_binary_kind kind, enum op_target target) {
  struct dit_scalar alpha = one;
  int next = 2;
  if (kind == DIT_BINARY_ADD || kind == DIT_BINARY_SUB) {
    DIT_RETURN_IF_NOT_OK(op_read_scalar(&call->args[next++], &alpha));
  }
  struct dit_tensor_view *a = op_get_tensor(call, 0);
  return run_binary(call, kind, target, a, op_get_tensor(call, 1), alpha,
                    target == OP_OUT ? op_get_tensor(call, next) : a);
}

static enum dit_status run_scalar(struct dit_call *call, enum dit_binary_kind kind, enum op_target target) {
  struct dit_scalar alpha = one;
  struct dit_tensor_view other;
  union op_number room;
  DIT_RETURN_IF_NOT_OK(op_wrap_scalar(&call->args[1], &room, &other));
  if (kind == DIT_BINARY_ADD || kind == DIT_BINARY_SUB) {
    DIT_RETURN_IF_NOT_OK(op_read_scalar(&call->args[2], &alpha));
  }
  struct dit_tensor_view *a = op_get_tensor(call, 0);
  return run_binary(call, kind, target, a, &other, alpha, a);
}

#define BINARY_OPS(name, kind)                                        \
  enum dit_status op_##name##_tensor(struct dit_call *call) {         \
    return run_tensor(call, kind, OP_NEW);                            \
  }                                                                   \
  enum dit_status op_##name##_scalar(struct dit_call *call) {         \
    return run_scalar(call, kind, OP_NEW);                            \
  }                                                                   \
  enum dit_status op_##name##_tensor_inplace(struct dit_call *call) { \
    return run_tensor(call, kind, OP_INPLACE);                        \
  }                                                                   \
  enum dit_status op_##name##_scalar_inplace(struct dit_call *call) { \
    return run_scalar(call, kind, OP_INPLACE);                        \
  }                                                                   \
  enum dit_status op_##name##_out(struct dit_call *call) {            \
    return run_tensor(call, kind, OP_OUT);                            \
  }
BINARY_OPS(add, DIT_BINARY_ADD)
BINARY_OPS(sub, DIT_BINARY_SUB)
BINARY_OPS(mul, DIT_BINARY_MUL)
BINARY_OPS(div, DIT_BINARY_DIV)
