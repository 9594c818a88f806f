/// Rotary embedding: pairs of elements of every head are turned by the angle of their position.
///
/// RotaryEmbedding: x (..., D) is split into x1 and x2, its halves, or interleaved its even and odd elements; out1 = x1
/// cos - x2 sin, out2 = x1 sin + x2 cos; `conj` turns back (the gradient). cos and sin (..., D / 2) broadcast to x1.
/// out has x's shape and dtype and may be x itself. V2 turns query and key in place by halves, with cos and sin (...,
/// D) given for every element: x = x cos + (-x2, x1) sin; a 2-d query (T, heads D) is read as (T, heads, D) with D =
/// dim. Floating dtypes; half types are computed in float and rounded once.
#include "rotary.h"

/// cos or sin: broadcasts to x, with `width` elements at the end.
static diopiError_t check_angles(struct frame *frame, const char *name, const struct dit_tensor_view *angles,
                                 const struct dit_tensor_view *x, int64_t width) {
  FRAME_CHECK(frame, angles->ndim >= 1 && angles->ndim <= x->ndim, "'%s' has %d dimensions; valid: 1 to %d", name,
              (int)angles->ndim, (int)x->ndim);
  FRAME_CHECK(frame, angles->sizes[angles->ndim - 1] == width, "'%s' ends with %lld elements; it must be %lld", name,
              (long long)angles->sizes[angles->ndim - 1], (long long)width);
  for (int dim = 0; dim < angles->ndim - 1; dim++) {
    const int64_t size = x->sizes[dim - angles->ndim + x->ndim];
    FRAME_CHECK(frame, angles->sizes[dim] == size || angles->sizes[dim] == 1,
                "'%s' has size %lld in dimension %d; valid: 1, %lld", name, (long long)angles->sizes[dim], dim,
                (long long)size);
  }
  return frame_has_dtype(DTYPES_FLOAT, angles->dtype) ? diopiSuccess : frame_fail_dtype(frame, name, angles->dtype);
}

static diopiError_t check_call(struct rotary_call *call, const char *name) {
  struct frame *frame = call->frame;
  const struct dit_tensor_view *x = &call->x;
  FRAME_CHECK(frame, x->ndim >= 1 && x->sizes[x->ndim - 1] % 2 == 0,
              "'%s' must end with an even number of elements, not %lld", name,
              x->ndim ? (long long)x->sizes[x->ndim - 1] : 0LL);
  if (!frame_has_dtype(DTYPES_FLOAT, x->dtype)) {
    return frame_fail_dtype(frame, name, x->dtype);
  }
  const int64_t width = x->sizes[x->ndim - 1] / (call->full ? 1 : 2);
  FRAME_TRY(check_angles(frame, "cos", &call->cosine, x, width));
  return check_angles(frame, "sin", &call->sine, x, width);
}

diopiError_t diopiRotaryEmbedding(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t x,
                                  diopiConstTensorHandle_t cos, diopiConstTensorHandle_t sin, const bool conj,
                                  const bool interleaved) {
  struct frame frame;
  struct rotary_call call = {.frame = &frame, .conj = conj, .interleaved = interleaved};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TAKE(&frame, x, &call.x);
  FRAME_TAKE(&frame, cos, &call.cosine);
  FRAME_TAKE(&frame, sin, &call.sine);
  FRAME_CHECK(&frame, frame_is_same_shape(&call.out, &call.x) && call.out.dtype == call.x.dtype,
              "'out' has another shape or dtype than 'x'");
  FRAME_TRY(check_call(&call, "x"));
  const struct dit_tensor_view *inputs[] = {&call.cosine, &call.sine, &call.x};
  FRAME_TRY(frame_check_output(&frame, "out", &call.out, inputs, 2, false));
  FRAME_TRY(frame_check_output(&frame, "out", &call.out, inputs + 2, 1, true));
  return call.x.numel == 0 ? diopiSuccess : rotary_run(&call);
}

/// A 2-d tensor (T, heads * dim) as (T, heads, dim); `room` holds sizes and strides.
static diopiError_t split_heads(struct frame *frame, const char *name, struct dit_tensor_view *view, int64_t dim,
                                int64_t room[6]) {
  if (view->ndim != 2) {
    return diopiSuccess;
  }
  FRAME_CHECK(frame, dim > 0 && view->sizes[1] % dim == 0, "'dim' is %lld; '%s' has rows of %lld elements",
              (long long)dim, name, (long long)view->sizes[1]);
  const int64_t stride = view->strides[1];
  room[0] = view->sizes[0];
  room[1] = view->sizes[1] / dim;
  room[2] = dim;
  room[3] = view->strides[0];
  room[4] = stride * dim;
  room[5] = stride;
  view->ndim = 3;
  view->sizes = room;
  view->strides = room + 3;
  return diopiSuccess;
}

diopiError_t diopiRotaryEmbeddingV2(diopiContextHandle_t ctx, diopiTensorHandle_t query, diopiTensorHandle_t key,
                                    diopiConstTensorHandle_t cos, diopiConstTensorHandle_t sin, int64_t dim) {
  struct frame frame;
  struct rotary_call calls[2] = {{.frame = &frame, .full = true}, {.frame = &frame, .full = true}};
  int64_t rooms[2][6];
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, query, &calls[0].x);
  FRAME_TAKE(&frame, key, &calls[1].x);
  for (int i = 0; i < 2; i++) {
    const char *name = i ? "key" : "query";
    FRAME_TAKE(&frame, cos, &calls[i].cosine);
    FRAME_TAKE(&frame, sin, &calls[i].sine);
    FRAME_TRY(split_heads(&frame, name, &calls[i].x, dim, rooms[i]));
    FRAME_TRY(check_call(&calls[i], name));
    calls[i].out = calls[i].x;
    const struct dit_tensor_view *inputs[] = {&calls[i].cosine, &calls[i].sine, &calls[0].x};
    FRAME_TRY(frame_check_output(&frame, name, &calls[i].x, inputs, 2 + i, false));
  }
  for (int i = 0; i < 2; i++) {
    if (calls[i].x.numel > 0) {
      FRAME_TRY(rotary_run(&calls[i]));
    }
  }
  return diopiSuccess;
}
