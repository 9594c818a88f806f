/// The recurrent cells (formulas in dit/kernel.h), row by row in blocks of hidden units.
///
/// Every operand is loaded into the work type (float, or double for double), so half types round once, at the store.
#include <math.h>
#include <string.h>

#include "cast.h"
#include "dit/parallel.h"
#include "host.h"
#include "kernels.h"
#include "mathd.h"
#include "mathf.h"

#define UNITS 128  ///< hidden units per block
#define OPERANDS 8

#define REAL float
#define SIGMOID sigmoid_f32
#define TANH tanh_f32
#define NAME(x) x##_f32
#define BODY(x) x##_f32_body
#include "rnn_loops.h"
#undef REAL
#undef SIGMOID
#undef TANH
#undef NAME
#undef BODY
#define REAL double
#define SIGMOID sigmoid_f64
#define TANH tanh_f64
#define NAME(x) x##_f64
#define BODY(x) x##_f64_body
#include "rnn_loops.h"

/// One operand: address and bytes from row to row (0 for a bias, which all rows share); data NULL when absent.
struct rows {
  char *data;
  int64_t step;
};

struct cell_task {
  struct rows operand[OPERANDS];
  int64_t rows, hidden;
  int dtype, work, width;
  void (*row)(const struct cell_task *task, int64_t row);
};

/// Work-type values of one block; double rooms serve float too.
struct block {
  _Alignas(64) double value[UNITS];
};

static char *locate(const struct cell_task *task, int index, int64_t row, int64_t part, int64_t unit) {
  const struct rows *rows = &task->operand[index];
  return rows->data + row * rows->step + (part * task->hidden + unit) * task->width;
}

/// An absent operand reads as zeros.
static void load(const struct cell_task *task, struct block *block, int index, int64_t row, int64_t part, int64_t unit,
                 int64_t count) {
  if (!task->operand[index].data) {
    memset(block->value, 0, sizeof(block->value));
    return;
  }
  cast_block(task->work, block->value, task->dtype, locate(task, index, row, part, unit), count);
}

static void add(const struct cell_task *task, struct block *block, int index, int64_t row, int64_t part, int64_t unit,
                int64_t count) {
  struct block other;
  if (!task->operand[index].data) {
    return;
  }
  load(task, &other, index, row, part, unit, count);
  for (int64_t i = 0; i < count; i++) {
    if (task->work == DIT_DTYPE_F64) {
      block->value[i] += other.value[i];
    } else {
      ((float *)block->value)[i] += ((const float *)other.value)[i];
    }
  }
}

static void store(const struct cell_task *task, const struct block *block, int index, int64_t row, int64_t part,
                  int64_t unit, int64_t count) {
  cast_block(task->dtype, locate(task, index, row, part, unit), task->work, block->value, count);
}

#define AS_FLOAT(p) ((float *)(p)->value)
#define FOR_EACH_BLOCK(task, unit, count)                                                                      \
  for (int64_t unit = 0, count;                                                                                \
       unit < (task)->hidden && (count = (task)->hidden - unit < UNITS ? (task)->hidden - unit : UNITS, true); \
       unit += UNITS)

enum { LSTM_HY, LSTM_CY, LSTM_WORKSPACE, LSTM_INPUT, LSTM_HIDDEN, LSTM_CX, LSTM_INPUT_BIAS, LSTM_HIDDEN_BIAS };

static void lstm_row(const struct cell_task *task, int64_t row) {
  struct block gate[4], cx, cy, hy;
  FOR_EACH_BLOCK(task, unit, count) {
    for (int part = 0; part < 4; part++) {
      load(task, &gate[part], LSTM_INPUT, row, part, unit, count);
      add(task, &gate[part], LSTM_HIDDEN, row, part, unit, count);
      add(task, &gate[part], LSTM_INPUT_BIAS, row, part, unit, count);
      add(task, &gate[part], LSTM_HIDDEN_BIAS, row, part, unit, count);
    }
    load(task, &cx, LSTM_CX, row, 0, unit, count);
    if (task->work == DIT_DTYPE_F64) {
      double *const g[4] = {gate[0].value, gate[1].value, gate[2].value, gate[3].value};
      lstm_forward_f64(g, cx.value, cy.value, hy.value, count);
    } else {
      float *const g[4] = {AS_FLOAT(&gate[0]), AS_FLOAT(&gate[1]), AS_FLOAT(&gate[2]), AS_FLOAT(&gate[3])};
      lstm_forward_f32(g, AS_FLOAT(&cx), AS_FLOAT(&cy), AS_FLOAT(&hy), count);
    }
    for (int part = 0; part < 4; part++) {
      store(task, &gate[part], LSTM_WORKSPACE, row, part, unit, count);
    }
    store(task, &cy, LSTM_CY, row, 0, unit, count);
    store(task, &hy, LSTM_HY, row, 0, unit, count);
  }
}

