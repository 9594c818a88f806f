// Options, keys and paths of OpCapture; see capture/state.h.
#include "tools/capture/state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/capture/text.h"
#include "tools/option.h"

#define NAME_MAX_BYTES 200  // of an operator's name as a folder

// Options

// A small number of the environment; -1 when it is not there.
static long environ_number(const char *name) {
  const char *text = getenv(name);
  char *end = NULL;
  errno = 0;
  long number = text && *text ? strtol(text, &end, 10) : -1;
  return errno == 0 && number >= 0 && number <= INT32_MAX && end && !*end ? number : -1;
}

// Option `name` with "/rank<R>" behind it when the job has several ranks; owned by the caller, or NULL with an
// exception.
static char *folder_read(PyObject *options, const char *name, const char *otherwise, long rank) {
  const char *folder = otherwise;
  PyObject *value = option_get(options, name);
  if (value && py_optional_text(value, name, &folder) < 0) {
    return NULL;
  }
  size_t size = strlen(folder) + 32;
  char *copy = *folder ? malloc(size) : NULL;
  if (!*folder) {
    PyErr_Format(PyExc_ValueError, "option %s of OpCapture is empty; valid: the path of a folder", name);
  } else if (!copy) {
    PyErr_NoMemory();
  } else if (rank >= 0) {
    snprintf(copy, size, "%s/rank%ld", folder, rank);
  } else {
    snprintf(copy, size, "%s", folder);
  }
  return copy;
}

static int root_read(struct capture_state *state, PyObject *options) {
  long rank = environ_number("RANK"), world = environ_number("WORLD_SIZE");
  state->store_options.rank = (int32_t)(rank > 0 ? rank : 0);
  rank = world > 1 ? rank : -1;
  state->root = folder_read(options, "results", "op_tools_results", rank);
  const char *plain = PyDict_GetItemString(options, "shown") ? "shown" : "results";
  state->shown = state->root ? folder_read(options, plain, "op_tools_results", rank) : NULL;
  return state->shown ? 0 : -1;
}

void capture_state_destroy(struct capture_state *state) {
  if (state) {
    capture_store_close(state->store);
    free(state->root);
    free(state->shown);
    free(state);
  }
}

struct capture_state *capture_state_create(PyObject *options) {
  struct capture_state *state = calloc(1, sizeof *state);
  if (!state) {
    PyErr_NoMemory();
    return NULL;
  }
  state->outputs = state->gradients = true;
  int64_t queue = 0;  // the store's own
  int layout = DIT_STORE_FILES, pressure = DIT_RECORD_BLOCK, compress = DIT_STORE_COMPRESS_OFF;
  bool staging = true;
  if (root_read(state, options) < 0 ||
      option_read_choice(options, "OpCapture", "layout", (const char *const[]){"files", "packed", NULL}, &layout) < 0 ||
      option_read_choice(options, "OpCapture", "pressure", (const char *const[]){"block", "drop", NULL}, &pressure) <
          0 ||
      option_read_choice(options, "OpCapture", "compress", (const char *const[]){"off", "auto", "zstd", "zlib", NULL},
                         &compress) < 0 ||
      option_read_number(options, "OpCapture", "cap_bytes", 0, &state->cap_bytes) < 0 ||
      option_read_number(options, "OpCapture", "cap_calls", 0, &state->cap_calls) < 0 ||
      option_read_number(options, "OpCapture", "queue_bytes", 65536, &queue) < 0 ||
      option_read_flag(options, "write_ahead", &state->write_ahead) < 0 ||
      option_read_flag(options, "outputs", &state->outputs) < 0 ||
      option_read_flag(options, "backward", &state->gradients) < 0 ||
      option_read_flag(options, "staging", &staging) < 0) {
    capture_state_destroy(state);
    return NULL;
  }
  state->plain = !staging;
  state->store_options.layout = layout == DIT_STORE_PACKED ? DIT_STORE_PACKED : DIT_STORE_FILES;
  state->store_options.pressure = pressure == DIT_RECORD_DROP ? DIT_RECORD_DROP : DIT_RECORD_BLOCK;
  state->store_options.queue_bytes = queue;
  state->store_options.compress = (enum dit_store_compress)compress;
  return state;
}

// Keys and paths

// The local time of a second, as the folders are called; cached, guarded by the GIL.
static const char *time_text(time_t second) {
  static time_t cached;
  static char text[32];
  if (second != cached || !text[0]) {
    struct tm local;
    localtime_r(&second, &local);
    strftime(text, sizeof text, "%Y-%m-%d-%H-%M-%S", &local);
    cached = second;
  }
  return text;
}

size_t capture_key_print(char to[CAPTURE_KEY_BYTES], uint64_t id, time_t second, const char *what) {
  char *at = capture_text_format_integer(to, (int64_t)id);
  *at++ = '/';
  const char *text = time_text(second);
  size_t length = strlen(text);
  memcpy(at, text, length + 1);
  at += length;
  if (what) {
    *at++ = '/';
    length = strlen(what);
    memcpy(at, what, length + 1);
    at += length;
  }
  return (size_t)(at - to);
}

// Names of operators may contain anything; a folder's name must not contain '/'.
static char *folder_print(char *at, const char *name) {
  size_t length = strlen(name);
  length = length < NAME_MAX_BYTES ? length : NAME_MAX_BYTES;
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)name[i];
    *at++ = c == '/' || c < ' ' || c == 127 ? '_' : (char)c;
  }
  if (length == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
    *at++ = '_';
  }
  return at;
}

void capture_path_print(const struct capture_state *state, const struct engine_op *op, const char *identifier,
                        size_t size, char path[CAPTURE_PATH_BYTES]) {
  static const char results[] = "op_capture_results/";
  memcpy(path, results, sizeof results - 1);
  char *at = folder_print(path + sizeof results - 1, op->name);
  *at++ = '/';
  at = capture_text_format_integer(at, state->pid);
  *at++ = '/';
  memcpy(at, identifier, size);
  memcpy(at + size, ".pth", 5);
}
