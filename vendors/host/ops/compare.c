/// Comparisons: eq, ne, ge, gt, le, lt with a tensor or a number, and equality of whole tensors.
///
/// out[i] = input[i] op other[i] in the operands' common dtype; the result is bool, 0 or 1 in other dtypes of out. Inp
/// writes 0 and 1 into input. NaN is equal to nothing. Complex numbers are equal or not, but have no order.
#include <string.h>

#include "elementwise.h"
#include "engine/cast.h"
#include "engine/nest.h"

#define ORDER(tag, type, arith)                 \
  LOOP_2(ge_##tag, uint8_t, type, type, x >= y) \
  LOOP_2(gt_##tag, uint8_t, type, type, x > y)  \
  LOOP_2(le_##tag, uint8_t, type, type, x <= y) \
  LOOP_2(lt_##tag, uint8_t, type, type, x < y)
LOOP_LIST_INT(ORDER)
LOOP_LIST_FLOAT(ORDER)
#define EQUALITY(tag, type, arith)              \
  LOOP_2(eq_##tag, uint8_t, type, type, x == y) \
  LOOP_2(ne_##tag, uint8_t, type, type, x != y)
LOOP_LIST_BITS(EQUALITY)
LOOP_LIST_FLOAT(EQUALITY)
#define PAIR_EQUALITY(tag, type, arith)               \
  LOOP_PLAIN_2(eq_##tag, uint8_t, type, type, x == y) \
  LOOP_PLAIN_2(ne_##tag, uint8_t, type, type, x != y)
LOOP_LIST_COMPLEX(PAIR_EQUALITY)
// the most frequent scalar forms keep the number in a register
#define NUMBER(name, op) LOOP_1(name##_number, uint8_t, float, float, x op k0)
NUMBER(eq, ==)
NUMBER(ne, !=)
NUMBER(ge, >=)
NUMBER(gt, >)
NUMBER(le, <=)
NUMBER(lt, <)

static diopiError_t run_compare(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, diopiConstTensorHandle_t other,
                                const diopiScalar_t *number, bool is_number, loop_table loops,
                                pointwise_loop *number_loop) {
  struct elementwise e;
  FRAME_TRY(elementwise_begin(&e, function, ctx));
  FRAME_TRY(elementwise_add_output(&e, out && out == input ? "input" : "out", out));
  FRAME_TRY(elementwise_add_input(&e, "input", input));
  FRAME_TRY(is_number ? elementwise_add_scalar(&e, "other", number) : elementwise_add_input(&e, "other", other));
  FRAME_TRY(elementwise_check(&e));
  const int compute = elementwise_promote(&e);
  FRAME_TRY(elementwise_set_types(&e, DIT_DTYPE_BOOL, compute, loops));
  if (is_number) {
    elementwise_round_numbers(&e, compute);
    if (e.run.work[1] == DIT_DTYPE_F32) {
      e.run.loop = number_loop;
      e.run.inputs = 1;
    }
  }
  return elementwise_launch(&e);
}

#define DEFINE(Name, loops, number_loop)                                                                               \
  diopiError_t diopi##Name(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,          \
                           diopiConstTensorHandle_t other) {                                                           \
    return run_compare(__func__, ctx, out, input, other, NULL, false, loops, number_loop);                             \
  }                                                                                                                    \
  diopiError_t diopi##Name##Inp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t other) { \
    return run_compare(__func__, ctx, input, input, other, NULL, false, loops, number_loop);                           \
  }                                                                                                                    \
  diopiError_t diopi##Name##Scalar(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,  \
                                   const diopiScalar_t *other) {                                                       \
    return run_compare(__func__, ctx, out, input, NULL, other, true, loops, number_loop);                              \
  }                                                                                                                    \
  diopiError_t diopi##Name##InpScalar(diopiContextHandle_t ctx, diopiTensorHandle_t input,                             \
                                      const diopiScalar_t *other) {                                                    \
    return run_compare(__func__, ctx, input, input, NULL, other, true, loops, number_loop);                            \
  }
#define EQUALITY_TABLE(op) {ROWS_BITS(op), ROWS_FLOAT(op), ROWS_COMPLEX(op), [DIT_DTYPE_BOOL] = op##_u8}
#define ORDER_TABLE(op) {ROWS_INT(op), ROWS_FLOAT(op), [DIT_DTYPE_BOOL] = op##_u8}
static loop_table eq_loops = EQUALITY_TABLE(eq), ne_loops = EQUALITY_TABLE(ne);
static loop_table ge_loops = ORDER_TABLE(ge), gt_loops = ORDER_TABLE(gt), le_loops = ORDER_TABLE(le),
                  lt_loops = ORDER_TABLE(lt);
DEFINE(Eq, eq_loops, eq_number)
DEFINE(Ne, ne_loops, ne_number)
DEFINE(Ge, ge_loops, ge_number)
DEFINE(Gt, gt_loops, gt_number)
DEFINE(Le, le_loops, le_number)
DEFINE(Lt, lt_loops, lt_number)

/// Equality of whole tensors: ne, block by block, until one differs.
struct equal_task {
  struct nest nest;
  const struct dit_tensor_view *views[2];
  pointwise_loop *loop;
  int work, dtype, width;
  bool differs;
};

static const _Alignas(16) char no_numbers[POINTWISE_PARAMETERS];

static void equal_run(void *context, char *const *data, int64_t count) {
  struct equal_task *task = context;
  _Alignas(64) char raw[2][NEST_BLOCK * 16], block[2][NEST_BLOCK * 16];
  uint8_t different[NEST_BLOCK];
  for (int64_t begin = 0; begin < count && !task->differs; begin += NEST_BLOCK) {
    const int64_t n = count - begin < NEST_BLOCK ? count - begin : NEST_BLOCK;
    const void *in[2];
    for (int i = 0; i < 2; i++) {
      const int64_t stride = task->nest.strides[i][0];
      in[i] = data[i] + begin * stride;
      if (stride != task->width) {
        cast_gather(raw[i], in[i], stride, task->width, n);
        in[i] = raw[i];
      }
      if (task->work != task->dtype) {
        cast_block(task->work, block[i], task->dtype, in[i], n);
        in[i] = block[i];
      }
    }
    task->loop(no_numbers, (void *[]){different}, in, n);
    task->differs = memchr(different, 1, (size_t)n) != NULL;
  }
}

static diopiError_t run_equal(void *argument) {
  struct equal_task *task = argument;
  nest_init(&task->nest, 2, task->views);
  nest_walk(&task->nest, 0, task->nest.numel, equal_run, task);
  return diopiSuccess;
}

diopiError_t diopiEqual(diopiContextHandle_t ctx, bool *out, diopiConstTensorHandle_t input,
                        diopiConstTensorHandle_t other) {
  struct frame frame;
  struct dit_tensor_view a, b;
  struct equal_task task;
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, out != NULL, "'out' is NULL; it must be the place for a bool");
  FRAME_TAKE(&frame, input, &a);
  FRAME_TAKE(&frame, other, &b);
  FRAME_CHECK(&frame, a.dtype == b.dtype, "'input' is %s, 'other' is %s; they must be equal",
              dit_dtype_get_name(a.dtype), dit_dtype_get_name(b.dtype));
  task.dtype = a.dtype;
  task.work = elementwise_get_work(a.dtype);
  if (task.work >= LOOP_TYPES || !ne_loops[task.work]) {
    return frame_fail_dtype(&frame, "input", a.dtype);
  }
  if (!frame_is_same_shape(&a, &b)) {
    *out = false;
    return diopiSuccess;
  }
  task.views[0] = &a;
  task.views[1] = &b;
  task.loop = ne_loops[task.work];
  task.width = (int)dit_dtype_get_size(a.dtype);
  task.differs = false;
  if (a.numel > 0) {
    FRAME_TRY(frame_run(&frame, run_equal, &task));
  }
  *out = !task.differs;
  return diopiSuccess;
}
