/// copy and fill: the kernels that only move and convert elements.
///
/// copy: contiguous runs of one type are memcpy (short ones row by row in one loop, reversed ones in a loop of their
/// own), a run that is strided on one side and contiguous on the other in a second dimension is a blocked transpose,
/// the rest is gathered, converted and scattered in blocks. fill: the value is converted once.
#include <string.h>

#include "cast.h"
#include "dit/parallel.h"
#include "host.h"
#include "kernels.h"
#include "nest.h"
#include "scalar.h"
#include "simd.h"

struct copy_task {
  struct nest nest;
  int dst_dtype, src_dtype;
  int dst_width, src_width;
};

#define REVERSE_PARAMS (void *restrict dst, const void *restrict src, int64_t count)
#define REVERSE_LOOP(name, type)                  \
  KERNEL_INLINE void name##_body REVERSE_PARAMS { \
    type *d = dst;                                \
    const type *s = src;                          \
    for (int64_t i = 0; i < count; i++) {         \
      d[i] = s[-i];                               \
    }                                             \
  }                                               \
  KERNEL_MULTI(static, name, REVERSE_PARAMS, (dst, src, count))
REVERSE_LOOP(reverse_1, uint8_t)
REVERSE_LOOP(reverse_2, uint16_t)
REVERSE_LOOP(reverse_4, uint32_t)
REVERSE_LOOP(reverse_8, uint64_t)

/// dst[i] = src[-i]; false for widths without a loop.
static bool reverse(int width, void *dst, const void *src, int64_t count) {
  switch (width) {
    case 1:
      reverse_1(dst, src, count);
      return true;
    case 2:
      reverse_2(dst, src, count);
      return true;
    case 4:
      reverse_4(dst, src, count);
      return true;
    case 8:
      reverse_8(dst, src, count);
      return true;
    default:
      return false;
  }
}

static void copy_run(void *context, char *const *data, int64_t count) {
  const struct copy_task *task = context;
  const int64_t dst_stride = task->nest.strides[0][0], src_stride = task->nest.strides[1][0];
  if (task->dst_dtype == task->src_dtype) {
    if (dst_stride == task->dst_width && src_stride == -dst_stride &&
        reverse(task->dst_width, data[0], data[1], count)) {
      return;
    }
    cast_move(data[0], dst_stride, data[1], src_stride, task->dst_width, count);
    return;
  }
  if (dst_stride == task->dst_width && src_stride == task->src_width) {
    cast_block(task->dst_dtype, data[0], task->src_dtype, data[1], count);
    return;
  }
  _Alignas(16) char src_block[NEST_BLOCK * 16], dst_block[NEST_BLOCK * 16];
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    int64_t n = count - i < NEST_BLOCK ? count - i : NEST_BLOCK;
    cast_gather(src_block, data[1] + i * src_stride, src_stride, task->src_width, n);
    cast_block(task->dst_dtype, dst_block, task->src_dtype, src_block, n);
    cast_scatter(data[0] + i * dst_stride, dst_stride, dst_block, task->dst_width, n);
  }
}

// rows: short runs that are contiguous on both sides

#define ROW_BYTES 1024

struct row_task {
  struct nest nest;  ///< without the run
  int64_t bytes;
};

#define ROW_LOOP(size)                                      \
  for (int64_t i = 0; i < count; i++) {                     \
    memcpy(dst + i * dst_step, src + i * src_step, (size)); \
  }                                                         \
  break;

static void copy_rows(void *context, char *const *data, int64_t count) {
  const struct row_task *task = context;
  char *restrict dst = data[0];
  const char *restrict src = data[1];
  const int64_t dst_step = task->nest.strides[0][0], src_step = task->nest.strides[1][0];
  switch (task->bytes) {
    case 8:
      ROW_LOOP(8)
    case 16:
      ROW_LOOP(16)
    case 32:
      ROW_LOOP(32)
    case 64:
      ROW_LOOP(64)
    case 128:
      ROW_LOOP(128)
    default:
      ROW_LOOP((size_t)task->bytes)
  }
}

