/// A torch.device object, read and written where CPython code has no accessor for it.
///
/// The layout (a c10::Device right after the object header) is verified by dit_device_object_check before anybody
/// relies on it.
#ifndef DIT_EXT_DEVICE_OBJECT_H
#define DIT_EXT_DEVICE_OBJECT_H

#include "alias_hooks.h"
#include "module.h"

/// The c10::Device inside; borrowed, valid as long as the object.
static inline struct dit_c10_device *dit_device_object_get(PyObject *device) {
  return (struct dit_c10_device *)(void *)((char *)device + sizeof(PyObject));
}

/// Parse devices whose numbers are known and compare. `cuda_type` and `other_type` are what "cuda:3" may hold. 0, or -1
/// with NotImplementedError.
DIT_NODISCARD int dit_device_object_check(PyTypeObject *device_class, int cuda_type, int other_type);

/// Write "cuda" for the real name in the text of the pending exception. Anything unusual about it is left alone.
void py_error_show(const char *name);

#endif
