// The operator on the CPU: twins of the device's tensors, devices in the arguments replaced, autocast as the device's.
//
// A CPU run that fails for want of a kernel for half precision is repeated once with float16, bfloat16 and float8
// tensors in float32, from fresh twins; when that fails too, the first error is the program's.
#include <string.h>

#include "device_object.h"
#include "dit/dtype.h"
#include "dit/record.h"
#include "engine/backward_torch.h"
#include "engine/internal.h"
#include "py_call.h"
#include "tools/fallback/fallback.h"
#include "tools/remap.h"
#include "tools/twin.h"

int fallback_torch_load(void) {
  return torch_names_load(TORCH_AUTOCAST | TORCH_RANDOM | TORCH_FALLBACK) < 0 ? -1 : backward_torch_load();
}

// Where results go

// The device that the caller named, else that of the first tensor on a device. 0 or -1.
static int target_find(struct fallback_run *run) {
  const struct engine_call *call = run->call;
  if (run->transfer.py_device) {
    int8_t type = dit_device_object_get(run->transfer.py_device)->type;
    run->stays = type == DIT_C10_CPU || type == DIT_C10_META;
    run->py_device = Py_NewRef(run->transfer.py_device);
    return 0;
  }
  PyObject *named = call->kwargs ? PyDict_GetItemWithError(call->kwargs, torch_names.py_text_device) : NULL;
  if (named && named != Py_None) {
    bool made = Py_IS_TYPE(named, (PyTypeObject *)torch_names.py_device_type);
    run->py_device = made ? Py_NewRef(named) : PyObject_CallOneArg(torch_names.py_device_type, named);
    int8_t type = run->py_device ? dit_device_object_get(run->py_device)->type : 0;
    run->stays = type == DIT_C10_CPU || type == DIT_C10_META;
    return run->py_device ? 0 : -1;
  }
  for (int i = 0; i < call->in.tensor_count; i++) {
    if (call->in.tensor[i].flags & ENGINE_TENSOR_DEVICE) {
      run->py_device = engine_tensor_get(call->in.tensor[i].py_tensor, engine_torch.device);
      return run->py_device ? 0 : -1;
    }
  }
  for (int i = 0; i < call->in.leaf_count; i++) {  // a device among the positional arguments
    PyObject *value = call->in.leaf[i].value;
    if (Py_IS_TYPE(value, (PyTypeObject *)torch_names.py_device_type)) {
      run->py_device = Py_NewRef(value);
      return 0;
    }
  }
  run->stays = true;
  run->py_device = Py_NewRef(torch_names.py_host);
  return 0;
}

// Twins

static bool dtype_is_low(int16_t dtype) {
  return dtype >= 0 && dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_FLOAT && dit_dtype_get_size(dtype) <= 2;
}

static bool call_has_low(const struct engine_call *call) {
  for (int i = 0; i < call->in.tensor_count; i++) {
    if (dtype_is_low(call->in.tensor[i].dtype)) {
      return true;
    }
  }
  return false;
}

// The first tensor that is copied; -1 for none.
static int call_find_device_tensor(const struct engine_call *call) {
  for (int i = 0; i < call->in.tensor_count; i++) {
    if (call->in.tensor[i].flags & ENGINE_TENSOR_DEVICE) {
      return i;
    }
  }
  return -1;
}

// Tensors that inference mode makes have no version counter, by which changes are seen: twins are made outside of it.
static int twins_make_normal(struct fallback_run *run) {
  const struct engine_leaves *in = &run->call->in;
  twin_release(run->twins, in->tensor_count);
  PyObject *py_guard = py_context_enter(PyObject_CallOneArg(torch_names.py_inference, Py_False));
  int status = py_guard ? twin_make(in->tensor, in->tensor_count, TWIN_ATTACHED, false, run->twins) : -1;
  py_context_leave(py_guard);
  return status;
}

static int twins_make(struct fallback_run *run) {
  const struct engine_call *call = run->call;
  int count = call->in.tensor_count, first = call_find_device_tensor(call);
  twin_release(run->twins, count);
  if (twin_make(call->in.tensor, count, TWIN_ATTACHED, false, run->twins) < 0) {
    return -1;
  }
  bool aten = call->flags & ENGINE_CALL_ATEN;
  if (first >= 0 && !aten && engine_tensor_get_version(run->twins[first]) < 0) {
    return twins_make_normal(run);
  }
  return 0;
}

