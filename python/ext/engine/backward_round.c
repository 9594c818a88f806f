// Rounds: one graph task (a run of the autograd engine) passing through one window, and their end.
//
// A round is complete when every frontier node of its window has run; it is told right then. Rounds that do not get so
// far (autograd.grad for some inputs only, an output that was not used, an exception, a checkpoint that stops early)
// are told when their graph task ends: a task object is queued as the task's callback, and its death, which also comes
// after an exception, tells what is left. A round belongs to a task by the task's number, so nested and concurrent
// tasks do not mix.
#include <string.h>

#include "dit/record.h"
#include "engine/backward.h"
#include "engine/internal.h"

// A Python object: owned by the graph task alone.
struct task {
  PyObject ob_base;
  vectorcallfunc vectorcall;
  int64_t id;
  struct backward_round *first, *last;  // open rounds, oldest first
  struct task *next;                    // all tasks with a life
};

struct backward_round {
  struct backward_window *window;  // counted
  struct task *task;
  struct backward_round *next_in_window, *previous, *next;  // the latter two: in the task
  int64_t begin_ns, end_ns;
  int32_t number;
  int left;  // frontier nodes that have run
  bool begun;
  PyObject *py_gradient[];  // owned or NULL: outputs, then inputs
};

static struct task *tasks;
static PyTypeObject task_type;

// Telling the tools

static struct engine_backward round_describe(struct backward_round *round, bool complete) {
  const struct backward_window *window = round->window;
  return (struct engine_backward){
      .op = window->op,
      .id = window->id,
      .step = engine_step_get(),
      .round = round->number,
      .location = window->location,
      .module = window->module,
      .flags = window->flags,
      .begin_ns = round->begin_ns,
      .end_ns = round->end_ns,
      .grad_outputs = round->py_gradient,
      .grad_output_count = window->output_count,
      .grad_inputs = round->py_gradient + window->output_count,
      .grad_input_count = window->input_count,
      .complete = complete,
  };
}

// Every tool is told; the first exception stays.
static int tools_end(struct backward_round *round, bool complete) {
  struct engine_backward backward = round_describe(round, complete);
  struct backward_window *window = round->window;
  PyObject *kind = NULL, *value = NULL, *traceback = NULL;
  int token = engine_guard_raise();
  for (int i = window->keeper_count - 1; i >= 0; i--) {
    struct engine_tool *tool = window->keeper[i].tool;
    backward.data = window->keeper[i].data;
    int status = tool->vtable->backward_end ? tool->vtable->backward_end(tool, &backward) : 0;
    if (status == 0 && tool->py_console) {
      status = engine_console_tell_backward(tool, &backward);
    }
    if (status < 0 && !kind) {
      PyErr_Fetch(&kind, &value, &traceback);
    } else if (status < 0) {
      py_error_drop();
    }
  }
  engine_guard_lower(token);
  if (kind) {
    PyErr_Restore(kind, value, traceback);
  }
  return kind ? -1 : 0;
}

static void round_unlink(struct backward_round *round) {
  struct backward_round **at = &round->window->open;
  while (*at != round) {
    at = &(*at)->next_in_window;
  }
  *at = round->next_in_window;
  struct task *task = round->task;
  *(round->previous ? &round->previous->next : &task->first) = round->next;
  *(round->next ? &round->next->previous : &task->last) = round->previous;
}

static void twins_fill(struct backward_round *round) {
  const struct backward_window *window = round->window;
  PyObject **gradients = round->py_gradient + window->output_count;
  for (int i = 0; window->twin && i < window->input_count; i++) {
    if (window->twin[i] != i && !gradients[i]) {
      gradients[i] = Py_XNewRef(gradients[window->twin[i]]);
    }
  }
}

// The round is over: off the lists first, since a tool may run anything.
static int round_end(struct backward_round *round, bool complete) {
  struct backward_window *window = round->window;
  round_unlink(round);
  window->done_task = round->task->id;
  twins_fill(round);
  int status = tools_end(round, complete);
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  for (int i = 0; i < window->output_count + window->input_count; i++) {
    Py_XDECREF(round->py_gradient[i]);
  }
  PyMem_Free(round);
  backward_window_release(window);
  PyErr_Restore(kind, value, traceback);
  return status;
}

// Tasks

static int task_flush(struct task *task) {
  PyObject *kind = NULL, *value = NULL, *traceback = NULL;
  while (task->first) {
    int status = round_end(task->first, false);
    if (status < 0 && !kind) {
      PyErr_Fetch(&kind, &value, &traceback);
    } else if (status < 0) {
      py_error_drop();
    }
  }
  if (kind) {
    PyErr_Restore(kind, value, traceback);
  }
  return kind ? -1 : 0;
}

