/// What evidence.c and shake.c share.
#ifndef DIT_JUDGE_SHAKE_H
#define DIT_JUDGE_SHAKE_H

#include "judge/evidence.h"

/// Value of one run, of the device's shape; DIT_ERR_UNSUPPORTED: there is none.
DIT_NODISCARD enum dit_status evidence_run(struct evidence *e, const struct dit_verdict_request *request,
                                           struct dit_tensor_view *value);
struct dit_judge_rule evidence_get_rule(const struct evidence *e);

#endif
