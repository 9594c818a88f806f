/// Sorting along one dimension, the largest or smallest elements, and the gradient of both.
///
/// values = input in ascending (descending) order along `dim`, indices = where they were. NaN counts as the largest
/// number. Always stable: equal elements keep their order, so `stable` changes nothing; of equal elements topk takes
/// the first. Topk's results are sorted also where that is not asked for. The gradient puts grad_output back to the
/// places in `indices`, zero elsewhere. Real dtypes and bool; indices are int64. Outputs are not the input.
#include "engine/sort.h"

#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "dit/parallel.h"
#include "lines.h"

struct sort_task {
  struct frame *frame;
  struct dit_tensor_view v_values, v_indices, v_in;  ///< `dim` last; values may be absent
  int64_t rows, length, keep;
  bool descending, packed;
  int dtype, width;
  int64_t shares;  ///< pieces of the rows that run at the same time
  char *room;      ///< for each share: two lines of words or items
  size_t room_size;
  const char *in;
  char *values;
  int64_t *indices;
};

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

/// Is `view` shaped like `in` with `keep` along `dim`?
static bool has_shape(const struct dit_tensor_view *view, const struct dit_tensor_view *in, int dim, int64_t keep) {
  bool same = view->ndim == in->ndim;
  for (int d = 0; same && d < in->ndim; d++) {
    same = view->sizes[d] == (d == dim ? keep : in->sizes[d]);
  }
  return same;
}

static diopiError_t check_result(struct frame *frame, const char *name, const struct dit_tensor_view *out, int dtype,
                                 const struct dit_tensor_view *in, int dim, int64_t keep) {
  if (out->dtype != dtype) {
    return frame_fail_dtype(frame, name, out->dtype);
  }
  FRAME_CHECK(frame, has_shape(out, in, dim, keep),
              "'%s' must have the shape of 'input' with size %lld in dimension %d", name, (long long)keep, dim);
  return frame_check_output(frame, name, out, (const struct dit_tensor_view *[]){in}, 1, false);
}

static diopiError_t launch(struct frame *frame, diopiTensorHandle_t values, const char *index_name,
                           diopiTensorHandle_t indices, diopiConstTensorHandle_t input, int64_t dim, int64_t keep,
                           bool all, bool descending) {
  struct dit_tensor_view v = {0}, i, x;
  struct shaped moved[3];
  int d;
  if (values || strcmp(index_name, "indices") == 0) {
    FRAME_TAKE(frame, values, &v);
  }
  FRAME_TRY(frame_take(frame, index_name, indices, &i));
  FRAME_TAKE(frame, input, &x);
  if (!sort_is_supported(x.dtype)) {
    return frame_fail_dtype(frame, "input", x.dtype);
  }
  FRAME_TRY(frame_wrap_dim(frame, "dim", dim, x.ndim, &d));
  const int64_t length = x.ndim > 0 ? x.sizes[d] : 1;
  keep = all ? length : keep;
  FRAME_CHECK(frame, keep >= 0 && keep <= length, "'k' is %lld; valid: 0 to %lld", (long long)keep, (long long)length);
  if (v.handle) {
    FRAME_TRY(check_result(frame, "values", &v, x.dtype, &x, d, keep));
    FRAME_TRY(frame_check_output(frame, "values", &v, (const struct dit_tensor_view *[]){&i}, 1, false));
  }
  FRAME_TRY(check_result(frame, index_name, &i, DIT_DTYPE_I64, &x, d, keep));
  if (i.numel == 0) {
    return diopiSuccess;
  }
  const uint32_t mask = x.ndim > 0 ? 1u << d : 0;
  shaped_move_last(&moved[0], &x, mask);
  shaped_move_last(&moved[1], &i, mask);
  if (v.handle) {
    shaped_move_last(&moved[2], &v, mask);
  }
  struct sort_task task = {.frame = frame,
                           .v_values = v.handle ? moved[2].view : v,
                           .v_indices = moved[1].view,
                           .v_in = moved[0].view,
                           .rows = x.numel / length,
                           .length = length,
                           .keep = keep,
                           .descending = descending,
                           .dtype = x.dtype,
                           .width = (int)dit_dtype_get_size(x.dtype)};
  return FRAME_QUEUE(frame, run_sort, &task, &task.frame, &task.v_values, &task.v_indices, &task.v_in);
}

