/// Pooling calls (see pool.h): shapes as PyTorch computes them, windows as tables, dense planes.
///
/// x (N, C, spatial...) or without N; the result has the same dtype and spatial sizes (in + 2 padding - dilation
/// (kernel - 1) - 1) / stride + 1, rounded down or up (ceil_mode: the last window begins inside the input or the
/// padding before it). half types are computed in float, integers in int64. Indices are positions in a plane.
#include "pool.h"

#include <string.h>

#include "dit/alloc.h"
#include "engine/reduce.h"
#include "lines.h"

static int64_t get_out_size(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil) {
  const int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
  if (room < 0 && (!ceil || room + stride - 1 < 0)) {
    return 0;
  }
  int64_t out = (room + (ceil ? stride - 1 : 0)) / stride + 1;
  if (ceil && (out - 1) * stride >= in + padding) {
    out--;
  }
  return out;
}

static diopiError_t read_windows(struct pool_call *call, const struct pool_lists *lists) {
  static const int64_t none[3] = {0, 0, 0}, one[3] = {1, 1, 1};
  struct frame *frame = call->frame;
  const int ndim = call->ndim;
  FRAME_TRY(window_read(frame, "kernel_size", lists->kernel, ndim, 1, 1, NULL, call->kernel));
  FRAME_TRY(window_read(frame, "stride", lists->stride, ndim, 1, 1, call->kernel, call->stride));
  FRAME_TRY(window_read(frame, "padding", lists->padding, ndim, 0, 0, none, call->padding));
  FRAME_TRY(window_read(frame, "dilation", lists->dilation, ndim, 1, 1, one, call->dilation));
  for (int i = 3 - ndim; i < 3; i++) {
    const int64_t reach = call->dilation[i] * (call->kernel[i] - 1) + 1;
    FRAME_CHECK(frame, call->padding[i] <= reach / 2, "'padding' has the entry %lld; valid: 0 to %lld, half the kernel",
                (long long)call->padding[i], (long long)(reach / 2));
    call->out_sizes[i] = get_out_size(call->in_sizes[i], call->kernel[i], call->stride[i], call->padding[i],
                                      call->dilation[i], lists->ceil_mode);
    FRAME_CHECK(frame, call->out_sizes[i] > 0,
                "'input' has size %lld in spatial dimension %d; the kernel (%lld) leaves no result",
                (long long)call->in_sizes[i], i - 3 + ndim, (long long)call->kernel[i]);
  }
  return diopiSuccess;
}

static diopiError_t read_output_size(struct pool_call *call, const char *name, const struct pool_lists *lists) {
  struct frame *frame = call->frame;
  const int ndim = call->ndim;
  if (lists->output_size.data) {
    FRAME_TRY(window_read(frame, "output_size", lists->output_size, ndim, 0, 1, NULL, call->out_sizes));
  } else {
    int64_t batch, channels;
    FRAME_TRY(window_split(frame, name, &call->pooled, ndim, &batch, &channels, call->out_sizes));
  }
  for (int i = 3 - ndim; i < 3; i++) {
    FRAME_CHECK(frame, call->in_sizes[i] > 0, "'input' has size 0 in spatial dimension %d; valid: at least 1",
                i - 3 + ndim);
  }
  return diopiSuccess;
}

