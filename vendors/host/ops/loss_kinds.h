/// The losses between elements (see loss.c). Plain C, read by the CUDA kernels too.
#ifndef DIT_HOST_OPS_LOSS_KINDS_H
#define DIT_HOST_OPS_LOSS_KINDS_H

enum loss_kind { LOSS_MSE, LOSS_SMOOTH_L1, LOSS_BCE, LOSS_LOGITS, LOSS_WEIGHTED_LOGITS, LOSS_FOCAL, LOSS_COUNT };

#endif