diopiError_t diopiSort(diopiContextHandle_t ctx, diopiTensorHandle_t values, diopiTensorHandle_t indices,
                       diopiConstTensorHandle_t input, int64_t dim, bool descending, const bool *pStable) {
  struct frame frame;
  (void)pStable;
  FRAME_BEGIN(&frame, ctx);
  return launch(&frame, values, "indices", indices, input, dim, 0, true, descending);
}

diopiError_t diopiTopk(diopiContextHandle_t ctx, diopiTensorHandle_t values, diopiTensorHandle_t indices,
                       diopiConstTensorHandle_t input, int64_t k, int64_t dim, bool largest, bool sorted) {
  struct frame frame;
  (void)sorted;
  FRAME_BEGIN(&frame, ctx);
  return launch(&frame, values, "indices", indices, input, dim, k, false, largest);
}

/// `dim` NULL: the last one.
diopiError_t diopiArgsort(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                          bool stable, const int64_t *dim, bool descending) {
  struct frame frame;
  (void)stable;
  FRAME_BEGIN(&frame, ctx);
  return launch(&frame, NULL, "out", out, input, dim ? *dim : -1, 0, true, descending);
}

// Gradient

struct back_task {
  struct frame frame;
  const struct dit_tensor_view *v_out, *v_grad, *v_indices;
  int64_t rows, length, keep;
};

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

/// grad_output and indices as they are with `dim` kept; without keepdim they come without it and get it back here.
static void restore_dim(struct shaped *shaped, const struct dit_tensor_view *view, int dim, bool insert) {
  shaped_init(shaped, view, false);
  if (insert) {
    for (int d = shaped->view.ndim; d > dim; d--) {
      shaped->sizes[d] = shaped->sizes[d - 1];
      shaped->strides[d] = shaped->strides[d - 1];
    }
    shaped->sizes[dim] = 1;
    shaped->strides[dim] = 1;
    shaped->view.ndim++;
  }
}

diopiError_t diopiSortBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                               diopiConstTensorHandle_t grad_output, int64_t dim, diopiConstTensorHandle_t indices,
                               diopiSize_t sizes, bool keepdim) {
  struct back_task task;
  struct frame *frame = &task.frame;
  struct dit_tensor_view gi, go, index;
  struct shaped grad, place, moved[3];
  int d;
  FRAME_BEGIN(frame, ctx);
  FRAME_TAKE(frame, grad_input, &gi);
  FRAME_TAKE(frame, grad_output, &go);
  FRAME_TAKE(frame, indices, &index);
  if (go.dtype != gi.dtype) {
    return frame_fail_dtype(frame, "grad_output", go.dtype);
  }
  if (index.dtype != DIT_DTYPE_I64) {
    return frame_fail_dtype(frame, "indices", index.dtype);
  }
  FRAME_CHECK(frame,
              sizes.len == gi.ndim && (gi.ndim == 0 || (sizes.data && memcmp(sizes.data, gi.sizes,
                                                                             sizeof(int64_t) * (size_t)gi.ndim) == 0)),
              "'grad_input' does not have the shape 'sizes'");
  FRAME_TRY(frame_wrap_dim(frame, "dim", dim, gi.ndim, &d));
  FRAME_CHECK(frame, frame_is_same_shape(&go, &index), "'grad_output' and 'indices' have different shapes");
  const bool insert = !keepdim && go.ndim + 1 == gi.ndim;
  restore_dim(&grad, &go, d, insert);
  restore_dim(&place, &index, d, insert);
  task.keep = gi.ndim > 0 && grad.view.ndim > d ? grad.sizes[d] : 1;
  FRAME_CHECK(frame, has_shape(&grad.view, &gi, d, task.keep),
              "'grad_output' must have the shape 'sizes' except in dimension %d", d);
  FRAME_TRY(frame_check_output(frame, "grad_input", &gi, (const struct dit_tensor_view *[]){&go, &index}, 2, false));
  if (gi.numel == 0) {
    return diopiSuccess;
  }
  const uint32_t mask = gi.ndim > 0 ? 1u << d : 0;
  shaped_move_last(&moved[0], &gi, mask);
  shaped_move_last(&moved[1], &grad.view, mask);
  shaped_move_last(&moved[2], &place.view, mask);
  task.v_out = &moved[0].view;
  task.v_grad = &moved[1].view;
  task.v_indices = &moved[2].view;
  task.length = gi.ndim > 0 ? gi.sizes[d] : 1;
  task.rows = gi.numel / task.length;
  return frame_run(frame, run_back, &task);
}
