/// Reductions over dimensions: sum, mean, prod, any, all, extremes and their indices, norms, standard deviation.
///
/// out[kept] = fold of input over the reduced dimensions. `out` has the input's shape without them or, where no keepdim
/// parameter says otherwise, with size 1 for them. An absent or empty list of dimensions means all. Accumulated in the
/// dtype of `out` (float for half types, 64-bit integers); complex sums are those of their parts. Not in place.
#include "engine/reduce.h"

#include <math.h>

#include "dense.h"
#include "dit/parallel.h"
#include "engine/reduce_index.h"
#include "engine/rows.h"
#include "lines.h"

/// Outputs of a reduction share no memory with its input.
static diopiError_t check_out(struct frame *frame, const char *name, const struct dit_tensor_view *out,
                              const struct dit_tensor_view *in) {
  return frame_check_output(frame, name, out, (const struct dit_tensor_view *[]){in}, 1, false);
}

static bool is_empty_fold(const struct dit_tensor_view *out, const struct dit_tensor_view *in) {
  return in->numel == 0 && out->numel > 0;
}

struct reduction {
  struct frame frame;
  const char *out_name, *in_name;  ///< of the parameters, for messages
  struct dit_tensor_view out, in;
  uint32_t mask;
};

static diopiError_t begin(struct reduction *r, const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                          diopiConstTensorHandle_t input, diopiSize_t dim, uint64_t dtypes) {
  FRAME_TRY(frame_begin(&r->frame, function, ctx));
  FRAME_TRY(frame_take(&r->frame, r->out_name, out, &r->out));
  FRAME_TRY(frame_take(&r->frame, r->in_name, input, &r->in));
  if (!frame_has_dtype(dtypes, r->in.dtype)) {
    return frame_fail_dtype(&r->frame, r->in_name, r->in.dtype);
  }
  return frame_get_mask(&r->frame, "dim", dim, r->in.ndim, true, &r->mask);
}

