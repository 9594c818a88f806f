/// How an operator of src/ops calls the vendor's library: handles on the stack, one context per call, codes as
/// statuses.
///
///   struct diopiContext context;
///   struct diopiTensor out_handle, self_handle;
///   op_context_init(&context, call);
///   DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiSoftmax, op_handle(call, &out_handle, out),
///                                 op_handle(call, &self_handle, self), dim));
///
/// A function that the library lacks, or that does not take these arguments, is DIT_ERR_UNSUPPORTED: the door goes on
/// with the composite form or the CPU. Depends on src/diopirt.
#ifndef DIT_OPS_DIOPI_CALL_H
#define DIT_OPS_DIOPI_CALL_H

#include "dit/diopi.h"
#include "dit/op.h"

/// Does the vendor have this function?
#define OP_HAS(call, name) ((call)->diopi && (call)->diopi->functions.name)

/// A context whose scratch tensors come from the framework and live until the call returns.
void op_context_init(struct diopiContext *context, struct dit_call *call);
/// The handle of a view, in the caller's room; NULL for an absent tensor (view NULL or without handle).
diopiTensorHandle_t op_handle(struct dit_call *call, struct diopiTensor *room, const struct dit_tensor_view *view);
/// A number as DIOPI passes it, in the caller's room.
const diopiScalar_t *op_scalar(diopiScalar_t *room, struct dit_scalar value);
/// A generator handle for `count` 32-bit random numbers of the generator argument (NONE: the device's default one).
/// Call op_generator_finish after the operator: it advances the generator by what was drawn beyond `count`.
struct op_generator {
  struct diopiGenerator handle;
  void *generator;
  uint64_t end;  ///< offset after the numbers that were reserved
};
enum dit_status op_generator_init(struct op_generator *room, struct dit_call *call, const struct dit_value *generator,
                                  uint64_t count);
enum dit_status op_generator_finish(struct op_generator *room, struct dit_call *call);

void op_observe_before(struct dit_call *call, int function);
/// Releases scratch on the host, tells the observer, turns the code into a status and its text into call->err.
enum dit_status op_finish(struct dit_call *call, struct diopiContext *context, int function, diopiError_t code);

/// Call a function by its name. The caller has asked OP_HAS, or accepts DIT_ERR_UNSUPPORTED.
#define OP_DIOPI(call, context, name, ...)                                                                 \
  (OP_HAS(call, name)                                                                                      \
       ? (DIT_UNLIKELY((call)->observer) ? op_observe_before(call, DIT_DIOPI_##name) : (void)0,            \
          op_finish(call, context, DIT_DIOPI_##name, (call)->diopi->functions.name(context, __VA_ARGS__))) \
       : DIT_ERR_UNSUPPORTED)

/// The row's own function (call->op->function) as a pointer of type `type`; NULL when the vendor lacks it.
#define OP_ROW_FUNCTION(call, type) ((type)dit_diopi_library_get((call)->diopi, (call)->op->function))
/// The same with a pointer that was looked up before.
#define OP_DIOPI_ROW(call, context, pointer, ...)                                            \
  (DIT_UNLIKELY((call)->observer) ? op_observe_before(call, (call)->op->function) : (void)0, \
   op_finish(call, context, (call)->op->function, (pointer)(context, __VA_ARGS__)))

#endif
