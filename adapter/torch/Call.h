// One call of a C operator, from either side of the door: boxed arguments (Call.cpp) or typed ones (Direct.cpp).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <vector>

#include "Operator.h"

namespace ditorch {

// What a call owns while C works on it.
struct CallState {
  c10::SmallVector<at::Tensor, 4> made;
  std::vector<std::vector<dit_tensor_view>> tensor_lists;
  std::vector<std::vector<int64_t>> int_lists;
  std::vector<std::vector<double>> double_lists;
  std::string text;
};

// Can the C side see this tensor as it is?
inline bool isPlain(const at::Tensor &tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_conj() && !tensor.is_neg() && !tensor.is_quantized() &&
         tensor.has_storage();
}

// Run the operator's C implementation on arguments in schema order; false when it does not take this call. Throws its
// errors.
bool callC(const Operator &op, dit_value *args, dit_value *rets, CallState &state);

// The same once the tensors are known to live on device `device`, which is the current one, and where nothing that the
// operator writes to is a lazy copy. `services` with their `host` make the results.
bool callRow(const Operator &op, dit_value *args, dit_value *rets, int device, const dit_call_services &services,
             void *host);

// An argument as C sees it; lists of it live in `state`. False: C does not take it.
bool convertArgument(dit_value &out, const at::IValue &value, const Operator &op, CallState &state);

// What a service does, without exceptions: C sees a status and the message.
template <typename Function>
dit_status guardService(dit_call *call, Function &&function) {
  try {
    function();
    return DIT_OK;
  } catch (const c10::OutOfMemoryError &error) {
    return dit_error_set(call->err, DIT_ERR_NOMEM, "%s", error.what_without_backtrace());
  } catch (const c10::Error &error) {
    return dit_error_set(call->err, DIT_ERR_INVALID, "%s", error.what_without_backtrace());
  } catch (const std::exception &error) {
    return dit_error_set(call->err, DIT_ERR_INTERNAL, "%s", error.what());
  }
}

// The service random_reserve.
dit_status reserveRandom(dit_call *call, void *generator, uint64_t count, uint64_t *seed, uint64_t *offset);

// A tensor that C returned: one that was made for the call is taken out of it.
at::Tensor takeTensor(const dit_value &value, CallState &state);

// A list of them; those that were made stay with the call as well.
std::vector<at::Tensor> takeTensors(const dit_value &value);

// Autograd leaves the versions of a _foreach_ operator's list to the kernel, as CUDA's do.
inline void countVersion(const at::Tensor &tensor) {
  if (tensor.defined() && !tensor.is_inference()) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace ditorch
