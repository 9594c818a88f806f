/// Random fills: uniform, normal, Bernoulli, integers.
///
/// Element i of the row-major order uses word i of the generator's sequence (words 2i and 2i + 1 for float64 and for
/// ranges of 2^32 and more), so results depend neither on strides nor on threads. uniform: from + (to - from) * u with
/// as many random bits as the dtype has digits (24 for half types, which are rounded last); normal: Box-Muller, two
/// elements from two words; Bernoulli: word < p * 2^32, exact for 0 and 1; integers: from + word * range / 2^32.
#include "random.h"

#include <math.h>
#include <string.h>

#include "dense.h"
#include "dit/parallel.h"
#include "engine/cast.h"
#include "engine/philox.h"
#include "engine/scalar.h"

#define BLOCK 512

diopiError_t random_check(struct frame *frame, diopiGeneratorHandle_t generator) {
  FRAME_CHECK(frame, generator, "'generator' is NULL; random operators need one");
  return diopiSuccess;
}

diopiError_t random_reserve(struct frame *frame, diopiGeneratorHandle_t generator, uint64_t words,
                            struct random_span *span) {
  FRAME_TRY(random_check(frame, generator));
  if (diopiGeneratorGetSeedAndOffset(generator, &span->seed, &span->offset) != diopiSuccess ||
      diopiGeneratorSetSeedAndOffset(generator, span->seed, span->offset + (words + 3) / 4) != diopiSuccess) {
    return frame_fail(frame, diopiErrorOccurred, "'generator' has no seed and offset");
  }
  return diopiSuccess;
}

enum random_kind { RANDOM_UNIFORM, RANDOM_NORMAL, RANDOM_BERNOULLI, RANDOM_INTEGER };

struct random_task {
  struct frame frame;
  enum random_kind kind;
  struct dit_tensor_view v_out, v_a, v_b;  ///< a and b: means and deviations, or probabilities, as tensors
  int64_t a_strides[DIT_MAX_DIMS], b_strides[DIT_MAX_DIMS];
  double a, b;  ///< from and to, mean and deviation, probability
  int64_t from;
  uint64_t range;  ///< 0: all 64-bit numbers
  bool wide;       ///< two words per element
  int work;        ///< dtype that the loops write
  diopiGeneratorHandle_t generator;
  bool reserved;  ///< the numbers are in `span`
  struct random_span span;
  int64_t numel;
  const void *pa, *pb;
  void *out;
};

// Blocks of at most BLOCK elements, `words` for them

static float round_half(int dtype, float value) {
  return dtype == DIT_DTYPE_F16 ? half_to_float(half_from_float(value)) : bfloat_to_float(bfloat_from_float(value));
}

/// What rounding to a half type makes the end of the range becomes its beginning, as in PyTorch.
static void exclude_end(const struct random_task *task, float *out, int64_t count) {
  const int dtype = task->v_out.dtype;
  const float from = (float)task->a, to = (float)task->b;
  for (int64_t i = 0; i < count; i++) {
    out[i] = round_half(dtype, out[i]) == to ? from : out[i];
  }
}

static void fill_uniform(const struct random_task *task, const uint32_t *words, char *out, int64_t count) {
  const double width = task->b - task->a;
  if (task->work == DIT_DTYPE_F64) {
    for (int64_t i = 0; i < count; i++) {
      const uint64_t bits = (uint64_t)words[2 * i] << 32 | words[2 * i + 1];
      ((double *)out)[i] = task->a + width * ((double)(bits >> 11) * 0x1.0p-53);
    }
    return;
  }
  const float from = (float)task->a, size = (float)width;
  for (int64_t i = 0; i < count; i++) {
    ((float *)out)[i] = from + size * ((float)(int32_t)(words[i] >> 8) * 0x1.0p-24f);
  }
  if (task->v_out.dtype != DIT_DTYPE_F32) {
    exclude_end(task, (float *)out, count);
  }
}

static void fill_normal(const struct random_task *task, const uint32_t *words, char *out, int64_t first,
                        int64_t count) {
  const int64_t even = (count + 1) / 2 * 2;
  if (task->work == DIT_DTYPE_F64) {
    double room[BLOCK];
    const double *mean = task->pa, *deviation = task->pb;
    philox_normal_double(words, room, even);
    for (int64_t i = 0; i < count; i++) {
      ((double *)out)[i] = (mean ? mean[first + i] : task->a) + (deviation ? deviation[first + i] : task->b) * room[i];
    }
    return;
  }
  float room[BLOCK];
  const float *mean = task->pa, *deviation = task->pb, a = (float)task->a, b = (float)task->b;
  philox_normal(words, room, even);
  for (int64_t i = 0; i < count && !mean && !deviation; i++) {
    ((float *)out)[i] = a + b * room[i];
  }
  for (int64_t i = 0; i < count && (mean || deviation); i++) {
    ((float *)out)[i] = (mean ? mean[first + i] : a) + (deviation ? deviation[first + i] : b) * room[i];
  }
}

