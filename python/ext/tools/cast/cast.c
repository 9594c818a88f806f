// OpDtypeCast: operators run in another dtype on their own device.
//
// A call: which map (asked of Python once per operator) -> is it a call that is cast at all -> copies of the tensors in
// the map -> the operator -> arguments that it wrote to are written back -> results get the dtypes they would have had.
// Whatever goes wrong on the way (the operator refuses the dtype, its result is a view of a copy) ends in running the
// call as the program wrote it: originals are untouched until then.
#include "tools/cast/cast.h"

#include <limits.h>
#include <string.h>

#include "dit/dtype.h"
#include "dit/operator.h"
#include "dit/record.h"
#include "tools/cast/dtypes.h"
#include "tools/cast/torch.h"
#include "tools/remap.h"

#define IN_VAIN_MOST 3  // consecutive calls, before an operator is left alone

// Maps

static void op_forget_map(struct cast_op *op) {
  op->pair_count = 0;
  op->wanted = false;
  Py_CLEAR(op->py_config);
  memset(op->in_vain, 0, sizeof op->in_vain);
}

static int pair_add(struct cast_op *op, PyObject *from, PyObject *to) {
  int source = torch_dtype_find(from), target = torch_dtype_find(to);
  if (source < 0 || target < 0 || op->pair_count == CAST_MOST_PAIRS) {
    PyErr_Format(PyExc_ValueError, "%R->%R: at most %d pairs of torch dtypes make a map", from, to, CAST_MOST_PAIRS);
    return -1;
  }
  if (source != target) {
    op->pair[op->pair_count++] = (struct cast_pair){.from = (int16_t)source,
                                                    .to = (int16_t)target,
                                                    .py_to = torch_dtype_get(target),
                                                    .py_convert = cast_convert_find(target)};
  }
  return 0;
}

// plan(name) -> None: leave it alone; or (text, {dtype: dtype}).
static int op_ask_map(struct cast_state *state, struct cast_op *op) {
  op_forget_map(op);
  PyObject *py_plan = state->py_plan ? PyObject_CallOneArg(state->py_plan, op->op->py_name) : Py_NewRef(Py_None);
  if (!py_plan) {
    return -1;
  }
  PyObject *text = NULL, *map = NULL, *from, *to;
  int status = 0;
  if (py_plan != Py_None) {
    if (!PyArg_ParseTuple(py_plan, "O!O!;a plan is (text, {dtype: dtype})", &PyUnicode_Type, &text, &PyDict_Type,
                          &map)) {
      status = -1;
    }
    Py_ssize_t at = 0;
    while (status == 0 && PyDict_Next(map, &at, &from, &to)) {
      status = pair_add(op, from, to);
    }
    op->py_config = status == 0 ? Py_NewRef(text) : NULL;
    op->wanted = status == 0 && op->pair_count > 0;
  }
  Py_DECREF(py_plan);
  return status;
}

static struct cast_op *op_get(struct cast_state *state, struct engine_op *engine_op) {
  struct cast_op *op = cast_op_find(state, engine_op);
  if (op && op->generation != engine_op->generation) {
    if (op_ask_map(state, op) < 0) {
      return NULL;
    }
    op->generation = engine_op->generation;
  }
  return op;
}

static const struct cast_pair *pair_find(const struct cast_op *op, int16_t dtype) {
  for (int i = 0; i < op->pair_count; i++) {
    if (op->pair[i].from == dtype) {
      return &op->pair[i];
    }
  }
  return NULL;
}

// Is this call cast?

static bool leaf_is_dtype(const struct engine_leaf *leaf) {
  return leaf->kind == ENGINE_LEAF_OTHER && torch_is(leaf->value, torch_names.py_dtype_type);
}

static bool call_names_dtype(const struct engine_call *call) {
  for (int i = 0; i < call->in.leaf_count; i++) {
    if (leaf_is_dtype(&call->in.leaf[i])) {
      return true;
    }
  }
  return false;
}