/// Over a list of dimensions, and over one or all (`dim` NULL); parameters carry their own names.
#define BEGIN_DIMS(r, function, ctx, out, input, dim, dtypes) \
  FRAME_TRY(((r)->out_name = #out, (r)->in_name = #input, begin(r, function, ctx, out, input, dim, dtypes)))
#define BEGIN_DIM(r, function, ctx, out, input, dim, dtypes) \
  BEGIN_DIMS(r, function, ctx, out, input, ((diopiSize_t){dim, (dim) != NULL}), dtypes)

/// Everything after the arguments are views: shapes, aliasing, complex parts, the engine.
static diopiError_t launch(struct reduction *r, enum reduce_kind kind, int keepdim) {
  struct shaped kept, real_out, real_in;
  struct dit_error err = {.message = ""};
  const struct dit_tensor_view *to = &kept.view, *in = &r->in;
  FRAME_TRY(shaped_keep(&kept, &r->frame, r->out_name, &r->out, in, r->mask, keepdim));
  FRAME_TRY(check_out(&r->frame, r->out_name, &r->out, in));
  if (frame_has_dtype(DTYPES_COMPLEX, in->dtype) && frame_has_dtype(DTYPES_COMPLEX, r->out.dtype)) {  // sum and mean
    FRAME_CHECK(&r->frame, shaped_as_real(&real_out, &kept.view) && shaped_as_real(&real_in, in),
                "a complex '%s' may have at most %d dimensions", r->in_name, DIT_MAX_DIMS - 1);
    to = &real_out.view;
    in = &real_in.view;
  }
  return frame_get_code(&r->frame, reduce_launch(r->frame.stream, kind, 0, to, in, r->mask, &err), &err);
}

static diopiError_t check_dtype(struct reduction *r, bool right) {
  return right ? diopiSuccess : frame_fail_dtype(&r->frame, r->out_name, r->out.dtype);
}

static const diopiSize_t everything = {NULL, 0};
#define IS(view, set) frame_has_dtype(set, (view).dtype)

diopiError_t diopiSum(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiSize_t dim) {
  struct reduction r;
  BEGIN_DIMS(&r, __func__, ctx, out, input, dim, DTYPES_PLAIN | DTYPES_COMPLEX);
  FRAME_TRY(check_dtype(&r, IS(r.out, DTYPES_PLAIN) || (IS(r.out, DTYPES_COMPLEX) && r.out.dtype == r.in.dtype)));
  return launch(&r, REDUCE_SUM, -1);
}

diopiError_t diopiMean(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       diopiSize_t dim) {
  struct reduction r;
  BEGIN_DIMS(&r, __func__, ctx, out, input, dim, DTYPES_PLAIN | DTYPES_COMPLEX);
  FRAME_TRY(check_dtype(&r, IS(r.out, DTYPES_FLOAT) || (IS(r.out, DTYPES_COMPLEX) && r.out.dtype == r.in.dtype)));
  return launch(&r, REDUCE_MEAN, -1);
}

diopiError_t diopiProd(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       const int64_t *dim) {
  struct reduction r;
  BEGIN_DIM(&r, __func__, ctx, out, input, dim, DTYPES_PLAIN);
  FRAME_TRY(check_dtype(&r, IS(r.out, DTYPES_PLAIN)));
  return launch(&r, REDUCE_PROD, -1);
}

static diopiError_t run_logical(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                                diopiConstTensorHandle_t input, const int64_t *dim, enum reduce_kind kind) {
  struct reduction r;
  BEGIN_DIM(&r, function, ctx, out, input, dim, DTYPES_ANY);
  FRAME_TRY(check_dtype(&r, r.out.dtype == DIT_DTYPE_BOOL || r.out.dtype == DIT_DTYPE_U8));
  return launch(&r, kind, -1);
}

diopiError_t diopiAny(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      const int64_t *dim) {
  return run_logical(__func__, ctx, out, input, dim, REDUCE_ANY);
}

diopiError_t diopiAll(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      const int64_t *dim) {
  return run_logical(__func__, ctx, out, input, dim, REDUCE_ALL);
}

// ---- extremes

static diopiError_t run_extreme(struct reduction *r, enum reduce_kind kind, int keepdim) {
  FRAME_TRY(check_dtype(r, r->out.dtype == r->in.dtype));
  FRAME_CHECK(&r->frame, !is_empty_fold(&r->out, &r->in), "the input has no elements; it needs at least one");
  return launch(r, kind, keepdim);
}

diopiError_t diopiAmax(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t self,
                       diopiSize_t dim, bool keepdim) {
  struct reduction r;
  BEGIN_DIMS(&r, __func__, ctx, out, self, dim, DTYPES_PLAIN);
  return run_extreme(&r, REDUCE_MAX, keepdim);
}

diopiError_t diopiMaxAll(diopiContextHandle_t ctx, diopiTensorHandle_t max, diopiConstTensorHandle_t input) {
  struct reduction r;
  BEGIN_DIMS(&r, __func__, ctx, max, input, everything, DTYPES_PLAIN);
  return run_extreme(&r, REDUCE_MAX, -1);
}

diopiError_t diopiMinAll(diopiContextHandle_t ctx, diopiTensorHandle_t min, diopiConstTensorHandle_t input) {
  struct reduction r;
  BEGIN_DIMS(&r, __func__, ctx, min, input, everything, DTYPES_PLAIN);
  return run_extreme(&r, REDUCE_MIN, -1);
}

static diopiError_t run_max(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t values,
                            diopiTensorHandle_t indices, diopiConstTensorHandle_t input, int64_t dim, bool largest) {
  struct reduction r;
  struct dit_tensor_view index;
  struct shaped kept_values, kept_indices, in;
  struct dit_error err = {.message = ""};
  int d;
  const char *const index_name = largest ? "max_indices" : "min_indices";
  r.out_name = largest ? "max" : "min";
  r.in_name = "input";
  FRAME_TRY(begin(&r, function, ctx, values, input, (diopiSize_t){&dim, 1}, DTYPES_PLAIN));
  FRAME_TRY(frame_take(&r.frame, index_name, indices, &index));
  FRAME_TRY(frame_wrap_dim(&r.frame, "dim", dim, r.in.ndim, &d));
  FRAME_TRY(check_dtype(&r, r.out.dtype == r.in.dtype));
  if (index.dtype != DIT_DTYPE_I64) {
    return frame_fail_dtype(&r.frame, index_name, index.dtype);
  }
  FRAME_CHECK(&r.frame, r.in.ndim == 0 || r.in.sizes[d] > 0, "dimension %d of 'input' has size 0", d);
  FRAME_TRY(shaped_keep(&kept_values, &r.frame, r.out_name, &r.out, &r.in, r.mask, -1));
  FRAME_TRY(shaped_keep(&kept_indices, &r.frame, index_name, &index, &r.in, r.mask, -1));
  FRAME_TRY(check_out(&r.frame, r.out_name, &r.out, &r.in));
  FRAME_TRY(check_out(&r.frame, index_name, &index, &r.in));
  FRAME_TRY(check_out(&r.frame, index_name, &index, &r.out));
  if (r.in.ndim == 0) {
    shaped_push(&kept_values, 1, 1);
    shaped_push(&kept_indices, 1, 1);
  }
  shaped_init(&in, &r.in, true);
  return frame_get_code(
      &r.frame, reduce_index_launch(r.frame.stream, largest, &kept_values.view, &kept_indices.view, &in.view, d, &err),
      &err);
}

diopiError_t diopiMax(diopiContextHandle_t ctx, diopiTensorHandle_t max, diopiTensorHandle_t max_indices,
                      diopiConstTensorHandle_t input, int64_t dim) {
  return run_max(__func__, ctx, max, max_indices, input, dim, true);
}

diopiError_t diopiMin(diopiContextHandle_t ctx, diopiTensorHandle_t min, diopiTensorHandle_t min_indices,
                      diopiConstTensorHandle_t input, int64_t dim) {
  return run_max(__func__, ctx, min, min_indices, input, dim, false);
}

/// All elements in row-major order, for an input that does not lie so.
struct flat_task {
  struct frame *frame;
  const struct dit_tensor_view *out, *in;
  bool largest;
};

static diopiError_t run_flat(void *argument) {
  const struct flat_task *task = argument;
  struct dense dense;
  struct dit_error err = {.message = ""};
  struct shaped flat;
  if (!dense_read(&dense, task->in, task->in->dtype)) {
    return frame_fail(task->frame, diopiErrorOccurred, "no memory for a copy of 'input'");
  }
  shaped_init(&flat, task->in, false);
  flat.view.ndim = 0;
  shaped_push(&flat, task->in->numel, 1);
  flat.view.data = dense.data;
  enum dit_status status = reduce_index_launch(NULL, task->largest, NULL, task->out, &flat.view, 0, &err);
  dense_close(&dense);
  return frame_get_code(task->frame, status, &err);
}

static diopiError_t run_arg(const char *function, diopiContextHandle_t ctx, diopiTensorHandle_t out,
                            diopiConstTensorHandle_t input, const int64_t *dim, bool keepdim, bool largest) {
  struct reduction r;
  struct shaped kept, in;
  struct dit_error err = {.message = ""};
  int d = 0;
  BEGIN_DIM(&r, function, ctx, out, input, dim, DTYPES_REAL);
  FRAME_TRY(check_dtype(&r, r.out.dtype == DIT_DTYPE_I64));
  FRAME_TRY(frame_wrap_dim(&r.frame, "dim", dim ? *dim : 0, r.in.ndim, &d));
  FRAME_CHECK(&r.frame, dim ? r.in.ndim == 0 || r.in.sizes[d] > 0 : r.in.numel > 0,
              "'input' has no elements to choose from; it needs at least one along 'dim'");
  FRAME_TRY(shaped_keep(&kept, &r.frame, "out", &r.out, &r.in, r.mask, dim ? keepdim : -1));
  FRAME_TRY(check_out(&r.frame, "out", &r.out, &r.in));
  if (!dim || r.in.ndim == 0) {
    kept.view.ndim = 0;
    shaped_push(&kept, 1, 1);
    struct flat_task task = {&r.frame, &kept.view, &r.in, largest};
    return frame_run(&r.frame, run_flat, &task);
  }
  shaped_init(&in, &r.in, true);
  return frame_get_code(&r.frame, reduce_index_launch(r.frame.stream, largest, NULL, &kept.view, &in.view, d, &err),
                        &err);
}

diopiError_t diopiArgmax(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         const int64_t *dim, bool keepdim) {
  return run_arg(__func__, ctx, out, input, dim, keepdim, true);
}

diopiError_t diopiArgmin(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                         const int64_t *dim, bool keepdim) {
  return run_arg(__func__, ctx, out, input, dim, keepdim, false);
}

// ---- standard deviation

struct std_task {
  struct frame *frame;
  const struct dit_tensor_view *out, *in;  ///< out: kept dimensions only; in: those, then the reduced ones
  double correction;
  int work;
  int64_t kept, reduced;
  const void *data;
  void *result;
};

static void run_std_rows(void *context, int64_t begin, int64_t end) {
  const struct std_task *task = context;
  const double n = (double)task->reduced, freedom = n - task->correction;
  for (int64_t k = begin; k < end; k++) {
    double sum, squares;
    if (task->work == DIT_DTYPE_F32) {
      const float *p = (const float *)task->data + k * task->reduced;
      sum = row_sum_f32(p, task->reduced);
      squares = row_sum_squares_f32(p, task->reduced, (float)(sum / n));
      const double rest = sum - n * (double)(float)(sum / n);  // what rounding the mean left out
      squares -= rest * rest / n;
      ((float *)task->result)[k] = (float)sqrt(squares / (freedom > 0 ? freedom : 0));
    } else {
      const double *p = (const double *)task->data + k * task->reduced;
      sum = row_sum_f64(p, task->reduced);
      squares = row_sum_squares_f64(p, task->reduced, sum / n);
      ((double *)task->result)[k] = sqrt(squares / (freedom > 0 ? freedom : 0));
    }
  }
}

static diopiError_t run_std(void *argument) {
  struct std_task *task = argument;
  struct dense in = {0}, out = {0};
  diopiError_t code = diopiSuccess;
  if (dense_read(&in, task->in, task->work) && dense_reserve(&out, task->out, task->work)) {
    task->data = in.data;
    task->result = out.data;
    const int64_t length = task->reduced > 0 ? task->reduced : 1;
    dit_parallel_for(0, task->kept, 32768 / length, run_std_rows, task);
    dense_store(&out);
  } else {
    code = frame_fail(task->frame, diopiErrorOccurred, "no memory for a copy of 'input'");
  }
  dense_close(&in);
  dense_close(&out);
  return code;
}

diopiError_t diopiStd(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                      diopiSize_t dim, const diopiScalar_t *correction) {
  struct reduction r;
  struct shaped kept, moved;
  struct dit_scalar scalar = {DIT_SCALAR_INT, {.i = 1}};
  BEGIN_DIMS(&r, __func__, ctx, out, input, dim, DTYPES_FLOAT);
  FRAME_TRY(check_dtype(&r, r.out.dtype == r.in.dtype));
  if (correction) {
    FRAME_TRY(frame_get_scalar(&r.frame, "correction", correction, &scalar));
  }
  FRAME_TRY(shaped_keep(&kept, &r.frame, "out", &r.out, &r.in, r.mask, -1));
  FRAME_TRY(check_out(&r.frame, "out", &r.out, &r.in));
  shaped_move_last(&moved, &r.in, r.mask);
  struct std_task task = {.frame = &r.frame,
                          .out = &r.out,
                          .in = &moved.view,
                          .correction = frame_scalar_to_double(scalar),
                          .work = dense_get_work(r.in.dtype),
                          .kept = r.out.numel,
                          .reduced = 1};
  for (int d = 0; d < r.in.ndim; d++) {
    task.reduced *= r.mask >> d & 1 ? r.in.sizes[d] : 1;
  }
  return frame_run(&r.frame, run_std, &task);
}
