/// Unfold and fold on the host (see im2col.c).
#include "dense.h"
#include "dit/parallel.h"
#include "im2col.h"

struct column_planes {
  const struct column_call *call;
  char *out;
  const char *x;
  int64_t image, column;  ///< bytes of one channel's image and columns
};

/// One channel of one image after the other.
static void run_planes(void *context, int64_t begin, int64_t end) {
  const struct column_planes *planes = context;
  const struct conv_shape *shape = &planes->call->shape;
  for (int64_t i = begin; i < end; i++) {
    if (planes->call->fold) {
      conv_scatter(shape, 1, planes->out + i * planes->image, planes->x + i * planes->column);
    } else {
      conv_gather(shape, 1, planes->out + i * planes->column, planes->x + i * planes->image);
    }
  }
}

static diopiError_t run_columns(void *context) {
  struct column_call *call = context;
  const struct conv_shape *s = &call->shape;
  struct dense out = {0}, x = {0};
  const int work = dense_get_work(call->x.dtype);
  const bool done = dense_read(&x, &call->x, work) && dense_reserve(&out, &call->out, work);
  if (done) {
    const int64_t size = s->wide ? 8 : 4, column = s->kernel[1] * s->kernel[2] * s->out[1] * s->out[2];
    struct column_planes planes = {call, out.data, x.data, s->in[1] * s->in[2] * size, column * size};
    dit_parallel_for(0, s->batch * call->channels, 16384 / (column + 1) + 1, run_planes, &planes);
    dense_store(&out);
  }
  dense_close(&out);
  dense_close(&x);
  return done ? diopiSuccess : frame_fail(call->frame, diopiErrorOccurred, "no memory for a copy of the tensors");
}

diopiError_t column_run(struct column_call *call) {
  return frame_run(call->frame, run_columns, call);
}
