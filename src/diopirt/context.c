/// Contexts, scratch tensors, generators and the profiler's ranges.
///
/// A scratch tensor on the device comes from the context's `allocate`, or from the device's caching allocator, whose
/// blocks follow the order of the stream; one on the host from pinned memory, which is handed out again only when the
/// stream is done with it. Without an active device both are plain memory. Depends on src/device.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "dit/alloc.h"
#include "dit/diopi.h"
#include "dit/gate.h"
#include "dit/memory.h"
#include "dit/range.h"
#include "dit/runtime.h"
#include "dit/stage.h"
#include "dit/version.h"

enum scratch_owner { OWNER_FRAMEWORK, OWNER_DEVICE, OWNER_PINNED, OWNER_PLAIN };

struct dit_diopi_scratch {
  struct diopiTensor tensor;
  struct dit_diopi_scratch *next;
  enum scratch_owner owner;
  void *memory;
  int64_t dims[];  ///< sizes, then strides
};

const char *diopiGetVersion(void) {
  return "ditorch " DIT_VERSION_TEXT ", DIOPI 1.0.0";
}

diopiError_t diopiGetCurrentDeviceIndex(diopiDeviceIndex_t *pDevIndex) {
  if (!pDevIndex) {
    return diopiErrorOccurred;
  }
  *pDevIndex = (diopiDeviceIndex_t)dit_device_get_current();
  return diopiSuccess;
}

diopiError_t diopiGetStream(diopiContextHandle_t ctx, diopiStreamHandle_t *stream) {
  if (!ctx || !stream) {
    return diopiErrorOccurred;
  }
  *stream = ctx->stream;
  return diopiSuccess;
}

// Scratch