static void fill_bernoulli(const struct random_task *task, const uint32_t *words, char *out, int64_t first,
                           int64_t count) {
  const double *p = task->pa;
  const uint64_t limit = (uint64_t)(task->a * 4294967296.0);
  for (int64_t i = 0; i < count && !p; i++) {
    out[i] = words[i] < limit;
  }
  for (int64_t i = 0; i < count && p; i++) {
    out[i] = (double)words[i] < p[first + i] * 4294967296.0;
  }
}

static void fill_integer(const struct random_task *task, const uint32_t *words, char *out, int64_t count) {
  for (int64_t i = 0; i < count && !task->wide; i++) {
    ((uint64_t *)out)[i] = (uint64_t)task->from + ((uint64_t)words[i] * task->range >> 32);
  }
  for (int64_t i = 0; i < count && task->wide; i++) {
    const uint64_t bits = (uint64_t)words[2 * i] << 32 | words[2 * i + 1];
    ((uint64_t *)out)[i] = (uint64_t)task->from + (task->range ? bits % task->range : bits);
  }
}

static void run_blocks(void *context, int64_t begin, int64_t end) {
  const struct random_task *task = context;
  const int64_t width = (int64_t)dit_dtype_get_size(task->work), per = task->wide ? 2 : 1;
  for (int64_t block = begin; block < end; block++) {
    uint32_t words[2 * BLOCK];
    const int64_t first = block * BLOCK, count = task->numel - first < BLOCK ? task->numel - first : BLOCK;
    char *out = (char *)task->out + first * width;
    philox_fill(task->span.seed, task->span.offset + (uint64_t)(first * per) / 4, (count * per + 3) / 4, words);
    if (task->kind == RANDOM_UNIFORM) {
      fill_uniform(task, words, out, count);
    } else if (task->kind == RANDOM_NORMAL) {
      fill_normal(task, words, out, first, count);
    } else if (task->kind == RANDOM_BERNOULLI) {
      fill_bernoulli(task, words, out, first, count);
    } else {
      fill_integer(task, words, out, count);
    }
  }
}

/// Values of a tensor argument that make no distribution are refused before anything is written.
static diopiError_t check_values(struct random_task *task) {
  const bool chance = task->kind == RANDOM_BERNOULLI;
  const void *p = chance ? task->pa : task->pb;
  for (int64_t i = 0; p && i < task->numel; i++) {
    const bool single = !chance && task->work == DIT_DTYPE_F32;
    const double value = single ? (double)((const float *)p)[i] : ((const double *)p)[i];
    if (chance) {
      FRAME_CHECK(&task->frame, value >= 0 && value <= 1, "a probability is %g; valid: 0 to 1", value);
    } else {
      FRAME_CHECK(&task->frame, value >= 0, "'std' has the value %g; it must not be negative", value);
    }
  }
  return diopiSuccess;
}

/// Take the numbers from the generator: in the caller, as the next call takes the following ones.
static diopiError_t reserve(struct random_task *task) {
  const uint64_t words = (uint64_t)task->numel * (task->wide ? 2 : 1);
  task->reserved = true;
  return random_reserve(&task->frame, task->generator, words, &task->span);
}

static diopiError_t run_random(void *argument) {
  struct random_task *task = argument;
  const int parameters = task->kind == RANDOM_BERNOULLI ? DIT_DTYPE_F64 : task->work;
  struct dense out = {0}, a = {0}, b = {0};
  diopiError_t code;
  if (dense_read(&a, &task->v_a, parameters) && dense_read(&b, &task->v_b, parameters) &&
      dense_reserve(&out, &task->v_out, task->work)) {
    task->pa = a.data;
    task->pb = b.data;
    task->out = out.data;
    code = check_values(task);
    if (code == diopiSuccess && !task->reserved) {
      code = reserve(task);
    }
    if (code == diopiSuccess) {
      dit_parallel_for(0, (task->numel + BLOCK - 1) / BLOCK, 16, run_blocks, task);
      dense_store(&out);
    }
  } else {
    code = dense_fail(&task->frame);
  }
  dense_close(&out);
  dense_close(&a);
  dense_close(&b);
  return code;
}

