/// What the extension knows of PyTorch by name: one list (torch_names.inc), one struct, one loader.
///
/// A group is filled when it is first needed, so that importing ditorch looks up next to nothing; all fields of a group
/// that was loaded are valid for the life of the process, the optional ones may be NULL. Needs the GIL; a thread that
/// loses it in between finds what the other one stored. What torch replaces while it runs (generators of devices,
/// functions of torch.cuda) is not here: it is asked for each time, from py_torch on.
#ifndef DIT_EXT_TORCH_NAMES_H
#define DIT_EXT_TORCH_NAMES_H

#include "dit/dtype.h"
#include "module.h"

/// Groups, to be combined. Every load also fills TORCH_BASE, the texts, the dtypes and the devices.
enum torch_group {
  TORCH_BASE = 1 << 0,
  TORCH_ENGINE = 1 << 1,
  TORCH_TENSOR = 1 << 2,
  TORCH_MODES = 1 << 3,
  TORCH_AUTOCAST = 1 << 4,
  TORCH_AUTOGRAD = 1 << 5,
  TORCH_RANDOM = 1 << 6,
  TORCH_CAPTURE = 1 << 7,
  TORCH_FALLBACK = 1 << 8,
  TORCH_PYTHON = 1 << 9,
  TORCH_ALL = (1 << 10) - 1,
};

/// Borrowed by all users; see torch_names.inc for what each is.
struct torch_names {
  unsigned loaded;  ///< groups
#define REQUIRED(group, field, module, path) PyObject *py_##field;
#define CLASS(group, field, module, path) PyObject *py_##field;
#define OPTIONAL(group, field, module, path, since) PyObject *py_##field;
#define TEXT(field, text) PyObject *py_##field;
#include "torch_names.inc"
#undef REQUIRED
#undef CLASS
#undef OPTIONAL
#undef TEXT
  PyObject *py_host, *py_meta;           ///< torch.device("cpu"), torch.device("meta")
  PyObject *py_dtype_device;             ///< ("dtype", "device"): keywords of a vectorcall
  PyObject *py_dtypes[DIT_DTYPE_COUNT];  ///< by enum dit_dtype; NULL where this torch has none
};
extern struct torch_names torch_names;

/// torch_names_load, out of line.
DIT_NODISCARD int torch_names_fill(unsigned groups);
/// Have these groups filled. 0, or -1 with NotImplementedError, which names what is missing and the torch that lacks
/// it.
DIT_NODISCARD static inline int torch_names_load(unsigned groups) {
  return (torch_names.loaded & groups) == groups ? 0 : torch_names_fill(groups);
}

/// torch.float32 of DIT_DTYPE_F32: borrowed; NULL with an exception when this torch has no such dtype.
PyObject *torch_dtype_get(int dtype);
/// The number of a torch.dtype; -1 (no exception) for anything else.
int torch_dtype_find(PyObject *dtype);

/// Of exactly this class, one of the fields above.
static inline bool torch_is(PyObject *value, PyObject *type) {
  return Py_IS_TYPE(value, (PyTypeObject *)type);
}
/// Of this class or one derived from it.
static inline bool torch_is_instance(PyObject *value, PyObject *type) {
  return PyObject_TypeCheck(value, (PyTypeObject *)type);
}

#endif
