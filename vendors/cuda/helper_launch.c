/// The numbers: views into launch parameters on the stack, one launch for the packed tensors of a batch and one for the
/// others. No allocation and no synchronisation once the kernels and the stream's scratch memory are there.
#include <string.h>

#include "helper_cuda.h"

#define PARAMETER_LIMIT 4096  // of a launch, on every driver
_Static_assert(sizeof(struct kernel_batch_strided) <= PARAMETER_LIMIT, "launch parameters are too large");
_Static_assert(sizeof(struct kernel_hash_strided) <= PARAMETER_LIMIT, "launch parameters are too large");
_Static_assert(sizeof(struct kernel_compare) <= PARAMETER_LIMIT, "launch parameters are too large");
_Static_assert(sizeof(struct kernel_near) <= PARAMETER_LIMIT, "launch parameters are too large");

static enum dit_status check_slots(const struct cuda_slots *slots, size_t size, size_t first, int count,
                                   struct dit_error *err) {
  if (count < 0 || count > DIT_HELPER_BATCH) {
    return dit_error_set(err, DIT_ERR_INVALID, "%d tensors in one batch; valid: 0 to %d", count, DIT_HELPER_BATCH);
  }
  if (slots->size != size) {
    return dit_error_set(err, DIT_ERR_INVALID, "the slots have %zu bytes each, this result needs %zu", slots->size,
                         size);
  }
  if (first > slots->count || (size_t)count > slots->count - first) {
    return dit_error_set(err, DIT_ERR_INVALID, "slots %zu to %zu asked for; the block has %zu", first,
                         first + (size_t)count, slots->count);
  }
  return DIT_OK;
}

static enum dit_status check_device(const struct cuda_slots *slots, const struct dit_tensor_view *view,
                                    struct dit_error *err) {
  if (view->device_index != slots->device) {
    return dit_error_set(err, DIT_ERR_INVALID, "the tensor is on device %d, the slots are on device %d",
                         view->device_index, slots->device);
  }
  return DIT_OK;
}

/// One kind of batch: flags, statistics, checksums.
struct batch_kind {
  enum cuda_kernel flat, strided;
  size_t size;
  bool has_stats;  ///< of flags: slots are statistics
  bool bytes;      ///< dtypes without numbers are welcome, and what is there twice is read once
};

/// What tensors from number `first` on leave, or what statistics wait for.
struct batch_mark {
  uint64_t number;
  int first;
};

/// The flat tensors of a batch and the others, and how many each has.
struct batch_task {
  struct kernel_batch flat;
  struct kernel_batch_strided strided;
  int flat_count, strided_count, dims;
  unsigned flat_blocks, strided_blocks;
};

static enum dit_status launch(int device, enum cuda_kernel kernel, unsigned blocks, unsigned tensors, void *stream,
                              void *parameters, struct dit_error *err) {
  void *function = NULL, *list[1] = {parameters};
  DIT_RETURN_IF_NOT_OK(cuda_module_get(device, kernel, &function, err));
  return driver_check(driver.launch(function, blocks, tensors, 1, HELPER_THREADS, 1, 1, 0, stream, list, NULL),
                      "cuLaunchKernel", err);
}

static enum dit_status launch_strided(struct batch_task *task, const struct batch_kind *kind,
                                      const struct cuda_slots *slots, void *stream, struct dit_error *err) {
  if (task->strided_count == 0) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(launch(slots->device, kind->strided, task->strided_blocks, (unsigned)task->strided_count, stream,
                              &task->strided, err));
  task->strided_count = task->dims = 0;
  task->strided_blocks = 0;
  return DIT_OK;
}

static unsigned get_larger(unsigned a, unsigned b) {
  return a > b ? a : b;
}