static diopiError_t launch(struct random_task *task, const char *name, diopiGeneratorHandle_t generator,
                           bool in_place) {
  const struct dit_tensor_view *inputs[] = {&task->v_a, &task->v_b};
  FRAME_TRY(random_check(&task->frame, generator));
  FRAME_TRY(frame_check_output(&task->frame, name, &task->v_out, inputs, 2, in_place));
  task->numel = task->v_out.numel;
  task->generator = generator;
  if (task->numel == 0) {
    return diopiSuccess;
  }
  if (!task->frame.stream || task->v_a.handle || task->v_b.handle) {  // parameters are checked before numbers are drawn
    return frame_run(&task->frame, run_random, task);
  }
  FRAME_TRY(reserve(task));
  return FRAME_QUEUE(&task->frame, run_random, task, NULL, &task->v_out);
}

static diopiError_t take_out(struct random_task *task, const char *function, diopiContextHandle_t ctx, const char *name,
                             diopiTensorHandle_t out, uint64_t dtypes) {
  FRAME_TRY(frame_begin(&task->frame, function, ctx));
  FRAME_TRY(frame_take(&task->frame, name, out, &task->v_out));
  if (!frame_has_dtype(dtypes, task->v_out.dtype)) {
    return frame_fail_dtype(&task->frame, name, task->v_out.dtype);
  }
  task->work = task->v_out.dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
  task->wide = task->work == DIT_DTYPE_F64;
  return diopiSuccess;
}

/// A parameter as a tensor, broadcast to the result.
static diopiError_t take_parameter(struct random_task *task, const char *name, diopiConstTensorHandle_t handle,
                                   struct dit_tensor_view *view, int64_t *strides) {
  struct dit_tensor_view given;
  FRAME_TRY(frame_take(&task->frame, name, handle, &given));
  if (!frame_has_dtype(DTYPES_FLOAT, given.dtype)) {
    return frame_fail_dtype(&task->frame, name, given.dtype);
  }
  FRAME_CHECK(&task->frame, frame_expand(&given, task->v_out.ndim, task->v_out.sizes, strides, view),
              "'%s' does not broadcast to the shape of 'out'", name);
  if (frame_is_same_shape(&given, &task->v_out)) {
    *view = given;
  }
  return diopiSuccess;
}

diopiError_t diopiUniformInp(diopiContextHandle_t ctx, diopiTensorHandle_t inout, double from, double to,
                             diopiGeneratorHandle_t generator) {
  struct random_task task = {.kind = RANDOM_UNIFORM, .a = from, .b = to};
  FRAME_TRY(take_out(&task, __func__, ctx, "inout", inout, DTYPES_FLOAT));
  FRAME_CHECK(&task.frame, from <= to && isfinite(to - from), "'from' is %g and 'to' is %g; from <= to, both finite",
              from, to);
  if (frame_has_dtype(DTYPES_HALF, task.v_out.dtype)) {
    task.a = (double)round_half(task.v_out.dtype, (float)from);
    task.b = (double)round_half(task.v_out.dtype, (float)to);
  }
  return launch(&task, "inout", generator, false);
}

// Normal

static diopiError_t run_normal(const char *function, diopiContextHandle_t ctx, const char *name,
                               diopiTensorHandle_t out, double mean, diopiConstTensorHandle_t means, double std,
                               diopiConstTensorHandle_t stds, diopiGeneratorHandle_t generator) {
  struct random_task task = {.kind = RANDOM_NORMAL, .a = mean, .b = std};
  FRAME_TRY(take_out(&task, function, ctx, name, out, DTYPES_FLOAT));
  FRAME_CHECK(&task.frame, std >= 0, "'std' is %g; it must not be negative", std);
  if (means) {
    FRAME_TRY(take_parameter(&task, "mean", means, &task.v_a, task.a_strides));
  }
  if (stds) {
    FRAME_TRY(take_parameter(&task, "std", stds, &task.v_b, task.b_strides));
  }
  return launch(&task, name, generator, true);
}

static diopiError_t fail_absent(const char *function, diopiContextHandle_t ctx, const char *name) {
  struct frame frame;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  return frame_fail(&frame, diopiErrorOccurred, "'%s' is NULL; it must be a tensor", name);
}

diopiError_t diopiNormal(diopiContextHandle_t ctx, diopiTensorHandle_t out, double mean, double std,
                         diopiGeneratorHandle_t generator) {
  return run_normal(__func__, ctx, "out", out, mean, NULL, std, NULL, generator);
}

diopiError_t diopiNormalInp(diopiContextHandle_t ctx, diopiTensorHandle_t inout, double mean, double std,
                            diopiGeneratorHandle_t generator) {
  return run_normal(__func__, ctx, "inout", inout, mean, NULL, std, NULL, generator);
}

diopiError_t diopiNormalTensorScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t mean,
                                     double std, diopiGeneratorHandle_t generator) {
  return mean ? run_normal(__func__, ctx, "out", out, 0, mean, std, NULL, generator)
              : fail_absent(__func__, ctx, "mean");
}

