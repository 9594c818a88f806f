/// Tensors of an mmcv operator's call (see call.h).
#include "call.h"

#include <string.h>

#include "ops/layout.h"

diopiError_t call_begin(struct call *call, const char *function, diopiContextHandle_t context) {
  memset(call, 0, sizeof *call);
  memset(call->sizes, -1, sizeof call->sizes);
  call->dtype = -1;
  call->work = DIT_DTYPE_F32;
  return frame_begin(&call->frame, function, context);
}

diopiError_t call_set(struct call *call, const char *name, int64_t size, char letter, int64_t least) {
  CALL_CHECK(call, size >= least && size <= INT32_MAX, "'%s' is %lld; valid: %lld to 2147483647", name, (long long)size,
             (long long)least);
  call->sizes[(unsigned char)letter] = size;
  return diopiSuccess;
}

static diopiError_t check_sizes(struct call *call, const char *name, const struct dit_tensor_view *view,
                                const char *sizes) {
  const int ndim = (int)strlen(sizes);
  CALL_CHECK(call, view->ndim == ndim, "'%s' has %d dimensions; it must have %d", name, (int)view->ndim, ndim);
  for (int i = 0; i < ndim; i++) {
    int64_t *known = &call->sizes[(unsigned char)sizes[i]];
    if (sizes[i] == '?') {
      continue;
    }
    if (sizes[i] >= '0' && sizes[i] <= '9') {
      *known = sizes[i] - '0';
    } else if (*known < 0) {
      *known = view->sizes[i];
    }
    CALL_CHECK(call, view->sizes[i] == *known, "'%s' has size %lld in dimension %d; it must have %lld", name,
               (long long)view->sizes[i], i, (long long)*known);
  }
  return diopiSuccess;
}

static diopiError_t check_dtype(struct call *call, const char *name, const struct dit_tensor_view *view, char type) {
  uint64_t set = DTYPES_FLOAT;
  if (type == 'i') {
    set = DTYPE_BIT(I32) | DTYPE_BIT(I64);
  } else if (type == 'm') {
    set = DTYPES_INT | DTYPE_BIT(BOOL);
  }
  if (!frame_has_dtype(set, view->dtype)) {
    return frame_fail_dtype(&call->frame, name, view->dtype);
  }
  if (type == 'f' || type == 'd') {
    CALL_CHECK(call, call->dtype < 0 || call->dtype == view->dtype, "'%s' is %s; it must be %s as the others are", name,
               dit_dtype_get_name(view->dtype), dit_dtype_get_name(call->dtype));
    call->dtype = view->dtype;
    call->work = dense_get_work(view->dtype);
  }
  return diopiSuccess;
}

diopiError_t call_take(struct call *call, const char *name, diopiConstTensorHandle_t handle, const char *description,
                       enum call_role role, bool optional) {
  struct call_tensor *tensor = &call->tensors[call->count++];
  struct dit_tensor_view *view = &tensor->view;
  tensor->name = name;
  tensor->role = role;
  tensor->type = description[0];
  FRAME_TRY((optional ? frame_take_optional : frame_take)(&call->frame, name, handle, view));
  if (optional && (!handle || view->numel == 0)) {
    memset(view, 0, sizeof *view);
    return diopiSuccess;
  }
  FRAME_TRY(check_dtype(call, name, view, tensor->type));
  return description[2] == '*' ? diopiSuccess : check_sizes(call, name, view, description + 2);
}

diopiError_t call_make(struct call *call, const char *name, diopiTensorHandle_t *made, int dtype, int ndim,
                       const int64_t *sizes, char type) {
  struct call_tensor *tensor = &call->tensors[call->count++];
  const diopiSize_t size = {sizes, ndim};
  for (int i = 0; i < ndim; i++) {
    CALL_CHECK(call, sizes[i] >= 0, "'%s' would have size %lld in dimension %d", name, (long long)sizes[i], i);
  }
  tensor->name = name;
  tensor->role = CALL_ROLE_OUT;
  tensor->type = type;
  if (diopiRequireTensor(call->frame.context, made, &size, NULL, dit_diopi_get_dtype(dtype), diopi_device) !=
      diopiSuccess) {
    return frame_fail_device(&call->frame, "no memory for a result of shape %s", layout_print(ndim, sizes));
  }
  return frame_take(&call->frame, name, *made, &tensor->view);
}

