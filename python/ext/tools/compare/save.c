// The files of a wrong call: what the device and the CPU were given and gave.
//
//   op_capture_results/<operator>/<pid>/autocompare/<id>/<time>/{device,cpu}/{input,output}.pth, and of the backward
//   device/grad_outputs.pth, device/grad_inputs.pth, cpu/grad_inputs.pth, cpu/grad_outputs.pth, each with its .json,
// below the results folder, in the form of OpCapture. Inputs are those from before the call, in the program's dtypes:
// twins that are said to be on the device. Written at once, so that an exception or a crash finds them. What cannot be
// written is counted and said once; the program goes on.
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dit/log.h"
#include "dit/operator.h"
#include "dit/store.h"
#include "engine/log.h"
#include "tools/capture/item.h"
#include "tools/capture/pickle.h"
#include "tools/compare/state.h"
#include "tools/remap.h"

#define PATH_BYTES 2048

/// One file.
struct file {
  const char *what;  ///< "device/input"
  PyObject *const *args;
  Py_ssize_t count;
  PyObject *kwargs;
  const struct compare_case *c;  ///< of whose twins the tensors are those; NULL: as they are
};

static void say_once(bool *said, const char *text) {
  if (!*said) {
    *said = true;
    dit_log_write(DIT_LOG_WARNING, "%s", text);
    engine_log_note(text);
  }
}

static bool caps_allow(struct compare_state *state) {
  bool calls = state->cap_calls > 0 && state->saved_calls >= state->cap_calls;
  bool bytes = state->cap_bytes > 0 && state->saved_bytes >= state->cap_bytes;
  if (!calls && !bytes) {
    return true;
  }
  char text[300];
  snprintf(text, sizeof text,
           "OpAutoCompare: %s of %lld is reached: further wrong calls are not saved; set %s (OP_AUTOCOMPARE_%s; 0: no "
           "cap) to save more",
           calls ? "cap_calls" : "cap_bytes", (long long)(calls ? state->cap_calls : state->cap_bytes),
           calls ? "cap_calls" : "cap_bytes", calls ? "CAP_CALLS" : "CAP_BYTES");
  say_once(&state->said_cap, text);
  state->capped++;
  return false;
}

// "<results>/op_capture_results/<operator>/<pid>/autocompare/<id>/<time>"; the identifier is its end.
static const char *folder_print(const struct compare_event *event, char *folder, size_t size) {
  const struct compare_state *state = event->tool->state;
  char name[201], stamp[32];
  snprintf(name, sizeof name, "%s", event->c->op->name);
  for (char *at = name; *at; at++) {
    *at = *at == '/' || (unsigned char)*at < ' ' || *at == 127 ? '_' : *at;
  }
  bool plain = name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
  time_t second = (time_t)event->c->second;
  struct tm local;
  localtime_r(&second, &local);
  strftime(stamp, sizeof stamp, "%Y-%m-%d-%H-%M-%S", &local);
  int head =
      snprintf(folder, size, "%s/op_capture_results/%s/%ld/", state->results, plain ? name : "_", (long)getpid());
  if (head < 0 || (size_t)head + 120 > size) {
    return NULL;
  }
  snprintf(folder + head, size - (size_t)head, "autocompare/%llu/%s", (unsigned long long)event->c->id, stamp);
  return folder + head;
}

// Twins stand for tensors of the device: they are said to be there.
static void records_mark(struct engine_leaves *leaves, const struct compare_case *c) {
  for (int i = 0; i < leaves->tensor_count; i++) {
    for (int k = 0; k < c->twin_count; k++) {
      if (c->twins[k] == leaves->tensor[i].py_tensor && c->on_device[k]) {
        leaves->tensor[i].flags |= ENGINE_TENSOR_DEVICE;
        break;
      }
    }
  }
}

static int leaves_read(struct engine_leaves *leaves, const struct file *file) {
  int status = 0;
  for (Py_ssize_t i = 0; i < file->count && status == 0; i++) {
    status = file->args[i] ? engine_leaves_add(leaves, file->args[i], "args") : 0;
  }
  return status == 0 && file->kwargs ? engine_leaves_add(leaves, file->kwargs, "kwargs") : status;
}

static int item_write(const char *path, struct capture_item *item, int64_t *bytes) {
  struct dit_store_item view;
  struct dit_error err = {0};
  enum dit_status status;
  capture_item_show(item, path, &view);
  *bytes = capture_item_get_size(item);
  Py_BEGIN_ALLOW_THREADS;
  status = dit_store_write_file(path, &view, &err);
  Py_END_ALLOW_THREADS;
  capture_item_move(item);
  if (status != DIT_OK) {
    PyErr_SetString(status == DIT_ERR_IO ? PyExc_OSError : PyExc_ValueError, err.message);
    return -1;
  }
  return 0;
}

static void record_write(const struct compare_event *event, const char *what, const char *path, int64_t bytes) {
  struct dit_record_builder *builder =
      event->call ? engine_log_begin(event->tool, event->call, ENGINE_RECORD_CAPTURE)
                  : engine_log_begin_backward(event->tool, event->backward, ENGINE_RECORD_CAPTURE);
  if (builder) {
    dit_record_field_string(builder, engine_key_what, what, strlen(what));
    dit_record_field_string(builder, engine_key_path, path, strlen(path));
    dit_record_field_i64(builder, engine_key_bytes, bytes);
    engine_log_commit(builder);
  }
}

