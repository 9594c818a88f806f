/// The elementwise binary kernel: out = a op (alpha *) b.
///
/// Work happens in the "work" type (the compute dtype; float for half types) on contiguous blocks or single values. An
/// operand of another type or stride is first gathered and converted into a block of NEST_BLOCK elements, a result
/// likewise on its way out, so there is one loop per (operation, type, scalar side) and no combination of dtypes needs
/// code of its own. out may be exactly a or b.
#include <string.h>

#include "cast.h"
#include "host.h"
#include "kernels.h"
#include "nest.h"
#include "simd.h"

enum loop_op { LOOP_ADD, LOOP_SUB, LOOP_ADD_SCALED, LOOP_MUL, LOOP_DIV, LOOP_OPS };
enum loop_shape { LOOP_BOTH, LOOP_B_SCALAR, LOOP_A_SCALAR, LOOP_SHAPES };
enum loop_type { TYPE_U8, TYPE_I8, TYPE_I16, TYPE_I32, TYPE_I64, TYPE_F32, TYPE_F64, TYPE_BOOL, LOOP_TYPES };

typedef void loop_function(void *out, const void *a, const void *b, const void *alpha, int64_t count);

/// `x` and `y` are the operands, `k` is alpha, all in the arithmetic type (unsigned for integers: wrapping is defined).
#define EXPR_ADD (x + y)
#define EXPR_SUB (x - y)
#define EXPR_ADD_SCALED (x + k * y)
#define EXPR_MUL (x * y)
#define EXPR_DIV (x / y)
#define EXPR_BOOL_ADD ((x | y) != 0)
#define EXPR_BOOL_ADD_SCALED ((x | (y & k)) != 0)
#define EXPR_BOOL_MUL ((x & y) != 0)

#define PARAMS (void *out, const void *a, const void *b, const void *alpha, int64_t count)
#define ARGS (out, a, b, alpha, count)

#define LOOP_BODY(name, type, arith, expr, a_index, b_index)                           \
  KERNEL_INLINE void name##_body PARAMS {                                              \
    type *o = out;                                                                     \
    const type *p = a, *q = b;                                                         \
    const arith k = (arith) * (const type *)alpha, x0 = (arith) * p, y0 = (arith) * q; \
    (void)k, (void)x0, (void)y0;                                                       \
    KERNEL_LANES                                                                       \
    for (int64_t i = 0; i < count; i++) {                                              \
      const arith x = a_index, y = b_index;                                            \
      o[i] = (type)(expr);                                                             \
    }                                                                                  \
  }                                                                                    \
  KERNEL_MULTI(static, name, PARAMS, ARGS)

