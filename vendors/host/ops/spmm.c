/// A sparse matrix times a dense one: out = input @ mat2.
///
/// input (N, K) in CSR form: crow_indices (N + 1) and col_indices (nnz), int32 or int64, values (nnz); mat2 (K, M), out
/// (N, M). Floating dtypes, one for all; half types are added up in float. Columns of a row may come in any order and
/// more than once. Indices are checked first, so the call waits for its stream. out overlaps nothing.
#include <string.h>

#include "dense.h"
#include "dit/parallel.h"
#include "fail.h"

struct spmm_call {
  struct frame *frame;
  struct dit_tensor_view out, mat, rows, columns, values;
  int64_t n, k, m;
  // set by the work
  const int64_t *starts, *places;
  const void *numbers, *right;
  void *to;
};

#define DEFINE_ROWS(type, name)                                                  \
  static void name(void *context, int64_t begin, int64_t end) {                  \
    const struct spmm_call *call = context;                                      \
    for (int64_t i = begin; i < end; i++) {                                      \
      type *out = (type *)call->to + i * call->m;                                \
      memset(out, 0, sizeof(type) * (size_t)call->m);                            \
      for (int64_t e = call->starts[i]; e < call->starts[i + 1]; e++) {          \
        const type value = ((const type *)call->numbers)[e];                     \
        const type *row = (const type *)call->right + call->places[e] * call->m; \
        for (int64_t j = 0; j < call->m; j++) {                                  \
          out[j] += value * row[j];                                              \
        }                                                                        \
      }                                                                          \
    }                                                                            \
  }
DEFINE_ROWS(float, rows_f32)
DEFINE_ROWS(double, rows_f64)

static diopiError_t check_indices(struct spmm_call *call) {
  const int64_t count = call->values.numel;
  bool valid = call->starts[0] == 0 && call->starts[call->n] == count;
  for (int64_t i = 0; i < call->n; i++) {
    valid = valid && call->starts[i] <= call->starts[i + 1];
  }
  FRAME_CHECK(call->frame, valid, "the row indices of 'input' must grow from 0 to %lld", (long long)count);
  for (int64_t i = 0; i < count; i++) {
    FRAME_CHECK_RANGE(call->frame, call->places[i] >= 0 && call->places[i] < call->k,
                      "column index %lld of 'input' is %lld; valid: 0 to %lld", (long long)i,
                      (long long)call->places[i], (long long)call->k - 1);
  }
  return diopiSuccess;
}

static diopiError_t work(void *context) {
  struct spmm_call *call = context;
  const int type = dense_get_work(call->mat.dtype);
  struct dense out = {0}, mat = {0}, rows = {0}, columns = {0}, values = {0};
  diopiError_t code;
  if (dense_read(&rows, &call->rows, DIT_DTYPE_I64) && dense_read(&columns, &call->columns, DIT_DTYPE_I64) &&
      dense_read(&values, &call->values, type) && dense_read(&mat, &call->mat, type) &&
      dense_reserve(&out, &call->out, type)) {
    call->starts = rows.data;
    call->places = columns.data;
    call->numbers = values.data;
    call->right = mat.data;
    call->to = out.data;
    code = check_indices(call);
    if (code == diopiSuccess && call->out.numel > 0) {
      const int64_t each = (call->values.numel / call->n + 1) * call->m;
      dit_parallel_for(0, call->n, 1 + 16384 / each, type == DIT_DTYPE_F64 ? rows_f64 : rows_f32, call);
      dense_store(&out);
    }
  } else {
    code = dense_fail(call->frame);
  }
  dense_close(&out);
  dense_close(&mat);
  dense_close(&rows);
  dense_close(&columns);
  dense_close(&values);
  return code;
}