diopiError_t pool_check(struct pool_call *call, const char *name, const struct pool_lists *lists, uint64_t dtypes) {
  struct frame *frame = call->frame;
  const struct dit_tensor_view *x = &call->x;
  int64_t batch, channels;
  FRAME_TRY(window_split(frame, "input", x, call->ndim, &batch, &channels, call->in_sizes));
  for (int i = 0; i < 3; i++) {
    call->out_sizes[i] = 1;
    call->kernel[i] = call->stride[i] = call->dilation[i] = 1;
    call->padding[i] = 0;
  }
  FRAME_TRY(lists->adaptive ? read_output_size(call, name, lists) : read_windows(call, lists));
  FRAME_CHECK(frame, !lists->divisor || *lists->divisor != 0, "'divisor_override' is 0; valid: any other number");
  FRAME_TRY(window_check(frame, name, &call->pooled, call->ndim, x->ndim == call->ndim + 2, batch, channels,
                         call->out_sizes));
  FRAME_CHECK(frame, x->dtype == call->pooled.dtype, "'input' is %s and '%s' %s; they must have one dtype",
              dit_dtype_get_name(x->dtype), name, dit_dtype_get_name(call->pooled.dtype));
  if (!frame_has_dtype(dtypes, x->dtype)) {
    return frame_fail_dtype(frame, "input", x->dtype);
  }
  if (call->indices.handle) {
    FRAME_CHECK(frame, frame_is_same_shape(&call->indices, &call->pooled), "'indices' has another shape than '%s'",
                name);
    FRAME_CHECK(frame, call->indices.dtype == DIT_DTYPE_I64 || call->indices.dtype == DIT_DTYPE_I32,
                "'indices' is %s; valid: int64, int32", dit_dtype_get_name(call->indices.dtype));
  }
  if (call->grad_x.handle) {
    FRAME_CHECK(frame, frame_is_same_shape(&call->grad_x, x) && call->grad_x.dtype == x->dtype,
                "'grad_input' has another shape or dtype than 'input'");
    const struct dit_tensor_view *inputs[] = {&call->pooled, x, &call->indices};
    FRAME_TRY(frame_check_output(frame, "grad_input", &call->grad_x, inputs, 3, false));
  } else {
    const struct dit_tensor_view *inputs[] = {x, &call->indices};
    FRAME_TRY(frame_check_output(frame, name, &call->pooled, inputs, 2, false));
    FRAME_TRY(call->indices.handle ? frame_check_output(frame, "indices", &call->indices, inputs, 1, false)
                                   : diopiSuccess);
  }
  call->shape = (struct pool_shape){
      .planes = batch * channels, .divisor = lists->divisor ? *lists->divisor : 0, .work = dense_get_work(x->dtype)};
  call->adaptive = lists->adaptive;
  call->count_padding = lists->count_padding;
  return diopiSuccess;
}

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

static diopiError_t work_max(void *context) {
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

static diopiError_t work_mean(void *context) {
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

static diopiError_t work_max_backward(void *context) {
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

static diopiError_t work_mean_backward(void *context) {
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

static bool has_work(const struct pool_call *call) {
  return call->x.numel > 0;
}

static diopiError_t queue(struct pool_call *call, frame_work *work) {
  return FRAME_QUEUE(call->frame, work, call, &call->frame, &call->pooled, &call->x, &call->indices, &call->grad_x);
}

diopiError_t pool_run_max(struct pool_call *call) {
  return has_work(call) ? queue(call, work_max) : diopiSuccess;
}
/// The mean of whole planes is a reduction, which takes any strides and dtypes as they are.
static diopiError_t reduce_planes(struct pool_call *call) {
  struct dit_error err = {.message = ""};
  const uint32_t mask = ((1u << call->ndim) - 1) << (call->x.ndim - call->ndim);
  const enum dit_status status =
      reduce_launch(call->frame->stream, REDUCE_MEAN, 0, &call->pooled, &call->x, mask, &err);
  return frame_get_code(call->frame, status, &err);
}

diopiError_t pool_run_mean(struct pool_call *call) {
  const int64_t *out = call->out_sizes;
  if (call->adaptive && out[0] * out[1] * out[2] == 1 && call->x.numel > 0) {
    return reduce_planes(call);
  }
  return has_work(call) ? queue(call, work_mean) : diopiSuccess;
}
diopiError_t pool_run_max_backward(struct pool_call *call) {
  return has_work(call) ? queue(call, work_max_backward) : diopiSuccess;
}
diopiError_t pool_run_mean_backward(struct pool_call *call) {
  return has_work(call) ? queue(call, work_mean_backward) : diopiSuccess;
}
