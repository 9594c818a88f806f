/// CPU twins of device tensors: copies with the same dtype, shape, strides, conjugate and negative bits.
///
/// Tensors of one call that overlap in memory overlap in the same way in their twins (views of one copy of the bytes
/// that they cover together); the same object has the same twin. Needs the GIL and the engine's guard; waits for the
/// device.
#ifndef DIT_EXT_TWIN_H
#define DIT_EXT_TWIN_H

#include "engine/engine.h"

enum twin_mode {
  TWIN_DETACHED,  ///< leaves without history; requires_grad as the original has it
  TWIN_ATTACHED,  ///< gradients of the twin flow to the original (the copy is differentiable)
};

/// twins[i] of tensors[i]: new references. Tensors that are on the CPU already are copied when `copy_cpu`, else they
/// are their own twins. Sparse, quantized and nested tensors are moved by torch's own .cpu(). Meta, fake and wrapped
/// tensors have no twin: -1 with a TypeError that says which. 0, or -1 with an exception (then no references are held).
DIT_NODISCARD int twin_make(const struct engine_tensor *tensors, int count, enum twin_mode mode, bool copy_cpu,
                            PyObject **twins);
/// The way back: tensors[i] (all on the CPU) on `device` (torch.device, borrowed), sharing memory among themselves as
/// they do on the CPU. The same rules and failures as twin_make.
DIT_NODISCARD int twin_send(const struct engine_tensor *tensors, int count, enum twin_mode mode, PyObject *device,
                            PyObject **copies);
void twin_release(PyObject **twins, int count);

#endif
