/// Pairwise distances: out[.., i, j] = |input1[.., i, :] - input2[.., j, :]|_p, and the gradient of input1.
///
/// input1 (..., P, M), input2 (..., R, M), leading dimensions broadcast; out (..., P, R). p >= 0: 0 counts differences,
/// inf takes the largest. The differences are always taken themselves, so compute_mode (0, 1, 2), which chooses between
/// that and a product for p = 2, changes nothing. grad_input has input1's shape: what was broadcast is summed. Where a
/// distance is 0 nothing flows. Floating dtypes, one for all; half types are computed in float.
#include "cdist.h"

#include "matrix_batch.h"

static diopiError_t check(struct cdist *call) {
  struct frame *frame = call->frame;
  const struct dit_tensor_view *a = &call->a, *b = &call->b;
  FRAME_CHECK(frame, a->ndim >= 2 && b->ndim >= 2, "'input1' has %d and 'input2' %d dimensions; valid: at least 2",
              (int)a->ndim, (int)b->ndim);
  FRAME_CHECK(frame, matrix_get_columns(a) == matrix_get_columns(b),
              "rows of 'input1' have %lld elements, those of "
              "'input2' %lld",
              (long long)matrix_get_columns(a), (long long)matrix_get_columns(b));
  FRAME_CHECK(frame, a->dtype == b->dtype, "'input1' is %s and 'input2' %s; valid: one dtype",
              dit_dtype_get_name(a->dtype), dit_dtype_get_name(b->dtype));
  FRAME_CHECK(frame, call->p >= 0, "'p' is %g; valid: 0 and above", call->p);
  FRAME_CHECK(frame, matrix_broadcast(a, b, &call->ndim, call->sizes),
              "the leading dimensions of 'input1' and 'input2' do not broadcast");
  if (!frame_has_dtype(DTYPES_FLOAT, a->dtype)) {
    return frame_fail_dtype(frame, "input1", a->dtype);
  }
  call->count = 1;
  for (int dim = 0; dim < call->ndim; dim++) {
    call->count *= call->sizes[dim];
  }
  return diopiSuccess;
}

static diopiError_t check_pairs(struct cdist *call, const char *name, const struct dit_tensor_view *view) {
  const int64_t rows = matrix_get_rows(&call->a), columns = matrix_get_rows(&call->b);
  FRAME_CHECK(
      call->frame,
      matrix_has_batch(view, call->ndim, call->sizes) && matrix_is(view, rows, columns) && view->dtype == call->a.dtype,
      "'%s' must have the dtype of 'input1', the broadcast leading dimensions, then %lld x %lld", name, (long long)rows,
      (long long)columns);
  return diopiSuccess;
}

diopiError_t diopiCdist(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input1,
                        diopiConstTensorHandle_t input2, double p, const int64_t *compute_mode) {
  struct frame frame;
  struct cdist call = {.frame = &frame, .p = p};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, input1, &call.a);
  FRAME_TAKE(&frame, input2, &call.b);
  FRAME_TRY(check(&call));
  FRAME_CHECK(&frame, !compute_mode || (*compute_mode >= 0 && *compute_mode <= 2),
              "'compute_mode' is %lld; valid: 0, 1, 2", (long long)*compute_mode);
  FRAME_TRY(check_pairs(&call, "out", &call.out));
  const struct dit_tensor_view *inputs[] = {&call.a, &call.b};
  FRAME_TRY(frame_check_output(&frame, "out", &call.out, inputs, 2, false));
  return call.out.numel == 0 ? diopiSuccess : cdist_run(&call);
}

diopiError_t diopiCdistBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                diopiConstTensorHandle_t grad_output, diopiConstTensorHandle_t input1,
                                diopiConstTensorHandle_t input2, double p, diopiConstTensorHandle_t cdist) {
  struct frame frame;
  struct cdist call = {.frame = &frame, .p = p, .backward = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &call.out);
  FRAME_TAKE(&frame, grad_output, &call.grad);
  FRAME_TAKE(&frame, input1, &call.a);
  FRAME_TAKE(&frame, input2, &call.b);
  FRAME_TAKE(&frame, cdist, &call.dist);
  FRAME_TRY(check(&call));
  FRAME_TRY(check_pairs(&call, "grad_output", &call.grad));
  FRAME_TRY(check_pairs(&call, "cdist", &call.dist));
  FRAME_CHECK(&frame, frame_is_same_shape(&call.out, &call.a) && call.out.dtype == call.a.dtype,
              "'grad_input' has another shape or dtype than 'input1'");
  const struct dit_tensor_view *inputs[] = {&call.grad, &call.a, &call.b, &call.dist};
  FRAME_TRY(frame_check_output(&frame, "grad_input", &call.out, inputs, 4, false));
  return call.out.numel == 0 ? diopiSuccess : cdist_run(&call);
}
