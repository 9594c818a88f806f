// Sparse tensors, COO and compressed (CSR, CSC, BSR, BSC): taken apart into their dense parts and put together again
// over other ones.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "Common.h"

namespace ditorch {

// COO or compressed.
bool isSparse(const at::Tensor &tensor);

// What becomes of a dense part (indices or values).
using PartMap = std::function<at::Tensor(const at::Tensor &)>;

// A sparse tensor like `tensor` on a device of this type, its parts mapped. A device with an index must be current.
at::Tensor rebuildSparse(const at::Tensor &tensor, c10::DeviceType device, const PartMap &map);

// Make `to` what `from` is after an operator wrote to it: sizes, the coalesced flag, and its mapped parts, which may be
// others than before. Touches nothing that is the same already.
void assignSparse(const at::Tensor &to, const at::Tensor &from, const PartMap &map);

}  // namespace ditorch