// Twins of dtypes that `low` accepts, in another dtype; the same object once.
static int twins_cast(struct fallback_run *run, bool (*low)(int16_t dtype), PyObject *dtype) {
  const struct engine_leaves *in = &run->call->in;
  for (int i = 0; i < in->tensor_count; i++) {
    if (!low(in->tensor[i].dtype)) {
      continue;
    }
    PyObject *py_cast = NULL;
    for (int j = 0; j < i && !py_cast; j++) {
      py_cast = in->tensor[j].py_tensor == in->tensor[i].py_tensor ? Py_NewRef(run->twins[j]) : NULL;
    }
    if (!py_cast) {
      PyObject *arguments[] = {run->twins[i], dtype};
      py_cast = PyObject_Vectorcall(torch_names.py_to, arguments, 2, NULL);
    }
    if (!py_cast) {
      return -1;
    }
    Py_SETREF(run->twins[i], py_cast);
  }
  return 0;
}

static void versions_read(struct fallback_run *run) {
  for (int i = 0; i < run->call->in.tensor_count; i++) {
    run->versions[i] = engine_tensor_get_version(run->twins[i]);
  }
}

static void bytes_count(struct fallback_run *run) {
  const struct engine_leaves *in = &run->call->in;
  for (int i = 0; i < in->tensor_count; i++) {
    bool seen = !(in->tensor[i].flags & ENGINE_TENSOR_DEVICE) || in->tensor[i].dtype < 0;
    for (int j = 0; j < i && !seen; j++) {
      seen = in->tensor[j].py_tensor == in->tensor[i].py_tensor;
    }
    run->down += seen ? 0 : in->tensor[i].numel * (int64_t)dit_dtype_get_size(in->tensor[i].dtype);
  }
}

// Around the operator

struct surroundings {
  PyObject *py_enabled, *py_dtype;  // owned: the CPU's autocast as it was; NULL: untouched
  PyObject *py_context;             // owned: an entered DeviceContext, or NULL
};

static int autocast_put(PyObject *enabled, PyObject *dtype) {
  return py_call_pair(torch_names.py_autocast_set, torch_names.py_text_cpu, enabled) < 0
             ? -1
             : py_call_pair(torch_names.py_autocast_dtype_set, torch_names.py_text_cpu, dtype);
}

// Is the device's autocast on? A device without autocast says no.
static bool autocast_is_on(PyObject *type) {
  return py_call_is_true(torch_names.py_autocast_is_enabled, type);
}

static bool dtype_is_below_double(int16_t dtype) {
  return dtype >= 0 && dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_FLOAT && dtype != DIT_DTYPE_F64;
}

static bool call_has_dtype(const struct engine_call *call, int16_t dtype) {
  for (int i = 0; i < call->in.tensor_count; i++) {
    if (call->in.tensor[i].dtype == dtype) {
      return true;
    }
  }
  return false;
}

// The kernels of autocast have no `out`.
static bool call_has_out(const struct engine_call *call) {
  PyObject *out = call->kwargs ? PyDict_GetItemString(call->kwargs, "out") : NULL;
  return out && out != Py_None;
}

// Where a device's autocast does with the operator what the CPU's would not. Returns 1 when the twins are prepared and
// autocast must be off for the run.
static int autocast_prepare(struct fallback_run *run, PyObject *type) {
  unsigned traits = run->row->traits;
  if (!(traits & (FALLBACK_FLOAT | FALLBACK_WIDEST | FALLBACK_LOWER | FALLBACK_PLAIN)) || call_has_out(run->call)) {
    return 0;
  }
  int status = 0;
  if (traits & FALLBACK_FLOAT) {
    status = twins_cast(run, dtype_is_low, torch_names.py_dtypes[DIT_DTYPE_F32]);
  } else if ((traits & FALLBACK_WIDEST) && call_has_dtype(run->call, DIT_DTYPE_F32)) {
    status = twins_cast(run, dtype_is_low, torch_names.py_dtypes[DIT_DTYPE_F32]);
  } else if (traits & FALLBACK_LOWER) {
    PyObject *py_dtype = PyObject_CallOneArg(torch_names.py_autocast_dtype_get, type);
    status = py_dtype ? twins_cast(run, dtype_is_below_double, py_dtype) : -1;
    Py_XDECREF(py_dtype);
  }
  return status < 0 ? -1 : 1;
}