/// The view without its dimensions of stride 0, which show the same memory again. `sizes` and `strides` are its own.
static struct dit_tensor_view get_distinct(const struct dit_tensor_view *view, int64_t *sizes, int64_t *strides) {
  struct dit_tensor_view distinct = *view;
  distinct.ndim = 0;
  for (int dim = 0; dim < view->ndim && view->numel > 0; dim++) {
    if (view->strides[dim] == 0) {
      distinct.numel /= view->sizes[dim];
    } else {
      sizes[distinct.ndim] = view->sizes[dim];
      strides[distinct.ndim++] = view->strides[dim];
    }
  }
  distinct.sizes = sizes;
  distinct.strides = strides;
  return distinct.numel == view->numel ? *view : distinct;
}

/// With the context current and the views checked.
static enum dit_status run_batch(struct batch_task *task, const struct batch_kind *kind, struct batch_mark mark,
                                 const struct dit_tensor_view *views, int count, const struct cuda_slots *slots,
                                 size_t first, void *stream, struct dit_error *err) {
  task->flat_count = task->strided_count = task->dims = 0;
  task->flat_blocks = task->strided_blocks = 0;
  task->flat.out = (void *)(uintptr_t)(slots->memory + first * kind->size);
  DIT_RETURN_IF_NOT_OK(cuda_scratch_get(slots->device, stream, &task->flat.scratch, err));
  task->strided.batch.out = task->flat.out;
  task->strided.batch.scratch = task->flat.scratch;
  task->flat.mark = task->strided.batch.mark = mark.number;
  task->flat.marking = task->strided.batch.marking = (uint32_t)mark.first;
  task->flat.has_stats = task->strided.batch.has_stats = kind->has_stats;
  for (int i = 0; i < count; i++) {
    struct plan plan;
    struct kernel_tensor tensor;
    int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
    struct dit_tensor_view view = kind->bytes ? get_distinct(&views[i], sizes, strides) : views[i];
    plan_init(&plan, &view, NULL, PLAN_ANY);
    if (plan.ndim > HELPER_POOL_DIMS - task->dims) {
      DIT_RETURN_IF_NOT_OK(launch_strided(task, kind, slots, stream, err));
    }
    (void)plan_add(&tensor, &view, &plan, task->strided.dims, HELPER_POOL_DIMS, &task->dims);
    tensor.slot = (uint32_t)i;
    if (plan.ndim == 0) {
      task->flat.tensor[task->flat_count++] = tensor;
      task->flat_blocks = get_larger(task->flat_blocks, tensor.blocks);
    } else {
      task->strided.batch.tensor[task->strided_count++] = tensor;
      task->strided_blocks = get_larger(task->strided_blocks, tensor.blocks);
    }
  }
  if (task->flat_count > 0) {
    DIT_RETURN_IF_NOT_OK(
        launch(slots->device, kind->flat, task->flat_blocks, (unsigned)task->flat_count, stream, &task->flat, err));
  }
  return launch_strided(task, kind, slots, stream, err);
}

static enum dit_status batch(const struct batch_kind *kind, struct batch_mark mark, const struct dit_tensor_view *views,
                             int count, void *stream, void *handle, size_t first, struct dit_error *err) {
  const struct cuda_slots *slots = handle;
  struct context_guard guard;
  struct batch_task task;
  DIT_RETURN_IF_NOT_OK(check_slots(slots, kind->size, first, count, err));
  for (int i = 0; i < count; i++) {
    DIT_RETURN_IF_NOT_OK(plan_check(&views[i], "the tensor", !kind->bytes, err));
    DIT_RETURN_IF_NOT_OK(check_device(slots, &views[i], err));
  }
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, slots->device, err));
  enum dit_status status = stream_check(stream, err);
  if (status == DIT_OK) {
    status = run_batch(&task, kind, mark, views, count, slots, first, stream, err);
  }
  context_leave(&guard);
  return status;
}

enum dit_status cuda_nonfinite(const struct dit_tensor_view *views, int count, void *stream, void *slots, size_t first,
                               struct dit_error *err) {
  static const struct batch_kind kind = {CUDA_NONFINITE, CUDA_NONFINITE_STRIDED, sizeof(uint8_t), false, false};
  return batch(&kind, (struct batch_mark){0}, views, count, stream, slots, first, err);
}

