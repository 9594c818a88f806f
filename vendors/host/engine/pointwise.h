/// The elementwise engine: one loop per (operation, work type); dtypes, strides, broadcasting, threads and streams are
/// handled here.
///
/// A loop sees elements one after another in the type it works in. An operand of another dtype or stride is gathered
/// and converted into a block of NEST_BLOCK elements first, a result likewise on its way out, so no combination of
/// dtypes needs code of its own. Outputs may be exactly an input.
#ifndef DIT_HOST_ENGINE_POINTWISE_H
#define DIT_HOST_ENGINE_POINTWISE_H

#include "dit/error.h"
#include "dit/tensor.h"

#define POINTWISE_OPERANDS 10
#define POINTWISE_PARAMETERS 96

/// `out` and `in` point to `count` elements each, in the work types; `parameters` is struct pointwise's copy.
typedef void pointwise_loop(const void *parameters, void *const *out, const void *const *in, int64_t count);

/// One run. Views are outputs first, then inputs; all have the sizes of views[0] (expand before). An input whose view
/// is NULL is a number: the k-th such input's value lies at parameters + 16 * k, in its work type. Self-contained: may
/// be copied onto a stream.
struct pointwise {
  int outputs, inputs;
  const struct dit_tensor_view *views[POINTWISE_OPERANDS];
  int work[POINTWISE_OPERANDS];  ///< enum dit_dtype in which the loop takes or gives each operand
  pointwise_loop *loop;
  /// The same with the last input as a number at the first parameter, for runs along which it does not change; or NULL.
  pointwise_loop *number_loop;
  /// F16 or BF16: operands of another dtype are rounded to it on their way, as PyTorch's common dtype does; 0: no.
  int rounded;
  _Alignas(16) char parameters[POINTWISE_PARAMETERS];
};

/// Is there a conversion for every operand? Else DIT_ERR_UNSUPPORTED from the functions below, before anything is
/// written.
bool pointwise_is_supported(const struct pointwise *run);
/// On the stream; what it needs is copied.
enum dit_status pointwise_launch(void *stream, const struct pointwise *run, struct dit_error *err);
/// Now, in the caller (device memory is open already).
enum dit_status pointwise_run(const struct pointwise *run, struct dit_error *err);

#endif
