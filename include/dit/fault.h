/// The fault hook: break chosen operators in chosen ways, so that tools and tests can prove that they notice.
///
/// Text form (DITORCH_FAULT, `ditorch.fault(...)`): rules separated by ';', each `kind:operator[,key=value ...]`, e.g.
///   value:aten::add.Tensor,dtype=float32,call=3 ; nan:mm,probability=0.1,seed=7 ; slow:*softmax*,ms=20
/// kind: value (adds `scale` * max|x|, default 0.01, to the element `index`, default 0, of the first result; integers
/// move by at least 1, bool flips), precision (rounds all results to `bits` mantissa bits, default 7), nan (one element
/// becomes NaN; an integer its lowest, an unsigned one its highest value, bool flips), stride (the first result comes
/// out as if the first input had been read as contiguous: its elements are permuted; without effect on contiguous
/// inputs), input (the first tensor input is modified like `value`), unwritten (all results are filled with bytes 0x5A,
/// bool with true: memory nobody wrote), slow (sleeps `ms`, default 10), error (raises). probability: of a matching
/// call, default 1, decided by `seed` (default 0) and the call's number alone, so a run repeats. operator: shell
/// pattern over "aten::add.Tensor"; the "aten::" prefix and the overload may be left out. call: n-th matching call
/// (from 1), a-b range, or n+ ; dtype: of the first tensor.
#ifndef DIT_FAULT_H
#define DIT_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "dit/tensor.h"

DIT_EXTERN_C_BEGIN

enum dit_fault_kind {
  DIT_FAULT_VALUE,
  DIT_FAULT_PRECISION,
  DIT_FAULT_NAN,
  DIT_FAULT_STRIDE,
  DIT_FAULT_INPUT,
  DIT_FAULT_UNWRITTEN,
  DIT_FAULT_SLOW,
  DIT_FAULT_ERROR,
  DIT_FAULT_KINDS
};

/// Replace all rules by those of `text` (NULL or "" = none). A bad text names the rule, the place and the valid words;
/// nothing changes then.
DIT_API DIT_NODISCARD enum dit_status dit_fault_configure(const char *text, struct dit_error *err);
/// True while any rule is set: the door's only cost when there is none is this one relaxed load.
DIT_API bool dit_fault_is_active(void);
/// Before the operator runs: handles slow and error (DIT_ERR_DEVICE with "injected fault: ..."), and remembers in
/// `token` which rules apply to this call. `token` is 0 when none does. `inputs` are the tensor arguments
/// (host-readable).
DIT_API DIT_NODISCARD enum dit_status dit_fault_before(const char *op, const struct dit_tensor_view *inputs,
                                                       int input_count, uint64_t *token, struct dit_error *err);
/// After it ran and the stream was synchronised: damages outputs or inputs as the rules of `token` say.
DIT_API void dit_fault_after(uint64_t token, const struct dit_tensor_view *inputs, int input_count,
                             const struct dit_tensor_view *outputs, int output_count);
/// How many faults were injected since the last configure.
DIT_API uint64_t dit_fault_get_count(void);

DIT_EXTERN_C_END

#endif
