/// Calls by number with arguments taken from a struct dit_call (see invoke.h).
#include "invoke.h"

#include <stddef.h>
#include <string.h>

#define MAX_PARAMETERS 24
#define MAX_TENSORS 8
#define MAX_NUMBERS 6

#define PLAIN(name) [DIT_DIOPI_diopi##name##Inp] = DIT_DIOPI_diopi##name
#define PLAIN_SCALAR(name) [DIT_DIOPI_diopi##name##InpScalar] = DIT_DIOPI_diopi##name##Scalar
/// In-place functions: the plain form, which has the same parameters after an output of its own.
static const int16_t plain_forms[DIT_DIOPI_COUNT] = {
    PLAIN(Abs),
    PLAIN(Neg),
    PLAIN(Floor),
    PLAIN(Ceil),
    PLAIN(Sqrt),
    PLAIN(Rsqrt),
    PLAIN(Sin),
    PLAIN(Asin),
    PLAIN(Cos),
    PLAIN(Acos),
    PLAIN(Tan),
    PLAIN(Sinh),
    PLAIN(Cosh),
    PLAIN(Atan),
    PLAIN(Asinh),
    PLAIN(Acosh),
    PLAIN(Atanh),
    PLAIN(Exp),
    PLAIN(Expm1),
    PLAIN(Log),
    PLAIN(Log2),
    PLAIN(Log10),
    PLAIN(Log1p),
    PLAIN(Erf),
    PLAIN(Erfinv),
    PLAIN(Reciprocal),
    PLAIN(Sgn),
    PLAIN(Relu),
    PLAIN(Hardtanh),
    PLAIN(Hardswish),
    PLAIN(Threshold),
    PLAIN(LeakyRelu),
    PLAIN(Tanh),
    PLAIN(Sigmoid),
    PLAIN(Silu),
    PLAIN(Pow),
    PLAIN(Add),
    PLAIN(Sub),
    PLAIN(Mul),
    PLAIN(Div),
    PLAIN(Addcmul),
    PLAIN(Addcdiv),
    PLAIN(Clamp),
    PLAIN(ClampMin),
    PLAIN(ClampMax),
    PLAIN(LogicalAnd),
    PLAIN(LogicalOr),
    PLAIN(LogicalNot),
    PLAIN(BitwiseAnd),
    PLAIN(BitwiseOr),
    PLAIN(BitwiseNot),
    PLAIN(Eq),
    PLAIN(Ne),
    PLAIN(Ge),
    PLAIN(Gt),
    PLAIN(Le),
    PLAIN(Lt),
    PLAIN(Baddbmm),
    PLAIN_SCALAR(Add),
    PLAIN_SCALAR(Sub),
    PLAIN_SCALAR(Mul),
    PLAIN_SCALAR(Div),
    PLAIN_SCALAR(Clamp),
    PLAIN_SCALAR(ClampMin),
    PLAIN_SCALAR(ClampMax),
    PLAIN_SCALAR(BitwiseAnd),
    PLAIN_SCALAR(BitwiseOr),
    PLAIN_SCALAR(Eq),
    PLAIN_SCALAR(Ne),
    PLAIN_SCALAR(Ge),
    PLAIN_SCALAR(Gt),
    PLAIN_SCALAR(Le),
    PLAIN_SCALAR(Lt),
    [DIT_DIOPI_diopiPowInpTensor] = DIT_DIOPI_diopiPowTensor,
};

