// The dtypes of a call's results: a run on meta tensors, remembered by what decides it.
//
// A key is the operator and a hash of everything that can decide a result's dtype: each argument's place and kind, each
// tensor's dtype, dimensions and whether it is on a device, booleans, texts and dtypes by value. Numbers count by kind
// only. The table is dropped when it is full, so it cannot grow without bound.
#include "tools/cast/dtypes.h"

#include <string.h>

#include "dit/dtype.h"
#include "dit/promotion.h"
#include "dit/record.h"
#include "py_call.h"
#include "tools/cast/torch.h"
#include "tools/remap.h"
#include "torch_tensor.h"

#define TABLE_SIZE 8192  // a power of two
#define TABLE_MOST 6144
#define INLINE_DTYPES 6

struct entry {
  struct engine_op *op;  // NULL: free
  uint64_t hash;
  int count;  // of results; -1: meta tensors could not be used
  int16_t dtype[INLINE_DTYPES];
  int16_t *more;  // owned; all of them, when there are more
};

static struct entry *table;
static size_t table_count;
static int64_t spent_ns;

int64_t cast_dtypes_get_spent(void) {
  return spent_ns;
}

bool cast_call_may_repeat(const struct engine_call *call) {
  static const char *const own[] = {"torch.", "aten::", "aten."};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    if (strncmp(call->op->name, own[i], strlen(own[i])) == 0) {
      return !(call->op->flags & ENGINE_OP_COLLECTIVE);
    }
  }
  return false;
}

// Dtypes

static bool dtype_is_real(int dtype) {
  return dtype >= 0 && dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_FLOAT;
}

static bool dtype_is_complex(int dtype) {
  return dtype >= 0 && dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_COMPLEX;
}

// The key

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

static uint64_t text_mix(uint64_t hash, PyObject *text) {
  Py_ssize_t size = 0;
  const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
  py_error_drop();
  for (Py_ssize_t i = 0; bytes && i < size; i++) {
    hash = mix(hash, (unsigned char)bytes[i]);
  }
  return hash;
}

static uint64_t call_hash(const struct engine_call *call) {
  uint64_t hash = mix((uintptr_t)call->func, (uint64_t)call->in.leaf_count);
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    hash = mix(hash, (uint64_t)leaf->key << 8 | leaf->kind);
    if (leaf->kind == ENGINE_LEAF_TENSOR) {
      const struct engine_tensor *tensor = &call->in.tensor[leaf->tensor];
      hash = mix(hash, (uint64_t)(uint16_t)tensor->dtype << 40 | (uint64_t)(uint32_t)tensor->ndim << 8 |
                           (tensor->flags & ENGINE_TENSOR_DEVICE ? 1 : 0));
    } else if (leaf->kind == ENGINE_LEAF_BOOL) {
      hash = mix(hash, leaf->value == Py_True);
    } else if (leaf->kind == ENGINE_LEAF_STRING) {
      hash = text_mix(hash, leaf->value);
    } else if (leaf->kind == ENGINE_LEAF_OTHER && torch_is(leaf->value, torch_names.py_dtype_type)) {
      hash = mix(hash, (uintptr_t)leaf->value);
    } else if (leaf->kind == ENGINE_LEAF_OTHER) {
      hash = mix(hash, (uintptr_t)Py_TYPE(leaf->value));
    }
  }
  return hash;
}

static void table_clear(void) {
  for (size_t i = 0; i < TABLE_SIZE; i++) {
    PyMem_Free(table[i].more);
  }
  memset(table, 0, TABLE_SIZE * sizeof *table);
  table_count = 0;
}

// The entry of a key, or the free place for it; NULL without memory.
static struct entry *entry_find(struct engine_op *op, uint64_t hash) {
  if (!table && !(table = PyMem_Calloc(TABLE_SIZE, sizeof *table))) {
    PyErr_NoMemory();
    return NULL;
  }
  size_t at = hash >> 20 & (TABLE_SIZE - 1);
  while (table[at].op && (table[at].op != op || table[at].hash != hash)) {
    at = (at + 1) & (TABLE_SIZE - 1);
  }
  return &table[at];
}

static const int16_t *entry_get_dtypes(const struct entry *entry) {
  return entry->more ? entry->more : entry->dtype;
}