enum { BACK_GATES, BACK_CX, BACK_GRAD_HY, BACK_GRAD_CY, BACK_OLD_CX, BACK_CY, BACK_WORKSPACE };

static void lstm_backward_row(const struct cell_task *task, int64_t row) {
  struct block gate[4], cx, cy, grad_hy, grad_cy, grad_cx;
  FOR_EACH_BLOCK(task, unit, count) {
    for (int part = 0; part < 4; part++) {
      load(task, &gate[part], BACK_WORKSPACE, row, part, unit, count);
    }
    load(task, &cx, BACK_OLD_CX, row, 0, unit, count);
    load(task, &cy, BACK_CY, row, 0, unit, count);
    load(task, &grad_hy, BACK_GRAD_HY, row, 0, unit, count);
    load(task, &grad_cy, BACK_GRAD_CY, row, 0, unit, count);
    if (task->work == DIT_DTYPE_F64) {
      double *const g[4] = {gate[0].value, gate[1].value, gate[2].value, gate[3].value};
      lstm_backward_f64(g, cx.value, cy.value, grad_hy.value, grad_cy.value, grad_cx.value, count);
    } else {
      float *const g[4] = {AS_FLOAT(&gate[0]), AS_FLOAT(&gate[1]), AS_FLOAT(&gate[2]), AS_FLOAT(&gate[3])};
      lstm_backward_f32(g, AS_FLOAT(&cx), AS_FLOAT(&cy), AS_FLOAT(&grad_hy), AS_FLOAT(&grad_cy), AS_FLOAT(&grad_cx),
                        count);
    }
    for (int part = 0; part < 4; part++) {
      store(task, &gate[part], BACK_GATES, row, part, unit, count);
    }
    store(task, &grad_cx, BACK_CX, row, 0, unit, count);
  }
}

enum { GRU_HY, GRU_WORKSPACE, GRU_INPUT, GRU_HIDDEN, GRU_HX, GRU_INPUT_BIAS, GRU_HIDDEN_BIAS };

static void gru_row(const struct cell_task *task, int64_t row) {
  struct block a[3], b[3], hx, hy;
  FOR_EACH_BLOCK(task, unit, count) {
    for (int part = 0; part < 3; part++) {
      load(task, &a[part], GRU_INPUT, row, part, unit, count);
      add(task, &a[part], GRU_INPUT_BIAS, row, part, unit, count);
      load(task, &b[part], GRU_HIDDEN, row, part, unit, count);
      add(task, &b[part], GRU_HIDDEN_BIAS, row, part, unit, count);
    }
    load(task, &hx, GRU_HX, row, 0, unit, count);
    if (task->work == DIT_DTYPE_F64) {
      double *const x[3] = {a[0].value, a[1].value, a[2].value}, *const y[3] = {b[0].value, b[1].value, b[2].value};
      gru_forward_f64(x, y, hx.value, hy.value, count);
    } else {
      float *const x[3] = {AS_FLOAT(&a[0]), AS_FLOAT(&a[1]), AS_FLOAT(&a[2])};
      float *const y[3] = {AS_FLOAT(&b[0]), AS_FLOAT(&b[1]), AS_FLOAT(&b[2])};
      gru_forward_f32(x, y, AS_FLOAT(&hx), AS_FLOAT(&hy), count);
    }
    for (int part = 0; part < 3; part++) {
      store(task, &a[part], GRU_WORKSPACE, row, part, unit, count);
    }
    store(task, &hx, GRU_WORKSPACE, row, 3, unit, count);
    store(task, &b[2], GRU_WORKSPACE, row, 4, unit, count);
    store(task, &hy, GRU_HY, row, 0, unit, count);
  }
}

