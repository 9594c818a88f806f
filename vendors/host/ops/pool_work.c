/// Pooling on the host (see pool.c): windows as tables, dense planes.
#include <string.h>

#include "dit/alloc.h"
#include "lines.h"
#include "pool.h"

/// Tables of the windows; false without memory.
static bool make_tables(struct pool_call *call) {
  const int64_t *out = call->out_sizes;
  call->tables = dit_malloc(sizeof(int64_t) * (size_t)(3 * (out[0] + out[1] + out[2]) + 1));
  int64_t *next = call->tables;
  for (int i = 0; i < 3 && call->tables; i++) {
    struct pool_axis *axis = &call->shape.axis[i];
    *axis = (struct pool_axis){
        .in = call->in_sizes[i], .out = out[i], .begin = next, .count = next + out[i], .extent = next + 2 * out[i]};
    next += 3 * out[i];
    if (call->adaptive) {
      pool_set_adaptive(axis);
    } else {
      pool_set_axis(axis, call->kernel[i], call->stride[i], call->padding[i], call->dilation[i], call->count_padding);
    }
  }
  return call->tables != NULL;
}

static diopiError_t finish(struct pool_call *call, bool done) {
  dit_free(call->tables);
  return done ? diopiSuccess : frame_fail(call->frame, diopiErrorOccurred, "no memory for a copy of the tensors");
}

/// Do the channels lie side by side, in the input and in the result? Then both are taken as (batch, position, channel).
static bool is_channels_last(const struct pool_call *call) {
  const struct dit_tensor_view *views[] = {&call->x, &call->pooled};
  const int64_t channels = call->x.sizes[1], *in = call->in_sizes;
  if (call->x.ndim != call->ndim + 2 || channels < 4 || in[0] * in[1] * in[2] > INT32_MAX) {
    return false;
  }
  for (int i = 0; i < 2; i++) {
    const struct dit_tensor_view *view = views[i];
    if (view->strides[1] != 1 || (view->sizes[view->ndim - 1] > 1 && view->strides[view->ndim - 1] != channels)) {
      return false;
    }
  }
  return true;
}

/// `pooled` and `x` (and the indices) as the loops read them: `last` says in which order.
struct pool_memory {
  bool last;
  struct shaped order[3];
  struct dense out, x, indices;
};

static bool open_memory(struct pool_memory *memory, struct pool_call *call) {
  const struct dit_tensor_view *views[] = {&call->pooled, &call->x, &call->indices};
  const int work = call->shape.work;
  memset(&memory->out, 0, sizeof memory->out);
  memset(&memory->x, 0, sizeof memory->x);
  memset(&memory->indices, 0, sizeof memory->indices);
  memory->last = is_channels_last(call);
  for (int i = 0; memory->last && i < 3; i++) {
    if (views[i]->handle) {
      shaped_move_last(&memory->order[i], views[i], 1u << 1);
      views[i] = &memory->order[i].view;
    }
  }
  if (memory->last) {
    call->shape.planes = call->x.sizes[0];
  }
  return make_tables(call) && dense_read(&memory->x, views[1], work) && dense_reserve(&memory->out, views[0], work) &&
         dense_reserve(&memory->indices, views[2], DIT_DTYPE_I64);
}

static void close_memory(struct pool_memory *memory) {
  dense_close(&memory->out);
  dense_close(&memory->x);
  dense_close(&memory->indices);
}

static diopiError_t run_max(void *context) {
  struct pool_call *call = context;
  struct pool_memory m;
  const bool done = open_memory(&m, call);
  if (done) {
    if (m.last) {
      pool_max_last(&call->shape, call->x.sizes[1], m.out.data, m.indices.data, m.x.data);
    } else {
      pool_max(&call->shape, m.out.data, m.indices.data, m.x.data);
    }
    dense_store(&m.out);
    dense_store(&m.indices);
  }
  close_memory(&m);
  return finish(call, done);
}

static diopiError_t run_mean(void *context) {
  struct pool_call *call = context;
  struct pool_memory m;
  const bool done = open_memory(&m, call);
  if (done) {
    if (m.last) {
      pool_mean_last(&call->shape, call->x.sizes[1], m.out.data, m.x.data);
    } else {
      pool_mean(&call->shape, m.out.data, m.x.data);
    }
    dense_store(&m.out);
  }
  close_memory(&m);
  return finish(call, done);
}

static diopiError_t run_max_backward(void *context) {
  struct pool_call *call = context;
  struct dense grad_x = {0}, grad = {0}, indices = {0};
  const int work = call->shape.work;
  const int64_t *in = call->in_sizes;
  bool inside = true;
  const bool done = make_tables(call) && dense_read(&grad, &call->pooled, work) &&
                    dense_read(&indices, &call->indices, DIT_DTYPE_I64) && dense_reserve(&grad_x, &call->grad_x, work);
  if (done) {
    inside = pool_check_indices(indices.data, call->indices.numel, in[0] * in[1] * in[2]);
  }
  if (done && inside) {
    pool_max_backward(&call->shape, grad_x.data, grad.data, indices.data);
    dense_store(&grad_x);
  }
  dense_close(&grad_x);
  dense_close(&grad);
  dense_close(&indices);
  const diopiError_t code = finish(call, done);
  return inside ? code
                : frame_fail(call->frame, diopiErrorOccurred, "'indices' holds a position outside 0 to %lld",
                             (long long)(in[0] * in[1] * in[2] - 1));
}

static diopiError_t run_mean_backward(void *context) {
  struct pool_call *call = context;
  struct dense grad_x = {0}, grad = {0};
  const int work = call->shape.work;
  const bool done =
      make_tables(call) && dense_read(&grad, &call->pooled, work) && dense_reserve(&grad_x, &call->grad_x, work);
  if (done) {
    pool_mean_backward(&call->shape, grad_x.data, grad.data);
    dense_store(&grad_x);
  }
  dense_close(&grad_x);
  dense_close(&grad);
  return finish(call, done);
}

static diopiError_t queue(struct pool_call *call, frame_work *work) {
  call->shape.work = dense_get_work(call->x.dtype);
  return FRAME_QUEUE(call->frame, work, call, &call->frame, &call->pooled, &call->x, &call->indices, &call->grad_x);
}

diopiError_t pool_work_max(struct pool_call *call) {
  return queue(call, run_max);
}
diopiError_t pool_work_mean(struct pool_call *call) {
  return queue(call, run_mean);
}
diopiError_t pool_work_max_backward(struct pool_call *call) {
  return queue(call, run_max_backward);
}
diopiError_t pool_work_mean_backward(struct pool_call *call) {
  return queue(call, run_mean_backward);
}
