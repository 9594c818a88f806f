/// List operators: add and mul of many tensors with a number, norms.
///
/// outs[i] = inputs[i] op other for each tensor of the list, as the operator of one tensor does it. ForeachmulTensor:
/// other is a tensor of one element. ForeachnormScalar: outs[i] is the 0-d norm of inputs[i]. Everything is checked
/// before the first tensor is written.
#include "foreach.h"

#include <math.h>

#include "elementwise.h"
#include "engine/cast.h"
#include "engine/nest.h"

#define LANES 16

struct norm_task {
  struct nest nest;
  int dtype, width;
  double p;
  double total;
};

/// Sum (or maximum) over one block of doubles with a fixed order of additions.
static double fold_block(const double *x, int64_t count, double p) {
  double lanes[LANES] = {0};
  int64_t i = 0;
  if (p == 2) {
    for (; i + LANES <= count; i += LANES) {
      for (int k = 0; k < LANES; k++) {
        lanes[k] += x[i + k] * x[i + k];
      }
    }
    for (; i < count; i++) {
      lanes[0] += x[i] * x[i];
    }
  } else {
    for (; i < count; i++) {
      const double size = fabs(x[i]);
      lanes[0] += p == 1 ? size : p == 0 ? (double)(size != 0) : pow(size, p);
    }
  }
  double sum = 0;
  for (int k = 0; k < LANES; k++) {
    sum += lanes[k];
  }
  return sum;
}

static double fold_extreme(const double *x, int64_t count, double best, bool largest) {
  for (int64_t i = 0; i < count; i++) {
    const double size = fabs(x[i]);
    best = size != size || best != best ? (double)NAN : (largest ? size > best : size < best) ? size : best;
  }
  return best;
}

static void norm_run(void *context, char *const *data, int64_t count) {
  struct norm_task *task = context;
  _Alignas(64) char raw[NEST_BLOCK * 16];
  _Alignas(64) double numbers[NEST_BLOCK];
  const int64_t stride = task->nest.strides[0][0];
  for (int64_t begin = 0; begin < count; begin += NEST_BLOCK) {
    const int64_t n = count - begin < NEST_BLOCK ? count - begin : NEST_BLOCK;
    const char *from = data[0] + begin * stride;
    if (stride != task->width) {
      cast_gather(raw, from, stride, task->width, n);
      from = raw;
    }
    cast_block(DIT_DTYPE_F64, numbers, task->dtype, from, n);
    if (isinf(task->p)) {
      task->total = fold_extreme(numbers, n, task->total, task->p > 0);
    } else {
      task->total += fold_block(numbers, n, task->p);
    }
  }
}

enum dit_status foreach_get_norm(const struct dit_tensor_view *view, double p, double *out) {
  struct norm_task task = {.dtype = view->dtype, .width = (int)dit_dtype_get_size(view->dtype), .p = p};
  if (!frame_has_dtype(DTYPES_FLOAT, view->dtype)) {
    return DIT_ERR_UNSUPPORTED;
  }
  task.total = isinf(p) && p < 0 ? (double)INFINITY : 0;
  if (view->numel > 0) {
    nest_init(&task.nest, 1, &view);
    nest_walk(&task.nest, 0, task.nest.numel, norm_run, &task);
  }
  *out = isinf(p) || p == 0 || p == 1 ? task.total : p == 2 ? sqrt(task.total) : pow(task.total, 1 / p);
  return DIT_OK;
}