static bool is_rows(const struct copy_task *task) {
  const struct nest *nest = &task->nest;
  return task->dst_dtype == task->src_dtype && nest->ndim >= 2 && nest->strides[0][0] == task->dst_width &&
         nest->strides[1][0] == task->dst_width && nest->sizes[0] * task->dst_width <= ROW_BYTES;
}

static void walk_rows(void *context, int64_t begin, int64_t end) {
  const struct row_task *task = context;
  nest_walk(&task->nest, begin, end, copy_rows, context);
}

static void run_rows(const struct copy_task *copy) {
  struct row_task task = {.nest = copy->nest, .bytes = copy->nest.sizes[0] * copy->dst_width};
  struct nest *nest = &task.nest;
  for (int dim = 1; dim < nest->ndim; dim++) {
    nest->sizes[dim - 1] = nest->sizes[dim];
    nest->strides[0][dim - 1] = nest->strides[0][dim];
    nest->strides[1][dim - 1] = nest->strides[1][dim];
  }
  nest->ndim--;
  nest->numel = copy->nest.numel / copy->nest.sizes[0];
  dit_parallel_for(0, nest->numel, NEST_GRAIN / copy->nest.sizes[0] + 1, walk_rows, &task);
}

// Transposes

/// Square tiles go through a buffer that fits the first-level cache: every cache line of both sides is touched once,
/// also where the lines of a tile fall into the same cache set.
#define TILE 64
#define TILE_WIDE 32  ///< for elements of 8 bytes
#define TILE_LEAST 8
static int64_t get_tile(int width) {
  return width == 8 ? TILE_WIDE : TILE;
}

/// Squares of 16-byte vectors are turned in registers. A round interleaves row k with row k + count / 2, which moves
/// one bit of the row number into the column number; after log2(count) rounds they have changed places.
#if defined(__clang__)
#define MIX(vector, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MIX(vector, a, b, ...) __builtin_shuffle(a, b, (vector){__VA_ARGS__})
#endif
#define TURN_SQUARES(type, vector, count, low, high)                                          \
  for (; i + (count) <= inner; i += (count)) {                                                \
    for (int64_t j = 0; j + (count) <= outer; j += (count)) {                                 \
      vector a[count], b[count];                                                              \
      for (int k = 0; k < (count); k++) {                                                     \
        memcpy(&a[k], src + (i + k) * src_inner + j * (int64_t)sizeof(type), sizeof(vector)); \
      }                                                                                       \
      for (int round = 1; round < (count); round *= 2) {                                      \
        for (int k = 0; k < (count) / 2; k++) {                                               \
          b[2 * k] = low(vector, a[k], a[k + (count) / 2]);                                   \
          b[2 * k + 1] = high(vector, a[k], a[k + (count) / 2]);                              \
        }                                                                                     \
        memcpy(a, b, sizeof a);                                                               \
      }                                                                                       \
      for (int k = 0; k < (count); k++) {                                                     \
        memcpy(&tile[j + k][i], &a[k], sizeof(vector));                                       \
      }                                                                                       \
    }                                                                                         \
  }
/// dst contiguous along `inner`, src contiguous along `outer`; both at most `side`. What the squares leave over goes
/// element by element.
#define DEFINE_TILE(name, type, side, count, SQUARES)                                                                \
  static void name(char *dst, int64_t dst_outer, const char *src, int64_t src_inner, int64_t inner, int64_t outer) { \
    type tile[side][side];                                                                                           \
    int64_t i = 0;                                                                                                   \
    SQUARES                                                                                                          \
    const int64_t turned = i, from = outer - outer % (count);                                                        \
    for (i = 0; i < inner; i++) {                                                                                    \
      const type *row = (const type *)(src + i * src_inner);                                                         \
      for (int64_t j = i < turned ? from : 0; j < outer; j++) {                                                      \
        tile[j][i] = row[j];                                                                                         \
      }                                                                                                              \
    }                                                                                                                \
    for (int64_t j = 0; j < outer; j++) {                                                                            \
      memcpy(dst + j * dst_outer, tile[j], (size_t)inner * sizeof(type));                                            \
    }                                                                                                                \
  }
