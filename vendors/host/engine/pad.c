/// Lines made of pieces (see pad.h). A line of the result is written from its first element to its last, so that each
/// cache line is touched once; copies per piece would touch the ends of every line again for two elements.
#include "pad.h"

#include <string.h>

#include "dit/parallel.h"
#include "host.h"
#include "nest.h"

/// Elements by their width; tensors of any dtype are seen as these.
typedef uint8_t value_1 __attribute__((may_alias));
typedef uint16_t value_2 __attribute__((may_alias));
typedef uint32_t value_4 __attribute__((may_alias));
typedef uint64_t value_8 __attribute__((may_alias));
typedef struct __attribute__((may_alias)) {
  uint64_t part[2];
} value_16;

struct pad_task {
  char *out;
  const char *in;
  int ndim, width;
  int64_t sizes[DIT_MAX_DIMS], out_strides[DIT_MAX_DIMS], in_strides[DIT_MAX_DIMS];  ///< strides in bytes
  int64_t lines;
  _Alignas(16) char element[16];
  struct pieces pieces;
  int order[3];  ///< of the last dimension's pieces in the result
};

/// Bytes apart, modulo a page, below which a load waits for stores that it does not depend on.
#define PAGE_NEAR 256

/// At least 16 bytes. Where the target is a little behind the source within the page, from the end on: a copy forwards
/// would load what looks to the processor like what it has just stored.
static inline void copy_bytes(char *out, const char *in, int64_t bytes) {
  const uintptr_t apart = ((uintptr_t)out - (uintptr_t)in) & 4095;
  int64_t i = 0;
  if (bytes > 512 && apart - 1 >= PAGE_NEAR) {
    memcpy(out, in, (size_t)bytes);
    return;
  }
  if (bytes > 512) {
    for (i = bytes; i >= 16; i -= 16) {
      memcpy(out + i - 16, in + i - 16, 16);
    }
    memcpy(out, in, 16);
    return;
  }
  for (; i + 16 <= bytes; i += 16) {
    memcpy(out + i, in + i, 16);
  }
  memcpy(out + bytes - 16, in + bytes - 16, 16);
}

/// `count` lines, `out_step` and `in_step` bytes apart.
struct lines {
  char *out;
  const char *in;  ///< NULL: of the element alone
  int64_t out_step, in_step, count;
};

/// One version per width of elements.
#define LINES(width, value)                                                                      \
  static void write_lines_##width(const struct pad_task *task, const struct lines *l) {          \
    const int last = task->ndim - 1, pieces = l->in ? task->pieces.count[last] : 0;              \
    const int64_t size = task->sizes[last];                                                      \
    const value element = *(const value *)task->element;                                         \
    struct piece sorted[3];                                                                      \
    for (int i = 0; i < pieces; i++) {                                                           \
      sorted[i] = task->pieces.piece[last][task->order[i]];                                      \
    }                                                                                            \
    for (int64_t line = 0; line < l->count; line++) {                                            \
      value *out = (value *)(l->out + line * l->out_step);                                       \
      int64_t done = 0;                                                                          \
      for (int i = 0; i < pieces; i++) {                                                         \
        const struct piece *p = &sorted[i];                                                      \
        const value *in = (const value *)(l->in + line * l->in_step) + p->from;                  \
        for (; done < p->to; done++) {                                                           \
          out[done] = element;                                                                   \
        }                                                                                        \
        done += p->count;                                                                        \
        if (p->step == 1 && p->count * (int64_t)sizeof(value) >= 16) {                           \
          copy_bytes((char *)(out + p->to), (const char *)in, p->count *(int64_t)sizeof(value)); \
          continue;                                                                              \
        }                                                                                        \
        for (int64_t k = 0; k < p->count; k++, in += p->step) {                                  \
          out[p->to + k] = *in;                                                                  \
        }                                                                                        \
      }                                                                                          \
      for (; done < size; done++) {                                                              \
        out[done] = element;                                                                     \
      }                                                                                          \
    }                                                                                            \
  }
LINES(1, value_1)
LINES(2, value_2)
LINES(4, value_4)
LINES(8, value_8)
LINES(16, value_16)

typedef void line_writer(const struct pad_task *task, const struct lines *lines);
static line_writer *find_writer(int width) {
  return width == 1   ? write_lines_1
         : width == 2 ? write_lines_2
         : width == 4 ? write_lines_4
         : width == 8 ? write_lines_8
                      : write_lines_16;
}

