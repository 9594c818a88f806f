/// The common part of every operator call (see frame.h).
///
/// Handles that libdit made are structs whose view is read at once. Where another runtime's getters stand before
/// libdit's in the process, they are asked instead; so are they about a handle that has something wrong, for the text.
#include "frame.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "diopi/extension.h"
#include "dit/alloc.h"
#include "dit/status.h"
#include "dit/tensor.h"
#include "fail.h"

static _Thread_local char last_error[512];
static _Thread_local diopiExtFailure_t last_failure;

diopiExtFailure_t diopiExtGetLastFailure(void) {
  return last_failure;
}

const char *diopiExtGetLastErrorString(void) {
  return last_error;
}

const char *diopiGetLastErrorString(void) {
  return last_error;
}

static void set_error(const struct frame *frame, diopiExtFailure_t failure, const char *format, va_list arguments) {
  const int length = snprintf(last_error, sizeof last_error, "%s: ", frame->function);
  last_failure = failure;
  if (length >= 0 && (size_t)length < sizeof last_error) {
    vsnprintf(last_error + length, sizeof last_error - (size_t)length, format, arguments);
  }
}

diopiError_t frame_fail(struct frame *frame, diopiError_t code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_error(frame, diopiExtFailureArgument, format, arguments);
  va_end(arguments);
  return code;
}

diopiError_t frame_fail_range(struct frame *frame, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_error(frame, diopiExtFailureRange, format, arguments);
  va_end(arguments);
  return diopiErrorOccurred;
}

diopiError_t frame_fail_device(struct frame *frame, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_error(frame, diopiExtFailureOther, format, arguments);
  va_end(arguments);
  return diopiErrorOccurred;
}

diopiError_t frame_fail_dtype(struct frame *frame, const char *name, int dtype) {
  return frame_fail(frame, diopiDtypeNotSupported, "'%s' is %s, which this operator does not have here", name,
                    dit_dtype_get_name(dtype));
}

diopiError_t frame_get_code(struct frame *frame, enum dit_status status, const struct dit_error *err) {
  switch (status) {
    case DIT_OK:
      return diopiSuccess;
    case DIT_ERR_UNSUPPORTED:
      return frame_fail(frame, diopiDtypeNotSupported, "not for tensors of these dtypes");
    case DIT_ERR_INVALID:
      return frame_fail(frame, diopiErrorOccurred, "%s", err->message);
    default:
      return frame_fail_device(frame, "%s", err->message[0] ? err->message : dit_status_get_name(status));
  }
}

/// Are all functions that frame_begin and frame_take call libdit's own?
static bool is_own_runtime;

static void *get_library(void (*function)(void)) {
  void *address;
  Dl_info info;
  memcpy(&address, &function, sizeof address);
  return dladdr(address, &info) ? info.dli_fbase : NULL;
}

__attribute__((constructor)) static void find_runtime(void) {
  void (*const functions[])(void) = {
      (void (*)(void))diopiGetTensorShape,     (void (*)(void))diopiGetTensorStride,
      (void (*)(void))diopiGetTensorDtype,     (void (*)(void))diopiGetTensorNumel,
      (void (*)(void))diopiGetTensorDataConst, (void (*)(void))diopiGetTensorDevice,
      (void (*)(void))diopiGetStream,
  };
  const void *own = get_library((void (*)(void))dit_diopi_tensor_get_view);
  is_own_runtime = own != NULL;
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    is_own_runtime = is_own_runtime && get_library(functions[i]) == own;
  }
}

diopiError_t frame_begin(struct frame *frame, const char *function, diopiContextHandle_t context) {
  frame->function = function;
  frame->context = context;
  frame->stream = NULL;
  if (DIT_UNLIKELY(!context)) {
    return frame_fail(frame, diopiErrorOccurred, "the context 'ctx' is NULL");
  }
  if (DIT_LIKELY(is_own_runtime)) {
    frame->stream = context->stream;
    return diopiSuccess;
  }
  if (DIT_UNLIKELY(diopiGetStream(context, &frame->stream) != diopiSuccess)) {
    return frame_fail(frame, diopiErrorOccurred, "the context 'ctx' has no stream");
  }
  return diopiSuccess;
}

