/// Tensors through torch's own functions: made, made plain, and with autograd's recording off meanwhile. Needs the GIL
/// and TORCH_TENSOR, TORCH_MODES of torch_names.h (engine_torch_load has them filled).
#ifndef DIT_EXT_TORCH_TENSOR_H
#define DIT_EXT_TORCH_TENSOR_H

#include "torch_names.h"

/// torch.empty(0, dtype=dtype, device=device), to be set over a storage; new reference or NULL.
PyObject *torch_empty_make(PyObject *dtype, PyObject *device);
/// torch.empty_strided(sizes, strides, dtype=dtype, device=device); new reference or NULL.
PyObject *torch_strided_make(const int64_t *sizes, const int64_t *strides, int ndim, PyObject *dtype, PyObject *device);

/// The same values in plain strided memory, without history: conjugate and negative bits resolved, sparse made dense,
/// nested ones flat; on the tensor's own device, or on the CPU. New reference, or NULL with TypeError for a tensor
/// without values (meta, fake).
PyObject *torch_plain_make(PyObject *tensor, bool on_cpu);

/// Switch autograd's mode (True, False): the state before, for torch_grad_restore; NULL with an exception.
PyObject *torch_grad_switch(PyObject *wanted);
/// Takes the reference; NULL allowed. Keeps a pending exception.
void torch_grad_restore(PyObject *py_before);

#endif