enum dit_status cuda_stats(const struct dit_tensor_view *views, int count, void *stream, void *slots, size_t first,
                           struct dit_error *err) {
  return cuda_stats_if(views, count, 0, stream, slots, first, err);
}

enum dit_status cuda_watch(const struct dit_tensor_view *views, int count, int marking, uint64_t mark, void *stream,
                           void *slots, size_t first, struct dit_error *err) {
  static const struct batch_kind kind = {CUDA_NONFINITE, CUDA_NONFINITE_STRIDED, sizeof(struct dit_tensor_stats), true,
                                         false};
  return batch(&kind, (struct batch_mark){mark, marking < 0 ? 0 : marking}, views, count, stream, slots, first, err);
}

enum dit_status cuda_stats_if(const struct dit_tensor_view *views, int count, uint64_t mark, void *stream, void *slots,
                              size_t first, struct dit_error *err) {
  static const struct batch_kind kind = {CUDA_STATS, CUDA_STATS_STRIDED, sizeof(struct dit_tensor_stats), true, false};
  return batch(&kind, (struct batch_mark){mark, 0}, views, count, stream, slots, first, err);
}

enum dit_status cuda_checksum(const struct dit_tensor_view *views, int count, void *stream, void *slots, size_t first,
                              struct dit_error *err) {
  static const struct batch_kind kind = {CUDA_CHECKSUM, CUDA_CHECKSUM_STRIDED, sizeof(struct dit_hash), false, true};
  return batch(&kind, (struct batch_mark){0}, views, count, stream, slots, first, err);
}

// Comparison

enum dit_status cuda_compare(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                             const struct dit_compare_options *options, void *stream, void *handle, size_t first,
                             struct dit_error *err) {
  const struct cuda_slots *slots = handle;
  struct context_guard guard;
  struct kernel_compare task;
  DIT_RETURN_IF_NOT_OK(check_slots(slots, sizeof(struct dit_compare_result), first, 1, err));
  DIT_RETURN_IF_NOT_OK(plan_check_pair(a, b, options, err));
  DIT_RETURN_IF_NOT_OK(check_device(slots, a, err));
  DIT_RETURN_IF_NOT_OK(check_device(slots, b, err));
  plan_compare(&task, a, b, options);
  task.out = (struct dit_compare_result *)(uintptr_t)slots->memory + first;
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, slots->device, err));
  enum dit_status status = stream_check(stream, err);
  if (status == DIT_OK) {
    status = cuda_scratch_get(slots->device, stream, &task.scratch, err);
  }
  if (status == DIT_OK) {
    status = launch(slots->device, CUDA_COMPARE, task.tensor[0].blocks, 1, stream, &task, err);
  }
  context_leave(&guard);
  return status;
}

// Nearness

static enum dit_status run_near(struct kernel_near *task, const struct dit_near_pair *pairs, int count,
                                const struct cuda_slots *slots, size_t first, void *stream, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(cuda_scratch_get(slots->device, stream, &task->scratch, err));
  for (int done = 0; done < count;) {
    int taken = 0, used = 0;
    unsigned blocks = 1;
    while (done + taken < count && plan_add_pair(task, taken, &pairs[done + taken], &used)) {
      blocks = get_larger(blocks, task->pair[taken++].blocks);
    }
    task->out = (struct dit_near_result *)(uintptr_t)slots->memory + first + done;
    DIT_RETURN_IF_NOT_OK(launch(slots->device, CUDA_NEAR, blocks, (unsigned)taken, stream, task, err));
    done += taken;
  }
  return DIT_OK;
}