static int file_build(struct capture_item *item, const struct compare_event *event, const struct file *file,
                      const char *identifier, struct engine_leaves *leaves) {
  if (leaves_read(leaves, file) < 0) {
    return -1;
  }
  if (file->c) {
    records_mark(leaves, file->c);
  }
  const struct capture_source source = {
      .name = event->c->op->name,
      .args = file->args,
      .count = file->count,
      .kwargs = file->kwargs,
      .identifier = identifier,
      .identifier_size = strlen(identifier),
      .tensors = leaves->tensor,
      .tensor_count = leaves->tensor_count,
      .whole = dit_operator_has(event->c->op->name, DIT_OPERATOR_BEYOND),
      .state = strcmp(file->what, "device/input") == 0 ? event->c->py_settings : NULL,
  };
  pickle_twin_device = file->c ? file->c->device : NULL;
  int status = capture_item_build(item, &source);
  pickle_twin_device = NULL;
  return status;
}

static int file_save(const struct compare_event *event, const struct file *file, const char *folder,
                     const char *identifier) {
  struct compare_state *state = event->tool->state;
  char path[PATH_BYTES], key[256];
  snprintf(path, sizeof path, "%s/%s.pth", folder, file->what);
  snprintf(key, sizeof key, "%s/%s", identifier, file->what);
  struct capture_item *item = capture_item_take();
  struct engine_leaves leaves;
  int64_t bytes = 0;
  engine_leaves_init(&leaves);
  int status = item ? file_build(item, event, file, key, &leaves) : -1;
  status = status < 0 ? status : item_write(path, item, &bytes);
  engine_leaves_reset(&leaves);
  capture_item_give(item);
  if (status == 0) {
    state->saved_bytes += bytes;
    record_write(event, file->what, path, bytes);
  }
  return status;
}

// All files, as far as they can be written. Never leaves an exception. True when at least one is there.
static bool files_save(const struct compare_event *event, const struct file *files, int count, const char *folder,
                       const char *identifier) {
  struct compare_state *state = event->tool->state;
  bool some = false;
  for (int i = 0; i < count; i++) {
    if (file_save(event, &files[i], folder, identifier) == 0) {
      some = true;
      continue;
    }
    char reason[256], text[600];
    compare_error_take(reason, sizeof reason);
    snprintf(text, sizeof text, "OpAutoCompare: %s of %.150s can not be saved because %.300s", files[i].what,
             event->c->op->name, reason);
    state->failed++;
    say_once(&state->said_failure, text);
  }
  return some;
}

static struct file tuple_file(const char *what, PyObject *args, PyObject *kwargs, const struct compare_case *c) {
  return (struct file){.what = what,
                       .args = ((PyTupleObject *)args)->ob_item,
                       .count = PyTuple_GET_SIZE(args),
                       .kwargs = kwargs,
                       .c = c};
}

static void forward_save(const struct compare_event *event, const struct compare_files *files, const char *folder,
                         const char *identifier) {
  struct compare_case *c = event->c;
  struct file list[4];
  int count = 0;
  // The device's own arguments, where they are at hand: with the names of devices as the program wrote them.
  PyObject *py_args = NULL, *py_kwargs = NULL;
  if (event->call && remap_call(event->call, c->twins, NULL, &py_args, &py_kwargs) < 0) {
    py_error_drop();
  }
  bool own = py_args != NULL;
  list[count++] = tuple_file("device/input", own ? py_args : c->py_args, own ? py_kwargs : c->py_kwargs, c);
  if (files->device_result) {
    list[count++] = (struct file){.what = "device/output", .args = &files->device_result, .count = 1};
  }
  list[count++] = tuple_file("cpu/input", c->py_args, c->py_kwargs, NULL);
  if (files->cpu_result) {
    list[count++] = (struct file){.what = "cpu/output", .args = &files->cpu_result, .count = 1};
  }
  c->saved = files_save(event, list, count, folder, identifier);
  Py_XDECREF(py_args);
  Py_XDECREF(py_kwargs);
}

bool compare_save_forward(const struct compare_event *event, const struct compare_files *files, char *folder,
                          size_t size) {
  struct compare_state *state = event->tool->state;
  const char *identifier = state->save && caps_allow(state) ? folder_print(event, folder, size) : NULL;
  if (!identifier) {
    return false;
  }
  state->saved_calls++;
  forward_save(event, files, folder, identifier);
  return event->c->saved;
}

bool compare_save_backward(const struct compare_event *event, const struct compare_files *files, char *folder,
                           size_t size) {
  struct compare_state *state = event->tool->state;
  const char *identifier = state->save && caps_allow(state) ? folder_print(event, folder, size) : NULL;
  if (!identifier) {
    return false;
  }
  state->saved_calls++;
  if (!event->c->saved) {
    forward_save(event, files, folder, identifier);
  }
  const struct file list[] = {
      {.what = "device/grad_outputs", .args = files->grad_outputs, .count = files->grad_output_count},
      {.what = "device/grad_inputs", .args = files->grad_inputs, .count = files->grad_input_count},
      {.what = "cpu/grad_inputs", .args = files->cpu_grad_inputs, .count = files->grad_input_count},
      {.what = "cpu/grad_outputs", .args = files->cpu_grad_outputs, .count = files->grad_output_count},
  };
  return files_save(event, list, sizeof list / sizeof *list, folder, identifier);
}
