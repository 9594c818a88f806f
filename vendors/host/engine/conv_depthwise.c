/// Depthwise convolution (see conv_depthwise.h): planes one after the other, each copied into a block of zeros.
#include "conv_depthwise.h"

#include <stdatomic.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/parallel.h"
#include "simd.h"

#define CONV_LANES 16

/// A plane of a depthwise convolution: `in` lies inside a block of zeros, so that no tap reaches outside. A stride
/// along the last dimension takes a line apart into `phases`, so that neighbours of the result have neighbouring
/// inputs.
struct conv_plane {
  int64_t out[3], steps[2];                       ///< result positions, and distances of planes and lines in the block
  int64_t in[3], first[3], last[3], in_steps[3];  ///< the source, which part of it is used, and where it goes
  int64_t origin, begin;                          ///< where source line 0 begins (maybe outside), and element 0 in it
  int64_t phases, phase;                          ///< their number, and their length
  int64_t size;                                   ///< elements of the block
  int64_t taps, *offsets;
  bool adds;  ///< to what the result holds
};

#define REAL float
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#include "conv_depthwise_loops.h"
#define REAL double
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#include "conv_depthwise_loops.h"

struct depthwise_task {
  const struct conv_shape *shape;
  char *result;
  const char *x, *weight, *bias;  ///< x: in or grad_out
  const char *in;                 ///< of the weight's gradient
  int64_t size;                   ///< bytes of an element
  int64_t out_channels, taps;     ///< of one group
  int64_t in_plane, out_plane;    ///< positions
  atomic_bool failed;
};

static int64_t divide_up(int64_t a, int64_t b) {
  return a > 0 ? (a + b - 1) / b : 0;
}

