/// Random choices on the host (see random_choice.c for what they are).
#include <math.h>
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "engine/kernels.h"
#include "engine/philox.h"
#include "engine/pointwise_loops.h"
#include "random.h"

#define WORDS 1024

/// The words of a span, one after the other.
struct word_reader {
  struct random_span span;
  uint64_t next;
  uint32_t words[WORDS];
};

static uint32_t read_word(struct word_reader *reader) {
  const uint64_t at = reader->next++ % WORDS;
  if (at == 0) {
    philox_fill(reader->span.seed, reader->span.offset, WORDS / 4, reader->words);
    reader->span.offset += WORDS / 4;
  }
  return reader->words[at];
}

static uint64_t read_two(struct word_reader *reader) {
  const uint64_t high = read_word(reader);
  return high << 32 | read_word(reader);
}

// Permutation

static diopiError_t run_permutation(void *argument) {
  struct permutation_task *task = argument;
  struct word_reader reader = {.span = task->span};
  struct dense out = {0};
  if (!dense_reserve(&out, &task->out, DIT_DTYPE_I64)) {
    return frame_fail(&task->frame, diopiErrorOccurred, "no memory for the permutation");
  }
  int64_t *p = out.data;
  for (int64_t i = 0; i < task->n; i++) {
    p[i] = i;
  }
  for (int64_t i = 0; i < task->n; i++) {
    const uint64_t rest = (uint64_t)(task->n - i);
    const uint64_t step = task->wide ? read_two(&reader) % rest : (uint64_t)read_word(&reader) * rest >> 32;
    const int64_t j = i + (int64_t)step, swap = p[i];
    p[i] = p[j];
    p[j] = swap;
  }
  dense_store(&out);
  dense_close(&out);
  return diopiSuccess;
}

diopiError_t permutation_run(struct permutation_task *task) {
  return frame_run(&task->frame, run_permutation, task);
}

// Samples of a distribution

static diopiError_t check_weights(struct sample_task *task, const double *weights) {
  for (int64_t row = 0; row < task->rows; row++) {
    const double *w = weights + row * task->classes;
    int64_t positive = 0;
    for (int64_t c = 0; c < task->classes; c++) {
      FRAME_CHECK(&task->frame, w[c] >= 0 && isfinite(w[c]), "'input' has the weight %g; valid: finite, not negative",
                  w[c]);
      positive += w[c] > 0;
    }
    FRAME_CHECK(&task->frame, positive > 0, "the weights of row %lld are all 0", (long long)row);
    FRAME_CHECK(&task->frame, task->replacement || positive >= task->samples,
                "row %lld has %lld weights above 0; 'num_samples' %lld without replacement needs as many",
                (long long)row, (long long)positive, (long long)task->samples);
  }
  return diopiSuccess;
}

static void draw_with(const struct sample_task *task, struct word_reader *reader, const double *w, double *room,
                      int64_t *out) {
  double sum = 0;
  for (int64_t c = 0; c < task->classes; c++) {
    sum += w[c];
    room[c] = sum;
  }
  for (int64_t i = 0; i < task->samples; i++) {
    const double u = (double)(read_two(reader) >> 11) * 0x1.0p-53 * sum;
    int64_t low = 0, high = task->classes - 1;
    while (low < high) {  // the first running sum above u
      const int64_t middle = (low + high) / 2;
      if (room[middle] > u) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    while (low > 0 && w[low] == 0) {
      low--;  // rounding at the end of the line
    }
    out[i] = low;
  }
}

/// A heap of the best `samples` so far, worst on top, then sorted.
static void sift(const double *key, int64_t *heap, int64_t at, int64_t count) {
  for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
    child += child + 1 < count && key[heap[child + 1]] > key[heap[child]];
    if (key[heap[at]] >= key[heap[child]]) {
      return;
    }
    const int64_t swap = heap[at];
    heap[at] = heap[child];
    heap[child] = swap;
    at = child;
  }
}

