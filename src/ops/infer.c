/// Type promotion and scalars: the dtype half of infer.h.
#include "infer.h"

#include <stddef.h>

#include "dit/promotion.h"

int op_promote(const struct dit_call *call, const struct dit_tensor_view *const *inputs, int count) {
  struct dit_promotion promotion = DIT_PROMOTION_INIT;
  for (int i = 0; i < count; i++) {
    const bool is_number = inputs[i]->flags & DIT_TENSOR_WRAPPED_NUMBER;
    int dtype = inputs[i]->dtype;
    if (is_number && op_is_floating(dtype)) {
      dtype = call->default_dtype;
    } else if (is_number && op_is_complex(dtype)) {
      dtype = dit_dtype_get_complex(call->default_dtype);
    }
    dit_promotion_add(inputs[i]->ndim > 0 ? &promotion.dims : is_number ? &promotion.numbers : &promotion.zeros, dtype);
  }
  return dit_promotion_get(&promotion);
}

int op_promote_floating(const struct dit_call *call, const struct dit_tensor_view *const *inputs, int count) {
  const int common = op_promote(call, inputs, count);
  return common < 0 || op_is_floating(common) || op_is_complex(common) ? common : call->default_dtype;
}

bool op_can_cast(int from, int to) {
  enum dit_dtype_class source = dit_dtype_get_class(from), target = dit_dtype_get_class(to);
  if (source == DIT_DTYPE_CLASS_COMPLEX && target != DIT_DTYPE_CLASS_COMPLEX) {
    return false;
  }
  bool integral = target == DIT_DTYPE_CLASS_INT || target == DIT_DTYPE_CLASS_UINT || target == DIT_DTYPE_CLASS_BOOL;
  if (source == DIT_DTYPE_CLASS_FLOAT && integral) {
    return false;
  }
  return !(source != DIT_DTYPE_CLASS_BOOL && target == DIT_DTYPE_CLASS_BOOL);
}

/// PyTorch's C++ names, which its messages use.
static const char *get_torch_name(int dtype) {
  static const char *const names[] = {"Byte",  "Char",   "Short",       "Int",          "Long",          "Half",
                                      "Float", "Double", "ComplexHalf", "ComplexFloat", "ComplexDouble", "Bool"};
  if (dtype >= 0 && dtype < (int)(sizeof(names) / sizeof(names[0]))) {
    return names[dtype];
  }
  return dtype == DIT_DTYPE_BF16 ? "BFloat16" : dit_dtype_get_name(dtype);
}

enum dit_status op_check_cast(int from, int to, struct dit_error *err) {
  if (op_can_cast(from, to)) {
    return DIT_OK;
  }
  return dit_error_set(err, DIT_ERR_INVALID, "result type %s can't be cast to the desired output type %s",
                       get_torch_name(from), get_torch_name(to));
}

enum dit_status op_check_input(const struct dit_tensor_view *view) {
  if (!view || !op_is_plain(view->dtype) || view->ndim > DIT_MAX_DIMS || (!op_is_device(view) && view->ndim > 0)) {
    return DIT_ERR_UNSUPPORTED;
  }
  return DIT_OK;
}

enum dit_status op_check_element(const struct dit_tensor_view *view) {
  if (!view || !op_is_element(view->dtype) || view->ndim > DIT_MAX_DIMS || (!op_is_device(view) && view->ndim > 0)) {
    return DIT_ERR_UNSUPPORTED;
  }
  return DIT_OK;
}

enum dit_status op_read_scalar(const struct dit_value *value, struct dit_scalar *out) {
  switch (value->tag) {
    case DIT_VALUE_BOOL:
      out->kind = DIT_SCALAR_BOOL;
      out->v.i = value->v.i != 0;
      return DIT_OK;
    case DIT_VALUE_INT:
      out->kind = DIT_SCALAR_INT;
      out->v.i = value->v.i;
      return DIT_OK;
    case DIT_VALUE_DOUBLE:
      out->kind = DIT_SCALAR_DOUBLE;
      out->v.d = value->v.d;
      return DIT_OK;
    case DIT_VALUE_COMPLEX:
      out->kind = DIT_SCALAR_COMPLEX;
      out->v.c.re = value->v.complex.re;
      out->v.c.im = value->v.complex.im;
      return DIT_OK;
    default:
      return DIT_ERR_UNSUPPORTED;
  }
}

enum dit_status op_wrap_scalar(const struct dit_value *value, union op_number *room, struct dit_tensor_view *out) {
  switch (value->tag) {
    case DIT_VALUE_BOOL:
      room->b = value->v.i != 0;
      out->dtype = DIT_DTYPE_BOOL;
      break;
    case DIT_VALUE_INT:
      room->i = value->v.i;
      out->dtype = DIT_DTYPE_I64;
      break;
    case DIT_VALUE_DOUBLE:
      room->d = value->v.d;
      out->dtype = DIT_DTYPE_F64;
      break;
    default:
      return DIT_ERR_UNSUPPORTED;
  }
  out->data = room;
  out->sizes = out->strides = NULL;
  out->numel = 1;
  out->storage = room;
  out->handle = room;
  out->ndim = 0;
  out->device_index = -1;
  out->flags = DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE | DIT_TENSOR_WRAPPED_NUMBER;
  return DIT_OK;
}