#define LOW_8(vector, a, b) MIX(vector, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_8(vector, a, b) MIX(vector, a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_4(vector, a, b) MIX(vector, a, b, 0, 4, 1, 5)
#define HIGH_4(vector, a, b) MIX(vector, a, b, 2, 6, 3, 7)
#define LOW_2(vector, a, b) MIX(vector, a, b, 0, 2)
#define HIGH_2(vector, a, b) MIX(vector, a, b, 1, 3)
typedef uint16_t vector_u16 __attribute__((vector_size(16)));
typedef uint32_t vector_u32 __attribute__((vector_size(16)));
typedef uint64_t vector_u64 __attribute__((vector_size(16)));
DEFINE_TILE(turn_1, uint8_t, TILE, 1, )
DEFINE_TILE(turn_2, uint16_t, TILE, 8, TURN_SQUARES(uint16_t, vector_u16, 8, LOW_8, HIGH_8))
DEFINE_TILE(turn_4, uint32_t, TILE, 4, TURN_SQUARES(uint32_t, vector_u32, 4, LOW_4, HIGH_4))
DEFINE_TILE(turn_8, uint64_t, TILE_WIDE, 2, TURN_SQUARES(uint64_t, vector_u64, 2, LOW_2, HIGH_2))

typedef void turn_function(char *dst, int64_t dst_outer, const char *src, int64_t src_inner, int64_t inner,
                           int64_t outer);
static turn_function *get_turn(int width) {
  return width == 1 ? turn_1 : width == 2 ? turn_2 : width == 4 ? turn_4 : turn_8;
}

void cast_turn(char *dst, int64_t dst_outer, const char *src, int64_t src_inner, int width, int64_t inner,
               int64_t outer) {
  get_turn(width)(dst, dst_outer, src, src_inner, inner, outer);
}

/// A tile that changes its dtype on the way is converted into a room first, run by run as it lies in src.
static void turn_converted(const struct copy_task *task, char *dst, const char *src, int64_t inner, int64_t outer) {
  _Alignas(16) char room[TILE * TILE * 4];  // of TILE_WIDE elements of 8 bytes, too
  const int64_t step = outer * task->dst_width;
  for (int64_t i = 0; i < inner; i++) {
    cast_block(task->dst_dtype, room + i * step, task->src_dtype, src + i * task->nest.strides[1][0], outer);
  }
  get_turn(task->dst_width)(dst, task->nest.strides[0][1], room, step, inner, outer);
}

static bool is_transpose(const struct copy_task *task) {
  const struct nest *nest = &task->nest;
  return nest->ndim >= 2 && task->dst_width <= 8 && nest->strides[0][0] == task->dst_width &&
         nest->strides[1][1] == task->src_width && nest->sizes[0] >= TILE_LEAST && nest->sizes[1] >= TILE_LEAST;
}

struct band_task {
  const struct copy_task *copy;
  int64_t bands;  ///< per matrix
};

/// Tasks are bands of one tile's steps of dimension 1; the dimensions above select the matrix.
static void transpose_bands(void *context, int64_t begin, int64_t end) {
  const struct band_task *task = context;
  const struct nest *nest = &task->copy->nest;
  const int width = task->copy->dst_width;
  const int64_t tile = get_tile(width);
  turn_function *turn = get_turn(width);
  const bool is_converted = task->copy->dst_dtype != task->copy->src_dtype;
  for (int64_t band = begin; band < end; band++) {
    char *dst = nest->data[0];
    const char *src = nest->data[1];
    int64_t rest = band / task->bands, first = band % task->bands * tile;
    for (int dim = 2; dim < nest->ndim; dim++) {
      dst += rest % nest->sizes[dim] * nest->strides[0][dim];
      src += rest % nest->sizes[dim] * nest->strides[1][dim];
      rest /= nest->sizes[dim];
    }
    int64_t outer = nest->sizes[1] - first < tile ? nest->sizes[1] - first : tile;
    dst += first * nest->strides[0][1];
    src += first * nest->strides[1][1];
    for (int64_t i = 0; i < nest->sizes[0]; i += tile) {
      int64_t inner = nest->sizes[0] - i < tile ? nest->sizes[0] - i : tile;
      if (is_converted) {
        turn_converted(task->copy, dst + i * width, src + i * nest->strides[1][0], inner, outer);
      } else {
        turn(dst + i * width, nest->strides[0][1], src + i * nest->strides[1][0], nest->strides[1][0], inner, outer);
      }
    }
  }
}

