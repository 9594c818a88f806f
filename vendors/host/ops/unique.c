/// Distinct elements, or distinct slices along one dimension, in ascending order.
///
/// out: the distinct ones (1-d, or input's shape with fewer entries along `dim`); indices: for each element (slice) its
/// number in out; counts: how often each occurs. NaN differs from itself, as in PyTorch; slices are ordered
/// element by element, where NaN is neither less nor greater than anything, so that slices which only NaN tells apart
/// stay in their order. The results are sorted also where that is not asked for. out and counts are made by the
/// operator (diopiRequireTensor).
#include <string.h>

#include "dense.h"
#include "dit/alloc.h"
#include "engine/kernels.h"
#include "engine/sort.h"
#include "lines.h"

struct unique_task {
  struct frame frame;
  struct dit_tensor_view v_in, v_indices;
  struct shaped moved;  ///< the input with `dim` first
  int dim;              ///< -1: all elements
  bool nan_differs;
  int64_t entries, width;  ///< slices, and elements of one
  diopiTensorHandle_t *out, *counts;
  struct sort_item *keys;  ///< [entry][width]
  int64_t *order, *room;   ///< entries, sorted
  int64_t *numbers, *total;
};

static int compare(const struct unique_task *task, int64_t a, int64_t b) {
  const struct sort_item *x = task->keys + a * task->width, *y = task->keys + b * task->width;
  for (int64_t i = 0; i < task->width; i++) {
    const bool nan = task->nan_differs && (x[i].key == SORT_NAN_KEY || y[i].key == SORT_NAN_KEY);
    if (x[i].key != y[i].key && !nan) {
      return x[i].key < y[i].key ? -1 : 1;
    }
  }
  return 0;
}

static bool is_same(const struct unique_task *task, int64_t a, int64_t b) {
  const struct sort_item *x = task->keys + a * task->width, *y = task->keys + b * task->width;
  for (int64_t i = 0; i < task->width; i++) {
    if (x[i].key != y[i].key || (task->nan_differs && x[i].key == SORT_NAN_KEY)) {
      return false;
    }
  }
  return true;
}

/// Merge sort of the order: stable.
static void sort_slices(const struct unique_task *task, int64_t *order, int64_t *room, int64_t count) {
  if (count < 2) {
    return;
  }
  const int64_t half = count / 2;
  sort_slices(task, order, room, half);
  sort_slices(task, order + half, room, count - half);
  memcpy(room, order, sizeof(int64_t) * (size_t)half);
  for (int64_t i = 0, j = half, to = 0; i < half; to++) {
    if (j < count && compare(task, room[i], order[j]) > 0) {
      order[to] = order[j++];
    } else {
      order[to] = room[i++];
    }
  }
}

static void set_order(struct unique_task *task) {
  for (int64_t i = 0; i < task->entries; i++) {
    task->order[i] = i;
  }
  sort_slices(task, task->order, task->room, task->entries);
}

/// Single elements: their items are sorted themselves, so neighbours are compared where they lie.
static int64_t number_elements(struct unique_task *task) {
  int64_t distinct = 0;
  sort_items(task->keys, task->keys + task->entries, task->entries);
  for (int64_t i = 0; i < task->entries; i++) {
    const struct sort_item item = task->keys[i];
    const bool nan = task->nan_differs && item.key == SORT_NAN_KEY;
    if (i == 0 || item.key != task->keys[i - 1].key || nan) {
      task->room[distinct] = (int64_t)item.place;
      task->total[distinct++] = 0;
    }
    task->total[distinct - 1]++;
    task->numbers[item.place] = distinct - 1;
  }
  return distinct;
}

/// Numbers of the entries and counts of the distinct ones; the first entry of each stays in `room`.
static int64_t number_entries(struct unique_task *task) {
  int64_t distinct = 0;
  for (int64_t i = 0; i < task->entries; i++) {
    const int64_t entry = task->order[i];
    const bool fresh = i == 0 || !is_same(task, task->order[i - 1], entry);
    if (fresh) {
      task->room[distinct] = entry;
      task->total[distinct++] = 0;
    }
    task->total[distinct - 1]++;
    task->numbers[entry] = distinct - 1;
  }
  return distinct;
}

