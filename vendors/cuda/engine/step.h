/// Steps of optimizers, which write several tensors at once.
#ifndef DIT_CUDA_ENGINE_STEP_H
#define DIT_CUDA_ENGINE_STEP_H

#include "engine/pointwise.h"

enum dit_status step_launch(void *stream, const struct pointwise *run, struct dit_error *err);

#endif