#define LOOPS(op, tag, type, arith, expr)                                   \
  LOOP_BODY(op##_##tag##_both, type, arith, expr, (arith)p[i], (arith)q[i]) \
  LOOP_BODY(op##_##tag##_b, type, arith, expr, (arith)p[i], y0)             \
  LOOP_BODY(op##_##tag##_a, type, arith, expr, x0, (arith)q[i])
#define LOOPS_INTEGER(tag, type, arith)            \
  LOOPS(add, tag, type, arith, EXPR_ADD)           \
  LOOPS(sub, tag, type, arith, EXPR_SUB)           \
  LOOPS(scaled, tag, type, arith, EXPR_ADD_SCALED) \
  LOOPS(mul, tag, type, arith, EXPR_MUL)
#define LOOPS_FLOAT(tag, type)   \
  LOOPS_INTEGER(tag, type, type) \
  LOOPS(div, tag, type, type, EXPR_DIV)

LOOPS_INTEGER(u8, uint8_t, uint32_t)
LOOPS_INTEGER(i8, int8_t, uint32_t)
LOOPS_INTEGER(i16, int16_t, uint32_t)
LOOPS_INTEGER(i32, int32_t, uint32_t)
LOOPS_INTEGER(i64, int64_t, uint64_t)
LOOPS_FLOAT(f32, float)
LOOPS_FLOAT(f64, double)
LOOPS(add, bool, uint8_t, uint32_t, EXPR_BOOL_ADD)
LOOPS(scaled, bool, uint8_t, uint32_t, EXPR_BOOL_ADD_SCALED)
LOOPS(mul, bool, uint8_t, uint32_t, EXPR_BOOL_MUL)

#define ROW(op, tag) {op##_##tag##_both, op##_##tag##_b, op##_##tag##_a}
#define ROWS_INTEGER(tag)                                                                       \
  [LOOP_ADD] = ROW(add, tag), [LOOP_SUB] = ROW(sub, tag), [LOOP_ADD_SCALED] = ROW(scaled, tag), \
  [LOOP_MUL] = ROW(mul, tag)
static loop_function *const loops[LOOP_TYPES][LOOP_OPS][LOOP_SHAPES] = {
    [TYPE_U8] = {ROWS_INTEGER(u8)},
    [TYPE_I8] = {ROWS_INTEGER(i8)},
    [TYPE_I16] = {ROWS_INTEGER(i16)},
    [TYPE_I32] = {ROWS_INTEGER(i32)},
    [TYPE_I64] = {ROWS_INTEGER(i64)},
    [TYPE_F32] = {ROWS_INTEGER(f32), [LOOP_DIV] = ROW(div, f32)},
    [TYPE_F64] = {ROWS_INTEGER(f64), [LOOP_DIV] = ROW(div, f64)},
    [TYPE_BOOL] = {[LOOP_ADD] = ROW(add, bool), [LOOP_ADD_SCALED] = ROW(scaled, bool), [LOOP_MUL] = ROW(mul, bool)},
};

static int get_type(int dtype) {
  static const int8_t types[] = {
      [DIT_DTYPE_U8] = TYPE_U8 + 1,   [DIT_DTYPE_I8] = TYPE_I8 + 1,    [DIT_DTYPE_I16] = TYPE_I16 + 1,
      [DIT_DTYPE_I32] = TYPE_I32 + 1, [DIT_DTYPE_I64] = TYPE_I64 + 1,  [DIT_DTYPE_F32] = TYPE_F32 + 1,
      [DIT_DTYPE_F64] = TYPE_F64 + 1, [DIT_DTYPE_BOOL] = TYPE_BOOL + 1};
  return dtype >= 0 && dtype < (int)sizeof(types) ? types[dtype] - 1 : -1;
}

struct binary_task {
  struct nest nest;
  loop_function *const *loop;  ///< by enum loop_shape
  int dtype[3];                ///< out, a, b
  int compute, work;
  int work_width;
  bool is_value[3];                ///< operand is the number in `value`
  _Alignas(16) char value[3][16];  ///< in the work type
  _Alignas(16) char alpha[16];
};

/// How one operand of one block is seen by the loop: an address, and whether it is a single value.
static const void *stage_input(const struct binary_task *task, int operand, const char *data, int64_t count, char *room,
                               bool *single) {
  const int dtype = task->dtype[operand], width = (int)dit_dtype_get_size(dtype);
  int64_t stride = task->nest.strides[operand][0];
  char raw[NEST_BLOCK * 8];
  if (task->is_value[operand]) {
    *single = true;
    return task->value[operand];
  }
  *single = stride == 0;
  count = *single ? 1 : count;
  if (dtype == task->work) {
    if (*single || stride == width) {
      return data;
    }
    cast_gather(room, data, stride, width, count);
    return room;
  }
  if (!*single && stride != width) {
    cast_gather(raw, data, stride, width, count);
    data = raw;
  }
  if (task->compute != task->work && dtype != task->compute) {
    char rounded[NEST_BLOCK * 2];
    cast_block(task->compute, rounded, dtype, data, count);
    cast_block(task->work, room, task->compute, rounded, count);
  } else {
    cast_block(task->work, room, dtype, data, count);
  }
  return room;
}

static void store_block(const struct binary_task *task, char *data, const char *block, int64_t count) {
  const int dtype = task->dtype[0], width = (int)dit_dtype_get_size(dtype);
  const int64_t stride = task->nest.strides[0][0];
  char rounded[NEST_BLOCK * 2], raw[NEST_BLOCK * 8];
  int from = task->work;
  if (task->compute != task->work && dtype != task->compute) {
    cast_block(task->compute, rounded, task->work, block, count);
    block = rounded;
    from = task->compute;
  }
  if (stride == width) {
    cast_block(dtype, data, from, block, count);
    return;
  }
  if (dtype != from) {
    cast_block(dtype, raw, from, block, count);
    block = raw;
  }
  cast_scatter(data, stride, block, width, count);
}

static void run_block(const struct binary_task *task, char *out, const char *a, const char *b, int64_t count) {
  _Alignas(64) char room[3][NEST_BLOCK * 8];
  bool a_single, b_single;
  const void *x = stage_input(task, 1, a, count, room[1], &a_single);
  const void *y = stage_input(task, 2, b, count, room[2], &b_single);
  if (a_single && b_single) {
    memmove(room[1], x, (size_t)task->work_width);
    cast_move(room[1] + task->work_width, task->work_width, room[1], 0, task->work_width, count - 1);
    x = room[1];
    a_single = false;
  }
  enum loop_shape shape = a_single ? LOOP_A_SCALAR : b_single ? LOOP_B_SCALAR : LOOP_BOTH;
  bool direct = task->dtype[0] == task->work && task->nest.strides[0][0] == task->work_width;
  task->loop[shape](direct ? out : room[0], x, y, task->alpha, count);
  if (!direct) {
    store_block(task, out, room[0], count);
  }
}

/// True when no operand of this task ever needs a block: the loop may then take a whole run at once.
static bool is_direct(const struct binary_task *task) {
  bool single = true;
  for (int operand = 0; operand < 3; operand++) {
    int64_t stride = task->nest.strides[operand][0];
    bool value = operand > 0 && (task->is_value[operand] || stride == 0);
    if (!task->is_value[operand] && (task->dtype[operand] != task->work || (!value && stride != task->work_width))) {
      return false;
    }
    single = single && (operand == 0 || value);
  }
  return !single;
}

static void run_run(void *context, char *const *data, int64_t count) {
  const struct binary_task *task = context;
  int64_t step = is_direct(task) ? count : NEST_BLOCK;
  for (int64_t i = 0; i < count; i += step) {
    int64_t n = count - i < step ? count - i : step;
    run_block(task, data[0] + i * task->nest.strides[0][0], data[1] + i * task->nest.strides[1][0],
              data[2] + i * task->nest.strides[2][0], n);
  }
}

static void run_task(void *argument) {
  struct binary_task *task = argument;
  nest_run(&task->nest, run_run, task);
}

/// The loop of this call and alpha in the work type. SUB with an alpha is ADD with its negative.
static loop_function *const *select_loop(enum dit_binary_kind kind, int work, struct dit_scalar alpha, char *room) {
  static const enum loop_op plain[] = {LOOP_ADD, LOOP_SUB, LOOP_MUL, LOOP_DIV};
  enum loop_op op = plain[kind];
  int type = get_type(work);
  if (type < 0) {
    return NULL;
  }
  bool is_one = alpha.kind == DIT_SCALAR_DOUBLE ? alpha.v.d == 1.0 : alpha.v.i == 1;
  if (kind <= DIT_BINARY_SUB && !is_one) {
    op = LOOP_ADD_SCALED;
    if (kind == DIT_BINARY_SUB && alpha.kind == DIT_SCALAR_DOUBLE) {
      alpha.v.d = -alpha.v.d;
    } else if (kind == DIT_BINARY_SUB) {
      alpha.v.i = (int64_t)(0 - (uint64_t)alpha.v.i);
    }
    if (work == DIT_DTYPE_BOOL && kind == DIT_BINARY_SUB) {
      return NULL;
    }
  }
  if (!kernel_store_scalar(alpha, work, room)) {
    return NULL;
  }
  return loops[type][op][0] ? loops[type][op] : NULL;
}

static void set_operand(struct binary_task *task, int operand, const struct dit_tensor_view *view) {
  task->dtype[operand] = view->dtype;
  task->is_value[operand] = operand > 0 && !(view->flags & DIT_TENSOR_ON_DEVICE);
  if (task->is_value[operand]) {
    if (task->compute != task->work) {
      char rounded[16];
      cast_block(task->compute, rounded, view->dtype, view->data, 1);
      cast_block(task->work, task->value[operand], task->compute, rounded, 1);
    } else {
      cast_block(task->work, task->value[operand], view->dtype, view->data, 1);
    }
  }
}

enum dit_status kernel_binary(void *stream, enum dit_binary_kind kind, const struct dit_tensor_view *out,
                              const struct dit_tensor_view *a, const struct dit_tensor_view *b, struct dit_scalar alpha,
                              int compute, struct dit_error *err) {
  _Alignas(16) char alpha_room[16] = {0};
  int work = compute == DIT_DTYPE_F16 || compute == DIT_DTYPE_BF16 ? DIT_DTYPE_F32 : compute;
  loop_function *const *loop = select_loop(kind, work, alpha, alpha_room);
  if (!loop) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (out->numel == 0) {
    return DIT_OK;
  }
  const uint8_t want = DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_ON_DEVICE;
  if (DIT_LIKELY(!stream && (out->flags & a->flags & b->flags & want) == want && out->dtype == work &&
                 a->dtype == work && b->dtype == work && out->numel <= NEST_GRAIN)) {
    loop[LOOP_BOTH](out->data, a->data, b->data, alpha_room, out->numel);
    return DIT_OK;
  }
  if (!cast_is_supported(work, a->dtype) || !cast_is_supported(work, b->dtype) ||
      !cast_is_supported(out->dtype, work)) {
    return DIT_ERR_UNSUPPORTED;
  }
  struct binary_task task;
  const struct dit_tensor_view *views[3] = {out, a, b};
  nest_init(&task.nest, 3, views);
  task.loop = loop;
  task.compute = compute;
  task.work = work;
  task.work_width = (int)dit_dtype_get_size(work);
  memcpy(task.alpha, alpha_room, sizeof(alpha_room));
  for (int operand = 0; operand < 3; operand++) {
    set_operand(&task, operand, views[operand]);
  }
  return host_stream_launch(stream, run_task, &task, sizeof(task), err);
}
