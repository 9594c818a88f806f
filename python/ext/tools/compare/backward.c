// Gradients of one call by the CPU: torch.autograd.grad once, outputs and inputs aligned by index.
//
// The outputs are those of engine_backward: tensors of the result, then inputs that the call wrote to (their history is
// the call's), then bases of views that it wrote to. The inputs are the leaves of the run, which stand for the call's
// own arguments; a leaf that was passed several times has the sum at each place, as the engine has it. The legacy run
// uses the graph that the forward comparison kept, once; every other one computes the forward again from the twins.
#include <stdio.h>
#include <string.h>

#include "dit/random.h"
#include "dit/verdict.h"
#include "py_call.h"
#include "tools/compare/state.h"
#include "torch_tensor.h"

// One differentiable run: borrowed from the case or from `own`.
struct graph {
  PyObject *result;
  PyObject **leaves, **left;  ///< in the order of the twins: what to differentiate by; what the operator left
  struct compare_run own;
  bool kept;  ///< the case's; it serves once
};

static int graph_open(struct graph *graph, struct compare_case *c, enum compare_precision precision, char *reason) {
  if (precision == COMPARE_LEGACY && c->py_run && c->run_inputs) {
    graph->result = c->py_run;
    graph->leaves = c->run_inputs;
    graph->left = c->run_left ? c->run_left : c->run_inputs;
    graph->kept = true;
    return 0;
  }
  if (compare_run_forward(c, precision, true, &graph->own) < 0) {
    return -1;
  }
  if (!graph->own.py_result || graph->own.reason[0]) {
    (void)snprintf(reason, 256, "%s", graph->own.reason[0] ? graph->own.reason : "the CPU run gave nothing");
    return 0;
  }
  graph->result = graph->own.py_result;
  graph->leaves = graph->own.leaves;
  graph->left = graph->own.inputs;
  return 0;
}

static void graph_close(struct graph *graph, struct compare_case *c) {
  if (graph->kept) {
    compare_case_drop_run(c);
  }
  compare_run_reset(&graph->own);
}

static bool list_has(PyObject *py_list, const PyObject *object) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(py_list); i++) {
    if (PyList_GET_ITEM(py_list, i) == object) {
      return true;
    }
  }
  return false;
}

// Views that were written to

// (index, sizes and strides of the base, sizes, strides and offset of the view in it); NULL with an exception.
static PyObject *view_describe(PyObject *tensor, PyObject *base, int index) {
  PyObject *py_offset = PyObject_CallOneArg(torch_names.py_offset, tensor);
  PyObject *py_base_offset = py_offset ? PyObject_CallOneArg(torch_names.py_offset, base) : NULL;
  PyObject *py_difference = py_base_offset ? PyNumber_Subtract(py_offset, py_base_offset) : NULL;
  Py_XDECREF(py_base_offset);
  Py_XDECREF(py_offset);
  if (!py_difference) {
    return NULL;
  }
  return Py_BuildValue("(iNNNNN)", index, PyObject_CallMethod(base, "size", NULL),
                       PyObject_CallMethod(base, "stride", NULL), PyObject_CallMethod(tensor, "size", NULL),
                       PyObject_CallMethod(tensor, "stride", NULL), py_difference);
}

// One changed input that is a view, and one base: its gradients can be taken apart.
void compare_backward_note(struct compare_case *c, const struct engine_call *call) {
  int view = -1, views = 0;
  PyObject *py_base = NULL;
  for (int i = 0; i < c->twin_count; i++) {
    PyObject *py_found = c->changed[i] ? engine_tensor_get(call->in.tensor[i].py_tensor, engine_torch.base) : NULL;
    if (py_found && py_found != Py_None) {
      view = i;
      views++;
      Py_XSETREF(py_base, Py_NewRef(py_found));
    }
    Py_XDECREF(py_found);
  }
  c->py_view = views == 1 ? view_describe(call->in.tensor[view].py_tensor, py_base, view) : NULL;
  Py_XDECREF(py_base);
  py_error_drop();
}