/// Bytes that sizes and strides reach; false when they are negative or too large.
static bool count_bytes(int ndim, const int64_t *sizes, const int64_t *strides, int dtype, int64_t numel,
                        size_t *bytes) {
  int64_t last = 0;
  if (numel == 0) {
    *bytes = 0;
    return true;
  }
  for (int dim = 0; dim < ndim; dim++) {
    int64_t reach;
    if (strides[dim] < 0 || __builtin_mul_overflow(sizes[dim] - 1, strides[dim], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return false;
    }
  }
  int64_t total;
  if (__builtin_add_overflow(last, 1, &last) ||
      __builtin_mul_overflow(last, (int64_t)dit_dtype_get_size(dtype), &total)) {
    return false;
  }
  *bytes = (size_t)total;
  return true;
}

static enum dit_status take_memory(struct diopiContext *context, struct dit_diopi_scratch *scratch, bool on_host,
                                   size_t bytes) {
  const bool active = dit_runtime_is_active();
  scratch->memory = NULL;
  if (!active) {
    scratch->owner = OWNER_PLAIN;
    scratch->memory = bytes ? dit_malloc(bytes) : NULL;
    return bytes == 0 || scratch->memory ? DIT_OK : DIT_ERR_NOMEM;
  }
  scratch->owner = on_host ? OWNER_PINNED : OWNER_DEVICE;
  if (on_host) {
    return bytes ? dit_host_alloc(bytes, &scratch->memory, NULL) : DIT_OK;
  }
  return dit_memory_alloc(context->device, dit_stream_get_current(context->device), bytes, &scratch->memory, NULL);
}

static void release_scratch(struct diopiContext *context, struct dit_diopi_scratch *scratch) {
  switch (scratch->owner) {
    case OWNER_FRAMEWORK:
      break;
    case OWNER_DEVICE:
      dit_memory_free(scratch->memory);
      break;
    case OWNER_PINNED:
      // A default stream of a device that the host cannot read is a queue like any other.
      if (scratch->memory && (context->stream || !dit_stage_is_host_accessible())) {
        (void)!dit_host_record_stream(scratch->memory, context->device, dit_stream_get_current(context->device), NULL);
      }
      dit_host_free(scratch->memory);
      break;
    case OWNER_PLAIN:
      dit_free(scratch->memory);
      break;
  }
  dit_free(scratch);
}

static diopiError_t fill_scratch(struct diopiContext *context, struct dit_diopi_scratch *scratch, int ndim, int dtype,
                                 bool on_host, int64_t numel) {
  struct dit_tensor_view *view = &scratch->tensor.view;
  int64_t *sizes = scratch->dims, *strides = scratch->dims + ndim;
  size_t bytes;
  if (!on_host && context->allocate) {
    scratch->owner = OWNER_FRAMEWORK;
    return context->allocate(context, ndim, sizes, strides, dtype, view, NULL) == DIT_OK ? diopiSuccess
                                                                                         : diopiErrorOccurred;
  }
  if (!count_bytes(ndim, sizes, strides, dtype, numel, &bytes) ||
      take_memory(context, scratch, on_host, bytes) != DIT_OK) {
    return diopiErrorOccurred;
  }
  view->data = scratch->memory;
  view->sizes = sizes;
  view->strides = strides;
  view->numel = numel;
  view->storage = scratch->memory;
  view->handle = scratch;
  view->ndim = ndim;
  view->dtype = (int16_t)dtype;
  view->device_index = (int8_t)(on_host ? -1 : context->device);
  view->flags = (uint8_t)((on_host ? 0 : DIT_TENSOR_ON_DEVICE) |
                          (dit_shape_is_contiguous(ndim, sizes, strides) ? DIT_TENSOR_CONTIGUOUS : 0));
  return diopiSuccess;
}

diopiError_t diopiRequireTensor(diopiContextHandle_t ctx, diopiTensorHandle_t *tensor, const diopiSize_t *size,
                                const diopiSize_t *stride, const diopiDtype_t dtype, const diopiDevice_t device) {
  const int own = dit_diopi_find_dtype(dtype);
  int64_t numel;
  if (!ctx || !tensor || !size || size->len < 0 || size->len > DIT_MAX_DIMS || own < 0 ||
      (stride && stride->data && stride->len != size->len) ||
      dit_shape_get_numel((int)size->len, size->data, &numel, NULL) != DIT_OK) {
    return diopiErrorOccurred;
  }
  const int ndim = (int)size->len;
  struct dit_diopi_scratch *scratch = dit_malloc(sizeof *scratch + sizeof(int64_t) * 2 * (size_t)ndim);
  if (!scratch) {
    return diopiErrorOccurred;
  }
  memset(scratch, 0, sizeof *scratch);
  if (ndim > 0) {
    memcpy(scratch->dims, size->data, sizeof(int64_t) * (size_t)ndim);
  }
  if (stride && stride->data && ndim > 0) {
    memcpy(scratch->dims + ndim, stride->data, sizeof(int64_t) * (size_t)ndim);
  } else {
    dit_shape_set_contiguous(ndim, scratch->dims, scratch->dims + ndim);
  }
  diopiError_t code = fill_scratch(ctx, scratch, ndim, own, device == diopi_host, numel);
  if (code != diopiSuccess) {
    dit_free(scratch);
    return code;
  }
  // calls of several threads may share a context
  scratch->next = __atomic_load_n(&ctx->scratch, __ATOMIC_RELAXED);
  while (
      !__atomic_compare_exchange_n(&ctx->scratch, &scratch->next, scratch, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
  *tensor = &scratch->tensor;
  return diopiSuccess;
}

diopiError_t diopiRequireBuffer(diopiContextHandle_t ctx, diopiTensorHandle_t *tensor, int64_t num_bytes,
                                diopiDevice_t device) {
  const diopiSize_t size = {&num_bytes, 1};
  return diopiRequireTensor(ctx, tensor, &size, NULL, diopi_dtype_uint8, device);
}

void dit_diopi_context_reset(struct diopiContext *context) {
  while (context->scratch) {
    struct dit_diopi_scratch *scratch = context->scratch;
    context->scratch = scratch->next;
    release_scratch(context, scratch);
  }
}

diopiContextHandle_t dit_diopi_context_create(int device, void *stream) {
  struct diopiContext *context = dit_malloc(sizeof *context);
  if (context) {
    dit_diopi_context_init(context, device, stream);
  }
  return context;
}

void dit_diopi_context_destroy(diopiContextHandle_t context) {
  if (context) {
    dit_diopi_context_reset(context);
    dit_free(context);
  }
}

bool dit_diopi_context_owns(const struct diopiContext *context, diopiConstTensorHandle_t tensor) {
  const struct dit_diopi_scratch *scratch = __atomic_load_n(&context->scratch, __ATOMIC_ACQUIRE);
  for (; scratch; scratch = scratch->next) {
    if (&scratch->tensor == tensor) {
      return true;
    }
  }
  return false;
}

// generators: the state is seed and offset, 16 bytes in the machine's order

diopiError_t diopiGeneratorGetSeedAndOffset(diopiGeneratorHandle_t th, uint64_t *ptrSeed, uint64_t *ptrOffset) {
  if (!th || !ptrSeed || !ptrOffset) {
    return diopiErrorOccurred;
  }
  *ptrSeed = th->seed;
  *ptrOffset = th->offset;
  return diopiSuccess;
}

diopiError_t diopiGeneratorSetSeedAndOffset(diopiGeneratorHandle_t th, uint64_t seed, uint64_t offset) {
  if (!th) {
    return diopiErrorOccurred;
  }
  th->seed = seed;
  th->offset = offset;
  return diopiSuccess;
}

diopiError_t diopiGeneratorGetState(diopiContextHandle_t ctx, diopiConstGeneratorHandle_t th,
                                    diopiTensorHandle_t *data) {
  if (!th || diopiRequireBuffer(ctx, data, sizeof(struct diopiGenerator), diopi_host) != diopiSuccess) {
    return diopiErrorOccurred;
  }
  memcpy((*data)->view.data, th, sizeof(struct diopiGenerator));
  return diopiSuccess;
}

diopiError_t diopiGeneratorSetState(diopiGeneratorHandle_t th, diopiConstTensorHandle_t state) {
  if (!th || !state || state->view.flags & DIT_TENSOR_ON_DEVICE || !(state->view.flags & DIT_TENSOR_CONTIGUOUS) ||
      (size_t)state->view.numel * dit_dtype_get_size(state->view.dtype) != sizeof(struct diopiGenerator)) {
    return diopiErrorOccurred;
  }
  memcpy(th, state->view.data, sizeof(struct diopiGenerator));
  return diopiSuccess;
}

// Ranges

static _Atomic(const struct dit_range_recorder *) recorder;
static char unrecorded;  ///< the handle of a range that nobody records

enum dit_status dit_range_set_recorder(const struct dit_range_recorder *table, struct dit_error *err) {
  const struct dit_range_recorder *expected = NULL;
  if (!table || !table->begin || !table->end) {
    return dit_error_set(err, DIT_ERR_INVALID, "a recorder of ranges needs both begin and end");
  }
  if (!atomic_compare_exchange_strong(&recorder, &expected, table) && expected != table) {
    return dit_error_set(err, DIT_ERR_INVALID, "ranges have a recorder already, whose ranges may be open");
  }
  return DIT_OK;
}

diopiError_t diopiRecordStart(const char *record_name, void **out) {
  if (!record_name || !out) {
    return diopiErrorOccurred;
  }
  const struct dit_range_recorder *table = atomic_load_explicit(&recorder, memory_order_acquire);
  void *range = DIT_UNLIKELY(table) ? table->begin(record_name) : NULL;
  *out = range ? range : &unrecorded;
  return diopiSuccess;
}

diopiError_t diopiRecordEnd(void **out) {
  if (!out || !*out) {
    return diopiErrorOccurred;
  }
  if (*out != &unrecorded) {
    const struct dit_range_recorder *table = atomic_load_explicit(&recorder, memory_order_acquire);
    if (!table) {
      return diopiErrorOccurred;  // no handle of diopiRecordStart
    }
    table->end(*out);
  }
  *out = NULL;
  return diopiSuccess;
}
