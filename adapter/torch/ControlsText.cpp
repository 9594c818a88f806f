// Tensors and arguments as text, in the words of DIPU's lines. Values of device tensors are read from a copy.
#include "ControlsText.h"

#include <ATen/core/Formatting.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <sstream>

#include "Common.h"
#include "ControlsArguments.h"

namespace ditorch::controls {

using c10::IValue;

void listTensors(const IValue &value, std::vector<at::Tensor> &out) {
  if (value.isTensor()) {
    out.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor &tensor : value.toTensorVector()) {
      out.push_back(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor> &tensor : value.toOptionalTensorVector()) {
      out.push_back(tensor.value_or(at::Tensor()));
    }
  }
}

std::string showMetadata(const at::Tensor &tensor) {
  std::ostringstream text;
  text << "numel: " << tensor.numel() << ", sizes: " << tensor.sizes() << ", stride: " << tensor.strides()
       << ", is_view: " << (tensor.is_view() ? "true" : "false") << ", dtype: " << tensor.scalar_type()
       << ", device: " << (tensor.device().type() == kDevice ? showDevice(tensor.device()) : tensor.device().str())
       << ", layout: " << tensor.layout() << ", requires_grad: " << (tensor.requires_grad() ? "true" : "false");
  if (tensor.layout() == c10::kStrided && tensor.has_storage()) {
    text << ", memory_format: " << tensor.suggest_memory_format()
         << ", data_ptr: " << tensor.unsafeGetTensorImpl()->data() << ", storage: " << tensor.storage().data()
         << ", storage_offset: " << tensor.storage_offset();
  }
  return text.str();
}

std::string showValues(const at::Tensor &tensor, int64_t most) {
  std::ostringstream text;
  const at::Tensor flat = tensor.resolve_conj().resolve_neg().reshape({-1});
  const int64_t count = std::min(most, flat.numel());
  text << "[";
  for (int64_t i = 0; i < count; i++) {
    text << (i ? ", " : "") << flat[i].item();
  }
  text << (count < flat.numel() ? ", ..." : "") << "]";
  return text.str();
}

std::string describe(const std::string &op, const std::string &name, const IValue &value, bool values) {
  const std::string head = "\t[" + op + "]: " + name;
  std::vector<at::Tensor> tensors;
  std::ostringstream text;
  listTensors(value, tensors);
  if (tensors.empty()) {
    if (value.isDevice() && value.toDevice().type() == kDevice) {
      text << head << ": " << showDevice(value.toDevice()) << "\n";
    } else if (value.isGenerator()) {
      text << head << ": generator\n";
    } else {
      text << head << ": " << value << "\n";
    }
    return text.str();
  }
  for (size_t i = 0; i < tensors.size(); i++) {
    text << head << (value.isTensor() ? "" : "[" + std::to_string(i) + "]") << ": ";
    if (!tensors[i].defined()) {
      text << "undefined\n";
      continue;
    }
    text << showMetadata(tensors[i]) << "\n";
    if (values && tensors[i].layout() == c10::kStrided && tensors[i].has_storage()) {
      Copier copier;
      text << "\t\t" << showValues(copier.copy(tensors[i]), INT64_MAX) << "\n";
    }
  }
  return text.str();
}

void print(const std::string &text) {
  flockfile(stdout);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  funlockfile(stdout);
}

}  // namespace ditorch::controls