static PyObject *task_call(PyObject *self, PyObject *const *words, size_t count, PyObject *names) {
  (void)words;
  (void)count;
  (void)names;
  return task_flush((struct task *)(void *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

static void task_dealloc(PyObject *self) {
  struct task *task = (struct task *)(void *)self;
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  Py_SET_REFCNT(self, 1);  // round_end uses the task
  if (task_flush(task) < 0) {
    PyErr_WriteUnraisable(NULL);
  }
  Py_SET_REFCNT(self, 0);
  PyErr_Restore(kind, value, traceback);
  struct task **at = &tasks;
  while (*at != task) {
    at = &(*at)->next;
  }
  *at = task->next;
  PyObject_Free(self);
}

static PyTypeObject task_type = {
    .ob_base = {PyObject_HEAD_INIT(NULL) 0},
    .tp_name = "ditorch._C.GraphTask",
    .tp_basicsize = sizeof(struct task),
    .tp_vectorcall_offset = offsetof(struct task, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = task_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Tells the tools, at the end of a run of the autograd engine, what it left unfinished.",
};

int backward_round_load(void) {
  return PyType_Ready(&task_type);
}

// Borrowed: the graph task owns it.
static struct task *task_get(int64_t id) {
  for (struct task *task = tasks; task; task = task->next) {
    if (task->id == id) {
      return task;
    }
  }
  struct task *task = PyObject_New(struct task, &task_type);
  if (!task) {
    return NULL;
  }
  task->vectorcall = task_call;
  task->id = id;
  task->first = task->last = NULL;
  task->next = tasks;
  tasks = task;
  int status = backward_task_add_callback((PyObject *)task);
  bool owned = Py_REFCNT(task) > 1;
  Py_DECREF(task);
  return status == 0 && owned ? task : NULL;
}

// Rounds

static struct backward_round *round_create(struct backward_window *window, int64_t id) {
  struct task *task = task_get(id);
  size_t gradients = (size_t)(window->output_count + window->input_count);
  struct backward_round *round = NULL;
  if (task && !(round = PyMem_Calloc(1, sizeof *round + gradients * sizeof(PyObject *)))) {
    (void)PyErr_NoMemory();
  }
  if (!round) {
    return NULL;
  }
  backward_window_retain(window);
  round->window = window;
  round->task = task;
  round->number = window->rounds++;
  round->next_in_window = window->open;
  window->open = round;
  round->previous = task->last;
  *(task->last ? &task->last->next : &task->first) = round;
  task->last = round;
  return round;
}

struct backward_round *backward_round_get(struct backward_window *window) {
  int64_t id = backward_task_get_id();
  if (id < 0) {
    return NULL;  // -1: somebody calls the hooks of a node by hand, no run of the engine
  }
  for (struct backward_round *round = window->open; round; round = round->next_in_window) {
    if (round->task->id == id) {
      return round;
    }
  }
  return window->done_task == id ? NULL : round_create(window, id);
}

void backward_round_put_output(struct backward_round *round, int to, PyObject *gradient) {
  if (!round->py_gradient[to]) {
    round->py_gradient[to] = Py_NewRef(gradient);
  }
}

int backward_round_put_input(struct backward_round *round, int to, PyObject *gradient) {
  PyObject **place = &round->py_gradient[round->window->output_count + to];
  if (!*place) {
    *place = Py_NewRef(gradient);
    return 0;
  }
  if (!round->window->sums) {
    return 0;
  }
  int token = engine_guard_raise();
  PyObject *py_disabled = engine_dispatch_disable();
  PyObject *py_sum = backward_gradients_add(*place, gradient);
  engine_dispatch_enable(py_disabled);
  engine_guard_lower(token);
  if (py_sum) {
    Py_SETREF(*place, py_sum);
  }
  return py_sum ? 0 : -1;
}

int backward_round_begin(struct backward_round *round, int64_t now) {
  if (round->begun) {
    return 0;
  }
  round->begun = true;
  round->begin_ns = round->end_ns = now;
  struct backward_window *window = round->window;
  struct engine_backward backward = round_describe(round, false);
  bool told = false;
  int status = 0, token = 0;
  for (int i = 0; i < window->keeper_count && status == 0; i++) {
    struct engine_tool *tool = window->keeper[i].tool;
    if (!tool->vtable->backward_begin) {
      continue;
    }
    token = told ? token : engine_guard_raise();
    told = true;
    backward.data = window->keeper[i].data;
    status = tool->vtable->backward_begin(tool, &backward);
  }
  if (told) {
    engine_guard_lower(token);
    round->begin_ns = dit_record_get_time();  // the tools' own work does not count
  }
  return status;
}

int backward_round_leave(struct backward_round *round, int64_t now) {
  round->end_ns = now;
  return ++round->left < round->window->frontier_count ? 0 : round_end(round, true);
}
