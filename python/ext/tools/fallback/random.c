// Random numbers of operators that run on the CPU in the device's place.
//
// The run starts from a seed mixed of the device generator's seed and offset, as the embedded device's own fallback
// does it (adapter: borrowCpuGenerator), and the device's generator advances by one draw if numbers were drawn. The
// CPU's default generator is put back, so a program that also draws on the CPU sees no difference. Only one thread at a
// time has the default generator borrowed; other threads of the program that draw on the CPU meanwhile see it borrowed.
#include "dit/random.h"

#include <string.h>

#include "device_object.h"
#include "dit/runtime.h"
#include "py_call.h"
#include "tools/fallback/fallback.h"

#define STATE_BYTES 16  // seed and offset, of CUDA and of the embedded device
#define DRAW 4          // offsets are multiples of it

static PyThread_type_lock lock;
static unsigned long owner;  // thread that holds it

static bool lock_take(void) {
  unsigned long self = PyThread_get_thread_ident();
  if (!lock && !(lock = PyThread_allocate_lock())) {
    return false;
  }
  if (owner == self) {
    return false;  // an operator within an operator: the outer one's numbers go on
  }
  if (!PyThread_acquire_lock(lock, NOWAIT_LOCK)) {
    Py_BEGIN_ALLOW_THREADS;
    PyThread_acquire_lock(lock, WAIT_LOCK);
    Py_END_ALLOW_THREADS;
  }
  owner = self;
  return true;
}

static void lock_give(void) {
  owner = 0;
  PyThread_release_lock(lock);
}

// The device's generator

// torch.<type>.default_generators[index] of a device; NULL with an exception.
static PyObject *generator_find(PyObject *device) {
  PyObject *py_module = PyObject_CallOneArg(torch_names.py_get_device_module, device);
  PyObject *py_all = py_module ? PyObject_GetAttrString(py_module, "default_generators") : NULL;
  if (py_all && PySequence_Size(py_all) == 0) {  // not initialised yet
    PyObject *py_done = PyObject_CallMethod(py_module, "init", NULL);
    Py_XDECREF(py_done);
    py_error_drop();
    Py_SETREF(py_all, PyObject_GetAttrString(py_module, "default_generators"));
  }
  PyObject *py_index = py_all ? PyObject_GetAttrString(device, "index") : NULL;
  if (py_index == Py_None) {
    Py_SETREF(py_index, PyObject_CallMethod(py_module, "current_device", NULL));
  }
  PyObject *py_generator = py_index ? PyObject_GetItem(py_all, py_index) : NULL;
  Py_XDECREF(py_index);
  Py_XDECREF(py_all);
  Py_XDECREF(py_module);
  return py_generator;
}

// The seed of the run, and the state that the device's generator has when numbers were drawn. 0, -1, or 1.
static int seed_find(struct fallback_random *random, uint64_t *seed) {
  PyObject *py_state = PyObject_CallMethod(random->py_source, "get_state", NULL);
  PyObject *py_next = py_state ? PyObject_CallMethod(py_state, "clone", NULL) : NULL;
  int status = -1;
  if (py_next) {
    struct engine_tensor tensor;
    uint64_t words[2];
    engine_tensor_read(py_next, &tensor);
    if (tensor.place == ENGINE_PLACE_CPU && tensor.numel == STATE_BYTES && tensor.data) {
      memcpy(words, tensor.data, sizeof words);
      *seed = dit_random_mix(words[0], words[1] / DRAW);
      words[1] += DRAW;
      memcpy(tensor.data, words, sizeof words);
      random->py_state = Py_NewRef(py_next);
      status = 0;
    } else {
      status = 1;  // another kind of generator: only the device knows how to draw from it
    }
    engine_tensor_reset(&tensor);
  }
  Py_XDECREF(py_next);
  Py_XDECREF(py_state);
  return status;
}

// A generator among the arguments

// Where it is: index of the positional argument, -2 for keyword arguments, -1 for none. Borrowed.
static PyObject *argument_find(const struct engine_call *call, Py_ssize_t *where) {
  PyObject *type = torch_names.py_generator_type;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(call->args); i++) {
    if (torch_is_instance(PyTuple_GET_ITEM(call->args, i), type)) {
      *where = i;
      return PyTuple_GET_ITEM(call->args, i);
    }
  }
  PyObject *found = call->kwargs ? PyDict_GetItemWithError(call->kwargs, torch_names.py_text_generator) : NULL;
  *where = found && torch_is_instance(found, type) ? -2 : -1;
  return *where == -2 ? found : NULL;
}

