/// An operator library that takes very little, for the tests of the adaptor: float32 alone, contiguous tensors or
/// channels innermost, int32 indices. It counts its calls and keeps the dtype of the last first input.
/// With NARROW_TELLS it says so of diopiExp.
#include <string.h>

#include "diopi/extension.h"
#include "diopi/functions.h"
#include "diopi/functions_ext.h"

__attribute__((visibility("default"))) int narrow_calls;
__attribute__((visibility("default"))) int narrow_dtype;

static diopiDtype_t get_dtype(diopiConstTensorHandle_t tensor) {
  diopiDtype_t dtype;
  diopiGetTensorDtype(tensor, &dtype);
  return dtype;
}

static float *get_data(diopiConstTensorHandle_t tensor, int64_t *count) {
  const void *data;
  float *out;
  diopiGetTensorDataConst(tensor, &data);
  diopiGetTensorNumel(tensor, count);
  memcpy(&out, &data, sizeof out);
  return out;
}

static int is_contiguous(diopiConstTensorHandle_t tensor) {
  diopiSize_t size, stride;
  int64_t expected = 1;
  diopiGetTensorShape(tensor, &size);
  diopiGetTensorStride(tensor, &stride);
  for (int64_t i = size.len - 1; i >= 0; i--) {
    if (size.data[i] != 1 && stride.data[i] != expected) {
      return 0;
    }
    expected *= size.data[i];
  }
  return 1;
}

const char *diopiGetLastErrorString(void) {
  return "narrow: not for me";
}

static diopiError_t look(diopiConstTensorHandle_t tensor) {
  narrow_calls++;
  narrow_dtype = (int)get_dtype(tensor);
  return get_dtype(tensor) == diopi_dtype_float32 ? diopiSuccess : diopiDtypeNotSupported;
}

/// param -= lr * grad; buf counts the calls per element. All three are read and written.
diopiError_t diopiSgd(diopiContextHandle_t ctx, diopiTensorHandle_t param, diopiTensorHandle_t grad,
                      diopiTensorHandle_t buf, double lr, double momentum, double dampening, double weight_decay,
                      bool nesterov) {
  int64_t count;
  (void)ctx, (void)momentum, (void)dampening, (void)weight_decay, (void)nesterov;
  diopiError_t code = look(param);
  if (code != diopiSuccess || (code = look(grad)) != diopiSuccess || (code = look(buf)) != diopiSuccess) {
    return code;
  }
  float *p = get_data(param, &count), *g = get_data(grad, &count), *b = get_data(buf, &count);
  for (int64_t i = 0; i < count; i++) {
    p[i] -= (float)lr * g[i];
    b[i] += 1;
  }
  return diopiSuccess;
}

/// Rows of a matrix; int32 indices only.
diopiError_t diopiIndexSelect(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                              int64_t dim, diopiConstTensorHandle_t index) {
  int64_t rows, total;
  (void)ctx;
  narrow_calls++;
  if (get_dtype(index) != diopi_dtype_int32 || get_dtype(input) != diopi_dtype_float32 || dim != 0) {
    return diopiDtypeNotSupported;
  }
  const float *x = get_data(input, &total);
  float *y = get_data(out, &total);
  const float *raw = get_data(index, &rows);
  const int64_t columns = rows ? total / rows : 0;
  for (int64_t r = 0; r < rows; r++) {
    int32_t at;
    memcpy(&at, raw + r, sizeof at);
    memcpy(y + r * columns, x + at * columns, sizeof(float) * (size_t)columns);
  }
  return diopiSuccess;
}

/// Twice the input; of four dimensions only with the channels innermost. An input of 13 elements is an error.
diopiError_t diopiExp(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  diopiSize_t size, stride;
  int64_t count;
  (void)ctx;
  const diopiError_t code = look(input);
  diopiGetTensorShape(input, &size);
  diopiGetTensorStride(input, &stride);
  if (code != diopiSuccess) {
    return code;
  }
  if (size.len == 4 ? stride.data[1] != 1 : !is_contiguous(input)) {
    return diopiErrorOccurred;
  }
  const float *x = get_data(input, &count);
  float *y = get_data(out, &count);
  for (int64_t i = 0; i < count; i++) {
    y[i] = 2 * x[i];
  }
  return count == 13 ? diopiErrorOccurred : diopiSuccess;
}

/// A result that the library makes: the elements above 0.
diopiError_t diopiMaskedSelect(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t input,
                               diopiConstTensorHandle_t mask) {
  int64_t count, kept = 0;
  const diopiError_t code = look(input);
  if (code != diopiSuccess) {
    return code;
  }
  const float *x = get_data(input, &count);
  const float *raw = get_data(mask, &count);
  const unsigned char *m = (const unsigned char *)raw;
  for (int64_t i = 0; i < count; i++) {
    kept += m[i];
  }
  const diopiSize_t size = {&kept, 1};
  if (diopiRequireTensor(ctx, out, &size, NULL, diopi_dtype_float32, diopi_device) != diopiSuccess) {
    return diopiErrorOccurred;
  }
  float *y = get_data(*out, &kept);
  for (int64_t i = 0; i < count; i++) {
    if (m[i]) {
      *y++ = x[i];
    }
  }
  return diopiSuccess;
}

/// The first element of the input to the place that the index says; all others stay.
diopiError_t diopiDestIndexCopyKV(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                                  diopiConstTensorHandle_t dest_loc) {
  int64_t count, at;
  (void)ctx;
  const diopiError_t code = look(input);
  if (code != diopiSuccess) {
    return code;
  }
  memcpy(&at, get_data(dest_loc, &count), sizeof at);
  get_data(out, &count)[at] = get_data(input, &count)[0];
  return diopiSuccess;
}

#ifdef NARROW_TELLS
uint32_t diopiExtGetVersion(void) {
  return DIOPI_EXT_VERSION;
}

diopiError_t diopiExtGetSupport(const char *function, diopiExtSupport_t *support) {
  if (strcmp(function, "diopiExp") != 0) {
    return diopiNoImplement;
  }
  support->dtypes = 1U << diopi_dtype_float32;
  support->layouts = diopiExtContiguous;
  support->flags = 0;
  return diopiSuccess;
}
#endif