/// Make the results and fill them.
static diopiError_t store(struct unique_task *task, const char *data, int64_t distinct) {
  int64_t sizes[DIT_MAX_DIMS];
  struct dit_tensor_view out, from;
  struct shaped moved;
  struct dit_error err = {.message = ""};
  struct frame *frame = &task->frame;
  const size_t width = dit_dtype_get_size(task->v_in.dtype), slice = (size_t)task->width * width;
  const bool flat = task->dim < 0;
  for (int d = 0; d < task->v_in.ndim; d++) {
    sizes[d] = d == task->dim ? distinct : task->v_in.sizes[d];
  }
  const diopiSize_t shape = {flat ? &distinct : sizes, flat ? 1 : task->v_in.ndim}, one = {&distinct, 1};
  if (diopiRequireTensor(frame->context, task->out, &shape, NULL, dit_diopi_get_dtype(task->v_in.dtype),
                         diopi_device) != diopiSuccess ||
      (task->counts &&
       diopiRequireTensor(frame->context, task->counts, &one, NULL, diopi_dtype_int64, diopi_device) != diopiSuccess)) {
    return frame_fail(frame, diopiErrorOccurred, "no memory for the result");
  }
  FRAME_TRY(frame_take(frame, "out", *task->out, &out));
  char *room = dit_malloc((size_t)distinct * slice + 1);
  if (!room) {
    return frame_fail(frame, diopiErrorOccurred, "no memory for the result");
  }
  for (int64_t i = 0; i < distinct; i++) {
    memcpy(room + (size_t)i * slice, data + (size_t)task->room[i] * slice, slice);
  }
  shaped_init(&moved, &out, false);
  if (!flat) {
    shaped_move_last(&moved, &out, ~(1u << task->dim));
  }
  int64_t strides[DIT_MAX_DIMS];
  from = moved.view;
  dit_shape_set_contiguous(from.ndim, from.sizes, strides);
  from.strides = strides;
  from.data = room;
  enum dit_status status = out.numel > 0 ? kernel_copy(NULL, &moved.view, &from, &err) : DIT_OK;
  dit_free(room);
  FRAME_TRY(frame_get_code(frame, status, &err));
  if (task->counts) {
    FRAME_TRY(frame_take(frame, "counts", *task->counts, &out));
    memcpy(out.data, task->total, sizeof(int64_t) * (size_t)distinct);
  }
  return diopiSuccess;
}

static diopiError_t run_unique(void *argument) {
  struct unique_task *task = argument;
  const size_t entries = (size_t)task->entries, numel = (size_t)task->v_in.numel;
  struct dense in = {0}, indices = {0};
  diopiError_t code = diopiSuccess;
  task->keys = dit_malloc((task->dim < 0 ? 2 : 1) * sizeof(struct sort_item) * numel + 1);
  int64_t *lists = dit_malloc(4 * sizeof(int64_t) * (entries + 1));
  const bool done = task->keys && lists && dense_read(&in, &task->moved.view, task->v_in.dtype) &&
                    dense_reserve(&indices, &task->v_indices, DIT_DTYPE_I64);
  if (done) {
    task->order = lists;
    task->room = lists + entries + 1;
    task->numbers = task->room + entries + 1;
    task->total = task->numbers + entries + 1;
    sort_set_items(task->keys, task->v_in.dtype, in.data, task->v_in.numel, false);
    if (task->dim >= 0) {
      set_order(task);
    }
    const int64_t distinct = task->dim < 0 ? number_elements(task) : number_entries(task);
    code = store(task, in.data, distinct);
    if (code == diopiSuccess && indices.data) {
      memcpy(indices.data, task->numbers, sizeof(int64_t) * entries);
      dense_store(&indices);
    }
  } else {
    code = frame_fail(&task->frame, diopiErrorOccurred, "no memory to sort %lld elements", (long long)numel);
  }
  dense_close(&in);
  dense_close(&indices);
  dit_free(task->keys);
  dit_free(lists);
  return code;
}

diopiError_t diopiUnique(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t input,
                         const int64_t *dim, bool sorted, bool return_counts, diopiTensorHandle_t indices,
                         diopiTensorHandle_t *counts) {
  struct unique_task task = {.out = out, .counts = return_counts ? counts : NULL, .dim = -1};
  struct frame *frame = &task.frame;
  (void)sorted;
  FRAME_BEGIN(frame, ctx);
  FRAME_CHECK(frame, out, "'out' is NULL; it must be a place for the result's handle");
  FRAME_CHECK(frame, counts || !return_counts, "'counts' is NULL although 'return_counts' is set");
  FRAME_TAKE(frame, input, &task.v_in);
  FRAME_TAKE_OPTIONAL(frame, indices, &task.v_indices);
  if (!sort_is_supported(task.v_in.dtype)) {
    return frame_fail_dtype(frame, "input", task.v_in.dtype);
  }
  if (dim && task.v_in.ndim > 0) {
    FRAME_TRY(frame_wrap_dim(frame, "dim", *dim, task.v_in.ndim, &task.dim));
    task.entries = task.v_in.sizes[task.dim];
    FRAME_CHECK(frame, task.entries == 0 || task.v_in.numel > 0, "'input' has no elements outside 'dim'");
    task.width = task.entries > 0 ? task.v_in.numel / task.entries : 1;
    shaped_move_last(&task.moved, &task.v_in, ~(1u << task.dim));
  } else {
    task.entries = task.v_in.numel;
    task.width = 1;
    shaped_init(&task.moved, &task.v_in, false);
  }
  task.nan_differs = frame_has_dtype(DTYPES_FLOAT, task.v_in.dtype);
  if (indices) {
    if (task.v_indices.dtype != DIT_DTYPE_I64) {
      return frame_fail_dtype(frame, "indices", task.v_indices.dtype);
    }
    FRAME_CHECK(frame, task.v_indices.numel == task.entries, "'indices' has %lld elements; it must have %lld",
                (long long)task.v_indices.numel, (long long)task.entries);
    FRAME_TRY(frame_check_output(frame, "indices", &task.v_indices, (const struct dit_tensor_view *[]){&task.v_in}, 1,
                                 false));
  }
  return frame_run(frame, run_unique, &task);
}
