/// Indexing by tensors: index, index_put and the gradient of index.
///
/// indices[k] stands for dimension k of input (NULL: the whole dimension); int32 or int64 positions from -size to
/// size - 1, or a bool or uint8 mask over as many dimensions as it has, which counts as the list of its non-zero
/// positions. All index tensors broadcast to one shape B. As in PyTorch the dimensions of B take the place of the
/// indexed ones where these are neighbours, and come first where they are not. Index makes its result itself.
/// IndexPut writes values, broadcast to the shape of input[indices]; with accumulate it adds. Positions are taken in
/// row-major order of B: of several writes to one element the last one stays. Half types are summed in float and
/// rounded once. Moving has every dtype, adding all but uint16..uint64 and complex32. out and input of IndexPut may be
/// one tensor. IndexBackward adds grad_output to zeros_like_input (NULL: zeros) and writes the sum to grad_input, which
/// may be the same tensor.
#include "engine/index.h"

#include <stdio.h>
#include <string.h>

#include "layout.h"

/// The indices of one call, brought into the form of a walk. Lives on the stack of the caller; index_plan_reset frees
/// what masks need.
struct index_plan {
  struct frame *frame;
  struct dit_tensor_view target;
  struct layout column[DIT_MAX_DIMS];  ///< per dimension of the target; handle NULL: not indexed
  int64_t *lists[DIT_MAX_DIMS];        ///< positions of masks, by first dimension
  int ndim, at;                        ///< of B; where B stands in the result
  int64_t sizes[DIT_MAX_DIMS];         ///< of B
  int result_ndim;
  int64_t result[DIT_MAX_DIMS];
};

static void reset_plan(struct index_plan *plan) {
  for (int i = 0; i < DIT_MAX_DIMS; i++) {
    index_give_room(plan->lists[i]);
    plan->lists[i] = NULL;
  }
}

static bool is_mask(const struct dit_tensor_view *view) {
  return view->dtype == DIT_DTYPE_BOOL || view->dtype == DIT_DTYPE_U8;
}

/// A mask over dimensions from `dim` on becomes one column for each.
static diopiError_t add_mask(struct index_plan *plan, int number, const struct dit_tensor_view *mask, int dim) {
  struct frame *frame = plan->frame;
  int64_t *starts = NULL, total = 0;
  FRAME_CHECK(frame, mask->ndim > 0, "'indices[%d]' is a mask of 0 dimensions; it must have at least 1", number);
  FRAME_CHECK(frame, dim + mask->ndim <= plan->target.ndim, "'indices' are for more than the %d dimensions of 'input'",
              plan->target.ndim);
  FRAME_CHECK(frame, memcmp(mask->sizes, plan->target.sizes + dim, sizeof(int64_t) * (size_t)mask->ndim) == 0,
              "'indices[%d]' is a mask of shape %s; the dimensions it stands for have %s", number,
              layout_print(mask->ndim, mask->sizes), layout_print(mask->ndim, plan->target.sizes + dim));
  struct dit_error err = {.message = ""};
  enum dit_status status = index_count_blocks(frame->context, frame->stream, mask, &starts, &total, &err);
  const size_t size = ((size_t)total + 1) * sizeof(int64_t) * (size_t)mask->ndim;
  plan->lists[dim] = status == DIT_OK ? index_take_room(frame->context, size) : NULL;
  if (!plan->lists[dim]) {
    index_give_room(starts);
    return frame_fail(frame, diopiErrorOccurred, "no memory for the positions of 'indices[%d]'", number);
  }
  status = index_list_nonzero(frame->stream, mask, starts, plan->lists[dim], 1, total, &err);
  index_give_room(starts);
  FRAME_TRY(frame_get_code(frame, status, &err));
  for (int i = 0; i < mask->ndim; i++) {
    struct layout *column = &plan->column[dim + i];
    column->view = (struct dit_tensor_view){.data = plan->lists[dim] + i * total,
                                            .handle = plan,
                                            .ndim = 1,
                                            .dtype = DIT_DTYPE_I64,
                                            .flags = DIT_TENSOR_ON_DEVICE};
    column->sizes[0] = total;
    column->strides[0] = 1;
    layout_finish(column);
  }
  return diopiSuccess;
}

