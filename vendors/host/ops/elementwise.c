/// The common part of elementwise operators (see elementwise.h).
#include "elementwise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "dit/promotion.h"
#include "engine/cast.h"
#include "engine/kernels.h"

diopiError_t elementwise_begin(struct elementwise *e, const char *function, diopiContextHandle_t context) {
  e->outputs = e->inputs = e->numbers = 0;
  e->run.rounded = 0;
  e->run.number_loop = NULL;
  return frame_begin(&e->frame, function, context);
}

diopiError_t elementwise_add_output(struct elementwise *e, const char *name, diopiTensorHandle_t handle) {
  const int index = e->outputs++;
  e->names[index] = name;
  return frame_take(&e->frame, name, handle, &e->views[index]);
}

diopiError_t elementwise_add_input(struct elementwise *e, const char *name, diopiConstTensorHandle_t handle) {
  const int index = e->outputs + e->inputs++;
  e->names[index] = name;
  return frame_take(&e->frame, name, handle, &e->views[index]);
}

diopiError_t elementwise_add_scalar(struct elementwise *e, const char *name, const diopiScalar_t *scalar) {
  const int index = e->outputs + e->inputs++;
  e->names[index] = name;
  e->views[index].handle = NULL;
  e->numbers++;
  return frame_get_scalar(&e->frame, name, scalar, &e->scalars[index]);
}

static diopiError_t fail_shape(struct elementwise *e, int index) {
  const struct dit_tensor_view *out = &e->views[0], *view = &e->views[index];
  char text[2][160];
  const struct dit_tensor_view *both[2] = {view, out};
  for (int k = 0; k < 2; k++) {
    size_t length = 0;
    text[k][0] = 0;
    for (int dim = 0; dim < both[k]->ndim && length + 24 < sizeof text[k]; dim++) {
      length += (size_t)snprintf(text[k] + length, sizeof text[k] - length, "%s%lld", dim ? ", " : "",
                                 (long long)both[k]->sizes[dim]);
    }
  }
  return frame_fail(&e->frame, diopiErrorOccurred, "'%s' has shape (%s), which does not broadcast to (%s) of '%s'",
                    e->names[index], text[0], text[1], e->names[0]);
}

/// Does some input have each size of the output?
static diopiError_t check_reached(struct elementwise *e) {
  const struct dit_tensor_view *out = &e->views[0];
  for (int dim = 0; dim < out->ndim; dim++) {
    bool reached = out->sizes[dim] == 1;
    for (int i = e->outputs; !reached && i < e->outputs + e->inputs; i++) {
      const int own = dim - (out->ndim - e->views[i].ndim);
      reached = e->views[i].handle && own >= 0 && e->views[i].sizes[own] == out->sizes[dim];
    }
    FRAME_CHECK(&e->frame, reached, "'%s' has size %lld in dimension %d; the inputs broadcast to 1 there", e->names[0],
                (long long)out->sizes[dim], dim);
  }
  return diopiSuccess;
}

static diopiError_t check_rank(struct elementwise *e) {
  int ndim = 0;
  for (int i = e->outputs; i < e->outputs + e->inputs; i++) {
    if (e->views[i].handle && e->views[i].ndim > ndim) {
      ndim = e->views[i].ndim;
    }
  }
  FRAME_CHECK(&e->frame, ndim == e->views[0].ndim, "'%s' has %d dimensions; the inputs broadcast to %d", e->names[0],
              (int)e->views[0].ndim, ndim);
  return diopiSuccess;
}

