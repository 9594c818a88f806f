// Where in the user's program a call comes from: the innermost frame that belongs neither to torch nor to the tools.
//
// Frames are told by the file of their code object, once per code object; the text is made once per (code, instruction)
// and interned. The table owns its code objects; it is emptied when it has grown beyond all reason (programs that
// generate code for ever).
#include <string.h>

#include "dit/record.h"
#include "engine/internal.h"

#define PLACES 4096  // power of two
#define MAX_TEXTS 65536

struct place {
  PyCodeObject *py_code;  // owned
  int instruction;
  bool internal;
  uint32_t location;
};

static struct {
  struct place places[PLACES];
  int used;
  // Texts by interned number, so that they can be printed again.
  struct {
    uint32_t key;
    char *text;  // owned
  } *texts;
  size_t text_count, text_capacity;
} cache;

// Packages whose files are internal. Their folders are found when they are imported: nothing is imported for it.
static struct {
  const char *module;
  char *folder;  // owned; NULL: not known yet
} packages[] = {{"torch", NULL}, {"ditorch", NULL}, {"op_tools", NULL}};

static char *folder_find(const char *module) {
  PyObject *found = PyDict_GetItemString(PyImport_GetModuleDict(), module);  // borrowed
  PyObject *py_file = found ? PyObject_GetAttrString(found, "__file__") : NULL;
  const char *file = py_file && PyUnicode_Check(py_file) ? PyUnicode_AsUTF8(py_file) : NULL;
  const char *slash = file ? strrchr(file, '/') : NULL;
  char *folder = slash ? PyMem_Malloc((size_t)(slash - file) + 2) : NULL;
  if (folder) {
    memcpy(folder, file, (size_t)(slash - file) + 1);
    folder[slash - file + 1] = '\0';
  }
  py_error_drop();
  Py_XDECREF(py_file);
  return folder;
}

static bool file_is_internal(const char *file) {
  for (size_t i = 0; i < sizeof packages / sizeof *packages; i++) {
    if (!packages[i].folder) {
      packages[i].folder = folder_find(packages[i].module);
    }
    if (packages[i].folder && strncmp(file, packages[i].folder, strlen(packages[i].folder)) == 0) {
      return true;
    }
  }
  return strncmp(file, "<frozen ", 8) == 0;
}

static PyObject *source_get(PyObject *py_file, int line) {
  PyObject *py_line = PyObject_CallFunction(torch_names.py_source_line, "Oi", py_file, line);
  PyObject *py_text = py_line ? PyObject_CallMethod(py_line, "strip", NULL) : NULL;
  Py_XDECREF(py_line);
  if (!py_text) {
    py_error_drop();
    py_text = PyUnicode_FromString("");
  }
  return py_text;
}

static void text_keep(uint32_t key, const char *text) {
  if (cache.text_count == cache.text_capacity) {
    size_t capacity = cache.text_capacity ? cache.text_capacity * 2 : 256;
    void *grown = PyMem_Realloc(cache.texts, capacity * sizeof *cache.texts);
    if (!grown) {
      return;
    }
    cache.texts = grown;
    cache.text_capacity = capacity;
  }
  for (size_t i = 0; i < cache.text_count; i++) {
    if (cache.texts[i].key == key) {
      return;
    }
  }
  size_t size = strlen(text) + 1;
  char *copy = PyMem_Malloc(size);
  if (copy) {
    memcpy(copy, text, size);
    cache.texts[cache.text_count].key = key;
    cache.texts[cache.text_count++].text = copy;
  }
}

const char *engine_location_get_text(uint32_t location) {
  for (size_t i = 0; i < cache.text_count && location; i++) {
    if (cache.texts[i].key == location) {
      return cache.texts[i].text;
    }
  }
  return "";
}

static uint32_t location_make(PyCodeObject *code, int line) {
  if (cache.text_count >= MAX_TEXTS) {
    return 0;
  }
  PyObject *py_source = source_get(code->co_filename, line);
  PyObject *py_text =
      py_source ? PyUnicode_FromFormat("%U:%d %U: %U", code->co_filename, line, code->co_name, py_source) : NULL;
  Py_ssize_t size = 0;
  const char *text = py_text ? PyUnicode_AsUTF8AndSize(py_text, &size) : NULL;
  uint32_t key = 0;
  if (text && dit_record_intern(text, (size_t)size, &key, NULL) == DIT_OK) {
    text_keep(key, text);
  }
  py_error_drop();
  Py_XDECREF(py_text);
  Py_XDECREF(py_source);
  return key;
}

static void cache_empty(void) {
  for (int i = 0; i < PLACES; i++) {
    Py_CLEAR(cache.places[i].py_code);
  }
  cache.used = 0;
}

// The cached facts of code that stands at the byte `offset` of its instructions.
static const struct place *place_find(PyCodeObject *code, int offset) {
  size_t at = (((uintptr_t)code >> 4) * 31 + (size_t)offset) & (PLACES - 1);
  while (cache.places[at].py_code) {
    if (cache.places[at].py_code == code && cache.places[at].instruction == offset) {
      return &cache.places[at];
    }
    at = (at + 1) & (PLACES - 1);
  }
  if (cache.used * 2 >= PLACES) {
    cache_empty();
    at = (((uintptr_t)code >> 4) * 31 + (size_t)offset) & (PLACES - 1);
  }
  const char *file = PyUnicode_AsUTF8(code->co_filename);
  bool internal = !file || file_is_internal(file);
  py_error_drop();
  uint32_t location = internal ? 0 : location_make(code, PyCode_Addr2Line(code, offset));
  cache.used++;
  Py_INCREF(code);
  cache.places[at] = (struct place){.py_code = code, .instruction = offset, .internal = internal, .location = location};
  return &cache.places[at];
}

#ifdef RAW_FRAMES
uint32_t engine_location_find(void) {
  // Nothing below runs Python code of the program, so the frames stay as they are; a miss may read a source file.
  const struct _PyInterpreterFrame *frame = PyThreadState_Get()->cframe->current_frame;
  for (; frame; frame = frame->previous) {
    if (_PyFrame_IsIncomplete((struct _PyInterpreterFrame *)(uintptr_t)frame)) {
      continue;
    }
    int offset = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
    const struct place *place = place_find(frame->f_code, offset);
    if (!place->internal) {
      return place->location;
    }
  }
  return 0;
}
#else
uint32_t engine_location_find(void) {
  PyFrameObject *py_frame = PyThreadState_GetFrame(PyThreadState_Get());
  uint32_t location = 0;
  bool internal = true;
  while (py_frame && internal) {
    PyCodeObject *py_code = PyFrame_GetCode(py_frame);
#if PY_VERSION_HEX >= 0x030B0000
    const struct place *place = place_find(py_code, PyFrame_GetLasti(py_frame));
#else
    const struct place *place = place_find(py_code, py_frame->f_lasti * 2);
#endif
    internal = place->internal;
    location = place->location;
    Py_DECREF(py_code);
    PyFrameObject *py_back = PyFrame_GetBack(py_frame);
    Py_DECREF(py_frame);
    py_frame = py_back;
  }
  Py_XDECREF((PyObject *)py_frame);
  return location;
}
#endif
