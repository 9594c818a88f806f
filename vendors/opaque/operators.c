/// One call of an operator on the opaque device (see operators.h).
///
/// The host library gets copies of the tensor handles with open addresses and a context of its own, whose stream is the
/// device's queue, also for the default stream, and whose scratch tensors are the caller's under their open addresses.
/// It queues its loops there, or waits for the queue and reads. Tensors that it makes go back as the caller's handles.
///
/// Invariant: no address of the closed mapping leaves this file towards the host library, and no open one towards the
/// caller. Depends on libdit_vendor_opaque and on libdiopi_host, which is looked up at run time.
#include "operators.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../queries.h"
#include "diopi/extension.h"
#include "dit/alloc.h"
#include "dit/gate.h"
#include "opaque.h"

enum { MAX_PARAMETERS = 40, ROOM = 32 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct dit_diopi_library *host;
static char problem[1100];  ///< why there is no host library
LIBRARY_QUERIES("opaque")

static void start(void) {
  struct dit_error err = {.message = ""};
  if (dit_diopi_library_open("host", &host, &err) != DIT_OK) {
    snprintf(problem, sizeof problem, "the opaque device computes with the host library: %s", err.message);
    host = NULL;
  }
}

/// When this library is unloaded.
__attribute__((destructor)) static void stop(void) {
  dit_diopi_library_close(host);
  host = NULL;
}

static diopiError_t fail(diopiError_t code, diopiExtFailure_t failure, const char *text) {
  last_failure = failure;
  snprintf(last_error, sizeof last_error, "%s", text);
  return code;
}

diopiError_t diopiExtGetSupport(const char *function, diopiExtSupport_t *support) {
  pthread_once(&once, start);
  const int number = dit_diopi_find_function(function);
  uint64_t dtypes;
  uint32_t layouts;
  if (!host) {
    return diopiErrorOccurred;  // every call says why
  }
  if (!host->ext_get_support || (number >= 0 && dit_opaque_is_missing(number))) {
    return diopiNoImplement;
  }
  const diopiError_t code = host->ext_get_support(function, support);
  if (code != diopiSuccess) {
    return code;
  }
  dit_opaque_get_missing(&dtypes, &layouts);
  for (int dtype = 0; dtype < DIT_DTYPE_COUNT; dtype++) {
    if (dtypes >> dtype & 1 && dit_diopi_get_dtype(dtype) != diopi_dtype_unsupported) {
      support->dtypes &= ~(1u << dit_diopi_get_dtype(dtype));
    }
  }
  support->layouts &= ~layouts;
  support->flags &= ~(uint32_t)diopiExtSynchronous;
  return diopiSuccess;
}

diopiError_t diopiExtInferOutputs(const char *function, const diopiExtArgument_t *arguments, int64_t length,
                                  diopiExtOutput_t *outputs, int64_t *count) {
  pthread_once(&once, start);
  if (!host || !host->ext_infer_outputs) {
    return diopiNoImplement;
  }
  const diopiError_t code = host->ext_infer_outputs(function, arguments, length, outputs, count);
  if (code != diopiSuccess) {
    return fail(code, diopiExtFailureArgument, dit_diopi_library_get_error(host));
  }
  return code;
}

// Handles

/// A handle as the host library sees it, and the caller's.
struct opened {
  struct diopiTensor tensor;
  diopiTensorHandle_t closed;
};

struct call {
  int function;
  const union dit_diopi_value *given;
  union dit_diopi_value values[MAX_PARAMETERS];
  struct diopiContext context;
  struct opened room[ROOM], *handles;  ///< `handles` is `room`, or larger memory
  diopiTensorHandle_t list_room[ROOM], *lists;
  size_t handle_count, list_count;
  diopiError_t code;
};

/// The storage behind an open handle; `services` is the caller's handle.
static void get_storage(const struct diopiTensor *tensor, void **base, size_t *size) {
  const struct diopiTensor *closed = tensor->services;
  closed->get_storage(closed, base, size);
  *base = *size > 0 ? dit_opaque_open(*base, *size) : NULL;
}

static diopiTensorHandle_t open_handle(struct call *call, diopiTensorHandle_t closed) {
  bool dtype = false;
  if (!closed || call->code != diopiSuccess) {
    return NULL;
  }
  struct opened *opened = &call->handles[call->handle_count++];
  opened->tensor = *closed;
  opened->closed = closed;
  if (!(closed->view.flags & DIT_TENSOR_ON_DEVICE)) {
    return &opened->tensor;
  }
  if (dit_opaque_lacks(&closed->view, &dtype)) {
    call->code = fail(dtype ? diopiDtypeNotSupported : diopiForceFallbackToCPU, diopiExtFailureOther,
                      "this device lacks the tensor's dtype or layout (DITORCH_OPAQUE_MISSING)");
    return NULL;
  }
  if (!dit_opaque_open_view(&closed->view, &opened->tensor.view)) {
    call->code = fail(diopiErrorOccurred, diopiExtFailureOther, "a tensor is not in the device's memory");
    return NULL;
  }
  if (closed->get_storage) {
    opened->tensor.get_storage = get_storage;
    opened->tensor.services = closed;
  }
  opened->tensor.crow_indices = open_handle(call, (diopiTensorHandle_t)closed->crow_indices);
  opened->tensor.col_indices = open_handle(call, (diopiTensorHandle_t)closed->col_indices);
  opened->tensor.values = open_handle(call, (diopiTensorHandle_t)closed->values);
  return &opened->tensor;
}

static diopiTensorHandle_t close_handle(const struct call *call, diopiTensorHandle_t open) {
  for (size_t i = 0; i < call->handle_count; i++) {
    if (open == &call->handles[i].tensor) {
      return call->handles[i].closed;
    }
  }
  // A scratch tensor of the host library's context: its view was made by `allocate`, which keeps the caller's handle.
  return open && dit_diopi_context_owns(&call->context, open) && open->view.flags & DIT_TENSOR_ON_DEVICE
             ? open->view.handle
             : open;
}

// Contexts

static enum dit_status allocate(struct diopiContext *context, int ndim, const int64_t *sizes, const int64_t *strides,
                                int dtype, struct dit_tensor_view *out, struct dit_error *err) {
  diopiTensorHandle_t made = NULL;
  const diopiSize_t size = {sizes, ndim}, stride = {strides, ndim};
  if (diopiRequireTensor(context->host, &made, &size, strides ? &stride : NULL, dit_diopi_get_dtype(dtype),
                         diopi_device) != diopiSuccess) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no device memory for a scratch tensor");
  }
  if (!dit_opaque_open_view(&made->view, out)) {
    return dit_error_set(err, DIT_ERR_DEVICE, "a scratch tensor is not in the device's memory");
  }
  out->handle = made;
  return DIT_OK;
}

