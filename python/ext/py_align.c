// Two runs side by side for Python: ditorch._C.RunPair over dit/align.h. It reads two LogReaders to their ends, aligns
// their calls, and is then an iterable of plain tuples; numbers stand for texts, which `text` gives.
#include "dit/align.h"
#include "dit/alloc.h"
#include "py_log_dict.h"

struct run_pair {
  PyObject ob_base;
  struct dit_align_names *names;
  struct dit_align_run run[2];
  struct dit_align_pair *pairs;
  size_t count, next;
};

static bool signals_ask(void *context) {
  bool *raised = context;
  PyGILState_STATE gil = PyGILState_Ensure();
  *raised = PyErr_CheckSignals() < 0;
  PyGILState_Release(gil);
  return !*raised;
}

static const struct dit_align_stats *stats_get(const struct run_pair *self, int side, int64_t index) {
  uint32_t stats = index < 0 ? 0 : self->run[side].calls[index].stats;
  return stats ? &self->run[side].stats[stats - 1] : NULL;
}

static enum dit_align_verdict pair_judge(const struct run_pair *self, int64_t a, int64_t b, double *error) {
  const struct dit_align_stats *left = stats_get(self, 0, a), *right = stats_get(self, 1, b);
  *error = 0.0;
  return left && right ? dit_align_judge(left, right, error) : DIT_ALIGN_UNKNOWN;
}

// Reads both runs and aligns them; no GIL.
static enum dit_status runs_take(struct run_pair *self, PyObject *const *readers, size_t limit, bool *raised,
                                 struct dit_error *err) {
  enum dit_status status = dit_align_names_create(&self->names, err);
  for (int side = 0; side < 2 && status == DIT_OK; side++) {
    struct dit_record_reader *reader = py_log_reader_get(readers[side]);
    status = dit_record_reader_rewind(reader, err);
    if (status == DIT_OK) {
      status = dit_align_run_load(reader, self->names, limit, signals_ask, raised, &self->run[side], err);
    }
  }
  if (status == DIT_OK) {
    status = dit_align_runs(&self->run[0], &self->run[1], self->names, &self->pairs, &self->count, err);
  }
  return status;
}

static PyObject *pair_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"a", "b", "limit", NULL};
  PyObject *readers[2] = {NULL, NULL};
  Py_ssize_t limit = (Py_ssize_t)1 << 30;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|n:RunPair", names, &readers[0], &readers[1], &limit)) {
    return NULL;
  }
  PyObject *py_module = PyType_GetModule(type);  // borrowed
  if (!py_module || readers[0] == readers[1]) {
    return py_module ? PyErr_Format(PyExc_ValueError, "a run cannot be compared with its own LogReader") : NULL;
  }
  if (py_log_reader_enter(py_module, readers[0]) < 0) {
    return NULL;
  }
  if (py_log_reader_enter(py_module, readers[1]) < 0) {
    (void)py_log_reader_leave(readers[0]);
    return NULL;
  }
  struct run_pair *self = (struct run_pair *)type->tp_alloc(type, 0);
  struct dit_error err = {0};
  enum dit_status status = DIT_ERR_NOMEM;
  bool raised = false;
  if (self) {
    Py_BEGIN_ALLOW_THREADS;
    status = runs_take(self, readers, limit > 0 ? (size_t)limit : 0, &raised, &err);
    Py_END_ALLOW_THREADS;
  }
  raised |= py_log_reader_leave(readers[0]);
  raised |= py_log_reader_leave(readers[1]);
  if (!self || raised || status != DIT_OK) {
    Py_XDECREF((PyObject *)self);
    if (self && !raised && status == DIT_ERR_NOMEM) {  // not the device's memory
      PyErr_SetString(PyExc_MemoryError, err.message);
    } else if (self && !raised) {
      (void)py_status_raise(py_module, status, &err);
    }
    return NULL;
  }
  return (PyObject *)self;
}

