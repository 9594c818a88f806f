/// Joining and splitting: cat, stack, split_with_sizes, meshgrid.
///
/// cat: out is the inputs one after another along dim; they agree in every other size (a 1-d tensor without elements is
/// left out, as in PyTorch) and are converted to out's dtype. stack: the same along a new dimension. split: the other
/// way. meshgrid ("ij"): outs[i] is the 1-d (or 0-d) inputs[i] along dimension i, repeated along the others. Everything
/// is a copy of parts; inputs and outputs share no memory. Every dtype.
#include "cat.h"

#include "engine/nest.h"
#include "layout.h"

// Contiguous tensors of one dtype: row by row in one pass

/// Dimensions before `dim` are rows. False when the whole is not contiguous, or has no elements.
static bool join_init(struct join_task *task, const struct dit_tensor_view *whole, int dim, bool split) {
  if (!(whole->flags & DIT_TENSOR_CONTIGUOUS) || whole->numel == 0) {
    return false;
  }
  task->whole = whole->data;
  task->rows = 1;
  task->count = 0;
  task->split = split;
  for (int i = 0; i < dim; i++) {
    task->rows *= whole->sizes[i];
  }
  task->width = (int64_t)dit_dtype_get_size(whole->dtype);
  task->bytes = whole->numel / task->rows * task->width;
  return true;
}

static bool join_add(struct join_task *task, const struct dit_tensor_view *part, int dtype) {
  if (task->count == JOIN_PARTS || part->dtype != dtype || !(part->flags & DIT_TENSOR_CONTIGUOUS)) {
    return false;
  }
  if (part->numel > 0) {
    task->part[task->count].data = part->data;
    task->part[task->count++].bytes = part->numel / task->rows * (int64_t)dit_dtype_get_size(dtype);
  }
  return true;
}

// Cat and stack

/// Sizes of `part` equal those of `whole` but for `dim`.
static bool fits_except(const struct dit_tensor_view *part, const struct dit_tensor_view *whole, int dim) {
  if (part->ndim != whole->ndim) {
    return false;
  }
  for (int i = 0; i < part->ndim; i++) {
    if (i != dim && part->sizes[i] != whole->sizes[i]) {
      return false;
    }
  }
  return true;
}

static bool is_skipped(const struct dit_tensor_view *view) {
  return view->ndim == 1 && view->sizes[0] == 0;
}

static diopiError_t check_cat(struct frame *frame, const struct dit_tensor_view *out, diopiConstTensorHandle_t *tensors,
                              int64_t count, int dim) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; i++) {
    struct dit_tensor_view in;
    FRAME_TRY(frame_take_element(frame, "tensors", i, tensors[i], &in));
    if (is_skipped(&in)) {
      continue;
    }
    FRAME_CHECK(frame, fits_except(&in, out, dim),
                "'tensors[%lld]' has shape %s; it must agree with the shape of 'out', %s, but for dimension %d",
                (long long)i, layout_print(in.ndim, in.sizes), layout_print(out->ndim, out->sizes), dim);
    const struct dit_tensor_view *inputs[] = {&in};
    FRAME_TRY(frame_check_output(frame, "out", out, inputs, 1, false));
    total += in.sizes[dim];
  }
  const int64_t size = out->ndim > 0 ? out->sizes[dim] : 0;
  FRAME_CHECK(frame, total == size, "'out' has size %lld in dimension %d; the inputs have %lld there", (long long)size,
              dim, (long long)total);
  return diopiSuccess;
}

diopiError_t diopiCat(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t *tensors,
                      int64_t num_inputs, int64_t dim) {
  struct frame frame;
  struct dit_tensor_view o, in;
  struct join_task join;
  int d;
  int64_t start = 0;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_CHECK(&frame, tensors && num_inputs > 0, "'tensors' has %lld tensors; it must have at least 1",
              tensors ? (long long)num_inputs : 0);
  FRAME_TRY(frame_wrap_dim(&frame, "dim", dim, o.ndim, &d));
  FRAME_TRY(check_cat(&frame, &o, tensors, num_inputs, d));
  bool joined = (d > 0 || o.numel <= NEST_GRAIN) && join_init(&join, &o, d, false);
  for (int64_t i = 0; joined && i < num_inputs; i++) {
    FRAME_TRY(frame_take_element(&frame, "tensors", i, tensors[i], &in));
    joined = join_add(&join, &in, o.dtype);
  }
  if (joined) {
    return join_run(&frame, &join);
  }
  for (int64_t i = 0; i < num_inputs; i++) {
    struct layout part;
    FRAME_TRY(frame_take_element(&frame, "tensors", i, tensors[i], &in));
    if (is_skipped(&in)) {
      continue;
    }
    layout_init(&part, &o);
    layout_narrow(&part, d, start, in.sizes[d], 1);
    FRAME_TRY(layout_copy(&frame, &part.view, &in));
    start += in.sizes[d];
  }
  return diopiSuccess;
}

