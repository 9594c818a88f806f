/// Losses between elements on the host (see loss.c).
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "engine/rows.h"
#include "loss.h"

#define BLOCK 512
#define CHUNK 32768

enum {
  OUT = LOSS_OUT,
  X = LOSS_X,
  TARGET = LOSS_TARGET,
  WEIGHT = LOSS_WEIGHT,
  POS_WEIGHT = LOSS_POS_WEIGHT,
  GRAD = LOSS_GRAD,
  OPERANDS = LOSS_OPERANDS
};

#define REAL_LOOPS "loss_loops.h"
#include "real.h"

static void run_chunks(void *context, int64_t begin, int64_t end) {
  const struct loss_task *task = context;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    (task->work == DIT_DTYPE_F32 ? run_chunk_f32 : run_chunk_f64)(task, chunk);
  }
}

/// Probabilities outside [0, 1] (or NaN) are refused before anything is written.
static diopiError_t check_probabilities(struct loss_task *task) {
  if (task->kind != LOSS_BCE || task->backward) {
    return diopiSuccess;
  }
  for (int64_t i = 0; i < task->numel; i++) {
    const double x =
        task->work == DIT_DTYPE_F32 ? (double)((const float *)task->p[X])[i] : ((const double *)task->p[X])[i];
    FRAME_CHECK(&task->frame, x >= 0 && x <= 1, "'input' has the value %g; all must be between 0 and 1", x);
  }
  return diopiSuccess;
}

static void store_sum(struct loss_task *task, int64_t chunks, void *out) {
  double sum = 0;
  for (int64_t i = 0; i < chunks; i++) {
    sum += task->sum[i];
  }
  if (task->reduction == ReductionMean) {
    sum /= (double)task->numel;
  }
  if (task->work == DIT_DTYPE_F32) {
    *(float *)out = (float)sum;
  } else {
    *(double *)out = sum;
  }
}

static diopiError_t run_loss(void *argument) {
  struct loss_task *task = argument;
  struct dense d[OPERANDS] = {0};
  const int64_t chunks = (task->numel + CHUNK - 1) / CHUNK;
  const bool reduces = !task->backward && task->reduction != ReductionNone;
  bool done = dense_reserve(&d[OUT], &task->views[OUT], task->work);
  for (int i = X; i < OPERANDS && done; i++) {
    done = dense_read(&d[i], &task->views[i], task->work);
  }
  if (done && reduces) {
    task->sum = dit_malloc(sizeof(double) * (size_t)(chunks + 1));
    done = task->sum != NULL;
  }
  diopiError_t code = diopiSuccess;
  if (done) {
    for (int i = 0; i < OPERANDS; i++) {
      task->p[i] = d[i].data;
    }
    code = check_probabilities(task);
  } else {
    code = dense_fail(&task->frame);
  }
  if (code == diopiSuccess) {
    dit_parallel_for(0, chunks, 1, run_chunks, task);
    if (reduces) {
      store_sum(task, chunks, d[OUT].data);
    }
    dense_store(&d[OUT]);
  }
  for (int i = 0; i < OPERANDS; i++) {
    dense_close(&d[i]);
  }
  dit_free(task->sum);
  return code;
}

diopiError_t loss_run(struct loss_task *task) {
  return FRAME_QUEUE(&task->frame, run_loss, task, NULL, &task->views[OUT], &task->views[X], &task->views[TARGET],
                     &task->views[WEIGHT], &task->views[POS_WEIGHT], &task->views[GRAD]);
}