// x[1:3], x[..., None] = y: the index has neither tensors nor lists, so it only shows memory.
static bool call_is_plain_index(const struct engine_call *call) {
  const char *name = call->op->name;
  size_t size = strlen(name);
  bool gets = size > 11 && strcmp(name + size - 11, "__getitem__") == 0;
  bool sets = size > 11 && strcmp(name + size - 11, "__setitem__") == 0;
  if ((!gets && !sets) || PyTuple_GET_SIZE(call->args) < 2) {
    return false;
  }
  for (int i = 0; i < call->in.leaf_count; i++) {
    const struct engine_leaf *leaf = &call->in.leaf[i];
    if (leaf->top == 1 && (leaf->kind == ENGINE_LEAF_TENSOR || leaf->kind == ENGINE_LEAF_BOOL)) {
      return false;
    }
  }
  PyObject *index = PyTuple_GET_ITEM(call->args, 1);
  if (!PyTuple_Check(index)) {
    return PyLong_Check(index) || PySlice_Check(index) || index == Py_None || index == Py_Ellipsis;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); i++) {
    PyObject *item = PyTuple_GET_ITEM(index, i);
    if (!PyLong_Check(item) && !PySlice_Check(item) && item != Py_None && item != Py_Ellipsis) {
      return false;
    }
  }
  return true;
}

static int first_find(const struct engine_leaves *in, int i) {
  for (int j = 0; j < i; j++) {
    if (in->tensor[j].py_tensor == in->tensor[i].py_tensor) {
      return j;
    }
  }
  return i;
}

// The first place of each tensor, for long lists: by a table of addresses. 0 or -1.
static int firsts_find(struct cast_job *job) {
  const struct engine_leaves *in = &job->call->in;
  if (job->count <= 32) {
    for (int i = 0; i < job->count; i++) {
      job->item[i].first = first_find(in, i);
    }
    return 0;
  }
  size_t capacity = 64;
  while (capacity < (size_t)job->count * 2) {
    capacity *= 2;
  }
  int *places = PyMem_Malloc(capacity * sizeof *places);
  if (!places) {
    PyErr_NoMemory();
    return -1;
  }
  memset(places, -1, capacity * sizeof *places);
  for (int i = 0; i < job->count; i++) {
    size_t at = ((uintptr_t)in->tensor[i].py_tensor >> 4) * 0x9E3779B97F4A7C15u >> 20 & (capacity - 1);
    while (places[at] >= 0 && in->tensor[places[at]].py_tensor != in->tensor[i].py_tensor) {
      at = (at + 1) & (capacity - 1);
    }
    places[at] = places[at] < 0 ? i : places[at];
    job->item[i].first = places[at];
  }
  PyMem_Free(places);
  return 0;
}

// Kernels of whole optimizers read their step counts (and found_inf, grad_scale) as float32, whatever the parameters
// are. The number of leading arguments that may be cast.
static int call_count_castable(const struct engine_call *call) {
  const struct dit_operator *row = dit_operator_find(call->op->name);
  return row && row->castable > 0 ? row->castable : INT_MAX;
}

// Which tensors are cast. The number of them, or -1 - reason when the call is to be left alone.
static int job_choose(struct cast_job *job) {
  const struct engine_leaves *in = &job->call->in;
  int casts = 0, limit = call_count_castable(job->call);
  for (int i = 0; i < job->count; i++) {
    job->item[i] = (struct cast_item){.pair = pair_find(job->op, in->tensor[i].dtype), .version = -1, .first = i};
  }
  for (int i = 0; limit < INT_MAX && i < in->leaf_count; i++) {
    if (in->leaf[i].tensor >= 0 && in->leaf[i].top >= limit) {
      job->item[in->leaf[i].tensor].pair = NULL;
    }
  }
  for (int i = 0; i < job->count; i++) {
    const struct engine_tensor *tensor = &in->tensor[i];
    if (!job->item[i].pair) {
      continue;
    }
    if (!(tensor->flags & ENGINE_TENSOR_STRIDED) || (tensor->flags & ENGINE_TENSOR_SUBCLASS)) {
      return -1 - CAST_LEFT_UNUSUAL;
    }
    casts++;
  }
  return casts > 0 ? casts : -1 - CAST_LEFT_NOTHING;
}

