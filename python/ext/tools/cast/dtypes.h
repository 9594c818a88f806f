/// Which dtypes a call's results have: torch's own promotion of what the program passed, not of what a tool made of it.
///
/// The operator runs once on meta tensors (no memory, no values) with the dtypes, shapes and scalars of the call; the
/// answer is kept per operator, dtypes, dimensions and kinds of the other arguments. A result in a floating dtype that
/// no argument has (the statistics of a normalisation) depends on the device, which is then asked once with copies of
/// the arguments. Where meta tensors cannot be used (values decide the shape, a foreign function, a generator of a
/// device) the promoted dtype of all tensors stands in.
/// Needs the GIL and the engine's guard; draws no random numbers and records nothing for autograd.
#ifndef DIT_EXT_CAST_DTYPES_H
#define DIT_EXT_CAST_DTYPES_H

#include "engine/engine.h"

/// dtypes[i] (enum dit_dtype) that tensor i of `out`, the flat results of this very call, should have: its own dtype
/// when it is neither floating nor complex or nothing is known. `call->in` must describe the original arguments. 0, or
/// -1 with an exception (memory).
DIT_NODISCARD int cast_result_dtypes(const struct engine_call *call, const struct engine_leaves *out, int16_t *dtypes);

/// PyTorch's own functions do nothing but compute: calling one twice cannot be seen. Another one could be.
bool cast_call_may_repeat(const struct engine_call *call);

/// Nanoseconds spent on meta tensors so far, in this process; the first run loads a part of PyTorch (seconds).
int64_t cast_dtypes_get_spent(void);

#endif
