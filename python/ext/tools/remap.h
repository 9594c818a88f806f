/// Arguments and results with other tensors in their places.
///
/// Containers keep their exact type: list, tuple, dict (subclasses that can be copied: OrderedDict, defaultdict), set,
/// named tuples, torch.Size, torch.return_types, dataclasses. What the engine does not open (walk.c) is passed on as it
/// is. An object in which nothing changes is returned itself. Needs the GIL and the engine's guard.
#ifndef DIT_EXT_REMAP_H
#define DIT_EXT_REMAP_H

#include "engine/engine.h"

/// The arguments of a call with tensor number i (order of call->in.tensor) replaced by replacement[i] (borrowed; NULL:
/// it stays), and everything that names a device (torch.device, "cuda:0", device=0) by `device` (borrowed; NULL: they
/// stay). *py_args and *py_kwargs are new references (*py_kwargs NULL when there are none). 0, or -1 with an exception.
DIT_NODISCARD int remap_call(const struct engine_call *call, PyObject *const *replacement, PyObject *device,
                             PyObject **py_args, PyObject **py_kwargs);

/// The same for one value whose tensors are those of `leaves` (engine_leaves_add of that value): a result. New
/// reference or NULL.
PyObject *remap_leaves(PyObject *value, const struct engine_leaves *leaves, PyObject *const *replacement);

/// New reference for one tensor, or NULL with an exception; the tensor itself (a new reference) when it stays.
typedef PyObject *(*remap_function)(void *context, PyObject *tensor);
/// A value (result, tuple of arguments) with every tensor in it passed through `map`. New reference or NULL.
PyObject *remap_value(PyObject *value, remap_function map, void *context);

#endif