enum dit_status cuda_near(const struct dit_near_pair *pairs, int count, void *stream, void *handle, size_t first,
                          struct dit_error *err) {
  const struct dit_compare_options options = {0};
  const struct cuda_slots *slots = handle;
  struct context_guard guard;
  struct kernel_near task;
  DIT_RETURN_IF_NOT_OK(check_slots(slots, sizeof(struct dit_near_result), first, count, err));
  for (int i = 0; i < count; i++) {
    DIT_RETURN_IF_NOT_OK(plan_check_pair(&pairs[i].a, &pairs[i].b, &options, err));
    DIT_RETURN_IF_NOT_OK(check_device(slots, &pairs[i].a, err));
    DIT_RETURN_IF_NOT_OK(check_device(slots, &pairs[i].b, err));
  }
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, slots->device, err));
  enum dit_status status = stream_check(stream, err);
  if (status == DIT_OK) {
    status = run_near(&task, pairs, count, slots, first, stream, err);
  }
  context_leave(&guard);
  return status;
}

// Hash

#define HASH_POOL ((int)(sizeof(((struct kernel_hash_strided *)0)->dims) / sizeof(struct kernel_dim)))

/// A batch of hashes in the making: flat ones and others share the launch, in the kernel for strides when one has any.
struct hash_task {
  struct kernel_hash_strided strided;
  int count, dims;
  unsigned blocks;
};

static enum dit_status launch_hash(struct hash_task *task, const struct cuda_slots *slots, void *stream,
                                   struct dit_error *err) {
  if (task->count == 0) {
    return DIT_OK;
  }
  // The parameters of the flat kernel are the first member of the other's.
  enum cuda_kernel kernel = task->dims > 0 ? CUDA_HASH_STRIDED : CUDA_HASH;
  DIT_RETURN_IF_NOT_OK(launch(slots->device, kernel, task->blocks, (unsigned)task->count, stream, &task->strided, err));
  task->count = task->dims = 0;
  task->blocks = 0;
  return DIT_OK;
}

static enum dit_status run_hash(struct hash_task *task, const struct dit_tensor_view *views, int count,
                                const struct cuda_slots *slots, size_t first, void *stream, struct dit_error *err) {
  struct kernel_hash *hash = &task->strided.hash;
  task->count = task->dims = 0;
  task->blocks = 0;
  hash->batch.out = (void *)(uintptr_t)(slots->memory + first * sizeof(struct dit_hash));
  DIT_RETURN_IF_NOT_OK(cuda_scratch_get(slots->device, stream, &hash->batch.scratch, err));
  for (int i = 0; i < count; i++) {
    struct plan plan;
    plan_init(&plan, &views[i], NULL, PLAN_ROW_MAJOR);
    if (plan.ndim > HASH_POOL - task->dims) {
      DIT_RETURN_IF_NOT_OK(launch_hash(task, slots, stream, err));
    }
    struct kernel_tensor *tensor = &hash->batch.tensor[task->count];
    (void)plan_add(tensor, &views[i], &plan, task->strided.dims, HASH_POOL, &task->dims);
    int64_t slot = plan_get_hash_slot(views[i].numel);
    tensor->slot = (uint32_t)i;
    tensor->blocks = views[i].numel > 0 ? (uint32_t)((views[i].numel + slot - 1) / slot) : 1;
    hash->slot_size[task->count] = slot;
    hash->prefix[task->count++] = plan_get_hash_prefix(&views[i]);
    task->blocks = get_larger(task->blocks, tensor->blocks);
  }
  return launch_hash(task, slots, stream, err);
}

enum dit_status cuda_hash(const struct dit_tensor_view *views, int count, void *stream, void *handle, size_t first,
                          struct dit_error *err) {
  const struct cuda_slots *slots = handle;
  struct context_guard guard;
  struct hash_task task;
  DIT_RETURN_IF_NOT_OK(check_slots(slots, sizeof(struct dit_hash), first, count, err));
  for (int i = 0; i < count; i++) {
    DIT_RETURN_IF_NOT_OK(plan_check(&views[i], "the tensor", false, err));
    DIT_RETURN_IF_NOT_OK(check_device(slots, &views[i], err));
  }
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, slots->device, err));
  enum dit_status status = stream_check(stream, err);
  if (status == DIT_OK) {
    status = run_hash(&task, views, count, slots, first, stream, err);
  }
  context_leave(&guard);
  return status;
}
