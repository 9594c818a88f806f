/// Random fills: uniform, normal, Bernoulli, integers.
///
/// Element i of the row-major order uses word i of the generator's sequence (words 2i and 2i + 1 for float64 and for
/// ranges of 2^32 and more), so results depend neither on strides nor on threads. uniform: from + (to - from) * u with
/// as many random bits as the dtype has digits (24 for half types, which are rounded last); normal: Box-Muller, two
/// elements from two words; Bernoulli: word < p * 2^32, exact for 0 and 1; integers: from + word * range / 2^32.
#include "random.h"

#include <math.h>

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
  return random_launch(task);
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
    task.a = (double)random_round(task.v_out.dtype, (float)from);
    task.b = (double)random_round(task.v_out.dtype, (float)to);
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
