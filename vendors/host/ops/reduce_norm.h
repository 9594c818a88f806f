/// The work of norms that is more than a reduction, after reduce_norm.c has checked the arguments.
#ifndef DIT_HOST_OPS_REDUCE_NORM_H
#define DIT_HOST_OPS_REDUCE_NORM_H

#include "engine/reduce.h"
#include "lines.h"

struct norm_task {
  struct frame *frame;
  const struct dit_tensor_view *v_out, *v_x, *v_g, *v_norm;  ///< out and x: kept dimensions first
  int64_t kept, length;
  double p, eps;
  enum reduce_kind kind;
  const struct reduce_fold *fold;
  bool adds;  ///< blocks are added up, in double
  int work;
  const void *x, *g, *norm;
  void *out, *room;
};

/// The fold of a p-norm.
enum reduce_kind norm_get_kind(double p);
/// The norm of complex numbers; `out` has all dimensions.
diopiError_t norm_run_complex(struct frame *frame, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                              double p, uint32_t mask);
/// The gradient of a norm (v_norm is there), or normalisation or its gradient.
diopiError_t norm_run_rows(struct norm_task *task);

#endif