static int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t get_volume(const int64_t *sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

bool conv_is_depthwise(const struct conv_shape *shape) {
  return shape->in_channels == shape->groups && shape->groups > 1 && get_volume(shape->kernel) > 1;
}

/// The block of a depthwise plane: of the input (forward, gradient of the weight), or with `flipped` of the result's
/// gradient, spread by the stride, for the gradient of the input. plane->offsets is the caller's, one per tap.
static void set_plane(const struct conv_shape *s, bool flipped, struct conv_plane *plane) {
  int64_t pitch = 1, inner = 1;  // elements and taps per step of a dimension's index
  plane->origin = 0;
  plane->taps = get_volume(s->kernel);
  memset(plane->offsets, 0, sizeof(int64_t) * (size_t)plane->taps);
  for (int d = 2; d >= 0; d--) {
    const int64_t reach = s->dilation[d] * (s->kernel[d] - 1), spread = flipped ? s->stride[d] : 1;
    const int64_t begin = flipped ? reach - s->padding[d] : s->padding[d], step = flipped ? 1 : s->stride[d];
    plane->out[d] = flipped ? s->in[d] : s->out[d];
    plane->in[d] = flipped ? s->out[d] : s->in[d];
    const int64_t extent = (plane->out[d] - 1) * step + reach + 1, phases = d == 2 ? step : 1;
    const int64_t phase = divide_up(extent, phases);
    plane->first[d] = min_of(divide_up(-begin, spread), plane->in[d]);
    plane->last[d] = min_of(divide_up(extent - begin, spread), plane->in[d]);
    plane->in_steps[d] = spread * pitch;
    for (int64_t k = 0; k < plane->taps; k++) {
      const int64_t index = k / inner % s->kernel[d];
      const int64_t at = (flipped ? s->kernel[d] - 1 - index : index) * s->dilation[d];
      plane->offsets[k] += (at % phases * phase + at / phases) * pitch;
    }
    if (d == 2) {
      plane->begin = begin;
      plane->phases = phases;
      plane->phase = phase;
    } else {
      plane->origin += begin * pitch;
      plane->steps[d] = step * pitch;
    }
    inner *= s->kernel[d];
    pitch *= phases * phase;
  }
  plane->size = pitch;
}

/// What one thread of a depthwise loop has: the block of zeros, sums and lanes per tap, and the offsets.
struct depthwise_room {
  struct conv_plane plane;
  char *padded;
  double *sums;
  void *lanes;
};

/// False without memory.
static bool open_room(struct depthwise_task *task, bool flipped, struct depthwise_room *room) {
  memset(room, 0, sizeof *room);
  room->plane.offsets = dit_malloc(sizeof(int64_t) * (size_t)task->taps);
  room->sums = dit_malloc(sizeof(double) * (size_t)task->taps * (1 + CONV_LANES));
  if (room->plane.offsets && room->sums) {
    set_plane(task->shape, flipped, &room->plane);
    const size_t bytes = (size_t)((room->plane.size + CONV_LANES) * task->size);
    room->lanes = room->sums + task->taps;
    room->padded = dit_malloc(bytes);
    if (room->padded) {
      memset(room->padded, 0, bytes);
      return true;
    }
  }
  atomic_store(&task->failed, true);
  return false;
}

static void close_room(struct depthwise_room *room) {
  dit_free(room->padded);
  dit_free(room->sums);
  dit_free(room->plane.offsets);
}

static void set_middle(const struct depthwise_task *task, struct depthwise_room *room, const char *plane) {
  if (task->shape->wide) {
    set_middle_f64(&room->plane, (double *)room->padded, (const double *)plane);
  } else {
    set_middle_f32(&room->plane, (float *)room->padded, (const float *)plane);
  }
}

/// result (+)= convolution of the block with one kernel; `bias` is a number of task->bias, or -1.
static void apply_kernel(const struct depthwise_task *task, const struct depthwise_room *room, char *result,
                         const char *weight, int64_t bias) {
  if (task->shape->wide) {
    depthwise_f64(&room->plane, (double *)result, (const double *)room->padded, (const double *)weight,
                  task->bias && bias >= 0 ? ((const double *)task->bias)[bias] : 0);
  } else {
    depthwise_f32(&room->plane, (float *)result, (const float *)room->padded, (const float *)weight,
                  task->bias && bias >= 0 ? ((const float *)task->bias)[bias] : 0);
  }
}

/// One image and input channel after the other.
static void run_depthwise(void *context, int64_t begin, int64_t end) {
  struct depthwise_task *task = context;
  struct depthwise_room room;
  const int64_t out_bytes = task->out_plane * task->size;
  const bool open = open_room(task, false, &room);
  for (int64_t i = begin; open && i < end; i++) {
    const int64_t first = i % task->shape->groups * task->out_channels;
    set_middle(task, &room, task->x + i * task->in_plane * task->size);
    for (int64_t c = first; c < first + task->out_channels; c++) {
      char *out = task->result + (i / task->shape->groups * task->shape->out_channels + c) * out_bytes;
      apply_kernel(task, &room, out, task->weight + c * task->taps * task->size, c);
    }
  }
  close_room(&room);
}

static bool run_planes(struct depthwise_task *task, int64_t count, void (*body)(void *, int64_t, int64_t)) {
  const struct conv_shape *s = task->shape;
  task->size = s->wide ? 8 : 4;
  task->out_channels = s->out_channels / s->groups;
  task->taps = get_volume(s->kernel);
  task->in_plane = get_volume(s->in);
  task->out_plane = get_volume(s->out);
  dit_parallel_for(0, count, 131072 / (task->out_plane * task->taps + 1) + 1, body, task);
  return !atomic_load(&task->failed);
}

static void run_depthwise_input(void *context, int64_t begin, int64_t end) {
  struct depthwise_task *task = context;
  struct depthwise_room room;
  const int64_t out_bytes = task->out_plane * task->size;
  const bool open = open_room(task, true, &room);
  for (int64_t i = begin; open && i < end; i++) {
    const int64_t channel = i % task->shape->groups, first = channel * task->out_channels;
    for (int64_t c = first; c < first + task->out_channels; c++) {
      set_middle(task, &room, task->x + (i / task->shape->groups * task->shape->out_channels + c) * out_bytes);
      room.plane.adds = c > first;
      apply_kernel(task, &room, task->result + i * task->in_plane * task->size,
                   task->weight + c * task->taps * task->size, c > first ? -1 : channel);
    }
  }
  close_room(&room);
}

/// One output channel after the other, over all images.
static void run_depthwise_weight(void *context, int64_t begin, int64_t end) {
  struct depthwise_task *task = context;
  const struct conv_shape *s = task->shape;
  struct depthwise_room room;
  const bool open = open_room(task, false, &room);
  for (int64_t channel = begin; open && channel < end; channel++) {
    memset(room.sums, 0, sizeof(double) * (size_t)task->taps);
    for (int64_t image = 0; image < s->batch; image++) {
      const char *grad = task->x + (image * s->out_channels + channel) * task->out_plane * task->size;
      set_middle(task, &room,
                 task->in + (image * s->groups + channel / task->out_channels) * task->in_plane * task->size);
      if (s->wide) {
        depthwise_weight_f64(&room.plane, room.sums, (const double *)grad, (const double *)room.padded, room.lanes);
      } else {
        depthwise_weight_f32(&room.plane, room.sums, (const float *)grad, (const float *)room.padded, room.lanes);
      }
    }
    for (int64_t k = 0; k < task->taps; k++) {
      if (s->wide) {
        ((double *)task->result)[channel * task->taps + k] = room.sums[k];
      } else {
        ((float *)task->result)[channel * task->taps + k] = (float)room.sums[k];
      }
    }
  }
  close_room(&room);
}

bool conv_depthwise_forward(const struct conv_shape *shape, void *out, const void *in, const void *weight,
                            const void *bias) {
  struct depthwise_task task = {.shape = shape, .result = out, .x = in, .weight = weight, .bias = bias};
  return run_planes(&task, shape->batch * shape->in_channels, run_depthwise);
}

bool conv_depthwise_backward_input(const struct conv_shape *shape, void *grad_in, const void *grad_out,
                                   const void *weight, const void *bias) {
  struct depthwise_task task = {.shape = shape, .result = grad_in, .x = grad_out, .weight = weight, .bias = bias};
  return run_planes(&task, shape->batch * shape->in_channels, run_depthwise_input);
}

bool conv_depthwise_backward_weight(const struct conv_shape *shape, void *grad_weight, const void *grad_out,
                                    const void *in) {
  struct depthwise_task task = {.shape = shape, .result = grad_weight, .x = grad_out, .in = in};
  return run_planes(&task, shape->out_channels, run_depthwise_weight);
}
