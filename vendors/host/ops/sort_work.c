/// Sorting on the host (see sort.c).
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "engine/sort.h"
#include "sort.h"

static void sort_row(const struct sort_task *task, int64_t row, char *room) {
  const char *in = task->in + row * task->length * task->width;
  char *values = task->values ? task->values + row * task->keep * task->width : NULL;
  int64_t *indices = task->indices + row * task->keep;
  const size_t width = (size_t)task->width, half = task->room_size / 2;
  uint64_t *words = (uint64_t *)room;
  struct sort_item *items = (struct sort_item *)room;
  const bool packed = task->packed && sort_set_words(words, task->dtype, in, task->length, task->descending);
  if (packed) {
    sort_words_partly(words, (uint64_t *)(room + half), task->length, task->keep);
  } else {
    sort_set_items(items, task->dtype, in, task->length, task->descending);
    sort_items(items, (struct sort_item *)(room + half), task->length);
  }
  for (int64_t i = 0; i < task->keep; i++) {
    indices[i] = (int64_t)(packed ? words[i] & UINT32_MAX : items[i].place);
  }
  for (int64_t i = 0; values && i < task->keep; i++) {
    memcpy(values + (size_t)i * width, in + (size_t)indices[i] * width, width);
  }
}

static void run_shares(void *context, int64_t begin, int64_t end) {
  const struct sort_task *task = context;
  for (int64_t share = begin; share < end; share++) {
    const int64_t last = task->rows * (share + 1) / task->shares;
    for (int64_t row = task->rows * share / task->shares; row < last; row++) {
      sort_row(task, row, task->room + (size_t)share * task->room_size);
    }
  }
}

static diopiError_t run_sort(void *argument) {
  struct sort_task *task = argument;
  struct dense in = {0}, values = {0}, indices = {0};
  const int64_t threads = dit_parallel_get_threads();
  task->packed = sort_is_packed(task->dtype, task->length);
  const bool narrow = task->packed && task->dtype != DIT_DTYPE_I64;
  task->room_size = 2 * (size_t)task->length * (narrow ? sizeof(uint64_t) : sizeof(struct sort_item));
  task->shares = task->rows * task->length < 4096 ? 1 : task->rows < threads ? task->rows : threads;
  task->room = dit_malloc((size_t)task->shares * task->room_size + 1);
  const bool done = task->room && dense_read(&in, &task->v_in, task->dtype) &&
                    dense_reserve(&values, &task->v_values, task->dtype) &&
                    dense_reserve(&indices, &task->v_indices, DIT_DTYPE_I64);
  if (done) {
    task->in = in.data;
    task->values = values.data;
    task->indices = indices.data;
    dit_parallel_for(0, task->shares, 1, run_shares, task);
    dense_store(&values);
    dense_store(&indices);
  }
  dense_close(&in);
  dense_close(&values);
  dense_close(&indices);
  dit_free(task->room);
  return done ? diopiSuccess
              : frame_fail(task->frame, diopiErrorOccurred, "no memory to sort %lld elements",
                           (long long)task->v_in.numel);
}

static diopiError_t run_back(void *argument) {
  struct back_task *task = argument;
  struct dense out = {0}, grad = {0}, indices = {0};
  const int dtype = task->v_out->dtype;
  const size_t width = dit_dtype_get_size(dtype);
  diopiError_t code = diopiSuccess;
  if (!dense_read(&grad, task->v_grad, dtype) || !dense_read(&indices, task->v_indices, DIT_DTYPE_I64) ||
      !dense_reserve(&out, task->v_out, dtype)) {
    code = dense_fail(&task->frame);
  }
  const int64_t *at = indices.data;
  for (int64_t i = 0; code == diopiSuccess && i < task->rows * task->keep; i++) {
    if (at[i] < 0 || at[i] >= task->length) {
      code = frame_fail(&task->frame, diopiErrorOccurred, "'indices' has the value %lld; valid: 0 to %lld",
                        (long long)at[i], (long long)task->length - 1);
    }
  }
  if (code == diopiSuccess) {
    memset(out.data, 0, (size_t)(task->rows * task->length) * width);
    for (int64_t i = 0; i < task->rows * task->keep; i++) {
      memcpy((char *)out.data + (size_t)(i / task->keep * task->length + at[i]) * width,
             (const char *)grad.data + (size_t)i * width, width);
    }
    dense_store(&out);
  }
  dense_close(&out);
  dense_close(&grad);
  dense_close(&indices);
  return code;
}

diopiError_t sort_run(struct sort_task *task) {
  return FRAME_QUEUE(task->frame, run_sort, task, &task->frame, &task->v_values, &task->v_indices, &task->v_in);
}

diopiError_t sort_run_back(struct back_task *task) {
  return frame_run(&task->frame, run_back, task);
}
