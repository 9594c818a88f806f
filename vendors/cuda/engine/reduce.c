/// Reductions on CUDA (vendors/host/engine/reduce.h says what they do): dimensions, shape of the grid, parts.
#include "engine/reduce.h"

#include <string.h>

#include "engine/nest.h"
#include "kernels/reduce.h"
#include "launch.h"
#include "plan.h"

KERNEL_REFERENCE(reduce_f32, reduce);
KERNEL_REFERENCE(reduce_f16, reduce);
KERNEL_REFERENCE(reduce_bf16, reduce);
KERNEL_REFERENCE(reduce_f64, reduce);
KERNEL_REFERENCE(reduce_i64, reduce);
KERNEL_REFERENCE(reduce_u8, reduce);
KERNEL_REFERENCE(reduce_any_f32, reduce);
KERNEL_REFERENCE(reduce_any_f64, reduce);
KERNEL_REFERENCE(reduce_any_i64, reduce);

/// Dimensions of one kind, innermost first, fused where both tensors walk on; false when there are too many.
static bool set_dims(struct reduce_dims *dims, const struct dit_tensor_view *in, const struct dit_tensor_view *out,
                     uint32_t mask, bool reduced) {
  const int64_t in_width = (int64_t)dit_dtype_get_size(in->dtype), out_width = (int64_t)dit_dtype_get_size(out->dtype);
  int64_t count = 1;
  dims->ndim = 0;
  for (int dim = in->ndim - 1; dim >= 0; dim--) {
    if ((mask >> dim & 1) != reduced || in->sizes[dim] == 1) {
      continue;
    }
    const int64_t strides[2] = {in->strides[dim] * in_width, reduced ? 0 : out->strides[dim] * out_width};
    const int last = dims->ndim - 1;
    count *= in->sizes[dim];
    if (last >= 0 && strides[0] == dims->strides[last][0] * dims->sizes[last] &&
        strides[1] == dims->strides[last][1] * dims->sizes[last]) {
      dims->sizes[last] *= in->sizes[dim];
      continue;
    }
    if (dims->ndim == REDUCE_KERNEL_DIMS) {
      return false;
    }
    dims->sizes[dims->ndim] = in->sizes[dim];
    dims->strides[dims->ndim][0] = strides[0];
    dims->strides[dims->ndim++][1] = strides[1];
  }
  if (dims->ndim == 0) {
    dims->ndim = 1;
    dims->sizes[0] = 1;
    dims->strides[0][0] = dims->strides[0][1] = 0;
  }
  dims->is_wide = count > INT32_MAX;
  for (int dim = 0; dim < dims->ndim && !dims->is_wide && count > 0; dim++) {
    dims->divisors[dim] = plan_get_divisor(dims->sizes[dim]);
  }
  return true;
}

static struct kernel *find_kernel(enum reduce_kind kind, int in, int out) {
  const bool logical = kind == REDUCE_ANY || kind == REDUCE_ALL;
  const bool single = out == DIT_DTYPE_F32 || out == DIT_DTYPE_F16 || out == DIT_DTYPE_BF16;
  if (logical) {
    const bool floating = dit_dtype_get_class(in) == DIT_DTYPE_CLASS_FLOAT;
    return in == DIT_DTYPE_U8 || in == DIT_DTYPE_BOOL ? &reduce_u8 : floating ? &reduce_any_f64 : &reduce_any_i64;
  }
  if (single) {
    return in == DIT_DTYPE_F32    ? &reduce_f32
           : in == DIT_DTYPE_F16  ? &reduce_f16
           : in == DIT_DTYPE_BF16 ? &reduce_bf16
                                  : &reduce_any_f32;
  }
  if (out == DIT_DTYPE_F64) {
    return in == DIT_DTYPE_F64 ? &reduce_f64 : &reduce_any_f64;
  }
  return in == DIT_DTYPE_I64 ? &reduce_i64 : in == DIT_DTYPE_U8 || in == DIT_DTYPE_BOOL ? &reduce_u8 : &reduce_any_i64;
}

static bool is_typed(const struct kernel *kernel) {
  return kernel != &reduce_any_f32 && kernel != &reduce_any_f64 && kernel != &reduce_any_i64;
}

/// How blocks share the work.
static void choose_grid(struct reduce_kernel *task, const struct kernel *kernel, int64_t width,
                        struct kernel_grid *grid) {
  const int64_t inner = task->reduced.strides[0][0], kept = task->kept.strides[0][0];
  task->is_column = task->kept.sizes[0] > 1 && kept == width && inner != width;
  task->columns = task->is_column ? 32 : task->count <= 1024 ? 8 : 1;
  task->is_vector = is_typed(kernel) && !task->is_column && task->reduced.ndim == 1 && inner == width &&
                    (uintptr_t)task->in % 16 == 0;
  for (int dim = 0; task->is_vector && dim < task->kept.ndim; dim++) {
    task->is_vector = task->kept.sizes[dim] == 1 || task->kept.strides[dim][0] % 16 == 0;
  }
  const int64_t blocks = (task->outputs + task->columns - 1) / task->columns, most = kernel_get_multiprocessors() * 8;
  task->splits = 1;
  const int64_t least = task->is_column ? 256 : 16384;  // elements that a part is worth
  if (blocks < most / 2 && task->count >= 2 * least && blocks <= REDUCE_KERNEL_TICKETS) {
    int64_t splits = most / blocks;
    splits = splits > task->count / least ? task->count / least : splits;
    splits = splits > REDUCE_KERNEL_PARTIALS / task->outputs ? REDUCE_KERNEL_PARTIALS / task->outputs : splits;
    task->splits = splits > 1 ? (int32_t)splits : 1;
  }
  // parts begin at whole vectors
  task->part = ((task->count + task->splits - 1) / task->splits + 15) / 16 * 16;
  grid->x = (unsigned)(task->splits > 1 || blocks < most * 4 ? blocks : most * 4);
  grid->y = (unsigned)task->splits;
  grid->threads = REDUCE_KERNEL_THREADS;
}

enum dit_status reduce_launch(void *stream, enum reduce_kind kind, double parameter, const struct dit_tensor_view *out,
                              const struct dit_tensor_view *in, uint32_t mask, struct dit_error *err) {
  struct reduce_kernel task = {.in = in->data,
                               .out = out->data,
                               .kind = (int32_t)kind,
                               .in_dtype = in->dtype,
                               .out_dtype = out->dtype,
                               .parameter = parameter,
                               .outputs = 1,
                               .count = 1};
  struct kernel_grid grid = {0};
  if (!plan_is_loadable(in->dtype) || !plan_is_loadable(out->dtype) || in->dtype == DIT_DTYPE_U64 ||
      !set_dims(&task.kept, in, out, mask, false) || !set_dims(&task.reduced, in, out, mask, true)) {
    return DIT_ERR_UNSUPPORTED;
  }
  for (int dim = 0; dim < in->ndim; dim++) {
    *(mask >> dim & 1 ? &task.count : &task.outputs) *= in->sizes[dim];
  }
  if (task.outputs == 0) {
    return DIT_OK;
  }
  struct kernel *kernel = find_kernel(kind, in->dtype, out->dtype);
  choose_grid(&task, kernel, (int64_t)dit_dtype_get_size(in->dtype), &grid);
  if (task.splits > 1) {
    struct launch_scratch scratch;
    DIT_RETURN_IF_NOT_OK(launch_get_scratch(stream, &scratch, err));
    task.partials = scratch.memory;
    task.tickets = scratch.tickets;
  }
  return kernel_launch(kernel, stream, grid, &task, err);
}
