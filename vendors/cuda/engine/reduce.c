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
KERNEL_REFERENCE(reduce_rows_f32, reduce_vector);
KERNEL_REFERENCE(reduce_rows_f16, reduce_vector);
KERNEL_REFERENCE(reduce_rows_bf16, reduce_vector);
KERNEL_REFERENCE(reduce_columns_f32, reduce_vector);
KERNEL_REFERENCE(reduce_columns_f16, reduce_vector);
KERNEL_REFERENCE(reduce_columns_bf16, reduce_vector);

#define PARTS_SCRATCH (LAUNCH_SCRATCH / 2)  ///< for the sums of parts; the rest for what is reduced in two steps

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
  const int64_t partials = (int64_t)(PARTS_SCRATCH / sizeof(double)) / task->outputs;
  task->splits = 1;
  const int64_t least = task->is_column ? 256 : 16384;  // elements that a part is worth
  if (blocks < most / 2 && task->count >= 2 * least && blocks <= (int64_t)LAUNCH_TICKETS) {
    int64_t splits = most / blocks;
    splits = splits > task->count / least ? task->count / least : splits;
    splits = splits > partials ? partials : splits;
    task->splits = splits > 1 ? (int32_t)splits : 1;
  }
  // parts begin at whole vectors
  task->part = ((task->count + task->splits - 1) / task->splits + 15) / 16 * 16;
  grid->x = (unsigned)(task->splits > 1 || blocks < most * 4 ? blocks : most * 4);
  grid->y = (unsigned)task->splits;
  grid->threads = REDUCE_KERNEL_THREADS;
}

// Whole vectors (kernels/reduce_vector.cu)

/// Parts of `count` steps for each of `blocks`: as many as fill the device once; where that leaves a gap, several
/// times.
static void split_vectors(struct reduce_kernel *task, int64_t blocks, int64_t count, int64_t least,
                          struct kernel_grid *grid) {
  const int64_t places = (int64_t)kernel_get_multiprocessors() * REDUCE_KERNEL_RESIDENT;
  const int64_t limits[2] = {count / least, (int64_t)(PARTS_SCRATCH / sizeof(float)) / task->outputs};
  int64_t splits = places / blocks >= 4 ? places / blocks : places * 4 / blocks;
  for (int i = 0; i < 2; i++) {
    splits = splits > limits[i] ? limits[i] : splits;
  }
  splits = splits < 1 || blocks > (int64_t)LAUNCH_TICKETS ? 1 : splits;
  task->part = (count + splits - 1) / splits;
  task->splits = (int32_t)((count + task->part - 1) / task->part);
  grid->x = (unsigned)(blocks < 1 << 20 ? blocks : 1 << 20);
  grid->y = (unsigned)task->splits;
  grid->threads = REDUCE_KERNEL_THREADS;
}

/// Do vectors of the kept dimensions from `first` on begin at 16 bytes?
static bool is_aligned(const struct reduce_dims *kept, int first) {
  bool result = true;
  for (int dim = first; dim < kept->ndim; dim++) {
    result = result && (kept->sizes[dim] == 1 || kept->strides[dim][0] % 16 == 0);
  }
  return result;
}

static bool choose_rows(struct reduce_kernel *task, int64_t lanes, struct kernel_grid *grid) {
  if (!is_aligned(&task->kept, 0) || task->count < lanes) {
    return false;
  }
  // four vectors for every thread of a row
  int64_t threads = 1;
  task->vectors = task->count / lanes;
  while (threads < REDUCE_KERNEL_THREADS && threads * 4 < task->vectors) {
    threads *= 2;
  }
  task->columns = (int32_t)(REDUCE_KERNEL_THREADS / threads);
  const int64_t blocks = (task->outputs + task->columns - 1) / task->columns;
  split_vectors(task, blocks, task->vectors, task->columns == 1 ? REDUCE_KERNEL_THREADS * 8 : task->vectors, grid);
  return true;
}

static bool choose_columns(struct reduce_kernel *task, int64_t lanes, struct kernel_grid *grid) {
  struct reduce_dims *kept = &task->kept;
  if (kept->sizes[0] % lanes != 0 || !is_aligned(kept, 1) || task->step % 16 != 0 || task->count < 2) {
    return false;
  }
  task->out_step = kept->strides[0][1];
  task->vectors = task->outputs / lanes;
  kept->sizes[0] /= lanes;
  kept->strides[0][0] *= lanes;
  kept->strides[0][1] *= lanes;
  kept->divisors[0] = plan_get_divisor(kept->sizes[0]);
  task->columns = 1;
  while (task->columns < 32 && task->columns < task->vectors) {
    task->columns *= 2;
  }
  const int64_t blocks = (task->vectors + task->columns - 1) / task->columns;
  split_vectors(task, blocks, task->count, REDUCE_KERNEL_THREADS / task->columns * 8, grid);
  return true;
}

static bool is_single(int dtype) {
  return dtype == DIT_DTYPE_F32 || dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
}

