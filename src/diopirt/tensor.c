/// Tensor handles: the getters that an operator library calls, over struct diopiTensor.
///
/// Every getter checks its arguments: a NULL handle or a NULL place for the answer is diopiErrorOccurred, and the
/// answer is untouched. Depends on src/core.
#include <stdlib.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/diopi.h"

static const uint8_t to_diopi[] = {
    [DIT_DTYPE_U8] = 1 + diopi_dtype_uint8,        [DIT_DTYPE_I8] = 1 + diopi_dtype_int8,
    [DIT_DTYPE_I16] = 1 + diopi_dtype_int16,       [DIT_DTYPE_I32] = 1 + diopi_dtype_int32,
    [DIT_DTYPE_I64] = 1 + diopi_dtype_int64,       [DIT_DTYPE_F16] = 1 + diopi_dtype_float16,
    [DIT_DTYPE_F32] = 1 + diopi_dtype_float32,     [DIT_DTYPE_F64] = 1 + diopi_dtype_float64,
    [DIT_DTYPE_C32] = 1 + diopi_dtype_complex32,   [DIT_DTYPE_C64] = 1 + diopi_dtype_complex64,
    [DIT_DTYPE_C128] = 1 + diopi_dtype_complex128, [DIT_DTYPE_BOOL] = 1 + diopi_dtype_bool,
    [DIT_DTYPE_BF16] = 1 + diopi_dtype_bfloat16,   [DIT_DTYPE_U16] = 1 + diopi_dtype_uint16,
    [DIT_DTYPE_U32] = 1 + diopi_dtype_uint32,      [DIT_DTYPE_U64] = 1 + diopi_dtype_uint64,
};

diopiDtype_t dit_diopi_get_dtype(int dtype) {
  if (dtype < 0 || dtype >= (int)sizeof to_diopi || to_diopi[dtype] == 0) {
    return diopi_dtype_unsupported;
  }
  return (diopiDtype_t)(to_diopi[dtype] - 1);
}

int dit_diopi_find_dtype(diopiDtype_t dtype) {
  for (int i = 0; i < (int)sizeof to_diopi; i++) {
    if (to_diopi[i] == (unsigned)dtype + 1) {
      return i;
    }
  }
  return dtype == diopi_dtype_tfloat32 ? DIT_DTYPE_F32 : -1;
}

const char *dit_diopi_get_error_name(diopiError_t code) {
  switch (code) {
#define NAME(code) \
  case code:       \
    return #code;
    NAME(diopiSuccess)
    NAME(diopiErrorOccurred)
    NAME(diopiNotInited)
    NAME(diopiNoRegisteredStreamCreateFunction)
    NAME(diopiNoRegisteredStreamDestoryFunction)
    NAME(diopiNoRegisteredStreamSyncFunction)
    NAME(diopiNoRegisteredDeviceMemoryMallocFunction)
    NAME(diopiNoRegisteredDeviceMemoryFreeFunction)
    NAME(diopiNoRegisteredDevice2DdeviceMemoryCopyFunction)
    NAME(diopiNoRegisteredDevice2HostMemoryCopyFunction)
    NAME(diopiNoRegisteredHost2DeviceMemoryCopyFunction)
    NAME(diopiNoRegisteredGetLastErrorFunction)
    NAME(diopi5DNotSupported)
    NAME(diopiNoImplement)
    NAME(diopiForceFallbackToCPU)
    NAME(diopiDtypeNotSupported)
#undef NAME
  }
  return "?";
}

// Handles on the heap

struct heap_tensor {
  struct diopiTensor tensor;
  int64_t dims[];  ///< sizes, then strides
};

diopiTensorHandle_t dit_diopi_tensor_create(void *data, int ndim, const int64_t *sizes, const int64_t *strides,
                                            int dtype, int device) {
  int64_t numel;
  if (ndim < 0 || ndim > DIT_MAX_DIMS || !dit_dtype_is_valid(dtype) ||
      dit_shape_get_numel(ndim, sizes, &numel, NULL) != DIT_OK) {
    return NULL;
  }
  struct heap_tensor *made = dit_malloc(sizeof *made + sizeof(int64_t) * 2 * (size_t)ndim);
  if (!made) {
    return NULL;
  }
  memset(&made->tensor, 0, sizeof made->tensor);
  struct dit_tensor_view *view = &made->tensor.view;
  if (ndim > 0) {
    memcpy(made->dims, sizes, sizeof(int64_t) * (size_t)ndim);
  }
  if (strides && ndim > 0) {
    memcpy(made->dims + ndim, strides, sizeof(int64_t) * (size_t)ndim);
  } else {
    dit_shape_set_contiguous(ndim, sizes, made->dims + ndim);
  }
  view->data = data;
  view->sizes = made->dims;
  view->strides = made->dims + ndim;
  view->numel = numel;
  view->storage = data;
  view->handle = made;
  view->ndim = ndim;
  view->dtype = (int16_t)dtype;
  view->device_index = (int8_t)device;
  view->flags = device >= 0 ? DIT_TENSOR_ON_DEVICE : 0;
  view->flags |= dit_shape_is_contiguous(ndim, view->sizes, view->strides) ? DIT_TENSOR_CONTIGUOUS : 0;
  view->flags |= dit_shape_is_dense(ndim, view->sizes, view->strides) ? DIT_TENSOR_DENSE : 0;
  return &made->tensor;
}

