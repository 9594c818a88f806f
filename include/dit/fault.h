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
/// call, default 1, decided by `seed` (default 0) and the call's number alone, so a run repeats. operator: any
/// name that dit/operator_name.h understands (softmax, torch.softmax, aten::add.Tensor, add_), a shell pattern over
/// "aten::add.Tensor" without what may be left out ("aten::" and the overload), or several, separated by '|'. call:
/// n-th matching call (from 1), a-b range, or n+ ; dtype: of the first tensor; when: what some tensor of the call must
/// be, contiguous, strided (not row-major), expanded (a stride of 0), empty, scalar (0-d) or large (1,000,000 elements
/// and more).
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
/// nothing changes then. A rule that no operator matches is no error: dit_fault_get_warning has the words for it.
DIT_API DIT_NODISCARD enum dit_status dit_fault_configure(const char *text, struct dit_error *err);
/// What the last configure would tell the user: rules that match nothing, with the nearest names; "" when all is well.
DIT_API void dit_fault_get_warning(char *buffer, size_t size);
/// True while any rule is set: the door's only cost when there is none is this one relaxed load.
DIT_API bool dit_fault_is_active(void);
/// Before the operator runs: handles slow and error (DIT_ERR_DEVICE with "injected fault: ..."), and remembers in
/// `token` which rules apply to this call. `token` is 0 when none does. `inputs` are the tensor arguments
/// (host-readable). An operator that goes by several names has them in `op` with '|' between; a rule counts it once.
DIT_API DIT_NODISCARD enum dit_status dit_fault_before(const char *op, const struct dit_tensor_view *inputs,
                                                       int input_count, uint64_t *token, struct dit_error *err);
/// After it ran and the stream was synchronised: damages outputs or inputs as the rules of `token` say.
DIT_API void dit_fault_after(uint64_t token, const struct dit_tensor_view *inputs, int input_count,
                             const struct dit_tensor_view *outputs, int output_count);
/// How many faults were injected since the last configure.
DIT_API uint64_t dit_fault_get_count(void);
/// Rules that have not acted since the last configure, in words: because no operator call matched them, or only calls
/// that they leave alone. "" when all have, and when no operator ran.
DIT_API void dit_fault_list_idle(char *buffer, size_t size);

// The pieces, for whoever injects faults elsewhere (vendors/faulty)

enum dit_fault_when {
  DIT_WHEN_ALWAYS,
  DIT_WHEN_CONTIGUOUS,
  DIT_WHEN_STRIDED,
  DIT_WHEN_EXPANDED,
  DIT_WHEN_EMPTY,
  DIT_WHEN_SCALAR,
  DIT_WHEN_LARGE,
  DIT_WHEN_COUNT
};

/// One rule of a text; `kind` is the number of its word in the list that the parser was given.
struct dit_fault_rule {
  int kind;
  char pattern[256];  ///< as dit_operator_name_matches takes it
  int dtype;          ///< -1: any
  enum dit_fault_when when;
  uint64_t first_call, last_call;  ///< of the matching calls, from 1
  double probability;
  uint64_t seed;
  double scale;
  int64_t index;
  int bits;
  double ms;
  uint64_t matched, acted;  ///< calls so far that matched, and those on which it acts
};

/// Parse a text in the form above with these words for kinds. At most `capacity` rules. Messages name the rule.
DIT_API DIT_NODISCARD enum dit_status dit_fault_parse(const char *text, const char *const *kinds, int kind_count,
                                                      struct dit_fault_rule *rules, int capacity, int *count,
                                                      struct dit_error *err);
/// Counts a call that matches and says whether the rule acts on it; decided by (seed, number of the rule, matching
/// call) alone. Not thread safe.
DIT_API bool dit_fault_applies(struct dit_fault_rule *rule, int number, const char *op,
                               const struct dit_tensor_view *inputs, int input_count);

/// The delay of a rule; signals do not shorten it.
DIT_API void dit_fault_sleep(double ms);

/// Damage to a tensor in host-readable memory. Each returns true when it changed (or would have changed: the value
/// happened to be the same) at least one element. Kinds as above.
DIT_API bool dit_damage_value(const struct dit_tensor_view *view, int64_t index, double scale);
DIT_API bool dit_damage_precision(const struct dit_tensor_view *view, int bits);
DIT_API bool dit_damage_nan(const struct dit_tensor_view *view, int64_t index);
DIT_API bool dit_damage_stride(const struct dit_tensor_view *view, const struct dit_tensor_view *input);
DIT_API bool dit_damage_unwritten(const struct dit_tensor_view *view);

DIT_EXTERN_C_END

#endif
