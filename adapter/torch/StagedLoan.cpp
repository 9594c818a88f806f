#include "StagedLoan.h"

#include "Sparse.h"
#include "Storage.h"
#include "dit/operator.h"

namespace ditorch {
namespace {

using c10::IValue;

template <class Visit>
void forEachTensor(const IValue &value, const Visit &visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const IValue &element : value.toListRef()) {
      if (element.isTensor()) {
        visit(element.toTensor());
      }
    }
  }
}

// Arguments that are written to although the schema does not say so: running statistics.
bool isWrittenByTable(const dit_operator *row, const Operator &op, const IValue *args, size_t i) {
  const auto place = static_cast<int>(i);
  if (place < row->writes_first || place >= row->writes_first + row->writes_count) {
    return false;
  }
  const int flag = row->writes_if;
  return flag < 0 || static_cast<size_t>(flag) >= op.nargs || !args[flag].isBool() || args[flag].toBool();
}

}  // namespace

void StagedLoan::note(const at::Tensor &tensor, bool written, bool reads) {
  if (!tensor.defined() || tensor.device().type() != kDevice) {
    return;
  }
  if (Entry *entry = find(tensor)) {
    entry->written = entry->written || written;
    if (reads && !entry->sparse) {
      stage_.note(tensor, true);
    }
    return;
  }
  const bool sparse = isSparse(tensor);
  entries_.push_back({tensor, at::Tensor(), written, sparse});
  if (sparse) {
    rebuildSparse(tensor, kDevice, [&](const at::Tensor &part) {  // for its parts alone
      note(part, written, /*reads=*/true);
      return part;
    });
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == c10::kStrided, "tensors with layout ", tensor.layout(),
                              " are not supported on ", showDevice(tensor.device()),
                              " by ditorch; use dense or sparse tensors, or the CPU for this part");
  stage_.note(tensor, reads);
}

void StagedLoan::prepare(const Operator &op, const c10::OperatorHandle &handle, const IValue *args) {
  const dit_operator *row = dit_operator_find(op.name.c_str());
  if (row != nullptr && row->writes_count == 0) {
    row = nullptr;
  }
  for (size_t i = 0; i < op.nargs; i++) {
    const bool written = op.isWritten(i) || (row != nullptr && isWrittenByTable(row, op, args, i));
    // What an out= tensor holds is not read. Bytes between its elements stay as they are, so those must come.
    const bool is_out = op.isWritten(i) && handle.schema().arguments()[i].kwarg_only();
    forEachTensor(args[i], [&](const at::Tensor &tensor) {
      note(tensor, written, !is_out || !tensor.is_non_overlapping_and_dense());
    });
  }
  stage_.fetch();
}

StagedLoan::Entry *StagedLoan::find(const at::Tensor &tensor) {
  for (Entry &entry : entries_) {
    if (entry.device.is_same(tensor)) {
      return &entry;
    }
  }
  return nullptr;
}

at::Tensor StagedLoan::lend(const at::Tensor &tensor) {
  if (!tensor.defined() || tensor.device().type() != kDevice) {
    return tensor;
  }
  Entry *entry = find(tensor);
  TORCH_INTERNAL_ASSERT(entry != nullptr, "ditorch: an argument was not noted");
  if (entry->cpu.defined()) {
    return entry->cpu;  // out= of an argument: its shape is not the kernel's to change
  }
  at::Tensor cpu = entry->sparse
                       ? rebuildSparse(tensor, c10::kCPU, [this](const at::Tensor &part) { return lend(part); })
                       : stage_.get(tensor);
  if (tells_autograd_ && tensor.requires_grad()) {
    cpu.unsafeGetTensorImpl()->set_requires_grad(true);
  }
  entry->cpu = cpu;
  return cpu;
}

at::Tensor StagedLoan::takeBack(const at::Tensor &result) {
  if (!result.defined()) {
    return result;
  }
  for (const Entry &entry : entries_) {
    if (entry.cpu.is_same(result)) {
      return entry.device;
    }
  }
  if (result.device().type() == kDevice) {
    return result;
  }
  if (isSparse(result)) {
    return rebuildSparse(result, kDevice, [this](const at::Tensor &part) { return takeBack(part); });
  }
  TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == c10::kStrided && !result.is_quantized() && !result.is_nested(),
                              "quantized, nested and mkldnn tensors are not supported on ",
                              showDevice(c10::Device(kDevice)),
                              " by ditorch; use dense or sparse tensors, or the CPU for this part");
  return stage_.adopt(result);
}

void StagedLoan::writeBack() {
  for (const Entry &entry : entries_) {
    if (!entry.written || !entry.cpu.defined() || entry.sparse) {
      continue;
    }
    stage_.send(entry.cpu, entry.device);
    copyBits(entry.cpu, entry.device);
  }
  for (const Entry &entry : entries_) {
    if (entry.written && entry.sparse) {
      assignSparse(entry.device, entry.cpu, [this](const at::Tensor &part) { return takeBack(part); });
    }
  }
}

}  // namespace ditorch
