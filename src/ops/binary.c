/// add, sub, mul, div: functional, in-place and out= forms, Tensor and Scalar.
///
/// out = self op (alpha *) other, broadcast; result dtype by promotion (true division turns integers into the default
/// dtype); results take their strides as TensorIterator says. In-place keeps self's shape and dtype. The first check of
/// every call is the small-tensor path: two contiguous device tensors of one shape and dtype need no inference at all.
/// The work is done by diopiAdd and its forms.
#include <stddef.h>

#include "invoke.h"
#include "table.h"

enum kind { KIND_ADD, KIND_SUB, KIND_MUL, KIND_DIV };

static const struct dit_scalar one = {DIT_SCALAR_INT, {1}};

/// The alpha argument of add and sub against the result type.
static enum dit_status check_alpha(int common, const struct dit_scalar *alpha, struct dit_error *err) {
  if (alpha->kind == DIT_SCALAR_BOOL && common != DIT_DTYPE_BOOL) {
    return dit_error_set(err, DIT_ERR_INVALID, "Boolean alpha only supported for Boolean results.");
  }
  if (alpha->kind == DIT_SCALAR_COMPLEX && op_is_complex(common)) {
    return DIT_ERR_UNSUPPORTED;  // DIOPI's scalars are real
  }
  if (alpha->kind == DIT_SCALAR_DOUBLE && !op_is_floating(common) && !op_is_complex(common)) {
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

/// Does the vendor's library have what this call needs?
static bool has_function(const struct dit_call *call, enum kind kind, bool number) {
  switch (kind) {
    case KIND_ADD:
      return number ? OP_HAS(call, diopiAddScalar) : OP_HAS(call, diopiAdd);
    case KIND_SUB:
      return number ? OP_HAS(call, diopiSubScalar) : OP_HAS(call, diopiSub);
    case KIND_MUL:
      return number ? OP_HAS(call, diopiMulScalar) : OP_HAS(call, diopiMul);
    default:
      return number ? OP_HAS(call, diopiDivScalar) : OP_HAS(call, diopiDiv);
  }
}

/// out = a op b by the vendor's library; `number` is b where it is one.
static enum dit_status call_library(struct dit_call *call, enum kind kind, enum op_target target,
                                    const struct dit_tensor_view *out, const struct dit_tensor_view *a,
                                    const struct dit_tensor_view *b, const struct dit_scalar *number,
                                    struct dit_scalar factor) {
  struct diopiContext context;
  struct diopiTensor rooms[3];
  diopiScalar_t other_room, alpha_room;
  const bool inp = target == OP_INPLACE;
  op_context_init(&context, call);
  diopiTensorHandle_t to = op_handle(call, &rooms[0], out), x = op_handle(call, &rooms[1], a);
  diopiTensorHandle_t y = number ? NULL : op_handle(call, &rooms[2], b);
  const diopiScalar_t *n = number ? op_scalar(&other_room, *number) : NULL, *alpha = op_scalar(&alpha_room, factor);
#define CALL_FORMS(name, ...)                                                         \
  if (inp && !number && OP_HAS(call, diopi##name##Inp)) {                             \
    return OP_DIOPI(call, &context, diopi##name##Inp, to, y __VA_ARGS__);             \
  }                                                                                   \
  if (inp && number && OP_HAS(call, diopi##name##InpScalar)) {                        \
    return OP_DIOPI(call, &context, diopi##name##InpScalar, to, n __VA_ARGS__);       \
  }                                                                                   \
  return number ? OP_DIOPI(call, &context, diopi##name##Scalar, to, x, n __VA_ARGS__) \
                : OP_DIOPI(call, &context, diopi##name, to, x, y __VA_ARGS__)
#define WITH(argument) , argument
  switch (kind) {
    case KIND_ADD:
      CALL_FORMS(Add, WITH(alpha));
    case KIND_SUB:
      CALL_FORMS(Sub, WITH(alpha));
    case KIND_MUL:
      CALL_FORMS(Mul, );
    default:
      CALL_FORMS(Div, WITH(RoundModeNone));
  }
#undef WITH
#undef CALL_FORMS
}

/// The library computes in the result's dtype: an out= tensor of another one gets the result by conversion.
static enum dit_status run_library(struct dit_call *call, enum kind kind, enum op_target target, int common,
                                   const struct dit_tensor_view *out, const struct dit_tensor_view *const *inputs,
                                   struct dit_scalar alpha) {
  struct dit_tensor_view a = *inputs[0], b = *inputs[1], made;
  struct dit_scalar number;
  bool has_number = !op_is_device(&b) && op_read_number(&b, &number) == DIT_OK && has_function(call, kind, true);
  if (!op_is_device(&a)) {
    DIT_RETURN_IF_NOT_OK(op_move_to_device(call, &a, common));
  }
  if (!op_is_device(&b) && !has_number) {
    DIT_RETURN_IF_NOT_OK(op_move_to_device(call, &b, common));
  }
  if (out->dtype == common || target == OP_INPLACE) {
    return call_library(call, kind, target, out, &a, &b, has_number ? &number : NULL, alpha);
  }
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, out->ndim, out->sizes, NULL, common, &made));
  DIT_RETURN_IF_NOT_OK(call_library(call, kind, OP_NEW, &made, &a, &b, has_number ? &number : NULL, alpha));
  return op_copy(call, out, &made);
}

static enum dit_status run_general(struct dit_call *call, enum kind kind, enum op_target target,
                                   const struct dit_tensor_view *const *inputs, struct dit_scalar alpha,
                                   struct dit_tensor_view *out) {
  struct op_layout layout;
  bool same_shape;
  DIT_RETURN_IF_NOT_OK(op_check_element(inputs[0]));
  DIT_RETURN_IF_NOT_OK(op_check_element(inputs[1]));
  if (!op_is_device(inputs[0]) && !op_is_device(inputs[1])) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (kind == KIND_SUB) {
    DIT_RETURN_IF_NOT_OK(check_subtraction(inputs[0], inputs[1], call->err));
  }
  DIT_RETURN_IF_NOT_OK(op_check_given(call, target, inputs, 2, out));
  DIT_RETURN_IF_NOT_OK(op_broadcast(inputs, 2, &layout, &same_shape, call->err));
  if (target == OP_INPLACE) {
    DIT_RETURN_IF_NOT_OK(op_check_inplace(out, &layout, call->err));
  }
  const int common = kind == KIND_DIV ? op_promote_floating(call, inputs, 2) : op_promote(call, inputs, 2);
  if (common < 0 || !op_is_element(common)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (target != OP_NEW) {
    DIT_RETURN_IF_NOT_OK(op_check_cast(common, out->dtype, call->err));
  }
  DIT_RETURN_IF_NOT_OK(check_alpha(common, &alpha, call->err));
  DIT_RETURN_IF_NOT_OK(op_prepare(call, target, inputs, 2, common, &layout, same_shape, out));
  return run_library(call, kind, target, common, out, inputs, alpha);
}

/// Two contiguous device tensors of one shape and dtype; in-place also needs disjoint or identical memory.
static bool is_simple(enum kind kind, enum op_target target, const struct dit_tensor_view *a,
                      const struct dit_tensor_view *b, const struct dit_scalar *alpha) {
  const uint8_t want = DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_ON_DEVICE;
  if ((a->flags & b->flags & want) != want || a->dtype != b->dtype || target == OP_OUT || a->ndim > DIT_MAX_DIMS ||
      !op_same_sizes(a, b->ndim, b->sizes)) {
    return false;
  }
  if (!op_is_floating(a->dtype)) {
    bool integer = op_is_plain(a->dtype) && a->dtype != DIT_DTYPE_BOOL;
    if (!integer || kind == KIND_DIV || alpha->kind != DIT_SCALAR_INT) {
      return false;
    }
  } else if (alpha->kind != DIT_SCALAR_INT && alpha->kind != DIT_SCALAR_DOUBLE) {
    return false;
  }
  return target == OP_NEW || a->storage != b->storage || a->data == b->data;
}

static enum dit_status run_binary(struct dit_call *call, enum kind kind, enum op_target target,
                                  struct dit_tensor_view *a, struct dit_tensor_view *b, struct dit_scalar alpha,
                                  struct dit_tensor_view *given) {
  struct dit_tensor_view made, *out = target == OP_NEW ? &made : given;
  if (DIT_UNLIKELY(!has_function(call, kind, false) || !a || !b || !out)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (DIT_LIKELY(is_simple(kind, target, a, b, &alpha))) {
    if (target == OP_NEW) {
      DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, a->ndim, a->sizes, NULL, a->dtype, &made));
    }
    DIT_RETURN_IF_NOT_OK(call_library(call, kind, target, out, a, b, NULL, alpha));
    return op_return(call, 0, out);
  }
  const struct dit_tensor_view *inputs[2] = {a, b};
  DIT_RETURN_IF_NOT_OK(run_general(call, kind, target, inputs, alpha, out));
  return op_return(call, 0, out);
}

static enum dit_status run_tensor(struct dit_call *call, enum kind kind, enum op_target target) {
  struct dit_scalar alpha = one;
  int next = 2;
  if (kind == KIND_ADD || kind == KIND_SUB) {
    DIT_RETURN_IF_NOT_OK(op_read_scalar(&call->args[next++], &alpha));
  }
  struct dit_tensor_view *a = op_get_tensor(call, 0);
  return run_binary(call, kind, target, a, op_get_tensor(call, 1), alpha,
                    target == OP_OUT ? op_get_tensor(call, next) : a);
}

static enum dit_status run_scalar(struct dit_call *call, enum kind kind, enum op_target target) {
  struct dit_scalar alpha = one;
  struct dit_tensor_view other;
  union op_number room;
  DIT_RETURN_IF_NOT_OK(op_wrap_scalar(&call->args[1], &room, &other));
  if (kind == KIND_ADD || kind == KIND_SUB) {
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
BINARY_OPS(add, KIND_ADD)
BINARY_OPS(sub, KIND_SUB)
BINARY_OPS(mul, KIND_MUL)
BINARY_OPS(div, KIND_DIV)

/// rsub: other - alpha * self.
enum dit_status op_rsub(struct dit_call *call) {
  const struct dit_value self = call->args[0];
  call->args[0] = call->args[1];
  call->args[1] = self;
  return run_tensor(call, KIND_SUB, OP_NEW);
}
