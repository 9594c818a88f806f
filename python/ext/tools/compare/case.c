// One call as it was before it ran: twins of its tensors, arguments for the CPU, what was switched on around it.
//
// A case is created in `before` and lives until the call is compared, or until its autograd graph dies when the
// gradients are to be compared, too. Twins are never modified. Depends on twin.h, remap.h.
#include <string.h>
#include <time.h>

#include "py_call.h"
#include "tools/call_settings.h"
#include "tools/capture/pickle.h"
#include "tools/compare/state.h"
#include "tools/remap.h"
#include "tools/twin.h"

// What is switched on around the call

// Autocast of the device of the call's tensors. Any autocast first: nearly always there is none.
static void autocast_find(struct compare_case *c, const struct engine_call *call) {
  bool some = !torch_names.py_autocast_is_any || py_call_is_true(torch_names.py_autocast_is_any, NULL);
  some = some && torch_names_load(TORCH_AUTOCAST) == 0;
  for (int i = 0; some && i < call->in.tensor_count; i++) {
    const struct engine_tensor *tensor = &call->in.tensor[i];
    if (!(tensor->flags & ENGINE_TENSOR_DEVICE)) {
      continue;
    }
    PyObject *py_device = engine_tensor_get(tensor->py_tensor, engine_torch.device);
    PyObject *py_type = py_device ? PyObject_GetAttrString(py_device, "type") : NULL;
    bool on = py_type && py_call_is_true(torch_names.py_autocast_is_enabled, py_type);
    PyObject *py_found = on ? PyObject_CallOneArg(torch_names.py_autocast_dtype_get, py_type) : NULL;
    int dtype = py_found ? torch_dtype_find(py_found) : -1;
    c->has_autocast = dtype >= 0;
    c->autocast = (int16_t)dtype;
    Py_XDECREF(py_found);
    Py_XDECREF(py_type);
    Py_XDECREF(py_device);
    break;
  }
  py_error_drop();
}

// Signature

static uint64_t hash_add(uint64_t hash, uint64_t value) {
  return (hash ^ value) * UINT64_C(0x100000001B3);
}

static uint64_t signature_make(const struct engine_call *call) {
  uint64_t hash = UINT64_C(0xCBF29CE484222325);
  for (int i = 0; i < call->in.tensor_count; i++) {
    const struct engine_tensor *tensor = &call->in.tensor[i];
    hash = hash_add(hash, (uint64_t)(uint16_t)tensor->dtype << 8 | (uint8_t)tensor->ndim);
    for (int d = 0; tensor->sizes && d < tensor->ndim; d++) {
      hash = hash_add(hash, (uint64_t)tensor->sizes[d]);
    }
  }
  return hash;
}

// Life

static int case_allocate(struct compare_case *c, const struct engine_call *call) {
  size_t count = (size_t)call->in.tensor_count;
  if (count == 0) {
    return 0;
  }
  c->twins = PyMem_Calloc(count, sizeof *c->twins);
  c->dtypes = PyMem_Calloc(count, sizeof *c->dtypes);
  c->spans = PyMem_Calloc(count, sizeof *c->spans);
  c->changed = PyMem_Calloc(count, sizeof *c->changed);
  c->on_device = PyMem_Calloc(count, sizeof *c->on_device);
  if (!c->twins || !c->dtypes || !c->spans || !c->changed || !c->on_device) {
    (void)PyErr_NoMemory();
    return -1;
  }
  for (size_t i = 0; i < count; i++) {
    const struct engine_tensor *tensor = &call->in.tensor[i];
    c->dtypes[i] = tensor->dtype;
    c->spans[i] = engine_tensor_get_span(tensor);
    c->on_device[i] = (tensor->flags & ENGINE_TENSOR_DEVICE) != 0;
    c->is_embedded |= tensor->place == ENGINE_PLACE_HOST;
    if (c->on_device[i] && !c->device) {
      c->device = pickle_device_text(tensor);
    }
  }
  return 0;
}

static int case_fill(struct compare_case *c, struct compare_op *info, const struct engine_call *call) {
  if (case_allocate(c, call) < 0) {
    return -1;
  }
  if (compare_site_takes(c->tool->state, info, call)) {
    return compare_site_fill(c, info, call);
  }
  int count = call->in.tensor_count;
  if (count > 0 && twin_make(call->in.tensor, count, TWIN_DETACHED, true, c->twins) < 0) {
    return -1;
  }
  c->twin_count = count;
  PyObject *cpu = torch_names.py_host;
  if (!cpu || remap_call(call, c->twins, info->moves ? NULL : cpu, &c->py_args, &c->py_kwargs) < 0) {
    return -1;
  }
  return 0;
}

