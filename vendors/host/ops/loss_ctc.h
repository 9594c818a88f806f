/// The work of CTC loss, after loss_ctc.c has checked the arguments.
#ifndef DIT_HOST_OPS_LOSS_CTC_H
#define DIT_HOST_OPS_LOSS_CTC_H

#include "frame.h"

enum ctc_tensor { CTC_PROBS, CTC_TARGETS, CTC_INPUTS, CTC_LABELS, CTC_NLL, CTC_ALPHA, CTC_GRAD, CTC_OUT, CTC_COUNT };

struct ctc_task {
  struct frame frame;
  struct dit_tensor_view v[CTC_COUNT];
  bool backward, zero_infinity;
  diopiReduction_t reduction;
  int64_t blank;
  int64_t steps, batch, classes, width;  ///< T, N, C, and 2 * S + 1 of log_alpha
};

/// On the frame's stream; shapes and dtypes are checked, lengths and labels are not.
diopiError_t ctc_run(struct ctc_task *task);

#endif