// The run on meta tensors

// A tensor like this one without memory; NULL with an exception.
static PyObject *meta_make(const struct engine_tensor *tensor) {
  PyObject *dtype = torch_dtype_get(tensor->dtype);
  if (!dtype || !(tensor->flags & ENGINE_TENSOR_STRIDED)) {
    PyErr_SetString(PyExc_TypeError, "a tensor without strides has no meta tensor");
    return NULL;
  }
  return torch_strided_make(tensor->sizes, tensor->strides, tensor->ndim, dtype, torch_names.py_meta);
}

// The call's function with other arguments and no autograd; NULL with an exception.
static PyObject *gradless_call(const struct engine_call *call, PyObject *args, PyObject *kwargs) {
  PyObject *py_grad = torch_grad_switch(Py_False);
  PyObject *py_result = py_grad ? PyObject_Call(call->func, args, kwargs) : NULL;
  torch_grad_restore(py_grad);
  return py_result;
}

// A copy on the tensor's own device, without history; NULL with an exception.
static PyObject *clone_make(const struct engine_tensor *tensor) {
  PyObject *py_bare = PyObject_CallMethod(tensor->py_tensor, "detach", NULL);
  PyObject *py_clone = py_bare ? PyObject_CallMethod(py_bare, "clone", NULL) : NULL;
  Py_XDECREF(py_bare);
  return py_clone;
}

// The call's function with `make` of every tensor in its place (the same object stays the same); NULL with an
// exception.
static PyObject *stand_in_run(const struct engine_call *call, PyObject *(*make)(const struct engine_tensor *),
                              PyObject *device) {
  int count = call->in.tensor_count;
  PyObject **replacement = PyMem_Calloc((size_t)count + 1, sizeof *replacement);
  PyObject *py_args = NULL, *py_kwargs = NULL, *py_result = NULL;
  if (!replacement) {
    return PyErr_NoMemory();
  }
  int status = 0;
  for (int i = 0; status == 0 && i < count; i++) {
    for (int j = 0; j < i && !replacement[i]; j++) {
      replacement[i] = call->in.tensor[j].py_tensor == call->in.tensor[i].py_tensor ? Py_NewRef(replacement[j]) : NULL;
    }
    if (!replacement[i] && !(replacement[i] = make(&call->in.tensor[i]))) {
      status = -1;
    }
  }
  if (status == 0 && remap_call(call, replacement, device, &py_args, &py_kwargs) == 0) {
    py_result = gradless_call(call, py_args, py_kwargs);
  }
  for (int i = 0; i < count; i++) {
    Py_XDECREF(replacement[i]);
  }
  PyMem_Free(replacement);
  Py_XDECREF(py_args);
  Py_XDECREF(py_kwargs);
  return py_result;
}

// The dtypes of a result into the entry. 0, or -1 with an exception when there is no memory.
static int entry_take(struct entry *entry, PyObject *result) {
  struct engine_leaves leaves;
  engine_leaves_init(&leaves);
  int status = engine_leaves_add(&leaves, result, "out");
  int16_t *more = NULL;
  if (status == 0 && leaves.tensor_count > INLINE_DTYPES &&
      !(more = PyMem_Malloc((size_t)leaves.tensor_count * sizeof *more))) {
    PyErr_NoMemory();
    status = -1;
  }
  if (status == 0) {
    PyMem_Free(entry->more);
    entry->more = more;
    entry->count = leaves.tensor_count;
    for (int i = 0; i < leaves.tensor_count; i++) {
      (more ? more : entry->dtype)[i] = leaves.tensor[i].dtype;
    }
  }
  engine_leaves_reset(&leaves);
  return status;
}

// A result in a dtype that no argument has: the statistics of a normalisation, float32 on one device and float16 on
// another. Meta tensors answer for the former only.
static bool entry_is_doubtful(const struct entry *entry, const struct engine_call *call) {
  for (int i = 0; i < entry->count; i++) {
    int16_t dtype = entry_get_dtypes(entry)[i];
    bool known = !dtype_is_real(dtype);
    for (int j = 0; j < call->in.tensor_count && !known; j++) {
      known = call->in.tensor[j].dtype == dtype;
    }
    if (!known) {
      return true;
    }
  }
  return false;
}