struct compare_case *compare_case_create(struct engine_tool *tool, struct compare_op *info,
                                         const struct engine_call *call) {
  struct compare_case *c = PyMem_Calloc(1, sizeof *c);
  if (!c) {
    (void)PyErr_NoMemory();
    return NULL;
  }
  c->tool = tool;
  c->op = call->op;
  c->id = call->id;
  c->step = call->step;
  c->location = call->location;
  c->module = call->module;
  c->flags = call->flags;
  c->py_func = Py_NewRef(call->func);
  c->signature = signature_make(call);
  c->autocast = -1;
  c->second = (int64_t)time(NULL);
  autocast_find(c, call);
  c->py_settings = call_settings_get(call);
  if (case_fill(c, info, call) < 0) {
    compare_case_destroy(c);
    return NULL;
  }
  return c;
}

static void objects_release(PyObject **objects, int count) {
  for (int i = 0; objects && i < count; i++) {
    Py_XDECREF(objects[i]);
  }
  PyMem_Free(objects);
}

void compare_case_drop_run(struct compare_case *c) {
  PyObject **inputs = c->run_inputs, **left = c->run_left;
  c->run_inputs = c->run_left = NULL;
  Py_CLEAR(c->py_run);
  objects_release(inputs, c->twin_count);
  objects_release(left, c->twin_count);
}

void compare_case_empty(struct compare_case *c) {
  compare_case_drop_run(c);
  PyObject **twins = c->twins;
  c->done = true;
  c->twins = NULL;
  Py_CLEAR(c->py_func);
  Py_CLEAR(c->py_args);
  Py_CLEAR(c->py_kwargs);
  Py_CLEAR(c->py_random);
  objects_release(twins, c->twin_count);
  c->twin_count = 0;
  Py_CLEAR(c->py_settings);
  compare_site_reset(c);
  PyMem_Free(c->dtypes);
  PyMem_Free(c->spans);
  PyMem_Free(c->result_spans);
  PyMem_Free(c->changed);
  PyMem_Free(c->on_device);
  c->dtypes = NULL;
  c->spans = c->result_spans = NULL;
  c->result_count = 0;
  c->changed = c->on_device = NULL;
}

void compare_case_destroy(struct compare_case *c) {
  if (c) {
    compare_case_empty(c);
    PyMem_Free(c);
  }
}

// What the call wrote to

// torch.ops.aten.copy_.default: below autograd, where the calls of level aten and of the program's own dispatch modes
// are, no version counter is raised; the schema tells.
bool compare_call_writes(struct compare_op *info, const struct engine_call *call) {
  if (info->writes < 0) {
    PyObject *py_schema = PyObject_GetAttrString(call->func, "_schema");
    PyObject *py_mutable = py_schema ? PyObject_GetAttrString(py_schema, "is_mutable") : NULL;
    bool is_overload = py_schema || (call->flags & ENGINE_CALL_ATEN);
    info->writes = is_overload && (!py_mutable || PyObject_IsTrue(py_mutable) != 0);  // unknown: may write
    Py_XDECREF(py_mutable);
    Py_XDECREF(py_schema);
    py_error_drop();
  }
  return info->writes > 0;
}

void compare_case_note_changes(struct compare_case *c, struct compare_op *info, const struct engine_call *call) {
  bool all = engine_op_is_fused_optimizer(call->op) || compare_call_writes(info, call);
  for (int i = 0; i < c->twin_count; i++) {
    const struct engine_tensor *tensor = &call->in.tensor[i];
    if (all || tensor->version < 0) {  // inference tensors have no counter
      c->changed[i] = all || !info->is_exact;
    } else if (i < 64) {
      c->changed[i] = call->changed >> i & 1;
    } else {
      c->changed[i] = engine_tensor_get_version(tensor->py_tensor) != tensor->version;
    }
  }
}

// Inputs that somebody changed

void compare_spoiled_note(struct compare_state *state, const struct engine_span *span, uint64_t id) {
  if (span->high > span->low) {
    unsigned at = state->spoiled_count++ % COMPARE_SPOILED;
    state->spoiled[at].span = *span;
    state->spoiled[at].id = id;
  }
}

void compare_case_note_results(struct compare_case *c, const struct engine_call *call) {
  int count = call->out.tensor_count;
  c->result_spans = count > 0 ? PyMem_Calloc((size_t)count, sizeof *c->result_spans) : NULL;
  c->result_count = c->result_spans ? count : 0;
  for (int i = 0; i < c->result_count; i++) {
    c->result_spans[i] = engine_tensor_get_span(&call->out.tensor[i]);
  }
}

static bool spans_meet(const struct engine_span *spans, int count, const struct engine_span *other) {
  for (int i = 0; i < count; i++) {
    if (engine_spans_meet(&spans[i], other)) {
      return true;
    }
  }
  return false;
}

uint64_t compare_spoiled_find(const struct compare_state *state, const struct compare_case *c) {
  unsigned count = state->spoiled_count < COMPARE_SPOILED ? state->spoiled_count : COMPARE_SPOILED;
  for (unsigned k = 0; k < count; k++) {
    const struct engine_span *span = &state->spoiled[k].span;
    if (state->spoiled[k].id > c->id &&
        (spans_meet(c->spans, c->twin_count, span) || spans_meet(c->result_spans, c->result_count, span))) {
      return state->spoiled[k].id;
    }
  }
  return 0;
}
