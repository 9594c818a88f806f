/// What a call passes before its row runs (dit_op_run).
///
/// PyTorch decides by operator what a number means that the dtype cannot hold: fill_ and clamp refuse it, add lets
/// it wrap. It decides so too about written memory: filling an expanded tensor is allowed, adding to it is not. Such
/// calls are rare, and PyTorch's CPU kernel has both the answer and the words, so they are left to it.
#include "dit/gate.h"

#include <float.h>
#include <math.h>

#include "conversion_take.h"
#include "infer.h"

/// Largest finite number of a floating dtype, or of the parts of a complex one.
static double get_limit(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_F16:
    case DIT_DTYPE_C32:
      return 65504.0;
    case DIT_DTYPE_BF16:
      return 0x1.FEp127;
    case DIT_DTYPE_F64:
    case DIT_DTYPE_C128:
      return DBL_MAX;
    default:
      return (double)FLT_MAX;
  }
}

static bool fits_real(double value, double limit) {
  return !isfinite(value) || fabs(value) <= limit;
}

/// Integers from -half to half, or from 0 to twice that. A negative number wraps in an unsigned type when its magnitude
/// fits; a floating point number does not.
static bool fits_integer(const struct dit_scalar *value, int bits, bool is_signed) {
  const double end = ldexp(1, is_signed ? bits - 1 : bits);
  if (value->kind == DIT_SCALAR_DOUBLE) {
    return value->v.d >= (is_signed ? -end : 0) && (bits == 64 ? value->v.d < end : value->v.d <= end - 1);
  }
  if (bits == 64) {
    return is_signed || value->v.i >= 0;
  }
  return value->v.i < (int64_t)end && value->v.i >= (is_signed ? -(int64_t)end : 1 - (int64_t)end);
}

bool op_number_fits(int dtype, const struct dit_scalar *value) {
  if (value->kind == DIT_SCALAR_BOOL) {
    return true;
  }
  if (value->kind == DIT_SCALAR_COMPLEX) {
    return fits_real(value->v.c.re, get_limit(dtype)) && fits_real(value->v.c.im, get_limit(dtype));
  }
  switch (dit_dtype_get_class(dtype)) {
    case DIT_DTYPE_CLASS_BOOL:  // the number decides the result's dtype
      return value->kind == DIT_SCALAR_INT || fits_real(value->v.d, (double)FLT_MAX);
    case DIT_DTYPE_CLASS_INT:
      return fits_integer(value, (int)dit_dtype_get_size(dtype) * 8, true);
    case DIT_DTYPE_CLASS_UINT:
      return fits_integer(value, (int)dit_dtype_get_size(dtype) * 8, false);
    default:
      return fits_real(value->kind == DIT_SCALAR_INT ? (double)value->v.i : value->v.d, get_limit(dtype));
  }
}

/// From 0 to 127: every dtype can hold it.
static bool is_small(const struct dit_value *value) {
  return value->tag == DIT_VALUE_INT || value->tag == DIT_VALUE_BOOL ? value->v.i >= 0 && value->v.i <= 127
         : value->tag == DIT_VALUE_DOUBLE                            ? value->v.d >= 0 && value->v.d <= 127
                                                                     : value->tag == DIT_VALUE_NONE;
}

/// Does it fit all tensors of an argument?
static bool fits_argument(const struct dit_value *argument, const struct dit_scalar *number) {
  if (argument->tag == DIT_VALUE_TENSOR) {
    return !argument->v.tensor.handle || op_number_fits(argument->v.tensor.dtype, number);
  }
  for (int64_t i = 0; argument->tag == DIT_VALUE_TENSORS && i < argument->v.tensors.size; i++) {
    const struct dit_tensor_view *view = &argument->v.tensors.data[i];
    if (view->handle && !op_number_fits(view->dtype, number)) {
      return false;
    }
  }
  return true;
}

/// The first tensor decides, or the first list of tensors: self, or what is filled.
static bool fits_call(const struct dit_call *call, const struct dit_scalar *number) {
  for (int i = 0; i < call->nargs; i++) {
    if (call->args[i].tag == DIT_VALUE_TENSOR || call->args[i].tag == DIT_VALUE_TENSORS) {
      return fits_argument(&call->args[i], number);
    }
  }
  return true;
}

static bool check_numbers(const struct dit_call *call, uint32_t numbers) {
  for (uint32_t left = numbers; left; left &= left - 1) {
    const struct dit_value *value = &call->args[__builtin_ctz(left)];
    struct dit_scalar number;
    if (DIT_LIKELY(is_small(value))) {
      continue;
    }
    if (value->tag == DIT_VALUE_DOUBLES) {
      for (int64_t i = 0; i < value->v.doubles.size; i++) {
        number = (struct dit_scalar){DIT_SCALAR_DOUBLE, {.d = value->v.doubles.data[i]}};
        if (!fits_call(call, &number)) {
          return false;
        }
      }
    } else if (op_read_scalar(value, &number) == DIT_OK && !fits_call(call, &number)) {
      return false;
    }
  }
  return true;
}

static bool reaches_twice(const struct dit_tensor_view *view) {
  return view->numel > 1 && !(view->flags & DIT_TENSOR_DENSE) &&
         dit_tensor_get_internal_overlap(view) == DIT_OVERLAP_YES;
}

static bool overlaps_partly(const struct dit_tensor_view *out, const struct dit_tensor_view *other) {
  return other->handle && other->handle != out->handle && other->storage == out->storage &&
         dit_tensor_get_alias(out, other) == DIT_ALIAS_PARTIAL;
}

/// A written tensor against itself and all other tensors of the call.
static bool check_written(const struct dit_call *call, const struct dit_tensor_view *out) {
  if (!out->handle) {
    return true;
  }
  if (reaches_twice(out)) {
    return false;
  }
  for (int i = 0; i < call->nargs; i++) {
    const struct dit_value *value = &call->args[i];
    if (value->tag == DIT_VALUE_TENSOR && overlaps_partly(out, &value->v.tensor)) {
      return false;
    }
    for (int64_t k = 0; value->tag == DIT_VALUE_TENSORS && k < value->v.tensors.size; k++) {
      if (overlaps_partly(out, &value->v.tensors.data[k])) {
        return false;
      }
    }
  }
  return true;
}

static bool check_memory(const struct dit_call *call, uint32_t written) {
  for (uint32_t left = written; left; left &= left - 1) {
    const struct dit_value *value = &call->args[__builtin_ctz(left)];
    if (value->tag == DIT_VALUE_TENSOR && !check_written(call, &value->v.tensor)) {
      return false;
    }
    // lists are written by _foreach_ and optimizers, whose tensors number in the hundreds: each one by itself
    for (int64_t k = 0; value->tag == DIT_VALUE_TENSORS && k < value->v.tensors.size; k++) {
      if (value->v.tensors.data[k].handle && reaches_twice(&value->v.tensors.data[k])) {
        return false;
      }
    }
  }
  return true;
}

enum dit_status dit_op_run(struct dit_call *call, const struct dit_gate *gate) {
  if (DIT_UNLIKELY(!check_numbers(call, gate->numbers) || !check_memory(call, gate->written))) {
    return DIT_ERR_UNSUPPORTED;
  }
  const bool converts = call->diopi && call->diopi->take_conversions;
  return DIT_UNLIKELY(converts) ? conversion_run(call) : call->op->run(call);
}
