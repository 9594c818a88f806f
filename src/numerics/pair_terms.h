/// What every comparison asks of its tensors beyond being readable; shared by the host and by vendors that compare on
/// the device. Depends on include/dit alone.
#ifndef DIT_NUMERICS_PAIR_TERMS_H
#define DIT_NUMERICS_PAIR_TERMS_H

#include "dit/numerics.h"

/// Equal shapes and valid tolerances, else DIT_ERR_INVALID. Both views were checked.
static inline enum dit_status pair_check_terms(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                                               const struct dit_compare_options *options, struct dit_error *err) {
  if (a->ndim != b->ndim) {
    return dit_error_set(
        err, DIT_ERR_INVALID,
        "tensor a has %d dimensions and tensor b has %d; compare needs equal shapes: expand or reshape", a->ndim,
        b->ndim);
  }
  for (int dim = 0; dim < a->ndim; dim++) {
    if (a->sizes[dim] != b->sizes[dim]) {
      return dit_error_set(err, DIT_ERR_INVALID,
                           "dimension %d is %lld in tensor a and %lld in tensor b; compare needs equal shapes", dim,
                           (long long)a->sizes[dim], (long long)b->sizes[dim]);
    }
  }
  if (!(options->rtol >= 0) || !(options->atol >= 0)) {
    return dit_error_set(err, DIT_ERR_INVALID, "rtol is %g and atol is %g; both must be 0 or more", options->rtol,
                         options->atol);
  }
  return DIT_OK;
}

#endif