/// enum dit_dtype + 1 of each diopiDtype_t; 0: none.
static const uint8_t own_dtypes[] = {
    [diopi_dtype_int8] = 1 + DIT_DTYPE_I8,         [diopi_dtype_uint8] = 1 + DIT_DTYPE_U8,
    [diopi_dtype_int16] = 1 + DIT_DTYPE_I16,       [diopi_dtype_uint16] = 1 + DIT_DTYPE_U16,
    [diopi_dtype_int32] = 1 + DIT_DTYPE_I32,       [diopi_dtype_uint32] = 1 + DIT_DTYPE_U32,
    [diopi_dtype_int64] = 1 + DIT_DTYPE_I64,       [diopi_dtype_uint64] = 1 + DIT_DTYPE_U64,
    [diopi_dtype_float16] = 1 + DIT_DTYPE_F16,     [diopi_dtype_float32] = 1 + DIT_DTYPE_F32,
    [diopi_dtype_float64] = 1 + DIT_DTYPE_F64,     [diopi_dtype_bool] = 1 + DIT_DTYPE_BOOL,
    [diopi_dtype_bfloat16] = 1 + DIT_DTYPE_BF16,   [diopi_dtype_tfloat32] = 1 + DIT_DTYPE_F32,
    [diopi_dtype_complex32] = 1 + DIT_DTYPE_C32,   [diopi_dtype_complex64] = 1 + DIT_DTYPE_C64,
    [diopi_dtype_complex128] = 1 + DIT_DTYPE_C128,
};

/// Are sizes and strides sane? Tells whether they are row-major (dimensions of size 1 do not count, nor do strides of
/// an empty tensor).
static inline bool scan_dims(int64_t ndim, const int64_t *sizes, const int64_t *strides, bool *contiguous) {
  int64_t expected = 1, sign = 0;
  bool dense = true, empty = false;
  for (int64_t dim = ndim - 1; dim >= 0; dim--) {
    const int64_t size = sizes[dim], stride = strides[dim];
    sign |= size | stride;
    dense = dense && (size == 1 || stride == expected);
    empty = empty || size == 0;
    expected = (int64_t)((uint64_t)expected * (uint64_t)size);
  }
  *contiguous = dense || empty;
  return sign >= 0;
}

static diopiError_t check_dims(struct frame *frame, const char *name, diopiSize_t sizes, diopiSize_t strides,
                               bool *contiguous) {
  if (DIT_UNLIKELY(sizes.len < 0 || sizes.len > DIT_MAX_DIMS || strides.len != sizes.len)) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' has %lld dimensions; valid: 0 to %d", name, (long long)sizes.len,
                      DIT_MAX_DIMS);
  }
  if (DIT_LIKELY(scan_dims(sizes.len, sizes.data, strides.data, contiguous))) {
    return diopiSuccess;
  }
  int64_t dim = sizes.len - 1;
  while (sizes.data[dim] >= 0 && strides.data[dim] >= 0) {
    dim--;
  }
  return frame_fail(frame, diopiErrorOccurred, "'%s' has size %lld and stride %lld in dimension %lld", name,
                    (long long)sizes.data[dim], (long long)strides.data[dim], (long long)dim);
}

static inline void finish_view(struct dit_tensor_view *view, diopiConstTensorHandle_t handle, bool contiguous) {
  view->storage = NULL;
  view->handle = (void *)handle;
  view->device_index = 0;
  view->flags = DIT_TENSOR_ON_DEVICE | (contiguous ? DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE : 0);
  if (!contiguous && dit_shape_is_dense(view->ndim, view->sizes, view->strides)) {
    view->flags |= DIT_TENSOR_DENSE;
  }
}

/// A handle of libdit's in which everything is as it should be.
static inline bool take_own(diopiConstTensorHandle_t handle, struct dit_tensor_view *view) {
  const struct dit_tensor_view *own = &handle->view;
  bool contiguous;
  if (DIT_UNLIKELY((uint32_t)own->ndim > DIT_MAX_DIMS || (uint16_t)own->dtype >= 64 ||
                   !frame_has_dtype(DTYPES_ANY, own->dtype) || !(own->flags & DIT_TENSOR_ON_DEVICE) ||
                   !scan_dims(own->ndim, own->sizes, own->strides, &contiguous))) {
    return false;
  }
  view->data = own->data;
  view->sizes = own->sizes;
  view->strides = own->strides;
  view->numel = own->numel;
  view->ndim = own->ndim;
  view->dtype = own->dtype;
  finish_view(view, handle, contiguous);
  return true;
}

