/// histc of integer tensors: counts in the input's dtype, as CUDA gives them (the CPU's own kernel takes floats only).
///
/// `bins` equal bins over [min, max]; a bin holds its lower end, the last one both ends, values outside are left out.
/// min == max takes the range of the data. Floating inputs go to the fallback.
#include <stddef.h>

#include "infer.h"
#include "table.h"

static int64_t read_bound(const struct dit_value *value) {
  return value->tag == DIT_VALUE_DOUBLE ? (int64_t)value->v.d : value->v.i;
}

/// A Scalar that becomes an int64 without overflow.
static bool is_bound(const struct dit_value *value) {
  const double limit = 9.2e18;
  return value->tag == DIT_VALUE_INT || value->tag == DIT_VALUE_BOOL ||
         (value->tag == DIT_VALUE_DOUBLE && value->v.d > -limit && value->v.d < limit);
}

static enum dit_status run_histogram(struct dit_call *call, enum op_target target) {
  const struct dit_tensor_view *self = op_get_tensor(call, 0);
  struct dit_tensor_view *given = target == OP_OUT ? op_get_tensor(call, 4) : NULL, out;
  if (!OP_HAS_KERNEL(call, histogram) || op_check_input(self) != DIT_OK || !op_is_device(self) ||
      op_is_floating(self->dtype) || self->dtype == DIT_DTYPE_BOOL || (target == OP_OUT && !given) ||
      !is_bound(&call->args[2]) || !is_bound(&call->args[3])) {
    return DIT_ERR_UNSUPPORTED;
  }
  const int64_t bins = call->args[1].v.i, low = read_bound(&call->args[2]), high = read_bound(&call->args[3]);
  if (bins <= 0) {
    return dit_error_set(call->err, DIT_ERR_INVALID, "bins must be > 0, but got %lld", (long long)bins);
  }
  if (low > high) {
    return dit_error_set(call->err, DIT_ERR_INVALID, "max must be larger than min, but got min %lld and max %lld",
                         (long long)low, (long long)high);
  }
  DIT_RETURN_IF_NOT_OK(op_prepare_contiguous(call, given, &self, 1, 1, &bins, self->dtype, &out));
  DIT_RETURN_IF_NOT_OK(call->kernels->histogram(call->stream, &out, self, low, high, call->err));
  return op_return(call, 0, &out);
}

enum dit_status op_histc(struct dit_call *call) {
  return run_histogram(call, OP_NEW);
}
enum dit_status op_histc_out(struct dit_call *call) {
  return run_histogram(call, OP_OUT);
}