static void draw_without(const struct sample_task *task, struct word_reader *reader, const double *w, double *key,
                         int64_t *out) {
  const int64_t count = task->samples;
  for (int64_t c = 0; c < task->classes; c++) {
    const double u = ((double)(read_two(reader) >> 11) + 0.5) * 0x1.0p-53;
    key[c] = w[c] > 0 ? -log(u) / w[c] : INFINITY;
  }
  for (int64_t i = 0; i < count; i++) {
    out[i] = i;
  }
  for (int64_t i = count / 2 - 1; i >= 0; i--) {
    sift(key, out, i, count);
  }
  for (int64_t c = count; c < task->classes; c++) {
    if (count > 0 && key[c] < key[out[0]]) {
      out[0] = c;
      sift(key, out, 0, count);
    }
  }
  for (int64_t last = count - 1; last > 0; last--) {
    const int64_t swap = out[0];
    out[0] = out[last];
    out[last] = swap;
    sift(key, out, 0, last);
  }
}

static diopiError_t run_samples(void *argument) {
  struct sample_task *task = argument;
  struct word_reader reader = {.next = 0};
  struct dense in = {0}, out = {0};
  double *room = dit_malloc(sizeof(double) * (size_t)(task->classes + 1));
  diopiError_t code = diopiSuccess;
  if (room && dense_read(&in, &task->in, DIT_DTYPE_F64) && dense_reserve(&out, &task->out, DIT_DTYPE_I64)) {
    const uint64_t numbers = (uint64_t)task->rows * (uint64_t)(task->replacement ? task->samples : task->classes);
    code = check_weights(task, in.data);
    if (code == diopiSuccess) {
      code = random_reserve(&task->frame, task->generator, 2 * numbers, &reader.span);
    }
    for (int64_t row = 0; code == diopiSuccess && row < task->rows; row++) {
      (task->replacement ? draw_with : draw_without)(task, &reader, (const double *)in.data + row * task->classes, room,
                                                     (int64_t *)out.data + row * task->samples);
    }
    if (code == diopiSuccess) {
      dense_store(&out);
    }
  } else {
    code = dense_fail(&task->frame);
  }
  dense_close(&in);
  dense_close(&out);
  dit_free(room);
  return code;
}

diopiError_t sample_run(struct sample_task *task) {
  return frame_run(&task->frame, run_samples, task);
}

// Dropout

LOOP_2(drop_f32, float, float, float, x *y *k0)
LOOP_2(drop_f64, double, double, double, x *y *k0)

/// A smaller mask: drawn first, then multiplied in, broadcast.
static diopiError_t run_features(void *argument) {
  const struct feature_task *task = argument;
  const bool is_double = task->in->dtype == DIT_DTYPE_F64;
  const int work = is_double ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  struct dense mask = {0};
  struct dit_error err = {.message = ""};
  int64_t strides[DIT_MAX_DIMS];
  struct dit_tensor_view wide;
  if (!dense_reserve(&mask, task->mask, DIT_DTYPE_BOOL)) {
    return frame_fail(task->frame, diopiErrorOccurred, "no memory for the mask");
  }
  uint8_t *kept = mask.data;
  struct word_reader reader = {.span = task->span};
  for (int64_t i = 0; i < task->mask->numel; i++) {
    kept[i] = read_word(&reader) < (uint64_t)(task->keep * 4294967296.0);
  }
  dense_store(&mask);
  frame_expand(task->mask, task->in->ndim, task->in->sizes, strides, &wide);
  struct pointwise run = {.outputs = 1,
                          .inputs = 2,
                          .views = {task->out, task->in, &wide},
                          .work = {work, work, work},
                          .loop = is_double ? drop_f64 : drop_f32};
  const struct dit_scalar scale = {DIT_SCALAR_DOUBLE, {.d = task->keep == 0 ? 0 : 1 / task->keep}};
  kernel_store_scalar(scale, work, run.parameters);
  const enum dit_status status = pointwise_run(&run, &err);
  dense_close(&mask);
  return frame_get_code(task->frame, status, &err);
}

diopiError_t feature_run(struct feature_task *task) {
  return frame_run(task->frame, run_features, task);
}