diopiError_t diopiNormalScalarTensor(diopiContextHandle_t ctx, diopiTensorHandle_t out, double mean,
                                     diopiConstTensorHandle_t std, diopiGeneratorHandle_t generator) {
  return std ? run_normal(__func__, ctx, "out", out, mean, NULL, 1, std, generator) : fail_absent(__func__, ctx, "std");
}

diopiError_t diopiNormalTensor(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t mean,
                               diopiConstTensorHandle_t std, diopiGeneratorHandle_t generator) {
  return mean && std ? run_normal(__func__, ctx, "out", out, 0, mean, 1, std, generator)
                     : fail_absent(__func__, ctx, mean ? "std" : "mean");
}

// Bernoulli

static diopiError_t run_bernoulli(const char *function, diopiContextHandle_t ctx, const char *name,
                                  diopiTensorHandle_t out, diopiConstTensorHandle_t input, double p,
                                  diopiGeneratorHandle_t generator) {
  struct random_task task = {.kind = RANDOM_BERNOULLI, .a = p};
  FRAME_TRY(take_out(&task, function, ctx, name, out, DTYPES_PLAIN));
  FRAME_CHECK(&task.frame, p >= 0 && p <= 1, "'p' is %g; valid: 0 to 1", p);
  if (input) {
    FRAME_TRY(take_parameter(&task, input == out ? name : "input", input, &task.v_a, task.a_strides));
  }
  task.work = DIT_DTYPE_BOOL;
  task.wide = false;
  return launch(&task, name, generator, true);
}

diopiError_t diopiBernoulli(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                            diopiGeneratorHandle_t generator) {
  return input ? run_bernoulli(__func__, ctx, "out", out, input, 0, generator) : fail_absent(__func__, ctx, "input");
}

/// The tensor holds the probabilities and gets the results.
diopiError_t diopiBernoulliInp(diopiContextHandle_t ctx, diopiTensorHandle_t inout, diopiGeneratorHandle_t generator) {
  return inout ? run_bernoulli(__func__, ctx, "inout", inout, inout, 0, generator)
               : fail_absent(__func__, ctx, "inout");
}

diopiError_t diopiBernoulliScalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, double p,
                                  diopiGeneratorHandle_t generator) {
  return run_bernoulli(__func__, ctx, "out", out, NULL, p, generator);
}

// Integers

/// Largest integer up to which every one has a value of the dtype.
static int64_t get_largest(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_BOOL:
      return 1;
    case DIT_DTYPE_U8:
      return UINT8_MAX;
    case DIT_DTYPE_I8:
      return INT8_MAX;
    case DIT_DTYPE_I16:
      return INT16_MAX;
    case DIT_DTYPE_I32:
      return INT32_MAX;
    case DIT_DTYPE_F16:
      return INT64_C(1) << 11;
    case DIT_DTYPE_BF16:
      return INT64_C(1) << 8;
    case DIT_DTYPE_F32:
      return INT64_C(1) << 24;
    case DIT_DTYPE_F64:
      return INT64_C(1) << 53;
    default:
      return INT64_MAX;
  }
}

/// from <= value < to; without `to` up to the largest integer of the dtype.
diopiError_t diopiRandomInp(diopiContextHandle_t ctx, diopiTensorHandle_t inout, int64_t from, const int64_t *to,
                            diopiGeneratorHandle_t generator) {
  struct random_task task = {.kind = RANDOM_INTEGER, .from = from};
  FRAME_TRY(take_out(&task, __func__, ctx, "inout", inout, DTYPES_PLAIN));
  const int64_t largest = get_largest(task.v_out.dtype);
  const bool whole = !frame_has_dtype(DTYPES_FLOAT, task.v_out.dtype);
  const bool natural = task.v_out.dtype == DIT_DTYPE_BOOL || task.v_out.dtype == DIT_DTYPE_U8;
  FRAME_CHECK(&task.frame, !to || from < *to, "'from' is %lld and 'to' is %lld; from < to is needed", (long long)from,
              to ? (long long)*to : 0);
  FRAME_CHECK(&task.frame, from <= largest && (!whole || from >= (natural ? 0 : -largest - 1)),
              "'from' is %lld, which %s cannot hold", (long long)from, dit_dtype_get_name(task.v_out.dtype));
  FRAME_CHECK(&task.frame, !to || !whole || *to - 1 <= largest, "'to' is %lld; the largest %s is %lld",
              to ? (long long)*to : 0, dit_dtype_get_name(task.v_out.dtype), (long long)largest);
  task.range = to ? (uint64_t)*to - (uint64_t)from : (uint64_t)largest - (uint64_t)from + 1;
  task.work = DIT_DTYPE_I64;
  task.wide = task.range == 0 || task.range > UINT64_C(0x100000000);
  return launch(&task, "inout", generator, false);
}
