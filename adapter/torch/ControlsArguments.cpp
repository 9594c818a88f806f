// The arguments of one call on the CPU, and the arguments of further runs that the judge asks for (dit/verdict.h).
//
// A tensor that is written to is copied for every run; others are handed out as they are where their dtype may stay. In
// wide runs floating tensors, destinations among them, become float64 or complex128, and so do arguments of type
// ScalarType. A tensor that shares memory with a written one stays with it: their storage is converted in one piece.
// Moves are those of python/ext/tools/compare/run.c: each tensor by its number among the arguments, then the numbers.
#include "ControlsArguments.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/ScalarType.h>

#include <algorithm>

#include "ControlsText.h"
#include "Storage.h"
#include "dit/memory.h"
#include "dit/random.h"
#include "dit/runtime.h"

namespace ditorch::controls {
namespace {

using c10::IValue;

at::Tensor viewCopy(const c10::Storage &storage, const at::Tensor &like, caffe2::TypeMeta dtype) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                       c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  copyBits(like, made);
  return made;
}

bool isFloating(c10::ScalarType type) {
  return c10::isFloatingType(type) || c10::isComplexType(type);
}

bool isWide(const dit_verdict_request &request) {
  return request.kind == DIT_RUN_WIDE || request.kind == DIT_RUN_SHAKEN || request.kind == DIT_RUN_JITTER_WIDE;
}

bool isJittered(const dit_verdict_request &request) {
  return request.kind == DIT_RUN_JITTER || request.kind == DIT_RUN_JITTER_WIDE;
}

c10::ScalarType widen(c10::ScalarType type) {
  return c10::isComplexType(type) ? at::kComplexDouble : at::kDouble;
}

// The dtype in which the program's numbers are: of a narrow run float32, whatever the program has.
c10::ScalarType getOwn(const dit_verdict_request &request, c10::ScalarType type) {
  if (!isJittered(request) || !request.narrow || !isFloating(type)) {
    return type;
  }
  return c10::isComplexType(type) ? at::kComplexFloat : at::kFloat;
}

double getRoundoff(c10::ScalarType type) {
  dit_judge_type known;
  return dit_judge_type_get(static_cast<int>(type), &known, nullptr) == DIT_OK ? known.roundoff : 0;
}

// By how much numbers of this dtype are moved, relatively; 0: not at all.
double getMove(const dit_verdict_request &request, c10::ScalarType type) {
  if (request.kind == DIT_RUN_SHAKEN) {
    return request.size > 0 ? request.size : getRoundoff(type);
  }
  return isJittered(request) ? request.size * getRoundoff(getOwn(request, type)) : 0;
}

// A fresh dense tensor of the numbers that a run of this kind is given. Order in memory is kept where it is dense.
at::Tensor convert(const dit_verdict_request &request, const at::Tensor &tensor, int place) {
  const c10::ScalarType type = tensor.scalar_type(), wide = widen(type);
  at::Tensor made = tensor.to(wide, /*non_blocking=*/false, /*copy=*/true);
  const double size = getMove(request, type);
  if (size > 0) {
    const int64_t count = made.numel() * (c10::isComplexType(wide) ? 2 : 1);
    dit_verdict_move(static_cast<double *>(made.data_ptr()), count, size, request.seed, place);
  }
  if (isJittered(request)) {
    made = made.to(getOwn(request, type));
  }
  return isWide(request) ? made.to(wide) : made;
}

bool changes(const dit_verdict_request &request, const at::Tensor &tensor) {
  return request.kind != DIT_RUN_NATIVE && isFloating(tensor.scalar_type());
}

bool isScalarType(const c10::Argument &argument) {
  c10::TypePtr type = argument.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

// Puts the tensors of a run into the places of those that were saved.
IValue replaceTensors(const IValue &value, const std::vector<at::Tensor> &made, size_t &next) {
  if (value.isTensor()) {
    return made[next++];
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (size_t i = 0; i < value.toListRef().size(); i++) {
      list.push_back(made[next++]);
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (size_t i = 0; i < value.toListRef().size(); i++) {
      const at::Tensor &tensor = made[next++];
      list.push_back(tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt);
    }
    return list;
  }
  return value;
}

// Arguments that are written to although the schema does not say so: running statistics.
bool isWrittenByTable(const Operator &op, const IValue *args, size_t i) {
  const dit_operator *row = dit_operator_find(op.name.c_str());
  const auto place = static_cast<int>(i);
  if (row == nullptr || row->writes_count == 0 || place < row->writes_first ||
      place >= row->writes_first + row->writes_count) {
    return false;
  }
  const int flag = row->writes_if;
  return flag < 0 || static_cast<size_t>(flag) >= op.nargs || !args[flag].isBool() || args[flag].toBool();
}

bool isSameView(const at::Tensor &a, const at::Tensor &b) {
  return a.storage().is_alias_of(b.storage()) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

}  // namespace

at::Tensor Copier::copy(const at::Tensor &tensor) {
  if (!tensor.defined() || tensor.device().type() != kDevice) {
    return tensor;  // of the CPU: nobody writes to it
  }
  return viewCopy(copyStorage(tensor.storage(), tensor.device().index()), tensor, tensor.dtype());
}

IValue Copier::copy(const IValue &value) {
  if (value.isTensor()) {
    return copy(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor &tensor : value.toTensorVector()) {
      list.push_back(copy(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor> &tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(copy(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value.isDevice() && value.toDevice().type() == kDevice ? IValue(c10::Device(c10::kCPU)) : value;
}

const c10::Storage &Copier::copyStorage(const c10::Storage &storage, c10::DeviceIndex device) {
  for (const auto &[from, to] : copied_) {
    if (from == storage.unsafeGetStorageImpl()) {
      return to;
    }
  }
  synchronizeCurrentStream(device);
  const auto size = static_cast<int64_t>(storage.nbytes());
  const at::Tensor bytes = at::empty({size}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  if (size > 0) {
    DIT_CHECK(dit_memory_copy(bytes.data_ptr(), -1, storage.data(), device, storage.nbytes(), device, 0, false, &err));
  }
  copied_.emplace_back(storage.unsafeGetStorageImpl(), bytes.storage());
  return copied_.back().second;
}

Arguments::Arguments(const Operator &op, const c10::FunctionSchema &schema, const IValue *args) : schema_(schema) {
  Copier copier;
  for (size_t i = 0; i < op.nargs; i++) {
    const bool written = op.isWritten(i) || isWrittenByTable(op, args, i);
    saved_.push_back(copier.copy(args[i]));
    listTensors(saved_.back(), tensors_);
    written_.resize(tensors_.size(), written);
  }
  findSharing();
}

void Arguments::findSharing() {
  together_.assign(tensors_.size(), false);
  for (size_t i = 0; i < tensors_.size(); i++) {
    first_.push_back(i);
    if (!tensors_[i].defined() || !tensors_[i].has_storage()) {
      continue;
    }
    for (size_t j = 0; j < i; j++) {
      if (!tensors_[j].defined() || !tensors_[j].has_storage() ||
          !tensors_[i].storage().is_alias_of(tensors_[j].storage())) {
        continue;
      }
      const bool same = isSameView(tensors_[i], tensors_[j]);
      first_[i] = same ? std::min(first_[i], j) : first_[i];
      if (written_[i] || written_[j]) {
        written_[i] = written_[i] || same;
        written_[j] = written_[j] || same;
        together_[i] = together_[i] || !same;
        together_[j] = together_[j] || !same;
      }
    }
  }
  for (size_t i = 0; i < tensors_.size(); i++) {  // one that stays together takes all of its storage along
    for (size_t j = 0; together_[i] && j < tensors_.size(); j++) {
      together_[j] = together_[j] || (tensors_[j].defined() && tensors_[j].has_storage() &&
                                      tensors_[j].storage().is_alias_of(tensors_[i].storage()));
    }
  }
}

at::Tensor Arguments::makeTensor(const dit_verdict_request &request, size_t i) const {
  const at::Tensor &saved = tensors_[i];
  if (!saved.defined() || (!written_[i] && !changes(request, saved))) {
    return saved;
  }
  at::Tensor made = changes(request, saved) ? convert(request, saved, static_cast<int>(i)) : saved;
  if (written_[i] && (made.strides() != saved.strides() || made.is_same(saved))) {
    at::Tensor placed = at::empty_strided(saved.sizes(), saved.strides(), made.options());
    placed.copy_(made);
    made = std::move(placed);
  }
  if (saved.unsafeGetTensorImpl()->is_wrapped_number()) {
    made.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return made;
}

IValue Arguments::makeNumber(const dit_verdict_request &request, size_t i, double size, uint64_t *state) const {
  const IValue &value = saved_[i];
  if (value.isInt() && isScalarType(schema_.arguments()[i])) {
    const auto type = static_cast<c10::ScalarType>(value.toInt());
    return isFloating(type) ? static_cast<int64_t>(isWide(request) ? widen(type) : getOwn(request, type)) : value;
  }
  if (request.kind != DIT_RUN_SHAKEN) {
    return value;
  }
  if (value.isDouble()) {
    return dit_verdict_move_number(value.toDouble(), size, state);
  }
  if (value.isDoubleList()) {
    std::vector<double> list = value.toDoubleVector();
    for (double &number : list) {
      number = dit_verdict_move_number(number, size, state);
    }
    return list;
  }
  return value;
}

namespace {

// The storage of `tensor` in one piece. All views of it must have its dtype when that one changes.
c10::Storage makeStorage(const dit_verdict_request &request, const at::Tensor &tensor, int place) {
  const auto count = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  auto whole = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()),
                                                        c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  whole.unsafeGetTensorImpl()->set_sizes_contiguous({count});
  return (changes(request, whole) ? convert(request, whole, place) : whole.clone()).storage();
}

}  // namespace

std::vector<IValue> Arguments::make(const dit_verdict_request &request) const {
  std::vector<at::Tensor> made;
  std::vector<std::pair<size_t, c10::Storage>> storages;  // by the first tensor of each
  double size = 0x1p-24;
  for (size_t i = 0; i < tensors_.size(); i++) {
    const at::Tensor &saved = tensors_[i];
    if (saved.defined() && (saved.scalar_type() == at::kDouble || saved.scalar_type() == at::kComplexDouble)) {
      size = 0x1p-53;
    }
    if (!together_[i]) {
      made.push_back(first_[i] < i ? made[first_[i]] : makeTensor(request, i));
      continue;
    }
    auto known = std::find_if(storages.begin(), storages.end(), [&](const auto &entry) {
      return tensors_[entry.first].storage().is_alias_of(saved.storage());
    });
    if (known == storages.end()) {
      storages.emplace_back(i, makeStorage(request, saved, static_cast<int>(i)));
      known = storages.end() - 1;
    }
    const at::Tensor &owner = tensors_[known->first];
    TORCH_CHECK_NOT_IMPLEMENTED(request.kind == DIT_RUN_NATIVE || owner.scalar_type() == saved.scalar_type(),
                                "arguments of different dtypes share memory that is written to");
    c10::ScalarType type = saved.scalar_type();
    if (changes(request, saved)) {
      type = isWide(request) ? widen(type) : getOwn(request, type);
    }
    made.push_back(viewCopy(known->second, saved, c10::scalarTypeToTypeMeta(type)));
  }
  uint64_t state = dit_verdict_move_begin(request.seed);
  std::vector<IValue> args;
  size_t next = 0;
  for (size_t i = 0; i < saved_.size(); i++) {
    const IValue value = makeNumber(request, i, size, &state);
    args.push_back(replaceTensors(value, made, next));
  }
  return args;
}

uint64_t Arguments::hash() const {
  uint64_t key = tensors_.size();
  for (const at::Tensor &tensor : tensors_) {
    key = dit_random_mix(key, tensor.defined() ? static_cast<uint64_t>(tensor.scalar_type()) + 1 : 0);
    for (const int64_t extent : tensor.defined() ? tensor.sizes() : c10::IntArrayRef()) {
      key = dit_random_mix(key, static_cast<uint64_t>(extent));
    }
  }
  return key;
}

}  // namespace ditorch::controls
