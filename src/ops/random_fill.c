/// Random numbers: normal_, uniform_, random_, bernoulli(_), normal, randperm, multinomial.
///
/// Numbers come from the device's generator (philox, counter based), as many as the library draws: a first share is
/// reserved before the call, the rest after it. In-place forms write self; the others give row-major results. Arguments
/// that PyTorch refuses go to the CPU, which words it.
#include <math.h>

#include "network.h"
#include "table.h"

/// Is `view` a tensor that may be written: on the device, without two elements in one place?
static bool is_writable(const struct dit_tensor_view *view) {
  return view && (view->flags & DIT_TENSOR_DENSE || dit_tensor_get_internal_overlap(view) != DIT_OVERLAP_YES);
}

/// 32-bit numbers for the elements of a result: two for types with more than 24 bits of random mantissa.
static uint64_t count_numbers(const struct dit_tensor_view *out) {
  const bool wide = out->dtype == DIT_DTYPE_F64 || out->dtype == DIT_DTYPE_I64;
  return (uint64_t)out->numel * (wide ? 2 : 1);
}

/// A complex tensor as a real one with a last dimension of two; `room` holds sizes, then strides.
static struct dit_tensor_view *get_parts(struct dit_tensor_view *view, int64_t room[2][DIT_MAX_DIMS],
                                         struct dit_tensor_view *out) {
  *out = *view;
  out->dtype = (int16_t)dit_dtype_get_real(view->dtype);
  out->ndim = view->ndim + 1;
  out->numel = 2 * view->numel;
  out->sizes = room[0];
  out->strides = room[1];
  for (int i = 0; i < view->ndim; i++) {
    room[0][i] = view->sizes[i];
    room[1][i] = 2 * view->strides[i];
  }
  room[0][view->ndim] = 2;
  room[1][view->ndim] = 1;
  return out;
}

/// normal_(mean, std) and uniform_(from, to). Both parts of a complex number are drawn; normal ones share the variance.
enum dit_status op_random_real(struct dit_call *call) {
  const bool normal = call->op->function == DIT_DIOPI_diopiNormalInp;
  struct dit_tensor_view *whole = net_get_moved(call, 0), *self = whole, parts;
  int64_t part_room[2][DIT_MAX_DIMS];
  struct op_generator generator;
  struct diopiContext context;
  struct diopiTensor room;
  NET_NEED((normal ? OP_HAS(call, diopiNormalInp) : OP_HAS(call, diopiUniformInp)) && is_writable(self));
  const double a = net_get_double(call, 1);
  double b = net_get_double(call, 2);
  if (op_is_complex(self->dtype)) {
    NET_NEED(self->ndim < DIT_MAX_DIMS && (!normal || a == 0));
    self = get_parts(self, part_room, &parts);
    b = normal ? b * sqrt(0.5) : b;
  }
  NET_NEED(op_is_floating(self->dtype));
  const double limit = self->dtype == DIT_DTYPE_F16 ? 65504.0 : self->dtype == DIT_DTYPE_F64 ? 1.7e308 : 3.38e38;
  NET_NEED(normal ? b >= 0 : a <= b && a >= -limit && b <= limit && b - a <= limit);
  if (self->numel == 0) {
    return op_return(call, 0, whole);
  }
  DIT_RETURN_IF_NOT_OK(op_generator_init(&generator, call, &call->args[3], count_numbers(self)));
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &room, self);
  DIT_RETURN_IF_NOT_OK(normal ? OP_DIOPI(call, &context, diopiNormalInp, o, a, b, &generator.handle)
                              : OP_DIOPI(call, &context, diopiUniformInp, o, a, b, &generator.handle));
  DIT_RETURN_IF_NOT_OK(op_generator_finish(&generator, call));
  return op_return(call, 0, whole);
}