static void open_context(struct call *call, diopiContextHandle_t closed) {
  dit_diopi_context_init(&call->context, closed->device, dit_opaque_get_queue(closed->device, closed->stream));
  call->context.allocate = allocate;
  call->context.host = closed;
}

// Arguments

/// Length of the list in parameter `index`: the number that follows it.
static size_t get_length(const struct call *call, const char *kinds, int index) {
  while (kinds[index] && kinds[index] != 'i') {
    index++;
  }
  return kinds[index] && call->given[index].i > 0 ? (size_t)call->given[index].i : 0;
}

static bool is_list(const struct call *call, const char *kinds, int index) {
  return kinds[index] == 'T' || (kinds[index] == 'O' && dit_diopi_is_list(call->function, index));
}

/// A sparse tensor has three parts.
static size_t count_parts(diopiTensorHandle_t tensor) {
  return tensor ? 1 + (tensor->crow_indices != NULL) + (tensor->col_indices != NULL) + (tensor->values != NULL) : 0;
}

static bool make_room(struct call *call, const char *kinds) {
  size_t handles = 0, pointers = 0;
  for (int i = 0; kinds[i]; i++) {
    if (kinds[i] == 't' || kinds[i] == 'o') {
      handles += count_parts(call->given[i].tensor);
    } else if (is_list(call, kinds, i) && call->given[i].tensors) {
      const size_t length = get_length(call, kinds, i);
      pointers += length;
      for (size_t k = 0; k < length; k++) {
        handles += count_parts(call->given[i].tensors[k]);
      }
    }
  }
  call->handles = handles <= ROOM ? call->room : dit_malloc(handles * sizeof *call->handles);
  call->lists = pointers <= ROOM ? call->list_room : dit_malloc(pointers * sizeof *call->lists);
  return call->handles && call->lists;
}

