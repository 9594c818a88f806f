/// The elementwise engine on CUDA, in the place of vendors/host/engine/pointwise.h: a loop is a family of kernels.
#ifndef DIT_HOST_ENGINE_POINTWISE_H
#define DIT_HOST_ENGINE_POINTWISE_H

#include "dit/error.h"
#include "dit/tensor.h"
#include "launch.h"

#define POINTWISE_OPERANDS 10
#define POINTWISE_PARAMETERS 96

enum pointwise_variant { POINTWISE_VECTOR, POINTWISE_F16, POINTWISE_BF16, POINTWISE_STRIDED, POINTWISE_VARIANTS };

/// The kernels of one expression (kernels/pointwise.cuh), by their endings.
struct pointwise_kernels {
  struct kernel variants[POINTWISE_VARIANTS];
  int inputs;
  bool is_where;  ///< moves elements by a condition
  int states;     ///< > 0: an optimizer's step over so many tensors that it writes
};
typedef struct pointwise_kernels pointwise_loop;

/// As in vendors/host: outputs first, then inputs; all of the sizes of views[0]; a NULL input is a number.
struct pointwise {
  int outputs, inputs;
  const struct dit_tensor_view *views[POINTWISE_OPERANDS];
  int work[POINTWISE_OPERANDS];
  pointwise_loop *loop;
  pointwise_loop *number_loop;  ///< not needed here: one element for all is read once
  int rounded;
  _Alignas(16) char parameters[POINTWISE_PARAMETERS];
};

enum dit_status pointwise_launch(void *stream, const struct pointwise *run, struct dit_error *err);

#endif
