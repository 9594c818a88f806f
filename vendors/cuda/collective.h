/// Collectives of CUDA devices (collective.c). Without NCCL every function that begins something answers
/// DIT_ERR_UNSUPPORTED and says why.
#ifndef DIT_CUDA_COLLECTIVE_H
#define DIT_CUDA_COLLECTIVE_H

#include "dit/device.h"

extern const struct dit_collective_vtable cuda_collectives;

#endif
