/// Convolution with stride 1 without columns (see conv_flat.h).
///
/// In an image with its padding around it, lines Wp elements long, the input of position n under the tap (y, x) is
/// element n + y Wp + x: every row of the matrix of columns is the image itself, shifted. So the product reads rows
/// that overlap, and results come for Wp positions per line, of which the last ones are dropped. A task takes some
/// lines of one image and group.
#include "conv_flat.h"

#include <stdatomic.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/parallel.h"
#include "engine/scratch.h"
#include "gemm_builtin.h"

#define FLAT_COLUMNS 1024

struct flat_task {
  const struct conv_shape *shape;
  char *out;
  const char *in, *weight, *bias;
  int64_t size;                       ///< bytes of an element
  int64_t in_channels, out_channels;  ///< of one group
  int64_t depth;                      ///< rows of the matrix
  int64_t pitch, reach;               ///< elements of a padded line; lines that the kernel reaches further
  int64_t lines, pieces;              ///< lines of a task, tasks of a plane
  int64_t *rows;                      ///< where the matrix's rows begin in the block
  atomic_bool failed;
};

static int64_t get_volume(const int64_t *sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

static int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

bool conv_flat_is_good(const struct conv_shape *s) {
  const int64_t pitch = s->out[2] + s->dilation[2] * (s->kernel[2] - 1), depth = s->in_channels / s->groups;
  return s->stride[1] == 1 && s->stride[2] == 1 && s->kernel[1] * s->kernel[2] > 1 && depth >= 16 &&
         s->out_channels / s->groups >= 16 && s->out[1] * s->out[2] >= 128 && pitch * 4 <= s->out[2] * 5;
}

bool conv_flat_reverse(const struct conv_shape *s, struct conv_shape *out) {
  *out = *s;
  out->in_channels = s->out_channels;
  out->out_channels = s->in_channels;
  for (int i = 0; i < 3; i++) {
    out->in[i] = s->out[i];
    out->out[i] = s->in[i];
    out->padding[i] = s->dilation[i] * (s->kernel[i] - 1) - s->padding[i];
    if (out->padding[i] < 0 || s->stride[i] != 1) {
      return false;
    }
  }
  return true;
}

void conv_flat_turn(const struct conv_shape *s, void *turned, const void *weight) {
  const int64_t taps = get_volume(s->kernel), size = s->wide ? 8 : 4;
  const int64_t in = s->in_channels / s->groups, out = s->out_channels / s->groups;
  for (int64_t g = 0; g < s->groups; g++) {
    for (int64_t o = 0; o < out; o++) {
      for (int64_t i = 0; i < in; i++) {
        const char *from = (const char *)weight + ((g * out + o) * in + i) * taps * size;
        char *to = (char *)turned + ((g * in + i) * out + o) * taps * size;
        for (int64_t k = 0; k < taps; k++) {
          memcpy(to + k * size, from + (taps - 1 - k) * size, (size_t)size);
        }
      }
    }
  }
}

/// Lines of a block per (channel, kernel plane).
static int64_t get_block_lines(const struct flat_task *task) {
  return task->lines + task->reach;
}

static bool make_rows(struct flat_task *task) {
  const struct conv_shape *s = task->shape;
  const int64_t plane = get_block_lines(task) * task->pitch, taps = s->kernel[1] * s->kernel[2];
  task->rows = dit_malloc(sizeof(int64_t) * (size_t)task->depth);
  for (int64_t k = 0; task->rows && k < task->depth; k++) {
    const int64_t y = k % taps / s->kernel[2], x = k % s->kernel[2];
    task->rows[k] = k / taps * plane + y * s->dilation[1] * task->pitch + x * s->dilation[2];
  }
  return task->rows != NULL;
}

/// The lines of one image and group that a task needs, with their padding.
static void fill_block(const struct flat_task *task, char *block, const char *in, int64_t depth, int64_t first,
                       int64_t lines) {
  const struct conv_shape *s = task->shape;
  const int64_t size = task->size, width = min_of(s->in[2], task->pitch - s->padding[2]);
  for (int64_t i = 0; i < task->in_channels * s->kernel[0]; i++) {
    const int64_t z = depth * s->stride[0] + i % s->kernel[0] * s->dilation[0] - s->padding[0];
    const bool outside = z < 0 || z >= s->in[0];
    const char *plane = outside ? in : in + (i / s->kernel[0] * s->in[0] + z) * s->in[1] * s->in[2] * size;
    char *line = block + i * get_block_lines(task) * task->pitch * size;
    for (int64_t h = 0; h < lines + task->reach; h++, line += task->pitch * size) {
      const int64_t y = first + h - s->padding[1];
      if (outside || y < 0 || y >= s->in[1]) {
        memset(line, 0, (size_t)(task->pitch * size));
        continue;
      }
      memset(line, 0, (size_t)(s->padding[2] * size));
      memcpy(line + s->padding[2] * size, plane + y * s->in[2] * size, (size_t)(width * size));
      memset(line + (s->padding[2] + width) * size, 0, (size_t)((task->pitch - s->padding[2] - width) * size));
    }
  }
}

/// Lines of the product to their places, with the bias.
#define STORE_LINES(type)                                                       \
  for (int64_t c = 0; c < task->out_channels; c++) {                            \
    const type bias = task->bias ? ((const type *)task->bias)[channel + c] : 0; \
    for (int64_t y = 0; y < lines; y++) {                                       \
      const type *from = (const type *)product + c * columns + y * task->pitch; \
      type *to = (type *)out + c * plane + y * s->out[2];                       \
      for (int64_t x = 0; x < s->out[2]; x++) {                                 \
        to[x] = from[x] + bias;                                                 \
      }                                                                         \
    }                                                                           \
  }

static void store_lines(const struct flat_task *task, char *out, const char *product, int64_t columns, int64_t lines,
                        int64_t channel) {
  const struct conv_shape *s = task->shape;
  const int64_t plane = get_volume(s->out);
  if (s->wide) {
    STORE_LINES(double)
  } else {
    STORE_LINES(float)
  }
}

static bool run_piece(const struct flat_task *task, int64_t number, char *block, char *product) {
  const struct conv_shape *s = task->shape;
  const int64_t piece = number % task->pieces, plane = number / task->pieces;
  const int64_t depth = plane % s->out[0], group = plane / s->out[0] % s->groups, image = plane / s->out[0] / s->groups;
  const int64_t first = piece * task->lines, lines = min_of(s->out[1] - first, task->lines);
  const int64_t channel = group * task->out_channels, columns = (lines - 1) * task->pitch + s->out[2];
  fill_block(task, block,
             task->in + (image * s->in_channels + group * task->in_channels) * get_volume(s->in) * task->size, depth,
             first, lines);
  const struct gemm_problem p = {.m = task->out_channels,
                                 .n = columns,
                                 .k = task->depth,
                                 .a = task->weight + channel * task->depth * task->size,
                                 .b = block,
                                 .c = product,
                                 .a_strides = {task->depth, 1},
                                 .c_strides = {columns, 1},
                                 .alpha = 1,
                                 .wide = s->wide};
  if (!gemm_blocked_rows(&p, task->rows)) {
    return false;
  }
  const int64_t at = (image * s->out_channels + channel) * get_volume(s->out) + (depth * s->out[1] + first) * s->out[2];
  store_lines(task, task->out + at * task->size, product, columns, lines, channel);
  return true;
}

static void run_pieces(void *context, int64_t begin, int64_t end) {
  struct flat_task *task = context;
  const int64_t block = task->in_channels * task->shape->kernel[0] * get_block_lines(task) * task->pitch;
  char *room = scratch_take((size_t)((block + task->out_channels * task->lines * task->pitch) * task->size));
  bool done = room != NULL;
  for (int64_t i = begin; done && i < end; i++) {
    done = run_piece(task, i, room, room + block * task->size);
  }
  scratch_give(room);
  if (!done) {
    atomic_store(&task->failed, true);
  }
}

bool conv_flat_forward(const struct conv_shape *shape, void *out, const void *in, const void *weight,
                       const void *bias) {
  struct flat_task task = {.shape = shape, .out = out, .in = in, .weight = weight, .bias = bias};
  task.size = shape->wide ? 8 : 4;
  task.in_channels = shape->in_channels / shape->groups;
  task.out_channels = shape->out_channels / shape->groups;
  task.depth = task.in_channels * get_volume(shape->kernel);
  task.pitch = shape->out[2] + shape->dilation[2] * (shape->kernel[2] - 1);
  task.reach = shape->dilation[1] * (shape->kernel[1] - 1);
  task.lines = min_of(FLAT_COLUMNS / task.pitch + 1, shape->out[1]);
  task.pieces = (shape->out[1] + task.lines - 1) / task.lines;
  if (!make_rows(&task)) {
    return false;
  }
  dit_parallel_for(0, shape->batch * shape->groups * shape->out[0] * task.pieces, 1, run_pieces, &task);
  dit_free(task.rows);
  return !atomic_load(&task.failed);
}
