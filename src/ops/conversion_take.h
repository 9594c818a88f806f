/// The way of a call while the active library is the adaptor (conversion.c).
#ifndef DIT_OPS_CONVERSION_TAKE_H
#define DIT_OPS_CONVERSION_TAKE_H

#include "dit/conversion.h"
#include "dit/diopi.h"
#include "dit/op.h"

/// Run the operator and note what was converted.
enum dit_status conversion_run(struct dit_call *call);

#endif
