/// Which kernel a pointwise run takes, and its parameters (front/engine/pointwise.h, kernels/pointwise.h).
///
/// Operands that lie in memory as one run, or in rows of whole vectors (slices, a repeated row, an element per row), in
/// the dtypes of a vector kernel, take that one; an operand of one element for all is read once. Everything else takes
/// the strided kernel, which converts between dtypes.
#include "engine/pointwise.h"

#include <string.h>

#include "engine/nest.h"
#include "kernels/pointwise.h"
#include "list.h"
#include "plan.h"
#include "step.h"

/// What is known about the operands of a run.
struct shape {
  int operands;
  uint8_t mode[POINTWISE_KERNEL_OPERANDS], number[POINTWISE_KERNEL_OPERANDS];
  int slot[POINTWISE_KERNEL_OPERANDS];  ///< in the nest
  bool is_flat;
  struct nest nest;
};

static bool is_one(const struct dit_tensor_view *view) {
  for (int dim = 0; dim < view->ndim; dim++) {
    if (view->strides[dim] != 0 && view->sizes[dim] != 1) {
      return false;
    }
  }
  return true;
}

static void shape_init(struct shape *shape, const struct pointwise *run) {
  const struct dit_tensor_view *walked[POINTWISE_KERNEL_OPERANDS];
  int slots = 0, numbers = 0;
  bool contiguous = true;
  shape->operands = 1 + run->inputs;
  for (int i = 0; i < shape->operands; i++) {
    const struct dit_tensor_view *view = run->views[i];
    shape->number[i] = 0;
    shape->slot[i] = -1;
    if (!view) {
      shape->mode[i] = POINTWISE_NUMBER;
      shape->number[i] = (uint8_t)numbers++;
    } else if (i > 0 && is_one(view)) {
      shape->mode[i] = POINTWISE_ONE;
    } else {
      shape->mode[i] = POINTWISE_WALK;
      shape->slot[i] = slots;
      walked[slots++] = view;
      contiguous = contiguous && view->flags & DIT_TENSOR_CONTIGUOUS;
    }
  }
  shape->is_flat = contiguous;
  if (contiguous) {
    return;
  }
  nest_init(&shape->nest, slots, walked);
  shape->is_flat = shape->nest.ndim == 1;
  for (int slot = 0; slot < slots; slot++) {
    const int64_t width = (int64_t)dit_dtype_get_size(walked[slot]->dtype);
    shape->is_flat = shape->is_flat && shape->nest.strides[slot][0] == width;
  }
}

static bool is_half(const struct pointwise *run, int dtype) {
  if (run->work[1] != DIT_DTYPE_F32) {
    return false;
  }
  for (int i = 1; i <= run->inputs; i++) {
    if (run->views[i] && run->views[i]->dtype != dtype) {
      return false;
    }
  }
  return run->views[0]->dtype == (run->work[0] == DIT_DTYPE_F32 ? dtype : run->work[0]);
}

static bool is_plain(const struct pointwise *run) {
  for (int i = 0; i <= run->inputs; i++) {
    if (run->views[i] && run->views[i]->dtype != run->work[i]) {
      return false;
    }
  }
  return true;
}

/// Lanes of vectors: 16 bytes of the widest operand.
static int64_t get_lanes(const struct pointwise *run, const struct shape *shape) {
  size_t widest = 1;
  for (int i = 0; i < shape->operands; i++) {
    const size_t width = run->views[i] ? dit_dtype_get_size(run->views[i]->dtype) : 1;
    widest = width > widest ? width : widest;
  }
  return (int64_t)(16 / widest);
}

static bool is_aligned(const struct pointwise *run, const struct shape *shape) {
  const size_t lanes = (size_t)get_lanes(run, shape);
  for (int i = 0; i < shape->operands; i++) {
    if (shape->mode[i] == POINTWISE_WALK &&
        (uintptr_t)run->views[i]->data % (dit_dtype_get_size(run->views[i]->dtype) * lanes) != 0) {
      return false;
    }
  }
  return true;
}

/// Rows of whole, aligned vectors, or of one element for all of a row.
static bool is_rows(const struct pointwise *run, const struct shape *shape) {
  const struct nest *nest = &shape->nest;
  const int64_t lanes = get_lanes(run, shape);
  if (shape->is_flat || run->loop->is_where || nest->ndim < 2 || nest->ndim > 1 + POINTWISE_KERNEL_ROW_DIMS ||
      nest->sizes[0] % lanes != 0 || nest->numel > INT32_MAX) {
    return false;
  }
  for (int i = 0; i < shape->operands; i++) {
    if (shape->slot[i] < 0) {
      continue;
    }
    const int64_t *strides = nest->strides[shape->slot[i]];
    const int64_t width = (int64_t)dit_dtype_get_size(run->views[i]->dtype);
    if (strides[0] == 0 && i > 0) {
      continue;
    }
    bool is_packed = strides[0] == width && (uintptr_t)run->views[i]->data % (uintptr_t)(width * lanes) == 0;
    for (int dim = 1; dim < nest->ndim; dim++) {
      is_packed = is_packed && strides[dim] % (width * lanes) == 0;
    }
    if (!is_packed) {
      return false;
    }
  }
  return true;
}

static enum pointwise_variant choose(const struct pointwise *run, const struct shape *shape) {
  if (!(shape->is_flat ? is_aligned(run, shape) : is_rows(run, shape))) {
    return POINTWISE_STRIDED;
  }
  if (is_plain(run)) {
    return POINTWISE_VECTOR;
  }
  if (run->loop->is_where) {
    return POINTWISE_STRIDED;
  }
  return is_half(run, DIT_DTYPE_F16)    ? POINTWISE_F16
         : is_half(run, DIT_DTYPE_BF16) ? POINTWISE_BF16
                                        : POINTWISE_STRIDED;
}