/// The piece of dimension `dim` that shows index `at`, or NULL; *end: where it, or the gap, ends.
static const struct piece *find_piece(const struct pad_task *task, int dim, int64_t at, int64_t *end) {
  *end = task->sizes[dim];
  for (int i = 0; i < task->pieces.count[dim]; i++) {
    const struct piece *piece = &task->pieces.piece[dim][i];
    if (at >= piece->to && at < piece->to + piece->count) {
      *end = piece->to + piece->count;
      return piece;
    }
    if (piece->count > 0 && piece->to > at && piece->to < *end) {
      *end = piece->to;
    }
  }
  return NULL;
}

static int64_t place(const struct pad_task *task, int dim, const struct piece *piece, int64_t at) {
  return (piece->from + (at - piece->to) * piece->step) * task->in_strides[dim];
}

/// Lines `at` to `stop` of the dimension before the last one; `in` NULL: none of them shows the input.
static void write_range(const struct pad_task *task, char *out, const char *in, int64_t at, int64_t stop) {
  const int middle = task->ndim - 2;
  line_writer *const write_lines = find_writer(task->width);
  while (at < stop) {
    int64_t end;
    const struct piece *piece = find_piece(task, middle, at, &end);
    end = end < stop ? end : stop;
    const struct lines lines = {.out = out + at * task->out_strides[middle],
                                .in = in && piece ? in + place(task, middle, piece, at) : NULL,
                                .out_step = task->out_strides[middle],
                                .in_step = piece ? piece->step * task->in_strides[middle] : 0,
                                .count = end - at};
    write_lines(task, &lines);
    at = end;
  }
}

/// Lines [begin, end), counted in row-major order.
static void run_lines(void *context, int64_t begin, int64_t end) {
  const struct pad_task *task = context;
  const int middle = task->ndim - 2;
  if (middle < 0) {
    find_writer(task->width)(task, &(struct lines){task->out, task->in, 0, 0, 1});
    return;
  }
  for (int64_t line = begin; line < end;) {
    const int64_t steps = task->sizes[middle], at = line % steps;
    const int64_t stop = end - line < steps - at ? at + end - line : steps;
    int64_t rest = line / steps, unused;
    const char *in = task->in;
    char *out = task->out;
    for (int dim = middle - 1; dim >= 0; dim--) {
      const int64_t index = rest % task->sizes[dim];
      const struct piece *piece = find_piece(task, dim, index, &unused);
      rest /= task->sizes[dim];
      out += index * task->out_strides[dim];
      in = in && piece ? in + place(task, dim, piece, index) : NULL;
    }
    write_range(task, out, in, at, stop);
    line += stop - at;
  }
}

static void run_pad(void *argument) {
  struct pad_task *task = argument;
  dit_parallel_for(0, task->lines, NEST_GRAIN / (task->sizes[task->ndim - 1] + 1) + 1, run_lines, task);
}

bool pad_has_lines(const struct dit_tensor_view *out, const struct dit_tensor_view *in) {
  return out->ndim > 0 && in->numel > 0 && out->numel > 0 && out->strides[out->ndim - 1] == 1 &&
         in->strides[in->ndim - 1] == 1;
}

static void sort_pieces(struct pad_task *task) {
  const int last = task->ndim - 1;
  for (int i = 0; i < task->pieces.count[last]; i++) {
    int place = 0;
    for (int j = 0; j < task->pieces.count[last]; j++) {
      place += task->pieces.piece[last][j].to < task->pieces.piece[last][i].to;
    }
    task->order[place] = i;
  }
}

enum dit_status pad_lines(void *stream, const struct dit_tensor_view *out, const struct dit_tensor_view *in,
                          const struct pieces *pieces, const void *element, struct dit_error *err) {
  struct pad_task task = {.out = out->data, .in = in->data, .ndim = out->ndim, .lines = 1};
  task.width = (int)dit_dtype_get_size(out->dtype);
  memcpy(task.element, element, sizeof(task.element));
  for (int dim = 0; dim < out->ndim; dim++) {
    task.sizes[dim] = out->sizes[dim];
    task.out_strides[dim] = out->strides[dim] * task.width;
    task.in_strides[dim] = in->strides[dim] * task.width;
    task.lines *= dim < out->ndim - 1 ? out->sizes[dim] : 1;
    task.pieces.count[dim] = pieces->count[dim];
    memcpy(task.pieces.piece[dim], pieces->piece[dim], sizeof(pieces->piece[dim]));
  }
  sort_pieces(&task);
  return host_stream_launch(stream, run_pad, &task, sizeof(task), err);
}