diopiError_t elementwise_check(struct elementwise *e) {
  const struct dit_tensor_view *out = &e->views[0], *inputs[POINTWISE_OPERANDS];
  bool same = true;
  for (int i = 1; i < e->outputs; i++) {
    if (!frame_is_same_shape(out, &e->views[i])) {
      return fail_shape(e, i);
    }
  }
  for (int i = e->outputs; i < e->outputs + e->inputs; i++) {
    inputs[i - e->outputs] = e->views[i].handle ? &e->views[i] : NULL;
    if (!e->views[i].handle) {
      e->run.views[i] = NULL;
    } else if (DIT_LIKELY(frame_is_same_shape(out, &e->views[i]))) {
      e->run.views[i] = &e->views[i];
    } else {
      same = false;
      if (!frame_expand(&e->views[i], out->ndim, out->sizes, e->strides[i], &e->expanded[i])) {
        return fail_shape(e, i);
      }
      e->run.views[i] = &e->expanded[i];
    }
  }
  if (!same) {
    FRAME_TRY(check_rank(e));
    FRAME_TRY(check_reached(e));
  }
  for (int i = 0; i < e->outputs; i++) {
    FRAME_TRY(frame_check_output(&e->frame, e->names[i], &e->views[i], inputs, e->inputs, true));
    e->run.views[i] = &e->views[i];
  }
  e->run.outputs = e->outputs;
  e->run.inputs = e->inputs;
  return diopiSuccess;
}

static bool is_floating(int dtype) {
  return dtype >= 0 && dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_FLOAT;
}
static bool is_complex(int dtype) {
  return dtype >= 0 && dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_COMPLEX;
}

/// The dtype that all inputs from `first` on have, when they are tensors; -2 else.
static int get_single(const struct elementwise *e, int first) {
  const int dtype = e->views[first].handle ? e->views[first].dtype : -2;
  for (int i = first + 1; i < e->outputs + e->inputs; i++) {
    if (!e->views[i].handle || e->views[i].dtype != dtype) {
      return -2;
    }
  }
  return dtype;
}

int elementwise_promote(const struct elementwise *e) {
  return elementwise_promote_from(e, 0);
}

int elementwise_promote_from(const struct elementwise *e, int first) {
  const int single = get_single(e, e->outputs + first);
  if (DIT_LIKELY(single >= 0)) {
    return single;
  }
  struct dit_promotion promotion = DIT_PROMOTION_INIT;
  for (int i = e->outputs + first; i < e->outputs + e->inputs; i++) {
    const struct dit_tensor_view *view = &e->views[i];
    if (!view->handle) {
      const enum dit_scalar_kind kind = e->scalars[i].kind;
      const int real = e->views[0].dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
      dit_promotion_add(&promotion.numbers, kind == DIT_SCALAR_BOOL  ? DIT_DTYPE_BOOL
                                            : kind == DIT_SCALAR_INT ? DIT_DTYPE_I64
                                                                     : real);
    } else {
      dit_promotion_add(view->ndim == 0 ? &promotion.zeros : &promotion.dims, view->dtype);
    }
  }
  return dit_promotion_get(&promotion);
}

int elementwise_to_float(const struct elementwise *e, int compute) {
  if (compute < 0 || is_floating(compute) || is_complex(compute)) {
    return compute;
  }
  return e->views[0].dtype == DIT_DTYPE_F64 ? DIT_DTYPE_F64 : DIT_DTYPE_F32;
}

bool elementwise_can_cast(int from, int to) {
  if (DIT_LIKELY(from == to)) {
    return true;
  }
  if (is_complex(from) && !is_complex(to)) {
    return false;
  }
  if (is_floating(from) && !is_floating(to) && !is_complex(to)) {
    return false;
  }
  return from == DIT_DTYPE_BOOL || to != DIT_DTYPE_BOOL;
}

void elementwise_set_number(struct elementwise *e, int index, struct dit_scalar scalar, int dtype) {
  char *room = e->run.parameters + 16 * index;
  if (!kernel_store_scalar(scalar, dtype, room)) {
    memset(room, 0, 16);
  }
}

/// A compute type that no loop has: names the operand that has it, else the first input.
static diopiError_t fail_type(struct elementwise *e, int compute) {
  for (int i = e->outputs; i < e->outputs + e->inputs; i++) {
    if (e->views[i].handle && e->views[i].dtype == compute) {
      return frame_fail_dtype(&e->frame, e->names[i], compute);
    }
  }
  return frame_fail(&e->frame, diopiDtypeNotSupported,
                    "the inputs' common dtype is %s, which this operator does not have",
                    compute < 0 ? "none" : dit_dtype_get_name(compute));
}