// The device itself with copies of the arguments; generators are put back. NULL, with or without an exception: it could
// not be asked.
static PyObject *device_run(const struct engine_call *call) {
  int device = engine_call_get_device(call);
  PyObject *py_context = torch_names_load(TORCH_RANDOM) == 0
                             ? PyObject_CallFunction(torch_names.py_fork, "([i])", device < 0 ? 0 : device)
                             : NULL;
  py_context = py_context_enter(py_context);
  PyObject *py_result = py_context ? stand_in_run(call, clone_make, NULL) : NULL;
  py_error_drop();
  py_context_leave(py_context);
  return py_result;
}

// The program's own call will warn; this one does not. New reference for py_context_leave, or NULL (no exception).
static PyObject *warnings_ignore(void) {
  PyObject *py_context = py_context_enter(PyObject_CallNoArgs(torch_names.py_catch_warnings));
  if (py_context) {
    Py_XDECREF(PyObject_CallFunction(torch_names.py_filter_warnings, "s", "ignore"));
  }
  py_error_drop();
  return py_context;
}

// Meta tensors, then, in doubt, the device itself with copies of the arguments: its values do not count. A failure of
// the operator leaves entry->count at -1. 0, or -1 with an exception when there is no memory.
static int entry_fill(struct entry *entry, const struct engine_call *call) {
  int64_t begin = dit_record_get_time();
  int status = 0;
  entry->count = -1;
  PyObject *py_quiet = warnings_ignore();
  PyObject *py_result = cast_call_may_repeat(call) ? stand_in_run(call, meta_make, torch_names.py_meta) : NULL;
  py_error_drop();
  if (py_result) {
    status = entry_take(entry, py_result);
    if (status == 0 && entry_is_doubtful(entry, call)) {
      Py_SETREF(py_result, device_run(call));
      py_error_drop();
      status = py_result ? entry_take(entry, py_result) : 0;
    }
  }
  Py_XDECREF(py_result);
  py_context_leave(py_quiet);
  spent_ns += dit_record_get_time() - begin;
  return status;
}

// Promotion

// torch.result_type of all tensors.
static int promote_all(const struct engine_leaves *in) {
  struct dit_promotion promotion = DIT_PROMOTION_INIT;
  for (int i = 0; i < in->tensor_count; i++) {
    dit_promotion_add(in->tensor[i].ndim > 0 ? &promotion.dims : &promotion.zeros, in->tensor[i].dtype);
  }
  return dit_promotion_get(&promotion);
}

static int16_t promoted_choose(int promoted, int16_t actual) {
  if (dtype_is_complex(actual) && (dtype_is_real(promoted) || dtype_is_complex(promoted))) {
    return (int16_t)dit_dtype_get_complex(promoted);
  }
  if (dtype_is_real(actual) && (dtype_is_real(promoted) || dtype_is_complex(promoted))) {
    return (int16_t)dit_dtype_get_real(promoted);
  }
  return actual;
}

int cast_result_dtypes(const struct engine_call *call, const struct engine_leaves *out, int16_t *dtypes) {
  uint64_t hash = call_hash(call);
  struct entry *entry = entry_find(call->op, hash);
  if (entry && !entry->op) {
    struct entry fresh = {.op = call->op, .hash = hash};
    if (entry_fill(&fresh, call) < 0) {  // which may have run other calls: look for the place again
      return -1;
    }
    if (table_count >= TABLE_MOST) {
      table_clear();
    }
    entry = entry_find(call->op, hash);
    if (entry->op) {
      PyMem_Free(entry->more);
      table_count--;
    }
    *entry = fresh;
    table_count++;
  }
  if (!entry) {
    return -1;
  }
  bool known = entry->count == out->tensor_count;
  int promoted = known ? -1 : promote_all(&call->in);
  for (int i = 0; i < out->tensor_count; i++) {
    int16_t actual = out->tensor[i].dtype;
    bool inexact = dtype_is_real(actual) || dtype_is_complex(actual);
    int16_t wanted = known ? entry_get_dtypes(entry)[i] : promoted_choose(promoted, actual);
    bool sane = dtype_is_real(wanted) || dtype_is_complex(wanted);
    dtypes[i] = inexact && sane ? wanted : actual;
  }
  return 0;
}