// The CPU's autocast becomes what the device's is: on, off, and its dtype. Level aten is below autocast.
static int autocast_enter(struct fallback_run *run, struct surroundings *around) {
  if (run->call->flags & ENGINE_CALL_ATEN) {
    return 0;
  }
  PyObject *py_type = PyObject_GetAttr(run->py_device, torch_names.py_text_type);
  if (!py_type) {
    return -1;
  }
  bool wanted = autocast_is_on(py_type), now = autocast_is_on(torch_names.py_text_cpu);
  int prepared = wanted ? autocast_prepare(run, py_type) : 0, status = prepared < 0 ? -1 : 0;
  if (status == 0 && (wanted || now)) {
    around->py_enabled = PyBool_FromLong(now);
    around->py_dtype = PyObject_CallOneArg(torch_names.py_autocast_dtype_get, torch_names.py_text_cpu);
    PyObject *py_dtype = wanted && around->py_dtype ? PyObject_CallOneArg(torch_names.py_autocast_dtype_get, py_type)
                                                    : Py_XNewRef(around->py_dtype);
    status = py_dtype ? autocast_put(wanted && !prepared ? Py_True : Py_False, py_dtype) : -1;
    Py_XDECREF(py_dtype);
  }
  Py_DECREF(py_type);
  return status;
}

// A default device set by the program (torch.set_default_device, `with torch.device(...)`) would put tensors that the
// operator makes inside on the device.
static int context_enter(struct surroundings *around) {
  long length = py_call_long(torch_names.py_stack_length);
  if (length <= 0) {
    return length < 0 ? -1 : 0;
  }
  around->py_context = py_context_enter(PyObject_CallOneArg(torch_names.py_device_context, torch_names.py_host));
  return around->py_context ? 0 : -1;
}

// Keeps a pending exception.
static void surroundings_leave(struct surroundings *around) {
  PyObject *kind, *value, *traceback;
  py_context_leave(around->py_context);
  if (!around->py_enabled) {
    return;
  }
  PyErr_Fetch(&kind, &value, &traceback);
  if (around->py_dtype) {
    (void)!autocast_put(around->py_enabled, around->py_dtype);
  }
  py_error_drop();
  Py_CLEAR(around->py_enabled);
  Py_CLEAR(around->py_dtype);
  PyErr_Restore(kind, value, traceback);
}

// x.type("torch.cuda.HalfTensor") names a device inside of a text: on the CPU it is x.to(torch.float16).
static PyObject *operator_call(struct fallback_run *run) {
  bool type = run->transfer.py_dtype && strcmp(engine_name_get_last(run->call->op->name), "type") == 0;
  if (!type) {
    return engine_chain_run(run->chain, run->py_args, run->py_kwargs);
  }
  PyObject *py_args = PyTuple_Pack(2, run->twins[0], run->transfer.py_dtype);
  PyObject *py_result = py_args ? engine_chain_run_function(run->chain, torch_names.py_to, py_args, NULL) : NULL;
  Py_XDECREF(py_args);
  return py_result;
}

static int operator_run(struct fallback_run *run) {
  struct fallback_random random = {0};
  int status = 0;
  if (run->row->traits & FALLBACK_RANDOM) {
    status = fallback_random_begin(run, &random);
  }
  if (status == 0) {
    int64_t begin = dit_record_get_time();
    run->py_result = operator_call(run);
    run->cpu_ns += dit_record_get_time() - begin;
    status = run->py_result ? 0 : -1;
  }
  if (run->row->traits & FALLBACK_RANDOM && fallback_random_end(&random) < 0 && status == 0) {
    Py_CLEAR(run->py_result);
    status = -1;
  }
  return status == 1 ? FALLBACK_GENERATOR : status;
}