#define BITS(tag, type, arith)                \
  LOOP_2(add_##tag, type, type, arith, x + y) \
  LOOP_2(mul_##tag, type, type, arith, x *y)
LOOP_LIST_BITS(BITS)
LOOP_LIST_FLOAT(BITS)
#define PAIR(tag, type, arith)                      \
  LOOP_PLAIN_2(add_##tag, type, type, arith, x + y) \
  LOOP_PLAIN_2(mul_##tag, type, type, arith, x *y)
LOOP_LIST_COMPLEX(PAIR)
LOOP_1(add_number_f32, float, float, float, x + k0)
LOOP_1(mul_number_f32, float, float, float, x *k0)
LOOP_2(add_bool, uint8_t, uint8_t, uint32_t, (x | y) != 0)
LOOP_2(mul_bool, uint8_t, uint8_t, uint32_t, (x & y) != 0)
static loop_table add_loops = {ROWS_BITS_SIGNED(add), ROWS_FLOAT(add), ROWS_COMPLEX(add), [DIT_DTYPE_BOOL] = add_bool};
static loop_table mul_loops = {ROWS_BITS_SIGNED(mul), ROWS_FLOAT(mul), ROWS_COMPLEX(mul), [DIT_DTYPE_BOOL] = mul_bool};

struct list {
  const char *name;  ///< of the tensors that are written
  diopiTensorHandle_t *outs;
  diopiConstTensorHandle_t *inputs;
  int64_t count;
  const diopiScalar_t *number;  ///< or
  diopiConstTensorHandle_t tensor;
  bool is_tensor;
};

static diopiError_t prepare(struct elementwise *e, const char *function, diopiContextHandle_t ctx,
                            const struct list *list, int64_t i, loop_table loops, pointwise_loop *number_loop) {
  diopiConstTensorHandle_t input = list->inputs ? list->inputs[i] : list->outs[i];
  FRAME_TRY(elementwise_begin(e, function, ctx));
  FRAME_TRY(elementwise_add_output(e, list->name, list->outs[i]));
  FRAME_TRY(elementwise_add_input(e, "inputs", input));
  FRAME_TRY(list->is_tensor ? elementwise_add_input(e, "other", list->tensor)
                            : elementwise_add_scalar(e, "other", list->number));
  if (list->is_tensor) {
    FRAME_CHECK(&e->frame, e->views[2].numel == 1, "'other' has %lld elements; it must have 1",
                (long long)e->views[2].numel);
    e->views[2].ndim = 0;
  }
  FRAME_TRY(elementwise_check(e));
  const int compute = elementwise_promote(e);
  FRAME_TRY(elementwise_set_type(e, compute, loops));
  if (loops == add_loops) {
    elementwise_round_numbers(e, compute);
  }
  if (!list->is_tensor && e->run.work[0] == DIT_DTYPE_F32) {
    e->run.loop = number_loop;
    e->run.inputs = 1;
  }
  return diopiSuccess;
}

static diopiError_t run_list(const char *function, diopiContextHandle_t ctx, const struct list *list, bool has_inputs,
                             loop_table loops, pointwise_loop *number_loop) {
  struct frame frame;
  FRAME_TRY(frame_begin(&frame, function, ctx));
  FRAME_CHECK(&frame, list->count >= 0, "'inputSize' is %lld; it must not be negative", (long long)list->count);
  FRAME_CHECK(&frame, list->count == 0 || (list->outs && (!has_inputs || list->inputs)), "a list of tensors is NULL");
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < list->count; i++) {
      struct elementwise e;
      FRAME_TRY(prepare(&e, function, ctx, list, i, loops, number_loop));
      if (pass == 1) {
        FRAME_TRY(elementwise_launch(&e));
      }
    }
  }
  return diopiSuccess;
}

diopiError_t diopiForeachaddScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                   diopiConstTensorHandle_t *inputs, int64_t inputSize, const diopiScalar_t *other) {
  const struct list list = {"outs", outs, inputs, inputSize, other, NULL, false};
  return run_list(__func__, ctx, &list, true, add_loops, add_number_f32);
}
diopiError_t diopiForeachaddInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *inputs, int64_t inputSize,
                                      const diopiScalar_t *other) {
  const struct list list = {"inputs", inputs, NULL, inputSize, other, NULL, false};
  return run_list(__func__, ctx, &list, false, add_loops, add_number_f32);
}
diopiError_t diopiForeachmulScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                   diopiConstTensorHandle_t *inputs, int64_t inputSize, const diopiScalar_t *other) {
  const struct list list = {"outs", outs, inputs, inputSize, other, NULL, false};
  return run_list(__func__, ctx, &list, true, mul_loops, mul_number_f32);
}
diopiError_t diopiForeachmulInpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *inputs, int64_t inputSize,
                                      const diopiScalar_t *other) {
  const struct list list = {"inputs", inputs, NULL, inputSize, other, NULL, false};
  return run_list(__func__, ctx, &list, false, mul_loops, mul_number_f32);
}
diopiError_t diopiForeachmulTensor(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                   diopiConstTensorHandle_t *inputs, int64_t inputSize,
                                   const diopiConstTensorHandle_t other) {
  const struct list list = {"outs", outs, inputs, inputSize, NULL, other, true};
  return run_list(__func__, ctx, &list, true, mul_loops, NULL);
}
diopiError_t diopiForeachmulInpTensor(diopiContextHandle_t ctx, diopiTensorHandle_t *inputs, int64_t inputSize,
                                      const diopiConstTensorHandle_t other) {
  const struct list list = {"inputs", inputs, NULL, inputSize, NULL, other, true};
  return run_list(__func__, ctx, &list, false, mul_loops, NULL);
}

struct norm_list {
  struct frame *frame;
  diopiTensorHandle_t *outs;
  diopiConstTensorHandle_t *inputs;
  int64_t count;
  double p;
};

static diopiError_t run_norms(void *argument) {
  const struct norm_list *list = argument;
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < list->count; i++) {
      struct dit_tensor_view o, x;
      double norm;
      FRAME_TRY(frame_take(list->frame, "outs", list->outs[i], &o));
      FRAME_TRY(frame_take(list->frame, "inputs", list->inputs[i], &x));
      FRAME_CHECK(list->frame, o.ndim == 0, "'outs' has a tensor of %d dimensions; a norm is 0-d", (int)o.ndim);
      if (!frame_has_dtype(DTYPES_FLOAT, x.dtype)) {
        return frame_fail_dtype(list->frame, "inputs", x.dtype);
      }
      if (!frame_has_dtype(DTYPES_FLOAT, o.dtype)) {
        return frame_fail_dtype(list->frame, "outs", o.dtype);
      }
      FRAME_CHECK(list->frame, !isinf(list->p) || x.numel > 0, "'inputs' has an empty tensor, which has no norm of %g",
                  list->p);
      if (pass == 1 && foreach_get_norm(&x, list->p, &norm) == DIT_OK) {
        cast_block(o.dtype, o.data, DIT_DTYPE_F64, &norm, 1);
      }
    }
  }
  return diopiSuccess;
}

diopiError_t diopiForeachnormScalar(diopiContextHandle_t ctx, diopiTensorHandle_t *outs,
                                    diopiConstTensorHandle_t *inputs, int64_t inputSize, const diopiScalar_t *ord) {
  struct frame frame;
  struct dit_scalar order;
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, inputSize >= 0, "'inputSize' is %lld; it must not be negative", (long long)inputSize);
  FRAME_CHECK(&frame, inputSize == 0 || (outs && inputs), "a list of tensors is NULL");
  FRAME_TRY(frame_get_scalar(&frame, "ord", ord, &order));
  struct norm_list list = {&frame, outs, inputs, inputSize, frame_scalar_to_double(order)};
  return frame_run(&frame, run_norms, &list);
}