static void pair_dealloc(PyObject *object) {
  struct run_pair *self = (struct run_pair *)object;
  PyTypeObject *type = Py_TYPE(object);
  dit_align_run_reset(&self->run[0]);
  dit_align_run_reset(&self->run[1]);
  dit_free(self->pairs);
  dit_align_names_destroy(self->names);
  type->tp_free(object);
  Py_DECREF(type);
}

// Iteration

static PyObject *pair_iter(PyObject *object) {
  ((struct run_pair *)object)->next = 0;
  return Py_NewRef(object);
}

static PyObject *pair_next(PyObject *object) {
  static const struct dit_align_call none = {.host_ns = -1, .device_ns = -1};
  struct run_pair *self = (struct run_pair *)object;
  if (self->next == self->count) {
    return NULL;
  }
  const struct dit_align_pair *pair = &self->pairs[self->next++];
  const struct dit_align_call *a = pair->a < 0 ? &none : &self->run[0].calls[pair->a];
  const struct dit_align_call *b = pair->b < 0 ? &none : &self->run[1].calls[pair->b];
  const struct dit_align_call *one = pair->a < 0 ? b : a;
  double error;
  enum dit_align_verdict verdict = pair_judge(self, pair->a, pair->b, &error);
  const struct dit_align_stats *left = stats_get(self, 0, pair->a), *right = stats_get(self, 1, pair->b);
  return Py_BuildValue("iiOidLIIHHIILLLL", (int)pair->a, (int)pair->b, pair->moved ? Py_True : Py_False, (int)verdict,
                       error, (long long)one->step, (unsigned)one->name, (unsigned)one->module,
                       (unsigned short)a->flags, (unsigned short)b->flags, left ? (unsigned)left->dtype : 0U,
                       right ? (unsigned)right->dtype : 0U, (long long)a->host_ns, (long long)b->host_ns,
                       (long long)a->device_ns, (long long)b->device_ns);
}

static Py_ssize_t pair_length(PyObject *object) {
  return (Py_ssize_t)((struct run_pair *)object)->count;
}

// Details

static PyObject *text_build(const struct run_pair *self, uint32_t number) {
  struct dit_record_text text = dit_align_names_get(self->names, number);
  return PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.size, "replace");
}

PyDoc_STRVAR(text_doc, "text(number: int, /) -> str\n\nThe text of a number; empty for 0.");
static PyObject *pair_text(PyObject *object, PyObject *argument) {
  unsigned long number = PyLong_AsUnsignedLong(argument);
  if (number == (unsigned long)-1 && PyErr_Occurred()) {
    return NULL;
  }
  return text_build((struct run_pair *)object, number > UINT32_MAX ? 0 : (uint32_t)number);
}

static PyObject *stats_build(const struct run_pair *self, const struct dit_align_stats *stats) {
  if (!stats) {
    return Py_NewRef(Py_None);
  }
  return Py_BuildValue("{s:L,s:d,s:d,s:d,s:d,s:L,s:L,s:N,s:N}", "numel", (long long)stats->numel, "norm", stats->norm,
                       "mean", stats->mean, "min", stats->min, "max", stats->max, "nan", (long long)stats->nan, "inf",
                       (long long)stats->inf, "dtype", text_build(self, stats->dtype), "hash",
                       stats->hashed ? PyLong_FromUnsignedLongLong(stats->hash) : Py_NewRef(Py_None));
}

static int index_check(const struct run_pair *self, int side, Py_ssize_t index) {
  if (side < 0 || side > 1 || index < 0 || (size_t)index >= self->run[side].count) {
    PyErr_Format(PyExc_IndexError, "run %d has no call %zd", side, index);
    return -1;
  }
  return 0;
}

PyDoc_STRVAR(call_doc,
             "call(side: int, index: int, /) -> dict[str, Any]\n\nEverything known of one call: side 0 is run a, 1 is "
             "run b.");