/// Least and largest integer of random_ for a dtype; floating types: those of which all smaller ones exist too.
static bool get_range(int dtype, int64_t *least, int64_t *largest) {
  switch (dtype) {
    case DIT_DTYPE_BOOL:
      *least = 0, *largest = 1;
      return true;
    case DIT_DTYPE_U8:
      *least = 0, *largest = UINT8_MAX;
      return true;
    case DIT_DTYPE_I8:
      *least = INT8_MIN, *largest = INT8_MAX;
      return true;
    case DIT_DTYPE_I16:
      *least = INT16_MIN, *largest = INT16_MAX;
      return true;
    case DIT_DTYPE_I32:
      *least = INT32_MIN, *largest = INT32_MAX;
      return true;
    case DIT_DTYPE_I64:
      *least = INT64_MIN, *largest = INT64_MAX;
      return true;
    case DIT_DTYPE_BF16:
      *largest = 1 << 8;
      break;
    case DIT_DTYPE_F16:
      *largest = 1 << 11;
      break;
    case DIT_DTYPE_F32:
      *largest = 1 << 24;
      break;
    case DIT_DTYPE_F64:
      *largest = INT64_C(1) << 53;
      break;
    default:
      return false;
  }
  *least = -*largest;
  return true;
}

/// random_(), random_.to(to), random_.from(from, to?): the generator is the last argument.
enum dit_status op_random_integer(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0);
  int64_t from = 0, to = 0, least, largest;
  struct op_generator generator;
  struct diopiContext context;
  struct diopiTensor room;
  NET_NEED(OP_HAS(call, diopiRandomInp) && is_writable(self) && get_range(self->dtype, &least, &largest));
  const struct dit_value *end = call->nargs > 2 ? &call->args[call->nargs - 2] : NULL;
  const bool bounded = end && end->tag == DIT_VALUE_INT;
  from = call->nargs == 4 ? call->args[1].v.i : 0;
  to = bounded ? end->v.i : 0;
  NET_NEED(from >= least && from <= largest && (bounded ? to > from && to - 1 <= largest : from > INT64_MIN));
  if (self->numel == 0) {
    return op_return(call, 0, self);
  }
  DIT_RETURN_IF_NOT_OK(op_generator_init(&generator, call, &call->args[call->nargs - 1], count_numbers(self)));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiRandomInp, op_handle(call, &room, self), from,
                                bounded ? &to : NULL, &generator.handle));
  DIT_RETURN_IF_NOT_OK(op_generator_finish(&generator, call));
  return op_return(call, 0, self);
}

/// bernoulli_.float(self, p).
enum dit_status op_bernoulli_scalar(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0);
  const double p = net_get_double(call, 1);
  struct op_generator generator;
  struct diopiContext context;
  struct diopiTensor room;
  NET_NEED(OP_HAS(call, diopiBernoulliScalar) && is_writable(self) && p >= 0 && p <= 1);
  if (self->numel == 0) {
    return op_return(call, 0, self);
  }
  DIT_RETURN_IF_NOT_OK(op_generator_init(&generator, call, &call->args[2], count_numbers(self)));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(
      OP_DIOPI(call, &context, diopiBernoulliScalar, op_handle(call, &room, self), p, &generator.handle));
  DIT_RETURN_IF_NOT_OK(op_generator_finish(&generator, call));
  return op_return(call, 0, self);
}

/// bernoulli_.Tensor(self, p) and bernoulli.out(p, out=): one probability per element.
enum dit_status op_bernoulli_tensor(struct dit_call *call) {
  const bool in_place = call->op->target == OP_INPLACE;
  struct dit_tensor_view *out = net_get(call, in_place ? 0 : 2), *p = net_get(call, in_place ? 1 : 0);
  struct op_generator generator;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS(call, diopiBernoulli) && is_writable(out) && out->numel > 0 && p && op_is_floating(p->dtype) &&
           out->dtype == p->dtype && op_same_sizes(p, out->ndim, out->sizes) && net_is_apart(out, p));
  DIT_RETURN_IF_NOT_OK(op_generator_init(&generator, call, &call->args[in_place ? 2 : 1], count_numbers(out)));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiBernoulli, op_handle(call, &rooms[0], out),
                                op_handle(call, &rooms[1], p), &generator.handle));
  DIT_RETURN_IF_NOT_OK(op_generator_finish(&generator, call));
  return op_return(call, 0, out);
}