void dit_diopi_tensor_destroy(diopiTensorHandle_t tensor) {
  dit_free(tensor);
}

const struct dit_tensor_view *dit_diopi_tensor_get_view(diopiConstTensorHandle_t tensor) {
  return &tensor->view;
}

// Getters

/// Returns from the getter when a handle or the place for the answer is NULL.
#define CHECK_ARGUMENTS(tensor, answer) \
  if (!(tensor) || !(answer)) {         \
    return diopiErrorOccurred;          \
  }

diopiError_t diopiGetTensorData(diopiTensorHandle_t th, void **ptr) {
  CHECK_ARGUMENTS(th, ptr)
  *ptr = th->view.data;
  return diopiSuccess;
}

diopiError_t diopiGetTensorDataConst(diopiConstTensorHandle_t th, const void **ptr) {
  CHECK_ARGUMENTS(th, ptr)
  *ptr = th->view.data;
  return diopiSuccess;
}

diopiError_t diopiGetTensorShape(diopiConstTensorHandle_t th, diopiSize_t *size) {
  CHECK_ARGUMENTS(th, size)
  *size = (diopiSize_t){th->view.sizes, th->view.ndim};
  return diopiSuccess;
}

diopiError_t diopiGetTensorStride(diopiConstTensorHandle_t th, diopiSize_t *stride) {
  CHECK_ARGUMENTS(th, stride)
  *stride = (diopiSize_t){th->view.strides, th->view.ndim};
  return diopiSuccess;
}

diopiError_t diopiGetTensorDtype(diopiConstTensorHandle_t th, diopiDtype_t *dtype) {
  CHECK_ARGUMENTS(th, dtype)
  *dtype = dit_diopi_get_dtype(th->view.dtype);
  return diopiSuccess;
}

diopiError_t diopiGetTensorDevice(diopiConstTensorHandle_t th, diopiDevice_t *device) {
  CHECK_ARGUMENTS(th, device)
  *device = th->view.flags & DIT_TENSOR_ON_DEVICE ? diopi_device : diopi_host;
  return diopiSuccess;
}

diopiError_t diopiGetTensorNumel(diopiConstTensorHandle_t th, int64_t *numel) {
  CHECK_ARGUMENTS(th, numel)
  *numel = th->view.numel;
  return diopiSuccess;
}

diopiError_t diopiGetTensorElemSize(diopiConstTensorHandle_t th, int64_t *itemsize) {
  CHECK_ARGUMENTS(th, itemsize)
  *itemsize = (int64_t)dit_dtype_get_size(th->view.dtype);
  return diopiSuccess;
}

static void find_storage(diopiConstTensorHandle_t th, void **base, size_t *size) {
  if (th->get_storage) {
    th->get_storage(th, base, size);
    return;
  }
  int64_t low, high;
  dit_tensor_get_span(&th->view, &low, &high);
  *base = th->view.data ? (char *)th->view.data + low : NULL;
  *size = (size_t)(high - low);
}

diopiError_t diopiGetTensorStoragePtr(diopiConstTensorHandle_t th, void **pStoragePtr) {
  size_t size;
  CHECK_ARGUMENTS(th, pStoragePtr)
  find_storage(th, pStoragePtr, &size);
  return diopiSuccess;
}

diopiError_t diopiGetTensorStorageOffset(diopiConstTensorHandle_t th, int64_t *pOffset) {
  void *base;
  size_t size;
  CHECK_ARGUMENTS(th, pOffset)
  find_storage(th, &base, &size);
  *pOffset = th->view.data ? ((char *)th->view.data - (char *)base) / (int64_t)dit_dtype_get_size(th->view.dtype) : 0;
  return diopiSuccess;
}

diopiError_t diopiGetTensorStorageNbytes(diopiConstTensorHandle_t th, size_t *pNbytes) {
  void *base;
  CHECK_ARGUMENTS(th, pNbytes)
  find_storage(th, &base, pNbytes);
  return diopiSuccess;
}

diopiError_t diopiGetTensorDeviceIndex(diopiConstTensorHandle_t th, diopiDeviceIndex_t *pDevIndex) {
  CHECK_ARGUMENTS(th, pDevIndex)
  *pDevIndex = th->view.device_index;
  return diopiSuccess;
}

static diopiError_t get_part(diopiConstTensorHandle_t part, diopiConstTensorHandle_t *answer) {
  if (!part) {
    return diopiErrorOccurred;
  }
  *answer = part;
  return diopiSuccess;
}

diopiError_t diopiGetTensorCrowIndices(diopiConstTensorHandle_t th, diopiConstTensorHandle_t *crow_indices) {
  CHECK_ARGUMENTS(th, crow_indices)
  return get_part(th->crow_indices, crow_indices);
}

diopiError_t diopiGetTensorColIndices(diopiConstTensorHandle_t th, diopiConstTensorHandle_t *col_indices) {
  CHECK_ARGUMENTS(th, col_indices)
  return get_part(th->col_indices, col_indices);
}

diopiError_t diopiGetTensorValues(diopiConstTensorHandle_t th, diopiConstTensorHandle_t *values) {
  CHECK_ARGUMENTS(th, values)
  return get_part(th->values, values);
}

diopiError_t diopiIsTensorSparse(diopiConstTensorHandle_t th, bool *is_sparse) {
  CHECK_ARGUMENTS(th, is_sparse)
  *is_sparse = th->values != NULL;
  return diopiSuccess;
}
