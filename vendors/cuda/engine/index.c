/// Elements by index tensors on CUDA (vendors/host/engine/index.h and ops/gather.h say what is done).
///
/// Positions are looked at by the kernels: one that is out of range stops the device, as in PyTorch. With the option
/// launch_blocking they are looked at before the work, and the call says what is wrong.
#include "engine/index.h"

#include <string.h>

#include "index_task.h"
#include "kinds.h"
#include "ops/gather.h"
#include "order.h"
#include "plan.h"

KERNEL_REFERENCE(index_get_bounds, index);
KERNEL_REFERENCE(index_keys, index);
#define MOVES(width)                           \
  KERNEL_REFERENCE(index_take_##width, index); \
  KERNEL_REFERENCE(index_put_##width, index);
WIDTH_KINDS(MOVES)
#define SUMS(tag)                               \
  KERNEL_REFERENCE(index_sum_##tag, index_sum); \
  KERNEL_REFERENCE(index_join_##tag, index_sum);
ELEMENT_KINDS(SUMS)

void *index_take_room(struct diopiContext *context, size_t size) {
  return scratch_take(context, size);
}

void index_give_room(void *room) {
  (void)room;  // the context's
}

void index_get_range(void *stream, const struct dit_tensor_view *index, int64_t *low, int64_t *high) {
  struct index_range task;
  struct launch_scratch scratch;
  struct nest nest;
  struct dit_error err;
  int64_t bounds[2];
  *low = 0;
  *high = -1;
  if (index->numel == 0 || !launch_is_checked()) {
    return;
  }
  nest_init(&nest, 1, &index);
  if (!plan_set_strided(&task.index, &nest) || launch_get_scratch(stream, &scratch, &err) != DIT_OK) {
    return;
  }
  task.index.dtype[0] = index->dtype;
  task.result = scratch.memory;
  const struct kernel_grid grid = {.x = 1, .threads = INDEX_KERNEL_THREADS};
  launch_begin_sequence();
  if (kernel_launch(&index_get_bounds, stream, grid, &task, &err) == DIT_OK &&
      launch_read(stream, bounds, scratch.memory, sizeof bounds, &err) == DIT_OK) {
    *low = bounds[0];
    *high = bounds[1];
  }
  launch_end_sequence();
}

// From a walk to a kernel's parameters

static void set_divisors(struct index_dims *dims, int64_t count) {
  dims->is_wide = count > INT32_MAX;
  for (int dim = 0; dim < dims->ndim && !dims->is_wide && count > 0; dim++) {
    dims->divisors[dim] = plan_get_divisor(dims->sizes[dim]);
  }
}

/// The widest vector that the run and everything that leads to it allow.
static int get_vector(const struct index_walk *walk, enum index_mode mode) {
  int64_t all = (int64_t)((uintptr_t)walk->rest.data[0] | (uintptr_t)walk->rest.data[1]) | walk->run * walk->width;
  if (mode == INDEX_ADD || walk->spread || walk->number) {
    return walk->width;
  }
  for (int dim = 0; dim < walk->rest.ndim; dim++) {
    all |= walk->rest.sizes[dim] == 1 ? 0 : walk->rest.strides[0][dim] | walk->rest.strides[1][dim];
  }
  for (int i = 0; i < walk->columns; i++) {
    all |= walk->column[i].step;
  }
  for (int dim = 0; dim < walk->ndim; dim++) {
    all |= walk->other_strides[dim];
  }
  int vector = walk->width;
  while (vector < 16 && all % (2 * vector) == 0) {
    vector *= 2;
  }
  return vector;
}

static bool set_rest(struct index_kernel *task, const struct index_walk *walk, int vector) {
  const struct nest *rest = &walk->rest;
  const int64_t units = walk->run * walk->width / vector;
  int ndim = 0;
  task->rest = rest->numel * units;
  if (walk->run > 1) {
    task->rests.sizes[ndim] = units;
    task->rest_strides[ndim][0] = vector;
    task->rest_strides[ndim++][1] = walk->spread ? 0 : vector;
  }
  for (int dim = 0; dim < rest->ndim; dim++) {
    if (rest->sizes[dim] == 1) {
      continue;
    }
    if (ndim == INDEX_KERNEL_DIMS) {
      return false;
    }
    task->rests.sizes[ndim] = rest->sizes[dim];
    task->rest_strides[ndim][0] = rest->strides[0][dim];
    task->rest_strides[ndim++][1] = rest->strides[1][dim];
  }
  task->rests.ndim = ndim;
  set_divisors(&task->rests, task->rest);
  return true;
}

static bool set_task(struct index_kernel *task, const struct index_walk *walk, enum index_mode mode, int *vector) {
  *task = (struct index_kernel){.target = walk->rest.data[0],
                                .other = walk->rest.data[1],
                                .count = walk->count,
                                .columns = walk->columns,
                                .is_strict = walk->strict,
                                .is_number = walk->number != NULL,
                                .skipped = -1};
  *vector = get_vector(walk, mode);
  if (walk->ndim > INDEX_KERNEL_DIMS || walk->columns > INDEX_KERNEL_COLUMNS || !set_rest(task, walk, *vector)) {
    return false;
  }
  if (walk->number) {
    memcpy(task->number, walk->number, sizeof task->number);
  }
  task->positions.ndim = walk->ndim;
  for (int i = 0; i < walk->ndim; i++) {
    const int dim = walk->ndim - 1 - i;
    task->positions.sizes[i] = walk->sizes[dim];
    task->other_strides[i] = walk->other_strides[dim];
  }
  set_divisors(&task->positions, task->count);
  uint64_t factor = 1;
  for (int k = walk->columns - 1; k >= 0; k--) {
    const struct index_column *from = &walk->column[k];
    struct index_kernel_column *to = &task->column[k];
    *to = (struct index_kernel_column){
        .data = from->data, .size = from->size, .step = from->step, .factor = (uint32_t)factor, .is_wide = from->wide};
    factor = factor > UINT32_MAX ? factor : factor * (uint64_t)from->size;
    for (int i = 0; i < walk->ndim; i++) {
      to->strides[i] = from->strides[walk->ndim - 1 - i];
    }
  }
  task->keys_limit = factor;
  return true;
}

enum dit_status index_task_move(struct index_kernel *task, void *stream, int vector, bool is_take,
                                struct dit_error *err) {
  if (task->count == 0 || task->rest == 0) {
    return DIT_OK;
  }
  const int64_t total = task->count * task->rest;
  // neighbouring threads where the other tensor's elements are neighbours
  const int64_t along = task->rests.ndim > 0 ? task->rest_strides[0][1] : INT64_MAX;
  task->is_positions_first = task->positions.ndim > 0 && task->other_strides[0] < along;
  task->is_wide = total > INT32_MAX;
  if (!task->is_wide) {
    task->count_divisor = plan_get_divisor(task->count);
    task->rest_divisor = plan_get_divisor(task->rest);
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(total, INDEX_KERNEL_THREADS * 2),
                                   .threads = INDEX_KERNEL_THREADS};
  return kernel_launch(is_take ? KIND_OF_WIDTH(index_take, vector) : KIND_OF_WIDTH(index_put, vector), stream, grid,
                       task, err);
}

// Sums

struct sum_kernels {
  struct kernel *sum, *join;
  int work;  ///< bytes of a running sum
};

static struct sum_kernels find_sum(int dtype) {
#define PAIR(tag, work) ((struct sum_kernels){&index_sum_##tag, &index_join_##tag, work})
  switch (dtype) {
    case DIT_DTYPE_F32:
      return PAIR(f32, 4);
    case DIT_DTYPE_F64:
      return PAIR(f64, 8);
    case DIT_DTYPE_F16:
      return PAIR(f16, 4);
    case DIT_DTYPE_BF16:
      return PAIR(bf16, 4);
    case DIT_DTYPE_U8:
    case DIT_DTYPE_I8:
      return PAIR(u8, 1);
    case DIT_DTYPE_I16:
      return PAIR(u16, 2);
    case DIT_DTYPE_I32:
      return PAIR(u32, 4);
    case DIT_DTYPE_I64:
      return PAIR(u64, 8);
    case DIT_DTYPE_BOOL:
      return PAIR(bool, 1);
    default:
      return (struct sum_kernels){NULL, NULL, 0};
  }
}

bool index_can_add(int dtype) {
  return find_sum(dtype).sum != NULL;
}

enum dit_status index_task_sort(struct index_kernel *task, struct diopiContext *context, void *stream,
                                struct dit_error *err) {
  struct order order;
  if (task->keys_limit > UINT32_MAX) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(order_init(&order, context, task->count, false, err));
  task->key_room = order.keys;
  task->place_room = order.places;
  const struct kernel_grid grid = {.x = kernel_get_blocks(task->count, INDEX_KERNEL_THREADS),
                                   .threads = INDEX_KERNEL_THREADS};
  DIT_RETURN_IF_NOT_OK(kernel_launch(&index_keys, stream, grid, task, err));
  DIT_RETURN_IF_NOT_OK(order_sort(&order, stream, order_get_bits(task->keys_limit), err));
  task->keys = order.keys;
  task->places = order.places;
  return DIT_OK;
}

enum dit_status index_task_sum(struct index_kernel *task, struct diopiContext *context, void *stream, int dtype,
                               struct dit_error *err) {
  const struct sum_kernels kernels = find_sum(dtype);
  if (!kernels.sum) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (task->count == 0 || task->rest == 0) {
    return DIT_OK;
  }
  const int64_t chunks = (task->count + INDEX_KERNEL_CHUNK - 1) / INDEX_KERNEL_CHUNK, total = chunks * task->rest;
  DIT_RETURN_IF_NOT_OK(index_task_sort(task, context, stream, err));
  task->partials = scratch_take(context, (size_t)total * 2 * (size_t)kernels.work);
  if (!task->partials) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no device memory for sums of %lld positions", (long long)task->count);
  }
  task->is_wide = total > INT32_MAX;
  if (!task->is_wide) {
    task->rest_divisor = plan_get_divisor(task->rest);
  }
  const struct kernel_grid grid = {.x = kernel_get_blocks(total, INDEX_KERNEL_THREADS),
                                   .threads = INDEX_KERNEL_THREADS};
  DIT_RETURN_IF_NOT_OK(kernel_launch(kernels.sum, stream, grid, task, err));
  return chunks > 1 ? kernel_launch(kernels.join, stream, grid, task, err) : DIT_OK;
}

enum dit_status index_walk_run(struct diopiContext *context, void *stream, const struct index_walk *walk,
                               enum index_mode mode, struct dit_error *err) {
  struct index_kernel task;
  int vector;
  if ((mode == INDEX_ADD && !index_can_add(walk->dtype)) || !set_task(&task, walk, mode, &vector)) {
    return DIT_ERR_UNSUPPORTED;
  }
  return mode == INDEX_ADD ? index_task_sum(&task, context, stream, walk->dtype, err)
                           : index_task_move(&task, stream, vector, mode == INDEX_TAKE, err);
}

bool index_task_set(struct index_kernel *task, const struct index_walk *walk, enum index_mode mode) {
  int vector;
  return set_task(task, walk, mode, &vector);
}
