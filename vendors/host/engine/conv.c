/// Convolution (see conv.h): columns of the image times the weights, in pieces that stay in the cache.
///
/// One piece covers some lines of one image, or several whole images where those are small, so that every matrix
/// product is large enough. With stride 1 the padded image serves as its own columns (conv_flat.c). Kernels of one
/// element read the image as it lies; one input channel per group has loops of its own (conv_depthwise.c). Gradients:
/// of the input, the columns of weight^T @ grad_out added back; of the weight, grad_out @ columns^T summed over all
/// pieces by one task per block of channels.
#include "conv.h"

#include <stdatomic.h>
#include <string.h>

#include "conv_depthwise.h"
#include "conv_flat.h"
#include "dit/parallel.h"
#include "engine/scratch.h"
#include "gemm.h"
#include "simd.h"

#define CONV_LANES 16
#define CONV_RUN 4096
#define CONV_PIECE (INT64_C(1) << 20)  // bytes of columns
#define CONV_SMALL 256                 // positions below which images are taken together

/// One element of the kernel: which output positions of a line it has inputs for, and where those begin.
struct conv_tap {
  int64_t depth, height;  ///< position in the input relative to output position * stride
  int64_t begin, end;     ///< output positions
  int64_t from;           ///< input position of `begin`
};

static int64_t divide_up(int64_t a, int64_t b) {
  return a > 0 ? (a + b - 1) / b : 0;
}

static int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static void conv_set_tap(const struct conv_shape *s, int64_t index, struct conv_tap *tap) {
  const int64_t x = index % s->kernel[2], y = index / s->kernel[2] % s->kernel[1];
  const int64_t z = index / s->kernel[2] / s->kernel[1];
  const int64_t offset = x * s->dilation[2] - s->padding[2];
  tap->depth = z * s->dilation[0] - s->padding[0];
  tap->height = y * s->dilation[1] - s->padding[1];
  tap->begin = min_of(divide_up(-offset, s->stride[2]), s->out[2]);
  tap->end = min_of(divide_up(s->in[2] - offset, s->stride[2]), s->out[2]);
  tap->end = tap->end < tap->begin ? tap->begin : tap->end;
  tap->from = tap->begin * s->stride[2] + offset;
}

/// Number of the input line under a tap for an output line; -1 outside.
KERNEL_INLINE int64_t conv_find_line(const struct conv_shape *s, const struct conv_tap *tap, int64_t line) {
  const int64_t above = s->out[0] == 1 ? 0 : line / s->out[1];
  const int64_t depth = above * s->stride[0] + tap->depth;
  const int64_t height = (line - above * s->out[1]) * s->stride[1] + tap->height;
  return depth < 0 || depth >= s->in[0] || height < 0 || height >= s->in[1] ? -1 : depth * s->in[1] + height;
}

#define REAL float
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#include "conv_loops.h"
#define REAL double
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#include "conv_loops.h"

