/// Resizing on the host (see upsample.c): places and weights as tables, rows that are mixed and spread.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "upsample.h"

#define MOST_TAPS 4

struct resize_axis {
  int64_t in, out;
  int taps;
  int64_t *places;  ///< taps per output position
  double *weights;
  int32_t *table;  ///< of the last axis: the places tap by tap
  void *narrow;    ///< and the weights, in the type that is computed in
};

struct resize_work {
  struct frame *frame;
  struct dit_tensor_view large, small;
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
static double find_source(const struct resize_work *call, const struct resize_axis *axis, int64_t o) {
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

static void set_axis(const struct resize_work *call, struct resize_axis *axis, bool used) {
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
  struct resize_work *call = context;
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
static void set_table(const struct resize_work *call, struct resize_axis *axis) {
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
static void *make_tables(struct resize_work *call) {
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

/// Elements of half types that are moved alone go two at a time where channels lie together.
static bool moves_pairs(const struct resize_work *call, const struct dit_tensor_view *to,
                        const struct dit_tensor_view *from) {
  return call->mode == RESIZE_NEAREST && !call->backward && dit_dtype_get_size(to->dtype) == 2 &&
         to->sizes[1] % 2 == 0 && to->sizes[1] >= 4 && ((uintptr_t)to->data | (uintptr_t)from->data) % 4 == 0;
}

static diopiError_t run_resize(void *context) {
  struct resize_work *call = context;
  struct dense to = {0}, from = {0};
  const struct dit_tensor_view *result = call->backward ? &call->small : &call->large;
  const struct dit_tensor_view *input = call->backward ? &call->large : &call->small;
  const int work = dense_get_work(result->dtype);
  const bool pairs = moves_pairs(call, result, input);
  const bool in_place =
      (work == result->dtype || pairs) && result->sizes[1] > 1 && is_channels_last(result) && is_channels_last(input);
  void *tables = make_tables(call);
  const bool done = tables && (in_place || (dense_read(&from, input, work) && dense_reserve(&to, result, work)));
  call->inner = !in_place ? 1 : work != result->dtype ? result->sizes[1] / 2 : result->sizes[1];
  call->planes /= in_place ? result->sizes[1] : 1;
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

diopiError_t resize_run(struct resize_call *call) {
  struct resize_work work = {.frame = call->frame,
                             .large = call->large,
                             .small = call->small,
                             .mode = call->mode,
                             .align = call->align,
                             .backward = call->backward,
                             .wide = call->wide,
                             .ndim = call->ndim,
                             .planes = call->planes};
  for (int i = 0; i < 3; i++) {
    work.axis[i].in = call->in[i];
    work.axis[i].out = call->out[i];
  }
  return frame_run(call->frame, run_resize, &work);
}