/// "indices[2]", as errors call it: formatted only where no text stands ready.
static const char *name_index(char room[32], int number) {
  static const char *const names[] = {"indices[0]", "indices[1]", "indices[2]", "indices[3]"};
  if (number >= 0 && number < (int)(sizeof names / sizeof names[0])) {
    return names[number];
  }
  (void)!snprintf(room, 32, "indices[%d]", number);
  return room;
}

static diopiError_t take_index(struct frame *frame, int number, diopiConstTensorHandle_t handle,
                               struct dit_tensor_view *view) {
  char room[32];
  const char *name = name_index(room, number);
  FRAME_TRY(frame_take(frame, name, handle, view));
  if (!is_mask(view) && !index_is_position(view->dtype)) {
    return frame_fail(frame, diopiDtypeNotSupported, "'%s' is %s; valid: int32, int64, bool, uint8", name,
                      dit_dtype_get_name(view->dtype));
  }
  return diopiSuccess;
}

static diopiError_t add_columns(struct index_plan *plan, diopiConstTensorHandle_t *indices, int count) {
  struct frame *frame = plan->frame;
  int dim = 0;
  for (int i = 0; i < count; i++) {
    struct dit_tensor_view view;
    if (!indices[i]) {
      dim++;
      continue;
    }
    FRAME_TRY(take_index(frame, i, indices[i], &view));
    if (is_mask(&view)) {
      FRAME_TRY(add_mask(plan, i, &view, dim));
      dim += view.ndim;
      continue;
    }
    FRAME_CHECK(frame, dim < plan->target.ndim, "'indices' are for more than the %d dimensions of 'input'",
                plan->target.ndim);
    char room[32];
    FRAME_TRY(layout_check_index(frame, name_index(room, i), &view, plan->target.sizes[dim], true));
    layout_init(&plan->column[dim++], &view);
  }
  FRAME_CHECK(frame, dim <= plan->target.ndim, "'indices' are for more than the %d dimensions of 'input'",
              plan->target.ndim);
  return diopiSuccess;
}

/// The common shape B, every column expanded to it.
static diopiError_t broadcast_columns(struct index_plan *plan) {
  struct frame *frame = plan->frame;
  const int ndim = plan->target.ndim;
  plan->ndim = 0;
  for (int dim = 0; dim < ndim; dim++) {
    const struct dit_tensor_view *view = &plan->column[dim].view;
    if (view->handle && dit_shape_broadcast(view->ndim, view->sizes, &plan->ndim, plan->sizes, NULL) != DIT_OK) {
      return frame_fail(frame, diopiErrorOccurred,
                        "the index of dimension %d has shape %s, which does not broadcast "
                        "with the others, %s",
                        dim, layout_print(view->ndim, view->sizes), layout_print(plan->ndim, plan->sizes));
    }
  }
  for (int dim = 0; dim < ndim; dim++) {
    struct layout *column = &plan->column[dim];
    int64_t strides[DIT_MAX_DIMS];
    struct dit_tensor_view wide;
    if (!column->view.handle) {
      continue;
    }
    if (!frame_expand(&column->view, plan->ndim, plan->sizes, strides, &wide)) {
      return frame_fail(frame, diopiErrorOccurred, "the index of dimension %d does not broadcast", dim);
    }
    layout_init(column, &wide);
    layout_finish(column);
  }
  return diopiSuccess;
}

/// Where B stands, and the shape of input[indices].
static diopiError_t place_columns(struct index_plan *plan) {
  struct frame *frame = plan->frame;
  int first = -1, last = -1, columns = 0, rest = 0;
  for (int dim = 0; dim < plan->target.ndim; dim++) {
    if (plan->column[dim].view.handle) {
      first = first < 0 ? dim : first;
      last = dim;
      columns++;
    }
  }
  plan->at = columns > 0 && last - first + 1 == columns ? first : 0;
  plan->result_ndim = plan->target.ndim - columns + plan->ndim;
  FRAME_CHECK(frame, plan->result_ndim <= DIT_MAX_DIMS, "the result has %d dimensions; valid: 0 to %d",
              plan->result_ndim, DIT_MAX_DIMS);
  for (int dim = 0; dim < plan->target.ndim; dim++) {
    if (!plan->column[dim].view.handle) {
      plan->result[rest < plan->at ? rest : rest + plan->ndim] = plan->target.sizes[dim];
      rest++;
    }
  }
  for (int i = 0; i < plan->ndim; i++) {
    plan->result[plan->at + i] = plan->sizes[i];
  }
  return diopiSuccess;
}

