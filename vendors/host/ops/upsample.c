/// Resizing of images in one to three dimensions: nearest, linear (by the number of dimensions: linear, bilinear,
/// trilinear) and bicubic, and their gradients.
///
/// input (N, C, spatial...), out (N, C, size...). A result is a sum over 1, 2 or 4 inputs per dimension, whose places
/// and weights come from tables, computed as PyTorch does: in float for all but float64; without align_corners pixel
/// centres are half a pixel in. Each row of the result is first a sum of rows, then spread along the row; gradients go
/// the same way back. Channels-last tensors are worked on as they are, with the channels as one step. Floating dtypes;
/// half types are computed in float. Outputs overlap nothing.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "window.h"

#define MOST_TAPS 4

enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };

struct resize_axis {
  int64_t in, out;
  int taps;
  int64_t *places;  ///< taps per output position
  double *weights;
  int32_t *table;  ///< of the last axis: the places tap by tap
  void *narrow;    ///< and the weights, in the type that is computed in
};

struct resize_call {
  struct frame *frame;
  struct dit_tensor_view large, small;  ///< the resized tensor (or its gradient), and the input (or its gradient)
  enum resize_mode mode;
  bool align, backward, wide;
  int ndim;
  int64_t planes;
  int64_t inner;  ///< neighbouring elements per position: the channels of channels-last tensors, else 1
  struct resize_axis axis[3];
  void *to;
  const void *from;
  _Atomic bool failed;  ///< a thread had no memory
};

static int64_t clamp(int64_t value, int64_t size) {
  return value < 0 ? 0 : value >= size ? size - 1 : value;
}

static int64_t find_nearest(const struct resize_axis *axis, int64_t o) {
  if (axis->in == axis->out || axis->out == 2 * axis->in) {
    return axis->in == axis->out ? o : o >> 1;
  }
  const float scale = (float)axis->in / (float)axis->out;
  return clamp((int64_t)floorf((float)o * scale), axis->in);
}

/// Where an output position lies among the inputs.
static double find_source(const struct resize_call *call, const struct resize_axis *axis, int64_t o) {
  const double steps = (double)(axis->out - 1);
  const double scale =
      call->align ? (axis->out > 1 ? (double)(axis->in - 1) / steps : 0) : (double)axis->in / (double)axis->out;
  if (call->wide) {
    return call->align ? scale * (double)o : scale * ((double)o + 0.5) - 0.5;
  }
  const float narrow = call->align ? (axis->out > 1 ? (float)(axis->in - 1) / (float)(axis->out - 1) : 0)
                                   : (float)axis->in / (float)axis->out;
  return call->align ? (double)(narrow * (float)o) : (double)(narrow * ((float)o + 0.5f) - 0.5f);
}

