/// What every call passes before its row of the operator table runs.
#ifndef DIT_GATE_H
#define DIT_GATE_H

#include "diopi/extension.h"
#include "dit/op.h"

DIT_EXTERN_C_BEGIN

/// What the framework's schema says about an operator's arguments: bit i is argument i.
struct dit_gate {
  uint32_t numbers;  ///< a "Scalar", or a list of them
  uint32_t written;  ///< written to (in-place, out=)
};

/// Run call->op. DIT_ERR_UNSUPPORTED for a number that does not fit the tensors' dtype, and for a written tensor that
/// overlaps itself or, in part, another argument: the framework's own kernel knows whether such a call is an error, and
/// in which words. DIT_ERR_INVALID: an argument is wrong, and nothing was written.
DIT_API enum dit_status dit_op_run(struct dit_call *call, const struct dit_gate *gate);
/// What the thread's last call in the library failed of, where the library tells (diopiExtGetLastFailure).
DIT_API diopiExtFailure_t dit_diopi_library_get_failure(const struct dit_diopi_library *library);

DIT_EXTERN_C_END

#endif
