/// The way of a call while the active library is the adaptor (conversion.c).
#ifndef DIT_OPS_CONVERSION_TAKE_H
#define DIT_OPS_CONVERSION_TAKE_H

#include "dit/conversion.h"
#include "dit/diopi.h"
#include "dit/op.h"

/// What the calling thread's calls converted since it was asked last; false: nothing.
typedef bool conversion_take(struct dit_conversions *out);

/// NULL when the library is no adaptor.
conversion_take *conversion_find_taker(const struct dit_diopi_library *library);
/// Run the operator and note what was converted.
enum dit_status conversion_run(struct dit_call *call, conversion_take *take);

#endif