static void set_rows(struct pointwise_flat *flat, const struct shape *shape, int64_t lanes) {
  const struct nest *nest = &shape->nest;
  flat->ndim = nest->ndim - 1;
  flat->row = plan_get_divisor(nest->sizes[0] / lanes);
  for (int i = 0; i < shape->operands; i++) {
    flat->is_spread[i] = shape->slot[i] >= 0 && nest->strides[shape->slot[i]][0] == 0;
  }
  for (int dim = 1; dim < nest->ndim; dim++) {
    flat->divisors[dim - 1] = plan_get_divisor(nest->sizes[dim]);
    for (int i = 0; i < shape->operands; i++) {
      flat->strides[dim - 1][i] = shape->slot[i] >= 0 ? nest->strides[shape->slot[i]][dim] : 0;
    }
  }
}

static enum dit_status launch_flat(void *stream, const struct pointwise *run, const struct shape *shape,
                                   enum pointwise_variant variant, struct dit_error *err) {
  struct pointwise_flat flat = {.numel = run->views[0]->numel};
  const int64_t lanes = get_lanes(run, shape);
  for (int i = 0; i < shape->operands; i++) {
    flat.data[i] = run->views[i] ? run->views[i]->data : NULL;
    flat.mode[i] = shape->mode[i];
    flat.number[i] = shape->number[i];
  }
  if (!shape->is_flat) {
    set_rows(&flat, shape, lanes);
  }
  memcpy(flat.numbers, run->parameters, sizeof flat.numbers);
  const int64_t per_block = lanes * POINTWISE_KERNEL_THREADS * POINTWISE_KERNEL_VECTORS;
  // one turn for each block: no wave of them waits for the slowest
  const int64_t wanted = (flat.numel + per_block - 1) / per_block;
  const unsigned blocks = shape->is_flat && !run->loop->is_where && wanted <= INT32_MAX
                              ? (unsigned)wanted
                              : kernel_get_blocks(flat.numel, per_block);
  const struct kernel_grid grid = {.x = blocks, .threads = POINTWISE_KERNEL_THREADS};
  return !run->loop->is_where && list_take(&run->loop->variants[variant], stream, &flat, blocks)
             ? DIT_OK
             : kernel_launch(&run->loop->variants[variant], stream, grid, &flat, err);
}

static bool is_signed(int dtype) {
  return dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_INT;
}

static enum dit_status launch_strided(void *stream, const struct pointwise *run, const struct shape *shape,
                                      struct dit_error *err) {
  const struct nest *nest = &shape->nest;
  struct pointwise_strided strided = {.numel = run->views[0]->numel,
                                      .rounded = (int16_t)run->rounded,
                                      .ndim = (int16_t)nest->ndim,
                                      .is_wide = run->views[0]->numel > INT32_MAX,
                                      .is_signed = is_signed(run->work[0])};
  if (nest->ndim > POINTWISE_KERNEL_DIMS) {
    return DIT_ERR_UNSUPPORTED;
  }
  for (int i = 0; i < shape->operands; i++) {
    const int dtype = run->views[i] ? run->views[i]->dtype : run->work[i];
    if (!plan_is_loadable(dtype) && !(run->loop->is_where && dtype == run->work[0])) {
      return DIT_ERR_UNSUPPORTED;
    }
    strided.data[i] = run->views[i] ? run->views[i]->data : NULL;
    strided.mode[i] = shape->mode[i];
    strided.number[i] = shape->number[i];
    strided.dtype[i] = (int16_t)dtype;
    strided.as_bool[i] = run->work[i] == DIT_DTYPE_BOOL;
  }
  for (int dim = 0; dim < nest->ndim; dim++) {
    strided.sizes[dim] = nest->sizes[dim];
    strided.divisors[dim] = strided.is_wide ? (struct pointwise_divisor){0} : plan_get_divisor(nest->sizes[dim]);
    for (int i = 0; i < shape->operands; i++) {
      strided.strides[dim][i] = shape->slot[i] >= 0 ? nest->strides[shape->slot[i]][dim] : 0;
    }
  }
  memcpy(strided.numbers, run->parameters, sizeof strided.numbers);
  const struct kernel_grid grid = {.x = kernel_get_blocks(strided.numel, POINTWISE_KERNEL_THREADS * 2),
                                   .threads = POINTWISE_KERNEL_THREADS};
  return kernel_launch(&run->loop->variants[POINTWISE_STRIDED], stream, grid, &strided, err);
}

enum dit_status pointwise_launch(void *stream, const struct pointwise *run, struct dit_error *err) {
  struct shape shape;
  if (run->loop->states > 0) {
    return step_launch(stream, run, err);
  }
  if (run->outputs != 1 || run->inputs != run->loop->inputs || run->inputs >= POINTWISE_KERNEL_OPERANDS) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (run->views[0]->numel == 0) {
    return DIT_OK;
  }
  shape_init(&shape, run);
  const enum pointwise_variant variant = choose(run, &shape);
  if (variant != POINTWISE_STRIDED) {
    return launch_flat(stream, run, &shape, variant, err);
  }
  if (shape.is_flat) {  // contiguous, but with other dtypes or addresses
    const struct dit_tensor_view *walked[POINTWISE_KERNEL_OPERANDS];
    int slots = 0;
    for (int i = 0; i < shape.operands; i++) {
      if (shape.slot[i] >= 0) {
        walked[slots++] = run->views[i];
      }
    }
    nest_init(&shape.nest, slots, walked);
  }
  return launch_strided(stream, run, &shape, err);
}