// A copy of the gradient of the base in this dtype, laid out as the base is, and the view's part of it in *py_part. New
// references; NULL with an exception. Grad mode is off.
static PyObject *base_copy(const struct compare_case *c, PyObject *gradient, PyObject *dtype, PyObject **py_part) {
  PyObject *const *view = &PyTuple_GET_ITEM(c->py_view, 0);
  PyObject *const words[] = {view[1], view[2], dtype, torch_names.py_host};
  PyObject *py_whole = PyObject_Vectorcall(torch_names.py_empty_strided, words, 2, torch_names.py_dtype_device);
  if (py_whole && py_call_pair(torch_names.py_copy, py_whole, gradient) < 0) {
    Py_CLEAR(py_whole);
  }
  *py_part = py_whole
                 ? PyObject_CallFunctionObjArgs(torch_names.py_as_strided, py_whole, view[3], view[4], view[5], NULL)
                 : NULL;
  if (!*py_part) {
    Py_CLEAR(py_whole);
  }
  return py_whole;
}

// The view's part of its base's gradient; new reference or NULL.
static PyObject *part_take(const struct compare_case *c, PyObject *gradient) {
  PyObject *py_grad = torch_grad_switch(Py_False), *py_part = NULL;
  PyObject *py_dtype = py_grad ? engine_tensor_get(gradient, engine_torch.dtype) : NULL;
  PyObject *py_whole = py_dtype ? base_copy(c, gradient, py_dtype, &py_part) : NULL;
  py_part = py_call_take(torch_names.py_clone, py_part);
  Py_XDECREF(py_whole);
  Py_XDECREF(py_dtype);
  torch_grad_restore(py_grad);
  return py_part;
}

// The gradient of the base before the call: that after it, but for the view's part (None: 0). New reference or NULL.
static PyObject *part_put(const struct compare_case *c, PyObject *gradient, PyObject *part) {
  PyObject *py_grad = torch_grad_switch(Py_False), *py_part = NULL;
  PyObject *py_dtype = py_grad ? engine_tensor_get(part == Py_None ? gradient : part, engine_torch.dtype) : NULL;
  PyObject *py_whole = py_dtype ? base_copy(c, gradient, py_dtype, &py_part) : NULL;
  if (py_whole) {
    PyObject *py_done = part == Py_None ? PyObject_CallMethod(py_part, "zero_", NULL)
                                        : PyObject_CallFunctionObjArgs(torch_names.py_copy, py_part, part, NULL);
    if (!py_done) {
      Py_CLEAR(py_whole);
    }
    Py_XDECREF(py_done);
  }
  Py_XDECREF(py_part);
  Py_XDECREF(py_dtype);
  torch_grad_restore(py_grad);
  return py_whole;
}

// The gradient of the base, when this call has one and it is the only entry after the `known` outputs; else NULL.
static PyObject *base_get_gradient(const struct compare_case *c, PyObject *const *grad_outputs, int count, int known) {
  return c->py_view && count == known + 1 && grad_outputs[known] != Py_None ? grad_outputs[known] : NULL;
}

static int view_get_index(const struct compare_case *c) {
  return (int)PyLong_AsLong(PyTuple_GET_ITEM(c->py_view, 0));
}

// Outputs

// All tensors that may have a gradient, in the engine's order; new list.
static PyObject *outputs_list(const struct compare_case *c, const struct graph *graph) {
  PyObject *py_outputs = PyList_New(0);
  struct engine_leaves leaves;
  engine_leaves_init(&leaves);
  int status = py_outputs ? engine_leaves_add(&leaves, graph->result, "out") : -1;
  for (int i = 0; i < leaves.tensor_count && status == 0; i++) {
    status = PyList_Append(py_outputs, leaves.tensor[i].py_tensor);
  }
  for (int i = 0; i < c->twin_count && status == 0; i++) {
    if (c->changed[i] && engine_tensor_requires_grad(graph->left[i]) && !list_has(py_outputs, graph->left[i])) {
      status = PyList_Append(py_outputs, graph->left[i]);
    }
  }
  engine_leaves_reset(&leaves);
  if (status < 0) {
    Py_CLEAR(py_outputs);
  }
  return py_outputs;
}