enum { GRU_BACK_INPUT, GRU_BACK_HIDDEN, GRU_BACK_HX, GRU_BACK_GRAD_HY, GRU_BACK_WORKSPACE };

static void gru_backward_row(const struct cell_task *task, int64_t row) {
  struct block w[5], a[3], b[3], grad_hy, grad_hx;
  FOR_EACH_BLOCK(task, unit, count) {
    for (int part = 0; part < 5; part++) {
      load(task, &w[part], GRU_BACK_WORKSPACE, row, part, unit, count);
    }
    load(task, &grad_hy, GRU_BACK_GRAD_HY, row, 0, unit, count);
    if (task->work == DIT_DTYPE_F64) {
      double *const v[5] = {w[0].value, w[1].value, w[2].value, w[3].value, w[4].value};
      double *const x[3] = {a[0].value, a[1].value, a[2].value}, *const y[3] = {b[0].value, b[1].value, b[2].value};
      gru_backward_f64(v, x, y, grad_hy.value, grad_hx.value, count);
    } else {
      float *const v[5] = {AS_FLOAT(&w[0]), AS_FLOAT(&w[1]), AS_FLOAT(&w[2]), AS_FLOAT(&w[3]), AS_FLOAT(&w[4])};
      float *const x[3] = {AS_FLOAT(&a[0]), AS_FLOAT(&a[1]), AS_FLOAT(&a[2])};
      float *const y[3] = {AS_FLOAT(&b[0]), AS_FLOAT(&b[1]), AS_FLOAT(&b[2])};
      gru_backward_f32(v, x, y, AS_FLOAT(&grad_hy), AS_FLOAT(&grad_hx), count);
    }
    for (int part = 0; part < 3; part++) {
      store(task, &a[part], GRU_BACK_INPUT, row, part, unit, count);
      store(task, &b[part], GRU_BACK_HIDDEN, row, part, unit, count);
    }
    store(task, &grad_hx, GRU_BACK_HX, row, 0, unit, count);
  }
}

static void run_rows(void *context, int64_t begin, int64_t end) {
  const struct cell_task *task = context;
  for (int64_t row = begin; row < end; row++) {
    task->row(task, row);
  }
}

static void run_cell(void *argument) {
  struct cell_task *task = argument;
  dit_parallel_for(0, task->rows, 4096 / (task->hidden + 1) + 1, run_rows, task);
}

/// `state` is any (N,H) operand; the views are in the order of the row function's enum.
static enum dit_status launch(void *stream, void (*row)(const struct cell_task *, int64_t),
                              const struct dit_tensor_view *state, const struct dit_tensor_view *const *views,
                              int count, struct dit_error *err) {
  struct cell_task task;
  bool half = state->dtype == DIT_DTYPE_F16 || state->dtype == DIT_DTYPE_BF16;
  if (!half && state->dtype != DIT_DTYPE_F32 && state->dtype != DIT_DTYPE_F64) {
    return DIT_ERR_UNSUPPORTED;
  }
  task.rows = state->sizes[0];
  task.hidden = state->sizes[1];
  task.dtype = state->dtype;
  task.work = half ? DIT_DTYPE_F32 : state->dtype;
  task.width = (int)dit_dtype_get_size(state->dtype);
  task.row = row;
  for (int i = 0; i < count; i++) {
    task.operand[i].data = views[i] ? views[i]->data : NULL;
    task.operand[i].step = views[i] && views[i]->ndim == 2 ? views[i]->strides[0] * task.width : 0;
  }
  if (task.rows == 0 || task.hidden == 0) {
    return DIT_OK;
  }
  return host_stream_launch(stream, run_cell, &task, sizeof(task), err);
}

struct sum_task {
  const char *gates;
  char *out;
  int64_t rows, columns, step;  ///< step: bytes from row to row
  int dtype, width;
};

/// Blocks of columns, added up in double.
static void sum_columns(void *context, int64_t begin, int64_t end) {
  const struct sum_task *task = context;
  for (int64_t first = begin * UNITS; first < end * UNITS && first < task->columns; first += UNITS) {
    const int64_t count = task->columns - first < UNITS ? task->columns - first : UNITS;
    struct block row, total = {{0}};
    for (int64_t i = 0; i < task->rows; i++) {
      cast_block(DIT_DTYPE_F64, row.value, task->dtype, task->gates + i * task->step + first * task->width, count);
      for (int64_t column = 0; column < count; column++) {
        total.value[column] += row.value[column];
      }
    }
    cast_block(task->dtype, task->out + first * task->width, DIT_DTYPE_F64, total.value, count);
  }
}