__attribute__((noinline)) static diopiError_t take_standard(struct frame *frame, const char *name,
                                                            diopiConstTensorHandle_t handle,
                                                            struct dit_tensor_view *view) {
  diopiSize_t sizes, strides;
  diopiDtype_t dtype;
  diopiDevice_t device = diopi_device;
  const void *data;
  bool contiguous = false;
  if (diopiGetTensorShape(handle, &sizes) != diopiSuccess || diopiGetTensorStride(handle, &strides) != diopiSuccess ||
      diopiGetTensorDtype(handle, &dtype) != diopiSuccess || diopiGetTensorDataConst(handle, &data) != diopiSuccess ||
      diopiGetTensorNumel(handle, &view->numel) != diopiSuccess ||
      diopiGetTensorDevice(handle, &device) != diopiSuccess) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' is no valid tensor handle", name);
  }
  FRAME_TRY(check_dims(frame, name, sizes, strides, &contiguous));
  if (DIT_UNLIKELY(device != diopi_device)) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' is on the host; it must be on the device", name);
  }
  const int own = (size_t)dtype < sizeof own_dtypes ? own_dtypes[dtype] - 1 : -1;
  if (DIT_UNLIKELY(own < 0)) {
    return frame_fail(frame, diopiDtypeNotSupported, "'%s' has dtype %d, which DIOPI does not have", name, (int)dtype);
  }
  view->data = (void *)data;
  view->sizes = sizes.data;
  view->strides = strides.data;
  view->ndim = (int32_t)sizes.len;
  view->dtype = (int16_t)own;
  finish_view(view, handle, contiguous);
  return diopiSuccess;
}

diopiError_t frame_take(struct frame *frame, const char *name, diopiConstTensorHandle_t handle,
                        struct dit_tensor_view *view) {
  if (DIT_UNLIKELY(!handle)) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' is NULL; it must be a tensor", name);
  }
  if (DIT_LIKELY(is_own_runtime && take_own(handle, view))) {
    return diopiSuccess;
  }
  return take_standard(frame, name, handle, view);
}

diopiError_t frame_take_element(struct frame *frame, const char *list, int64_t number, diopiConstTensorHandle_t handle,
                                struct dit_tensor_view *view) {
  char name[64];
  if (DIT_LIKELY(is_own_runtime && handle && take_own(handle, view))) {
    return diopiSuccess;
  }
  (void)!snprintf(name, sizeof name, "%s[%lld]", list, (long long)number);
  return frame_take(frame, name, handle, view);
}

diopiError_t frame_take_optional(struct frame *frame, const char *name, diopiConstTensorHandle_t handle,
                                 struct dit_tensor_view *view) {
  if (!handle) {
    memset(view, 0, sizeof *view);
    return diopiSuccess;
  }
  return frame_take(frame, name, handle, view);
}

diopiError_t frame_wrap_dim(struct frame *frame, const char *name, int64_t dim, int ndim, int *out) {
  const int count = ndim > 0 ? ndim : 1;
  if (dim < -count || dim >= count) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' is %lld; valid for %d dimensions: %d to %d", name,
                      (long long)dim, ndim, -count, count - 1);
  }
  *out = (int)(dim < 0 ? dim + count : dim);
  return diopiSuccess;
}

diopiError_t frame_get_mask(struct frame *frame, const char *name, diopiSize_t dims, int ndim, bool all,
                            uint32_t *mask) {
  *mask = 0;
  if (!dims.data || dims.len == 0) {
    *mask = all && ndim > 0 ? (uint32_t)((UINT64_C(1) << ndim) - 1) : 0;
    return diopiSuccess;
  }
  for (int64_t i = 0; i < dims.len; i++) {
    int dim = 0;
    FRAME_TRY(frame_wrap_dim(frame, name, dims.data[i], ndim, &dim));
    if (*mask >> dim & 1) {
      return frame_fail(frame, diopiErrorOccurred, "'%s' names dimension %d twice", name, dim);
    }
    *mask |= 1u << dim;
  }
  if (ndim == 0) {
    *mask = 0;
  }
  return diopiSuccess;
}

