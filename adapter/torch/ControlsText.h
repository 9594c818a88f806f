// Tensors and arguments as text, for the lines of the controls: see ControlsText.cpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace ditorch::controls {

// The tensors of a value: itself, the elements of a list, or none. Undefined ones count.
void listTensors(const c10::IValue &value, std::vector<at::Tensor> &out);

// Sizes, strides, dtype, place, memory.
std::string showMetadata(const at::Tensor &tensor);

// The first values of a CPU tensor, row-major.
std::string showValues(const at::Tensor &tensor, int64_t most);

// An argument as lines of text, "\t[aten::add.Tensor]: self: ..."; with the values if wanted.
std::string describe(const std::string &op, const std::string &name, const c10::IValue &value, bool values);

// One piece of text to stdout, not mixed with that of another thread.
void print(const std::string &text);

}  // namespace ditorch::controls