void call_limit(struct call *call, int number, int64_t low, int64_t high) {
  struct call_tensor *tensor = &call->tensors[number];
  tensor->limited = true;
  tensor->low = low;
  tensor->high = high;
}

static int get_work_dtype(const struct call *call, char type) {
  switch (type) {
    case 'f':
      return call->work;
    case 'd':
    case 's':
      return DIT_DTYPE_F64;
    default:
      return DIT_DTYPE_I64;
  }
}

static bool open_tensors(struct call *call) {
  for (int i = 0; i < call->count; i++) {
    struct call_tensor *tensor = &call->tensors[i];
    const int dtype = get_work_dtype(call, tensor->type);
    if (!(tensor->role == CALL_ROLE_OUT ? dense_reserve : dense_read)(&tensor->dense, &tensor->view, dtype)) {
      return false;
    }
  }
  return true;
}

static diopiError_t check_values(struct call *call) {
  for (int i = 0; i < call->count; i++) {
    const struct call_tensor *tensor = &call->tensors[i];
    const int64_t *values = tensor->dense.data, count = tensor->limited && values ? tensor->view.numel : 0;
    for (int64_t k = 0; k < count; k++) {
      FRAME_CHECK_RANGE(&call->frame, values[k] >= tensor->low && values[k] <= tensor->high,
                        "'%s' has the value %lld; valid: %lld to %lld", tensor->name, (long long)values[k],
                        (long long)tensor->low, (long long)tensor->high);
    }
  }
  return diopiSuccess;
}

static diopiError_t run_open(void *argument) {
  struct call *call = argument;
  diopiError_t code = open_tensors(call) ? check_values(call) : dense_fail(&call->frame);
  if (code == diopiSuccess) {
    code = call->run(call);
  }
  for (int i = 0; i < call->count; i++) {
    if (code == diopiSuccess && call->tensors[i].role != CALL_ROLE_IN) {
      dense_store(&call->tensors[i].dense);
    }
    dense_close(&call->tensors[i].dense);
  }
  return code;
}

diopiError_t call_run(struct call *call, call_work *run) {
  for (int i = 0; i < call->count; i++) {
    const struct dit_tensor_view *others[CALL_TENSORS];
    int count = 0;
    for (int k = 0; k < call->count; k++) {
      if (k != i) {
        others[count++] = &call->tensors[k].view;
      }
    }
    if (call->tensors[i].role != CALL_ROLE_IN && call->tensors[i].view.handle) {
      FRAME_TRY(frame_check_output(&call->frame, call->tensors[i].name, &call->tensors[i].view, others, count, false));
    }
  }
  call->run = run;
  return frame_run(&call->frame, run_open, call);
}

void *call_make_result(struct call *call, diopiTensorHandle_t *made, int dtype, int ndim, const int64_t *sizes) {
  static int64_t nothing;
  const diopiSize_t size = {sizes, ndim};
  struct dit_tensor_view view;
  if (diopiRequireTensor(call->frame.context, made, &size, NULL, dit_diopi_get_dtype(dtype), diopi_device) !=
          diopiSuccess ||
      frame_take(&call->frame, "out", *made, &view) != diopiSuccess) {
    (void)frame_fail_device(&call->frame, "no memory for a result of shape %s", layout_print(ndim, sizes));
    return NULL;
  }
  return view.numel > 0 ? view.data : &nothing;
}

void call_zero(struct call *call, int number) {
  const struct dense *dense = &call->tensors[number].dense;
  if (dense->data) {
    memset(dense->data, 0, (size_t)dense->view.numel * dit_dtype_get_size(dense->dtype));
  }
}