/// normal.Tensor_float, float_Tensor and Tensor_Tensor (mean, std).
enum dit_status op_normal(struct dit_call *call) {
  struct dit_tensor_view *mean = net_get(call, 0), *std = net_get(call, 1), out;
  const struct dit_tensor_view *like = mean ? mean : std;
  struct op_generator generator;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  NET_NEED(like && op_is_floating(like->dtype) && like->numel > 0 &&
           (!mean || !std || (mean->dtype == std->dtype && op_same_sizes(std, mean->ndim, mean->sizes))));
  NET_NEED(mean ? std ? OP_HAS(call, diopiNormalTensor) : OP_HAS(call, diopiNormalTensorScalar)
                : OP_HAS(call, diopiNormalScalarTensor));
  NET_NEED(std || net_get_double(call, 1) >= 0);
  DIT_RETURN_IF_NOT_OK(net_new(call, like->ndim, like->sizes, 0, like->dtype, &out));
  DIT_RETURN_IF_NOT_OK(op_generator_init(&generator, call, &call->args[2], count_numbers(&out)));
  op_context_init(&context, call);
  diopiTensorHandle_t o = op_handle(call, &rooms[0], &out), m = op_handle(call, &rooms[1], mean),
                      s = op_handle(call, &rooms[2], std);
  DIT_RETURN_IF_NOT_OK(
      m && s ? OP_DIOPI(call, &context, diopiNormalTensor, o, m, s, &generator.handle)
      : m    ? OP_DIOPI(call, &context, diopiNormalTensorScalar, o, m, net_get_double(call, 1), &generator.handle)
             : OP_DIOPI(call, &context, diopiNormalScalarTensor, o, net_get_double(call, 0), s, &generator.handle));
  DIT_RETURN_IF_NOT_OK(op_generator_finish(&generator, call));
  return op_return(call, 0, &out);
}

/// randperm.generator_out(n, generator, out=).
enum dit_status op_randperm(struct dit_call *call) {
  struct dit_tensor_view *given = net_get(call, 2), out;
  const int64_t n = call->args[0].v.i;
  int64_t least, largest;
  struct op_generator generator;
  struct diopiContext context;
  struct diopiTensor room;
  NET_NEED(OP_HAS(call, diopiRandperm) && given && n >= 0 && get_range(given->dtype, &least, &largest) &&
           (n == 0 || n - 1 <= largest) && given->dtype != DIT_DTYPE_BOOL);
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, NULL, 0, 1, &n, given->dtype, &out));
  if (n > 0) {
    DIT_RETURN_IF_NOT_OK(op_generator_init(&generator, call, &call->args[1], (uint64_t)n));
    op_context_init(&context, call);
    DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiRandperm, op_handle(call, &room, &out), n, &generator.handle));
    DIT_RETURN_IF_NOT_OK(op_generator_finish(&generator, call));
  }
  return op_return(call, 0, &out);
}

/// multinomial(self, num_samples, replacement): int64, one row per distribution.
enum dit_status op_multinomial(struct dit_call *call) {
  struct dit_tensor_view *self = net_get(call, 0), *given, out;
  const int64_t samples = call->args[1].v.i;
  const bool replacement = call->args[2].v.i != 0;
  struct op_generator generator;
  struct diopiContext context;
  struct diopiTensor rooms[2];
  NET_NEED(OP_HAS(call, diopiMultinomial) && self && (self->ndim == 1 || self->ndim == 2) && self->numel > 0 &&
           op_is_floating(self->dtype) && samples > 0 && net_get_given(call, 4, &given));
  const int64_t classes = self->sizes[self->ndim - 1];
  NET_NEED(classes <= 1 << 24 && (replacement || samples <= classes));
  const int64_t sizes[2] = {self->ndim == 2 ? self->sizes[0] : samples, samples};
  const struct dit_tensor_view *const inputs[1] = {self};
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, inputs, 1, self->ndim, sizes, DIT_DTYPE_I64, &out));
  DIT_RETURN_IF_NOT_OK(op_generator_init(&generator, call, &call->args[3], (uint64_t)self->numel));
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiMultinomial, op_handle(call, &rooms[0], &out),
                                op_handle(call, &rooms[1], self), samples, replacement, &generator.handle));
  DIT_RETURN_IF_NOT_OK(op_generator_finish(&generator, call));
  return op_return(call, 0, &out);
}