/// The parts of `input`; it is no sparse tensor where it has none.
static diopiError_t take_parts(struct spmm_call *call, diopiConstTensorHandle_t input) {
  struct frame *frame = call->frame;
  diopiConstTensorHandle_t rows, columns, values;
  diopiSize_t shape;
  diopiDevice_t device;
  diopiDtype_t dtype;
  bool sparse = false;
  FRAME_CHECK(frame, input, "'input' is NULL; it must be a sparse tensor");
  FRAME_CHECK(frame, diopiGetTensorDevice(input, &device) == diopiSuccess && device == diopi_device,
              "'input' is not on the device");
  FRAME_CHECK(frame,
              diopiIsTensorSparse(input, &sparse) == diopiSuccess && sparse &&
                  diopiGetTensorCrowIndices(input, &rows) == diopiSuccess &&
                  diopiGetTensorColIndices(input, &columns) == diopiSuccess &&
                  diopiGetTensorValues(input, &values) == diopiSuccess,
              "'input' is no sparse tensor in CSR form");
  FRAME_CHECK(frame, diopiGetTensorShape(input, &shape) == diopiSuccess && shape.len == 2,
              "'input' must have 2 dimensions");
  FRAME_TRY(frame_take(frame, "input's row indices", rows, &call->rows));
  FRAME_TRY(frame_take(frame, "input's column indices", columns, &call->columns));
  FRAME_TRY(frame_take(frame, "input's values", values, &call->values));
  FRAME_CHECK(frame,
              diopiGetTensorDtype(input, &dtype) == diopiSuccess && dit_diopi_find_dtype(dtype) == call->values.dtype,
              "'input' has another dtype than its values");
  call->n = shape.data[0];
  call->k = shape.data[1];
  return diopiSuccess;
}

static bool is_index(int dtype) {
  return dtype == DIT_DTYPE_I32 || dtype == DIT_DTYPE_I64;
}

diopiError_t diopiSpMM(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                       diopiConstTensorHandle_t mat2) {
  struct frame frame;
  struct spmm_call call = {.frame = &frame};
  FRAME_BEGIN(&frame, ctx);
  FRAME_TAKE(&frame, out, &call.out);
  FRAME_TRY(take_parts(&call, input));
  FRAME_TAKE(&frame, mat2, &call.mat);
  FRAME_CHECK(&frame, call.mat.ndim == 2 && call.mat.sizes[0] == call.k, "'mat2' must have %lld rows",
              (long long)call.k);
  call.m = call.mat.sizes[1];
  FRAME_CHECK(&frame, call.out.ndim == 2 && call.out.sizes[0] == call.n && call.out.sizes[1] == call.m,
              "'out' must be %lld x %lld", (long long)call.n, (long long)call.m);
  FRAME_CHECK(&frame, call.rows.ndim == 1 && call.rows.sizes[0] == call.n + 1 && is_index(call.rows.dtype),
              "the row indices of 'input' must be %lld numbers, int32 or int64", (long long)call.n + 1);
  FRAME_CHECK(&frame,
              call.columns.ndim == 1 && is_index(call.columns.dtype) && call.values.ndim == 1 &&
                  call.values.numel == call.columns.numel,
              "'input' must have as many values as column indices, which are int32 or int64");
  FRAME_CHECK(&frame, call.values.dtype == call.mat.dtype && call.out.dtype == call.mat.dtype,
              "'input' is %s, 'mat2' %s, 'out' %s; valid: one dtype", dit_dtype_get_name(call.values.dtype),
              dit_dtype_get_name(call.mat.dtype), dit_dtype_get_name(call.out.dtype));
  if (!frame_has_dtype(DTYPES_FLOAT, call.mat.dtype)) {
    return frame_fail_dtype(&frame, "mat2", call.mat.dtype);
  }
  const struct dit_tensor_view *inputs[] = {&call.mat, &call.values, &call.rows, &call.columns};
  FRAME_TRY(frame_check_output(&frame, "out", &call.out, inputs, 4, false));
  return frame_run(&frame, work, &call);
}