diopiError_t elementwise_set_types(struct elementwise *e, int result, int compute, loop_table loops) {
  const bool is_own = compute >= 0 && compute < LOOP_TYPES && loops[compute] && e->numbers == 0;
  const int work = is_own ? compute : elementwise_get_work(compute);
  if (compute < 0 || compute == DIT_DTYPE_C32 || work >= LOOP_TYPES || !loops[work]) {
    return fail_type(e, compute);
  }
  for (int i = 0; i < e->outputs; i++) {
    if (!elementwise_can_cast(result < 0 ? compute : result, e->views[i].dtype)) {
      return frame_fail(&e->frame, diopiDtypeNotSupported, "the result is %s, which '%s' of dtype %s cannot hold",
                        dit_dtype_get_name(result < 0 ? compute : result), e->names[i],
                        dit_dtype_get_name(e->views[i].dtype));
    }
    e->run.work[i] = result < 0 ? work : result;
  }
  int number = 0;
  for (int i = e->outputs; i < e->outputs + e->inputs; i++) {
    e->run.work[i] = work;
    if (!e->views[i].handle) {
      elementwise_set_number(e, number++, e->scalars[i], work);
    }
  }
  e->run.rounded = work != compute ? compute : 0;
  e->run.loop = loops[work];
  return diopiSuccess;
}

diopiError_t elementwise_set_type(struct elementwise *e, int compute, loop_table loops) {
  return elementwise_set_types(e, -1, compute, loops);
}

void elementwise_set_rounded(struct elementwise *e, int index, struct dit_scalar scalar, int compute, int work) {
  _Alignas(16) char rounded[16];
  elementwise_set_number(e, index, scalar, compute);
  if (compute != work) {
    memcpy(rounded, e->run.parameters + 16 * index, sizeof rounded);
    cast_block(work, e->run.parameters + 16 * index, compute, rounded, 1);
    const float half = *(const float *)(const void *)(e->run.parameters + 16 * index);
    if (isinf(half) && isfinite(frame_scalar_to_double(scalar))) {
      elementwise_set_number(e, index, scalar, work);  // 60000 - 70000 fits into a half though 70000 does not
    }
  }
}

void elementwise_round_numbers(struct elementwise *e, int compute) {
  int number = 0;
  for (int i = e->outputs; i < e->outputs + e->inputs; i++) {
    if (!e->views[i].handle) {
      elementwise_set_rounded(e, number++, e->scalars[i], compute, e->run.work[i]);
    }
  }
}

void elementwise_use_bf16(struct elementwise *e, pointwise_loop *loop) {
  const int operands = e->run.outputs + e->run.inputs;
  if (!loop) {
    return;
  }
  for (int i = 0; i < operands; i++) {
    if (!e->views[i].handle || e->views[i].dtype != DIT_DTYPE_BF16 || e->run.work[i] != DIT_DTYPE_F32) {
      return;
    }
  }
  for (int i = 0; i < operands; i++) {
    e->run.work[i] = DIT_DTYPE_BF16;
  }
  e->run.rounded = 0;
  e->run.loop = loop;
  e->run.number_loop = NULL;
}

diopiError_t elementwise_launch(struct elementwise *e) {
  struct dit_error err;
  err.message[0] = 0;
  return frame_get_code(&e->frame, pointwise_launch(e->frame.stream, &e->run, &err), &err);
}

diopiError_t elementwise_unary(struct elementwise *e, const char *function, diopiContextHandle_t context,
                               diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  FRAME_TRY(elementwise_begin(e, function, context));
  FRAME_TRY(elementwise_add_output(e, out == input ? "input" : "out", out));
  FRAME_TRY(elementwise_add_input(e, "input", input));
  return elementwise_check(e);
}