// One attempt with fresh twins. 0, -1, or a fallback_reason.
static int attempt(struct fallback_run *run, bool cast) {
  struct surroundings around = {0};
  int64_t begin = dit_record_get_time();
  if (twins_make(run) < 0) {
    bool valueless = PyErr_ExceptionMatches(PyExc_TypeError);
    if (valueless) {
      py_error_drop();
    }
    return valueless ? FALLBACK_VALUELESS : -1;
  }
  int status = cast ? twins_cast(run, dtype_is_low, torch_names.py_dtypes[DIT_DTYPE_F32]) : 0;
  status = status < 0 ? status : autocast_enter(run, &around);
  if (status == 0) {
    versions_read(run);
    Py_CLEAR(run->py_args);
    Py_CLEAR(run->py_kwargs);
    status = remap_call(run->call, run->twins, torch_names.py_host, &run->py_args, &run->py_kwargs);
  }
  run->down_ns += dit_record_get_time() - begin;
  status = status < 0 ? status : context_enter(&around);
  status = status < 0 ? status : backward_sequence_get(&run->sequence);
  status = status < 0 ? status : operator_run(run);
  surroundings_leave(&around);
  return status;
}

// The retry

static bool text_has(const char *text, const char *const *words) {
  for (; *words; words++) {
    if (strstr(text, *words)) {
      return true;
    }
  }
  return false;
}

// The pending error says that the CPU has no kernel for a dtype.
static bool error_is_about_dtype(void) {
  static const char *const words[] = {"not implemented for", "not support", "nsupported", "expected scalar type", NULL};
  PyObject *kind, *value, *traceback;
  if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) {
    return false;
  }
  PyErr_Fetch(&kind, &value, &traceback);
  PyErr_NormalizeException(&kind, &value, &traceback);
  PyObject *py_text = value ? PyObject_Str(value) : NULL;
  const char *text = py_text ? PyUnicode_AsUTF8(py_text) : NULL;
  bool yes = text && text_has(text, words);
  py_error_drop();
  Py_XDECREF(py_text);
  PyErr_Restore(kind, value, traceback);
  return yes;
}

// Tensors of the CPU that the failed run wrote to cannot be had back: no second run then.
static bool cpu_is_untouched(const struct fallback_run *run) {
  const struct engine_leaves *in = &run->call->in;
  for (int i = 0; i < in->tensor_count; i++) {
    if (run->twins[i] == in->tensor[i].py_tensor && engine_tensor_get_version(run->twins[i]) != run->versions[i]) {
      return false;
    }
  }
  return true;
}

// The pending error says that the CPU lacks the operator: one that was made for devices alone. Below the Python
// functions nothing else raises it.
static bool error_is_missing_operator(const struct fallback_run *run) {
  return (run->call->flags & ENGINE_CALL_ATEN) && PyErr_ExceptionMatches(PyExc_NotImplementedError);
}

int fallback_run_forward(struct fallback_run *run) {
  size_t count = (size_t)run->call->in.tensor_count;
  run->twins = run->inline_twins;
  run->versions = run->inline_versions;
  if (count > FALLBACK_INLINE) {
    run->twins = PyMem_Calloc(count, sizeof *run->twins);
    run->versions = PyMem_Calloc(count, sizeof *run->versions);
    if (!run->twins || !run->versions) {
      PyErr_NoMemory();
      return -1;
    }
  }
  if (target_find(run) < 0) {
    return -1;
  }
  bytes_count(run);
  int status = attempt(run, false);
  if (status == -1 && error_is_missing_operator(run) && cpu_is_untouched(run)) {
    py_error_drop();
    return FALLBACK_MISSING;
  }
  if (status != -1 || !call_has_low(run->call) || !error_is_about_dtype() || !cpu_is_untouched(run)) {
    return status;
  }
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  run->row->retries++;
  status = attempt(run, true);
  if (status == 0) {
    run->cast = true;
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return 0;
  }
  py_error_drop();
  PyErr_Restore(kind, value, traceback);
  return -1;
}

void fallback_run_reset(struct fallback_run *run) {
  if (run->twins) {
    twin_release(run->twins, run->call->in.tensor_count);
  }
  if (run->twins != run->inline_twins) {
    PyMem_Free(run->twins);
  }
  if (run->versions != run->inline_versions) {
    PyMem_Free(run->versions);
  }
  Py_CLEAR(run->py_args);
  Py_CLEAR(run->py_kwargs);
  Py_CLEAR(run->py_result);
  Py_CLEAR(run->py_device);
}