diopiError_t diopiStack(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t *tensors,
                        int64_t numTensors, int64_t dim) {
  struct frame frame;
  struct dit_tensor_view o, in;
  struct layout part;
  struct join_task join;
  int d;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &o);
  FRAME_CHECK(&frame, tensors && numTensors > 0, "'tensors' has %lld tensors; it must have at least 1",
              tensors ? (long long)numTensors : 0);
  FRAME_CHECK(&frame, o.ndim > 0, "'out' has 0 dimensions; it must have one more than the inputs");
  FRAME_TRY(frame_wrap_dim(&frame, "dim", dim, o.ndim, &d));
  FRAME_CHECK(&frame, o.sizes[d] == numTensors, "'out' has size %lld in dimension %d; there are %lld tensors",
              (long long)o.sizes[d], d, (long long)numTensors);
  layout_init(&part, &o);
  if (o.sizes[d] > 0) {
    layout_select(&part, d, 0);
  }
  bool joined = (d > 0 || o.numel <= NEST_GRAIN) && join_init(&join, &o, d, false);
  for (int64_t i = 0; i < numTensors; i++) {
    const struct dit_tensor_view *inputs[] = {&in};
    FRAME_TRY(frame_take_element(&frame, "tensors", i, tensors[i], &in));
    FRAME_TRY(layout_check_sizes(&frame, "tensors", &in, part.view.ndim, part.view.sizes));
    FRAME_TRY(frame_check_output(&frame, "out", &o, inputs, 1, false));
    joined = joined && join_add(&join, &in, o.dtype);
  }
  if (joined) {
    return join_run(&frame, &join);
  }
  for (int64_t i = 0; i < numTensors; i++) {
    FRAME_TRY(frame_take_element(&frame, "tensors", i, tensors[i], &in));
    layout_init(&part, &o);
    layout_select(&part, d, i);
    FRAME_TRY(layout_copy(&frame, &part.view, &in));
  }
  return diopiSuccess;
}

static diopiError_t check_split(struct frame *frame, diopiTensorHandle_t *outs, const struct dit_tensor_view *in,
                                diopiSize_t sizes, int dim) {
  int64_t total = 0;
  for (int64_t i = 0; i < sizes.len; i++) {
    struct dit_tensor_view o;
    FRAME_TRY(frame_take_element(frame, "outs", i, outs[i], &o));
    FRAME_TRY(layout_check_dtype(frame, "outs", &o, "input", in));
    FRAME_CHECK(frame, sizes.data[i] >= 0, "'splitSizes[%lld]' is %lld; valid: 0 and more", (long long)i,
                (long long)sizes.data[i]);
    FRAME_CHECK(frame, fits_except(&o, in, dim) && o.sizes[dim] == sizes.data[i],
                "'outs[%lld]' has shape %s; it must be that of 'input', %s, with %lld in dimension %d", (long long)i,
                layout_print(o.ndim, o.sizes), layout_print(in->ndim, in->sizes), (long long)sizes.data[i], dim);
    FRAME_TRY(frame_check_output(frame, "outs", &o, &in, 1, false));
    total += sizes.data[i];
  }
  FRAME_CHECK(frame, total == in->sizes[dim], "the 'splitSizes' give %lld; 'input' has size %lld in dimension %d",
              (long long)total, (long long)in->sizes[dim], dim);
  return diopiSuccess;
}