/// The cubic convolution's weights for a fraction t, with PyTorch's coefficient.
static void set_cubic(double t, double *weights) {
  const double a = -0.75, u = 1 - t;
  weights[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
  weights[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
  weights[2] = ((a + 2) * u - (a + 3)) * u * u + 1;
  weights[3] = ((a * (u + 1) - 5 * a) * (u + 1) + 8 * a) * (u + 1) - 4 * a;
}

static void set_axis(const struct resize_call *call, struct resize_axis *axis, bool used) {
  for (int64_t o = 0; o < axis->out; o++) {
    int64_t *places = axis->places + o * axis->taps;
    double *weights = axis->weights + o * axis->taps;
    if (!used || call->mode == RESIZE_NEAREST) {
      places[0] = used ? find_nearest(axis, o) : o;
      weights[0] = 1;
      continue;
    }
    double source = find_source(call, axis, o);
    if (call->mode == RESIZE_LINEAR && source < 0) {
      source = 0;
    }
    const int64_t first = (int64_t)floor(source);
    const double t = source - (double)first;
    if (call->mode == RESIZE_CUBIC) {
      set_cubic(t, weights);
      for (int i = 0; i < 4; i++) {
        places[i] = clamp(first - 1 + i, axis->in);
      }
    } else {
      places[0] = clamp(first, axis->in);
      places[1] = clamp(first + 1, axis->in);
      weights[0] = 1 - t;
      weights[1] = t;
    }
  }
}

#define REAL_LOOPS "upsample_loops.h"
#include "real.h"

static void run_rows(void *context, int64_t begin, int64_t end) {
  struct resize_call *call = context;
  const int64_t size = call->wide ? 8 : 4;
  void *room = dit_malloc((size_t)(call->axis[2].in * call->inner * size));
  if (!room) {
    atomic_store_explicit(&call->failed, true, memory_order_relaxed);
  } else if (call->wide) {
    call->backward ? shrink_f64(call, room, begin, end) : enlarge_f64(call, room, begin, end);
  } else {
    call->backward ? shrink_f32(call, room, begin, end) : enlarge_f32(call, room, begin, end);
  }
  dit_free(room);
}

/// The last axis' tables tap by tap, in the types that the loops want.
static void set_table(const struct resize_call *call, struct resize_axis *axis) {
  for (int64_t o = 0; o < axis->out; o++) {
    for (int k = 0; k < axis->taps; k++) {
      const int64_t from = o * axis->taps + k, to = k * axis->out + o;
      axis->table[to] = (int32_t)axis->places[from];
      if (call->wide) {
        ((double *)axis->narrow)[to] = axis->weights[from];
      } else {
        ((float *)axis->narrow)[to] = (float)axis->weights[from];
      }
    }
  }
}

/// Tables of all axes in one piece of memory; NULL without it.
static void *make_tables(struct resize_call *call) {
  int64_t total = 0;
  for (int i = 0; i < 3; i++) {
    total += call->axis[i].out * MOST_TAPS;
  }
  const int64_t last = call->axis[2].out * MOST_TAPS;
  char *room = dit_malloc((size_t)(total * (int64_t)(sizeof(int64_t) + sizeof(double)) +
                                   last * (int64_t)(sizeof(double) + sizeof(int32_t))));
  int64_t *places = (int64_t *)room;
  double *weights = (double *)(places + total);
  for (int i = 0; i < 3 && room; i++) {
    struct resize_axis *axis = &call->axis[i];
    const bool used = i >= 3 - call->ndim;
    axis->taps = !used || call->mode == RESIZE_NEAREST ? 1 : call->mode == RESIZE_LINEAR ? 2 : 4;
    axis->places = places;
    axis->weights = weights;
    places += axis->out * MOST_TAPS;
    weights += axis->out * MOST_TAPS;
    set_axis(call, axis, used);
  }
  if (room) {
    call->axis[2].narrow = weights;
    call->axis[2].table = (int32_t *)(weights + last);
    set_table(call, &call->axis[2]);
  }
  return room;
}

/// Dense with the channels innermost.
static bool is_channels_last(const struct dit_tensor_view *view) {
  int64_t next = 1;
  for (int i = 0; i < view->ndim; i++) {
    const int dim = i == 0 ? 1 : i == view->ndim - 1 ? 0 : view->ndim - i;
    if (view->sizes[dim] != 1 && view->strides[dim] != next) {
      return false;
    }
    next *= view->sizes[dim];
  }
  return true;
}

static diopiError_t run_resize(void *context) {
  struct resize_call *call = context;
  struct dense to = {0}, from = {0};
  const struct dit_tensor_view *result = call->backward ? &call->small : &call->large;
  const struct dit_tensor_view *input = call->backward ? &call->large : &call->small;
  const int work = dense_get_work(result->dtype);
  const bool in_place =
      work == result->dtype && result->sizes[1] > 1 && is_channels_last(result) && is_channels_last(input);
  void *tables = make_tables(call);
  const bool done = tables && (in_place || (dense_read(&from, input, work) && dense_reserve(&to, result, work)));
  call->inner = in_place ? result->sizes[1] : 1;
  call->planes /= call->inner;
  if (done) {
    const int64_t rows = call->axis[0].out * call->axis[1].out, length = call->axis[2].out * call->inner;
    const int64_t cost = call->backward ? rows * length : length;
    call->to = in_place ? result->data : to.data;
    call->from = in_place ? input->data : from.data;
    dit_parallel_for(0, call->backward ? call->planes : call->planes * rows, 8192 / (cost + 1) + 1, run_rows, call);
    dense_store(&to);
  }
  dense_close(&to);
  dense_close(&from);
  dit_free(tables);
  return done && !call->failed ? diopiSuccess
                               : frame_fail(call->frame, diopiErrorOccurred, "no memory for a copy of the tensors");
}

/// Shapes: both tensors are (N, C, spatial...), and `size` are the large one's spatial sizes.
static diopiError_t start(struct resize_call *call, const char *small, const char *large, const char *list,
                          diopiSize_t size) {
  struct frame *frame = call->frame;
  int64_t batch, channels, in[3], out[3], wanted[3];
  const int ndim = call->small.ndim - 2;
  FRAME_CHECK(frame, ndim >= 1 && ndim <= 3, "'%s' has %d dimensions; valid: 3 to 5", small, (int)call->small.ndim);
  FRAME_CHECK(frame, call->mode != RESIZE_CUBIC || ndim == 2, "mode \"bicubic\" takes 4 dimensions; '%s' has %d", small,
              (int)call->small.ndim);
  call->ndim = ndim;
  FRAME_TRY(window_split(frame, small, &call->small, ndim, &batch, &channels, in));
  FRAME_TRY(window_read(frame, list, size, ndim, 1, 1, NULL, wanted));
  FRAME_TRY(window_check(frame, large, &call->large, ndim, true, batch, channels, wanted));
  FRAME_TRY(window_split(frame, large, &call->large, ndim, &batch, &channels, out));
  for (int i = 0; i < 3; i++) {
    FRAME_CHECK(frame, in[i] > 0 && in[i] <= INT32_MAX, "'%s' has %lld elements in a spatial dimension; valid: 1 to %d",
                small, (long long)in[i], INT32_MAX);
    call->axis[i].in = in[i];
    call->axis[i].out = out[i];
  }
  FRAME_CHECK(frame, call->small.dtype == call->large.dtype, "'%s' is %s and '%s' %s; they must have one dtype", small,
              dit_dtype_get_name(call->small.dtype), large, dit_dtype_get_name(call->large.dtype));
  if (!frame_has_dtype(DTYPES_FLOAT, call->small.dtype)) {
    return frame_fail_dtype(frame, small, call->small.dtype);
  }
  const struct dit_tensor_view *result = call->backward ? &call->small : &call->large;
  const struct dit_tensor_view *inputs[] = {call->backward ? &call->large : &call->small};
  FRAME_TRY(frame_check_output(frame, call->backward ? small : large, result, inputs, 1, false));
  call->planes = batch * channels;
  call->wide = call->small.dtype == DIT_DTYPE_F64;
  return call->planes == 0 ? diopiSuccess : frame_run(frame, run_resize, call);
}

static diopiError_t read_mode(struct resize_call *call, const char *mode) {
  static const char *const names[] = {"linear", "bilinear", "trilinear", "bicubic"};
  for (int i = 0; mode && i < 4; i++) {
    if (strcmp(mode, names[i]) == 0) {
      call->mode = i == 3 ? RESIZE_CUBIC : RESIZE_LINEAR;
      return diopiSuccess;
    }
  }
  return frame_fail(call->frame, diopiErrorOccurred,
                    "'mode' is %s; valid: \"linear\", \"bilinear\", \"trilinear\", \"bicubic\"", mode ? mode : "NULL");
}

/// in_size of a backward call must be the gradient's own shape.
static diopiError_t check_in_size(struct resize_call *call, diopiSize_t in_size) {
  const struct dit_tensor_view *small = &call->small;
  FRAME_CHECK(call->frame, in_size.len == small->ndim, "'in_size' has %lld entries; 'grad_input' has %d dimensions",
              (long long)in_size.len, (int)small->ndim);
  for (int i = 0; i < small->ndim; i++) {
    FRAME_CHECK(call->frame, in_size.data[i] == small->sizes[i], "'in_size' has the entry %lld; 'grad_input' has %lld",
                (long long)in_size.data[i], (long long)small->sizes[i]);
  }
  return diopiSuccess;
}

diopiError_t diopiUpsampleNearest(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                  diopiSize_t size) {
  struct frame frame;
  struct resize_call call = {.frame = &frame};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.large);
  FRAME_TAKE(&frame, input, &call.small);
  return start(&call, "input", "out", "size", size);
}

diopiError_t diopiUpsampleNearestBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                          diopiConstTensorHandle_t grad_output, diopiSize_t out_size,
                                          diopiSize_t in_size) {
  struct frame frame;
  struct resize_call call = {.frame = &frame, .backward = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &call.small);
  FRAME_TAKE(&frame, grad_output, &call.large);
  FRAME_TRY(check_in_size(&call, in_size));
  return start(&call, "grad_input", "grad_output", "out_size", out_size);
}

diopiError_t diopiUpsampleLinear(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                 diopiSize_t size, bool align_corners, const char *mode) {
  struct frame frame;
  struct resize_call call = {.frame = &frame, .align = align_corners};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.large);
  FRAME_TAKE(&frame, input, &call.small);
  FRAME_TRY(read_mode(&call, mode));
  return start(&call, "input", "out", "size", size);
}

diopiError_t diopiUpsampleLinearBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                         diopiConstTensorHandle_t grad_output, diopiSize_t out_size,
                                         diopiSize_t in_size, bool align_corners, const char *mode) {
  struct frame frame;
  struct resize_call call = {.frame = &frame, .align = align_corners, .backward = true};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &call.small);
  FRAME_TAKE(&frame, grad_output, &call.large);
  FRAME_TRY(read_mode(&call, mode));
  FRAME_TRY(check_in_size(&call, in_size));
  return start(&call, "grad_input", "grad_output", "out_size", out_size);
}