/// The frame's stream must be done: masks and positions are read.
static diopiError_t make_plan(struct index_plan *plan, diopiConstTensorHandle_t *indices, int count) {
  FRAME_TRY(add_columns(plan, indices, count));
  FRAME_TRY(broadcast_columns(plan));
  return place_columns(plan);
}

static diopiError_t run_plan(struct index_plan *plan, const struct dit_tensor_view *other, enum index_mode mode) {
  const struct dit_tensor_view *columns[DIT_MAX_DIMS];
  struct index_walk walk;
  for (int dim = 0; dim < plan->target.ndim; dim++) {
    columns[dim] = plan->column[dim].view.handle ? &plan->column[dim].view : NULL;
  }
  index_walk_init(&walk, &plan->target, columns, other, plan->at);
  struct dit_error err = {.message = ""};
  return frame_get_code(plan->frame, index_walk_run(plan->frame->context, plan->frame->stream, &walk, mode, &err),
                        &err);
}

static diopiError_t check_count(struct frame *frame, diopiConstTensorHandle_t *indices, int64_t count, int ndim) {
  FRAME_CHECK(frame, count >= 0 && count <= ndim && (indices || count == 0),
              "there are %lld 'indices'; valid: 0 to %d, the dimensions of 'input'", (long long)count, ndim);
  return diopiSuccess;
}

// Index

struct index_task {
  struct index_plan plan;
  diopiConstTensorHandle_t *indices;
  int64_t count;
  diopiTensorHandle_t *out;
};

static diopiError_t make_result(struct index_task *task) {
  struct index_plan *plan = &task->plan;
  struct dit_tensor_view view;
  diopiTensorHandle_t made = NULL;
  const diopiSize_t size = {plan->result, plan->result_ndim};
  if (diopiRequireTensor(plan->frame->context, &made, &size, NULL, dit_diopi_get_dtype(plan->target.dtype),
                         diopi_device) != diopiSuccess) {
    return frame_fail(plan->frame, diopiErrorOccurred, "no memory for a result of shape %s",
                      layout_print(plan->result_ndim, plan->result));
  }
  FRAME_TRY(frame_take(plan->frame, "out", made, &view));
  FRAME_TRY(run_plan(plan, &view, INDEX_TAKE));
  *task->out = made;
  return diopiSuccess;
}

static diopiError_t run_index(void *argument) {
  struct index_task *task = argument;
  diopiError_t code = make_plan(&task->plan, task->indices, (int)task->count);
  if (code == diopiSuccess) {
    code = make_result(task);
  }
  reset_plan(&task->plan);
  return code;
}

diopiError_t diopiIndex(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t input,
                        diopiConstTensorHandle_t *indices, int64_t nums) {
  struct frame frame;
  struct index_task task = {.plan = {.frame = &frame}, .indices = indices, .count = nums, .out = out};
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, out, "'out' is NULL; it must be the place for a tensor");
  FRAME_TAKE(&frame, input, &task.plan.target);
  FRAME_TRY(check_count(&frame, indices, nums, task.plan.target.ndim));
  return frame_run(&frame, run_index, &task);
}

// index_put and the gradient

struct put_task {
  struct index_plan plan;
  diopiConstTensorHandle_t *indices;
  int64_t count;
  bool accumulate, zero;
  struct dit_tensor_view values, input;  ///< input: copied to the target first; without handle not
  const char *values_name;
};

static diopiError_t put_values(struct put_task *task) {
  struct index_plan *plan = &task->plan;
  struct frame now = frame_get_inner(plan->frame);
  int64_t strides[DIT_MAX_DIMS];
  struct dit_tensor_view wide;
  if (!frame_expand(&task->values, plan->result_ndim, plan->result, strides, &wide)) {
    return frame_fail(plan->frame, diopiErrorOccurred, "'%s' has shape %s, which does not broadcast to %s",
                      task->values_name, layout_print(task->values.ndim, task->values.sizes),
                      layout_print(plan->result_ndim, plan->result));
  }
  if (task->zero) {
    FRAME_TRY(layout_zero(&now, &plan->target));
  } else if (task->input.handle) {
    FRAME_TRY(layout_copy(&now, &plan->target, &task->input));
  }
  return run_plan(plan, &wide, task->accumulate ? INDEX_ADD : INDEX_PUT);
}