static inline bool is_same(const int64_t *a, const int64_t *b, int count) {
  for (int i = 0; i < count; i++) {
    if (a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

bool frame_is_same_shape(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  return a->ndim == b->ndim && is_same(a->sizes, b->sizes, a->ndim);
}

bool frame_expand(const struct dit_tensor_view *view, int ndim, const int64_t *sizes, int64_t *strides,
                  struct dit_tensor_view *out) {
  const int lead = ndim - view->ndim;
  int64_t numel = 1;
  if (lead < 0) {
    return false;
  }
  for (int dim = 0; dim < ndim; dim++) {
    const bool own = dim >= lead;
    const int64_t size = own ? view->sizes[dim - lead] : 1;
    if (size != sizes[dim] && size != 1) {
      return false;
    }
    strides[dim] = own && size == sizes[dim] ? view->strides[dim - lead] : 0;
    numel *= sizes[dim];
  }
  *out = *view;
  out->ndim = ndim;
  out->sizes = sizes;
  out->strides = strides;
  out->numel = numel;
  if (!frame_is_same_shape(view, out)) {
    out->flags &= (uint8_t) ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  }
  return true;
}

static bool is_same_elements(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  return a->data == b->data && a->dtype == b->dtype && frame_is_same_shape(a, b) &&
         is_same(a->strides, b->strides, a->ndim);
}

/// Bytes of an element; libdit's function is a call away.
static const uint8_t widths[DIT_DTYPE_COUNT] = {
#define WIDTH(suffix, number, name, bits, class) [number] = (bits) / 8,
    DIT_DTYPE_LIST(WIDTH)
#undef WIDTH
};

static inline void get_span(const struct dit_tensor_view *view, uintptr_t *low, uintptr_t *high) {
  int64_t first = 0, end = 0;
  if (DIT_LIKELY(view->flags & DIT_TENSOR_CONTIGUOUS)) {
    end = view->numel * widths[view->dtype];
  } else {
    dit_tensor_get_span(view, &first, &end);
  }
  *low = (uintptr_t)view->data + (uintptr_t)first;
  *high = (uintptr_t)view->data + (uintptr_t)end;
}

static inline bool overlaps(const struct dit_tensor_view *a, const struct dit_tensor_view *b) {
  uintptr_t a_low, a_high, b_low, b_high;
  if (a->numel == 0 || b->numel == 0) {
    return false;
  }
  get_span(a, &a_low, &a_high);
  get_span(b, &b_low, &b_high);
  return a_low < b_high && b_low < a_high;
}

diopiError_t frame_check_output(struct frame *frame, const char *name, const struct dit_tensor_view *out,
                                const struct dit_tensor_view *const *inputs, int count, bool in_place) {
  if (out->numel > 1 && !(out->flags & DIT_TENSOR_DENSE) && dit_tensor_get_repeated(out) != DIT_OVERLAP_NO) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' reaches one element by several indices (an expanded tensor)",
                      name);
  }
  for (int i = 0; i < count; i++) {
    if (!inputs[i] || !inputs[i]->handle || !overlaps(out, inputs[i])) {
      continue;
    }
    if (in_place && is_same_elements(out, inputs[i])) {
      continue;
    }
    if (!(out->flags & inputs[i]->flags & DIT_TENSOR_DENSE) &&
        dit_tensor_get_shared(out, inputs[i]) == DIT_OVERLAP_NO) {
      continue;  // interleaved views of one storage: the spans meet, the elements do not
    }
    return frame_fail(frame, diopiErrorOccurred, "'%s' shares memory with an input in another order", name);
  }
  return diopiSuccess;
}

diopiError_t frame_get_scalar(struct frame *frame, const char *name, const diopiScalar_t *scalar,
                              struct dit_scalar *out) {
  if (!scalar) {
    return frame_fail(frame, diopiErrorOccurred, "'%s' is NULL; it must be a scalar", name);
  }
  switch (scalar->stype) {
    case diopi_dtype_float16:
    case diopi_dtype_float32:
    case diopi_dtype_float64:
    case diopi_dtype_bfloat16:
    case diopi_dtype_tfloat32:
      out->kind = DIT_SCALAR_DOUBLE;
      out->v.d = scalar->fval;
      return diopiSuccess;
    case diopi_dtype_bool:
      out->kind = DIT_SCALAR_BOOL;
      out->v.i = scalar->ival != 0;
      return diopiSuccess;
    case diopi_dtype_int8:
    case diopi_dtype_uint8:
    case diopi_dtype_int16:
    case diopi_dtype_uint16:
    case diopi_dtype_int32:
    case diopi_dtype_uint32:
    case diopi_dtype_int64:
    case diopi_dtype_uint64:
      out->kind = DIT_SCALAR_INT;
      out->v.i = scalar->ival;
      return diopiSuccess;
    default:
      return frame_fail(frame, diopiDtypeNotSupported, "'%s' has dtype %d; a scalar is a real number", name,
                        (int)scalar->stype);
  }
}

double frame_scalar_to_double(struct dit_scalar scalar) {
  return scalar.kind == DIT_SCALAR_DOUBLE ? scalar.v.d : (double)scalar.v.i;
}