static void gradient_shake(const struct compare_case *c, PyObject *tensor, int dtype, int index) {
  struct engine_tensor info;
  struct dit_tensor_view view;
  struct dit_judge_type type;
  engine_tensor_read(tensor, &info);
  bool is_wide = engine_tensor_get_view(&info, &view) && (view.dtype == DIT_DTYPE_F64 || view.dtype == DIT_DTYPE_C128 ||
                                                          (c->is_single && view.dtype == DIT_DTYPE_F32));
  if (is_wide && dit_judge_type_get(dtype, &type, NULL) == DIT_OK &&
      (c->is_on_site || dit_shape_is_dense(view.ndim, view.sizes, view.strides))) {
    double size = c->shake > 0 ? c->shake : type.roundoff;
    size = c->jitter > 0 ? c->jitter * type.roundoff : size;
    if (c->is_on_site) {
      compare_site_shake(c, tensor, size, 1000 + index);
      engine_tensor_reset(&info);
      return;
    }
    int64_t count = view.numel * (view.dtype == DIT_DTYPE_C128 ? 2 : 1);
    dit_verdict_move(view.data, count, size, dit_random_mix(c->shake_seed, UINT64_C(0x10000)), index);
  }
  engine_tensor_reset(&info);
}

static PyObject *tensor_to(PyObject *tensor, PyObject *dtype) {
  return PyObject_CallMethod(tensor, "to", "O", dtype);
}

// Off by a rounding: in float64, then (jitter) rounded to the program's dtype again. New reference.
static PyObject *gradient_move(const struct compare_case *c, enum compare_precision precision, PyObject *gradient,
                               int index) {
  struct engine_tensor info;
  engine_tensor_read(gradient, &info);
  int dtype = info.dtype;
  engine_tensor_reset(&info);
  bool is_complex = dit_dtype_get_class(dtype) == DIT_DTYPE_CLASS_COMPLEX;
  if (c->narrow) {
    dtype = is_complex ? DIT_DTYPE_C64 : DIT_DTYPE_F32;
  }
  PyObject *wide = torch_dtype_get(is_complex ? DIT_DTYPE_C128 : c->is_single ? DIT_DTYPE_F32 : DIT_DTYPE_F64);
  PyObject *py_copy = wide ? PyObject_CallMethod(gradient, "clone", NULL) : NULL;
  PyObject *py_wide = py_copy ? tensor_to(py_copy, wide) : NULL;
  Py_XDECREF(py_copy);
  if (!py_wide) {
    return NULL;
  }
  gradient_shake(c, py_wide, dtype, index);
  if (precision == COMPARE_SHAKEN) {
    return py_wide;
  }
  PyObject *own = torch_dtype_get(dtype);
  PyObject *py_own = own ? tensor_to(py_wide, own) : NULL;
  Py_DECREF(py_wide);
  return py_own;
}

// The device's gradient in the dtype of the CPU's output; new reference.
static PyObject *gradient_cast(const struct compare_case *c, enum compare_precision precision, PyObject *gradient,
                               PyObject *output, int index) {
  bool moves = precision == COMPARE_SHAKEN || precision == COMPARE_JITTER || precision == COMPARE_JITTER_WIDE;
  PyObject *py_dtype = engine_tensor_get(output, engine_torch.dtype);
  PyObject *py_plain = py_dtype ? PyObject_CallMethod(gradient, "detach", NULL) : NULL;
  if (py_plain && moves) {
    Py_SETREF(py_plain, gradient_move(c, precision, py_plain, index));
  }
  PyObject *py_cast = py_plain ? tensor_to(py_plain, py_dtype) : NULL;
  Py_XDECREF(py_plain);
  Py_XDECREF(py_dtype);
  return py_cast;
}

