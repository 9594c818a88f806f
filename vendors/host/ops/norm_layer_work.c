/// Layer and RMS norm on the host (see norm_layer.c for the formulas).
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "norm_layer.h"

#define SUM_LANES 32
#define SUM_BLOCK 2048
#define SHORT_LENGTH 256  // elements of a row that is worked on in one function
#define GRAIN 16384
#define MAX_CHUNKS 64

#define REAL_LOOPS "norm_layer_loops.h"
#include "real.h"

static void run_forward_rows(void *context, int64_t begin, int64_t end) {
  const struct layer_task *task = context;
  (task->work == DIT_DTYPE_F32 ? forward_rows_f32 : forward_rows_f64)(task, begin, end);
}

static void run_backward_chunks(void *context, int64_t begin, int64_t end) {
  const struct layer_task *task = context;
  (task->work == DIT_DTYPE_F32 ? backward_chunks_f32 : backward_chunks_f64)(task, begin, end);
}

static diopiError_t run_forward(void *argument) {
  struct layer_task *task = argument;
  enum { INPUT, WEIGHT, BIAS, OUT, MEAN, SCALE, COUNT };
  struct dense d[COUNT] = {0};
  diopiError_t code = diopiSuccess;
  const int work = task->work;
  if (dense_read_data(&d[INPUT], &task->v_input, work) && dense_read(&d[WEIGHT], &task->v_weight, work) &&
      dense_read(&d[BIAS], &task->v_bias, work) && dense_reserve_data(&d[OUT], &task->v_out, work) &&
      dense_reserve(&d[MEAN], &task->v_mean, work) && dense_reserve(&d[SCALE], &task->v_scale, work)) {
    task->from = (struct row_data){d[INPUT].data, d[INPUT].dtype};
    task->to = (struct row_data){d[OUT].data, d[OUT].dtype};
    task->weight = d[WEIGHT].data;
    task->bias = d[BIAS].data;
    task->mean = d[MEAN].data;
    task->scale = d[SCALE].data;
    dit_parallel_for(0, task->rows, GRAIN / (task->length > 0 ? task->length : 1), run_forward_rows, task);
    dense_store(&d[OUT]);
    dense_store(&d[MEAN]);
    dense_store(&d[SCALE]);
  } else {
    code = dense_fail(&task->frame);
  }
  for (int i = 0; i < COUNT; i++) {
    dense_close(&d[i]);
  }
  return code;
}

/// Rows in fixed chunks, so that the order of sums does not depend on threads.
static bool set_chunks(struct layer_task *task) {
  const size_t width = dit_dtype_get_size(task->work);
  task->chunk = (task->rows + MAX_CHUNKS - 1) / MAX_CHUNKS;
  const int64_t least = GRAIN / (task->length > 0 ? task->length : 1);
  task->chunk = task->chunk < least ? least : task->chunk;
  task->chunk = task->chunk < 1 ? 1 : task->chunk;
  task->chunks = (task->rows + task->chunk - 1) / task->chunk;
  if (!task->v_grad_weight.handle && !task->v_grad_bias.handle) {
    return true;
  }
  const size_t count = (size_t)(task->chunks > 0 ? task->chunks : 1) * 2 * (size_t)task->length;
  task->partial = dit_calloc(count > 0 ? count : 1, width);
  return task->partial != NULL;
}

static diopiError_t run_backward(void *argument) {
  struct layer_task *task = argument;
  enum { INPUT, GRAD, WEIGHT, MEAN, SCALE, OUT, GRAD_WEIGHT, GRAD_BIAS, COUNT };
  struct dense d[COUNT] = {0};
  diopiError_t code = diopiSuccess;
  const int work = task->work;
  if (dense_read(&d[INPUT], &task->v_input, work) && dense_read(&d[GRAD], &task->v_grad, work) &&
      dense_read(&d[WEIGHT], &task->v_weight, work) && dense_read(&d[MEAN], &task->v_mean, work) &&
      dense_read(&d[SCALE], &task->v_scale, work) && dense_reserve(&d[OUT], &task->v_out, work) &&
      dense_reserve(&d[GRAD_WEIGHT], &task->v_grad_weight, work) &&
      dense_reserve(&d[GRAD_BIAS], &task->v_grad_bias, work) && set_chunks(task)) {
    task->input = d[INPUT].data;
    task->grad = d[GRAD].data;
    task->weight = d[WEIGHT].data;
    task->mean = d[MEAN].data;
    task->scale = d[SCALE].data;
    task->out = d[OUT].data;
    dit_parallel_for(0, task->chunks, 1, run_backward_chunks, task);
    if (task->partial) {
      const size_t bytes = (size_t)task->length * dit_dtype_get_size(work);
      (work == DIT_DTYPE_F32 ? merge_chunks_f32 : merge_chunks_f64)(task);
      for (int i = 0; i < 2; i++) {
        if (d[GRAD_WEIGHT + i].data) {
          memcpy(d[GRAD_WEIGHT + i].data, (char *)task->partial + (size_t)i * bytes, bytes);
        }
      }
    }
    for (int i = OUT; i < COUNT; i++) {
      dense_store(&d[i]);
    }
  } else {
    code = dense_fail(&task->frame);
  }
  dit_free(task->partial);
  for (int i = 0; i < COUNT; i++) {
    dense_close(&d[i]);
  }
  return code;
}

static diopiError_t queue(struct layer_task *task, frame_work *work) {
  return FRAME_QUEUE(&task->frame, work, task, NULL, &task->v_out, &task->v_mean, &task->v_scale, &task->v_input,
                     &task->v_weight, &task->v_bias, &task->v_grad, &task->v_grad_weight, &task->v_grad_bias);
}

diopiError_t layer_forward(struct layer_task *task) {
  return queue(task, run_forward);
}

diopiError_t layer_backward(struct layer_task *task) {
  return queue(task, run_backward);
}