static void free_room(struct call *call) {
  if (call->handles != call->room) {
    dit_free(call->handles);
  }
  if (call->lists != call->list_room) {
    dit_free(call->lists);
  }
}

static void open_list(struct call *call, const char *kinds, int index) {
  const size_t length = get_length(call, kinds, index);
  diopiTensorHandle_t *list = call->lists + call->list_count;
  for (size_t i = 0; i < length; i++) {
    list[i] = open_handle(call, call->given[index].tensors[i]);
  }
  call->list_count += length;
  call->values[index].tensors = list;
}

static void open_arguments(struct call *call, const char *kinds) {
  for (int i = 0; kinds[i] && call->code == diopiSuccess; i++) {
    call->values[i] = call->given[i];
    if (kinds[i] == 'c' && call->given[i].context) {
      open_context(call, call->given[i].context);
      call->values[i].context = &call->context;
    } else if (kinds[i] == 't' || kinds[i] == 'o') {
      call->values[i].tensor = open_handle(call, call->given[i].tensor);
    } else if (is_list(call, kinds, i) && call->given[i].tensors) {
      open_list(call, kinds, i);
    }
  }
}

/// Results that the library made, and elements of lists that it replaced, as handles of the caller.
static void close_results(struct call *call, const char *kinds) {
  for (int i = 0; kinds[i]; i++) {
    if (kinds[i] != 'O' || !call->given[i].tensors) {
      continue;
    }
    const bool list = is_list(call, kinds, i);
    const size_t length = list ? get_length(call, kinds, i) : (size_t)dit_diopi_count_results(call->function, i);
    for (size_t k = 0; k < length; k++) {
      call->given[i].tensors[k] = close_handle(call, call->values[i].tensors[k]);
    }
  }
}

static diopiError_t run(struct call *call, const char *kinds, const char *name) {
  struct dit_error err = {.message = ""};
  open_arguments(call, kinds);
  if (call->code != diopiSuccess) {
    return call->code;
  }
  const struct diopiContext *closed = call->given[0].context;
  if (dit_opaque_strike(closed->device, closed->stream, name, &err) != DIT_OK) {
    return fail(diopiErrorOccurred, diopiExtFailureOther, err.message);
  }
  const diopiError_t code = dit_diopi_invoke(&host->functions, call->function, call->values);
  if (code == diopiSuccess) {
    close_results(call, kinds);
    return code;
  }
  return fail(code, dit_diopi_library_get_failure(host), dit_diopi_library_get_error(host));
}

diopiError_t opaque_call(int function, const union dit_diopi_value *values) {
  pthread_once(&once, start);
  const struct dit_diopi_info *info = &dit_diopi_get_functions(NULL)[function];
  if (!host) {
    return fail(diopiErrorOccurred, diopiExtFailureOther, problem);
  }
  if (dit_opaque_is_missing(function) || !dit_diopi_library_get(host, function)) {
    return fail(diopiNoImplement, diopiExtFailureOther, "this device does not have the function");
  }
  if (strlen(info->kinds) > MAX_PARAMETERS || info->kinds[0] != 'c' || !values[0].context) {
    return fail(diopiErrorOccurred, diopiExtFailureArgument, "the context 'ctx' is NULL");
  }
  struct call call;
  call.function = function;
  call.given = values;
  call.handle_count = call.list_count = 0;
  call.code = diopiSuccess;
  dit_diopi_context_init(&call.context, 0, NULL);
  const diopiError_t code = make_room(&call, info->kinds)
                                ? run(&call, info->kinds, info->name)
                                : fail(diopiErrorOccurred, diopiExtFailureOther, "no host memory for the arguments");
  dit_diopi_context_reset(&call.context);
  free_room(&call);
  return code;
}