static PyObject *pair_call(PyObject *object, PyObject *args) {
  struct run_pair *self = (struct run_pair *)object;
  int side = 0;
  Py_ssize_t index = 0;
  if (!PyArg_ParseTuple(args, "in:call", &side, &index) || index_check(self, side, index) < 0) {
    return NULL;
  }
  const struct dit_align_call *call = &self->run[side].calls[index];
  return Py_BuildValue("{s:K,s:I,s:L,s:L,s:N,s:N,s:N,s:H,s:H,s:L,s:L,s:N}", "id", (unsigned long long)call->id, "pid",
                       (unsigned)call->pid, "step", (long long)call->step, "time", (long long)call->time_ns, "name",
                       text_build(self, call->name), "module", text_build(self, call->module), "location",
                       text_build(self, call->location), "flags", (unsigned short)call->flags, "round",
                       (unsigned short)call->round, "host_ns", (long long)call->host_ns, "device_ns",
                       (long long)call->device_ns, "stats", stats_build(self, stats_get(self, side, index)));
}

PyDoc_STRVAR(judge_doc,
             "judge(a: int, b: int, /) -> tuple[int, float]\n\nVerdict (0 unknown, 1 shapes differ, 2 equal, 3 error "
             "is told) and error of any two calls.");
static PyObject *pair_judge_any(PyObject *object, PyObject *args) {
  struct run_pair *self = (struct run_pair *)object;
  Py_ssize_t a = 0, b = 0;
  if (!PyArg_ParseTuple(args, "nn:judge", &a, &b) || index_check(self, 0, a) < 0 || index_check(self, 1, b) < 0) {
    return NULL;
  }
  double error;
  enum dit_align_verdict verdict = pair_judge(self, a, b, &error);
  return Py_BuildValue("id", (int)verdict, error);
}

PyDoc_STRVAR(sizes_doc, "sizes() -> tuple[int, int, int, int]\n\nCalls of a and of b, records read of a and of b.");
static PyObject *pair_sizes(PyObject *object, PyObject *unused) {
  const struct run_pair *self = (struct run_pair *)object;
  (void)unused;
  return Py_BuildValue("nnKK", (Py_ssize_t)self->run[0].count, (Py_ssize_t)self->run[1].count,
                       (unsigned long long)self->run[0].records, (unsigned long long)self->run[1].records);
}

static PyMethodDef pair_methods[] = {{"text", pair_text, METH_O, text_doc},
                                     {"call", pair_call, METH_VARARGS, call_doc},
                                     {"judge", pair_judge_any, METH_VARARGS, judge_doc},
                                     {"sizes", pair_sizes, METH_NOARGS, sizes_doc},
                                     {NULL, NULL, 0, NULL}};

PyDoc_STRVAR(pair_doc,
             "RunPair(a: LogReader, b: LogReader, limit: int = 1 << 30)\n\nThe calls of two runs, aligned. Iteration "
             "gives tuples (a, b, moved, verdict, error, step, name, module, flags_a, flags_b, dtype_a, dtype_b, "
             "host_a, host_b, device_a, device_b); a or b is -1 for a call of one run alone. `limit`: bytes per run.");
static PyType_Slot pair_slots[] = {{Py_tp_doc, (void *)pair_doc},
                                   {Py_tp_new, (void *)(uintptr_t)pair_new},
                                   {Py_tp_dealloc, (void *)(uintptr_t)pair_dealloc},
                                   {Py_tp_iter, (void *)(uintptr_t)pair_iter},
                                   {Py_tp_iternext, (void *)(uintptr_t)pair_next},
                                   {Py_sq_length, (void *)(uintptr_t)pair_length},
                                   {Py_tp_methods, pair_methods},
                                   {0, NULL}};
static PyType_Spec pair_spec = {.name = "ditorch._C.RunPair",
                                .basicsize = sizeof(struct run_pair),
                                .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                                .slots = pair_slots};

int py_align_add_types(PyObject *module) {
  PyObject *py_type = PyType_FromModuleAndSpec(module, &pair_spec, NULL);
  int result = py_type ? PyModule_AddType(module, (PyTypeObject *)py_type) : -1;
  Py_XDECREF(py_type);
  return result;
}
