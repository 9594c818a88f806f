/// One matrix product by the best code there is, for the engines that are built on it (convolution, attention).
#ifndef DIT_HOST_OPS_GEMM_H
#define DIT_HOST_OPS_GEMM_H

#include "gemm_builtin.h"

/// The product of gemm_builtin.h; k > 0. May be called inside a parallel loop (it then stays in the calling thread);
/// the result does not depend on the number of threads. `problem` is scratch afterwards.
void gemm_multiply(struct gemm_problem *problem);

#endif