/// Do the kernels of vectors know the kind and the dtypes?
static bool is_known(const struct reduce_kernel *task) {
  return (task->kind == REDUCE_SUM || task->kind == REDUCE_MEAN || task->kind == REDUCE_MAX ||
          task->kind == REDUCE_MIN || task->kind == REDUCE_NORM_2) &&
         is_single(task->in_dtype) && is_single(task->out_dtype);
}

/// The kernel of vectors that takes the task, or NULL.
static struct kernel *choose_vectors(struct reduce_kernel *task, struct kernel_grid *grid) {
  const int in = task->in_dtype;
  const int64_t width = in == DIT_DTYPE_F32 ? 4 : 2, lanes = 16 / width;
  if (!is_known(task) || task->reduced.ndim != 1 || task->kept.ndim > 2 || task->count > INT32_MAX / 2 ||
      task->outputs > INT32_MAX / 2 || (uintptr_t)task->in % 16 != 0) {
    return NULL;
  }
  task->step = task->reduced.strides[0][0];
  if (task->step == width && choose_rows(task, lanes, grid)) {
    return in == DIT_DTYPE_F32 ? &reduce_rows_f32 : in == DIT_DTYPE_F16 ? &reduce_rows_f16 : &reduce_rows_bf16;
  }
  if (task->step != width && task->kept.strides[0][0] == width && choose_columns(task, lanes, grid)) {
    return in == DIT_DTYPE_F32 ? &reduce_columns_f32 : in == DIT_DTYPE_F16 ? &reduce_columns_f16 : &reduce_columns_bf16;
  }
  return NULL;
}

/// Rows of whole vectors that lie apart, as samples of a channel do: each by itself, then their results. Every kind of
/// the kernels of vectors can be taken twice, because the rows are of one size.
static bool is_twice(const struct reduce_kernel *task) {
  const struct reduce_dims *reduced = &task->reduced;
  const int64_t width = task->in_dtype == DIT_DTYPE_F32 ? 4 : 2;
  return is_known(task) && reduced->ndim == 2 && task->kept.ndim == 1 && reduced->strides[0][0] == width &&
         reduced->sizes[0] * width % 16 == 0 && reduced->sizes[0] >= 64 && reduced->strides[1][0] % 16 == 0 &&
         is_aligned(&task->kept, 0) && (uintptr_t)task->in % 16 == 0 &&
         task->outputs * reduced->sizes[1] <= (int64_t)((LAUNCH_SCRATCH - PARTS_SCRATCH) / sizeof(float));
}

static enum dit_status reduce_twice(void *stream, const struct reduce_kernel *task, const struct dit_tensor_view *out,
                                    const struct dit_tensor_view *in, struct dit_error *err) {
  const struct reduce_dims *kept = &task->kept, *reduced = &task->reduced;
  const int64_t width = (int64_t)dit_dtype_get_size(in->dtype), out_width = (int64_t)dit_dtype_get_size(out->dtype);
  const int64_t samples = reduced->sizes[1], channels = kept->sizes[0];
  const int64_t sizes[3] = {samples, channels, reduced->sizes[0]}, one[3] = {samples, channels, 1};
  const int64_t from[3] = {reduced->strides[1][0] / width, kept->strides[0][0] / width, 1};
  const int64_t rows[3] = {channels, 1, 1}, to[3] = {0, kept->strides[0][1] / out_width, 0};
  const int64_t ends[3] = {1, channels, 1};
  struct launch_scratch scratch;
  DIT_RETURN_IF_NOT_OK(launch_get_scratch(stream, &scratch, err));
  const struct dit_tensor_view first = {
      .data = in->data, .sizes = sizes, .strides = from, .numel = in->numel, .ndim = 3, .dtype = in->dtype};
  const struct dit_tensor_view middle = {.data = (char *)scratch.memory + PARTS_SCRATCH,
                                         .sizes = one,
                                         .strides = rows,
                                         .numel = samples * channels,
                                         .ndim = 3,
                                         .dtype = DIT_DTYPE_F32};
  const struct dit_tensor_view last = {
      .data = out->data, .sizes = ends, .strides = to, .numel = channels, .ndim = 3, .dtype = out->dtype};
  const enum reduce_kind kind = (enum reduce_kind)task->kind;
  launch_begin_sequence();
  enum dit_status status = reduce_launch(stream, kind, task->parameter, &middle, &first, 1u << 2, err);
  status = status == DIT_OK ? reduce_launch(stream, kind, task->parameter, &last, &middle, 1u << 0, err) : status;
  launch_end_sequence();
  return status;
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
  if (is_twice(&task)) {
    return reduce_twice(stream, &task, out, in, err);
  }
  struct kernel *kernel = choose_vectors(&task, &grid);
  if (!kernel) {
    kernel = find_kernel(kind, in->dtype, out->dtype);
    choose_grid(&task, kernel, (int64_t)dit_dtype_get_size(in->dtype), &grid);
  }
  if (task.splits > 1) {
    struct launch_scratch scratch;
    DIT_RETURN_IF_NOT_OK(launch_get_scratch(stream, &scratch, err));
    task.partials = scratch.memory;
    task.tickets = scratch.tickets;
  }
  return kernel_launch(kernel, stream, grid, &task, err);
}
