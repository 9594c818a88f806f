/// Calls of the vendor's operators (see diopi_call.h).
#include "diopi_call.h"

#include <stddef.h>

static enum dit_status allocate_scratch(struct diopiContext *context, int ndim, const int64_t *sizes,
                                        const int64_t *strides, int dtype, struct dit_tensor_view *out,
                                        struct dit_error *err) {
  struct dit_call *call = context->host;
  (void)err;
  return call->services->new_tensor(call, ndim, sizes, strides, dtype, out);
}

void op_context_init(struct diopiContext *context, struct dit_call *call) {
  dit_diopi_context_init(context, call->device, call->stream);
  context->allocate = allocate_scratch;
  context->host = call;
}

static void find_storage(const struct diopiTensor *tensor, void **base, size_t *size) {
  const struct dit_call_services *services = tensor->services;
  services->get_storage(&tensor->view, base, size);
}

diopiTensorHandle_t op_handle(struct dit_call *call, struct diopiTensor *room, const struct dit_tensor_view *view) {
  if (!view || !view->handle) {
    return NULL;
  }
  dit_diopi_tensor_init(room, view);
  room->get_storage = find_storage;
  room->services = call->services;
  return room;
}

const diopiScalar_t *op_scalar(diopiScalar_t *room, struct dit_scalar value) {
  switch (value.kind) {
    case DIT_SCALAR_DOUBLE:
      room->stype = diopi_dtype_float64;
      room->fval = value.v.d;
      break;
    case DIT_SCALAR_BOOL:
      room->stype = diopi_dtype_bool;
      room->ival = value.v.i != 0;
      break;
    default:
      room->stype = diopi_dtype_int64;
      room->ival = value.v.i;
      break;
  }
  return room;
}

enum dit_status op_generator_init(struct op_generator *room, struct dit_call *call, const struct dit_value *generator,
                                  uint64_t count) {
  room->generator = generator && generator->tag == DIT_VALUE_GENERATOR ? generator->v.generator : NULL;
  DIT_RETURN_IF_NOT_OK(
      call->services->random_reserve(call, room->generator, count, &room->handle.seed, &room->handle.offset));
  room->end = room->handle.offset + (count + 3) / 4;
  return DIT_OK;
}

enum dit_status op_generator_finish(struct op_generator *room, struct dit_call *call) {
  uint64_t seed, offset;
  if (room->handle.offset <= room->end) {
    return DIT_OK;
  }
  return call->services->random_reserve(call, room->generator, (room->handle.offset - room->end) * 4, &seed, &offset);
}

void op_observe_before(struct dit_call *call, int function) {
  call->observer->before(call, function);
}

enum dit_status op_finish(struct dit_call *call, struct diopiContext *context, int function, diopiError_t code) {
  if (DIT_UNLIKELY(call->observer)) {
    call->observer->after(call, function, (int)code);
  }
  if (DIT_UNLIKELY(context->scratch)) {
    dit_diopi_context_reset(context);
  }
  if (DIT_LIKELY(code == diopiSuccess)) {
    return DIT_OK;
  }
  return dit_diopi_library_check(call->diopi, dit_diopi_get_functions(NULL)[function].name, code, call->err);
}