static int op_is_left(const struct cast_op *op) {
  for (int reason = 0; reason < CAST_LEFTS; reason++) {
    if (op->in_vain[reason] >= IN_VAIN_MOST) {
      return reason;
    }
  }
  return -1;
}

// The reason to leave the call alone, or -1.
static int job_prepare(struct cast_job *job) {
  int reason = op_is_left(job->op);
  if (reason >= 0) {
    return reason;
  }
  int casts = job_choose(job);
  if (casts < 0) {
    return -1 - casts;
  }
  return call_names_dtype(job->call)                  ? CAST_LEFT_DTYPE
         : call_is_plain_index(job->call)             ? CAST_LEFT_INDEX
         : engine_call_has_sparse_gradient(job->call) ? CAST_LEFT_UNUSUAL
         : engine_guard_has_tracer()                  ? CAST_LEFT_UNUSUAL
                                                      : -1;
}

// One call

static PyObject *job_run_plain(struct cast_job *job, struct engine_chain *chain, int reason) {
  PyObject *py_result = engine_chain_run(chain, job->call->args, job->call->kwargs);
  job->op->left[reason] += py_result != NULL;
  return py_result;
}

// Run the call as it is after an attempt. An operator for which that was right some times in a row is left alone.
static PyObject *job_run_again(struct cast_job *job, struct engine_chain *chain, int reason) {
  PyObject *py_result = job_run_plain(job, chain, reason);
  if (py_result && job->op->in_vain[reason] < IN_VAIN_MOST) {
    job->op->in_vain[reason]++;
  }
  return py_result;
}

// What operators raise, by the exact type. Others come from elsewhere (KeyboardInterrupt, a hook that ends a
// recomputation early) and are not ours to judge.
static bool error_is_operators(void) {
  PyObject *kind = PyErr_Occurred();
  if (kind == PyExc_RuntimeError || kind == PyExc_NotImplementedError || kind == PyExc_TypeError ||
      kind == PyExc_ValueError || kind == PyExc_IndexError) {
    return true;
  }
  const char *name = PyType_Check(kind) ? ((PyTypeObject *)(void *)kind)->tp_name : "";
  return strcmp(name, "torch.OutOfMemoryError") == 0 || strcmp(name, "torch._C._LinAlgError") == 0;
}

// The operator refuses what it was given: as the program wrote it, it may run, or raise what the program expects.
static PyObject *job_recover(struct cast_job *job, struct engine_chain *chain) {
  if (!error_is_operators() || !cast_call_may_repeat(job->call)) {
    return NULL;
  }
  py_error_drop();
  return job_run_again(job, chain, CAST_LEFT_REFUSED);
}

static bool items_changed(const struct cast_job *job) {
  for (int i = 0; i < job->count; i++) {
    if (job->item[i].changed) {
      return true;
    }
  }
  return false;
}

// After the operator: takes its result. New reference or NULL.
static PyObject *job_finish(struct cast_job *job, struct engine_chain *chain, PyObject *py_raw) {
  struct engine_leaves out;
  PyObject *py_result = NULL;
  bool may_repeat = cast_call_may_repeat(job->call);
  engine_leaves_init(&out);
  if (engine_leaves_add(&out, py_raw, "out") < 0 || cast_copies_look(job) < 0) {
    goto done;
  }
  if (may_repeat && cast_copies_are_shown(job, &out)) {
    py_result = job_run_again(job, chain, CAST_LEFT_VIEW);
    job->casts = 0;
  } else if (may_repeat && out.tensor_count == 0 && !items_changed(job)) {
    py_result = job_run_again(job, chain, CAST_LEFT_NO_TENSOR);
    job->casts = 0;
  } else if (cast_copies_write_back(job) == 0) {
    py_result = cast_result_finish(job, py_raw, &out);
    memset(job->op->in_vain, 0, sizeof job->op->in_vain);
  }
done:
  engine_leaves_reset(&out);
  return py_result;
}

