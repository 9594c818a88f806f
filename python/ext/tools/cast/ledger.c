// What the dtype-cast tool did: numbers per operator, the record of a call, the facts for the full console.
#include <stdio.h>
#include <string.h>

#include "dit/dtype.h"
#include "engine/log.h"
#include "tools/cast/cast.h"
#include "tools/cast/dtypes.h"

static const char *const left_names[CAST_LEFTS] = {"nothing", "dtype",     "index",  "unusual",
                                                   "view",    "no_tensor", "refused"};

// The table of operators

static size_t slot_find(struct cast_op *const *ops, size_t capacity, const struct engine_op *op) {
  size_t at = (((uintptr_t)op >> 4) * 0x9E3779B97F4A7C15u) >> 20 & (capacity - 1);
  while (ops[at] && ops[at]->op != op) {
    at = (at + 1) & (capacity - 1);
  }
  return at;
}

static int table_grow(struct cast_state *state) {
  size_t capacity = state->op_capacity ? state->op_capacity * 2 : 128;
  struct cast_op **ops = PyMem_Calloc(capacity, sizeof *ops);
  if (!ops) {
    PyErr_NoMemory();
    return -1;
  }
  for (size_t i = 0; i < state->op_capacity; i++) {
    if (state->ops[i]) {
      ops[slot_find(ops, capacity, state->ops[i]->op)] = state->ops[i];
    }
  }
  PyMem_Free(state->ops);
  state->ops = ops;
  state->op_capacity = capacity;
  return 0;
}

struct cast_op *cast_op_find(struct cast_state *state, struct engine_op *op) {
  if (state->op_count * 2 >= state->op_capacity && table_grow(state) < 0) {
    return NULL;
  }
  size_t at = slot_find(state->ops, state->op_capacity, op);
  if (!state->ops[at]) {
    struct cast_op *fresh = PyMem_Calloc(1, sizeof *fresh);
    if (!fresh) {
      PyErr_NoMemory();
      return NULL;
    }
    fresh->op = op;
    state->ops[at] = fresh;
    state->op_count++;
  }
  return state->ops[at];
}

// Entries stay: a call on another thread may still use one.
void cast_ops_reset(struct cast_state *state) {
  state->spent_ns = cast_dtypes_get_spent();
  for (size_t i = 0; i < state->op_capacity; i++) {
    struct cast_op *op = state->ops[i];
    if (op) {
      op->generation = 0;
      memset(op->in_vain, 0, sizeof op->in_vain);
      op->calls = op->casts = op->backs = op->written = op->bytes = 0;
      memset(op->left, 0, sizeof op->left);
      op->op_ns = op->tool_ns = 0;
    }
  }
}

void cast_ops_destroy(struct cast_state *state) {
  for (size_t i = 0; i < state->op_capacity; i++) {
    if (state->ops[i]) {
      Py_XDECREF(state->ops[i]->py_config);
      PyMem_Free(state->ops[i]);
    }
  }
  PyMem_Free(state->ops);
  state->ops = NULL;
  state->op_capacity = state->op_count = 0;
}

// One call

// "torch.float16->torch.float32 x3", several separated by ", ".
static size_t casts_format(const struct cast_job *job, char *text, size_t size) {
  size_t length = 0;
  text[0] = '\0';
  for (int p = 0; p < job->op->pair_count; p++) {
    const struct cast_pair *pair = &job->op->pair[p];
    int count = 0;
    for (int i = 0; i < job->count; i++) {
      count += job->item[i].pair == pair && job->item[i].first == i;
    }
    if (count) {
      int wrote = snprintf(text + length, size - length, "%storch.%s->torch.%s x%d", length ? ", " : "",
                           dit_dtype_get_name(pair->from), dit_dtype_get_name(pair->to), count);
      if (wrote < 0 || (size_t)wrote >= size - length) {
        break;
      }
      length += (size_t)wrote;
    }
  }
  text[length] = '\0';
  return length;
}

static void job_log(const struct cast_job *job, int64_t op_ns) {
  static uint32_t key_cast, key_back, key_written;
  if (!engine_log_get()) {
    return;
  }
  bool known = key_cast || (dit_record_intern("cast", 4, &key_cast, NULL) == DIT_OK &&
                            dit_record_intern("cast_back", 9, &key_back, NULL) == DIT_OK &&
                            dit_record_intern("written_back", 12, &key_written, NULL) == DIT_OK);
  struct dit_record_builder *builder = known ? engine_log_begin(job->tool, job->call, ENGINE_RECORD_CALL) : NULL;
  if (!builder) {
    return;
  }
  char text[512];
  size_t size = casts_format(job, text, sizeof text);
  dit_record_field_i64(builder, engine_key_host_ns, op_ns);
  dit_record_field_string(builder, key_cast, text, size);
  dit_record_field_i64(builder, key_back, job->backs);
  dit_record_field_i64(builder, key_written, job->written);
  dit_record_field_i64(builder, engine_key_bytes, (int64_t)job->bytes);
  engine_log_leaves(builder, &job->call->in);
  engine_log_commit(builder);
}