#define SCALAR(name)                                       \
  [DIT_DIOPI_diopi##name] = DIT_DIOPI_diopi##name##Scalar, \
  [DIT_DIOPI_diopi##name##Inp] = DIT_DIOPI_diopi##name##InpScalar
/// Functions of two tensors: the form for a number as second operand.
static const int16_t scalar_forms[DIT_DIOPI_COUNT] = {
    SCALAR(Add),
    SCALAR(Sub),
    SCALAR(Mul),
    SCALAR(Div),
    SCALAR(Clamp),
    SCALAR(ClampMin),
    SCALAR(ClampMax),
    SCALAR(BitwiseAnd),
    SCALAR(BitwiseOr),
    SCALAR(Eq),
    SCALAR(Ne),
    SCALAR(Ge),
    SCALAR(Gt),
    SCALAR(Le),
    SCALAR(Lt),
    [DIT_DIOPI_diopiRemainderTensor] = DIT_DIOPI_diopiRemainderScalar,
    [DIT_DIOPI_diopiPowTensor] = DIT_DIOPI_diopiPow,
    [DIT_DIOPI_diopiPowInpTensor] = DIT_DIOPI_diopiPowInp,
};

int op_get_plain_form(int function) {
  return plain_forms[function];
}

int op_get_scalar_form(int function) {
  return scalar_forms[function];
}

bool op_can_invoke(const struct dit_call *call, int function) {
  return dit_diopi_library_get(call->diopi, function) ||
         (plain_forms[function] && dit_diopi_library_get(call->diopi, plain_forms[function]));
}

// Arguments

/// Where converted arguments live while the function runs.
struct rooms {
  struct diopiTensor tensors[MAX_TENSORS];
  diopiScalar_t scalars[MAX_NUMBERS];
  int64_t ints[MAX_NUMBERS];
  bool bools[MAX_NUMBERS];
  int tensor_count, number_count;
};

static bool take_tensor(struct dit_call *call, struct rooms *rooms, const struct dit_tensor_view *view,
                        union dit_diopi_value *out) {
  if (rooms->tensor_count == MAX_TENSORS || (view->handle && !op_is_device(view))) {
    return false;
  }
  out->tensor = op_handle(call, &rooms->tensors[rooms->tensor_count++], view);
  return true;
}

static bool take_scalar(struct rooms *rooms, const struct dit_value *value, union dit_diopi_value *out) {
  struct dit_scalar number;
  if (value->tag == DIT_VALUE_TENSOR) {
    if (op_read_number(&value->v.tensor, &number) != DIT_OK) {
      return false;
    }
  } else if (op_read_scalar(value, &number) != DIT_OK || number.kind == DIT_SCALAR_COMPLEX) {
    return false;
  }
  diopiScalar_t *room = &rooms->scalars[rooms->number_count++];
  op_scalar(room, number);
  out->scalar = room;
  return true;
}

static bool take_double(const struct dit_value *value, union dit_diopi_value *out) {
  if (value->tag == DIT_VALUE_DOUBLE) {
    out->d = value->v.d;
  } else if (value->tag == DIT_VALUE_INT || value->tag == DIT_VALUE_BOOL) {
    out->d = (double)value->v.i;
  } else {
    return false;
  }
  return true;
}

static bool take_sizes(struct rooms *rooms, const struct dit_value *value, union dit_diopi_value *out) {
  if (value->tag == DIT_VALUE_INTS) {
    out->size = (diopiSize_t){value->v.ints.data, value->v.ints.size};
  } else if (value->tag == DIT_VALUE_INT) {
    int64_t *room = &rooms->ints[rooms->number_count++];
    *room = value->v.i;
    out->size = (diopiSize_t){room, 1};
  } else {
    return false;
  }
  return true;
}

static bool take_mode(const struct dit_value *value, union dit_diopi_value *out) {
  if (value->tag != DIT_VALUE_STRING) {
    return false;
  }
  if (strcmp(value->v.string, "trunc") == 0) {
    out->i = RoundModeTrunc;
    return true;
  }
  out->i = RoundModeFloor;
  return strcmp(value->v.string, "floor") == 0;
}

static bool take_argument(struct dit_call *call, struct rooms *rooms, char kind, const struct dit_value *value,
                          union dit_diopi_value *out) {
  memset(out, 0, sizeof *out);
  if (value->tag == DIT_VALUE_NONE) {
    return kind != 'i' && kind != 'b' && kind != 'd' && kind != 'f';
  }
  if (rooms->number_count == MAX_NUMBERS) {
    return false;
  }
  switch (kind) {
    case 't':
    case 'o':
      return value->tag == DIT_VALUE_TENSOR && take_tensor(call, rooms, &value->v.tensor, out);
    case 's':
      return take_scalar(rooms, value, out);
    case 'i':
    case 'b':
      out->i = value->v.i;
      return value->tag == DIT_VALUE_INT || value->tag == DIT_VALUE_BOOL;
    case 'd':
    case 'f':
      return take_double(value, out);
    case 'z':
      return take_sizes(rooms, value, out);
    case 'I':
      out->ints = &rooms->ints[rooms->number_count++];
      *out->ints = value->v.i;
      return value->tag == DIT_VALUE_INT;
    case 'B':
      out->bools = &rooms->bools[rooms->number_count++];
      *out->bools = value->v.i != 0;
      return value->tag == DIT_VALUE_BOOL;
    case 'C':
      out->string = value->v.string;
      return value->tag == DIT_VALUE_STRING;
    case 'm':
      return take_mode(value, out);
    default:
      return false;
  }
}

static enum dit_status invoke(struct dit_call *call, int function, const struct dit_tensor_view *const *outs,
                              int out_count, int first) {
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  const int end = call->nargs - (call->op->target == OP_OUT ? call->nrets : 0);
  union dit_diopi_value values[MAX_PARAMETERS];
  struct diopiContext context;
  struct rooms rooms;
  diopiScalar_t one = {.stype = diopi_dtype_int64, .ival = 1};
  rooms.tensor_count = rooms.number_count = 0;
  op_context_init(&context, call);
  values[0].context = &context;
  int count = 1;
  for (; count <= out_count; count++) {
    if (!take_tensor(call, &rooms, outs[count - 1], &values[count])) {
      return DIT_ERR_UNSUPPORTED;
    }
  }
  for (; kinds[count]; count++, first++) {
    if (count == MAX_PARAMETERS) {
      return DIT_ERR_UNSUPPORTED;
    }
    if (first >= end) {
      memset(&values[count], 0, sizeof values[count]);
      if (kinds[count] == 's') {
        values[count].scalar = &one;
      }
    } else if (!take_argument(call, &rooms, kinds[count], &call->args[first], &values[count])) {
      return DIT_ERR_UNSUPPORTED;
    }
  }
  if (DIT_UNLIKELY(call->observer)) {
    op_observe_before(call, function);
  }
  return op_finish(call, &context, function, dit_diopi_invoke(&call->diopi->functions, function, values));
}

enum dit_status op_invoke(struct dit_call *call, int function, const struct dit_tensor_view *const *outs, int first) {
  if (!dit_diopi_library_get(call->diopi, function)) {
    return DIT_ERR_UNSUPPORTED;
  }
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  return invoke(call, function, outs, (int)strspn(kinds + 1, "o"), first);
}

enum dit_status op_invoke_inplace(struct dit_call *call, int function, const struct dit_tensor_view *self) {
  if (dit_diopi_library_get(call->diopi, function)) {
    return invoke(call, function, &self, 1, 1);
  }
  function = plain_forms[function];
  return function ? op_invoke(call, function, &self, 0) : DIT_ERR_UNSUPPORTED;
}

// Numbers

enum dit_status op_read_number(const struct dit_tensor_view *view, struct dit_scalar *out) {
  if (op_is_device(view) || view->ndim != 0 || !op_is_plain(view->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  out->kind = DIT_SCALAR_INT;
  switch (view->dtype) {
    case DIT_DTYPE_F64:
      out->v.d = *(const double *)view->data;
      break;
    case DIT_DTYPE_F32:
      out->v.d = (double)*(const float *)view->data;
      break;
    case DIT_DTYPE_I64:
      out->v.i = *(const int64_t *)view->data;
      return DIT_OK;
    case DIT_DTYPE_I32:
      out->v.i = *(const int32_t *)view->data;
      return DIT_OK;
    case DIT_DTYPE_I16:
      out->v.i = *(const int16_t *)view->data;
      return DIT_OK;
    case DIT_DTYPE_I8:
      out->v.i = *(const int8_t *)view->data;
      return DIT_OK;
    case DIT_DTYPE_U8:
      out->v.i = *(const uint8_t *)view->data;
      return DIT_OK;
    case DIT_DTYPE_BOOL:
      out->kind = DIT_SCALAR_BOOL;
      out->v.i = *(const uint8_t *)view->data != 0;
      return DIT_OK;
    default:
      return DIT_ERR_UNSUPPORTED;  // a half number on the host: rare, the CPU takes it
  }
  out->kind = DIT_SCALAR_DOUBLE;
  return DIT_OK;
}

/// One part of a complex tensor, seen as a real tensor with twice the strides.
static enum dit_status fill_part(struct dit_call *call, const struct dit_tensor_view *out, bool imaginary,
                                 double value) {
  int64_t strides[DIT_MAX_DIMS];
  struct dit_tensor_view part = *out;
  part.dtype = (int16_t)dit_dtype_get_real(out->dtype);
  part.data = (char *)out->data + (imaginary ? dit_dtype_get_size(part.dtype) : 0);
  part.strides = strides;
  part.flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  for (int i = 0; i < out->ndim; i++) {
    strides[i] = 2 * out->strides[i];
  }
  return op_fill(call, &part, (struct dit_scalar){DIT_SCALAR_DOUBLE, {.d = value}});
}

enum dit_status op_fill(struct dit_call *call, const struct dit_tensor_view *out, struct dit_scalar value) {
  if (value.kind == DIT_SCALAR_COMPLEX) {
    if (!op_is_complex(out->dtype)) {
      return DIT_ERR_UNSUPPORTED;
    }
    DIT_RETURN_IF_NOT_OK(fill_part(call, out, false, value.v.c.re));
    return fill_part(call, out, true, value.v.c.im);
  }
  struct diopiContext context;
  struct diopiTensor handle;
  diopiScalar_t scalar;
  op_context_init(&context, call);
  return OP_DIOPI(call, &context, diopiFill, op_handle(call, &handle, out), op_scalar(&scalar, value));
}

enum dit_status op_copy(struct dit_call *call, const struct dit_tensor_view *out, const struct dit_tensor_view *in) {
  enum dit_status status = DIT_ERR_UNSUPPORTED;
  if (OP_HAS_KERNEL(call, copy)) {
    status = call->kernels->copy(call->stream, out, in, call->err);
  }
  if (status == DIT_ERR_UNSUPPORTED && OP_HAS(call, diopiCopyInp)) {
    struct diopiContext context;
    struct diopiTensor to, from;
    op_context_init(&context, call);
    status = OP_DIOPI(call, &context, diopiCopyInp, op_handle(call, &from, in), op_handle(call, &to, out));
  }
  return status;
}

enum dit_status op_move_to_device(struct dit_call *call, struct dit_tensor_view *view, int dtype) {
  struct dit_scalar value;
  struct dit_tensor_view made;
  if (view->dtype == DIT_DTYPE_C128 || view->dtype == DIT_DTYPE_C64) {
    const double *wide = view->data;
    const float *narrow = view->data;
    const bool is_wide = view->dtype == DIT_DTYPE_C128;
    value.kind = DIT_SCALAR_COMPLEX;
    value.v.c.re = is_wide ? wide[0] : (double)narrow[0];
    value.v.c.im = is_wide ? wide[1] : (double)narrow[1];
  } else {
    DIT_RETURN_IF_NOT_OK(op_read_number(view, &value));
  }
  DIT_RETURN_IF_NOT_OK(call->services->new_tensor(call, 0, NULL, NULL, dtype, &made));
  DIT_RETURN_IF_NOT_OK(op_fill(call, &made, value));
  *view = made;
  return DIT_OK;
}
