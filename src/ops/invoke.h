/// Calls of the vendor's functions with the operator's own arguments, and small pieces around them.
///
/// The parameters of a DIOPI function stand in the order of the ATen operator's arguments nearly everywhere. What kind
/// each has is in the table of the standard (struct dit_diopi_info), so one function here serves most operators: a row
/// of the table is all that an operator needs beyond its inference. Depends on src/diopirt.
#ifndef DIT_OPS_INVOKE_H
#define DIT_OPS_INVOKE_H

#include "diopi_call.h"
#include "infer.h"

/// Calls function number `function`: the context, `outs` for its leading outputs, then the call's arguments from number
/// `first` on, each converted to its parameter's kind. Arguments that the call does not have (or NONE) are absent:
/// NULL, an empty list, 0. Outputs of the call (out=) are never taken for arguments. DIT_ERR_UNSUPPORTED where the
/// library lacks the function or an argument has no such form.
enum dit_status op_invoke(struct dit_call *call, int function, const struct dit_tensor_view *const *outs, int first);
/// The same, with the in-place form's plain function and the same tensor twice where the library has that one only.
enum dit_status op_invoke_inplace(struct dit_call *call, int function, const struct dit_tensor_view *self);
/// Does the library have the function, or for an in-place one its plain form?
bool op_can_invoke(const struct dit_call *call, int function);
/// The function with the same parameters after an output of its own, of one that writes its first argument
/// (diopiAddInp: diopiAdd); 0: `function` has outputs of its own.
int op_get_plain_form(int function);
/// The function that takes a number for the second operand (diopiAdd: diopiAddScalar); 0 when the standard has none.
int op_get_scalar_form(int function);

/// The value of a 0-d tensor in host memory.
enum dit_status op_read_number(const struct dit_tensor_view *view, struct dit_scalar *out);
/// A 0-d device tensor of `dtype` with the value of a 0-d host tensor takes its place.
enum dit_status op_move_to_device(struct dit_call *call, struct dit_tensor_view *view, int dtype);
/// out = in, with conversion, on the stream: by the device's own copy kernel, else by the operator library, as in every
/// other place that copies elements.
enum dit_status op_copy(struct dit_call *call, const struct dit_tensor_view *out, const struct dit_tensor_view *in);
static inline bool op_can_copy(const struct dit_call *call) {
  return OP_HAS(call, diopiCopyInp) || OP_HAS_KERNEL(call, copy);
}
/// out = value, on the stream; a complex value into a complex tensor.
enum dit_status op_fill(struct dit_call *call, const struct dit_tensor_view *out, struct dit_scalar value);

/// The last `index`-th argument of an out= form.
static inline struct dit_tensor_view *op_get_given(struct dit_call *call, int index) {
  return op_get_tensor(call, call->nargs - call->nrets + index);
}

#endif