static void run_sum(void *argument) {
  struct sum_task *task = argument;
  dit_parallel_for(0, (task->columns + UNITS - 1) / UNITS, 1 + 16384 / (UNITS * (task->rows + 1)), sum_columns, task);
}

/// grad_bias = the rows of `gates` added up; NULL: not wanted.
static enum dit_status add_rows(void *stream, const struct dit_tensor_view *grad_bias,
                                const struct dit_tensor_view *gates, struct dit_error *err) {
  if (!grad_bias) {
    return DIT_OK;
  }
  struct sum_task task = {.gates = gates->data, .out = grad_bias->data, .rows = gates->sizes[0]};
  task.columns = gates->sizes[1];
  task.dtype = gates->dtype;
  task.width = (int)dit_dtype_get_size(gates->dtype);
  task.step = gates->strides[0] * task.width;
  return host_stream_launch(stream, run_sum, &task, sizeof(task), err);
}

enum dit_status kernel_lstm_cell(void *stream, const struct dit_tensor_view *hy, const struct dit_tensor_view *cy,
                                 const struct dit_tensor_view *workspace, const struct dit_tensor_view *input_gates,
                                 const struct dit_tensor_view *hidden_gates, const struct dit_tensor_view *cx,
                                 const struct dit_tensor_view *input_bias, const struct dit_tensor_view *hidden_bias,
                                 struct dit_error *err) {
  const struct dit_tensor_view *views[] = {hy, cy, workspace, input_gates, hidden_gates, cx, input_bias, hidden_bias};
  return launch(stream, lstm_row, cx, views, 8, err);
}

enum dit_status kernel_lstm_cell_backward(void *stream, const struct dit_tensor_view *grad_gates,
                                          const struct dit_tensor_view *grad_cx,
                                          const struct dit_tensor_view *grad_bias,
                                          const struct dit_tensor_view *grad_hy, const struct dit_tensor_view *grad_cy,
                                          const struct dit_tensor_view *cx, const struct dit_tensor_view *cy,
                                          const struct dit_tensor_view *workspace, struct dit_error *err) {
  const struct dit_tensor_view *views[] = {grad_gates, grad_cx, grad_hy, grad_cy, cx, cy, workspace};
  DIT_RETURN_IF_NOT_OK(launch(stream, lstm_backward_row, cx, views, 7, err));
  return add_rows(stream, grad_bias, grad_gates, err);
}

enum dit_status kernel_gru_cell(void *stream, const struct dit_tensor_view *hy, const struct dit_tensor_view *workspace,
                                const struct dit_tensor_view *input_gates, const struct dit_tensor_view *hidden_gates,
                                const struct dit_tensor_view *hx, const struct dit_tensor_view *input_bias,
                                const struct dit_tensor_view *hidden_bias, struct dit_error *err) {
  const struct dit_tensor_view *views[] = {hy, workspace, input_gates, hidden_gates, hx, input_bias, hidden_bias};
  return launch(stream, gru_row, hx, views, 7, err);
}

enum dit_status kernel_gru_cell_backward(void *stream, const struct dit_tensor_view *grad_input_gates,
                                         const struct dit_tensor_view *grad_hidden_gates,
                                         const struct dit_tensor_view *grad_hx,
                                         const struct dit_tensor_view *grad_input_bias,
                                         const struct dit_tensor_view *grad_hidden_bias,
                                         const struct dit_tensor_view *grad_hy, const struct dit_tensor_view *workspace,
                                         struct dit_error *err) {
  const struct dit_tensor_view *views[] = {grad_input_gates, grad_hidden_gates, grad_hx, grad_hy, workspace};
  DIT_RETURN_IF_NOT_OK(launch(stream, gru_backward_row, grad_hy, views, 5, err));
  DIT_RETURN_IF_NOT_OK(add_rows(stream, grad_input_bias, grad_input_gates, err));
  return add_rows(stream, grad_hidden_bias, grad_hidden_gates, err);
}