diopiError_t diopiSplitWithSizes(diopiContextHandle_t ctx, diopiTensorHandle_t *outs, int64_t num_outs,
                                 diopiConstTensorHandle_t input, const diopiSize_t splitSizes, int64_t dim) {
  struct frame frame;
  struct dit_tensor_view in, o;
  struct join_task join;
  int64_t start = 0;
  int d;
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, input, &in);
  FRAME_CHECK(&frame, in.ndim > 0, "'input' has 0 dimensions; it must have at least 1");
  FRAME_TRY(frame_wrap_dim(&frame, "dim", dim, in.ndim, &d));
  FRAME_CHECK(&frame, splitSizes.len == num_outs && num_outs >= 0 && (num_outs == 0 || (outs && splitSizes.data)),
              "there are %lld 'outs' and %lld 'splitSizes'; they must be as many", (long long)num_outs,
              (long long)splitSizes.len);
  FRAME_TRY(check_split(&frame, outs, &in, splitSizes, d));
  bool joined = d > 0 && join_init(&join, &in, d, true);
  for (int64_t i = 0; joined && i < num_outs; i++) {
    FRAME_TRY(frame_take_element(&frame, "outs", i, outs[i], &o));
    joined = join_add(&join, &o, in.dtype);
  }
  if (joined) {
    return join_run(&frame, &join);
  }
  for (int64_t i = 0; i < num_outs; i++) {
    struct layout part;
    FRAME_TRY(frame_take_element(&frame, "outs", i, outs[i], &o));
    layout_init(&part, &in);
    layout_narrow(&part, d, start, splitSizes.data[i], 1);
    FRAME_TRY(layout_copy(&frame, &o, &part.view));
    start += splitSizes.data[i];
  }
  return diopiSuccess;
}

/// Input `number` as it looks in every output.
static diopiError_t take_grid(struct frame *frame, diopiConstTensorHandle_t *inputs, int64_t count, int64_t number,
                              const struct dit_tensor_view *out, struct layout *grid) {
  struct dit_tensor_view in;
  FRAME_TRY(frame_take_element(frame, "inputs", number, inputs[number], &in));
  FRAME_CHECK(frame, in.ndim <= 1, "'inputs[%lld]' has %d dimensions; valid: 0 and 1", (long long)number, in.ndim);
  FRAME_CHECK(frame, out->ndim == count, "'outs' have %d dimensions; there are %lld inputs", out->ndim,
              (long long)count);
  FRAME_CHECK(frame, out->sizes[number] == in.numel, "'outs' have size %lld in dimension %lld; 'inputs[%lld]' has %lld",
              (long long)out->sizes[number], (long long)number, (long long)number, (long long)in.numel);
  layout_init(grid, &in);
  grid->view.ndim = (int32_t)count;
  for (int dim = 0; dim < count; dim++) {
    grid->sizes[dim] = out->sizes[dim];
    grid->strides[dim] = dim == number && in.ndim > 0 ? in.strides[0] : 0;
  }
  layout_finish(grid);
  return diopiSuccess;
}

diopiError_t diopiMeshGrid(diopiContextHandle_t ctx, diopiTensorHandle_t *outs, diopiConstTensorHandle_t *inputs,
                           int64_t inputsNum) {
  struct frame frame;
  struct dit_tensor_view o;
  struct layout grid;
  FRAME_BEGIN(&frame, ctx);
  FRAME_CHECK(&frame, outs && inputs && inputsNum > 0 && inputsNum <= DIT_MAX_DIMS,
              "there are %lld 'inputs'; valid: 1 to %d, and as many 'outs'", (long long)inputsNum, DIT_MAX_DIMS);
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < inputsNum; i++) {
      FRAME_TRY(frame_take_element(&frame, "outs", i, outs[i], &o));
      for (int64_t other = 0; pass == 0 && other < inputsNum; other++) {
        const struct dit_tensor_view *views[] = {&grid.view};
        FRAME_TRY(take_grid(&frame, inputs, inputsNum, other, &o, &grid));
        FRAME_TRY(frame_check_output(&frame, "outs", &o, views, 1, false));
      }
      FRAME_TRY(take_grid(&frame, inputs, inputsNum, i, &o, &grid));
      FRAME_TRY(layout_check_dtype(&frame, "outs", &o, "inputs", &grid.view));
      if (pass == 1) {
        FRAME_TRY(layout_copy(&frame, &o, &grid.view));
      }
    }
  }
  return diopiSuccess;
}