/// A run of a few elements that is not contiguous on both sides: the second dimension is walked first where it is
/// longer.
static void lengthen_run(struct nest *nest) {
  if (nest->ndim < 2 || nest->sizes[0] >= TILE_LEAST || nest->sizes[1] <= nest->sizes[0]) {
    return;
  }
  const int64_t size = nest->sizes[0];
  nest->sizes[0] = nest->sizes[1];
  nest->sizes[1] = size;
  for (int i = 0; i < 2; i++) {
    const int64_t stride = nest->strides[i][0];
    nest->strides[i][0] = nest->strides[i][1];
    nest->strides[i][1] = stride;
  }
}

static void copy_all(void *argument) {
  struct copy_task *task = argument;
  if (is_transpose(task)) {
    const int64_t tile = get_tile(task->dst_width);
    struct band_task bands = {task, (task->nest.sizes[1] + tile - 1) / tile};
    int64_t count = bands.bands;
    for (int dim = 2; dim < task->nest.ndim; dim++) {
      count *= task->nest.sizes[dim];
    }
    int64_t grain = NEST_GRAIN / (tile * task->nest.sizes[0]);
    dit_parallel_for(0, count, grain, transpose_bands, &bands);
    return;
  }
  if (is_rows(task)) {
    run_rows(task);
    return;
  }
  lengthen_run(&task->nest);
  nest_run(&task->nest, copy_run, task);
}

enum dit_status kernel_copy(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                            struct dit_error *err) {
  if (!cast_is_supported(out->dtype, in->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (out->numel == 0) {
    return DIT_OK;
  }
  if (!stream && out->flags & in->flags & DIT_TENSOR_CONTIGUOUS && out->numel <= NEST_GRAIN) {
    if (out->data != in->data) {
      cast_block(out->dtype, out->data, in->dtype, in->data, out->numel);
    }
    return DIT_OK;
  }
  struct copy_task task;
  nest_init(&task.nest, 2, (const struct dit_tensor_view *const[]){out, in});
  task.dst_dtype = out->dtype;
  task.src_dtype = in->dtype;
  task.dst_width = (int)dit_dtype_get_size(out->dtype);
  task.src_width = (int)dit_dtype_get_size(in->dtype);
  return host_stream_launch(stream, copy_all, &task, sizeof(task), err);
}

struct fill_task {
  struct nest nest;
  int width;
  _Alignas(16) char value[16];
};

static void fill_run(void *context, char *const *data, int64_t count) {
  const struct fill_task *task = context;
  const int64_t stride = task->nest.strides[0][0];
  if (stride != task->width) {
    cast_move(data[0], stride, task->value, 0, task->width, count);
    return;
  }
  bool uniform = true;
  for (int i = 1; i < task->width; i++) {
    uniform = uniform && task->value[i] == task->value[0];
  }
  if (uniform) {
    memset(data[0], task->value[0], (size_t)(count * task->width));
  } else {
    cast_move(data[0], task->width, task->value, 0, task->width, count);
  }
}

static void fill_all(void *argument) {
  struct fill_task *task = argument;
  nest_run(&task->nest, fill_run, task);
}

enum dit_status kernel_fill(void *stream, const struct dit_tensor_view *out, struct dit_scalar value,
                            struct dit_error *err) {
  struct fill_task task;
  memset(task.value, 0, sizeof(task.value));
  if (!kernel_store_scalar(value, out->dtype, task.value)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (out->numel == 0) {
    return DIT_OK;
  }
  task.width = (int)dit_dtype_get_size(out->dtype);
  if (!stream && out->flags & DIT_TENSOR_CONTIGUOUS && out->numel <= NEST_GRAIN) {
    char *data = out->data;
    task.nest.strides[0][0] = task.width;
    dit_memory_access_begin();
    fill_run(&task, &data, out->numel);
    dit_memory_access_end();
    return DIT_OK;
  }
  nest_init(&task.nest, 1, &out);
  return host_stream_launch(stream, fill_all, &task, sizeof(task), err);
}