// The view has its part of the base's gradient.
static int base_match(const struct compare_case *c, enum compare_precision precision, PyObject *base, PyObject *view,
                      int index, PyObject *py_outputs, PyObject *py_gradients) {
  if (!engine_tensor_requires_grad(view)) {
    return 0;
  }
  PyObject *py_part = part_take(c, base);
  PyObject *py_gradient = py_part ? gradient_cast(c, precision, py_part, view, index) : NULL;
  int status =
      py_gradient && PyList_Append(py_outputs, view) == 0 && PyList_Append(py_gradients, py_gradient) == 0 ? 0 : -1;
  Py_XDECREF(py_gradient);
  Py_XDECREF(py_part);
  return status;
}

// Outputs with a gradient, and those gradients: lists that are filled; the gradient of a base, or NULL. 0, -1; `reason`
// when they do not match.
static int outputs_match(const struct compare_case *c, enum compare_precision precision, const struct graph *graph,
                         PyObject *const *grad_outputs, int count, PyObject *py_outputs, PyObject *py_gradients,
                         PyObject **base_out, char *reason) {
  PyObject *py_all = outputs_list(c, graph);
  int status = py_all ? 0 : -1;
  int known = py_all ? (int)PyList_GET_SIZE(py_all) : 0;
  PyObject *base = base_get_gradient(c, grad_outputs, count, known);
  PyObject *view = base ? graph->left[view_get_index(c)] : NULL;
  *base_out = base;
  for (int i = 0; i < count && status == 0 && !reason[0]; i++) {
    if (!grad_outputs[i] || grad_outputs[i] == Py_None) {
      continue;
    }
    PyObject *output = i < known ? PyList_GET_ITEM(py_all, i) : NULL;
    if (view && output == view) {
      continue;  // went through the base
    }
    if (view && i == known) {
      status = base_match(c, precision, base, view, i, py_outputs, py_gradients);
    } else if (!output) {
      (void)snprintf(reason, 256, "it wrote to a view: the gradients of several bases cannot be taken apart");
    } else if (!engine_tensor_requires_grad(output)) {
      (void)snprintf(reason, 256, "output %d has a gradient on the device and none on the CPU", i);
    } else {
      PyObject *py_gradient = gradient_cast(c, precision, grad_outputs[i], output, i);
      status = py_gradient && PyList_Append(py_outputs, output) == 0 ? PyList_Append(py_gradients, py_gradient) : -1;
      Py_XDECREF(py_gradient);
    }
  }
  Py_XDECREF(py_all);
  return status;
}

// Inputs

// What to differentiate by: each leaf once. New list or NULL.
static PyObject *inputs_list(const struct compare_case *c, const struct graph *graph) {
  PyObject *py_inputs = PyList_New(0);
  for (int i = 0; i < c->twin_count && py_inputs; i++) {
    PyObject *leaf = graph->leaves[i];
    if (leaf && engine_tensor_requires_grad(leaf) && !list_has(py_inputs, leaf) && PyList_Append(py_inputs, leaf) < 0) {
      Py_CLEAR(py_inputs);
    }
  }
  return py_inputs;
}

static PyObject *grads_align(const struct compare_case *c, const struct graph *graph, PyObject *py_inputs,
                             PyObject *py_found) {
  PyObject *py_grads = PyList_New(c->twin_count);
  for (int i = 0; i < c->twin_count && py_grads; i++) {
    PyObject *gradient = Py_None;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(py_inputs); k++) {
      gradient = PyList_GET_ITEM(py_inputs, k) == graph->leaves[i] ? PyTuple_GET_ITEM(py_found, k) : gradient;
    }
    PyList_SET_ITEM(py_grads, i, Py_NewRef(gradient));
  }
  return py_grads;
}