static int argument_replace(struct fallback_run *run, Py_ssize_t where, PyObject *generator) {
  if (where >= 0) {
    PyObject *py_list = PySequence_List(run->py_args);
    if (!py_list || PyList_SetItem(py_list, where, Py_NewRef(generator)) < 0) {
      Py_XDECREF(py_list);
      return -1;
    }
    Py_SETREF(run->py_args, PyList_AsTuple(py_list));
    Py_DECREF(py_list);
    return run->py_args ? 0 : -1;
  }
  PyObject *py_copy = PyDict_Copy(run->py_kwargs);
  if (!py_copy || PyDict_SetItem(py_copy, torch_names.py_text_generator, generator) < 0) {
    Py_XDECREF(py_copy);
    return -1;
  }
  Py_SETREF(run->py_kwargs, py_copy);
  return 0;
}

// 1: it is the CPU's, which the device will refuse in its own words.
static int generator_is_cpu(PyObject *generator) {
  PyObject *py_device = PyObject_GetAttr(generator, torch_names.py_text_device);
  int same = py_device ? PyObject_RichCompareBool(py_device, torch_names.py_host, Py_EQ) : -1;
  Py_XDECREF(py_device);
  return same;
}

static int generator_pass(struct fallback_run *run, Py_ssize_t where, uint64_t seed) {
  PyObject *py_made = PyObject_CallNoArgs(torch_names.py_generator_type);
  PyObject *py_done = py_made ? PyObject_CallMethod(py_made, "manual_seed", "K", (unsigned long long)seed) : NULL;
  int status = py_done ? argument_replace(run, where, py_made) : -1;
  Py_XDECREF(py_done);
  Py_XDECREF(py_made);
  return status;
}

// Around the run

static int default_borrow(struct fallback_random *random, uint64_t seed) {
  random->locked = lock_take();
  random->py_saved = PyObject_CallNoArgs(torch_names.py_state_get);
  PyObject *py_done = random->py_saved
                          ? PyObject_CallMethod(torch_names.py_generator, "manual_seed", "K", (unsigned long long)seed)
                          : NULL;
  random->py_seeded = py_done ? PyObject_CallNoArgs(torch_names.py_state_get) : NULL;
  Py_XDECREF(py_done);
  return random->py_seeded ? 0 : -1;
}

int fallback_random_begin(struct fallback_run *run, struct fallback_random *random) {
  Py_ssize_t where = -1;
  uint64_t seed = 0;
  PyObject *generator = argument_find(run->call, &where);
  *random = (struct fallback_random){0};
  if (generator) {
    int cpu = generator_is_cpu(generator);
    if (cpu) {
      return cpu < 0 ? -1 : run->stays ? 0 : 1;
    }
  }
  if (run->stays) {
    return 0;
  }
  // An empty draw advances the embedded device's generator, but not CUDA's.
  bool embedded = dit_device_object_get(run->py_device)->type == DIT_C10_PRIVATEUSE1 && dit_runtime_is_active();
  random->always = embedded && (run->row->traits & FALLBACK_DRAWS);
  random->py_source = generator ? Py_NewRef(generator) : generator_find(run->py_device);
  int status = random->py_source ? seed_find(random, &seed) : -1;
  if (status == 0) {
    status = generator ? generator_pass(run, where, seed) : default_borrow(random, seed);
  }
  return status;
}

static int states_differ(PyObject *before, PyObject *after) {
  struct engine_tensor a, b;
  engine_tensor_read(before, &a);
  engine_tensor_read(after, &b);
  bool same = a.numel == b.numel && a.data && b.data && memcmp(a.data, b.data, (size_t)a.numel) == 0;
  engine_tensor_reset(&a);
  engine_tensor_reset(&b);
  return !same;
}

static int default_return(struct fallback_random *random, bool *drawn) {
  PyObject *py_now = random->py_seeded ? PyObject_CallNoArgs(torch_names.py_state_get) : NULL;
  *drawn = py_now && states_differ(random->py_seeded, py_now);
  Py_XDECREF(py_now);
  return py_call_none(torch_names.py_state_set, random->py_saved);
}

int fallback_random_end(struct fallback_random *random) {
  PyObject *kind, *value, *traceback;
  bool drawn = true;
  int status = 0;
  PyErr_Fetch(&kind, &value, &traceback);
  if (random->py_saved) {
    status = default_return(random, &drawn);
  }
  if (random->locked) {
    lock_give();
  }
  if (random->py_state && (drawn || random->always) && status == 0) {
    PyObject *py_done = PyObject_CallMethod(random->py_source, "set_state", "O", random->py_state);
    status = py_done ? 0 : -1;
    Py_XDECREF(py_done);
  }
  Py_XDECREF(random->py_source);
  Py_XDECREF(random->py_saved);
  Py_XDECREF(random->py_seeded);
  Py_XDECREF(random->py_state);
  *random = (struct fallback_random){0};
  if (kind) {
    py_error_drop();
    PyErr_Restore(kind, value, traceback);
  }
  return status;
}
