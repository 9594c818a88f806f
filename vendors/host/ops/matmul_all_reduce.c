/// A product whose parts lie on several ranks: out = x1 @ x2 + bias, added up over the ranks of a group.
///
/// x1 (..., K), x2 (K, N), bias (N) or NULL, out (..., N); one dtype, as diopiMatmul. An operator library has no way to
/// the process group, so a group of more than one process (WORLD_SIZE of the launcher) is diopiNoImplement: the
/// framework multiplies and reduces by itself. Alone, the sum over the group is the product.
#include <stdlib.h>
#include <string.h>

#include "linear_shape.h"

static bool is_alone(void) {
  const char *world = getenv("WORLD_SIZE");
  return !world || atoll(world) <= 1;
}

static diopiError_t check(struct frame *frame, const struct dit_tensor_view *o, const struct dit_tensor_view *x,
                          const struct dit_tensor_view *w, const struct dit_tensor_view *bias) {
  FRAME_CHECK(frame, x->ndim >= 1 && w->ndim == 2 && x->sizes[x->ndim - 1] == w->sizes[0],
              "'x1' must end with as many elements as 'x2' has rows");
  bool fits = o->ndim == x->ndim && o->sizes[o->ndim - 1] == w->sizes[1];
  for (int dim = 0; fits && dim < x->ndim - 1; dim++) {
    fits = o->sizes[dim] == x->sizes[dim];
  }
  FRAME_CHECK(frame, fits, "'out' must have the shape of 'x1' with %lld at its end", (long long)w->sizes[1]);
  FRAME_CHECK(frame, x->dtype == w->dtype && x->dtype == o->dtype, "'x1' is %s, 'x2' %s, 'out' %s; valid: one dtype",
              dit_dtype_get_name(x->dtype), dit_dtype_get_name(w->dtype), dit_dtype_get_name(o->dtype));
  FRAME_CHECK(frame, !bias->handle || (bias->ndim == 1 && bias->sizes[0] == w->sizes[1] && bias->dtype == x->dtype),
              "'bias' must have one dimension of size %lld and the dtype of 'x1'", (long long)w->sizes[1]);
  const uint64_t dtypes = DTYPES_REAL | DTYPES_COMPLEX;
  return frame_has_dtype(dtypes, x->dtype) ? diopiSuccess : frame_fail_dtype(frame, "x1", x->dtype);
}

diopiError_t diopiMatmulAllReduce(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t x1,
                                  diopiConstTensorHandle_t x2, diopiConstTensorHandle_t bias, const char *group,
                                  const char *reduce_op, int64_t comm_turn, int64_t stream_mode) {
  struct frame frame;
  struct dit_tensor_view o, x, w, c;
  struct dit_error err = {.message = ""};
  struct product p;
  (void)comm_turn;
  (void)stream_mode;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_TAKE(&frame, x1, &x);
  FRAME_TAKE(&frame, x2, &w);
  FRAME_TAKE_OPTIONAL(&frame, bias, &c);
  FRAME_CHECK(&frame, group, "'group' is NULL; it must be the name of a process group");
  FRAME_CHECK(&frame, reduce_op && strcmp(reduce_op, "sum") == 0, "'reduce_op' is \"%s\"; valid: \"sum\"",
              reduce_op ? reduce_op : "NULL");
  FRAME_TRY(check(&frame, &o, &x, &w, &c));
  const struct dit_tensor_view *inputs[] = {&x, &w, &c};
  FRAME_TRY(frame_check_output(&frame, "out", &o, inputs, 3, false));
  if (!is_alone()) {
    return frame_fail(&frame, diopiNoImplement, "no way to the processes of group \"%s\" from here", group);
  }
  set_batch(&p, &x);
  product_set(&p, &p.out, &o, get_row(&o), o.ndim - 1);
  product_set(&p, &p.a, &x, get_row(&x), x.ndim - 1);
  product_set(&p, &p.b, &w, 0, 1);
  if (c.handle && c.numel > 0) {
    product_set(&p, &p.bias, &c, -1, 0);
    p.bias.sizes[0] = p.out.sizes[0];
    p.bias.strides[0] = 0;
  }
  return frame_get_code(&frame, product_run(frame.stream, &p, &err), &err);
}