static int64_t get_volume(const int64_t *sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

/// How the work is cut, and the arrays in the roles of one of the four functions.
struct conv_task {
  const struct conv_shape *shape;
  char *result;
  const char *x, *weight, *bias;      ///< x: in or grad_out
  const char *in;                     ///< of the weight's gradient
  int64_t size;                       ///< bytes of an element
  int64_t in_channels, out_channels;  ///< of one group
  int64_t taps, depth;                ///< kernel elements; rows of the columns
  int64_t in_plane, out_plane;        ///< positions
  int64_t images, sets;               ///< images taken together, and how many such sets
  int64_t lines, pieces;              ///< lines of a piece, and pieces of an image
  int64_t channels;                   ///< input channels of one task of the weight's gradient
  bool direct;                        ///< the image is its own columns
  atomic_bool failed;
};

static void init_task(struct conv_task *task, const struct conv_shape *s) {
  memset(task, 0, sizeof *task);
  task->shape = s;
  task->size = s->wide ? 8 : 4;
  task->in_channels = s->in_channels / s->groups;
  task->out_channels = s->out_channels / s->groups;
  task->taps = get_volume(s->kernel);
  task->depth = task->in_channels * task->taps;
  task->in_plane = get_volume(s->in);
  task->out_plane = get_volume(s->out);
  const int64_t lines = s->out[0] * s->out[1], budget = CONV_PIECE / task->size / (task->depth + 1) + 1;
  task->direct = task->taps == 1;
  for (int i = 0; i < 3; i++) {
    // a transposed convolution with output_padding has an image that is larger than what the kernel reaches
    task->direct = task->direct && s->stride[i] == 1 && s->padding[i] == 0 && s->in[i] == s->out[i];
  }
  task->images = 1;
  task->lines = task->direct ? lines : min_of(budget / s->out[2] + 1, lines);
  if (task->out_plane < CONV_SMALL && s->batch > 1) {
    // as many as make a good product; the weights are read once for all of them
    task->images = min_of(2 * CONV_SMALL / task->out_plane + 1, s->batch);
    task->lines = lines;
  }
  task->direct = task->direct && task->images == 1;
  task->sets = divide_up(s->batch, task->images);
  task->pieces = divide_up(lines, task->lines);
}

/// Room for one task: the columns, and (several images) the matrix of their results.
static char *reserve(struct conv_task *task, int64_t rows, int64_t side) {
  const int64_t positions = task->images * task->lines * task->shape->out[2];
  char *room = scratch_take((size_t)((rows + side) * positions * task->size + 64));
  if (!room) {
    atomic_store(&task->failed, true);
  }
  return room;
}

static void gather_lines(const struct conv_task *task, int64_t channels, const char *in, int64_t first, int64_t last,
                         char *columns, int64_t ld) {
  if (task->shape->wide) {
    gather_f64(task->shape, channels, (const double *)in, first, last, (double *)columns, ld);
  } else {
    gather_f32(task->shape, channels, (const float *)in, first, last, (float *)columns, ld);
  }
}

static void scatter_lines(const struct conv_task *task, int64_t channels, char *in, int64_t first, int64_t last,
                          const char *columns, int64_t ld) {
  if (task->shape->wide) {
    scatter_f64(task->shape, channels, (double *)in, first, last, (const double *)columns, ld);
  } else {
    scatter_f32(task->shape, channels, (float *)in, first, last, (const float *)columns, ld);
  }
}

/// `count` elements = value number `index` of `bias`, or 0.
static void fill_plane(const struct conv_task *task, char *plane, int64_t count, int64_t index) {
  if (task->shape->wide) {
    set_line_f64((double *)plane, task->bias ? ((const double *)task->bias)[index] : 0, count);
  } else {
    set_line_f32((float *)plane, task->bias ? ((const float *)task->bias)[index] : 0, count);
  }
}

/// One piece: which images, which lines, how many columns.
struct piece {
  int64_t image, images, first, last, columns, group;
};

static struct piece get_piece(const struct conv_task *task, int64_t set, int64_t number, int64_t group) {
  const int64_t lines = task->shape->out[0] * task->shape->out[1];
  struct piece piece = {.image = set * task->images, .first = number * task->lines, .group = group};
  piece.images = min_of(task->images, task->shape->batch - piece.image);
  piece.last = min_of(piece.first + task->lines, lines);
  piece.columns = piece.images * (piece.last - piece.first) * task->shape->out[2];
  return piece;
}

static const char *get_in(const struct conv_task *task, const char *in, int64_t image, int64_t group) {
  return in + (image * task->shape->in_channels + group * task->in_channels) * task->in_plane * task->size;
}

static int64_t get_out_offset(const struct conv_task *task, const struct piece *piece, int64_t image) {
  return ((image * task->shape->out_channels + piece->group * task->out_channels) * task->out_plane +
          piece->first * task->shape->out[2]) *
         task->size;
}

/// Columns of `channels` channels from `channel` on, of every image of the piece side by side.
static void gather_piece(const struct conv_task *task, const struct piece *piece, const char *in, int64_t channel,
                         int64_t channels, char *columns) {
  const int64_t one = piece->columns / piece->images;
  for (int64_t i = 0; i < piece->images; i++) {
    gather_lines(task, channels,
                 get_in(task, in, piece->image + i, piece->group) + channel * task->in_plane * task->size, piece->first,
                 piece->last, columns + i * one * task->size, piece->columns);
  }
}

/// out (images apart) to or from one matrix (out_channels x columns).
static void move_side(const struct conv_task *task, const struct piece *piece, char *out, char *side, bool to_out) {
  const int64_t one = task->out_plane * task->size;
  for (int64_t i = 0; i < piece->images; i++) {
    char *image = out + get_out_offset(task, piece, piece->image + i);
    for (int64_t c = 0; c < task->out_channels; c++) {
      char *row = side + (c * piece->columns * task->size + i * one);
      memcpy(to_out ? image + c * one : row, to_out ? row : image + c * one, (size_t)one);
    }
  }
}

// Forward

static void forward_piece(struct conv_task *task, const struct piece *piece, char *columns, char *side) {
  const struct conv_shape *s = task->shape;
  const char *image = get_in(task, task->x, piece->image, piece->group);
  char *out = task->result + get_out_offset(task, piece, piece->image);
  if (!task->direct) {
    gather_piece(task, piece, task->x, 0, task->in_channels, columns);
  }
  struct gemm_problem p = {.m = task->out_channels,
                           .n = piece->columns,
                           .k = task->depth,
                           .a = task->weight + piece->group * task->out_channels * task->depth * task->size,
                           .b = task->direct ? image + piece->first * s->out[2] * task->size : columns,
                           .c = piece->images > 1 ? side : out,
                           .a_strides = {task->depth, 1},
                           .b_strides = {task->direct ? task->in_plane : piece->columns, 1},
                           .c_strides = {piece->images > 1 ? piece->columns : task->out_plane, 1},
                           .alpha = 1,
                           .beta = task->bias ? 1 : 0,
                           .wide = s->wide};
  if (task->bias) {
    for (int64_t c = 0; c < task->out_channels; c++) {
      fill_plane(task, (char *)p.c + c * p.c_strides[0] * task->size, piece->columns,
                 piece->group * task->out_channels + c);
    }
  }
  gemm_multiply(&p);
  if (piece->images > 1) {
    move_side(task, piece, task->result, side, true);
  }
}

static void run_forward(void *context, int64_t begin, int64_t end) {
  struct conv_task *task = context;
  const int64_t rows = task->direct ? 0 : task->depth, groups = task->shape->groups;
  char *room = reserve(task, rows, task->images > 1 ? task->out_channels : 0);
  if (!room) {
    return;
  }
  char *side = room + rows * task->images * task->lines * task->shape->out[2] * task->size;
  for (int64_t i = begin; i < end; i++) {
    const struct piece piece = get_piece(task, i / task->pieces / groups, i % task->pieces, i / task->pieces % groups);
    forward_piece(task, &piece, room, side);
  }
  scratch_give(room);
}

bool conv_forward(const struct conv_shape *shape, void *out, const void *in, const void *weight, const void *bias) {
  struct conv_task task;
  if (shape->batch == 0 || shape->out_channels == 0 || get_volume(shape->out) == 0) {
    return true;
  }
  init_task(&task, shape);
  task.result = out;
  task.x = in;
  task.weight = weight;
  task.bias = bias;
  if (task.depth == 0) {
    for (int64_t i = 0; i < shape->batch * shape->out_channels; i++) {
      fill_plane(&task, task.result + i * task.out_plane * task.size, task.out_plane, i % shape->out_channels);
    }
    return true;
  }
  if (conv_is_depthwise(shape)) {
    return conv_depthwise_forward(shape, out, in, weight, bias);
  }
  if (conv_flat_is_good(shape)) {
    return conv_flat_forward(shape, out, in, weight, bias);
  }
  dit_parallel_for(0, task.sets * shape->groups * task.pieces, 1, run_forward, &task);
  return !atomic_load(&task.failed);
}

// Gradient of the input

static void input_piece(struct conv_task *task, const struct piece *piece, char *columns, char *side) {
  const struct conv_shape *s = task->shape;
  char *image = (char *)get_in(task, task->result, piece->image, piece->group);
  const char *grad = task->x + get_out_offset(task, piece, piece->image);
  if (piece->images > 1) {
    move_side(task, piece, (char *)task->x, side, false);
  }
  struct gemm_problem p = {.m = task->depth,
                           .n = piece->columns,
                           .k = task->out_channels,
                           .a = task->weight + piece->group * task->out_channels * task->depth * task->size,
                           .b = piece->images > 1 ? side : grad,
                           .c = task->direct ? image + piece->first * s->out[2] * task->size : columns,
                           .a_strides = {1, task->depth},
                           .b_strides = {piece->images > 1 ? piece->columns : task->out_plane, 1},
                           .c_strides = {task->direct ? task->in_plane : piece->columns, 1},
                           .alpha = 1,
                           .beta = task->direct && task->bias ? 1 : 0,
                           .wide = s->wide};
  gemm_multiply(&p);
  if (!task->direct) {
    const int64_t one = piece->columns / piece->images;
    for (int64_t i = 0; i < piece->images; i++) {
      scatter_lines(task, task->in_channels, (char *)get_in(task, task->result, piece->image + i, piece->group),
                    piece->first, piece->last, columns + i * one * task->size, piece->columns);
    }
  }
}

static void run_input(void *context, int64_t begin, int64_t end) {
  struct conv_task *task = context;
  const int64_t rows = task->direct ? 0 : task->depth, groups = task->shape->groups;
  char *room = reserve(task, rows, task->images > 1 ? task->out_channels : 0);
  if (!room) {
    return;
  }
  char *side = room + rows * task->images * task->lines * task->shape->out[2] * task->size;
  for (int64_t i = begin; i < end; i++) {
    for (int64_t number = 0; number < task->pieces; number++) {
      const struct piece piece = get_piece(task, i / groups, number, i % groups);
      input_piece(task, &piece, room, side);
    }
  }
  scratch_give(room);
}

/// A stride of 1: the gradient is a convolution of grad_out with the kernels turned around.
static bool run_reverse(const struct conv_shape *shape, const struct conv_shape *reverse, void *grad_in,
                        const void *grad_out, const void *weight, const void *bias) {
  const int64_t weights = shape->out_channels * (shape->in_channels / shape->groups) * get_volume(shape->kernel);
  void *turned = scratch_take((size_t)(weights * (shape->wide ? 8 : 4)));
  if (!turned) {
    return false;
  }
  conv_flat_turn(shape, turned, weight);
  const bool done = conv_flat_forward(reverse, grad_in, grad_out, turned, bias);
  scratch_give(turned);
  return done;
}

bool conv_backward_input(const struct conv_shape *shape, void *grad_in, const void *grad_out, const void *weight,
                         const void *bias) {
  struct conv_task task;
  if (shape->batch == 0 || shape->in_channels == 0 || get_volume(shape->in) == 0) {
    return true;
  }
  const bool empty = shape->out_channels == 0 || get_volume(shape->out) == 0;
  struct conv_shape reverse;
  if (!empty && conv_is_depthwise(shape)) {
    return conv_depthwise_backward_input(shape, grad_in, grad_out, weight, bias);
  }
  if (!empty && conv_flat_reverse(shape, &reverse) && conv_flat_is_good(&reverse)) {
    return run_reverse(shape, &reverse, grad_in, grad_out, weight, bias);
  }
  struct conv_shape filled = *shape;
  for (int i = 0; i < 3; i++) {
    filled.out[i] = shape->out[i] > 0 ? shape->out[i] : 1;
  }
  init_task(&task, &filled);
  task.result = grad_in;
  task.x = grad_out;
  task.weight = weight;
  task.bias = bias;
  const bool adds = !task.direct || bias;
  for (int64_t i = 0; (empty || adds) && i < shape->batch * shape->in_channels; i++) {
    fill_plane(&task, task.result + i * task.in_plane * task.size, task.in_plane, i % shape->in_channels);
  }
  if (empty) {
    return true;
  }
  dit_parallel_for(0, task.sets * shape->groups, 1, run_input, &task);
  return !atomic_load(&task.failed);
}

// Gradient of the weight

static void weight_piece(struct conv_task *task, const struct piece *piece, int64_t channel, int64_t channels,
                         char *columns, char *side, bool first) {
  const char *image = get_in(task, task->in, piece->image, piece->group);
  const char *grad = task->x + get_out_offset(task, piece, piece->image);
  if (!task->direct) {
    gather_piece(task, piece, task->in, channel, channels, columns);
  }
  if (piece->images > 1) {
    move_side(task, piece, (char *)task->x, side, false);
  }
  const int64_t weights = piece->group * task->out_channels * task->depth + channel * task->taps;
  struct gemm_problem p = {.m = task->out_channels,
                           .n = channels * task->taps,
                           .k = piece->columns,
                           .a = piece->images > 1 ? side : grad,
                           .b = task->direct ? image + channel * task->in_plane * task->size : columns,
                           .c = task->result + weights * task->size,
                           .a_strides = {piece->images > 1 ? piece->columns : task->out_plane, 1},
                           .b_strides = {1, task->direct ? task->in_plane : piece->columns},
                           .c_strides = {task->depth, 1},
                           .alpha = 1,
                           .beta = first ? 0 : 1,
                           .wide = task->shape->wide};
  gemm_multiply(&p);
}

static void run_weight(void *context, int64_t begin, int64_t end) {
  struct conv_task *task = context;
  const int64_t rows = task->direct ? 0 : task->channels * task->taps;
  const int64_t blocks = divide_up(task->in_channels, task->channels);
  char *room = reserve(task, rows, task->images > 1 ? task->out_channels : 0);
  if (!room) {
    return;
  }
  char *side = room + rows * task->images * task->lines * task->shape->out[2] * task->size;
  for (int64_t i = begin; i < end; i++) {
    const int64_t channel = i % blocks * task->channels, channels = min_of(task->in_channels - channel, task->channels);
    for (int64_t j = 0; j < task->sets * task->pieces; j++) {
      const struct piece piece = get_piece(task, j / task->pieces, j % task->pieces, i / blocks);
      weight_piece(task, &piece, channel, channels, room, side, j == 0);
    }
  }
  scratch_give(room);
}

bool conv_backward_weight(const struct conv_shape *shape, void *grad_weight, const void *grad_out, const void *in) {
  struct conv_task task;
  const int64_t count = shape->out_channels * (shape->in_channels / shape->groups) * get_volume(shape->kernel);
  if (count == 0) {
    return true;
  }
  if (shape->batch == 0 || get_volume(shape->out) == 0 || get_volume(shape->in) == 0) {
    memset(grad_weight, 0, (size_t)(count * (shape->wide ? 8 : 4)));
    return true;
  }
  if (conv_is_depthwise(shape)) {
    return conv_depthwise_backward_weight(shape, grad_weight, grad_out, in);
  }
  init_task(&task, shape);
  task.result = grad_weight;
  task.x = grad_out;
  task.in = in;
  int64_t blocks = task.depth / CONV_SMALL;
  blocks = blocks > 8 ? 8 : blocks < 1 ? 1 : blocks;
  task.channels = divide_up(task.in_channels, blocks);
  dit_parallel_for(0, shape->groups * divide_up(task.in_channels, task.channels), 1, run_weight, &task);
  return !atomic_load(&task.failed);
}

// Sums and columns

struct sum_task {
  char *sums;
  const char *x;
  int64_t batch, channels, positions;
  bool wide;
};

static void run_sums(void *context, int64_t begin, int64_t end) {
  const struct sum_task *task = context;
  for (int64_t channel = begin; channel < end; channel++) {
    double sum = 0;
    for (int64_t image = 0; image < task->batch; image++) {
      const int64_t at = (image * task->channels + channel) * task->positions;
      if (task->wide) {
        add_total_f64(&sum, (const double *)task->x + at, task->positions);
      } else {
        add_total_f32(&sum, (const float *)task->x + at, task->positions);
      }
    }
    if (task->wide) {
      ((double *)task->sums)[channel] = sum;
    } else {
      ((float *)task->sums)[channel] = (float)sum;
    }
  }
}

void conv_sum_channels(bool wide, void *sums, const void *x, int64_t batch, int64_t channels, int64_t positions) {
  struct sum_task task = {sums, x, batch, channels, positions, wide};
  dit_parallel_for(0, channels, 65536 / (batch * positions + 1) + 1, run_sums, &task);
}

void conv_gather(const struct conv_shape *shape, int64_t channels, void *columns, const void *in) {
  const struct conv_task task = {.shape = shape};
  gather_lines(&task, channels, in, 0, shape->out[0] * shape->out[1], columns, get_volume(shape->out));
}

void conv_scatter(const struct conv_shape *shape, int64_t channels, void *in, const void *columns) {
  const struct conv_task task = {.shape = shape};
  memset(in, 0, (size_t)(channels * get_volume(shape->in) * (shape->wide ? 8 : 4)));
  scatter_lines(&task, channels, in, 0, shape->out[0] * shape->out[1], columns, get_volume(shape->out));
}