static diopiError_t run_put(void *argument) {
  struct put_task *task = argument;
  diopiError_t code = make_plan(&task->plan, task->indices, (int)task->count);
  if (code == diopiSuccess) {
    code = put_values(task);
  }
  reset_plan(&task->plan);
  return code;
}

/// The task has the target, input and values; `name` is the target's.
static diopiError_t launch_put(struct put_task *task, const char *name) {
  struct frame *frame = task->plan.frame;
  struct dit_tensor_view *target = &task->plan.target;
  const struct dit_tensor_view *inputs[] = {&task->values};
  FRAME_TRY(layout_check_dtype(frame, task->values_name, &task->values, name, target));
  FRAME_TRY(check_count(frame, task->indices, task->count, target->ndim));
  if (task->accumulate && !index_can_add(target->dtype)) {
    return frame_fail_dtype(frame, name, target->dtype);
  }
  FRAME_TRY(frame_check_output(frame, name, target, inputs, 1, false));
  for (int i = 0; i < task->count; i++) {
    struct dit_tensor_view view;
    if (task->indices[i]) {
      inputs[0] = &view;
      FRAME_TRY(take_index(frame, i, task->indices[i], &view));
      FRAME_TRY(frame_check_output(frame, name, target, inputs, 1, false));
    }
  }
  return frame_run(frame, run_put, task);
}

static diopiError_t begin_put(struct put_task *task, const char *target, const char *input) {
  struct frame *frame = task->plan.frame;
  const struct dit_tensor_view *inputs[] = {&task->input};
  FRAME_TRY(layout_check_sizes(frame, target, &task->plan.target, task->input.ndim, task->input.sizes));
  FRAME_TRY(layout_check_dtype(frame, target, &task->plan.target, input, &task->input));
  return frame_check_output(frame, target, &task->plan.target, inputs, 1, true);
}

diopiError_t diopiIndexPut(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                           diopiConstTensorHandle_t values, diopiConstTensorHandle_t *indices, int64_t indices_counts,
                           bool accumulate) {
  struct frame frame;
  struct put_task task = {.plan = {.frame = &frame},
                          .indices = indices,
                          .count = indices_counts,
                          .accumulate = accumulate,
                          .values_name = "values"};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &task.plan.target);
  FRAME_TAKE(&frame, input, &task.input);
  FRAME_TAKE(&frame, values, &task.values);
  FRAME_TRY(begin_put(&task, "out", "input"));
  return launch_put(&task, "out");
}

diopiError_t diopiIndexPutInp(diopiContextHandle_t ctx, diopiTensorHandle_t input, diopiConstTensorHandle_t values,
                              diopiConstTensorHandle_t *indices, int64_t indices_counts, bool accumulate) {
  struct frame frame;
  struct put_task task = {.plan = {.frame = &frame},
                          .indices = indices,
                          .count = indices_counts,
                          .accumulate = accumulate,
                          .values_name = "values"};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, input, &task.plan.target);
  FRAME_TAKE(&frame, values, &task.values);
  return launch_put(&task, "input");
}

diopiError_t diopiIndexBackward(diopiContextHandle_t ctx, diopiTensorHandle_t grad_input,
                                diopiTensorHandle_t zeros_like_input, diopiConstTensorHandle_t *indices, int64_t nums,
                                diopiConstTensorHandle_t grad_output) {
  struct frame frame;
  struct put_task task = {.plan = {.frame = &frame},
                          .indices = indices,
                          .count = nums,
                          .accumulate = true,
                          .zero = !zeros_like_input,
                          .values_name = "grad_output"};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, grad_input, &task.plan.target);
  FRAME_TAKE_OPTIONAL(&frame, zeros_like_input, &task.input);
  FRAME_TAKE(&frame, grad_output, &task.values);
  if (zeros_like_input) {
    FRAME_TRY(begin_put(&task, "grad_input", "zeros_like_input"));
  }
  return launch_put(&task, "grad_input");
}
