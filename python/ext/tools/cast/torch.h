/// PyTorch's functions as the dtype-cast tool uses them. Needs the GIL and the engine's guard.
#ifndef DIT_EXT_CAST_TORCH_H
#define DIT_EXT_CAST_TORCH_H

#include "engine/engine.h"

/// What the tool needs of torch_names.h, and the node of a cast; once. 0 or -1.
DIT_NODISCARD int cast_torch_load(void);
/// This autograd node is what a differentiable cast leaves behind.
bool cast_node_is(PyObject *node);
/// torch.Tensor.float, double, half, bfloat16 for a dtype: borrowed for ever; NULL: use .to.
PyObject *cast_convert_find(int dtype);
/// The tensor in another dtype, differentiably: new reference or NULL. `convert` is cast_convert_find's answer.
PyObject *cast_tensor_convert(PyObject *tensor, PyObject *convert, PyObject *dtype);
/// A mode that changes dtypes by itself is on.
bool cast_autocast_is_on(void);

#endif
