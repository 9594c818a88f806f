/// Random choices: permutations, samples of a distribution, dropout.
///
/// Randperm: a Fisher-Yates shuffle, one word per element. Multinomial: with replacement the place of a uniform number
/// in the running sum of the weights; without, the num_samples largest of weight / exponential number. Dropout: mask ~
/// Bernoulli(1 - p), out = input * mask / (1 - p); a mask that broadcasts to the input drops whole features. Outside
/// training out = input and the mask is 1. Numbers belong to elements by their row-major order.
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

struct permutation_task {
  struct frame frame;
  struct dit_tensor_view out;
  struct word_reader reader;
  int64_t n;
  bool wide;
};

static diopiError_t run_permutation(void *argument) {
  struct permutation_task *task = argument;
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
    const uint64_t step = task->wide ? read_two(&task->reader) % rest : (uint64_t)read_word(&task->reader) * rest >> 32;
    const int64_t j = i + (int64_t)step, swap = p[i];
    p[i] = p[j];
    p[j] = swap;
  }
  dense_store(&out);
  dense_close(&out);
  return diopiSuccess;
}

diopiError_t diopiRandperm(diopiContextHandle_t ctx, diopiTensorHandle_t out, int64_t n,
                           diopiGeneratorHandle_t generator) {
  struct permutation_task task = {.n = n, .wide = n > INT32_MAX};
  struct frame *frame = &task.frame;
  FRAME_BEGIN(frame, ctx);
  FRAME_TAKE(frame, out, &task.out);
  FRAME_CHECK(frame, n >= 0, "'n' is %lld; it must not be negative", (long long)n);
  FRAME_CHECK(frame, task.out.ndim == 1 && task.out.numel == n, "'out' has %lld elements; it must be 1-d with n = %lld",
              (long long)task.out.numel, (long long)n);
  if (!frame_has_dtype(DTYPES_REAL, task.out.dtype)) {
    return frame_fail_dtype(frame, "out", task.out.dtype);
  }
  const int bits[DIT_DTYPE_COUNT] = {
      [DIT_DTYPE_U8] = 8,   [DIT_DTYPE_I8] = 7,   [DIT_DTYPE_I16] = 15, [DIT_DTYPE_I32] = 31, [DIT_DTYPE_I64] = 63,
      [DIT_DTYPE_F16] = 11, [DIT_DTYPE_F32] = 24, [DIT_DTYPE_F64] = 53, [DIT_DTYPE_BF16] = 8};
  FRAME_CHECK(frame, n <= INT64_MAX >> (63 - bits[task.out.dtype]) || n - 1 <= INT64_MAX >> (63 - bits[task.out.dtype]),
              "'n' is %lld; %s cannot hold the numbers below it", (long long)n, dit_dtype_get_name(task.out.dtype));
  FRAME_TRY(frame_check_output(frame, "out", &task.out, NULL, 0, false));
  FRAME_TRY(random_reserve(frame, generator, (uint64_t)n * (task.wide ? 2 : 1), &task.reader.span));
  return frame_run(frame, run_permutation, &task);
}

// Samples of a distribution

struct sample_task {
  struct frame frame;
  struct dit_tensor_view out, in;
  diopiGeneratorHandle_t generator;
  int64_t rows, classes, samples;
  bool replacement;
  struct word_reader reader;
};

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