static PyObject *job_run(struct cast_job *job, struct engine_chain *chain) {
  int64_t begin = dit_record_get_time(), inside = 0, outside = 0, asked = cast_dtypes_get_spent();
  PyObject *py_args = NULL, *py_kwargs = NULL, *py_raw = NULL, *py_result = NULL;
  PyObject **replacement = PyMem_Malloc((size_t)job->count * sizeof(PyObject *));
  if (!replacement) {
    return PyErr_NoMemory();
  }
  if (firsts_find(job) < 0 || cast_copies_make(job) < 0) {
    py_result = job_recover(job, chain);
    goto done;
  }
  for (int i = 0; i < job->count; i++) {
    replacement[i] = job->item[i].py_copy;
  }
  if (remap_call(job->call, replacement, NULL, &py_args, &py_kwargs) < 0) {
    goto done;
  }
  inside = dit_record_get_time();
  py_raw = engine_chain_run(chain, py_args, py_kwargs);
  outside = dit_record_get_time();
  py_result = py_raw ? job_finish(job, chain, py_raw) : job_recover(job, chain);
  if (py_result && py_raw && job->casts) {
    int64_t end = dit_record_get_time() - (cast_dtypes_get_spent() - asked);
    cast_job_tell(job, outside - inside, inside - begin + (end - outside));
  }
done:
  PyMem_Free(replacement);
  Py_XDECREF(py_raw);
  Py_XDECREF(py_args);
  Py_XDECREF(py_kwargs);
  return py_result;
}

static PyObject *cast_call(struct engine_tool *tool, struct engine_call *call, struct engine_chain *chain) {
  struct cast_op *op = op_get(tool->state, call->op);
  if (!op) {
    return NULL;
  }
  if (!op->wanted) {
    return engine_chain_run(chain, call->args, call->kwargs);
  }
  struct cast_job job;
  memset(&job, 0, offsetof(struct cast_job, inline_item));
  job.tool = tool;
  job.call = call;
  job.op = op;
  job.count = call->in.tensor_count;
  job.item = job.inline_item;
  if (job.count > CAST_INLINE && !(job.item = PyMem_Malloc((size_t)job.count * sizeof *job.item))) {
    return PyErr_NoMemory();
  }
  int reason = job_prepare(&job);
  PyObject *py_result = reason >= 0 ? job_run_plain(&job, chain, reason) : job_run(&job, chain);
  if (reason < 0) {
    cast_copies_drop(&job);
  }
  if (job.item != job.inline_item) {
    PyMem_Free(job.item);
  }
  return py_result;
}

// The tool

static int cast_configure(struct engine_tool *tool, PyObject *options) {
  PyObject *plan = PyDict_GetItemString(options, "plan");
  if (plan && !PyCallable_Check(plan)) {
    PyErr_Format(PyExc_TypeError, "plan is a function from an operator's name to its map, not %s",
                 Py_TYPE(plan)->tp_name);
    return -1;
  }
  struct cast_state *state = PyMem_Calloc(1, sizeof *state);
  if (!state) {
    PyErr_NoMemory();
    return -1;
  }
  state->py_plan = plan ? Py_NewRef(plan) : NULL;
  tool->state = state;
  return cast_torch_load();
}

static int cast_start(struct engine_tool *tool) {
  cast_ops_reset(tool->state);
  return 0;
}

static int cast_stop(struct engine_tool *tool) {
  struct cast_state *state = tool->state;
  Py_CLEAR(state->last.py_facts);
  return 0;
}

static void cast_destroy(struct engine_tool *tool) {
  struct cast_state *state = tool->state;
  if (state) {
    cast_ops_destroy(state);
    Py_CLEAR(state->last.py_facts);
    Py_CLEAR(state->py_plan);
    PyMem_Free(state);
    tool->state = NULL;
  }
}

const struct engine_tool_vtable engine_tool_cast = {
    .name = "cast",
    .hook = "OpDtypeCastHook",
    .needs = ENGINE_NEED_LOCATION | ENGINE_NEED_MODULE,
    .order = 10,
    .configure = cast_configure,
    .start = cast_start,
    .call = cast_call,
    .stop = cast_stop,
    .destroy = cast_destroy,
    .describe = cast_describe,
    .extra = cast_extra,
};