// The base's gradient before the call is the last entry; that of the view itself is in it.
static int grads_add_base(const struct compare_case *c, PyObject *base, PyObject *py_grads) {
  int view = view_get_index(c);
  PyObject *part = PyList_GET_ITEM(py_grads, view);
  PyObject *py_whole = part_put(c, base, part);
  int status = py_whole ? PyList_Append(py_grads, py_whole) : -1;
  Py_XDECREF(py_whole);
  return status < 0 ? -1 : PyList_SetItem(py_grads, view, Py_NewRef(Py_None));
}

// The call of autograd

// Tuple of gradients; NULL with an exception.
static PyObject *autograd_call(PyObject *py_outputs, PyObject *py_inputs, PyObject *py_gradients) {
  if (torch_names_load(TORCH_AUTOGRAD) < 0) {
    return NULL;
  }
  PyObject *py_off = compare_dispatch_disable();
  PyObject *py_args = PyErr_Occurred() ? NULL : PyTuple_Pack(3, py_outputs, py_inputs, py_gradients);
  PyObject *py_kwargs = py_args ? Py_BuildValue("{s:O}", "allow_unused", Py_True) : NULL;
  PyObject *py_found = py_kwargs ? PyObject_Call(torch_names.py_differentiate, py_args, py_kwargs) : NULL;
  Py_XDECREF(py_kwargs);
  Py_XDECREF(py_args);
  py_context_leave(py_off);
  if (py_found && !PyTuple_Check(py_found)) {
    Py_SETREF(py_found, PySequence_Tuple(py_found));
  }
  return py_found;
}

static int gradients_make(struct compare_case *c, enum compare_precision precision, const struct graph *graph,
                          PyObject *const *grad_outputs, int count, PyObject **py_grads, char *reason) {
  PyObject *py_outputs = PyList_New(0), *py_gradients = PyList_New(0);
  PyObject *py_inputs = py_outputs && py_gradients ? inputs_list(c, graph) : NULL, *py_found = NULL;
  PyObject *base = NULL;  // borrowed
  int status =
      py_inputs ? outputs_match(c, precision, graph, grad_outputs, count, py_outputs, py_gradients, &base, reason) : -1;
  if (status == 0 && !reason[0]) {
    bool any = PyList_GET_SIZE(py_outputs) > 0 && PyList_GET_SIZE(py_inputs) > 0;
    if (!any) {
      (void)snprintf(reason, 256, "the CPU has nothing to differentiate");
    } else {
      py_found = autograd_call(py_outputs, py_inputs, py_gradients);
      *py_grads = py_found ? grads_align(c, graph, py_inputs, py_found) : NULL;
      status = *py_grads ? 0 : -1;
      if (status == 0 && base) {
        status = grads_add_base(c, base, *py_grads);
      }
    }
  }
  Py_XDECREF(py_found);
  Py_XDECREF(py_inputs);
  Py_XDECREF(py_gradients);
  Py_XDECREF(py_outputs);
  return status;
}

int compare_run_backward(struct compare_case *c, enum compare_precision precision, PyObject *const *grad_outputs,
                         int count, PyObject **py_grads, char reason[256]) {
  *py_grads = NULL;
  reason[0] = 0;
  if (precision == COMPARE_LEGACY) {
    c->grad_outputs = grad_outputs;
    c->grad_output_count = count;
  }
  if (compare_random_has_kept(c)) {  // judged by what the device kept: no reference of the CPU's own
    *py_grads = PyList_New(0);
    return *py_grads ? 0 : -1;
  }
  struct graph graph = {0};
  int status = graph_open(&graph, c, precision, reason);
  if (status == 0 && !reason[0]) {
    status = gradients_make(c, precision, &graph, grad_outputs, count, py_grads, reason);
  }
  if (status < 0 && !compare_error_is_foreign()) {
    compare_error_take(reason, 256);
    status = 0;
  }
  graph_close(&graph, c);
  return status;
}
