/// PyTorch's functions as the dtype-cast tool uses them. Needs the GIL and the engine's guard.
#ifndef DIT_EXT_CAST_TORCH_H
#define DIT_EXT_CAST_TORCH_H

#include "engine/engine.h"

/// Looked up once; borrowed for ever.
struct cast_torch {
  PyObject *py_to, *py_copy, *py_resize, *py_as_strided, *py_empty_strided, *py_narrow, *py_expand, *py_conj,
      *py_neg_view;
  PyObject *py_float, *py_double, *py_half, *py_bfloat16;
  PyObject *py_set_grad, *py_get_grad, *py_inference;
  PyObject *py_autocast;    ///< NULL on a torch that lacks it
  PyTypeObject *cast_node;  ///< of autograd: what a differentiable cast leaves behind
};
extern struct cast_torch cast_torch;

/// Look everything up; once. 0 or -1.
DIT_NODISCARD int cast_torch_load(void);
/// torch.Tensor.float, double, half, bfloat16 for a dtype: borrowed for ever; NULL: use .to.
PyObject *cast_convert_find(int dtype);
/// The tensor in another dtype, differentiably: new reference or NULL. `convert` is cast_convert_find's answer.
PyObject *cast_tensor_convert(PyObject *tensor, PyObject *convert, PyObject *dtype);
/// Switch autograd's mode (True, False): the state before, for cast_grad_restore; NULL with an exception.
PyObject *cast_grad_switch(PyObject *wanted);
/// Takes the reference. Keeps a pending exception.
void cast_grad_restore(PyObject *py_before);
/// A mode that changes dtypes by itself is on.
bool cast_autocast_is_on(void);

#endif