// For the full console: {"inputs": [(tensor, from, to)], "outputs": [...], "config": text}.
static PyObject *facts_build(struct cast_job *job) {
  PyObject *py_inputs = PyList_New(0);
  for (int i = 0; py_inputs && i < job->count; i++) {
    const struct cast_pair *pair = job->item[i].pair;
    PyObject *py_row = NULL;
    if (pair) {
      py_row = Py_BuildValue("(iss)", i, dit_dtype_get_name(pair->from), dit_dtype_get_name(pair->to));
      if (!py_row || PyList_Append(py_inputs, py_row) < 0) {
        Py_CLEAR(py_inputs);
      }
      Py_XDECREF(py_row);
    }
  }
  if (!py_inputs) {
    return NULL;
  }
  PyObject *py_outputs = job->py_results ? Py_NewRef(job->py_results) : PyList_New(0);
  return Py_BuildValue("{s:N,s:N,s:O}", "inputs", py_inputs, "outputs", py_outputs, "config",
                       job->op->py_config ? job->op->py_config : Py_None);
}

void cast_job_tell(struct cast_job *job, int64_t op_ns, int64_t tool_ns) {
  struct cast_op *op = job->op;
  struct cast_state *state = job->tool->state;
  op->calls++;
  op->casts += (uint64_t)job->casts;
  op->backs += (uint64_t)job->backs;
  op->written += (uint64_t)job->written;
  op->bytes += job->bytes;
  op->op_ns += op_ns;
  op->tool_ns += tool_ns;
  job_log(job, op_ns);
  if (job->tool->py_console) {
    PyObject *py_facts = facts_build(job);
    py_error_drop();
    Py_XSETREF(state->last.py_facts, py_facts);
    state->last.id = job->call->id;
  }
}

PyObject *cast_extra(struct engine_tool *tool, struct engine_call *call) {
  struct cast_state *state = tool->state;
  if (!state->last.py_facts || state->last.id != call->id) {
    return NULL;
  }
  PyObject *py_facts = state->last.py_facts;
  state->last.py_facts = NULL;
  return py_facts;
}

// For Python

static PyObject *op_describe(const struct cast_op *op) {
  PyObject *py_row = Py_BuildValue("{s:O,s:O,s:K,s:K,s:K,s:K,s:K,s:L,s:L}", "name", op->op->py_name, "config",
                                   op->py_config ? op->py_config : Py_None, "calls", (unsigned long long)op->calls,
                                   "casts", (unsigned long long)op->casts, "backs", (unsigned long long)op->backs,
                                   "written", (unsigned long long)op->written, "bytes", (unsigned long long)op->bytes,
                                   "op_ns", (long long)op->op_ns, "tool_ns", (long long)op->tool_ns);
  PyObject *py_left = py_row ? PyDict_New() : NULL;
  for (int reason = 0; py_left && reason < CAST_LEFTS; reason++) {
    if (op->left[reason] &&
        py_dict_take(py_left, left_names[reason], PyLong_FromUnsignedLongLong(op->left[reason])) < 0) {
      Py_CLEAR(py_left);
    }
  }
  if (!py_left || py_dict_take(py_row, "left", py_left) < 0) {
    Py_CLEAR(py_row);
  }
  return py_row;
}

PyObject *cast_describe(struct engine_tool *tool) {
  const struct cast_state *state = tool->state;
  PyObject *py_rows = PyList_New(0);
  for (size_t i = 0; py_rows && i < state->op_capacity; i++) {
    const struct cast_op *op = state->ops[i];
    if (!op || !op->wanted) {
      continue;
    }
    PyObject *py_row = op_describe(op);
    if (!py_row || PyList_Append(py_rows, py_row) < 0) {
      Py_CLEAR(py_rows);
    }
    Py_XDECREF(py_row);
  }
  int64_t asked_ns = cast_dtypes_get_spent() - state->spent_ns;
  return py_rows ? Py_BuildValue("{s:N,s:L}", "ops", py_rows, "dtypes_ns", (long long)asked_ns) : NULL;
}
