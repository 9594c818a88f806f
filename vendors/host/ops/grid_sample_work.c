/// Samples of images on the host (see grid_sample.c).
#include <math.h>

#include "dense.h"
#include "dit/parallel.h"
#include "grid_sample.h"

enum { MOST_POINTS = 16 };

struct sample_work {
  enum sample_mode mode;
  int dtype;
  int64_t channels, height, width, points;
  const void *pixels, *places;
  void *result;
};

/// The pixels that a place is made of: offsets in the image and weights. Those outside are left out.
struct taps {
  int count;
  int64_t offsets[MOST_POINTS];
  double weights[MOST_POINTS];
};

static void add_tap(const struct sample_work *call, struct taps *taps, double x, double y, double weight) {
  if (x >= 0 && y >= 0 && x < (double)call->width && y < (double)call->height) {
    taps->offsets[taps->count] = (int64_t)y * call->width + (int64_t)x;
    taps->weights[taps->count++] = weight;
  }
}

/// Weights of the cubic convolution for a fraction t.
static void set_cubic(double t, double *weights) {
  const double a = -0.75, u = 1 - t;
  weights[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
  weights[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
  weights[2] = ((a + 2) * u - (a + 3)) * u * u + 1;
  weights[3] = ((a * (u + 1) - 5 * a) * (u + 1) + 8 * a) * (u + 1) - 4 * a;
}

/// `x` and `y` are in pixels.
static void find_taps(const struct sample_work *call, double x, double y, struct taps *taps) {
  taps->count = 0;
  if (call->mode == SAMPLE_NEAREST) {
    add_tap(call, taps, nearbyint(x), nearbyint(y), 1);
    return;
  }
  const double left = floor(x), top = floor(y), dx = x - left, dy = y - top;
  const bool cubic = call->mode == SAMPLE_BICUBIC;
  double across[4] = {1 - dx, dx}, down[4] = {1 - dy, dy};
  if (cubic) {
    set_cubic(dx, across);
    set_cubic(dy, down);
  }
  const int side = cubic ? 4 : 2, first = cubic ? -1 : 0;
  for (int j = 0; j < side; j++) {
    for (int i = 0; i < side; i++) {
      add_tap(call, taps, left + first + i, top + first + j, across[i] * down[j]);
    }
  }
}

#define SAMPLE_POINTS(type)                                                              \
  for (int64_t i = begin; i < end; i++) {                                                \
    const int64_t image = i / call->points, point = i % call->points;                    \
    const type *place = (const type *)call->places + 2 * i;                              \
    const type *pixels = (const type *)call->pixels + image * call->channels * plane;    \
    type *out = (type *)call->result + image * call->channels * call->points + point;    \
    struct taps taps;                                                                    \
    const type x = ((place[0] + 1) * (type)call->width - 1) / 2;                         \
    const type y = ((place[1] + 1) * (type)call->height - 1) / 2;                        \
    find_taps(call, (double)x, (double)y, &taps);                                        \
    for (int64_t c = 0; c < call->channels; c++, pixels += plane, out += call->points) { \
      type sum = 0;                                                                      \
      for (int k = 0; k < taps.count; k++) {                                             \
        sum += (type)taps.weights[k] * pixels[taps.offsets[k]];                          \
      }                                                                                  \
      *out = sum;                                                                        \
    }                                                                                    \
  }

static void sample_points(void *context, int64_t begin, int64_t end) {
  const struct sample_work *call = context;
  const int64_t plane = call->height * call->width;
  if (call->dtype == DIT_DTYPE_F64) {
    SAMPLE_POINTS(double)
  } else {
    SAMPLE_POINTS(float)
  }
}

static diopiError_t run_sample(void *context) {
  struct sample_call *call = context;
  struct dense out = {0}, input = {0}, grid = {0};
  const int work = dense_get_work(call->input.dtype);
  const bool done = dense_read(&input, &call->input, work) && dense_read(&grid, &call->grid, work) &&
                    dense_reserve(&out, &call->out, work);
  if (done) {
    struct sample_work task = {.mode = call->mode,
                               .dtype = call->input.dtype,
                               .channels = call->channels,
                               .height = call->height,
                               .width = call->width,
                               .points = call->points,
                               .pixels = input.data,
                               .places = grid.data,
                               .result = out.data};
    dit_parallel_for(0, call->out.sizes[0] * call->points, 4096 / (call->channels + 4) + 1, sample_points, &task);
    dense_store(&out);
  }
  dense_close(&out);
  dense_close(&grid);
  dense_close(&input);
  return done ? diopiSuccess : frame_fail(&call->frame, diopiErrorOccurred, "no memory for copies of the tensors");
}

diopiError_t sample_grid(struct sample_call *call) {
  return frame_run(&call->frame, run_sample, call);
}