static void draw_with(struct sample_task *task, const double *w, double *room, int64_t *out) {
  double sum = 0;
  for (int64_t c = 0; c < task->classes; c++) {
    sum += w[c];
    room[c] = sum;
  }
  for (int64_t i = 0; i < task->samples; i++) {
    const double u = (double)(read_two(&task->reader) >> 11) * 0x1.0p-53 * sum;
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

static void draw_without(struct sample_task *task, const double *w, double *key, int64_t *out) {
  const int64_t count = task->samples;
  for (int64_t c = 0; c < task->classes; c++) {
    const double u = ((double)(read_two(&task->reader) >> 11) + 0.5) * 0x1.0p-53;
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
  struct dense in = {0}, out = {0};
  double *room = dit_malloc(sizeof(double) * (size_t)(task->classes + 1));
  diopiError_t code = diopiSuccess;
  if (room && dense_read(&in, &task->in, DIT_DTYPE_F64) && dense_reserve(&out, &task->out, DIT_DTYPE_I64)) {
    const uint64_t numbers = (uint64_t)task->rows * (uint64_t)(task->replacement ? task->samples : task->classes);
    code = check_weights(task, in.data);
    if (code == diopiSuccess) {
      code = random_reserve(&task->frame, task->generator, 2 * numbers, &task->reader.span);
    }
    for (int64_t row = 0; code == diopiSuccess && row < task->rows; row++) {
      (task->replacement ? draw_with : draw_without)(task, (const double *)in.data + row * task->classes, room,
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

diopiError_t diopiMultinomial(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                              int64_t num_samples, bool replacement, diopiGeneratorHandle_t generator) {
  struct sample_task task = {.generator = generator, .samples = num_samples, .replacement = replacement};
  struct frame *frame = &task.frame;
  FRAME_BEGIN(frame, ctx);
  FRAME_TAKE(frame, out, &task.out);
  FRAME_TAKE(frame, input, &task.in);
  if (!frame_has_dtype(DTYPES_FLOAT, task.in.dtype)) {
    return frame_fail_dtype(frame, "input", task.in.dtype);
  }
  if (task.out.dtype != DIT_DTYPE_I64) {
    return frame_fail_dtype(frame, "out", task.out.dtype);
  }
  const int ndim = task.in.ndim;
  FRAME_CHECK(frame, ndim == 1 || ndim == 2, "'input' has %d dimensions; valid: 1 or 2", ndim);
  task.rows = ndim == 2 ? task.in.sizes[0] : 1;
  task.classes = task.in.sizes[ndim - 1];
  FRAME_CHECK(frame, num_samples > 0 && (replacement || num_samples <= task.classes),
              "'num_samples' is %lld; valid: 1 to %lld%s", (long long)num_samples, (long long)task.classes,
              replacement ? " or more" : " without replacement");
  FRAME_CHECK(
      frame,
      task.out.ndim == ndim && task.out.sizes[ndim - 1] == num_samples && (ndim == 1 || task.out.sizes[0] == task.rows),
      "'out' must have the shape of 'input' with num_samples for the last size");
  FRAME_TRY(frame_check_output(frame, "out", &task.out, (const struct dit_tensor_view *[]){&task.in}, 1, false));
  FRAME_TRY(random_check(frame, generator));
  return frame_run(frame, run_samples, &task);
}

// Dropout

struct feature_task {
  struct frame *frame;
  const struct dit_tensor_view *out, *mask, *in;
  double keep;
  struct random_span span;
};

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

static diopiError_t copy_through(struct frame *frame, const struct dit_tensor_view *out,
                                 const struct dit_tensor_view *mask, const struct dit_tensor_view *in) {
  struct dit_error err = {.message = ""};
  const struct dit_scalar one = {DIT_SCALAR_INT, {.i = 1}};
  if (out->data != in->data || out->handle != in->handle) {
    FRAME_TRY(frame_get_code(frame, kernel_copy(frame->stream, out, in, &err), &err));
  }
  return frame_get_code(frame, kernel_fill(frame->stream, mask, one, &err), &err);
}

static diopiError_t run_dropout(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                const char *name, diopiTensorHandle_t mask, diopiConstTensorHandle_t input, double p,
                                bool train, diopiGeneratorHandle_t generator) {
  struct frame frame;
  struct dit_tensor_view o, m, x, wide;
  struct dit_error err = {.message = ""};
  struct random_span span;
  int64_t strides[DIT_MAX_DIMS];
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_TRY(frame_take(&frame, name, out, &o));
  FRAME_TAKE(&frame, mask, &m);
  FRAME_TAKE(&frame, input, &x);
  if (!frame_has_dtype(DTYPES_FLOAT, x.dtype)) {
    return frame_fail_dtype(&frame, "input", x.dtype);
  }
  if (o.dtype != x.dtype) {
    return frame_fail_dtype(&frame, name, o.dtype);
  }
  if (m.dtype != DIT_DTYPE_BOOL && m.dtype != DIT_DTYPE_U8) {
    return frame_fail_dtype(&frame, "mask", m.dtype);
  }
  FRAME_CHECK(&frame, p >= 0 && p <= 1, "'p' is %g; valid: 0 to 1", p);
  FRAME_CHECK(&frame, frame_is_same_shape(&o, &x), "'%s' has another shape than 'input'", name);
  FRAME_CHECK(&frame, frame_expand(&m, x.ndim, x.sizes, strides, &wide), "'mask' does not broadcast to 'input'");
  FRAME_TRY(frame_check_output(&frame, name, &o, (const struct dit_tensor_view *[]){&x}, 1, true));
  FRAME_TRY(frame_check_output(&frame, "mask", &m, (const struct dit_tensor_view *[]){&x, &o}, 2, false));
  m.dtype = DIT_DTYPE_BOOL;  // uint8 holds the same 0 and 1
  if (!train) {
    return copy_through(&frame, &o, &m, &x);
  }
  FRAME_TRY(random_reserve(&frame, generator, (uint64_t)m.numel, &span));
  if (x.numel == 0) {
    return diopiSuccess;
  }
  if (!frame_is_same_shape(&m, &x)) {
    struct feature_task task = {&frame, &o, &m, &x, 1 - p, span};
    return frame_run(&frame, run_features, &task);
  }
  const double scale = p == 1 ? 0 : 1 / (1 - p);
  return frame_get_code(&frame, kernel_dropout(frame.stream, &o, &m, &x, 1 - p, scale, span.seed, span.offset, &err),
                        &err);
}

diopiError_t diopiDropout(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t mask,
                          diopiConstTensorHandle_t input, double p, bool train, diopiGeneratorHandle_t generator) {
  return run_dropout(__func__, ctx, out, "out", mask, input, p, train, generator);
}

diopiError_t diopiDropoutInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiTensorHandle_t mask, double p,
                             bool train, diopiGeneratorHandle_t generator) {
  return run_dropout(__func__, ctx, input, "input", mask, input, p, train, generator);
}
