/// arange and linspace into a given tensor (the factories make it and call these).
///
/// arange: ceil((end - start) / step) numbers start + i * step; linspace: `steps` numbers from start to end. A result
/// of another size is resized to one dimension. Whatever PyTorch refuses is left to it.
#include <math.h>
#include <stddef.h>

#include "invoke.h"
#include "table.h"

static bool read_double(const struct dit_value *value, double *out) {
  *out = value->tag == DIT_VALUE_DOUBLE ? value->v.d : (double)value->v.i;
  return value->tag == DIT_VALUE_DOUBLE || value->tag == DIT_VALUE_INT;
}

/// Number of elements as PyTorch counts: in int64 for int64 results, else in double.
static bool count_range(const struct dit_value *args, int dtype, int64_t *count) {
  double start, end, step;
  if (!read_double(&args[0], &start) || !read_double(&args[1], &end) || !read_double(&args[2], &step) ||
      !isfinite(start) || !isfinite(end) || step == 0 || !isfinite(step) || (step > 0 ? start > end : start < end)) {
    return false;
  }
  double size = ceil((end - start) / step);
  if (dtype == DIT_DTYPE_I64) {
    if (args[0].tag != DIT_VALUE_INT || args[1].tag != DIT_VALUE_INT || args[2].tag != DIT_VALUE_INT ||
        fabs(start) > 1e15 || fabs(end) > 1e15 || fabs(step) > 1e15) {
      return false;
    }
    int64_t sign = args[2].v.i > 0 ? 1 : -1;
    size = (double)((args[1].v.i - args[0].v.i + args[2].v.i - sign) / args[2].v.i);
  }
  *count = (int64_t)size;
  return size >= 0 && size < 1e15;
}

static enum dit_status run_range(struct dit_call *call, int64_t count) {
  struct dit_tensor_view *out = op_get_given(call, 0);
  if (!op_is_device(out) || !op_is_plain(out->dtype) || out->dtype == DIT_DTYPE_BOOL || out->ndim > DIT_MAX_DIMS ||
      dit_tensor_get_internal_overlap(out) == DIT_OVERLAP_YES || (out->numel == count && out->ndim != 1)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (out->numel != count) {
    DIT_RETURN_IF_NOT_OK(call->services->resize(call, out, 1, &count));
  }
  const struct dit_tensor_view *outs[1] = {out};
  DIT_RETURN_IF_NOT_OK(op_invoke(call, call->op->function, outs, 0));
  return op_return(call, 0, out);
}

enum dit_status op_arange(struct dit_call *call) {
  const struct dit_tensor_view *out = op_get_given(call, 0);
  int64_t count;
  if (!out || !op_can_invoke(call, call->op->function) || !count_range(call->args, out->dtype, &count)) {
    return DIT_ERR_UNSUPPORTED;
  }
  return run_range(call, count);
}

enum dit_status op_linspace(struct dit_call *call) {
  double start, end;
  if (!op_get_given(call, 0) || !op_can_invoke(call, call->op->function) || !read_double(&call->args[0], &start) ||
      !read_double(&call->args[1], &end) || call->args[2].tag != DIT_VALUE_INT || call->args[2].v.i < 0) {
    return DIT_ERR_UNSUPPORTED;
  }
  return run_range(call, call->args[2].v.i);
}
