/// Samples of images at given places: out (N, C, Ho, Wo) from input (N, C, H, W) at grid (N, Ho, Wo, 2).
///
/// grid holds x, then y; -1 and 1 are the outer edges of the first and the last pixel (corners are not aligned).
/// Outside the image are zeros. mode: "bilinear" weighs the four pixels around a place, "bicubic" the sixteen with
/// cubic convolution (a = -0.75), "nearest" takes the pixel that is nearest, halves to the even one. Places that are no
/// number lie outside. Floating dtypes, one for all; half types are computed in float, as the places are. Any strides:
/// inputs are read row-major. out overlaps nothing.
#include <math.h>
#include <string.h>

#include "dense.h"
#include "dit/parallel.h"
#include "frame.h"

enum sample_mode { SAMPLE_BILINEAR, SAMPLE_NEAREST, SAMPLE_BICUBIC };
enum { MOST_POINTS = 16 };

struct sample_call {
  struct frame frame;
  struct dit_tensor_view out, input, grid;
  enum sample_mode mode;
  int64_t channels, height, width, points;  ///< points: of one image's grid
  const void *pixels, *places;
  void *result;
};

/// The pixels that a place is made of: offsets in the image and weights. Those outside are left out.
struct taps {
  int count;
  int64_t offsets[MOST_POINTS];
  double weights[MOST_POINTS];
};

static void add_tap(const struct sample_call *call, struct taps *taps, double x, double y, double weight) {
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
static void find_taps(const struct sample_call *call, double x, double y, struct taps *taps) {
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
  const struct sample_call *call = context;
  const int64_t plane = call->height * call->width;
  if (call->input.dtype == DIT_DTYPE_F64) {
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
    call->pixels = input.data;
    call->places = grid.data;
    call->result = out.data;
    dit_parallel_for(0, call->out.sizes[0] * call->points, 4096 / (call->channels + 4) + 1, sample_points, call);
    dense_store(&out);
  }
  dense_close(&out);
  dense_close(&grid);
  dense_close(&input);
  return done ? diopiSuccess : frame_fail(&call->frame, diopiErrorOccurred, "no memory for copies of the tensors");
}

static diopiError_t read_mode(struct sample_call *call, const char *mode) {
  static const char *const names[] = {"bilinear", "nearest", "bicubic"};
  for (int i = 0; mode && i < 3; i++) {
    if (strcmp(mode, names[i]) == 0) {
      call->mode = (enum sample_mode)i;
      return diopiSuccess;
    }
  }
  return frame_fail(&call->frame, diopiErrorOccurred, "'mode' is %.32s; valid: \"bilinear\", \"nearest\", \"bicubic\"",
                    mode ? mode : "NULL");
}

static diopiError_t check_shapes(struct sample_call *call) {
  const struct dit_tensor_view *out = &call->out, *input = &call->input, *grid = &call->grid;
  FRAME_CHECK(&call->frame, input->ndim == 4, "'input' has %d dimensions; it must have 4", (int)input->ndim);
  FRAME_CHECK(&call->frame, grid->ndim == 4, "'grid' has %d dimensions; it must have 4", (int)grid->ndim);
  FRAME_CHECK(&call->frame, out->ndim == 4, "'out' has %d dimensions; it must have 4", (int)out->ndim);
  FRAME_CHECK(&call->frame, grid->sizes[3] == 2, "'grid' has %lld numbers per place; it must have 2, x and y",
              (long long)grid->sizes[3]);
  FRAME_CHECK(&call->frame, grid->sizes[0] == input->sizes[0], "'grid' is for %lld images; 'input' has %lld",
              (long long)grid->sizes[0], (long long)input->sizes[0]);
  FRAME_CHECK(&call->frame, input->sizes[2] > 0 && input->sizes[3] > 0, "'input' has images of %lld x %lld pixels",
              (long long)input->sizes[2], (long long)input->sizes[3]);
  const int64_t wanted[4] = {input->sizes[0], input->sizes[1], grid->sizes[1], grid->sizes[2]};
  for (int i = 0; i < 4; i++) {
    FRAME_CHECK(&call->frame, out->sizes[i] == wanted[i], "'out' has size %lld in dimension %d; it must have %lld",
                (long long)out->sizes[i], i, (long long)wanted[i]);
  }
  call->channels = input->sizes[1];
  call->height = input->sizes[2];
  call->width = input->sizes[3];
  call->points = grid->sizes[1] * grid->sizes[2];
  return diopiSuccess;
}

diopiError_t diopiGridSample(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                             diopiConstTensorHandle_t grid, const char *mode) {
  struct sample_call call = {0};
  FRAME_BEGIN(&call.frame, ctx);
  FRAME_TAKE(&call.frame, out, &call.out);
  FRAME_TAKE(&call.frame, input, &call.input);
  FRAME_TAKE(&call.frame, grid, &call.grid);
  FRAME_TRY(read_mode(&call, mode));
  FRAME_TRY(check_shapes(&call));
  if (!frame_has_dtype(DTYPES_FLOAT, call.input.dtype)) {
    return frame_fail_dtype(&call.frame, "input", call.input.dtype);
  }
  FRAME_CHECK(&call.frame, call.grid.dtype == call.input.dtype && call.out.dtype == call.input.dtype,
              "'input' is %s, 'grid' %s, 'out' %s; they must have one dtype", dit_dtype_get_name(call.input.dtype),
              dit_dtype_get_name(call.grid.dtype), dit_dtype_get_name(call.out.dtype));
  const struct dit_tensor_view *inputs[] = {&call.input, &call.grid};
  FRAME_TRY(frame_check_output(&call.frame, "out", &call.out, inputs, 2, false));
  return call.out.numel == 0 ? diopiSuccess : frame_run(&call.frame, run_sample, &call);
}
